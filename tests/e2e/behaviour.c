/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decisions on behaviour: cases in which the specification leaves a choice, or in which adapters
 * and kernel Soft-RoCE differ. docs/behaviour.md lists the decisions with their reasons and the
 * test of each. End A is the requester, end B the responder. See rig.h.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "faults.h"

enum { GRH = 40, RECEIVE = 100, BAD_KEY = 0x40, SEED = 5 };

static const struct end_options ud = {.type = IBV_QPT_UD};
static const struct end_options uc = {.type = IBV_QPT_UC};

/* A sends a message, which completes with success. */
static void send_well(struct end *end, uint32_t length)
{
	OK(end->rig, end_send(end, IBV_WR_SEND, 1, 0, length, 0));
	wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
}

/* Receives that are too short --------------------------------------------------------------- */

/* An unreliable message that is longer than the next receive is lost; the receive and the QP stay,
 * because anyone who knows the QPN could send such a message. */
static void dropped_if_too_long(struct rig *rig, const struct end_options *base, unsigned int srq,
				uint32_t room)
{
	struct end_options opt = *base;
	uint32_t header = opt.type == IBV_QPT_UD ? GRH : 0;
	struct end end;

	opt.srq_depth = srq;
	end_pair(&end, rig, &opt);
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, RECEIVE, 0, header + room));
	else
		pattern_fill(end.buf, room + 1, SEED);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		send_well(&end, room + 1);
		send_well(&end, room);
	} else {
		CHECK_EQ(rig, wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS).byte_len,
			 header + room);
		CHECK(rig, pattern_holds(end.buf + header, room, SEED));
		wc_none(&end, end.rcq);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_RTS);
	}
	rig_sync(rig);
	end_close(&end);
}

static void ud_receive_short(struct rig *rig)
{
	for (unsigned int srq = 0; srq <= 16; srq += 16) {
		dropped_if_too_long(rig, &ud, srq, 0);
		dropped_if_too_long(rig, &ud, srq, 7);
		dropped_if_too_long(rig, &ud, srq, rig_datagram(rig) - 96);
	}
}

static void uc_receive_short(struct rig *rig)
{
	for (unsigned int srq = 0; srq <= 16; srq += 16) {
		dropped_if_too_long(rig, &uc, srq, 8);
		dropped_if_too_long(rig, &uc, srq, 49999);
	}
}

/* A datagram's packet type ------------------------------------------------------------------- */

enum { ROCE_V2_IPV6 = 9, ROCE_V2_IPV4 = 10, CLASS = 0x48 };

/* The traffic class in a GRH, in whose second half an IPv4 header is. */
static uint8_t class_of(const uint8_t *grh, uint8_t type)
{
	return type == ROCE_V2_IPV4 ? grh[21] : (uint8_t)(grh[0] << 4 | grh[1] >> 4);
}

/* A sends one datagram through a GID of the table, B checks its completion and its GRH. */
static void packet_type_is(struct end *end, int index, uint8_t wanted)
{
	struct ibv_ah_attr to = {.is_global = 1,
				 .port_num = 1,
				 .grh = {.sgid_index = index, .traffic_class = CLASS}};
	struct ibv_ah *usual = end->ah;

	if (end->rig->role == RIG_B)
		OK(end->rig, end_recv(end, RECEIVE, 0, GRH + 8));
	rig_sync(end->rig);
	if (end->rig->role == RIG_B) {
		CHECK_EQ(end->rig, wc_expect(end, end->rcq, RECEIVE, IBV_WC_SUCCESS).sl, wanted);
		CHECK_EQ(end->rig, class_of(end->buf, wanted), CLASS);
		return;
	}
	OK(end->rig, ibv_query_gid(end->rig->ctx, 1, index, &to.grh.dgid));
	CHECK(end->rig, (end->ah = ibv_create_ah(end->pd, &to)));
	send_well(end, 8);
	OK(end->rig, ibv_destroy_ah(end->ah));
	end->ah = usual;
}

static void ud_packet_type(struct rig *rig)
{
	static const uint8_t mapped[12] = {[10] = 0xff, 0xff}, none[16];
	unsigned int of_ipv4 = 0, of_ipv6 = 0;
	union ibv_gid gid;
	struct end end;

	end_pair(&end, rig, &ud);
	for (int i = 0; i < 16; i++) {
		if (ibv_query_gid(rig->ctx, 1, i, &gid) || !memcmp(gid.raw, none, sizeof(none)))
			continue;
		bool ipv4 = !memcmp(gid.raw, mapped, sizeof(mapped));

		packet_type_is(&end, i, ipv4 ? ROCE_V2_IPV4 : ROCE_V2_IPV6);
		of_ipv4 += ipv4;
		of_ipv6 += !ipv4;
	}
	CHECK(rig, of_ipv4 && of_ipv6);
	rig_sync(rig);
	end_close(&end);
}

/* Completions other than datagrams' have no service level on RoCE. */
static void rc_no_packet_type(struct rig *rig)
{
	struct end end;

	end_pair(&end, rig, NULL);
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, RECEIVE, 0, 8));
	rig_sync(rig);
	if (rig->role == RIG_A)
		send_well(&end, 8);
	else
		CHECK_EQ(rig, wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS).sl, 0);
	rig_sync(rig);
	end_close(&end);
}

/* An SRQ's protection domain ---------------------------------------------------------------- */

/* B's SRQ stays in its region's domain; the QP is recreated in another one. */
static struct ibv_pd *move_qp_to_other_domain(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.srq = end->srq,
		.qp_type = end->opt.type,
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
	};
	struct ibv_pd *pd = ibv_alloc_pd(end->rig->ctx);

	OK(end->rig, ibv_destroy_qp(end->qp));
	CHECK(end->rig, pd && (end->qp = ibv_create_qp(pd, &attr)));
	return pd;
}

