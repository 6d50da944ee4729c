/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * READs of private memory that one call executes: those of a list, and those that a program posts
 * one by one after it got several completions by one poll, which wait for each other. See rig.h,
 * and local_world.c.
 *
 * A reads B's memory. Copies are counted, and the watchdog of the lease is taken away, by functions
 * that this program puts before libc's. That READs wait isn't required in each round, because the
 * engine thread may wake up for something else and execute them; that they are executed is.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/send_direct.h"
#include "rig.h"

/* EMPTY_POLLS take the lease. The buffers: the messages are in the first PART, what is read comes
 * from the second one of B's and goes to the second one of A's. */
enum { READS = 8, EMPTY_POLLS = 60, ROUNDS = 20, PIECE = 4096, PART = READS * PIECE };

static _Atomic unsigned int copies;
static _Atomic bool has_no_watchdog;

__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
		 const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	copies++;
	return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}

__attribute__((visibility("default"))) int
timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
	return has_no_watchdog ? 0 : (int)syscall(SYS_timerfd_settime, fd, flags, new, old);
}

static void open_pair(struct end *end, struct rig *rig)
{
	const struct end_options options = {.bytes = 2 * PART, .timeout = TIMEOUT_NONE};

	end_pair(end, rig, &options);
	end_warm(end);
	if (rig->role == RIG_B)
		pattern_fill(end->buf + PART, PART, 1);
	rig_sync(rig);
}

static uint8_t *piece(const struct end *end, int i)
{
	return end->buf + PART + (size_t)i * PIECE;
}

static bool is_read(const struct end *end, int i)
{
	uint8_t want[PART];

	pattern_fill(want, PART, 1);
	return !memcmp(piece(end, i), want + (size_t)i * PIECE, PIECE);
}

static void read_piece(struct end *end, int i)
{
	size_t at = PART + (size_t)i * PIECE;

	OK(end->rig, end_send(end, IBV_WR_RDMA_READ, i, at, PIECE, at));
}

static void expect_pieces(struct end *end, int count)
{
	for (int i = 0; i < count; i++) {
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
		CHECK(end->rig, is_read(end, i));
	}
	memset(end->buf + PART, 0, PART);
}

/* A takes the lease, and sends the acknowledgements that it owes. */
static void poll_in_vain(struct end *end)
{
	struct ibv_wc wc;

	for (int i = 0; end->rig->role == RIG_A && i < EMPTY_POLLS; i++)
		CHECK_EQ(end->rig, ibv_poll_cq(end->rcq, 1, &wc), 0);
}

/* A gets messages of B's by one poll, as a rule READS of them, while it has the lease. Returns how
 * many: the rest is in the receive CQ. */
static int get_several(struct end *end)
{
	struct rig *rig = end->rig;
	struct ibv_wc wc[READS];
	int n = 0;

	for (int i = 0; rig->role == RIG_A && i < READS; i++)
		OK(rig, end_recv(end, i, 0, 8));
	poll_in_vain(end);
	rig_sync(rig);
	for (int i = 0; rig->role == RIG_B && i < READS; i++)
		OK(rig, end_send(end, IBV_WR_SEND, i, 0, 8, 0));
	rig_sync(rig);
	while (rig->role == RIG_A && n < 1)
		n = ibv_poll_cq(end->rcq, READS, wc);
	copies = 0;
	return n;
}

/* The round ends: what is left of it is taken. */
static void end_round(struct end *end, int got)
{
	struct rig *rig = end->rig;

	for (int i = got; rig->role == RIG_A && i < READS; i++)
		wc_expect(end, end->rcq, i, IBV_WC_SUCCESS);
	poll_in_vain(end);
	rig_sync(rig);
	for (int i = 0; rig->role == RIG_B && i < READS; i++)
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
	rig_sync(rig);
}

/* The READs that answer completions are executed by one call; in some round, since the engine
 * thread may execute some of them before. */
