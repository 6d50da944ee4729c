/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Raw packet queue pairs and flow rules: which queue pair gets which frame, what a killed process
 * leaves, and wrong use. End A sends, end B has the rules, unless it is said otherwise. See rig.h,
 * raw.h.
 */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"

extern char **environ;

/* B posts receives and makes the rules, then A runs; and the other way round. */
static void by_address(struct rig *rig)
{
	struct end end;
	uint8_t mine = (uint8_t)(10 + rig->role), theirs = (uint8_t)(11 - rig->role);

	raw_open(&end, rig);
	for (uint64_t id = 0; id < 8; id++)
		receive_post(&end, end.qp, id);
	struct ibv_flow *flow = flow_make(rig, end.qp, rule_to(mine, 0));

	rig_sync(rig);
	frame_send(&end, 77, 1); /* for no QP */
	for (uint32_t seed = 2; seed < 6; seed++)
		frame_send(&end, theirs, seed);
	for (uint32_t seed = 2; seed < 6; seed++)
		frame_expect(&end, end.qp->qp_num, seed);
	rig_sync(rig);
	CHECK_EQ(rig, ibv_destroy_qp(end.qp), EBUSY);
	OK(rig, ibv_destroy_flow(flow));
	rig_sync(rig);
	frame_send(&end, theirs, 7);
	rig_sync(rig);
	wc_none(&end, end.rcq);
	end_close(&end);
}

/* What B has: two QPs, with a receive buffer for each. */
struct pair {
	struct end end;
	struct ibv_qp *other;
};

static void pair_open(struct pair *p, struct rig *rig)
{
	raw_open(&p->end, rig);
	p->other = raw_another(&p->end);
	for (uint64_t id = 0; id < 16; id++)
		receive_post(&p->end, id % 2 ? p->other : p->end.qp, id);
}

static void pair_close(struct pair *p)
{
	OK(p->end.rig, ibv_destroy_qp(p->other));
	end_close(&p->end);
}

/* A sends one frame to the address that ends with 5, when B is ready for it. */
static void a_sends(struct pair *p, uint32_t seed)
{
	rig_sync(p->end.rig);
	if (p->end.rig->role == RIG_A)
		frame_send(&p->end, 5, seed);
	rig_sync(p->end.rig);
}

static void priorities(struct rig *rig)
{
	struct ibv_flow *first = NULL, *second = NULL;
	struct pair p;

	pair_open(&p, rig);
	if (rig->role == RIG_B) {
		second = flow_make(rig, p.other, rule_to(5, 7));
		first = flow_make(rig, p.end.qp, rule_to(5, 3));
	}
	a_sends(&p, 1);
	if (rig->role == RIG_B) {
		frame_expect(&p.end, p.end.qp->qp_num, 1);
		wc_none(&p.end, p.end.rcq);
		OK(rig, ibv_destroy_flow(first));
	}
	a_sends(&p, 2);
	if (rig->role == RIG_B) {
		frame_expect(&p.end, p.other->qp_num, 2);
		OK(rig, ibv_destroy_flow(second));
	}
	pair_close(&p);
}

/* Rules of one priority that overlap: each gets a copy. One that lets frames pass: the next ones
 * get it, too. */
static void copies(struct rig *rig)
{
	struct ibv_flow *flows[3] = {NULL};
	struct pair p;

	pair_open(&p, rig);
	if (rig->role == RIG_B) {
		flows[0] = flow_make(rig, p.end.qp, rule_to(5, 4));
		flows[1] = flow_make(rig, p.other, rule_to(5, 4));
	}
	a_sends(&p, 1);
	if (rig->role == RIG_B) {
		struct rule passes = rule_to(5, 1);

		CHECK(rig, completion_wait(&p.end, p.end.rcq).qp_num !=
				   completion_wait(&p.end, p.end.rcq).qp_num);
		wc_none(&p.end, p.end.rcq);
		OK(rig, ibv_destroy_flow(flows[0]));
		passes.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
		flows[2] = flow_make(rig, p.end.qp, passes);
	}
	a_sends(&p, 2);
	if (rig->role == RIG_B) {
		CHECK(rig, completion_wait(&p.end, p.end.rcq).qp_num !=
				   completion_wait(&p.end, p.end.rcq).qp_num);
		wc_none(&p.end, p.end.rcq);
		OK(rig, ibv_destroy_flow(flows[1]));
		OK(rig, ibv_destroy_flow(flows[2]));
	}
	pair_close(&p);
}