/* B's receive names a region of the SRQ's domain (which must work), or of the QP's (which must
 * fail). */
static void receive_by_srq(struct rig *rig, enum ibv_qp_type type, uint32_t length, bool right)
{
	struct end_options opt = {.type = type, .srq_depth = rig->role == RIG_B ? 4 : 0};
	struct ibv_recv_wr wr = {.wr_id = RECEIVE, .num_sge = 1}, *bad;
	struct ibv_pd *pd = NULL;
	struct ibv_mr *other = NULL;
	struct ibv_sge sge;
	struct end end;

	end_open(&end, rig, &opt);
	if (rig->role == RIG_B) {
		pd = move_qp_to_other_domain(&end);
		other = ibv_reg_mr(pd, end.buf, end.opt.bytes, IBV_ACCESS_LOCAL_WRITE);
		CHECK(rig, other);
		sge = end_sge(&end, 0, length + GRH);
		sge.lkey = right ? end.mr->lkey : other->lkey;
		wr.sg_list = &sge;
		OK(rig, ibv_post_srq_recv(end.srq, &wr, &bad));
	}
	end_connect(&end);
	if (rig->role == RIG_A) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, length, 0));
		wc_expect(&end, end.scq, 1,
			  right || type != IBV_QPT_RC ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
	} else {
		wc_expect(&end, end.rcq, RECEIVE, right ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(rig, end_state(&end), right ? IBV_QPS_RTS : IBV_QPS_ERR);
	}
	rig_sync(rig);
	if (pd) {
		OK(rig, ibv_dereg_mr(other));
		OK(rig, ibv_destroy_qp(end.qp));
		OK(rig, ibv_dealloc_pd(pd));
		end.qp = NULL;
	}
	end_close(&end);
}

static void srq_own_domain(struct rig *rig)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

	for (int i = 0; i < 3; i++) {
		for (int right = 1; right >= 0; right--) {
			receive_by_srq(rig, types[i], 64, right);
			if (types[i] != IBV_QPT_UD)
				receive_by_srq(rig, types[i], 50000, right);
		}
	}
}

/* RDMA WRITE with immediate data ------------------------------------------------------------ */

/* Refused because of its key: no receive is consumed; B's receives are flushed with its QP, an
 * SRQ's stay. The request doesn't wait for a receive, either. */
static void write_imm_refused(struct rig *rig, uint32_t length, unsigned int srq, bool receives)
{
	struct end_options opt = {.srq_depth = srq};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &opt);
	for (uint64_t id = 0; receives && id < 2; id++)
		OK(rig, end_recv(&end, RECEIVE + id, 0, 64));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		end_request(&end, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, length, 0, &wr, &sge);
		wr.wr.rdma.rkey ^= BAD_KEY;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		wc_expect(&end, end.scq, 1, IBV_WC_REM_ACCESS_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
		for (uint64_t id = 0; receives && !srq && id < 2; id++)
			wc_expect(&end, end.rcq, RECEIVE + id, IBV_WC_WR_FLUSH_ERR);
		wc_none(&end, end.rcq);
		CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

static void write_imm_bad_key(struct rig *rig)
{
	for (unsigned int srq = 0; srq <= 4; srq += 4) {
		write_imm_refused(rig, 8, srq, true);
		write_imm_refused(rig, 50000, srq, true);
		write_imm_refused(rig, 8, srq, false);
	}
}

/* Nothing ----------------------------------------------------------------------------------- */

/* A request of length 0 checks no key, neither the local nor the remote one. */
static void nothing_needs_no_key(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						     IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM};
	struct ibv_sge sge = {.addr = 8, .lkey = 1};
	struct ibv_recv_wr receive = {.wr_id = RECEIVE, .sg_list = &sge, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr wr, *bad;
	struct end end;

	end_pair(&end, rig, NULL);
	for (int i = 0; i < 2; i++)
		OK(rig, ibv_post_recv(end.qp, &receive, &bad_recv));
	rig_sync(rig);
	for (uint64_t i = 0; rig->role == RIG_A && i < 4; i++) {
		end_request(&end, opcodes[i], i, 0, 0, 0, &wr, &sge);
		sge = (struct ibv_sge){.addr = 8, .lkey = 1};
		wr.wr.rdma.remote_addr = 8;
		wr.wr.rdma.rkey = 1;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	for (int i = 0; rig->role == RIG_B && i < 2; i++)
		CHECK_EQ(rig, wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS).byte_len, 0);
	rig_sync(rig);
	end_close(&end);
}

/* But the QP must permit the operation. */
static void nothing_needs_the_right(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						     IBV_WR_RDMA_WRITE_WITH_IMM};
	struct end_options opt = {.qp_access = QP_NONE};
	struct end end;

	for (int i = 0; i < 3; i++) {
		end_pair(&end, rig, &opt);
		if (rig->role == RIG_A) {
			OK(rig, end_send(&end, opcodes[i], 1, 0, 0, 0));
			wc_expect(&end, end.scq, 1, IBV_WC_REM_INV_REQ_ERR);
		} else {
			event_expect(rig, IBV_EVENT_QP_REQ_ERR, end.qp);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* A region of length 0: the kernel accepts one where there is a page to pin. */
static void region_of_nothing(struct rig *rig)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_send_wr wr, *bad;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct end end;
	struct {
		uint64_t addr;
		uint32_t rkey;
	} mine, theirs;

	end_pair(&end, rig, NULL);
	CHECK(rig, !ibv_reg_mr(end.pd, end.buf, 0, access) && errno == EINVAL);
	CHECK(rig, !ibv_reg_mr(end.pd, (void *)8, 0, access) && errno == EFAULT);
	CHECK(rig, (mr = ibv_reg_mr(end.pd, end.buf + 16, 0, access)));
	CHECK_EQ(rig, mr->length, 0);
	mine.addr = (uintptr_t)mr->addr;
	mine.rkey = mr->rkey;
	rig_swap(rig, &mine, &theirs, sizeof(mine));
	if (rig->role == RIG_A) {
		for (uint32_t length = 0; length <= 1; length++) {
			end_request(&end, IBV_WR_RDMA_WRITE, length, 0, length, 0, &wr, &sge);
			wr.wr.rdma.remote_addr = theirs.addr;
			wr.wr.rdma.rkey = theirs.rkey;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, length,
				  length ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
		}
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
	}
	rig_sync(rig);
	CHECK_EQ(rig, end.buf[16], 0);
	OK(rig, ibv_dereg_mr(mr));
	end_close(&end);
}

/* Handles ----------------------------------------------------------------------------------- */

enum { GARBLED = 0x5eadbeef };

/* Calls fail with `wanted` while the object's handle is overwritten, and leave the object
 * unchanged. */
#define WHILE_GARBLED(rig, object, call, wanted) \
	do {                                     \
		(object)->handle ^= GARBLED;     \
		CHECK_EQ(rig, call, wanted);     \
		(object)->handle ^= GARBLED;     \
	} while (0)

static int made(const void *object)
{
	return object ? 0 : errno;
}

static void handles_of_queues(struct rig *rig, struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_srq_attr limit = {.srq_limit = 1};
	struct ibv_qp_init_attr init = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.srq = end->srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_send_sge = 1},
	};
	struct ibv_qp_init_attr got;

	WHILE_GARBLED(rig, end->qp, ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), ENOENT);
	WHILE_GARBLED(rig, end->qp, ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &got), ENOENT);
	WHILE_GARBLED(rig, end->qp, ibv_destroy_qp(end->qp), ENOENT);
	WHILE_GARBLED(rig, end->scq, ibv_resize_cq(end->scq, 300), ENOENT);
	WHILE_GARBLED(rig, end->scq, ibv_destroy_cq(end->scq), ENOENT);
	WHILE_GARBLED(rig, end->srq, ibv_modify_srq(end->srq, &limit, IBV_SRQ_LIMIT), ENOENT);
	WHILE_GARBLED(rig, end->srq, ibv_query_srq(end->srq, &limit), ENOENT);
	WHILE_GARBLED(rig, end->srq, ibv_destroy_srq(end->srq), ENOENT);
	WHILE_GARBLED(rig, end->scq, made(ibv_create_qp(end->pd, &init)), ENOENT);
	WHILE_GARBLED(rig, end->rcq, made(ibv_create_qp(end->pd, &init)), ENOENT);
	WHILE_GARBLED(rig, end->srq, made(ibv_create_qp(end->pd, &init)), ENOENT);
	WHILE_GARBLED(rig, end->pd, made(ibv_create_qp(end->pd, &init)), ENOENT);
}

