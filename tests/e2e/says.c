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
#include <infiniband/later.h>
#include <infiniband/verbs.h>
#include <infiniband/xrc.h>
#include <netdb.h>
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

/* ------------------------------------------------------------------ domains, queries */

static void parent_bits(void)
{
	struct ibv_parent_domain_init_attr attr = {.pd = pd, .comp_mask = 1 << 10};

	MUST(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
}

static void parent_allocator(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS};

	MUST(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
}

static void parent_of_parent(void)
{
	struct ibv_parent_domain_init_attr attr = {.pd = pd};

	MUST((attr.pd = ibv_alloc_parent_domain(context, &attr)));
	MUST(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
	MUST(!ibv_dealloc_pd(attr.pd));
}

static void thread_domain(void)
{
	struct ibv_td_init_attr attr = {.comp_mask = 1};

	MUST(!ibv_alloc_td(context, &attr) && errno == EINVAL);
}

static void used_thread_domain(void)
{
	struct ibv_td_init_attr none = {.comp_mask = 0};
	struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = ibv_alloc_td(context, &none)};
	struct ibv_pd *parent;

	MUST(attr.td && (parent = ibv_alloc_parent_domain(context, &attr)));
	MUST(ibv_dealloc_td(attr.td) == EBUSY);
	MUST(!ibv_dealloc_pd(parent) && !ibv_dealloc_td(attr.td));
}

static void used_parent(void)
{
	struct ibv_parent_domain_init_attr attr = {.pd = ibv_alloc_pd(context)};
	struct ibv_pd *parent;

	MUST(attr.pd && (parent = ibv_alloc_parent_domain(context, &attr)));
	MUST(ibv_dealloc_pd(attr.pd) == EBUSY);
	MUST(!ibv_dealloc_pd(parent) && !ibv_dealloc_pd(attr.pd));
}

static void used_domain(void)
{
	MUST(ibv_dealloc_pd(pd) == EBUSY);
}

static void gid_beyond(void)
{
	union ibv_gid gid;

	MUST(ibv_query_gid(context, 1, 1 << 20, &gid) == -1 && errno == EINVAL);
}

static void gid_flags(void)
{
	struct ibv_gid_entry entry;

	MUST(ibv_query_gid_ex(context, 1, 0, &entry, 4) == EOPNOTSUPP);
}

static void gid_room(void)
{
	struct ibv_gid_entry entry;

	MUST(ibv_query_gid_table(context, &entry, 0, 0) == -EINVAL);
}

static void pkey_beyond(void)
{
	__be16 pkey;

	MUST(ibv_query_pkey(context, 1, 1 << 20, &pkey) == -1 && errno == EINVAL);
}

static void pkey_missing(void)
{
	MUST(ibv_get_pkey_index(context, 1, htons(0x1234)) == -1 && errno == EINVAL);
}

/* ------------------------------------------------------------------ completion queues */

static void cq_entries(void)
{
	MUST(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL);
}

static void cq_bits(struct ibv_cq_init_attr_ex attr, int err)
{
	attr.cqe = 16;
	errno = 0;
	MUST(!ibv_create_cq_ex(context, &attr) && errno == err);
}

static void cq_fields(void)
{
	cq_bits((struct ibv_cq_init_attr_ex){.wc_flags = 1ull << 40}, EOPNOTSUPP);
}

static void cq_mask(void)
{
	cq_bits((struct ibv_cq_init_attr_ex){.comp_mask = 1 << 20}, EINVAL);
}

static void cq_flags(void)
{
	cq_bits((struct ibv_cq_init_attr_ex){.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					     .flags = 1 << 20},
		EOPNOTSUPP);
}

static void cq_size(void)
{
	MUST(ibv_resize_cq(cq, 0) == EINVAL);
}

static void used_cq(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);

	MUST(ibv_destroy_cq(cq) == EBUSY);
	MUST(!ibv_destroy_qp(qp));
}

static void used_channel(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *its;

	MUST(channel && (its = ibv_create_cq(context, 4, NULL, channel, 0)));
	MUST(ibv_destroy_comp_channel(channel) == EBUSY);
	MUST(!ibv_destroy_cq(its) && !ibv_destroy_comp_channel(channel));
}