static void by_one_call(struct rig *rig)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	bool done = false, other = false;
	struct end end;

	has_no_watchdog = true;
	for (open_pair(&end, rig); !done && !other; rig_swap(rig, &done, &other, sizeof(done))) {
		int got = get_several(&end);

		for (int i = 0; i < got; i++)
			read_piece(&end, i);
		done = got == READS && copies == 1;
		if (rig->role == RIG_A)
			expect_pieces(&end, got);
		end_round(&end, got);
		CHECK(rig, !patience_over(&patience));
	}
	end_close(&end);
}

/* A program that gets one completion by a poll isn't kept waiting. */
static void not_after_one(struct rig *rig)
{
	struct end end;

	open_pair(&end, rig);
	for (int round = 0; round < ROUNDS; round++) {
		if (rig->role == RIG_A)
			OK(rig, end_recv(&end, 0, 0, 8));
		rig_sync(rig);
		if (rig->role == RIG_B) {
			OK(rig, end_send(&end, IBV_WR_SEND, 0, 0, 8, 0));
			wc_expect(&end, end.scq, 0, IBV_WC_SUCCESS);
		} else {
			wc_expect(&end, end.rcq, 0, IBV_WC_SUCCESS);
			read_piece(&end, 0);
			CHECK(rig, is_read(&end, 0));
			expect_pieces(&end, 1);
			poll_in_vain(&end); /* and B gets its acknowledgement */
		}
		rig_sync(rig);
	}
	end_close(&end);
}

/* Runs `body` at A in each of ROUNDS rounds, after a poll that returned several completions as a
 * rule. `arms`: its send CQ is armed before that. */
static void rounds(struct rig *rig, bool arms, void (*body)(struct end *))
{
	struct end end;

	open_pair(&end, rig);
	for (int round = 0; round < ROUNDS; round++) {
		if (arms && rig->role == RIG_A)
			OK(rig, ibv_req_notify_cq(end.scq, 0));
		int got = get_several(&end);

		if (rig->role == RIG_A) {
			read_piece(&end, 0);
			body(&end);
		}
		end_round(&end, got);
	}
	end_close(&end);
}

static void await_bytes(struct end *end)
{
	struct patience patience = patience_of(RIG_SOON_MS);

	while (((volatile uint8_t *)piece(end, 0))[PIECE - 1] == 0)
		CHECK(end->rig, !patience_over(&patience));
	expect_pieces(end, 1);
}

/* A READ that waits is executed although the program never polls. */
static void without_a_poll(struct rig *rig)
{
	rounds(rig, false, await_bytes);
}

static void take_event(struct end *end)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(end->rig, channel_readable(end->channel, RIG_SOON_MS));
	OK(end->rig, ibv_get_cq_event(end->channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	expect_pieces(end, 1);
}

static void arm_and_look(struct end *end)
{
	OK(end->rig, ibv_req_notify_cq(end->scq, 0));
	CHECK(end->rig, is_read(end, 0));
	if (channel_readable(end->channel, 0))
		take_event(end);
	else
		expect_pieces(end, 1);
}

/* A program that arms the READ's CQ is about to block: it is executed. No watchdog wakes the engine
 * thread. */
static void before_blocking(struct rig *rig)
{
	has_no_watchdog = rig->role == RIG_A;
	rounds(rig, false, arm_and_look);
}

/* The CQ is armed before the READ, and nothing but the READ's completion wakes the program. */
static void behind_an_armed_cq(struct rig *rig)
{
	has_no_watchdog = rig->role == RIG_A;
	rounds(rig, true, take_event);
}

static void write_behind(struct end *end)
{
	OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, 1, 8, 8, 8));
	CHECK(end->rig, is_read(end, 0));
	expect_pieces(end, 1);
	wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
}

/* Another request behind the READ has it executed: both in order, before the call returns. */
static void before_another_request(struct rig *rig)
{
	rounds(rig, false, write_behind);
}