static void handles_of_memory(struct rig *rig, struct end *end)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = end->gid}};
	struct ibv_pd *pd = ibv_alloc_pd(rig->ctx);
	struct ibv_mr *mr = ibv_reg_mr(end->pd, end->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_ah *ah = ibv_create_ah(end->pd, &to);

	CHECK(rig, pd && mr && ah);
	WHILE_GARBLED(rig, pd, made(ibv_reg_mr(pd, end->buf, 8, 0)), ENOENT);
	WHILE_GARBLED(rig, pd, made(ibv_create_srq(pd, &srq)), ENOENT);
	WHILE_GARBLED(rig, pd, made(ibv_create_ah(pd, &to)), ENOENT);
	WHILE_GARBLED(rig, pd, ibv_dealloc_pd(pd), ENOENT);
	WHILE_GARBLED(rig, ah, ibv_destroy_ah(ah), ENOENT);
	WHILE_GARBLED(rig, mr, ibv_dereg_mr(mr), ENOENT);
	WHILE_GARBLED(rig, mr,
		      (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), errno),
		      ENOENT);
	/* The program can overwrite the keys, too; the region's own keys still end. */
	mr->lkey = mr->rkey = UINT32_MAX;
	OK(rig, ibv_dereg_mr(mr));
	OK(rig, ibv_destroy_ah(ah));
	OK(rig, ibv_dealloc_pd(pd));
}

static void handles_garbled(struct rig *rig)
{
	struct end_options opt = {.srq_depth = 4};
	struct end end;

	end_pair(&end, rig, &opt);
	handles_of_queues(rig, &end);
	handles_of_memory(rig, &end);
	/* Nothing has changed. */
	OK(rig, end_recv(&end, RECEIVE, 0, 64));
	rig_sync(rig);
	send_well(&end, 8);
	wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
	rig_sync(rig);
	end_close(&end);
}

/* Opcodes ----------------------------------------------------------------------------------- */

/* A number that is no opcode is refused when it is posted; requests before it in the list are
 * executed, and the QP stays usable. */
static void refused_at_posting(struct end *end, unsigned int opcode)
{
	struct ibv_send_wr first, second, *bad = NULL;
	struct ibv_sge one, two;
	struct rig *rig = end->rig;

	end_request(end, IBV_WR_SEND, 1, 0, 8, 0, &first, &one);
	end_request(end, (enum ibv_wr_opcode)opcode, 2, 0, 8, 0, &second, &two);
	first.next = &second;
	CHECK_EQ(rig, ibv_post_send(end->qp, &first, &bad), EINVAL);
	CHECK(rig, bad == &second);
	wc_expect(end, end->scq, 1, IBV_WC_SUCCESS);
	wc_none(end, end->scq);
	CHECK_EQ(rig, end_state(end), IBV_QPS_RTS);
}

/* An opcode that the QP's type lacks fails in its turn: what was posted before it is executed, what
 * comes after it is flushed. */
