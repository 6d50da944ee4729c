/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers that arrive while their requester is stopped: B posts a request, and its process is
 * stopped for longer than all of its retries take. A answers and ends its queue pair meanwhile.
 * When B continues, A's answer counts, not that A's queue pair is gone. See rig.h.
 */
#include <signal.h>
#include <unistd.h>

#include "faults.h"

enum { ROUNDS = 8, LENGTH = 64, AWAY_US = 30000 }; /* 4 ms and two retries are 12 ms */

/* Continues B, which is stopped or about to stop. */
static void let_go_on(struct rig *rig, pid_t pid)
{
	rig_await_stop(pid);
	usleep(AWAY_US); /* B's timeout passes */
	OK(rig, kill(pid, SIGCONT));
}

static bool is_one_process(const struct rig *rig)
{
	return rig->carrier == RIG_SELF || rig->carrier == RIG_SELF_TWO;
}

/* What B asks for, and what A does while B stands still. */
struct absence {
	enum ibv_wr_opcode opcode;
	uint32_t key_xor;
	void (*meanwhile)(struct end *end, uint64_t round);
	enum ibv_wc_status answer;
};

static void one_absence(struct rig *rig, const struct absence *absence, pid_t peer, uint64_t round)
{
	struct end end;

	end_pair(&end, rig, NULL);
	end_warm(&end);
	if (rig->role == RIG_A)
		OK(rig, end_recv(&end, round, 0, LENGTH));
	rig_sync(rig);
	if (rig->role == RIG_B) {
		end.peer.rkey ^= absence->key_xor;
		OK(rig, end_send(&end, absence->opcode, round, 0, LENGTH, 0));
		raise(SIGSTOP);
		wc_expect(&end, end.scq, round, absence->answer);
	} else {
		absence->meanwhile(&end, round);
		let_go_on(rig, peer);
	}
	rig_sync(rig);
	end_close(&end);
}

static void each_absence(struct rig *rig, const struct absence *absence)
{
	pid_t mine = getpid(), theirs;

	if (is_one_process(rig))
		return;
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	for (uint64_t round = 0; round < ROUNDS; round++)
		one_absence(rig, absence, theirs, round);
}

/* A's queue pair is in ERR: it refused the request. */
static void refusal_flushes(struct end *end, uint64_t round)
{
	wc_expect(end, end->rcq, round, IBV_WC_WR_FLUSH_ERR);
}

static void refused_while_away(struct rig *rig)
{
	each_absence(rig, &(struct absence){.opcode = IBV_WR_RDMA_READ,
					    .key_xor = 0xff,
					    .meanwhile = refusal_flushes,
					    .answer = IBV_WC_REM_ACCESS_ERR});
}

/* A's queue pair ends after A has received the message that it waited for. */
static void receipt_ends(struct end *end, uint64_t round)
{
	wc_expect(end, end->rcq, round, IBV_WC_SUCCESS);
	OK(end->rig, end_move(end, IBV_QPS_RESET));
}

static void answered_while_away(struct rig *rig)
{
	each_absence(rig, &(struct absence){.opcode = IBV_WR_SEND,
					    .meanwhile = receipt_ends,
					    .answer = IBV_WC_SUCCESS});
}

const struct rig_test away_tests[] = {
	{"refused_while_away", refused_while_away},
	{"answered_while_away", answered_while_away},
	{NULL, NULL},
};
