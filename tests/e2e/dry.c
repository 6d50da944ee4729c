/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams within a host whose receiver posts receives late: they wait for a bounded time, and
 * block nothing else. See rig.h.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

enum { GRH = 40, PIECE = 128 };

/* How late the receiver may be (DATAGRAM_PATIENCE_NS is twice that); a round in which the machine
 * was slower isn't judged. */
/* A datagram that doesn't come for so long was lost. */
enum { LOST_MS = 1250 };
#define LATE_MS 100

static const struct end_options ud = {
	.type = IBV_QPT_UD, .send_depth = 256, .recv_depth = 256, .cqe = 1024};

static void send_number(struct end *end, uint32_t qpn, uint32_t number)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	size_t at = number % 256 * 8;

	memcpy(end->buf + at, &number, sizeof(number));
	end_request(end, IBV_WR_SEND, number, at, 8, 0, &wr, &sge);
	wr.wr.ud.remote_qpn = qpn;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
}

static void post_place(struct end *end, uint32_t place)
{
	OK(end->rig, end_recv(end, place, 4096 + (size_t)place * PIECE, GRH + 8));
}

/* The number in a completed receive. */
static uint32_t number_in(const struct end *end, uint64_t place)
{
	uint32_t number;

	memcpy(&number, end->buf + 4096 + place * PIECE + GRH, sizeof(number));
	return number;
}

static void expect_number(struct end *end, uint32_t number)
{
	struct ibv_wc wc = wc_wait(end, end->rcq);

	CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(end->rig, number_in(end, wc.wr_id), number);
}

enum { FIRST = 4, LATER = 60 };

/* 60 datagrams more than receives: they wait, and arrive in order. False: this round took so long
 * that some may have been dropped. */
static bool late_round(struct rig *rig, struct end *end)
{
	double began = now_ms();
	bool quick = false;

	if (rig->role == RIG_A) {
		for (uint32_t i = 0; i < FIRST + LATER; i++)
			send_number(end, end->peer.qpn, i);
		rig_sync(rig);
		for (uint32_t i = 0; i < FIRST + LATER; i++)
			wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
	} else {
		rig_sync(rig);
		for (uint32_t i = 0; i < FIRST; i++)
			expect_number(end, i);
		for (uint32_t i = 0; i < LATER; i++)
			post_place(end, i);
		quick = now_ms() - began < LATE_MS;
		for (uint32_t i = 0; quick && i < LATER; i++)
			expect_number(end, FIRST + i);
	}
	bool theirs;

	rig_swap(rig, &quick, &theirs, sizeof(quick));
	return quick || theirs;
}

static void ud_runs_dry(struct rig *rig)
{
	for (int round = 0;; round++) {
		struct end end;

		CHECK(rig, round < 20);
		end_pair(&end, rig, &ud);
		for (uint32_t i = 0; rig->role == RIG_B && i < FIRST; i++)
			post_place(&end, i);
		rig_sync(rig);
		bool over = rig->carrier == RIG_WIRE || late_round(rig, &end);

		end_close(&end);
		if (over)
			break;
	}
}

enum { STREAM = 100000, PLACES = 64, PAUSE_EVERY = 5000, STREAM_ROUNDS = 5, GAP_MS = 5 };

/*
 * Whether the process got a processor as often as the rule of datagram_wait.h asks for. A sender
 * waits LATE_MS * 2 at once, and for a budget of time in all, which each datagram and the time that
 * passes add to. Each side counts the time in which it didn't poll, against half of both, because
 * the other side may be away as well. Time in which a side polled and found no datagram doesn't
 * count against it.
 */
struct presence {
	double at, left_ms; /* when it polled last; what is left of its half of the budget */
	bool late;	    /* it was away for too long */
};

static void presence_begin(struct presence *p)
{
	*p = (struct presence){.at = now_ms(), .left_ms = LATE_MS};
}

/* Polls once. */
static int presence_poll(struct presence *p, struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq, 1, wc);
	double now = now_ms(), away = now - p->at;

	p->left_ms += 0.05 * n + away / 8 - (away > GAP_MS ? away : 0);
	p->left_ms = p->left_ms > LATE_MS ? LATE_MS : p->left_ms;
	p->late = p->late || p->left_ms < 0 || away > LATE_MS;
	p->at = now;
	return n;
}

