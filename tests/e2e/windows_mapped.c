/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows on memory that the peer maps: A's operations by a window's key are loads and
 * stores of A's, which end when the window does. See rig.h, windows.h. The ends' memory is in
 * files, so these tests are for the carrier `found`.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

#include "maps.h"
#include "windows.h"

/* What A knows of B. */
struct owner {
	struct line line; /* the file that the buffer begins in */
	pid_t pid;
};

static struct owner owner_meet(struct end *end)
{
	struct owner mine = {maps_find(end->buf, NULL), getpid()}, theirs;

	rig_swap(end->rig, &mine, &theirs, sizeof(mine));
	return theirs;
}

static bool owner_is_mapped(const struct owner *owner)
{
	return maps_find(NULL, &owner->line).inode != 0;
}

/* A writes `length` bytes at `remote` until B's memory is mapped, and used so. */
static void await_mapped(struct end *end, const struct owner *owner, size_t remote)
{
	struct patience patience = patience_of(RIG_SOON_MS);

	do {
		CHECK(end->rig, !patience_over(&patience));
		reach(end, IBV_WR_RDMA_WRITE, remote, 8, IBV_WC_SUCCESS);
	} while (!owner_is_mapped(owner));
	for (int i = 0; i < 50; i++) { /* its pages are being populated, or are already */
		reach(end, IBV_WR_RDMA_WRITE, remote, 8, IBV_WC_SUCCESS);
		usleep(100);
	}
}

/* Binds the window, of either type, to the part of the buffer. */
static uint32_t bind_part(struct end *end, struct ibv_mw *mw, uint32_t old, unsigned int access)
{
	if (mw->type == IBV_MW_TYPE_2)
		return part_bind(end, mw, old, access);
	bind_type_1(end, mw, PART_BYTES);
	return mw->rkey;
}

/* ------------------------------------------------------------------ without the owner */

static void add_1(struct end *end, size_t remote)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	end_request(end, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 8, remote, &wr, &sge);
	wr.wr.atomic.compare_add = 1;
	OK(end->rig, post_one(end, wr));
	wc_expect(end, end->scq, 8, IBV_WC_SUCCESS);
}

/* Whether a WRITE of A's completes, in a moment. If not, it is still under way. */
static bool writes_soon(struct end *end, size_t remote)
{
	struct patience patience = patience_of(RIG_NEVER_MS);
	struct ibv_wc wc;
	int n;

	OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, 7, 0, 8, remote));
	do
		n = ibv_poll_cq(end->scq, 1, &wc);
	while (!n && !patience_over(&patience));
	if (n)
		CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
	return n;
}

/* Stops B when A's accesses don't need it: for how long its pages are being populated, once they
 * are mapped, depends on the machine. */
static void stop_mapped(struct end *end, const struct owner *owner, size_t remote)
{
	struct patience patience = patience_of(RIG_SOON_MS);

	await_mapped(end, owner, remote);
	for (;;) {
		OK(end->rig, kill(owner->pid, SIGSTOP));
		rig_await_stop(owner->pid);
		if (writes_soon(end, remote))
			return;
		CHECK(end->rig, !patience_over(&patience));
		OK(end->rig, kill(owner->pid, SIGCONT));
		wc_expect(end, end->scq, 7, IBV_WC_SUCCESS);
	}
}

