/* SPDX-License-Identifier: BSD-2-Clause */
/* Raw packets: calls and requests that are wrong, each with its errno or status. See rig.h, raw.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "raw.h"

/* ------------------------------------------------------------------ flow rules */

static void no_flow(const struct rig *rig, struct ibv_qp *qp, struct rule rule, int err, int line)
{
	errno = 0;
	struct ibv_flow *flow = ibv_create_flow(qp, &rule.attr);

	if (flow || errno != err)
		rig_fail(rig, __FILE__, line, "flow %p, errno %d instead of %d", (void *)flow,
			 errno, err);
}
#define NO_FLOW(qp, rule, err) no_flow(rig, qp, rule, err, __LINE__)

/* A specification's type alone, with a size that is wrong or right. */
static struct rule rule_with(uint32_t type, uint16_t size)
{
	struct rule rule = rule_of(IBV_FLOW_ATTR_NORMAL, 0);
	uint8_t spec[128] = {0};

	memcpy(spec, &type, sizeof(type));
	rule_add(&rule, spec, size);
	return rule;
}

static struct rule rule_of_two(uint32_t first, uint16_t size, uint32_t second, uint16_t size_2)
{
	struct rule rule = rule_with(first, size);
	uint8_t spec[128] = {0};

	memcpy(spec, &second, sizeof(second));
	rule_add(&rule, spec, size_2);
	return rule;
}

enum {
	ETH = sizeof(struct ibv_flow_spec_eth),
	V4 = sizeof(struct ibv_flow_spec_ipv4),
	V6 = sizeof(struct ibv_flow_spec_ipv6),
	L4 = sizeof(struct ibv_flow_spec_tcp_udp),
};

static void rules(struct rig *rig)
{
	const struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP};
	struct rule rule = rule_to(5, 0);
	struct end end;

	raw_open(&end, rig);
	rule.attr.port = 2;
	NO_FLOW(end.qp, rule, EINVAL);
	rule.attr.port = 0;
	NO_FLOW(end.qp, rule, EINVAL);
	rule = rule_to(5, 0);
	rule.attr.comp_mask = 1;
	NO_FLOW(end.qp, rule, EINVAL);
	rule = rule_to(5, 0);
	rule.attr.type = 4;
	NO_FLOW(end.qp, rule, EINVAL);
	rule.attr.type = IBV_FLOW_ATTR_SNIFFER; /* it describes frames */
	NO_FLOW(end.qp, rule, EINVAL);
	rule.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	NO_FLOW(end.qp, rule, EINVAL);
	rule = rule_of(IBV_FLOW_ATTR_MC_DEFAULT, 0);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	NO_FLOW(end.qp, rule, EINVAL);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	NO_FLOW(end.qp, rule, EINVAL);
	rule = rule_to(5, 0);
	rule.attr.flags = 8;
	NO_FLOW(end.qp, rule, EINVAL);
	rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	rule_add(&rule, &drop, sizeof(drop));
	NO_FLOW(end.qp, rule, EINVAL);
	end_close(&end);
}

/* Rules of one priority for the same frames that say different things about them; and which don't
 * contradict one another. */
static void overlaps(struct rig *rig)
{
	const struct ibv_flow_spec_action_drop drop = {.type = IBV_FLOW_SPEC_ACTION_DROP};
	struct ibv_flow_spec_action_tag tag = {.type = IBV_FLOW_SPEC_ACTION_TAG, .tag_id = 7};
	struct rule drops = rule_to(5, 3), tags = rule_to(5, 3), passes = rule_to(5, 3);
	struct ibv_flow *flow, *other, *third;
	struct end end;

	raw_open(&end, rig);
	rig_sync(rig);
	if (rig->role == RIG_A) {
		rule_add(&drops, &drop, sizeof(drop));
		rule_add(&tags, &tag, sizeof(tag));
		passes.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
		flow = flow_make(rig, end.qp, rule_to(5, 3));
		NO_FLOW(end.qp, drops, EEXIST);
		NO_FLOW(end.qp, tags, EEXIST);
		other = flow_make(rig, end.qp, rule_to(5, 3));
		third = flow_make(rig, end.qp, passes);
		OK(rig, ibv_destroy_flow(other));
		drops.attr.priority = tags.attr.priority = 4;
		OK(rig, ibv_destroy_flow(flow_make(rig, end.qp, drops)));
		other = flow_make(rig, end.qp, tags);
		NO_FLOW(end.qp, drops, EEXIST);
		OK(rig, ibv_destroy_flow(flow_make(rig, end.qp, tags)));
		OK(rig, ibv_destroy_flow(other));
		OK(rig, ibv_destroy_flow(third));
		OK(rig, ibv_destroy_flow(flow));
	}
	rig_sync(rig);
	end_close(&end);
}