/* False: no completion came in time. */
static bool stream_poll(struct end *end, struct presence *p, struct ibv_cq *cq, struct ibv_wc *wc,
			int ms)
{
	double until = now_ms() + ms;

	while (presence_poll(p, cq, wc) == 0)
		if (p->at > until)
			return false;
	CHECK_EQ(end->rig, wc->status, IBV_WC_SUCCESS);
	return true;
}

static void stream_send(struct end *end, struct presence *p)
{
	struct ibv_wc wc;

	for (uint32_t posted = 0, done = 0; done < STREAM;) {
		if (posted < STREAM && posted - done < 128) {
			send_number(end, end->peer.qpn, posted++);
			continue;
		}
		CHECK(end->rig, stream_poll(end, p, end->scq, &wc, RIG_SOON_MS));
		CHECK_EQ(end->rig, wc.wr_id, done++);
	}
}

/* Posts receives late at times, as a busy program does. Returns whether all datagrams arrived;
 * those that did must be in order. */
static bool stream_receive(struct end *end, struct presence *p)
{
	uint32_t came = 0;
	int64_t last = -1;
	struct ibv_wc wc;

	while (last < STREAM - 1 && stream_poll(end, p, end->rcq, &wc, LOST_MS * rig_slowness())) {
		uint32_t number = number_in(end, wc.wr_id);

		CHECK(end->rig, number > last);
		last = number;
		post_place(end, (uint32_t)wc.wr_id);
		if (++came % PAUSE_EVERY == 0)
			usleep(3000);
	}
	return came == STREAM;
}

/* A sender that is faster than its receiver loses no datagram. Of a round in which one of them got
 * no processor for too long, only the order is judged. */
static void ud_stream(struct rig *rig)
{
	bool over = rig->carrier == RIG_WIRE;

	for (int round = 0; !over && round < STREAM_ROUNDS; round++) {
		struct {
			bool all, late;
		} mine = {false, false}, theirs;
		struct presence presence;
		struct end end;

		end_pair(&end, rig, &ud);
		for (uint32_t i = 0; rig->role == RIG_B && i < PLACES; i++)
			post_place(&end, i);
		rig_sync(rig);
		presence_begin(&presence);
		if (rig->role == RIG_A)
			stream_send(&end, &presence);
		else
			mine.all = stream_receive(&end, &presence);
		mine.late = presence.late;
		rig_swap(rig, &mine, &theirs, sizeof(mine));
		over = mine.all || theirs.all;
		CHECK(rig, over || mine.late || theirs.late);
		end_close(&end);
	}
	if (!over && rig->role == RIG_B)
		fprintf(stderr,
			"  ud_stream: no verdict, the machine was too slow in each round\n");
}

enum { ALTERNATE = 100 };

/* A QP that posts no receives any more neither stops its sender nor delays datagrams for others. */
static void ud_left(struct rig *rig)
{
	struct end left, lively;

	end_pair(&left, rig, &ud);
	end_pair(&lively, rig, &ud);
	if (rig->role == RIG_A) {
		rig_sync(rig);
		send_number(&left, left.peer.qpn, 0);
		send_number(&left, left.peer.qpn, 1); /* has no receive */
		send_number(&left, lively.peer.qpn, 2);
		rig_sync(rig);
		for (uint32_t i = 0; i < 3; i++)
			wc_expect(&left, left.scq, i, IBV_WC_SUCCESS);
		/* From one QP, alternately. If each datagram of the first kind waited for its full
		 * time, this would exceed wc_expect()'s limit. */
		for (uint32_t i = 0; i < ALTERNATE; i++) {
			send_number(&left, left.peer.qpn, 2 * i);
			send_number(&left, lively.peer.qpn, 2 * i + 1);
		}
		for (uint32_t i = 0; i < 2 * ALTERNATE; i++)
			wc_expect(&left, left.scq, i, IBV_WC_SUCCESS);
	} else {
		post_place(&left, 0);
		for (uint32_t i = 0; i < ALTERNATE + 1; i++)
			post_place(&lively, i);
		rig_sync(rig);
		expect_number(&lively, 2);
		rig_sync(rig);
		for (uint32_t i = 0; i < ALTERNATE; i++)
			expect_number(&lively, 2 * i + 1);
		expect_number(&left, 0);
	}
	rig_sync(rig);
	end_close(&lively);
	end_close(&left);
}

/* ------------------------------------------------------------------ an SRQ */

/* The races end after their number or after a time, for a loaded machine runs fewer of them. */
enum { RACES = 30000, RACES_MS = 4000 };