/* While B is stopped all operations go on, for which A's loads and stores are needed. */
static void stopped_run(struct rig *rig, enum ibv_mw_type type, unsigned int access)
{
	size_t first = access & IBV_ACCESS_ZERO_BASED ? 0 : PART;
	struct ibv_mw *mw = NULL;
	uint32_t rkey = 0;
	struct end end;

	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, type);
		rkey = bind_part(&end, mw, mw->rkey, access);
	}
	key_pass(&end, rkey);
	const struct owner owner = owner_meet(&end);

	if (!first)
		end.peer.addr = 0;
	if (rig->role == RIG_A) {
		stop_mapped(&end, &owner, first + 64);
		pattern_fill(end.buf, 48, SEED);
		reach(&end, IBV_WR_RDMA_WRITE, first, 48, IBV_WC_SUCCESS);
		reach(&end, IBV_WR_RDMA_WRITE, first + PART_BYTES - 48, 48, IBV_WC_SUCCESS);
		*(uint64_t *)(void *)end.buf = 70;
		reach(&end, IBV_WR_ATOMIC_WRITE, first + 64, 8, IBV_WC_SUCCESS);
		for (int i = 0; i < 100; i++)
			add_1(&end, first + 64);
		reach(&end, IBV_WR_RDMA_READ, first, 48, IBV_WC_SUCCESS);
		OK(rig, kill(owner.pid, SIGCONT));
		CHECK(rig, pattern_holds(end.buf, 48, SEED));
	}
	rig_sync(rig);
	if (rig->role == RIG_B) {
		CHECK(rig, pattern_holds(end.buf + PART, 48, SEED));
		CHECK(rig, pattern_holds(end.buf + PART + PART_BYTES - 48, 48, SEED));
		CHECK_EQ(rig, *(uint64_t *)(void *)(end.buf + PART + 64), 170);
		CHECK(rig, !end.buf[PART - 1] && !end.buf[PART + PART_BYTES]);
		OK(rig, ibv_dealloc_mw(mw));
	}
	end_close(&end);
}

static void mapped_stopped(struct rig *rig)
{
	if (rig->carrier != RIG_FOUND)
		return;
	stopped_run(rig, IBV_MW_TYPE_2, REMOTE);
	stopped_run(rig, IBV_MW_TYPE_2, REMOTE | IBV_ACCESS_ZERO_BASED);
	stopped_run(rig, IBV_MW_TYPE_1, REMOTE);
}

/* ------------------------------------------------------------------ rights */

enum narrow { READ_ONLY, ATOMICS_ONLY, SHORT, OF_ANOTHER_QP, BY_THE_REGION, NARROWS };

/* B's memory is mapped for writing, by a window with all rights. Another key, which A has as well,
 * grants less. */
static void rights_run(struct rig *rig, enum narrow which)
{
	struct ibv_mw *wide = NULL, *narrow = NULL;
	struct end_options opt = bindable;
	uint32_t wide_key = 0, key = 0;
	struct end end, other;

	end_pair(&end, rig, &opt);
	opt.pd = end.pd;
	end_pair(&other, rig, &opt);
	if (rig->role == RIG_B) {
		wide = mw_make(&end, IBV_MW_TYPE_2);
		wide_key = part_bind(&end, wide, wide->rkey, REMOTE);
	}
	key_pass(&end, wide_key);
	const struct owner owner = owner_meet(&end);

	if (rig->role == RIG_A)
		await_mapped(&end, &owner, PART);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		memset(end.buf + PART, REUSED, PART_BYTES);
		narrow = mw_make(&end, IBV_MW_TYPE_2);
		key = part_bind(&end, narrow, narrow->rkey,
				which == READ_ONLY	? IBV_ACCESS_REMOTE_READ
				: which == ATOMICS_ONLY ? IBV_ACCESS_REMOTE_ATOMIC
							: REMOTE);
	}
	rig_swap(rig, &key, &other.peer.rkey, sizeof(key));
	other.peer.addr = end.peer.addr;
	if (which != OF_ANOTHER_QP)
		end.peer.rkey = other.peer.rkey;
	if (which == BY_THE_REGION) {
		key = end.mr->rkey;
		rig_swap(rig, &key, &end.peer.rkey, sizeof(key));
	}
	refused(which == OF_ANOTHER_QP ? &other : &end, IBV_WR_RDMA_WRITE,
		which == SHORT ? PART + PART_BYTES - 8 : PART, which == SHORT ? 9 : 8);
	rig_sync(rig);
	if (rig->role == RIG_B) {
		for (unsigned int i = 0; i < PART_BYTES; i++)
			CHECK_EQ(rig, end.buf[PART + i], REUSED);
		OK(rig, ibv_dealloc_mw(narrow));
		OK(rig, ibv_dealloc_mw(wide));
	}
	end_close(&other);
	end_close(&end);
}

static void mapped_rights(struct rig *rig)
{
	for (enum narrow which = 0; rig->carrier == RIG_FOUND && which < NARROWS; which++)
		rights_run(rig, which);
}

/* ------------------------------------------------------------------ the end, under fire */

enum how { BY_LOCAL_INV, BY_BIND, BY_UNBIND, BY_DEALLOC, BY_RESET, HOWS };

static enum ibv_mw_type type_for(enum how how)
{
	return how == BY_BIND || how == BY_UNBIND ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
}