static void specifications(struct rig *rig)
{
	struct end end;

	raw_open(&end, rig);
	NO_FLOW(end.qp, rule_with(0x99, ETH), EINVAL);
	NO_FLOW(end.qp, rule_with(IBV_FLOW_SPEC_ACTION_HANDLE, 16), EOPNOTSUPP);
	NO_FLOW(end.qp, rule_with(IBV_FLOW_SPEC_ACTION_COUNT, 16), EINVAL); /* no counters */
	NO_FLOW(end.qp, rule_of_two(IBV_FLOW_SPEC_ETH, ETH, IBV_FLOW_SPEC_ETH, ETH), EINVAL);
	NO_FLOW(end.qp, rule_of_two(IBV_FLOW_SPEC_IPV4, V4, IBV_FLOW_SPEC_IPV6, V6), EINVAL);
	NO_FLOW(end.qp, rule_of_two(IBV_FLOW_SPEC_TCP, L4, IBV_FLOW_SPEC_UDP, L4), EINVAL);
	OK(rig,
	   ibv_destroy_flow(flow_make(rig, end.qp,
				      rule_of_two(IBV_FLOW_SPEC_IPV4, V4,
						  IBV_FLOW_SPEC_IPV4 | IBV_FLOW_SPEC_INNER, V4))));
	end_close(&end);
}

static void other_types(struct rig *rig)
{
	struct end_options ud = {.type = IBV_QPT_UD};
	struct end end;

	end_open(&end, rig, &ud);
	NO_FLOW(end.qp, rule_to(5, 0), EOPNOTSUPP);
	end_close(&end);
	end_open(&end, rig, NULL);
	NO_FLOW(end.qp, rule_to(5, 0), EINVAL);
	end_close(&end);
}

/* ------------------------------------------------------------------ requests */

static void lengths(struct rig *rig)
{
	struct end_options big = raw;
	struct end end;

	big.bytes = 65536;
	end_open(&end, rig, &big);
	raw_ready(rig, end.qp);
	frame_write(&end, 2, 5, 1);
	frame_post(&end, end.qp, 1, 13, 0); /* less than an Ethernet header */
	wc_expect(&end, end.scq, 1, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(rig, end_state(&end), IBV_QPS_SQE);
	OK(rig, raw_move(end.qp, IBV_QPS_RESET));
	raw_ready(rig, end.qp);
	frame_post(&end, end.qp, 2, 8161, 0);
	wc_expect(&end, end.scq, 2, IBV_WC_LOC_LEN_ERR);
	OK(rig, raw_move(end.qp, IBV_QPS_RESET));
	raw_ready(rig, end.qp);
	frame_post(&end, end.qp, 3, 8160, 0);
	wc_expect(&end, end.scq, 3, IBV_WC_SUCCESS);
	end_close(&end);
}

static void requests(struct rig *rig)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	struct end end;

	raw_open(&end, rig);
	sge = end_sge(&end, 0, FRAME);
	wr.opcode = (enum ibv_wr_opcode)200;
	CHECK_EQ(rig, ibv_post_send(end.qp, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	sge.lkey ^= 0x100; /* no region */
	OK(rig, ibv_post_send(end.qp, &wr, &bad));
	wc_expect(&end, end.scq, 0, IBV_WC_LOC_PROT_ERR);
	end_close(&end);
	raw_open(&end, rig);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	OK(rig, ibv_post_send(end.qp, &wr, &bad));
	wc_expect(&end, end.scq, 0, IBV_WC_LOC_QP_OP_ERR);
	end_close(&end);
}

static void states(struct rig *rig)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
	struct end end;

	end_open(&end, rig, &raw);
	CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY),
		 EINVAL);
	attr.port_num = 2;
	CHECK_EQ(rig, ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	raw_ready(rig, end.qp);
	union ibv_gid gid = {.raw = {0xff, 0x0e, [15] = 1}};

	CHECK_EQ(rig, ibv_attach_mcast(end.qp, &gid, 0), EINVAL);
	end_close(&end);
}