/* B's second thread: it posts one receive for each datagram, about when the datagram comes. */
struct poster {
	struct end *end;
	_Atomic uint32_t wanted, posted;
	_Atomic bool late;  /* a thread of B got no processor for LATE_MS */
	_Atomic bool ended; /* no datagram follows those that are wanted */
};

static void note_time(struct poster *p, double *at)
{
	double now = now_ms();

	if (now - *at > LATE_MS)
		atomic_store(&p->late, true);
	*at = now;
}

static void *post_each(void *arg)
{
	struct poster *p = arg;
	double at = now_ms();
	uint32_t random = 1;

	for (uint32_t n = 0; n < RACES; n++) {
		while (atomic_load(&p->wanted) <= n) {
			if (atomic_load(&p->ended))
				return NULL;
			note_time(p, &at);
			sched_yield();
		}
		random = random * 1103515245 + 12345;
		for (volatile uint32_t i = random >> 20; i; i--)
			; /* sweeps over the instant at which the datagram comes */
		post_place(p->end, n % PLACES);
		atomic_store(&p->posted, n + 1);
		note_time(p, &at);
	}
	return NULL;
}

/* Returns the next datagram's number, or RACES if none came in time. */
static uint32_t await_number(struct poster *p, struct end *end)
{
	double began = now_ms(), at = began;
	struct ibv_wc wc;

	while (ibv_poll_cq(end->rcq, 1, &wc) == 0) {
		note_time(p, &at);
		/* Long enough for A, and for the poster, to get a processor on a loaded machine. */
		if (at - began > 4 * LOST_MS * rig_slowness())
			return RACES;
	}
	CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
	return number_in(end, wc.wr_id);
}

static void answer_each(struct rig *rig, struct end *end)
{
	struct poster p = {.end = end};
	double began = now_ms();
	pthread_t thread;

	pthread_create(&thread, NULL, post_each, &p);
	for (uint32_t n = 0; n < RACES && now_ms() - began < RACES_MS; n++) {
		atomic_store(&p.wanted, n + 1);
		/* Datagrams don't wait for a queue to which nothing was ever posted. */
		while (!atomic_load(&p.posted))
			sched_yield();
		send_number(end, end->peer.qpn, n);
		/* It is lost only if a thread was late. */
		if (await_number(&p, end) != n) {
			CHECK(rig, atomic_load(&p.late));
			break;
		}
		wc_expect(end, end->scq, n, IBV_WC_SUCCESS);
	}
	atomic_store(&p.ended, true);
	pthread_join(thread, NULL);
}

/* A datagram that meets no receive in an SRQ takes the one that is posted at the same instant. */
static void ud_srq_races(struct rig *rig)
{
	struct end_options opt = ud;
	struct end end;

	if (rig->carrier == RIG_WIRE)
		return;
	if (rig->role == RIG_B)
		opt.srq_depth = PLACES;
	end_pair(&end, rig, &opt);
	for (uint32_t i = 0; rig->role == RIG_A && i < PLACES; i++)
		post_place(&end, i);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		answer_each(rig, &end);
		send_number(&end, end.peer.qpn, RACES);
	}
	for (uint32_t number = 0; rig->role == RIG_A;) {
		struct ibv_wc wc = wc_wait(&end, end.rcq);

		CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
		number = number_in(&end, wc.wr_id);
		if (number == RACES)
			break;
		post_place(&end, (uint32_t)wc.wr_id);
		send_number(&end, end.peer.qpn, number);
		wc_expect(&end, end.scq, number, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

enum { TO_STOPPED = 1280 }; /* datagrams: more than a ring's places */

/* A process that is stopped takes nothing. What doesn't fit the ring is dropped by its sender,
 * whose patience doesn't depend on how the stopped process is scheduled (counters.py). */
static void ud_stopped(struct rig *rig)
{
	pid_t mine = getpid(), theirs;
	struct end end;

	if (rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO)
		return; /* a thread can't be stopped alone */
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	end_pair(&end, rig, &ud);
	if (rig->role == RIG_A) {
		OK(rig, kill(theirs, SIGSTOP));
		rig_await_stop(theirs);
		for (uint32_t i = 0; i < TO_STOPPED; i++) {
			send_number(&end, end.peer.qpn, i);
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		}
		OK(rig, kill(theirs, SIGCONT));
	}
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test dry_tests[] = {
	{"ud_runs_dry", ud_runs_dry}, {"ud_stream", ud_stream},	      {"ud_left", ud_left},
	{"ud_stopped", ud_stopped},   {"ud_srq_races", ud_srq_races}, {NULL, NULL},
};