static struct ibv_mw *window_gone(struct end *end, struct ibv_mw *mw)
{
	OK(end->rig, ibv_dealloc_mw(mw));
	return NULL;
}

/* Ends the window's binding. NULL: the window has ended as well. */
static struct ibv_mw *window_ends(struct end *end, struct ibv_mw *mw, uint32_t rkey, enum how how)
{
	struct ibv_mw_bind bind = type_1_bind(end, how == BY_BIND ? PART_BYTES : 0);

	switch (how) {
	case BY_LOCAL_INV:
		OK(end->rig, post_one(end, invalidate_request(rkey)));
		break;
	case BY_BIND: /* the key is another one then */
	case BY_UNBIND:
		OK(end->rig, ibv_bind_mw(end->qp, mw, &bind));
		break;
	case BY_DEALLOC:
		return window_gone(end, mw);
	default:
		OK(end->rig, end_move(end, IBV_QPS_RESET));
		return mw;
	}
	enum ibv_wc_status status = wc_wait(end, end->scq).status;

	/* A's next WRITE is refused, which moves the QP to ERR, perhaps while the request waits. */
	if (status == IBV_WC_WR_FLUSH_ERR)
		return window_gone(end, mw);
	CHECK_EQ(end->rig, status, IBV_WC_SUCCESS);
	return mw;
}

/* A's part: WRITEs one after the other until one is refused. */
static void hammer(struct end *end)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	for (uint64_t i = 0; status == IBV_WC_SUCCESS; i++) {
		uint32_t length = i % 4 ? 8 : PART_BYTES;

		memset(end->buf, (int)(i % 100), length);
		OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, 7, 0, length, PART));
		status = wc_wait(end, end->scq).status;
	}
	CHECK(end->rig, status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_RETRY_EXC_ERR);
}

/* B's part: ends the window in the middle, and uses the memory for something else at once. */
static struct ibv_mw *end_in_the_middle(struct end *end, struct ibv_mw *mw, uint32_t rkey,
					enum how how)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	const volatile uint8_t *at = end->buf + PART;
	uint8_t before = *at;

	for (int changes = 0; changes < 5;) {
		uint8_t now = *at;

		CHECK(end->rig, !patience_over(&patience));
		changes += now != before;
		before = now;
	}
	mw = window_ends(end, mw, rkey, how);
	memset(end->buf + PART, REUSED, PART_BYTES);
	for (int look = 0; look < 10; look++) {
		for (unsigned int i = 0; i < PART_BYTES; i++)
			CHECK_EQ(end->rig, at[i], REUSED);
		usleep(100);
	}
	return mw;
}

/* Both sides connect the QPs anew, after an error. */
static void connect_again(struct end *end)
{
	OK(end->rig, end_move(end, IBV_QPS_RESET));
	rig_sync(end->rig);
	end_connect(end);
}

static void hammered_run(struct rig *rig, enum how how)
{
	enum { ROUNDS = 6 };
	struct end_options opt = bindable;
	struct ibv_mw *mw = NULL;
	struct owner owner = {0};
	uint32_t rkey = 0;
	struct end end;

	opt.may_fail = true;
	end_pair(&end, rig, &opt);
	for (int round = 0; round < ROUNDS; round++) {
		if (rig->role == RIG_B) {
			mw = mw ? mw : mw_make(&end, type_for(how));
			rkey = bind_part(&end, mw,
					 mw->type == IBV_MW_TYPE_2 && rkey ? rkey : mw->rkey,
					 REMOTE);
		}
		key_pass(&end, rkey);
		if (!round)
			owner = owner_meet(&end);
		if (rig->role == RIG_A) {
			await_mapped(&end, &owner, PART);
			hammer(&end);
		} else {
			mw = end_in_the_middle(&end, mw, rkey, how);
			if (!mw)
				rkey = 0;
		}
		rig_sync(rig);
		connect_again(&end);
	}
	if (mw)
		OK(rig, ibv_dealloc_mw(mw));
	end_close(&end);
}

static void mapped_ends_under_fire(struct rig *rig)
{
	for (enum how how = 0; rig->carrier == RIG_FOUND && how < HOWS; how++)
		hammered_run(rig, how);
}

