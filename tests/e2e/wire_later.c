/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that attached when the daemon had no wire, and goes on with one that has.
 *
 * usage: wire_later early FILE | wire_later sender FILE SRQ
 * early: finds that its own address can't be reached, and makes an SRQ in FILE's XRC domain; prints
 *        "alone" and the SRQ's number. Once SIGUSR1 comes (the daemon has been
 *        replaced): sends MESSAGES messages to itself, prints "joined", and receives as many by
 *        the SRQ; prints "received".
 * sender: sends MESSAGES messages to that SRQ, by a pair of XRC queue pairs of its own.
 *
 * With VERBENA_CARRIER=wire all of this goes by UDP. Queue pairs and the SRQ are used by one
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES = 50, BYTES = 3000, PSN = 77, PATIENCE_S = 60 };

#define MUST(condition)                                                                       \
	do {                                                                                  \
		if (!(condition)) {                                                           \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, \
				#condition, errno);                                           \
			exit(1);                                                              \
		}                                                                             \
	} while (0)

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_xrcd *xrcd;
	union ibv_gid gid;
	uint8_t bytes[2][BYTES];
};

static struct side self;

static void open_side(const char *file)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0] && (self.context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST(ibv_query_gid(self.context, 1, 0, &self.gid) == 0);
	MUST((self.pd = ibv_alloc_pd(self.context)));
	MUST((self.cq = ibv_create_cq(self.context, 4 * MESSAGES, NULL, NULL, 0)));
	MUST((self.mr =
		      ibv_reg_mr(self.pd, self.bytes, sizeof(self.bytes), IBV_ACCESS_LOCAL_WRITE)));
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open(file, O_RDONLY | O_CREAT, 0600),
		.oflags = O_CREAT,
	};

	MUST(attr.fd >= 0 && (self.xrcd = ibv_open_xrcd(self.context, &attr)));
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.comp_mask = type == IBV_QPT_XRC_RECV ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD,
		.pd = self.pd,
		.xrcd = self.xrcd,
		.send_cq = self.cq,
		.recv_cq = self.cq,
		.cap = {MESSAGES, MESSAGES, 1, 1, 0},
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(self.context, &attr);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	MUST(qp);
	MUST(ibv_modify_qp(qp, &init,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
	     0);
	return qp;
}

/* To RTR. 0 or errno. */
static int connect_qp(struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = self.gid, .hop_limit = 64}},
	};

	return ibv_modify_qp(qp, &rtr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static void begin_sending(struct ibv_qp *qp)
{
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = PSN,
		.max_rd_atomic = 1,
	};

	MUST(ibv_modify_qp(qp, &rts,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_sge segment(int row)
{
	return (struct ibv_sge){(uintptr_t)self.bytes[row], BYTES, self.mr->lkey};
}

static void post_sends(struct ibv_qp *qp, uint32_t srqn)
{
	struct ibv_sge sge = segment(0);
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (srqn)
		wr.qp_type.xrc.remote_srqn = srqn;
	memset(self.bytes[0], 0x5a, BYTES);
	for (int i = 0; i < MESSAGES; i++)
		MUST(ibv_post_send(qp, &wr, &bad) == 0);
}

static void await_completions(int count)
{
	time_t end = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;

	while (count) {
		int n = ibv_poll_cq(self.cq, 1, &wc);

		MUST(n >= 0 && time(NULL) < end);
		if (!n)
			continue;
		if (wc.status)
			fprintf(stderr, "wire_later: %s\n", ibv_wc_status_str(wc.status));
		MUST(wc.status == IBV_WC_SUCCESS);
		count--;
	}
}

static void talk_to_self(void)
{
	struct ibv_qp *one = make_qp(IBV_QPT_RC), *other = make_qp(IBV_QPT_RC);
	struct ibv_sge sge = segment(1);
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	MUST(connect_qp(one, other->qp_num) == 0 && connect_qp(other, one->qp_num) == 0);
	begin_sending(one);
	for (int i = 0; i < MESSAGES; i++)
		MUST(ibv_post_recv(other, &wr, &bad) == 0);
	post_sends(one, 0);
	await_completions(2 * MESSAGES);
	MUST(!memcmp(self.bytes[0], self.bytes[1], BYTES));
	memset(self.bytes[1], 0, BYTES);
}

static int early(const char *file)
{
	open_side(file);
	MUST(connect_qp(make_qp(IBV_QPT_RC), 2) == EHOSTUNREACH);
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = MESSAGES, .max_sge = 1},
		.srq_type = IBV_SRQT_XRC,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.pd = self.pd,
		.xrcd = self.xrcd,
		.cq = self.cq,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(self.context, &attr);
	struct ibv_sge sge = segment(1);
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	uint32_t number;
	sigset_t go_on;
	int number_of_signal;

	sigemptyset(&go_on);
	sigaddset(&go_on, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &go_on, NULL) == 0);
	MUST(srq && ibv_get_srq_num(srq, &number) == 0);
	for (int i = 0; i < MESSAGES; i++)
		MUST(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	printf("alone %u\n", number);
	fflush(stdout);
	MUST(sigwait(&go_on, &number_of_signal) == 0);
	talk_to_self();
	printf("joined\n");
	fflush(stdout);
	await_completions(MESSAGES);
	for (int i = 0; i < BYTES; i++)
		MUST(self.bytes[1][i] == 0x5a);
	printf("received\n");
	return 0;
}

static int sender(const char *file, uint32_t srqn)
{
	open_side(file);
	struct ibv_qp *send = make_qp(IBV_QPT_XRC_SEND), *target = make_qp(IBV_QPT_XRC_RECV);

	MUST(connect_qp(target, send->qp_num) == 0 && connect_qp(send, target->qp_num) == 0);
	begin_sending(send);
	post_sends(send, srqn);
	await_completions(MESSAGES);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "early"))
		return early(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "sender"))
		return sender(argv[2], (uint32_t)strtoul(argv[3], NULL, 0));
	fprintf(stderr, "usage: wire_later early FILE | wire_later sender FILE SRQ\n");
	return 2;
}