static void fails_in_turn(struct end *end, unsigned int opcode)
{
	struct ibv_send_wr wr[3], *bad;
	struct rig *rig = end->rig;
	struct ibv_sge sge[3];

	for (unsigned int i = 0; i < 3; i++) {
		end_request(end, i == 1 ? (enum ibv_wr_opcode)opcode : IBV_WR_SEND, 10 + i, 0, 8, 0,
			    &wr[i], &sge[i]);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].send_flags = 0; /* an error is reported all the same */
	OK(rig, ibv_post_send(end->qp, wr, &bad));
	wc_expect(end, end->scq, 10, IBV_WC_SUCCESS);
	wc_expect(end, end->scq, 11, IBV_WC_LOC_QP_OP_ERR);
	wc_expect(end, end->scq, 12, IBV_WC_WR_FLUSH_ERR);
	wc_none(end, end->scq);
	CHECK_EQ(rig, end_state(end), end->qp->qp_type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
}

static void opcodes_of_types(struct rig *rig)
{
	static const struct {
		enum ibv_qp_type type;
		unsigned int opcode;
	} lacking[] = {
		{IBV_QPT_RC, IBV_WR_TSO},
		{IBV_QPT_RC, IBV_WR_DRIVER1},
		{IBV_QPT_UC, IBV_WR_SEND_WITH_INV},
		{IBV_QPT_UC, IBV_WR_RDMA_READ},
		{IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD},
		{IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP},
		{IBV_QPT_UD, IBV_WR_LOCAL_INV},
		{IBV_QPT_UD, IBV_WR_BIND_MW},
		{IBV_QPT_UD, IBV_WR_SEND_WITH_INV},
		{IBV_QPT_UD, IBV_WR_RDMA_WRITE},
		{IBV_QPT_UD, IBV_WR_RDMA_WRITE_WITH_IMM},
		{IBV_QPT_UD, IBV_WR_RDMA_READ},
		{IBV_QPT_UD, IBV_WR_ATOMIC_FETCH_AND_ADD},
	};
	struct end end;

	for (unsigned int i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
		struct end_options opt = {.type = lacking[i].type};

		end_pair(&end, rig, &opt);
		for (uint64_t id = 0; id < 4; id++)
			OK(rig, end_recv(&end, id, 0, 64));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			refused_at_posting(&end, 31);
			refused_at_posting(&end, 0x7fffffff);
			refused_at_posting(&end, IBV_WR_FLUSH); /* by the builder only */
			fails_in_turn(&end, lacking[i].opcode);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* Opens an end whose QP has ibv_wr_*, connected. */
static void builder_open(struct end *end, struct rig *rig)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				  IBV_QP_EX_WITH_SEND,
		.cap = {.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64},
	};

	end_open(end, rig, NULL);
	OK(rig, ibv_destroy_qp(end->qp));
	attr.pd = end->pd;
	attr.send_cq = end->scq;
	attr.recv_cq = end->rcq;
	CHECK(rig, (end->qp = ibv_create_qp_ex(rig->ctx, &attr)));
	end_connect(end);
}

/* Inline data is for payloads that are sent; a READ's and an atomic's payload is received: the
 * request fails in its turn. */
static void inline_without_payload(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	for (int i = 0; i < 4; i++) {
		builder_open(&end, rig);
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end.qp);

		if (rig->role == RIG_A && i < 2) {
			ibv_wr_start(ex);
			ex->wr_id = 1;
			ex->wr_flags = IBV_SEND_SIGNALED;
			if (i)
				ibv_wr_rdma_read(ex, end.peer.rkey, end.peer.addr);
			else
				ibv_wr_atomic_fetch_add(ex, end.peer.rkey, end.peer.addr, 1);
			ibv_wr_set_inline_data(ex, end.buf, 8);
			OK(rig, ibv_wr_complete(ex));
		} else if (rig->role == RIG_A) {
			end_request(&end, i == 2 ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD,
				    1, 0, 8, 0, &wr, &sge);
			wr.send_flags |= IBV_SEND_INLINE;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
		}
		if (rig->role == RIG_A) {
			wc_expect(&end, end.scq, 1, IBV_WC_LOC_QP_OP_ERR);
			CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

static void *change_qp(void *arg)
{
	struct end *end = arg;
	struct ibv_qp_attr attr = {.min_rnr_timer = 12};

	OK(end->rig, ibv_modify_qp(end->qp, &attr, IBV_QP_MIN_RNR_TIMER));
	return NULL;
}

/* Any call may stand between ibv_wr_start() and ibv_wr_complete(), and between ibv_start_poll() and
 * ibv_end_poll(): calls that wait for the daemon, too, while another thread is at the same QP. */
static void calls_while_building(struct rig *rig)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4};
	struct ibv_poll_cq_attr poll = {0};
	pthread_t thread;
	struct end end;

	builder_open(&end, rig);
	if (rig->role == RIG_A) {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end.qp);
		struct ibv_cq_ex *cq = ibv_create_cq_ex(rig->ctx, &cq_attr);
		struct ibv_mr *mr;

		CHECK(rig, cq);
		ibv_wr_start(ex);
		ex->wr_id = 5;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_read(ex, end.peer.rkey, end.peer.addr);
		CHECK(rig, (mr = ibv_reg_mr(end.pd, end.buf, 64, 0)));
		OK(rig, ibv_dereg_mr(mr));
		OK(rig, pthread_create(&thread, NULL, change_qp, &end));
		OK(rig, pthread_join(thread, NULL));
		CHECK_EQ(rig, ibv_start_poll(cq, &poll), ENOENT);
		ibv_wr_set_sge(ex, end.mr->lkey, (uintptr_t)end.buf, 8);
		OK(rig, ibv_wr_complete(ex));
		wc_expect(&end, end.scq, 5, IBV_WC_SUCCESS);
		OK(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	}
	rig_sync(rig);
	end_close(&end);
}

/* Keys -------------------------------------------------------------------------------------- */

/* A names B's memory by the region's lkey, and its own by the rkey: one opcode after the other. */
static void keys_mixed(struct end *end)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						     IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	for (unsigned int i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		end_request(end, opcodes[i], i, 0, 8, 0, &wr, &sge);
		sge.lkey = end->mr->rkey;
		if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD)
			wr.wr.atomic.rkey = end->peer.lkey;
		else
			wr.wr.rdma.rkey = end->peer.lkey;
		OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
		wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
	}
}