/* A's message ends the window behind A's own WRITEs; those behind the message are refused. */
static void mapped_ends_by_message(struct rig *rig)
{
	enum { WRITES = 30 };
	struct ibv_mw *mw = NULL;
	struct ibv_sge sge;
	uint32_t rkey = 0;
	struct end end;

	if (rig->carrier != RIG_FOUND)
		return;
	end_pair(&end, rig, &bindable);
	if (rig->role == RIG_B) {
		mw = mw_make(&end, IBV_MW_TYPE_2);
		rkey = part_bind(&end, mw, mw->rkey, REMOTE);
		OK(rig, end_recv(&end, 100, 0, 64));
	}
	key_pass(&end, rkey);
	const struct owner owner = owner_meet(&end);

	if (rig->role == RIG_A) {
		await_mapped(&end, &owner, PART);
		memset(end.buf, OLD, PART_BYTES);
		for (int i = 0; i < WRITES; i++)
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 7, 0, PART_BYTES, PART));
		OK(rig, post_one(&end, send_inv_request(&end, 16, end.peer.rkey, &sge)));
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 8, 0, PART_BYTES, PART));
		for (int i = 0; i < WRITES; i++)
			wc_expect(&end, end.scq, 7, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 5, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 8, IBV_WC_REM_ACCESS_ERR);
	} else {
		wc_expect(&end, end.rcq, 100, IBV_WC_SUCCESS);
		CHECK_EQ(rig, end.buf[PART + PART_BYTES - 1], OLD);
		memset(end.buf + PART, REUSED, PART_BYTES);
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
		for (unsigned int i = 0; i < PART_BYTES; i++)
			CHECK_EQ(rig, end.buf[PART + i], REUSED);
		OK(rig, ibv_dealloc_mw(mw));
	}
	rig_sync(rig);
	end_close(&end);
}

/* ------------------------------------------------------------------ the end of a mapping */

struct hammering {
	struct end *end;
	_Atomic bool stop;
};

static void *hammer_on(void *arg)
{
	struct hammering *hammering = arg;

	while (!hammering->stop)
		reach(hammering->end, IBV_WR_RDMA_WRITE, PART, PART_BYTES, IBV_WC_SUCCESS);
	return NULL;
}

/* A goes on by a window on one region, while A's mapping of another region is removed. */
static void mapped_region_leaves(struct rig *rig)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct ibv_mw *mw[2] = {NULL, NULL};
	struct end end[2];
	struct owner owner[2];

	if (rig->carrier != RIG_FOUND)
		return;
	for (int i = 0; i < 2; i++) {
		uint32_t rkey = 0;

		end_pair(&end[i], rig, &bindable);
		if (rig->role == RIG_B) {
			mw[i] = mw_make(&end[i], IBV_MW_TYPE_2);
			rkey = part_bind(&end[i], mw[i], mw[i]->rkey, REMOTE);
		}
		key_pass(&end[i], rkey);
		owner[i] = owner_meet(&end[i]);
		if (rig->role == RIG_A)
			await_mapped(&end[i], &owner[i], PART);
	}
	struct hammering hammering = {.end = &end[0]};
	pthread_t thread;

	if (rig->role == RIG_A)
		OK(rig, pthread_create(&thread, NULL, hammer_on, &hammering));
	rig_sync(rig);
	if (rig->role == RIG_B) {
		OK(rig, ibv_dealloc_mw(mw[1]));
		OK(rig, ibv_dereg_mr(end[1].mr));
		end[1].mr = NULL;
	} else {
		while (owner_is_mapped(&owner[1])) {
			CHECK(rig, !patience_over(&patience));
			usleep(1000);
		}
		hammering.stop = true;
		OK(rig, pthread_join(thread, NULL));
		CHECK(rig, owner_is_mapped(&owner[0]));
	}
	rig_sync(rig);
	if (rig->role == RIG_B)
		OK(rig, ibv_dealloc_mw(mw[0]));
	end_close(&end[1]);
	end_close(&end[0]);
}

const struct rig_test window_mapped_tests[] = {
	{"window_mapped_stopped", mapped_stopped},
	{"window_mapped_rights", mapped_rights},
	{"window_mapped_ends_under_fire", mapped_ends_under_fire},
	{"window_mapped_ends_by_message", mapped_ends_by_message},
	{"window_mapped_region_leaves", mapped_region_leaves},
	{NULL, NULL},
};