static void poll_mask(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 4};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &attr);
	struct ibv_poll_cq_attr wrong = {.comp_mask = 1};

	MUST(ex && ibv_start_poll(ex, &wrong) == EINVAL);
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
}

/* ------------------------------------------------------------------ memory */

static void advice(void)
{
	struct ibv_sge list = {(uintptr_t)memory, 8, mr->lkey};

	MUST(ibv_advise_mr(pd, (enum ibv_advise_mr_advice)77, 0, &list, 1) == ENOTSUP);
}

static void advice_flags(void)
{
	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0) == EINVAL);
}

static void advice_key(void)
{
	struct ibv_sge list = {(uintptr_t)memory, 8, 0x12345678};

	MUST(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &list, 1));
}

static void no_memory_file(void)
{
	MUST(!ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 1 << 20, 0) && errno == EBADF);
}

static void rereg_flags(void)
{
	MUST(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
}

static void rereg_nothing(void)
{
	MUST(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_CMD && errno == EINVAL);
}

static struct ibv_dm *dm_made(void)
{
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_dm *dm = ibv_alloc_dm(context, &attr);

	MUST(dm);
	return dm;
}

static void dm_beyond(void)
{
	struct ibv_dm *dm = dm_made();

	MUST(ibv_memcpy_to_dm(dm, 64, memory, 8) == EFAULT);
	MUST(!ibv_free_dm(dm));
}

static void dm_alignment(void)
{
	struct ibv_dm *dm = dm_made();

	MUST(ibv_memcpy_from_dm(memory, dm, 1, 4) == EINVAL);
	MUST(!ibv_free_dm(dm));
}

static void dm_region(void)
{
	struct ibv_dm *dm = dm_made();

	MUST(!ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
	MUST(!ibv_free_dm(dm));
}

static void dmah_mask(void)
{
	struct ibv_dmah_init_attr attr = {.comp_mask = 0};

	MUST(!ibv_alloc_dmah(context, &attr) && errno == EINVAL);
}

static void counter(void)
{
	struct ibv_comp_cntr_init_attr attr = {.comp_mask = 0};

	MUST(!ibv_create_comp_cntr(context, &attr) && errno == EOPNOTSUPP);
}

static void region_fields(void)
{
	struct ibv_mr_init_attr attr = {.length = 8};

	MUST(!ibv_reg_mr_ex(pd, &attr) && errno == EINVAL);
}

static void foreign_domain(void)
{
	MUST(!ibv_import_pd(context, 0xfffff));
}

static void foreign_region(void)
{
	MUST(!ibv_import_mr(pd, 0xfffff));
}

static void foreign_buffer(void)
{
	MUST(!ibv_import_dm(context, 0xfffff));
}

/* ------------------------------------------------------------------ addresses, flow rules */

static void no_own_gid(void)
{
	struct ibv_grh grh = {.version_tclass_flow = htonl(6u << 28), .dgid = {.raw = {0x20, 1}}};
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH};
	struct ibv_ah_attr attr;

	MUST(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == -1);
}

static void no_interface(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .grh.dgid.raw = {0x20, 1}};
	uint8_t mac[6];
	uint16_t vid;

	MUST(ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vid) == EHOSTUNREACH);
}

