/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is refused, or fails, is explained in the log at the level that users see: one line, with
 * the reason, once for a queue pair and a few times for a process. What ends as programs end says
 * nothing. A table of mistakes; standard error is a file meanwhile.
 *
 * usage: says ADDRESS
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "must.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr, *read_only;
static char memory[4096];
static struct sockaddr_in address;
static int errors, real_stderr;

/* ------------------------------------------------------------------ what was said */

/* The lines since the last call. */
static char *said(unsigned int *lines)
{
	static char text[65536];
	static off_t at;
	ssize_t n = pread(errors, text, sizeof(text) - 1, at);

	at += n > 0 ? n : 0;
	text[n > 0 ? n : 0] = 0;
	*lines = 0;
	for (const char *c = text; *c; c++)
		*lines += *c == '\n';
	return text;
}

static void complain(const char *what, const char *wanted, const char *text)
{
	dprintf(real_stderr, "%s: \"%s\" was wanted, this was said: %s\n", what, wanted, text);
	exit(1);
}

/* ------------------------------------------------------------------ queue pairs */

static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {.qp_type = type,
					.send_cq = cq,
					.recv_cq = cq,
					.srq = srq,
					.cap = {.max_send_wr = 16,
						.max_recv_wr = 16,
						.max_send_sge = 1,
						.max_recv_sge = 1,
						.max_inline_data = 64}};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	MUST(qp);
	return qp;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = 1,
				   .qp_access_flags =
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};

	MUST(!ibv_modify_qp(
		qp, &attr,
		IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
			(qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
}

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer,
				   .max_dest_rd_atomic = 1,
				   .ah_attr = {.is_global = 1, .port_num = 1}};
	const bool ud = qp->qp_type == IBV_QPT_UD;

	/* Both queue pairs are on one port, with which GID doesn't matter. */
	MUST(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
	MUST(!ibv_modify_qp(qp, &attr,
			    ud ? IBV_QP_STATE
			       : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.max_rd_atomic = 1;
	attr.timeout = 16; /* 0.27 s: also a busy machine answers in three of them */
	attr.retry_cnt = 3;
	attr.rnr_retry = 1;
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN |
				    (ud ? 0
					: IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						     IBV_QP_MAX_QP_RD_ATOMIC)));
}

/* Two RC queue pairs that are connected. */
static void connect_two(struct ibv_qp *qp[2])
{
	for (int i = 0; i < 2; i++) {
		qp[i] = make(IBV_QPT_RC, NULL);
		to_init(qp[i]);
	}
	to_rts(qp[0], qp[1]->qp_num);
	to_rts(qp[1], qp[0]->qp_num);
}

static void end_two(struct ibv_qp *qp[2])
{
	struct ibv_wc wc[16];

	MUST(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]));
	while (ibv_poll_cq(cq, 16, wc) > 0)
		;
}

static int receive(struct ibv_qp *qp, uint32_t length, uint32_t lkey, int segments)
{
	struct ibv_sge list[2] = {{(uintptr_t)memory, length, lkey}};
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = segments}, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, unsigned int flags, uint32_t length,
		uint32_t lkey, uint32_t rkey)
{
	struct ibv_sge list = {(uintptr_t)memory, length, lkey};
	struct ibv_send_wr wr = {.wr_id = 77,
				 .opcode = opcode,
				 .send_flags = flags | IBV_SEND_SIGNALED,
				 .sg_list = &list,
				 .num_sge = 1,
				 .wr.rdma = {(uintptr_t)memory, rkey}},
			   *bad;

	return ibv_post_send(qp, &wr, &bad);
}

/* Waits for a completion with this status. */
static void await(enum ibv_wc_status status)
{
	struct ibv_wc wc;

	do {
		while (!ibv_poll_cq(cq, 1, &wc))
			;
	} while (wc.status != status);
}

/* ------------------------------------------------------------------ the mistakes */

static void capability(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap.max_send_sge = 1000};

	MUST(!ibv_create_qp(pd, &attr));
}

static void no_cq(void)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .recv_cq = cq};

	MUST(!ibv_create_qp(pd, &attr));
}

static void srq_without_places(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 0}};

	MUST(!ibv_create_srq(pd, &attr));
}