/* What no rule takes goes to the default rules; a sniffer gets all. */
static void defaults(struct rig *rig)
{
	struct ibv_flow *flows[2] = {NULL};
	struct pair p;

	pair_open(&p, rig);
	if (rig->role == RIG_B) {
		flows[0] = flow_make(rig, p.end.qp, rule_of(IBV_FLOW_ATTR_ALL_DEFAULT, 0));
		flows[1] = flow_make(rig, p.other, rule_to(5, 0));
	}
	a_sends(&p, 1);
	if (rig->role == RIG_B) {
		frame_expect(&p.end, p.other->qp_num, 1);
		wc_none(&p.end, p.end.rcq);
		OK(rig, ibv_destroy_flow(flows[1]));
	}
	a_sends(&p, 2);
	if (rig->role == RIG_B) {
		frame_expect(&p.end, p.end.qp->qp_num, 2);
		flows[1] = flow_make(rig, p.other, rule_of(IBV_FLOW_ATTR_SNIFFER, 0));
	}
	a_sends(&p, 3);
	if (rig->role == RIG_B) {
		CHECK(rig, completion_wait(&p.end, p.end.rcq).qp_num !=
				   completion_wait(&p.end, p.end.rcq).qp_num);
		OK(rig, ibv_destroy_flow(flows[0]));
		OK(rig, ibv_destroy_flow(flows[1]));
	}
	pair_close(&p);
}

/* The default rule for groups; frames don't come back to the queue pair that sends them. */
static void groups(struct rig *rig)
{
	struct ibv_flow *flow;
	struct pair p;

	pair_open(&p, rig);
	flow = flow_make(rig, p.end.qp, rule_of(IBV_FLOW_ATTR_MC_DEFAULT, 0));
	a_sends(&p, 1); /* to no group */
	rig_sync(rig);
	if (rig->role == RIG_A) {
		frame_write(&p.end, 3, 5, 2); /* to a group */
		frame_post(&p.end, p.end.qp, 2, FRAME, 0);
		wc_expect(&p.end, p.end.scq, 2, IBV_WC_SUCCESS);
	} else {
		frame_expect(&p.end, p.end.qp->qp_num, 2);
	}
	rig_sync(rig);
	wc_none(&p.end, p.end.rcq);
	OK(rig, ibv_destroy_flow(flow));
	pair_close(&p);
}

static void drops(struct rig *rig)
{
	const struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP};
	struct ibv_flow *flows[2] = {NULL};
	struct pair p;

	pair_open(&p, rig);
	if (rig->role == RIG_B) {
		struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL, 2);
		const struct ibv_flow_spec_eth any = {.type = IBV_FLOW_SPEC_ETH};

		rule_add(&rule, &any, sizeof(any));
		rule_add(&rule, &drop, sizeof(drop));
		flows[0] = flow_make(rig, p.end.qp, rule_to(5, 2));
		flows[1] = flow_make(rig, p.other, rule);
	}
	a_sends(&p, 1);
	if (rig->role == RIG_B) {
		wc_none(&p.end, p.end.rcq);
		OK(rig, ibv_destroy_flow(flows[1]));
	}
	a_sends(&p, 2);
	if (rig->role == RIG_B) {
		frame_expect(&p.end, p.end.qp->qp_num, 2);
		OK(rig, ibv_destroy_flow(flows[0]));
	}
	pair_close(&p);
}

/* ------------------------------------------------------------------ killed processes */

/* A process of its own that takes all frames to 5, until it is killed: this program again. */
static pid_t taker_start(const struct rig *rig)
{
	int pipes[2];
	char byte;

	CHECK(rig, !pipe(pipes));
	char number[16];

	snprintf(number, sizeof(number), "%d", pipes[1]);
	char *words[] = {"raw", "--taker", number, NULL};
	pid_t pid;

	OK(rig, posix_spawn(&pid, "/proc/self/exe", NULL, NULL, words, environ));
	close(pipes[1]);
	CHECK_EQ(rig, read(pipes[0], &byte, 1), 1);
	close(pipes[0]);
	return pid;
}

