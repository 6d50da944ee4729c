/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A message whose completion the receiver has seen completes with success at its sender, also if
 * the receiver is killed in the next instruction, before it has acknowledged the message.
 *
 * In each round a receiver polls its CQ until a number of messages have come, and kills itself as
 * soon as ibv_poll_cq() has returned the last of them. Its peer must see that number of successes
 * at least, then one RETRY_EXC_ERR if a request is left, and all others flushed. In some rounds the
 * daemon is killed first, so that no event reports the receiver's end; READs, whose data would have
 * to come from the receiver, are behind the messages in others.
 *
 * usage: seen [ring]     ring: the processes don't copy from each other's memory
 */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

enum { ROUNDS = 60, MOST = 12, SLOT = 65536, WITHOUT_DAEMON = 8 };

struct plan {
	unsigned int messages, seen, reads, round;
	enum ibv_wr_opcode opcode;
	uint32_t length;
};

static const struct end_options options = {
	.bytes = (2 * MOST) * SLOT, .timeout = 16, .retry_cnt = 1};

static struct plan plan_of(unsigned int round)
{
	static const uint32_t lengths[] = {0, 8, 500, 8000, 40000, SLOT};
	struct plan plan = {.round = round,
			    .messages = 1 + round % MOST,
			    .reads = round % 3 == 2 ? 2 : 0,
			    .opcode = round % 4 == 3 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND,
			    .length = lengths[round / 2 % 6]};

	plan.seen = 1 + round / 3 % plan.messages;
	return plan;
}

static void open_device(struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(rig, list && list[0] && (rig->ctx = ibv_open_device(list[0])));
	ibv_free_device_list(list);
}

/* Sees as many completions as planned, and dies. */
_Noreturn static void receive(struct rig *rig, const struct plan *plan)
{
	unsigned int seen = 0;
	struct ibv_wc wc;
	struct end end;

	open_device(rig);
	end_open(&end, rig, &options);
	end_connect(&end);
	for (unsigned int i = 0; i < MOST; i++)
		OK(rig, end_recv(&end, i, (size_t)i * SLOT, SLOT));
	rig_sync(rig);
	while (seen < plan->seen)
		seen += (unsigned int)ibv_poll_cq(end.rcq, 1, &wc);
	kill(getpid(), SIGKILL);
	_exit(1);
}

static void post(struct end *end, const struct plan *plan)
{
	for (unsigned int i = 0; i < plan->messages; i++)
		OK(end->rig, end_send(end, plan->opcode, i, (size_t)i * SLOT, plan->length,
				      (size_t)(MOST + i) * SLOT));
	for (unsigned int i = 0; i < plan->reads; i++)
		OK(end->rig,
		   end_send(end, IBV_WR_RDMA_READ, plan->messages + i, 0, SLOT, MOST * SLOT));
}

/* Requires what the file's head says. */
_Noreturn static void send_all(struct rig *rig, const struct plan *plan)
{
	unsigned int total = plan->messages + plan->reads, failed = 0;
	struct end end;

	open_device(rig);
	end_open(&end, rig, &options);
	end_connect(&end);
	end_warm(&end);
	if (plan->round % WITHOUT_DAEMON == WITHOUT_DAEMON - 1)
		rig_kill_daemon(rig);
	rig_sync(rig);
	post(&end, plan);
	for (unsigned int i = 0; i < total; i++) {
		struct ibv_wc wc = wc_wait(&end, end.scq);

		CHECK_EQ(rig, wc.wr_id, i);
		if (i < plan->seen || (wc.status == IBV_WC_SUCCESS && !failed)) {
			CHECK_EQ(rig, wc.status, IBV_WC_SUCCESS);
			continue;
		}
		CHECK_EQ(rig, wc.status, failed++ ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
	}
	exit(0);
}

static pid_t start(const struct plan *plan, enum rig_carrier carrier, int role, const int *socks)
{
	struct rig rig = {.name = "seen", .role = role, .carrier = carrier, .sock = socks[role]};

	fflush(NULL);
	pid_t child = fork();

	if (child)
		return child;
	close(socks[!role]);
	if (role == RIG_A)
		receive(&rig, plan);
	send_all(&rig, plan);
}

/* Whether the round is as it should be. */
static bool round_passes(unsigned int round, enum rig_carrier carrier)
{
	const struct plan plan = plan_of(round);
	int socks[2], status[2];
	pid_t child[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks))
		abort();
	for (int role = RIG_A; role <= RIG_B; role++)
		child[role] = start(&plan, carrier, role, socks);
	close(socks[0]);
	close(socks[1]);
	for (int role = RIG_A; role <= RIG_B; role++)
		if (waitpid(child[role], &status[role], 0) != child[role])
			abort();
	bool good = WIFSIGNALED(status[RIG_A]) && WTERMSIG(status[RIG_A]) == SIGKILL &&
		    WIFEXITED(status[RIG_B]) && !WEXITSTATUS(status[RIG_B]);

	if (!good)
		printf("round %u: %u of %u messages of %u bytes seen, then %u READs\n", round,
		       plan.seen, plan.messages, plan.length, plan.reads);
	return good;
}

int main(int argc, char **argv)
{
	bool ring = argc > 1 && !strcmp(argv[1], "ring");
	unsigned int bad = 0;

	if (ring)
		setenv("VERBENA_LOCAL_COPY", "ring", 1);
	for (unsigned int round = 0; round < ROUNDS; round++)
		bad += !round_passes(round, ring ? RIG_RING : RIG_LOCAL);
	printf("%u of %d rounds are wrong\n", bad, ROUNDS);
	return bad ? 1 : 0;
}
