/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of raw packets have in common: frames, flow rules, queue pairs. See rig.h. */
#ifndef VERBENA_E2E_RAW_H
#define VERBENA_E2E_RAW_H

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "rig.h"

enum { FRAME = 128, RECEIVES = 16384, MAC_GROUP = 0x01 };

static const struct end_options raw = {.type = IBV_QPT_RAW_PACKET, .mr_access = MR_NONE};

extern const struct rig_test raw_tests[];	 /* delivery by rules */
extern const struct rig_test raw_wrong_tests[];	 /* refusals */
extern const struct rig_test raw_spread_tests[]; /* work queues, counters, completions' fields */

/* A rule with one or two specifications. */
struct rule {
	struct ibv_flow_attr attr;
	union {
		struct ibv_flow_spec_eth eth;
		uint8_t specs[256];
	};
};

static inline int raw_move(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

static inline void raw_ready(const struct rig *rig, struct ibv_qp *qp)
{
	OK(rig, raw_move(qp, IBV_QPS_INIT));
	OK(rig, raw_move(qp, IBV_QPS_RTR));
	OK(rig, raw_move(qp, IBV_QPS_RTS));
}

/* An end whose raw QP is ready. */
static inline void raw_open(struct end *end, struct rig *rig)
{
	end_open(end, rig, &raw);
	raw_ready(rig, end->qp);
}

/* A further raw QP of the end, with the same CQs. */
static inline struct ibv_qp *raw_another(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = end->scq,
		.recv_cq = end->rcq,
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = {.max_send_wr = 16, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &attr);

	CHECK(end->rig, qp);
	raw_ready(end->rig, qp);
	return qp;
}

static inline struct rule rule_of(enum ibv_flow_attr_type type, uint16_t priority)
{
	return (struct rule){.attr = {.type = type,
				      .size = sizeof(struct rule),
				      .priority = priority,
				      .port = 1}};
}

/* Adds a specification, which begins with its type and size. */
static inline void rule_add(struct rule *rule, const void *spec, uint16_t size)
{
	size_t at = 0;

	for (int i = 0; i < rule->attr.num_of_specs; i++) {
		uint16_t before;

		memcpy(&before, rule->specs + at + 4, sizeof(before));
		at += before;
	}
	memcpy(rule->specs + at, spec, size);
	memcpy(rule->specs + at + 4, &size, sizeof(size));
	rule->attr.num_of_specs++;
}

/* A rule for the destination address whose last byte is `last`. */
static inline struct rule rule_to(uint8_t last, uint16_t priority)
{
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL, priority);
	struct ibv_flow_spec_eth eth = {
		.type = IBV_FLOW_SPEC_ETH,
		.val = {.dst_mac = {2, 0, 0, 0, 0, last}},
		.mask = {.dst_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
	};

	rule_add(&rule, &eth, sizeof(eth));
	return rule;
}

static inline struct ibv_flow *flow_make(const struct rig *rig, struct ibv_qp *qp, struct rule rule)
{
	struct ibv_flow *flow = ibv_create_flow(qp, &rule.attr);

	if (!flow)
		rig_fail(rig, __FILE__, __LINE__, "no flow: %s", strerror(errno));
	return flow;
}

/* Writes a frame at the buffer's begin: to the address that ends with `last`. */
static inline void frame_write(struct end *end, uint8_t first, uint8_t last, uint32_t seed)
{
	const uint8_t head[14] = {first, 0, 0, 0, 0, last, 2, 0, 0, 0, 0, 99, 0x88, 0xb5};

	memcpy(end->buf, head, sizeof(head));
	pattern_fill(end->buf + sizeof(head), FRAME - sizeof(head), seed);
}

static inline void frame_post(struct end *end, struct ibv_qp *qp, uint64_t id, uint32_t length,
			      unsigned int flags)
{
	struct ibv_sge sge = end_sge(end, 0, length);
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED | flags};
	struct ibv_send_wr *bad;

	OK(end->rig, ibv_post_send(qp, &wr, &bad));
}

/* Sends a frame, and returns when it is on its way. */
static inline void frame_send(struct end *end, uint8_t last, uint32_t seed)
{
	frame_write(end, 2, last, seed);
	frame_post(end, end->qp, seed, FRAME, 0);
	wc_expect(end, end->scq, seed, IBV_WC_SUCCESS);
}

static inline void receive_post(struct end *end, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = end_sge(end, RECEIVES + id * 256, 256);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	OK(end->rig, ibv_post_recv(qp, &wr, &bad));
}

/* Waits for a completion of any queue. */
static inline struct ibv_wc completion_wait(struct end *end, struct ibv_cq *cq)
{
	struct patience patience = patience_of(RIG_SOON_MS);
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) != 1)
		CHECK(end->rig, !patience_over(&patience));
	return wc;
}

/* Waits for the next frame: it must be that of the seed, in this QP's receive. */
static inline struct ibv_wc frame_expect(struct end *end, uint32_t qpn, uint32_t seed)
{
	struct ibv_wc wc = completion_wait(end, end->rcq);
	const uint8_t *at = end->buf + RECEIVES + wc.wr_id * 256;

	CHECK_EQ(end->rig, wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(end->rig, wc.opcode, IBV_WC_RECV);
	CHECK_EQ(end->rig, wc.byte_len, FRAME);
	CHECK_EQ(end->rig, wc.qp_num, qpn);
	CHECK(end->rig, pattern_holds(at + 14, FRAME - 14, seed));
	return wc;
}

#endif