/* ------------------------------------------------------------------ creating */

static struct ibv_qp_init_attr_ex spread_attr(struct end *end, struct ibv_rwq_ind_table *table,
					      uint8_t key[40])
{
	return (struct ibv_qp_init_attr_ex){
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.pd = end->pd,
		.rwq_ind_tbl = table,
		.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
				 .rx_hash_key_len = 40,
				 .rx_hash_key = key,
				 .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4},
	};
}

static void no_qp(const struct rig *rig, struct ibv_qp_init_attr_ex attr, int err, int line)
{
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(rig->ctx, &attr);

	if (qp || errno != err)
		rig_fail(rig, __FILE__, line, "QP %p, errno %d instead of %d", (void *)qp, errno,
			 err);
}
#define NO_QP(attr, err) no_qp(rig, attr, err, __LINE__)

/* Each changes one field of what would be right. */
static void wrong_spreads(struct end *end, struct ibv_rwq_ind_table *table)
{
	const struct rig *rig = end->rig;
	uint8_t key[40] = {1};
	struct ibv_qp_init_attr_ex attr = spread_attr(end, table, key);

	attr.rx_hash_conf.rx_hash_key_len = 39;
	NO_QP(attr, EINVAL);
	attr = spread_attr(end, table, key);
	attr.rx_hash_conf.rx_hash_function = 2;
	NO_QP(attr, EOPNOTSUPP);
	attr = spread_attr(end, table, key);
	attr.rx_hash_conf.rx_hash_fields_mask = 1 << 20;
	NO_QP(attr, EOPNOTSUPP);
	attr = spread_attr(end, NULL, key);
	NO_QP(attr, EINVAL);
	attr = spread_attr(end, table, key);
	attr.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_RX_HASH;
	NO_QP(attr, EINVAL);
	attr = spread_attr(end, table, key);
	attr.cap.max_send_wr = 1;
	NO_QP(attr, EINVAL);
	attr = spread_attr(end, table, key);
	attr.qp_type = IBV_QPT_UD;
	NO_QP(attr, EINVAL);
	attr = spread_attr(end, table, key);
	attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	attr.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	NO_QP(attr, EOPNOTSUPP);
	attr.create_flags = IBV_QP_CREATE_SOURCE_QPN;
	NO_QP(attr, EINVAL);
	attr = spread_attr(end, table, key);
	attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	NO_QP(attr, EOPNOTSUPP);
}

static void wq_attributes(struct end *end, struct ibv_wq_init_attr right)
{
	const struct rig *rig = end->rig;
	struct ibv_wq_init_attr attr = right;

	attr.wq_type = 1;
	CHECK(rig, !ibv_create_wq(rig->ctx, &attr) && errno == EINVAL);
	attr = right;
	attr.cq = NULL;
	CHECK(rig, !ibv_create_wq(rig->ctx, &attr) && errno == EINVAL);
	attr = right;
	attr.max_wr = 1u << 20;
	CHECK(rig, !ibv_create_wq(rig->ctx, &attr) && errno == EINVAL);
	attr = right;
	attr.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
	attr.create_flags = IBV_WQ_FLAGS_DELAY_DROP;
	CHECK(rig, !ibv_create_wq(rig->ctx, &attr) && errno == EOPNOTSUPP);
	attr.comp_mask = 2;
	CHECK(rig, !ibv_create_wq(rig->ctx, &attr) && errno == EINVAL);
}