/* A region's lkey and rkey are one number, of whatever kind it is. */
static void keys_equal(struct rig *rig)
{
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct end end;

	end_pair(&end, rig, NULL);
	struct ibv_dm *dm = ibv_alloc_dm(rig->ctx, &attr);
	struct ibv_mr *on_demand = ibv_reg_mr(end.pd, end.buf, 64, IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *local = ibv_reg_mr(end.pd, end.buf, 64, 0);
	struct ibv_mr *of_dm = dm ? ibv_reg_dm_mr(end.pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED) : NULL;
	struct ibv_mr *imported = ibv_import_mr(end.pd, end.mr->handle);

	CHECK(rig, on_demand && local && of_dm && imported);
	CHECK_EQ(rig, on_demand->rkey, on_demand->lkey);
	CHECK_EQ(rig, local->rkey, local->lkey);
	CHECK_EQ(rig, of_dm->rkey, of_dm->lkey);
	CHECK_EQ(rig, imported->rkey, imported->lkey);
	CHECK_EQ(rig, imported->rkey, end.mr->rkey);
	OK(rig,
	   ibv_rereg_mr(local, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(rig, local->rkey, local->lkey);
	if (rig->role == RIG_B)
		OK(rig, end_recv(&end, RECEIVE, 8, 8));
	rig_sync(rig);
	if (rig->role == RIG_A)
		keys_mixed(&end);
	else
		wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
	rig_sync(rig);
	ibv_unimport_mr(imported);
	OK(rig, ibv_dereg_mr(of_dm));
	OK(rig, ibv_free_dm(dm));
	OK(rig, ibv_dereg_mr(local));
	OK(rig, ibv_dereg_mr(on_demand));
	end_close(&end);
}

/* A region without rights for peers gives them nothing, by whichever name. */
static void key_without_rights(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						     IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_WRITE};
	const struct end_options opt = {.mr_access = MR_NONE};
	struct end end;

	for (unsigned int i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		end_pair(&end, rig, &opt);
		CHECK_EQ(rig, end.mr->rkey, end.mr->lkey);
		memset(end.buf, 0x11, 64);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			memset(end.buf, 0x22, 64);
			OK(rig, end_send(&end, opcodes[i], 1, 0, 8, 0));
			wc_expect(&end, end.scq, 1, IBV_WC_REM_ACCESS_ERR);
			CHECK_EQ(rig, end.buf[0], 0x22);
		} else {
			event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
			CHECK_EQ(rig, end.buf[0], 0x11);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* Atomics ----------------------------------------------------------------------------------- */

/* A segment longer than 8 bytes gets 8, wherever its region ends, and further segments nothing. */
static void atomic_long_segment(struct rig *rig)
{
	enum { SPACE = 4096 };
	static const uint32_t lengths[][2] = {{64, 0}, {8, 8}, {4, 60}, {8, 0}, {0, 64}};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge unused, sge[2];
	struct end end;

	end_pair(&end, rig, NULL);
	memset(end.buf, 0x55, SPACE);
	rig_sync(rig);
	for (uint64_t i = 0; rig->role == RIG_A && i < 10; i++) {
		const uint32_t *length = lengths[i / 2];
		struct ibv_mr *mr = ibv_reg_mr(end.pd, end.buf, 8, IBV_ACCESS_LOCAL_WRITE);
		uint64_t wanted = 0x5555555555555555 + i, got;

		CHECK(rig, mr);
		memset(end.buf, 0xee, SPACE);
		end_request(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, 8, 0, &wr, &unused);
		sge[0] = (struct ibv_sge){(uintptr_t)end.buf, length[0], mr->lkey};
		sge[1] = (struct ibv_sge){(uintptr_t)end.buf + length[0], length[1],
					  length[0] ? end.mr->lkey : mr->lkey};
		wr.wr.atomic.compare_add = 1;
		wr.sg_list = sge;
		wr.num_sge = 2;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		CHECK_EQ(rig, wc_expect(&end, end.scq, i, IBV_WC_SUCCESS).byte_len, 8);
		memcpy(&got, end.buf, 8);
		CHECK_EQ(rig, got, wanted);
		CHECK_EQ(rig, end.buf[8], 0xee);
		CHECK_EQ(rig, end.buf[16], 0xee);
		OK(rig, ibv_dereg_mr(mr));
	}
	rig_sync(rig);
	end_close(&end);
}

/* When the requester has polled the refusal, a responder of the same process has failed. */
static void refused_by_failed_qp(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE,	 IBV_WR_SEND};
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct end end, other;

	if (rig->role == RIG_B)
		return;
	for (unsigned int i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
		end_open(&end, rig, NULL);
		end_open(&other, rig, NULL);
		end_join(&end, &other);
		OK(rig, end_recv(&other, RECEIVE, 0, 4)); /* too short for the SEND */
		end_request(&end, opcodes[i], 1, 0, 8, 0, &wr, &sge);
		if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD)
			wr.wr.atomic.remote_addr += 1;
		else if (opcodes[i] != IBV_WR_SEND)
			wr.wr.rdma.rkey ^= BAD_KEY;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		enum ibv_wc_status status = wc_wait(&end, end.scq).status;

		CHECK_EQ(rig, end_state(&other), IBV_QPS_ERR);
		CHECK_EQ(rig, status,
			 opcodes[i] == IBV_WR_SEND || opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD
				 ? IBV_WC_REM_INV_REQ_ERR
				 : IBV_WC_REM_ACCESS_ERR);
		end_close(&other);
		end_close(&end);
	}
}

/* A request that the peer refuses: A waits for the refusal and then, by the QP of `flag`, writes a
 * word that B waits for. */
static void refused_then_flagged(struct end *end, struct end *flag, enum ibv_wr_opcode opcode)
{
	struct rig *rig = end->rig;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	uint64_t one = 1;

	end_request(end, opcode, 1, 0, 8, 0, &wr, &sge);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.remote_addr += 1;
	else if (opcode != IBV_WR_SEND)
		wr.wr.rdma.rkey ^= BAD_KEY;
	memcpy(flag->buf, &one, sizeof(one));
	OK(rig, ibv_post_send(end->qp, &wr, &bad));
	CHECK(rig, wc_wait(end, end->scq).status != IBV_WC_SUCCESS);
	OK(rig, end_send(flag, IBV_WR_RDMA_WRITE, 2, 0, 8, 0));
	wc_expect(flag, flag->scq, 2, IBV_WC_SUCCESS);
}

/* The same between processes: B learns that A has polled the refusal by memory, without a call. */
static void refused_by_failed_peer(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE,	     IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE,	 IBV_WR_SEND};
	enum { OPCODES = sizeof(opcodes) / sizeof(opcodes[0]), ROUNDS = 5 * OPCODES };
	struct end end, flag;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		end_pair(&end, rig, NULL);
		end_pair(&flag, rig, NULL);
		if (rig->role == RIG_B) {
			memset(flag.buf, 0, 8);
			OK(rig, end_recv(&end, RECEIVE, 0, 4)); /* too short for the SEND */
		}
		rig_sync(rig);
		if (rig->role == RIG_A) {
			refused_then_flagged(&end, &flag, opcodes[i % OPCODES]);
		} else {
			while (!*(volatile uint64_t *)flag.buf)
				continue;
			CHECK_EQ(rig, end_state(&end), IBV_QPS_ERR);
		}
		rig_sync(rig);
		end_close(&flag);
		end_close(&end);
	}
}