static void rule_mask(void)
{
	struct ibv_qp *qp = make(IBV_QPT_UD, NULL);
	struct ibv_flow_attr attr = {.comp_mask = 1};

	MUST(!ibv_create_flow(qp, &attr) && errno == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void counters_mask(void)
{
	struct ibv_counters_init_attr attr = {.comp_mask = 1};

	MUST(!ibv_create_counters(context, &attr) && errno == EINVAL);
}

static struct ibv_counters *counters_made(void)
{
	struct ibv_counters_init_attr attr = {.comp_mask = 0};
	struct ibv_counters *counters = ibv_create_counters(context, &attr);

	MUST(counters);
	return counters;
}

static void counters_kind(void)
{
	struct ibv_counters *counters = counters_made();
	struct ibv_counter_attach_attr attr = {.counter_desc = 77};

	MUST(ibv_attach_counters_point_flow(counters, &attr, NULL) == EOPNOTSUPP);
	MUST(!ibv_destroy_counters(counters));
}

static void counters_flags(void)
{
	struct ibv_counters *counters = counters_made();
	uint64_t value;

	MUST(ibv_read_counters(counters, &value, 1, 1 << 10) == EINVAL);
	MUST(!ibv_destroy_counters(counters));
}

/* ------------------------------------------------------------------ queue pairs, SRQs, windows */

static void ece_vendor(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);
	struct ibv_ece ece = {.vendor_id = 0x77};

	MUST(ibv_set_ece(qp, &ece) == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void qp_mask(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};

	MUST(ibv_modify_qp(qp, &attr, 1 << 30) == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void rate_in_reset(void)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, NULL);
	struct ibv_qp_rate_limit_attr attr = {.rate_limit = 1000};

	MUST(ibv_modify_qp_rate_limit(qp, &attr) == EINVAL);
	MUST(!ibv_destroy_qp(qp));
}

static void in_a_group(void)
{
	struct ibv_qp *qp = make(IBV_QPT_UD, NULL);
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};

	to_init(qp);
	MUST(!ibv_attach_mcast(qp, &group, 0));
	MUST(ibv_destroy_qp(qp) == EBUSY);
	MUST(!ibv_detach_mcast(qp, &group, 0) && !ibv_destroy_qp(qp));
}

static void srq_type(void)
{
	struct ibv_srq_init_attr_ex attr = {.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
					    .srq_type = (enum ibv_srq_type)77};

	MUST(!ibv_create_srq_ex(context, &attr) && errno == EOPNOTSUPP);
}

static void srq_domain(void)
{
	struct ibv_srq_init_attr_ex attr = {.comp_mask = 0};

	MUST(!ibv_create_srq_ex(context, &attr) && errno == EINVAL);
}

static void srq_of_no_xrcd(void)
{
	struct ibv_srq_init_attr_ex attr = {.comp_mask =
						    IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
					    .srq_type = IBV_SRQT_XRC,
					    .pd = pd};

	MUST(!ibv_create_srq_ex(context, &attr) && errno == EINVAL);
}

static void plain_srq(int (*wrong)(struct ibv_srq *), int err)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);

	MUST(srq && wrong(srq) == err && !ibv_destroy_srq(srq));
}

static int number_of(struct ibv_srq *srq)
{
	uint32_t number;

	return ibv_get_srq_num(srq, &number);
}

static void srq_number(void)
{
	plain_srq(number_of, EOPNOTSUPP);
}

static int operate(struct ibv_srq *srq)
{
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_SYNC}, *bad;

	return ibv_post_srq_ops(srq, &wr, &bad);
}

static void srq_operation(void)
{
	plain_srq(operate, EINVAL);
}

static int enlarge(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr = {.max_wr = 0};

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static void srq_size(void)
{
	plain_srq(enlarge, EINVAL);
}

static int used(struct ibv_srq *srq)
{
	struct ibv_qp *qp = make(IBV_QPT_RC, srq);
	int err = ibv_destroy_srq(srq);

	MUST(!ibv_destroy_qp(qp));
	return err;
}

static void used_srq(void)
{
	plain_srq(used, EBUSY);
}

static void bind_rights(void)
{
	struct ibv_qp *qp[2];
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.bind_info = {.mr = mr,
						 .addr = (uintptr_t)memory,
						 .length = 8,
						 .mw_access_flags = 1 << 20}};

	MUST(mw);
	connect_two(qp);
	MUST(ibv_bind_mw(qp[0], mw, &bind) == EINVAL);
	end_two(qp);
	MUST(!ibv_dealloc_mw(mw));
}

static void unregistered_target(void)
{
	struct ibv_xrc_domain *domain = ibv_open_xrc_domain(context, -1, O_CREAT);

	MUST(domain && ibv_unreg_xrc_rcv_qp(domain, 0x77) == EINVAL);
	MUST(!ibv_close_xrc_domain(domain));
}