static void high_limit(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	struct ibv_srq_attr limit = {.srq_limit = 1 << 20};

	MUST(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == EINVAL);
	MUST(!ibv_destroy_srq(srq));
}

static void send_in_reset(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);

	for (int i = 0; i < 100; i++)
		MUST(post(qp, IBV_WR_SEND, 0, 8, mr->lkey, 0) == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void receive_in_reset(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);

	for (int i = 0; i < 100; i++)
		MUST(receive(qp, 8, mr->lkey, 1) == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void receive_beside_srq(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	struct ibv_qp *qp = make(IBV_QPT_RC, srq);

	to_init(qp);
	MUST(receive(qp, 8, mr->lkey, 1) == EINVAL);
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
}

static void too_many_segments(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	to_init(qp);
	MUST(!ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
	struct ibv_sge list[64] = {{0}};
	struct ibv_recv_wr wr = {.sg_list = list, .num_sge = (int)init.cap.max_recv_sge + 1}, *bad;

	MUST(ibv_post_recv(qp, &wr, &bad));
	MUST(!ibv_destroy_qp(qp));
}

static void long_inline(void)
{
	struct ibv_qp *qp[2];

	connect_two(qp);
	MUST(post(qp[0], IBV_WR_SEND, IBV_SEND_INLINE, 2048, 0, 0));
	end_two(qp);
}

static void no_ah(void)
{
	struct ibv_qp *qp = make(IBV_QPT_UD, NULL);

	to_init(qp);
	to_rts(qp, 0);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;

	MUST(ibv_post_send(qp, &wr, &bad) == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void wrong_timeout(void)
{
	struct ibv_qp *qp[2];
	struct ibv_qp_attr attr = {.min_rnr_timer = 99};

	connect_two(qp);
	MUST(ibv_modify_qp(qp[0], &attr, IBV_QP_MIN_RNR_TIMER) == EINVAL);
	end_two(qp);
}

static void failure(enum ibv_wr_opcode opcode, uint32_t received, uint32_t lkey, uint32_t rkey,
		    enum ibv_wc_status status)
{
	struct ibv_qp *qp[2];

	connect_two(qp);
	if (received)
		MUST(!receive(qp[1], received, mr->lkey, 1));
	MUST(!receive(qp[0], 64, mr->lkey, 1)); /* is flushed, which isn't said */
	MUST(!post(qp[0], opcode, 0, 64, lkey, rkey));
	await(status);
	end_two(qp);
}

static void wrong_lkey(void)
{
	failure(IBV_WR_SEND, 64, mr->lkey ^ 0x5500, 0, IBV_WC_LOC_PROT_ERR);
}

static void read_into_constant(void)
{
	failure(IBV_WR_RDMA_READ, 0, read_only->lkey, mr->rkey, IBV_WC_LOC_PROT_ERR);
}

static void no_receive(void)
{
	failure(IBV_WR_SEND, 0, mr->lkey, 0, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void no_peer(void)
{
	struct ibv_qp *qp[2];

	connect_two(qp);
	MUST(!ibv_destroy_qp(qp[1]));
	MUST(!post(qp[0], IBV_WR_SEND, 0, 64, mr->lkey, 0));
	await(IBV_WC_RETRY_EXC_ERR);
	MUST(!ibv_destroy_qp(qp[0]));
}

/* ------------------------------------------------------------------ other objects */

static void wq_refused(struct ibv_wq_init_attr attr, int err)
{
	errno = 0;
	MUST(!ibv_create_wq(context, &attr) && errno == err);
}

static void wq_without_cq(void)
{
	wq_refused((struct ibv_wq_init_attr){.wq_type = IBV_WQT_RQ, .pd = pd}, EINVAL);
}

static void wq_flags(void)
{
	wq_refused((struct ibv_wq_init_attr){.wq_type = IBV_WQT_RQ,
					     .pd = pd,
					     .cq = cq,
					     .comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
					     .create_flags = IBV_WQ_FLAGS_SCATTER_FCS},
		   EOPNOTSUPP);
}

static void large_table(void)
{
	struct ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = 20};

	errno = 0;
	MUST(!ibv_create_rwq_ind_table(context, &attr) && errno == EINVAL);
}

static void moderation(void)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = 0};

	MUST(ibv_modify_cq(cq, &attr) == EINVAL);
}

static struct ibv_xrcd *xrcd_opened(int fd, int oflags)
{
	struct ibv_xrcd_init_attr attr = {.comp_mask =
						  IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = fd,
					  .oflags = oflags};

	errno = 0;
	return ibv_open_xrcd(context, &attr);
}

static void xrcd_flags(void)
{
	MUST(!xrcd_opened(-1, O_TRUNC) && errno == EINVAL);
}

static void xrcd_descriptor(void)
{
	MUST(!xrcd_opened(1 << 20, O_CREAT) && errno == EBADF);
}

static void xrcd_missing(void)
{
	MUST(!xrcd_opened(errors, 0) && errno == EAGAIN);
}

static void xrcd_twice(void)
{
	struct ibv_xrcd *xrcd = xrcd_opened(errors, O_CREAT);

	MUST(xrcd && !xrcd_opened(errors, O_CREAT | O_EXCL) && errno == EINVAL);
	MUST(!ibv_close_xrcd(xrcd));
}

static void target_refused(int mask)
{
	struct ibv_xrcd *xrcd = xrcd_opened(-1, O_CREAT);
	struct ibv_qp_open_attr attr = {.comp_mask = (uint32_t)mask,
					.qp_num = 0xfffff0,
					.xrcd = xrcd,
					.qp_type = IBV_QPT_XRC_RECV};

	MUST(xrcd && !ibv_open_qp(context, &attr));
	MUST(!ibv_close_xrcd(xrcd));
}

static void target_mask(void)
{
	target_refused(IBV_QP_OPEN_ATTR_XRCD);
}

static void target_missing(void)
{
	target_refused(IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE);
}

/* ------------------------------------------------------------------ of the connection manager */

static struct rdma_cm_id *id_make(void)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	return id;
}

static void taken_port(void)
{
	struct rdma_cm_id *one = id_make(), *two = id_make();
	struct sockaddr_in again = address;

	MUST(!rdma_bind_addr(one, (struct sockaddr *)&address));
	again.sin_port = rdma_get_src_port(one);
	MUST(rdma_bind_addr(two, (struct sockaddr *)&again) == -1 && errno == EADDRINUSE);
	MUST(!rdma_destroy_id(one) && !rdma_destroy_id(two));
}

static void connect_wrongly(const struct rdma_conn_param *wrong)
{
	struct rdma_conn_param param = *wrong;
	struct sockaddr_in to = address;
	struct rdma_cm_id *id = id_make();

	to.sin_port = htons(9);
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000));
	MUST(!rdma_resolve_route(id, 5000));
	MUST(rdma_connect(id, &param) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void long_data(void)
{
	connect_wrongly(&(struct rdma_conn_param){.private_data = memory, .private_data_len = 57});
}

static void many_resources(void)
{
	connect_wrongly(&(struct rdma_conn_param){.responder_resources = 200});
}

static void many_initiated(void)
{
	connect_wrongly(&(struct rdma_conn_param){.initiator_depth = 200});
}

static void early_connect(void)
{
	struct rdma_cm_id *id = id_make();

	MUST(rdma_connect(id, NULL) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

/* ------------------------------------------------------------------ nothing to say */

/* A message arrives; then the queue pairs go to ERR, or simply end, with receives posted. */
static void ordinary(void)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
		struct ibv_qp *qp[2];

		connect_two(qp);
		MUST(!receive(qp[1], 64, mr->lkey, 1) && !receive(qp[1], 64, mr->lkey, 1));
		MUST(!post(qp[0], IBV_WR_SEND, 0, 64, mr->lkey, 0));
		await(IBV_WC_SUCCESS);
		for (int j = 0; i == 0 && j < 2; j++)
			MUST(!ibv_modify_qp(qp[j], &attr, IBV_QP_STATE));
		if (i == 0)
			await(IBV_WC_WR_FLUSH_ERR);
		end_two(qp);
	}
}

static const struct {
	const char *name;
	void (*make)(void);
	const char *line; /* NULL: none */
} mistakes[] = {
	{"an ordinary end", ordinary, NULL},
	{"a capability", capability, "cap.max_send_sge is 1000, and 32 at most"},
	{"no CQ", no_cq, "needs send_cq and recv_cq"},
	{"an SRQ without places", srq_without_places, "max_wr is 0, which must be 1 to"},
	{"a limit beyond an SRQ", high_limit, "srq_limit is 1048576, and the SRQ has"},
	{"a send in RESET", send_in_reset, "is in RESET; it takes requests from INIT on"},
	{"a receive in RESET", receive_in_reset, "is in RESET; it takes receives from INIT on"},
	{"a receive beside an SRQ", receive_beside_srq, "has an SRQ, which takes its receives"},
	{"a receive's segments", too_many_segments, "it was made with max_recv_sge"},
	{"inline data", long_inline, "2048 bytes of inline data; it was made with max_inline_data"},
	{"no address handle", no_ah, "a datagram needs an address handle"},
	{"an attribute's value", wrong_timeout, "min_rnr_timer is 99, which must be 0 to 31"},
	{"a wrong lkey", wrong_lkey,
	 "wr_id 77, status 4 (local protection error): a segment isn't"},
	{"a READ into constants", read_into_constant, "IBV_ACCESS_LOCAL_WRITE"},
	{"no receive", no_receive, "the peer has posted no receive for it"},
	{"no peer", no_peer, "the peer doesn't answer"},
	{"a work queue's CQ", wq_without_cq, "a work queue has the type IBV_WQT_RQ"},
	{"a work queue's flags", wq_flags, "only IBV_WQ_FLAGS_CVLAN_STRIPPING is supported"},
	{"a large table", large_table, "log_ind_tbl_size is 20, and 11 at most"},
	{"CQ moderation", moderation, "attr_mask is 0x0, and must be IBV_CQ_ATTR_MODERATE"},
	{"an XRC domain's flags", xrcd_flags, "may have O_CREAT and O_EXCL only"},
	{"an XRC domain's file", xrcd_descriptor, "the file of descriptor 1048576 can't be used"},
	{"no XRC domain", xrcd_missing, "oflags has no O_CREAT, which would make one"},
	{"a second XRC domain", xrcd_twice, "a domain of this file exists, and oflags has O_EXCL"},
	{"an XRC target's mask", target_mask, "ibv_open_qp: comp_mask is 0x2, and needs 0x"},
	{"no XRC target", target_missing, "XRC target 0xfffff0 can't be opened in this domain"},
	{"a port that is taken", taken_port, "another identifier has this address and port"},
	{"private data", long_data, "rdma_connect: 57 bytes of private data; 56 at most"},
	{"responder_resources", many_resources, "responder_resources of struct rdma_conn_param is"},
	{"initiator_depth", many_initiated, "initiator_depth of struct rdma_conn_param is"},
	{"an early connect", early_connect, "has no device before an address is resolved"},
};

/* The same mistake again and again fills no log. */
static void bound(void)
{
	unsigned int lines;

	for (int i = 0; i < 100; i++)
		send_in_reset();
	const char *text = said(&lines);

	if (lines > 8 || !strstr(text, "further lines like this are left out"))
		complain("100 queue pairs", "8 lines at most, the last of which says so", text);
}

static void set_up(const char *own)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	MUST(list && count && (context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	MUST((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 256, NULL, NULL, 0)));
	MUST((mr = ibv_reg_mr(pd, memory, sizeof(memory),
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_WRITE)));
	MUST((read_only = ibv_reg_mr(pd, memory, sizeof(memory), 0)));
	address.sin_family = AF_INET;
	MUST(inet_pton(AF_INET, own, &address.sin_addr) == 1);
}

int main(int argc, char **argv)
{
	unsigned int lines;

	setenv("VERBENA_LOG", "warn", 1);
	MUST(argc == 2);
	set_up(argv[1]);
	MUST((errors = memfd_create("errors", MFD_CLOEXEC)) >= 0);
	MUST((real_stderr = dup(2)) >= 0 && dup2(errors, 2) == 2);
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		mistakes[i].make();
		const char *text = said(&lines), *line = mistakes[i].line;

		if (lines != !!line || (line && !strstr(text, line)))
			complain(mistakes[i].name, line ? line : "nothing", text);
	}
	bound();
	return 0;
}
