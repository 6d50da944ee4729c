/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unused links are given back, and made again when they are needed. VERBENA_LINK_IDLE_MS is short
 * here, so that links end between, and during, most requests of these tests. See rig.h.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "rig.h"

enum {
	BYTES = 64,
	ROUNDS = 300,
	PAIRS = 60,
	SEED = 4711,
	GAP_US = 4000,
	KILLS = 6,
	AFTER = 6,
	TRY_MS = 100,
	BACK_MS = 30000
};

/* Counts this process's descriptors, without /proc, which a process that has changed its user can't
 * read. */
static int count_descriptors(void)
{
	enum { MOST = 1024 };
	int n = 0;

	for (int fd = 0; fd < MOST; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void wait_for_descriptors(struct rig *rig, int wanted)
{
	struct patience patience = patience_of(BACK_MS * rig_slowness());

	while (count_descriptors() != wanted) {
		if (patience_over(&patience))
			rig_fail(rig, __FILE__, __LINE__, "%d descriptors instead of %d",
				 count_descriptors(), wanted);
		usleep(1000);
	}
}

/* Each end sends one datagram, and both must arrive. */
static void exchange(struct rig *rig, struct end *end, uint64_t round)
{
	OK(rig, end_recv(end, round, 4096, BYTES + 40));
	rig_sync(rig);
	pattern_fill(end->buf, BYTES, (uint32_t)round * 2 + (uint32_t)rig->role);
	OK(rig, end_send(end, IBV_WR_SEND, round, 0, BYTES, 0));
	wc_expect(end, end->scq, round, IBV_WC_SUCCESS);
	wc_expect(end, end->rcq, round, IBV_WC_SUCCESS);
	/* A datagram's receive begins with its GRH. */
	size_t grh = end->ah ? 40 : 0;

	CHECK(rig, pattern_holds(end->buf + 4096 + grh, BYTES, (uint32_t)round * 2 + !rig->role));
}

static void comes_and_goes(struct rig *rig)
{
	const struct end_options options = {.type = IBV_QPT_UD};
	struct end end;

	end_pair(&end, rig, &options);
	int before = count_descriptors();

	for (uint64_t round = 0; round < 3; round++) {
		exchange(rig, &end, round);
		wait_for_descriptors(rig, before);
		rig_sync(rig);
	}
	end_close(&end);
}

/* No datagram is lost, whenever the link ends. */
static void no_datagram_is_lost(struct rig *rig)
{
	const struct end_options options = {.type = IBV_QPT_UD};
	unsigned int seed = SEED + (unsigned int)rig->role;
	struct end end;

	end_pair(&end, rig, &options);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		exchange(rig, &end, round);
		usleep((useconds_t)rand_r(&seed) % GAP_US);
	}
	end_close(&end);
}

static void a_connection_keeps_it(struct rig *rig)
{
	unsigned int seed = SEED + (unsigned int)rig->role;
	int before = -1;

	for (uint64_t round = 0; round < PAIRS; round++) {
		struct end end;

		end_open(&end, rig, NULL);
		before = before < 0 ? count_descriptors() : before;
		end_init(&end);
		end_meet(&end);
		usleep((useconds_t)rand_r(&seed) % GAP_US);
		end_rtr(&end);
		usleep((useconds_t)rand_r(&seed) % GAP_US);
		end_rts(&end);
		exchange(rig, &end, round);
		usleep((useconds_t)rand_r(&seed) % GAP_US);
		exchange(rig, &end, round);
		rig_sync(rig);
		if (round + 1 == PAIRS) { /* with the same objects as at the first count */
			OK(rig, end_move(&end, IBV_QPS_RESET));
			wait_for_descriptors(rig, before);
			rig_sync(rig);
		}
		end_close(&end);
	}
}

/* One end sends datagrams until one arrives: those that wait for a link may be dropped while the
 * next daemon starts. */
static void deliver(struct rig *rig, struct end *end, int sender, uint64_t round)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	int arrived = 0, seen = 0;
	struct ibv_wc wc;

	if (rig->role != sender)
		OK(rig, end_recv(end, round, 4096, BYTES + 40));
	while (!arrived && !seen) {
		struct patience moment = patience_of(TRY_MS);

		CHECK(rig, !patience_over(&patience));
		if (rig->role == sender) {
			OK(rig, end_send(end, IBV_WR_SEND, round, 0, BYTES, 0));
			wc_expect(end, end->scq, round, IBV_WC_SUCCESS);
		} else {
			while (!arrived && !patience_over(&moment))
				arrived = ibv_poll_cq(end->rcq, 1, &wc);
		}
		rig_swap(rig, &arrived, &seen, sizeof(arrived));
	}
}

/* The daemon is killed while links come and go. Then one end sends, and the other needs nothing. */
static void the_daemon_is_gone(struct rig *rig)
{
	const struct end_options options = {.type = IBV_QPT_UD};

	for (int kill = 0; kill < KILLS; kill++) {
		struct end end;

		end_pair(&end, rig, &options); /* needs a daemon, so there is one */
		deliver(rig, &end, kill % 2, 0);
		if (rig->role == RIG_A)
			rig_kill_daemon(rig);
		for (uint64_t round = 1; round < AFTER; round++) {
			usleep(GAP_US);
			deliver(rig, &end, kill % 2, round);
		}
		end_close(&end);
	}
}

/* End B is stopped and doesn't answer. (A is root, so it may continue B.) */
static void one_that_stands_still(struct rig *rig)
{
	const struct end_options options = {.type = IBV_QPT_UD};
	struct end end;
	pid_t mine = getpid(), theirs;

	end_pair(&end, rig, &options);
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	int before = count_descriptors();

	for (uint64_t round = 0; round < 2; round++) {
		OK(rig, end_recv(&end, round, 4096, BYTES + 40));
		rig_sync(rig);
		if (rig->role == RIG_B) {
			OK(rig, end_send(&end, IBV_WR_SEND, round, 0, BYTES, 0));
			wc_expect(&end, end.scq, round, IBV_WC_SUCCESS);
			raise(SIGSTOP);
			wait_for_descriptors(rig, before);
		} else {
			wc_expect(&end, end.rcq, round, IBV_WC_SUCCESS);
			wait_for_descriptors(rig, before);
			OK(rig, kill(theirs, SIGCONT));
		}
		rig_sync(rig);
	}
	end_close(&end);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"comes_and_goes", comes_and_goes},
		{"no_datagram_is_lost", no_datagram_is_lost},
		{"a_connection_keeps_it", a_connection_keeps_it},
		{"the_daemon_is_gone", the_daemon_is_gone},
		{"one_that_stands_still", one_that_stands_still},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