static void no_xrc_domain(void)
{
	uint32_t number;

	MUST(ibv_create_xrc_rcv_qp(NULL, &number) == EINVAL);
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

static void no_address(void)
{
	struct rdma_cm_id *id = id_make();

	MUST(rdma_bind_addr(id, NULL) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void no_destination(void)
{
	struct rdma_cm_id *id = id_make();

	MUST(rdma_resolve_addr(id, NULL, NULL, 1000) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void early_route(void)
{
	struct rdma_cm_id *id = id_make();

	MUST(rdma_resolve_route(id, 1000) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void unknown_option(void)
{
	struct rdma_cm_id *id = id_make();
	int value = 1;

	MUST(rdma_set_option(id, RDMA_OPTION_ID, 77, &value, sizeof(value)) == -1);
	MUST(!rdma_destroy_id(id));
}

static void early_qp(void)
{
	struct rdma_cm_id *id = id_make();
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC};

	MUST(rdma_create_qp(id, NULL, &attr) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void qp_of_another_type(void)
{
	struct rdma_cm_id *id = id_make();
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_UD};
	struct sockaddr_in to = address;

	to.sin_port = htons(9);
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000));
	MUST(rdma_create_qp(id, NULL, &attr) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void channel_to_leave(void)
{
	struct rdma_cm_id *id = id_make();

	MUST(rdma_migrate_id(id, NULL) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void no_group(void)
{
	struct rdma_cm_id *id = id_make();

	MUST(rdma_join_multicast(id, NULL, NULL) == -1 && errno == EINVAL);
	MUST(!rdma_destroy_id(id));
}

static void looked_up(struct rdma_addrinfo hints, int err)
{
	struct rdma_addrinfo *found;

	MUST(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &found) == err);
}

static void lookup_flags(void)
{
	looked_up((struct rdma_addrinfo){.ai_flags = 1 << 20}, EAI_BADFLAGS);
}

static void lookup_family(void)
{
	looked_up((struct rdma_addrinfo){.ai_family = AF_UNIX}, EAI_FAMILY);
}

static void lookup_service(void)
{
	looked_up((struct rdma_addrinfo){.ai_port_space = RDMA_PS_UDP, .ai_qp_type = IBV_QPT_RC},
		  EAI_SOCKTYPE);
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
	{"a parent domain's bits", parent_bits, "ibv_alloc_parent_domain: comp_mask is 0x400"},
	{"one allocator", parent_allocator, "alloc and free must be given both"},
	{"a parent's parent", parent_of_parent, "pd is a parent domain, which none extends"},
	{"a thread domain's bits", thread_domain, "ibv_alloc_td: comp_mask is 0x1"},
	{"a thread domain in use", used_thread_domain, "1 parent domains use the thread domain"},
	{"a parent in use", used_parent, "ibv_dealloc_pd: parent domains, or"},
	{"a domain in use", used_domain, "ibv_dealloc_pd: objects (regions"},
	{"a GID beyond the table", gid_beyond, "ibv_query_gid: port 1 has no GID of index 1048576"},
	{"a GID's flags", gid_flags, "ibv_query_gid_ex: flags is 0x4"},
	{"no room for GIDs", gid_room, "ibv_query_gid_table: max_entries is 0"},
	{"a P_Key beyond the table", pkey_beyond, "port 1 has no P_Key of index 1048576"},
	{"a P_Key", pkey_missing, "ibv_get_pkey_index: port 1 has no P_Key 0x1234"},
	{"a CQ's entries", cq_entries, "ibv_create_cq: cqe is 0"},
	{"a CQ's fields", cq_fields, "ibv_create_cq_ex: wc_flags is 0x10000000000"},
	{"a CQ's bits", cq_mask, "ibv_create_cq_ex: comp_mask 0x100000 has unknown bits"},
	{"a CQ's flags", cq_flags, "ibv_create_cq_ex: flags is 0x100000"},
	{"a CQ's new size", cq_size, "ibv_resize_cq: cqe is 0, which must be 1 to"},
	{"a CQ in use", used_cq, "ibv_destroy_cq: queue pairs, work queues or SRQs"},
	{"a channel in use", used_channel, "ibv_destroy_comp_channel: CQs use the channel"},
	{"a poll's bits", poll_mask, "ibv_start_poll: comp_mask is 0x1"},
	{"an advice", advice, "ibv_advise_mr: there is no advice 77"},
	{"an advice's segments", advice_flags, "num_sge is 0, and must be 1 at least"},
	{"an advice's key", advice_key, "each segment must be within a region"},
	{"no memory file", no_memory_file, "descriptor 1048576 is no memory file"},
	{"a region's change", rereg_flags, "ibv_rereg_mr: flags is 0x400"},
	{"no change of a region", rereg_nothing, "ibv_rereg_mr: flags must have a bit"},
	{"beyond device memory", dm_beyond, "device memory of 64 bytes has no 8 bytes at 64"},
	{"a copy's alignment", dm_alignment, "an offset and a length that are multiples"},
	{"a region of device memory", dm_region, "ibv_reg_dm_mr: 64 bytes at 0 with access 0x1"},
	{"a DMA handle's bits", dmah_mask, "ibv_alloc_dmah: comp_mask is 0x0, and needs"},
	{"a completion counter", counter, "this device has no completion counters"},
	{"a region's fields", region_fields, "comp_mask needs IBV_REG_MR_MASK_ADDR"},
	{"an imported domain", foreign_domain, "no protection domain with the handle 1048575"},
	{"an imported region", foreign_region, "ibv_import_mr: "},
	{"an imported buffer", foreign_buffer, "no device memory with the handle 1048575"},
	{"a message for another", no_own_gid, "ibv_init_ah_from_wc: port 1 has no GID that is"},
	{"another host's address", no_interface, "ibv_resolve_eth_l2_from_gid: no interface"},
	{"a flow rule's bits", rule_mask, "ibv_create_flow: comp_mask is 0x1"},
	{"counters' bits", counters_mask, "ibv_create_counters: comp_mask is 0x1"},
	{"a kind of counter", counters_kind, "there is no counter 77"},
	{"counters' flags", counters_flags, "ibv_read_counters: flags is 0x400"},
	{"another vendor's options", ece_vendor,
	 "ibv_set_ece: comp_mask is 0x0, and must be 0; vend"},
	{"a queue pair's bits", qp_mask, "ibv_modify_qp: attr_mask 0x40000000 has unknown bits"},
	{"a rate in RESET", rate_in_reset, "the QP is in RESET; a rate is for RTR, RTS and SQD"},
	{"a queue pair in a group", in_a_group, "is in multicast groups (leave them by"},
	{"an SRQ's type", srq_type, "ibv_create_srq_ex: srq_type 77 isn't supported"},
	{"an SRQ's domain", srq_domain, "an SRQ needs a protection domain of this context"},
	{"an XRC SRQ's domain", srq_of_no_xrcd, "an XRC SRQ needs xrcd and cq, of this context"},
	{"an SRQ's number", srq_number, "only an XRC domain's SRQ has a number"},
	{"an operation on tags", srq_operation, "only a tag-matching SRQ (IBV_SRQT_TM)"},
	{"an SRQ's new size", srq_size, "ibv_modify_srq: srq_attr_mask is 0x1"},
	{"an SRQ in use", used_srq, "ibv_destroy_srq: queue pairs use the SRQ"},
	{"a window's rights", bind_rights, "a bind request needs a window of type 1"},
	{"an XRC target's registration", unregistered_target,
	 "isn't registered with receive queue"},
	{"no domain for a target", no_xrc_domain, "ibv_create_xrc_rcv_qp: an XRC domain"},
	{"no address", no_address, "rdma_bind_addr: the address is NULL"},
	{"no destination", no_destination, "rdma_resolve_addr: the address is NULL"},
	{"an early route", early_route, "rdma_resolve_route: an address must be resolved first"},
	{"an option", unknown_option, "rdma_set_option: option 77 of level 0 can't be set"},
	{"an early queue pair", early_qp, "has no device before an address is resolved or bound"},
	{"another type", qp_of_another_type,
	 "rdma_create_qp: qp_type is 4, and the identifier's 2"},
	{"no channel to leave", channel_to_leave, "rdma_migrate_id: the identifier has no channel"},
	{"no group", no_group, "rdma_join_multicast: the address is NULL"},
	{"a lookup's flags", lookup_flags, "rdma_getaddrinfo: ai_flags 0x100000 has unknown bits"},
	{"a lookup's family", lookup_family, "rdma_getaddrinfo: ai_family 1 is none of"},
	{"a lookup's service", lookup_service, "is for IBV_QPT_UD only, and ai_qp_type is 2"},
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