static void spreads(struct rig *rig)
{
	struct ibv_qp_attr move = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_wq_init_attr right;
	struct ibv_recv_wr recv = {0}, *bad;
	struct ibv_wq *wq;
	uint8_t key[40] = {1};
	struct end end;

	raw_open(&end, rig);
	right = (struct ibv_wq_init_attr){
		.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = end.pd, .cq = end.rcq};
	wq_attributes(&end, right);
	CHECK(rig, (wq = ibv_create_wq(rig->ctx, &right)));
	CHECK_EQ(rig, ibv_post_wq_recv(wq, &recv, &bad), EINVAL); /* in RESET */
	struct ibv_wq *none[2] = {wq, NULL};
	struct ibv_rwq_ind_table_init_attr init = {.log_ind_tbl_size = 1, .ind_tbl = none};

	CHECK(rig, !ibv_create_rwq_ind_table(rig->ctx, &init) && errno == EINVAL);
	init.log_ind_tbl_size = 12;
	CHECK(rig, !ibv_create_rwq_ind_table(rig->ctx, &init) && errno == EINVAL);
	init.log_ind_tbl_size = 0;
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(rig->ctx, &init);

	CHECK(rig, table);
	wrong_spreads(&end, table);
	struct ibv_qp_init_attr_ex attr = spread_attr(&end, table, key);
	struct ibv_qp *qp = ibv_create_qp_ex(rig->ctx, &attr);

	CHECK(rig, qp);
	CHECK_EQ(rig, ibv_modify_qp(qp, &move, IBV_QP_STATE | IBV_QP_PORT), EOPNOTSUPP);
	CHECK_EQ(rig, ibv_post_recv(qp, &recv, &bad), EINVAL);
	OK(rig, ibv_destroy_qp(qp));
	OK(rig, ibv_destroy_rwq_ind_table(table));
	OK(rig, ibv_destroy_wq(wq));
	end_close(&end);
}

static void counters(struct rig *rig)
{
	struct ibv_counters_init_attr init = {.comp_mask = 1};
	struct ibv_counter_attach_attr attach = {.counter_desc = 2};
	struct ibv_flow *flow;
	uint64_t value;
	struct end end;

	raw_open(&end, rig);
	CHECK(rig, !ibv_create_counters(rig->ctx, &init) && errno == EINVAL);
	init.comp_mask = 0;
	struct ibv_counters *counters = ibv_create_counters(rig->ctx, &init);

	CHECK(rig, counters);
	CHECK_EQ(rig, ibv_attach_counters_point_flow(counters, &attach, NULL), EOPNOTSUPP);
	attach.counter_desc = IBV_COUNTER_BYTES;
	attach.comp_mask = 1;
	CHECK_EQ(rig, ibv_attach_counters_point_flow(counters, &attach, NULL), EINVAL);
	attach.comp_mask = 0;
	flow = flow_make(rig, end.qp, rule_to((uint8_t)(20 + rig->role), 0));
	CHECK_EQ(rig, ibv_attach_counters_point_flow(counters, &attach, flow), EOPNOTSUPP);
	CHECK_EQ(rig, ibv_read_counters(counters, &value, 1, 2), EINVAL);
	OK(rig, ibv_destroy_flow(flow));
	OK(rig, ibv_destroy_counters(counters));
	end_close(&end);
}

const struct rig_test raw_wrong_tests[] = {
	{"rules", rules},
	{"overlaps", overlaps},
	{"specifications", specifications},
	{"other_types", other_types},
	{"lengths", lengths},
	{"requests", requests},
	{"states", states},
	{"spreads", spreads},
	{"counters", counters},
	{NULL, NULL},
};