/* A process with the first rule dies; the next frame goes to the rule behind it. */
static void killed(struct rig *rig)
{
	struct ibv_flow *flow = NULL;
	pid_t taker = 0;
	struct pair p;

	pair_open(&p, rig);
	if (rig->role == RIG_B) {
		flow = flow_make(rig, p.end.qp, rule_to(5, 9));
		taker = taker_start(rig);
	}
	a_sends(&p, 1);
	if (rig->role == RIG_B) {
		wc_none(&p.end, p.end.rcq);
		kill(taker, SIGKILL);
		CHECK_EQ(rig, waitpid(taker, NULL, 0), taker);
	}
	rig_sync(rig);
	struct patience patience = patience_of(RIG_SOON_MS);
	uint8_t done = 0, theirs;
	struct ibv_wc wc;

	/* The daemon notices the death some time later. */
	for (uint32_t seed = 2; !done; seed++) {
		CHECK(rig, !patience_over(&patience));
		a_sends(&p, seed);
		if (rig->role == RIG_B)
			done = ibv_poll_cq(p.end.rcq, 1, &wc) == 1;
		rig_swap(rig, &done, &theirs, sizeof(done));
		done |= theirs;
	}
	if (flow)
		OK(rig, ibv_destroy_flow(flow));
	pair_close(&p);
}

/* A receiver without receives: frames wait for one, as datagrams do. */
static void late_receive(struct rig *rig)
{
	struct ibv_flow *flow = NULL;
	struct end end;

	raw_open(&end, rig);
	if (rig->role == RIG_B) {
		flow = flow_make(rig, end.qp, rule_to(5, 0));
		receive_post(&end, end.qp, 0);
	}
	rig_sync(rig);
	if (rig->role == RIG_A) {
		frame_send(&end, 5, 1);
		frame_send(&end, 5, 2);
	}
	if (rig->role == RIG_B) {
		frame_expect(&end, end.qp->qp_num, 1);
		receive_post(&end, end.qp, 1);
		frame_expect(&end, end.qp->qp_num, 2);
	}
	rig_sync(rig);
	if (flow)
		OK(rig, ibv_destroy_flow(flow));
	end_close(&end);
}

const struct rig_test raw_tests[] = {
	{"by_address", by_address},
	{"priorities", priorities},
	{"copies", copies},
	{"defaults", defaults},
	{"groups", groups},
	{"drops", drops},
	{"killed", killed},
	{"late_receive", late_receive},
	{NULL, NULL},
};

/* ------------------------------------------------------------------ the program */

static int taker(int fd)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 16, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr attr = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RAW_PACKET,
					.cap = {.max_recv_wr = 8, .max_recv_sge = 1}};
	struct ibv_qp *qp = cq ? ibv_create_qp(pd, &attr) : NULL;
	struct rule rule = rule_to(5, 0);

	if (!qp || raw_move(qp, IBV_QPS_INIT) || raw_move(qp, IBV_QPS_RTR) ||
	    !ibv_create_flow(qp, &rule.attr) || write(fd, "", 1) != 1)
		return 1;
	for (;;)
		pause();
}

/* With a network interface: sends a frame to 5, then prints what arrives. */
static int station(int frames)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct rig rig = {.name = "station",
			  .ctx = list && list[0] ? ibv_open_device(list[0]) : NULL};
	struct end end;

	CHECK(&rig, rig.ctx);
	end_open(&end, &rig, &raw);
	raw_ready(&rig, end.qp);
	for (uint64_t id = 0; id < 64; id++)
		receive_post(&end, end.qp, id);
	struct ibv_flow *flow = flow_make(&rig, end.qp, rule_to(7, 0));

	frame_send(&end, 5, 1);
	printf("sent\n");
	fflush(stdout);
	for (int i = 0; i < frames; i++) {
		struct ibv_wc wc = completion_wait(&end, end.rcq);
		const uint8_t *at = end.buf + RECEIVES + wc.wr_id * 256;

		printf("%u ", wc.byte_len);
		for (uint32_t n = 0; n < wc.byte_len; n++)
			printf("%02x", at[n]);
		printf("\n");
		fflush(stdout);
	}
	OK(&rig, ibv_destroy_flow(flow));
	end_close(&end);
	return 0;
}

int main(int argc, char **argv)
{
	static struct rig_test all[64];
	const struct rig_test *const lists[] = {raw_tests, raw_spread_tests, raw_wrong_tests};
	size_t n = 0;

	if (argc > 2 && !strcmp(argv[1], "--taker"))
		return taker(atoi(argv[2]));
	if (argc > 2 && !strcmp(argv[1], "--station"))
		return station(atoi(argv[2]));
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (const struct rig_test *test = lists[i]; test->name; test++)
			all[n++] = *test;
	rig_main(argc, argv, all);
}
