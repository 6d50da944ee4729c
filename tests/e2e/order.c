/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Order after a message that is lost with its sender. A sends a long message, whose bytes stay in
 * A's memory until B fetches them, and another request; then A's queue pair ends, or its process
 * dies, before B has executed them. B may have executed neither, the first one, or both, but never
 * the second one alone; and a message that arrived has the bytes that were sent. B determines the
 * outcome after a request of its own, whose error comes after everything that A sent. See rig.h.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"

enum { LONG = 100000, SHORT = 16, SECOND = 2 * LONG, TARGET = 3 * LONG, BYTES = TARGET + 64 };
enum { SENT = 0x55, REUSED = 0xaa };

/* Why B doesn't execute A's requests: it has no receive, or its process is stopped, or it is
 * stopped once the first message waits for a receive. */
enum delay { NO_RECEIVE, STOPPED, STOPPED_LATER };

enum end_way { DESTROYED, TO_RESET, TO_ERR, KILLED, WAYS };

static const enum ibv_wr_opcode seconds[] = {
	IBV_WR_SEND,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};

struct loss {
	enum delay delay;
	enum end_way way;
	enum ibv_wr_opcode second;
};

static const struct end_options options = {.bytes = BYTES};

/* B is stopped somewhere else than in the middle of a message: then A would wait for it for a
 * second and report it, and its program had to keep the memory. */
static void stop(struct end *end, pid_t peer)
{
	OK(end->rig, kill(peer, SIGSTOP));
	rig_await_stop(peer);
}

static void requests_post(struct end *end, const struct loss *loss, pid_t peer)
{
	bool is_atomic = loss->second == IBV_WR_ATOMIC_FETCH_AND_ADD;

	memset(end->buf, SENT, BYTES);
	if (loss->delay == STOPPED)
		stop(end, peer);
	OK(end->rig, end_send(end, IBV_WR_SEND, 1, 0, LONG, 0));
	if (loss->delay != STOPPED)
		wc_none(end, end->scq);
	if (loss->delay == STOPPED_LATER)
		stop(end, peer);
	OK(end->rig,
	   end_send(end, loss->second, 2, SECOND, is_atomic ? 8 : SHORT, TARGET / 64 * 64));
}

/* A, or for KILLED a separate process in A's place. */
static void sender_run(struct rig *rig, const struct loss *loss, pid_t peer)
{
	struct end end;

	end_pair(&end, rig, &options);
	end_warm(&end);
	rig_sync(rig);
	requests_post(&end, loss, peer);
	if (loss->delay == NO_RECEIVE)
		wc_none(&end, end.scq);
	if (loss->way == KILLED)
		raise(SIGKILL);
	if (loss->way == DESTROYED) {
		OK(rig, ibv_destroy_qp(end.qp));
		end.qp = NULL;
	} else {
		OK(rig, end_move(&end, loss->way == TO_RESET ? IBV_QPS_RESET : IBV_QPS_ERR));
	}
	memset(end.buf, REUSED, BYTES);
	if (loss->delay != NO_RECEIVE)
		OK(rig, kill(peer, SIGCONT));
	rig_sync(rig);
	rig_sync(rig);
	end_close(&end);
}