static void write_borrowed(struct end *end)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, IBV_WR_RDMA_WRITE, 1, 0, PIECE, 0, &wr, &sge);
	wr.send_flags |= IBV_SEND_INLINE | SEND_DIRECT;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
	CHECK(end->rig, is_read(end, 0));
	expect_pieces(end, 1);
	wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
}

/* Inline data beyond the limit, as rsockets send it, is accepted as for a queue without requests:
 * sq_post(). */
static void before_borrowed_data(struct rig *rig)
{
	rounds(rig, false, write_borrowed);
}

/* Posts READS READs as one list. */
static void post_list(struct end *end, size_t last_at)
{
	struct ibv_send_wr wr[READS], *bad;
	struct ibv_sge sge[READS];

	for (int i = 0; i < READS; i++) {
		size_t at = PART + (size_t)i * PIECE;

		end_request(end, IBV_WR_RDMA_READ, i, at, PIECE, i < READS - 1 ? at : last_at,
			    &wr[i], &sge[i]);
		wr[i].next = i < READS - 1 ? &wr[i + 1] : NULL;
	}
	copies = 0;
	OK(end->rig, ibv_post_send(end->qp, wr, &bad));
}

/* A list is executed by one call, before ibv_post_send() returns. */
static void a_list(struct rig *rig)
{
	struct end end;

	open_pair(&end, rig);
	if (rig->role == RIG_A) {
		post_list(&end, PART + (READS - 1) * PIECE);
		CHECK_EQ(rig, copies, 1);
		expect_pieces(&end, READS);
	}
	rig_sync(rig);
	end_close(&end);
}

/* The READs before one that isn't granted are executed, and it fails. */
static void a_list_with_a_wrong_one(struct rig *rig)
{
	struct end end;

	open_pair(&end, rig);
	if (rig->role == RIG_A) {
		post_list(&end, 2 * PART - 1);
		expect_pieces(&end, READS - 1);
		wc_expect(&end, end.scq, READS - 1, IBV_WC_REM_ACCESS_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Pieces from the one `hole` on can't be read: those before it are. */
static void list_with_a_hole(struct rig *rig, int hole_of, enum ibv_wc_status status)
{
	enum { HOLE = 3 };
	struct end end;

	open_pair(&end, rig);
	if (rig->role == hole_of)
		OK(rig, mprotect(piece(&end, HOLE), PIECE, PROT_NONE));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		post_list(&end, PART + (READS - 1) * PIECE);
		for (int i = 0; i < READS; i++)
			wc_expect(&end, end.scq, i,
				  i < HOLE    ? IBV_WC_SUCCESS
				  : i == HOLE ? status
					      : IBV_WC_WR_FLUSH_ERR);
		for (int i = 0; i < HOLE; i++)
			CHECK(rig, is_read(&end, i));
	}
	rig_sync(rig);
	if (rig->role == hole_of)
		OK(rig, mprotect(piece(&end, HOLE), PIECE, PROT_READ | PROT_WRITE));
	end_close(&end);
}

static void a_list_with_a_hole_there(struct rig *rig)
{
	list_with_a_hole(rig, RIG_B, IBV_WC_REM_ACCESS_ERR);
}

static void a_list_with_a_hole_here(struct rig *rig)
{
	list_with_a_hole(rig, RIG_A, IBV_WC_LOC_PROT_ERR);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"by_one_call", by_one_call},
		{"not_after_one", not_after_one},
		{"without_a_poll", without_a_poll},
		{"before_blocking", before_blocking},
		{"behind_an_armed_cq", behind_an_armed_cq},
		{"before_another_request", before_another_request},
		{"before_borrowed_data", before_borrowed_data},
		{"a_list", a_list},
		{"a_list_with_a_wrong_one", a_list_with_a_wrong_one},
		{"a_list_with_a_hole_there", a_list_with_a_hole_there},
		{"a_list_with_a_hole_here", a_list_with_a_hole_here},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
