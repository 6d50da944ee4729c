/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A polling thread doesn't nap while there are signs of work for it (engine.h): completions of its
 * own one-sided requests, and its peer's writes into its memory. See rig.h.
 *
 * Naps are counted, by a filter of system calls; time isn't measured. In each round there is a sign
 * of work, and a round has fewer empty polls than the poller makes between two decisions whether to
 * nap. So no round, however long it takes, may end in a nap.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "rig.h"

/* EMPTY_POLLS poll up to three rings each: 60 are fewer than YIELD_AFTER less LEASE_AFTER. */
enum { EMPTY_POLLS = 60, ROUNDS = 100 };

/* The rounds take at least this long: many times the 1 ms after which a poller naps. */
static const double LONG_MS = 30;

static volatile sig_atomic_t naps;

static void on_nap(int number)
{
	(void)number;
	naps++;
}

/* From now on this thread's calls of nanosleep() raise SIGSYS. */
static void count_naps(struct rig *rig)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_nanosleep, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

	CHECK(rig, signal(SIGSYS, on_nap) != SIG_ERR);
	OK(rig, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(rig, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
	naps = 0;
}

static void poll_in_vain(struct end *end, int polls)
{
	struct ibv_wc wc;

	for (int i = 0; i < polls; i++)
		CHECK_EQ(end->rig, ibv_poll_cq(end->rcq, 1, &wc), 0);
}

/* Checks the counter: a thread without a sign of work naps. */
static void naps_without_work(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		struct patience patience = patience_of(RIG_SOON_MS);

		count_naps(rig);
		while (!naps) {
			poll_in_vain(&end, EMPTY_POLLS);
			CHECK(rig, !patience_over(&patience));
		}
	}
	rig_sync(rig);
	end_close(&end);
}

/* A thread whose own requests complete has work, although it receives no records. */
static void own_completions(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		double begun = now_ms();

		count_naps(rig);
		for (uint64_t i = 0; i < ROUNDS || now_ms() < begun + LONG_MS; i++) {
			OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, i, 0, 8, 0));
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
			poll_in_vain(&end, EMPTY_POLLS);
		}
		CHECK_EQ(rig, naps, 0);
	}
	rig_sync(rig);
	end_close(&end);
}

/* A writes; the completion means that the write has been counted. */
static void write_rounds(struct end *end)
{
	bool none = false, last = false;

	for (uint64_t i = 0; !last; i++) {
		OK(end->rig, end_send(end, IBV_WR_RDMA_WRITE, i, 0, 8, 0));
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
		rig_sync(end->rig);
		rig_swap(end->rig, &none, &last, sizeof(last));
	}
}

/* B polls after each write. The ends take turns by blocking: threads that yield the processor in
 * turn may starve each other on a loaded machine. */
static void poll_rounds(struct end *end)
{
	double begun = now_ms();
	bool none, last = false;

	count_naps(end->rig);
	for (uint64_t i = 1; !last; i++) {
		rig_sync(end->rig);
		poll_in_vain(end, EMPTY_POLLS);
		last = i >= ROUNDS && now_ms() >= begun + LONG_MS;
		rig_swap(end->rig, &last, &none, sizeof(last));
	}
	CHECK_EQ(end->rig, naps, 0);
}

/* The same for a thread into whose process's memory the peer writes. */
static void writes_by_the_peer(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	rig_sync(rig);
	if (rig->role == RIG_A)
		write_rounds(&end);
	else
		poll_rounds(&end);
	rig_sync(rig);
	end_close(&end);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"naps_without_work", naps_without_work},
		{"own_completions", own_completions},
		{"writes_by_the_peer", writes_by_the_peer},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