static void device_reopen(struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(rig, list && list[0] && (rig->ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
}

/* What a child process does in the place of this one. */
struct part {
	void (*play)(struct rig *rig, const struct part *part);
	const struct loss *loss;
	pid_t peer;
};

/* Returns how the child ended. */
static int part_play(struct rig *rig, const struct part *part)
{
	struct rig child_rig = *rig;
	int status;
	pid_t child = fork();

	CHECK(rig, child >= 0);
	if (!child) {
		device_reopen(&child_rig);
		part->play(&child_rig, part);
		_exit(1);
	}
	CHECK(rig, waitpid(child, &status, 0) == child);
	return status;
}

static void sender_part(struct rig *rig, const struct part *part)
{
	sender_run(rig, part->loss, part->peer);
}

static void sender_killed(struct rig *rig, const struct loss *loss, pid_t peer)
{
	int status = part_play(rig, &(struct part){sender_part, loss, peer});

	OK(rig, kill(peer, SIGCONT));
	CHECK(rig, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	rig_sync(rig);
	rig_sync(rig);
}

/* ------------------------------------------------------------------ the receiver's end */

static void receive_one(struct rig *rig, struct end *end)
{
	end_pair(end, rig, NULL);
	end_warm(end);
	OK(rig, end_recv(end, 1, 0, SHORT));
	rig_sync(rig);
	wc_expect(end, end->rcq, 1, IBV_WC_SUCCESS);
}

/* Ends when it has seen the message. */
static void receives_and_exits(struct rig *rig, const struct part *part)
{
	struct end end;

	(void)part;
	receive_one(rig, &end);
	exit(0);
}

static void exit_in_handler(int number)
{
	(void)number;
	exit(0);
}

/* Ends by a signal's handler, in any of the library's calls. */
static void receives_until_alarm(struct rig *rig, const struct part *part)
{
	const struct itimerval soon = {.it_value.tv_usec = 3000};
	struct ibv_wc wc;
	struct end end;

	(void)part;
	receive_one(rig, &end);
	signal(SIGALRM, exit_in_handler);
	OK(rig, setitimer(ITIMER_REAL, &soon, NULL));
	OK(rig, end_recv(&end, 2, 0, SHORT));
	for (;;)
		if (ibv_poll_cq(end.rcq, 1, &wc) == 1)
			OK(rig, end_recv(&end, 2, 0, SHORT));
}

/* Sends one message after the other until the receiver is gone. */
static void send_until_gone(struct end *end)
{
	struct ibv_wc wc;

	do {
		OK(end->rig, end_send(end, IBV_WR_SEND, 2, 0, SHORT, 0));
		wc = wc_wait(end, end->scq);
	} while (wc.status == IBV_WC_SUCCESS);
}

static void order_receiver_part(struct rig *rig, const struct part *part)
{
	if (rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO)
		return;
	for (int round = 0; round < 10; round++) {
		if (rig->role == RIG_B) {
			int status = part_play(rig, part);

			CHECK(rig, WIFEXITED(status) && !WEXITSTATUS(status));
		} else {
			struct end end;

			end_pair(&end, rig, NULL);
			end_warm(&end);
			rig_sync(rig);
			OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, SHORT, 0));
			wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
			if (part->play == receives_until_alarm)
				send_until_gone(&end);
			end_close(&end);
		}
		rig_sync(rig);
	}
}

/* A message that the receiving program has seen was acknowledged, although it then exits and
 * destroys nothing. */
static void order_receiver_exits(struct rig *rig)
{
	order_receiver_part(rig, &(struct part){.play = receives_and_exits});
}

/* A program whose handler calls exit() ends, whichever locks its thread has at that moment. */
static void order_receiver_interrupted(struct rig *rig)
{
	order_receiver_part(rig, &(struct part){.play = receives_until_alarm});
}

static void receives_post(struct end *end)
{
	OK(end->rig, end_recv(end, 1, 0, LONG));
	OK(end->rig, end_recv(end, 2, LONG, LONG));
}

/* How many receives have completed with success; the others were flushed. */
static unsigned int receives_taken(struct end *end)
{
	unsigned int taken = 0;

	for (uint64_t id = 1; id <= 2; id++) {
		struct ibv_wc wc = wc_wait(end, end->rcq);

		CHECK_EQ(end->rig, wc.wr_id, id);
		if (wc.status != IBV_WC_SUCCESS) {
			CHECK_EQ(end->rig, wc.status, IBV_WC_WR_FLUSH_ERR);
			continue;
		}
		CHECK_EQ(end->rig, taken, id - 1);
		if (taken++ == 0) { /* the first one that arrives is the first one that was sent */
			CHECK_EQ(end->rig, wc.opcode, IBV_WC_RECV);
			CHECK_EQ(end->rig, wc.byte_len, LONG);
		}
	}
	return taken;
}

static void receiver_run(struct rig *rig, const struct loss *loss)
{
	struct end end;

	end_pair(&end, rig, &options);
	end_warm(&end);
	if (loss->delay == STOPPED)
		receives_post(&end);
	rig_sync(rig);
	rig_sync(rig); /* A's queue pair has ended */
	if (loss->delay != STOPPED)
		receives_post(&end);
	OK(rig, end_send(&end, IBV_WR_SEND, 3, 0, 0, 0));
	wc_expect(&end, end.scq, 3, IBV_WC_RETRY_EXC_ERR);
	unsigned int taken = receives_taken(&end);

	CHECK(rig, !memchr(end.buf, REUSED, BYTES));
	if (taken == 0)
		CHECK_EQ(rig, end.buf[TARGET / 64 * 64], 0);
	rig_sync(rig);
	end_close(&end);
}

static void order_after(struct rig *rig, const struct loss *loss)
{
	pid_t mine = getpid(), theirs;

	rig_swap(rig, &mine, &theirs, sizeof(mine));
	if (rig->role == RIG_B)
		receiver_run(rig, loss);
	else if (loss->way == KILLED)
		sender_killed(rig, loss, theirs);
	else
		sender_run(rig, loss, theirs);
	rig_sync(rig);
}

static void order_after_each(struct rig *rig, enum delay delay)
{
	bool threads = rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO;

	if (threads && delay != NO_RECEIVE)
		return; /* a thread can't be stopped alone */
	/* Over RoCE the responder has one path for all requests, and each error takes 0.5 s. */
	unsigned int count = rig->carrier == RIG_WIRE ? 1 : sizeof(seconds) / sizeof(seconds[0]);

	for (enum end_way way = 0; way < (threads ? KILLED : WAYS); way++)
		for (unsigned int i = 0; i < count; i++)
			order_after(rig, &(struct loss){delay, way, seconds[i]});
}

/* B's process is stopped while A sends. */
static void order_after_lost_send(struct rig *rig)
{
	order_after_each(rig, STOPPED);
}

/* B receives the messages, but has no receives posted. */
static void order_after_lost_waiting_send(struct rig *rig)
{
	order_after_each(rig, NO_RECEIVE);
}

/* B has received the first message, which waits for a receive, and is then stopped. */
static void order_after_lost_held_send(struct rig *rig)
{
	order_after_each(rig, STOPPED_LATER);
}

const struct rig_test order_tests[] = {
	{"receiver_exits", order_receiver_exits},
	{"receiver_interrupted", order_receiver_interrupted},
	{"order_after_lost_send", order_after_lost_send},
	{"order_after_lost_waiting_send", order_after_lost_waiting_send},
	{"order_after_lost_held_send", order_after_lost_held_send},
	{NULL, NULL},
};