/* A segment of an atomic that is shorter than its answer: ibv_post_send() makes it eight bytes
 * long, which its region must have; the builder doesn't. */
static void atomic_short_segment(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge, two[2];
	struct end end;

	end_pair(&end, rig, NULL);
	memset(end.buf, rig->role == RIG_A ? 0xaa : 0x55, 64);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		end_request(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 4, 0, &wr, &sge);
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		CHECK_EQ(rig, wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS).byte_len, 8);
		two[0] = (struct ibv_sge){sge.addr + 24, 0, BAD_KEY};
		two[1] = (struct ibv_sge){sge.addr + 16, 3, sge.lkey};
		wr.sg_list = two;
		wr.num_sge = 2;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		for (int i = 0; i < 32; i++)
			CHECK_EQ(rig, (uint8_t)end.buf[i], i % 16 < 8 ? 0x55 : 0xaa);
		two[1].addr = (uintptr_t)end.mr->addr + end.mr->length - 4;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		wc_expect(&end, end.scq, 1, IBV_WC_LOC_PROT_ERR);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Two faults at once: the key is checked before the alignment, the length before all, the local key
 * when the answer is there. */
static void atomic_faults_at_once(struct rig *rig)
{
	static const struct {
		uint32_t key, offset, length, lkey;
		enum ibv_wc_status status;
		int event;
	} cases[] = {
		{BAD_KEY, 0, 8, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{BAD_KEY, 4, 8, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{0, 4, 8, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{0, 65532, 8, 0, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{0, 4, 16, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{0, 4, 0, 0, IBV_WC_LOC_LEN_ERR, -1},
		{BAD_KEY, 4, 0, BAD_KEY, IBV_WC_LOC_LEN_ERR, -1},
		{0, 4, 4, 0, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
		{BAD_KEY, 4, 7, BAD_KEY, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{BAD_KEY, 4, 8, BAD_KEY, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
		{0, 4, 8, BAD_KEY, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
	};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		end_pair(&end, rig, NULL);
		if (rig->role == RIG_A) {
			end_request(&end, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, cases[i].length,
				    cases[i].offset, &wr, &sge);
			wr.wr.atomic.rkey ^= cases[i].key;
			sge.lkey ^= cases[i].lkey;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 1, cases[i].status);
		} else if (cases[i].event >= 0) {
			event_expect(rig, (enum ibv_event_type)cases[i].event, end.qp);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

/* A READ or an atomic whose local key isn't valid: the peer executes it, and its QP goes on; with
 * another fault at the peer's end, that one is reported. */
static void answer_without_place(struct rig *rig)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_CMP_AND_SWP};
	enum { OPCODES = sizeof(opcodes) / sizeof(opcodes[0]) };
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	for (unsigned int i = 0; i < 2 * OPCODES; i++) {
		bool both = i >= OPCODES;
		enum ibv_wr_opcode opcode = opcodes[i % OPCODES];
		uint64_t word = 5, result = opcode == IBV_WR_RDMA_READ || both ? 5 : 8;

		end_pair(&end, rig, NULL);
		memcpy(end.buf, &word, sizeof(word));
		rig_sync(rig);
		if (rig->role == RIG_A) {
			end_request(&end, opcode, 1, 0, 8, 0, &wr, &sge);
			if (opcode == IBV_WR_RDMA_READ) {
				wr.wr.rdma.rkey ^= both ? BAD_KEY : 0;
			} else {
				bool swaps = opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

				wr.wr.atomic.rkey ^= both ? BAD_KEY : 0;
				wr.wr.atomic.compare_add = swaps ? 5 : 3;
				wr.wr.atomic.swap = 8;
			}
			sge.lkey ^= BAD_KEY;
			OK(rig, ibv_post_send(end.qp, &wr, &bad));
			wc_expect(&end, end.scq, 1,
				  both ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR);
			result = 5; /* here nothing arrives */
		} else if (both) {
			event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
		}
		rig_sync(rig);
		CHECK(rig, !memcmp(end.buf, &result, sizeof(result)));
		if (rig->role == RIG_B)
			CHECK_EQ(rig, end_state(&end), both ? IBV_QPS_ERR : IBV_QPS_RTS);
		rig_sync(rig);
		end_close(&end);
	}
}

/* Order ------------------------------------------------------------------------------------- */

/* READs whose bytes a later WRITE of the same QP changes. With a fence the READ returns the bytes
 * from before. Without one each byte may be the old or the new one. */
static void read_meets_write(struct rig *rig)
{
	enum { BYTES = 30000, ROUNDS = 30, BEFORE = 0x11, AFTER = 0x22 };
	struct ibv_send_wr read, write, *bad;
	struct ibv_sge into, from;
	struct end end;

	end_pair(&end, rig, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		bool fence = round % 2;

		memset(end.buf, rig->role == RIG_A ? AFTER : BEFORE, BYTES);
		rig_sync(rig);
		if (rig->role == RIG_A) {
			end_request(&end, IBV_WR_RDMA_READ, 1, BYTES, BYTES, 0, &read, &into);
			end_request(&end, IBV_WR_RDMA_WRITE, 2, 0, BYTES, 0, &write, &from);
			write.send_flags |= fence ? IBV_SEND_FENCE : 0;
			read.next = &write;
			OK(rig, ibv_post_send(end.qp, &read, &bad));
			wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
			wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
			for (int i = 0; i < BYTES; i++)
				CHECK(rig, end.buf[BYTES + i] == BEFORE ||
						   (!fence && end.buf[BYTES + i] == AFTER));
		}
		rig_sync(rig);
		if (rig->role == RIG_B)
			for (int i = 0; i < BYTES; i++)
				CHECK_EQ(rig, end.buf[i], AFTER);
	}
	end_close(&end);
}

/* Posts a short SEND that no completion reports. */
static void send_unawaited(struct end *end)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, IBV_WR_SEND, 1, 0, 8, 0, &wr, &sge);
	wr.send_flags = IBV_SEND_INLINE;
	OK(end->rig, ibv_post_send(end->qp, &wr, &bad));
}

/* Over RoCE most of these don't ask for an acknowledgement. The end that receives them destroys its
 * QP at once, and the other one must still learn that all have arrived. */
static void unawaited_messages(struct rig *rig)
{
	enum { MESSAGES = 16 };
	const struct end_options opt = {.inline_bytes = 8};
	struct end end;

	end_pair(&end, rig, &opt);
	for (uint64_t i = 0; i < MESSAGES; i++)
		OK(rig, end_recv(&end, i, 64, 8));
	rig_sync(rig);
	if (rig->role == RIG_A) {
		for (uint64_t i = 0; i < MESSAGES; i++)
			send_unawaited(&end);
		rig_sync(rig);
		end_settle(&end);
		wc_none(&end, end.scq);
	} else {
		for (uint64_t i = 0; i < MESSAGES; i++)
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
		OK(rig, ibv_destroy_qp(end.qp));
		end.qp = NULL;
		rig_sync(rig);
	}
	end_close(&end);
}

/* States ------------------------------------------------------------------------------------ */

/* Which states accept which posts; state.c and loose.c test what becomes of them. */
static void posting_by_type(struct rig *rig, enum ibv_qp_type type)
{
	struct end_options opt = {.type = type};
	struct end end;

	end_open(&end, rig, &opt);
	CHECK_EQ(rig, end_recv(&end, 1, 0, 64), EINVAL);
	end_init(&end);
	OK(rig, end_recv(&end, RECEIVE, 0, 64));
	end_meet(&end);
	end_rtr(&end);
	end_rts(&end);
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_SQD));
	OK(rig, end_recv(&end, RECEIVE + 1, 0, 64));
	OK(rig, end_move(&end, IBV_QPS_ERR));
	wc_expect(&end, end.rcq, RECEIVE, IBV_WC_WR_FLUSH_ERR);
	wc_expect(&end, end.rcq, RECEIVE + 1, IBV_WC_WR_FLUSH_ERR);
	OK(rig, end_recv(&end, RECEIVE + 2, 0, 64));
	wc_expect(&end, end.rcq, RECEIVE + 2, IBV_WC_WR_FLUSH_ERR);
	if (type != IBV_QPT_UD) {
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_WR_FLUSH_ERR);
	}
	OK(rig, end_move(&end, IBV_QPS_RESET));
	CHECK_EQ(rig, end_recv(&end, 1, 0, 64), EINVAL);
	if (type != IBV_QPT_UD)
		CHECK_EQ(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0), EINVAL);
	rig_sync(rig);
	end_close(&end);
}

/* Requests that are posted before RTS begin there, in order. */
static void posting_early(struct rig *rig, enum ibv_qp_type type)
{
	struct end_options opt = {.type = type};
	struct end end;

	end_open(&end, rig, &opt);
	end_init(&end);
	for (uint64_t i = 0; i < 4; i++)
		OK(rig, end_recv(&end, RECEIVE + i, 64, 64));
	OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 1, 0));
	end_meet(&end);
	end_rtr(&end);
	OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 2, 0));
	wc_none(&end, end.scq);
	wc_none(&end, end.rcq);
	rig_sync(rig);
	end_rts(&end);
	rig_sync(rig);
	OK(rig, end_send(&end, IBV_WR_SEND, 3, 0, 3, 0));
	for (uint64_t i = 0; i < 3; i++)
		wc_expect(&end, end.scq, 1 + i, IBV_WC_SUCCESS);
	for (uint64_t i = 0; i < 3 && type == IBV_QPT_RC; i++)
		CHECK_EQ(rig, wc_expect(&end, end.rcq, RECEIVE + i, IBV_WC_SUCCESS).byte_len,
			 i + 1);
	rig_sync(rig);
	end_close(&end);
}

/* The QP fails, or is reset, with such requests: they are flushed, or forgotten. */
static void posting_early_in_vain(struct rig *rig)
{
	struct end end;

	for (int reset = 0; reset < 2; reset++) {
		end_open(&end, rig, NULL);
		end_init(&end);
		OK(rig, end_send(&end, IBV_WR_SEND, 1, 0, 8, 0));
		OK(rig, end_move(&end, reset ? IBV_QPS_RESET : IBV_QPS_ERR));
		if (!reset)
			wc_expect(&end, end.scq, 1, IBV_WC_WR_FLUSH_ERR);
		wc_none(&end, end.scq);
		if (reset) {
			end_connect(&end);
			OK(rig, end_recv(&end, RECEIVE, 0, 64));
			rig_sync(rig);
			OK(rig, end_send(&end, IBV_WR_SEND, 2, 0, 8, 0));
			wc_expect(&end, end.scq, 2, IBV_WC_SUCCESS);
			wc_expect(&end, end.rcq, RECEIVE, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		end_close(&end);
	}
}

static void posting_before_rts(struct rig *rig)
{
	posting_early(rig, IBV_QPT_RC);
	posting_early(rig, IBV_QPT_UC);
	posting_early_in_vain(rig);
}

/* The state as the program sees it without a call, and by queries with and without IBV_QP_STATE. */
static void state_is(struct end *end, enum ibv_qp_state known, enum ibv_qp_state truth)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(end->rig, end->qp->state, known);
	OK(end->rig, ibv_query_qp(end->qp, &attr, IBV_QP_CAP, &init));
	CHECK_EQ(end->rig, end->qp->state, known);
	OK(end->rig, ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init));
	CHECK_EQ(end->rig, attr.qp_state, truth);
	CHECK_EQ(end->rig, end->qp->state, truth);
}

/* The field `state` of a QP that fails by itself stays until the program queries it. */
static void state_by_calls_only(struct rig *rig)
{
	struct ibv_qp_attr back = {.qp_state = IBV_QPS_RTS};
	struct end end;

	end_pair(&end, rig, NULL);
	CHECK_EQ(rig, end.qp->state, IBV_QPS_RTS);
	if (rig->role == RIG_A) {
		end.peer.rkey ^= BAD_KEY;
		OK(rig, end_send(&end, IBV_WR_RDMA_WRITE, 1, 0, 8, 0));
		wc_expect(&end, end.scq, 1, IBV_WC_REM_ACCESS_ERR);
	} else {
		event_expect(rig, IBV_EVENT_QP_ACCESS_ERR, end.qp);
	}
	state_is(&end, IBV_QPS_RTS, IBV_QPS_ERR);
	CHECK_EQ(rig, ibv_modify_qp(end.qp, &back, IBV_QP_STATE), EINVAL);
	CHECK_EQ(rig, end.qp->state, IBV_QPS_ERR);
	OK(rig, end_move(&end, IBV_QPS_RESET));
	CHECK_EQ(rig, end.qp->state, IBV_QPS_RESET);
	rig_sync(rig);
	end_close(&end);
}

/* The same for a send queue that fails alone: a datagram from memory that isn't mapped. */
static void sqe_by_calls_only(struct rig *rig)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end end;

	end_pair(&end, rig, &ud);
	if (rig->role == RIG_A) {
		end_request(&end, IBV_WR_SEND, 1, 0, 8, 0, &wr, &sge);
		sge.lkey ^= BAD_KEY;
		OK(rig, ibv_post_send(end.qp, &wr, &bad));
		wc_expect(&end, end.scq, 1, IBV_WC_LOC_PROT_ERR);
		state_is(&end, IBV_QPS_RTS, IBV_QPS_SQE);
	}
	rig_sync(rig);
	end_close(&end);
}

static void posting_in_states(struct rig *rig)
{
	posting_by_type(rig, IBV_QPT_RC);
	posting_by_type(rig, IBV_QPT_UC);
	posting_by_type(rig, IBV_QPT_UD);
}

const struct rig_test behaviour_tests[] = {
	{"ud_receive_short", ud_receive_short},
	{"ud_packet_type", ud_packet_type},
	{"rc_no_packet_type", rc_no_packet_type},
	{"uc_receive_short", uc_receive_short},
	{"srq_own_domain", srq_own_domain},
	{"write_imm_bad_key", write_imm_bad_key},
	{"nothing_needs_no_key", nothing_needs_no_key},
	{"nothing_needs_the_right", nothing_needs_the_right},
	{"region_of_nothing", region_of_nothing},
	{"handles_garbled", handles_garbled},
	{"opcodes_of_types", opcodes_of_types},
	{"inline_without_payload", inline_without_payload},
	{"calls_while_building", calls_while_building},
	{"keys_equal", keys_equal},
	{"key_without_rights", key_without_rights},
	{"atomic_long_segment", atomic_long_segment},
	{"refused_by_failed_qp", refused_by_failed_qp},
	{"refused_by_failed_peer", refused_by_failed_peer},
	{"atomic_faults_at_once", atomic_faults_at_once},
	{"answer_without_place", answer_without_place},
	{"atomic_short_segment", atomic_short_segment},
	{"read_meets_write", read_meets_write},
	{"posting_in_states", posting_in_states},
	{"posting_before_rts", posting_before_rts},
	{"unawaited_messages", unawaited_messages},
	{"state_by_calls_only", state_by_calls_only},
	{"sqe_by_calls_only", sqe_by_calls_only},
	{NULL, NULL},
};
