/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * src/kverbs: commands for work queues, flows, device memory, counters, XRC and posted requests
 * against the kernel's structures; imported contexts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

#include <cmocka.h>

/* ------------------------------------------------------------------ work queues */

static void work_queues(bool has_ioctl)
{
	struct kernel_context *kernel = device_open(has_ioctl);
	struct ibv_context *context = &kernel->verbs->context;
	struct ibv_pd pd = {.context = context, .handle = 3};
	struct ibv_cq cq = {.context = context, .handle = 4};
	struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ,
					.max_wr = 10,
					.max_sge = 2,
					.pd = &pd,
					.cq = &cq,
					.comp_mask = IBV_WQ_INIT_ATTR_FLAGS,
					.create_flags = IBV_WQ_FLAGS_SCATTER_FCS};
	struct ib_uverbs_ex_create_wq_resp answer = {
		.wq_handle = 7, .max_wr = 16, .max_sge = 3, .wqn = 99};
	struct ib_uverbs_ex_create_wq_resp response;
	struct ib_uverbs_ex_destroy_wq_resp reported = {.events_reported = 2};
	struct ibv_wq wq = {.events_completed = 2};
	struct ib_uverbs_ex_create_wq core;

	pthread_mutex_init(&wq.mutex, NULL);
	memcpy(fake.answer, &answer, sizeof(answer));
	assert_int_equal(
		ibv_cmd_create_wq(context, &attr, &wq, NULL, 0, &response, sizeof(response)), 0);
	memcpy(&core, has_ioctl ? fake.core : fake.message + 24, sizeof(core));
	assert_int_equal(core.wq_type, IBV_WQT_RQ);
	assert_int_equal(core.user_handle, (uintptr_t)&wq);
	assert_int_equal(core.pd_handle, 3);
	assert_int_equal(core.cq_handle, 4);
	assert_int_equal(core.max_wr, 10);
	assert_int_equal(core.create_flags, IBV_WQ_FLAGS_SCATTER_FCS);
	assert_int_equal(wq.handle, 7);
	assert_int_equal(wq.wq_num, 99);
	assert_int_equal(attr.max_wr, 16);
	assert_int_equal(attr.max_sge, 3);
	assert_ptr_equal(wq.cq, &cq);
	attr.create_flags = IBV_WQ_FLAGS_RESERVED;
	assert_int_equal(
		ibv_cmd_create_wq(context, &attr, &wq, NULL, 0, &response, sizeof(response)),
		EOPNOTSUPP);
	memcpy(fake.answer, &reported, sizeof(reported));
	assert_int_equal(ibv_cmd_destroy_wq(&wq), 0); /* doesn't wait: all are acknowledged */
	device_close(kernel);
}

static void work_queues_in_both_forms(void **state)
{
	(void)state;
	work_queues(true);
	work_queues(false);
}

static void work_queue_is_modified(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_wq wq = {.context = &kernel->verbs->context, .handle = 7};
	struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct ib_uverbs_ex_modify_wq core;

	assert_int_equal(ibv_cmd_modify_wq(&wq, &attr, NULL, 0), 0);
	memcpy(&core, fake.core, sizeof(core));
	assert_int_equal(core.wq_handle, 7);
	assert_int_equal(core.wq_state, IBV_WQS_RDY);
	assert_int_equal(wq.state, IBV_WQS_RDY);
	fake.fail = EINVAL;
	attr.wq_state = IBV_WQS_ERR;
	assert_int_equal(ibv_cmd_modify_wq(&wq, &attr, NULL, 0), EINVAL);
	assert_int_equal(wq.state, IBV_WQS_RDY);
	device_close(kernel);
}

static void tables_are_padded(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);
	struct ibv_context *context = &kernel->verbs->context;
	struct ibv_wq wq = {.handle = 7}, *queues[] = {&wq, &wq, &wq, &wq};
	struct ibv_rwq_ind_table_init_attr attr = {.log_ind_tbl_size = 0, .ind_tbl = queues};
	struct ib_uverbs_ex_create_rwq_ind_table_resp response,
		answer = {.ind_tbl_handle = 8, .ind_tbl_num = 55};
	struct ibv_rwq_ind_table table = {0};
	uint32_t core[6];

	memcpy(fake.answer, &answer, sizeof(answer));
	assert_int_equal(
		ibv_cmd_create_rwq_ind_table(context, &attr, &table, &response, sizeof(response)),
		0);
	assert_int_equal(fake.message_size, 24 + 16); /* one handle, and four bytes of padding */
	attr.log_ind_tbl_size = 2;
	assert_int_equal(
		ibv_cmd_create_rwq_ind_table(context, &attr, &table, &response, sizeof(response)),
		0);
	memcpy(core, fake.message + 24, sizeof(core));
	assert_int_equal(fake.message_size, 24 + sizeof(core));
	assert_int_equal(core[1], 2);
	assert_int_equal(core[2], 7);
	assert_int_equal(core[5], 7);
	assert_int_equal(table.ind_tbl_handle, 8);
	assert_int_equal(table.ind_tbl_num, 55);
	assert_ptr_equal(table.context, context);
	attr.log_ind_tbl_size = 14;
	assert_int_equal(
		ibv_cmd_create_rwq_ind_table(context, &attr, &table, &response, sizeof(response)),
		EINVAL);
	assert_int_equal(ibv_cmd_destroy_rwq_ind_table(&table), 0);
	memcpy(core, fake.message + 24, 8);
	assert_int_equal(core[1], 8);
	device_close(kernel);
}

/* ------------------------------------------------------------------ flows */

/* A flow with one specification of each layout; sends it and returns what the kernel gets. */
struct all_specs {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_ipv4 ipv4;
	struct ibv_flow_spec_ipv4_ext ipv4_ext;
	struct ibv_flow_spec_ipv6 ipv6;
	struct ibv_flow_spec_tcp_udp udp;
	struct ibv_flow_spec_tunnel tunnel;
	struct ibv_flow_spec_action_tag tag;
	struct ibv_flow_spec_action_drop drop;
	struct ibv_flow_spec_action_handle handle;
	struct ibv_flow_spec_counter_action count;
} __attribute__((packed, aligned(4)));

struct all_kernel_specs {
	struct ib_uverbs_flow_spec_eth eth;
	struct {
		struct ib_uverbs_flow_spec_hdr header;
		uint32_t value[2], mask[2];
	} ipv4;
	struct ib_uverbs_flow_spec_ipv4 ipv4_ext;
	struct ib_uverbs_flow_spec_ipv6 ipv6;
	struct ib_uverbs_flow_spec_tcp_udp udp;
	struct ib_uverbs_flow_spec_tunnel tunnel;
	struct ib_uverbs_flow_spec_action_tag tag;
	struct ib_uverbs_flow_spec_action_drop drop;
	struct ib_uverbs_flow_spec_action_handle handle;
	struct ib_uverbs_flow_spec_action_count count;
};

static void specs_fill(struct all_specs *specs, const struct provider_flow_action *action,
		       struct provider_counters *counters)
{
#define SPEC(name, kind)                         \
	specs->name.type = IBV_FLOW_SPEC_##kind; \
	specs->name.size = sizeof(specs->name)
	memset(specs, 0, sizeof(*specs));
	specs->attr.type = IBV_FLOW_ATTR_NORMAL;
	specs->attr.num_of_specs = 10;
	specs->attr.port = 1;
	specs->attr.priority = 6;
	SPEC(eth, ETH | IBV_FLOW_SPEC_INNER);
	specs->eth.val.dst_mac[5] = 9;
	specs->eth.mask.vlan_tag = 0xffff;
	SPEC(ipv4, IPV4);
	specs->ipv4.val.dst_ip = 0x11223344;
	specs->ipv4.mask.src_ip = 0x55667788;
	SPEC(ipv4_ext, IPV4_EXT);
	specs->ipv4_ext.val.ttl = 5;
	specs->ipv4_ext.mask.flags = 6;
	SPEC(ipv6, IPV6);
	specs->ipv6.val.hop_limit = 7;
	specs->ipv6.mask.src_ip[0] = 8;
	specs->ipv6.mask.hop_limit = 9;
	SPEC(udp, UDP);
	specs->udp.val.src_port = 10;
	specs->udp.mask.dst_port = 11;
	SPEC(tunnel, VXLAN_TUNNEL);
	specs->tunnel.mask.tunnel_id = 12;
	SPEC(tag, ACTION_TAG);
	specs->tag.tag_id = 13;
	SPEC(drop, ACTION_DROP);
	SPEC(handle, ACTION_HANDLE);
	specs->handle.action = &action->ibv;
	SPEC(count, ACTION_COUNT);
	specs->count.counters = &counters->ibv;
#undef SPEC
}

static void flows_are_encoded(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_qp qp = {.context = &kernel->verbs->context, .handle = 21};
	const struct provider_flow_action action = {.handle = 14};
	struct provider_counters counters = {.handle = 15};
	struct ib_uverbs_create_flow_resp answer = {.flow_handle = 31};
	struct ibv_flow flow = {0};
	struct all_specs specs;
	struct all_kernel_specs sent;
	struct ib_uverbs_create_flow core;
	uint64_t driver = 0x8877665544332211;

	specs_fill(&specs, &action, &counters);
	memcpy(fake.answer, &answer, sizeof(answer));
	assert_int_equal(ibv_cmd_create_flow(&qp, &flow, (void *)&specs, &driver, sizeof(driver)),
			 0);
	assert_int_equal(flow.handle, 31);
	assert_int_equal(fake_attr(UVERBS_ATTR_CORE_IN)->len, sizeof(core) + sizeof(sent));
	assert_memory_equal(fake_value(UVERBS_ATTR_UHW_IN), &driver, sizeof(driver));
	memcpy(&core, fake.core, sizeof(core));
	memcpy(&sent, fake.core + sizeof(core), sizeof(sent));
	assert_int_equal(core.qp_handle, 21);
	assert_int_equal(core.flow_attr.size, sizeof(sent));
	assert_int_equal(core.flow_attr.num_of_specs, 10);
	assert_int_equal(core.flow_attr.priority, 6);
	assert_int_equal(core.flow_attr.port, 1);
	assert_int_equal(sent.eth.type, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER);
	assert_int_equal(sent.eth.size, sizeof(sent.eth));
	assert_int_equal(sent.eth.val.dst_mac[5], 9);
	assert_int_equal(sent.eth.mask.vlan_tag, 0xffff);
	assert_int_equal(sent.ipv4.header.size, sizeof(sent.ipv4));
	assert_int_equal(sent.ipv4.value[1], 0x11223344);
	assert_int_equal(sent.ipv4.mask[0], 0x55667788);
	assert_int_equal(sent.ipv4_ext.type, IBV_FLOW_SPEC_IPV4);
	assert_int_equal(sent.ipv4_ext.val.ttl, 5);
	assert_int_equal(sent.ipv4_ext.mask.flags, 6);
	assert_int_equal(sent.ipv6.size, sizeof(sent.ipv6));
	assert_int_equal(sent.ipv6.val.hop_limit, 7);
	assert_int_equal(sent.ipv6.mask.src_ip[0], 8);
	assert_int_equal(sent.ipv6.mask.hop_limit, 9);
	assert_int_equal(sent.udp.val.src_port, 10);
	assert_int_equal(sent.udp.mask.dst_port, 11);
	assert_int_equal(sent.tunnel.mask.tunnel_id, 12);
	assert_int_equal(sent.tag.tag_id, 13);
	assert_int_equal(sent.drop.size, 8);
	assert_int_equal(sent.handle.handle, 14);
	assert_int_equal(sent.count.handle, 15);
	assert_int_equal(ibv_cmd_destroy_flow(&flow), 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_CORE_IN)->data >> 32, 31);
	device_close(kernel);
}

/* A longer structure of a later program: what its mask names is refused, unless it is nothing. */
static void longer_specs(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_qp qp = {.context = &kernel->verbs->context, .handle = 21};
	struct ibv_flow flow = {0};
	struct {
		struct ibv_flow_attr attr;
		uint32_t type;
		uint16_t size;
		uint32_t value[4], mask[4]; /* 12 bytes, and 4 that we don't know */
	} specs = {.attr.num_of_specs = 1, .type = IBV_FLOW_SPEC_IPV4_EXT, .size = 8 + 32};
	struct ib_uverbs_flow_spec_ipv4 sent;

	specs.value[3] = 1;
	specs.mask[0] = 2;
	assert_int_equal(ibv_cmd_create_flow(&qp, &flow, &specs.attr, NULL, 0), 0);
	memcpy(&sent, fake.core + sizeof(struct ib_uverbs_create_flow), sizeof(sent));
	assert_int_equal(sent.mask.src_ip, 2);
	specs.mask[3] = 1;
	assert_int_equal(ibv_cmd_create_flow(&qp, &flow, &specs.attr, NULL, 0), EOPNOTSUPP);
	specs.size = 8 + 16;
	assert_int_equal(ibv_cmd_create_flow(&qp, &flow, &specs.attr, NULL, 0), EINVAL);
	specs.type = IBV_FLOW_SPEC_GRE | IBV_FLOW_SPEC_INNER;
	assert_int_equal(ibv_cmd_create_flow(&qp, &flow, &specs.attr, NULL, 0), EINVAL);
	device_close(kernel);
}

static void flow_actions(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	uint8_t keys[40] = {1, 2, 3};
	struct ibv_flow_action_esp esp = {.spi = 5};
	struct ibv_flow_action_esp_attr attr = {.esp_attr = &esp,
						.keymat_proto = 0,
						.keymat_len = sizeof(keys),
						.keymat_ptr = keys,
						.replay_proto = 1,
						.replay_len = 4,
						.replay_ptr = keys,
						.comp_mask = IBV_FLOW_ACTION_ESP_MASK_ESN,
						.esn = 17};
	struct provider_flow_action action = {0};

	assert_int_equal(
		ibv_cmd_create_flow_action_esp(&kernel->verbs->context, &attr, &action, NULL), 0);
	assert_int_equal(action.handle, FAKE_HANDLE);
	assert_int_equal(action.type, PROVIDER_FLOW_ACTION_ESP);
	assert_int_equal(fake_attr(UVERBS_ATTR_FLOW_ACTION_ESP_ESN)->data, 17);
	assert_int_equal(fake_attr(UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT)->len, sizeof(keys));
	assert_memory_equal(fake_value(UVERBS_ATTR_FLOW_ACTION_ESP_KEYMAT), keys, sizeof(keys));
	assert_int_equal(fake_attr(UVERBS_ATTR_FLOW_ACTION_ESP_REPLAY)->attr_data.enum_data.elem_id,
			 1);
	assert_memory_equal(fake_value(UVERBS_ATTR_FLOW_ACTION_ESP_ATTRS), &esp, sizeof(esp));
	assert_null(fake_attr(UVERBS_ATTR_FLOW_ACTION_ESP_ENCAP));
	assert_int_equal(ibv_cmd_modify_flow_action_esp(&action, &attr, NULL), 0);
	assert_int_equal(fake.header.method_id, UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY);
	assert_int_equal(fake_attr(UVERBS_ATTR_MODIFY_FLOW_ACTION_ESP_HANDLE)->data, FAKE_HANDLE);
	assert_int_equal(ibv_cmd_destroy_flow_action(&action), 0);
	device_close(kernel);
}

/* ------------------------------------------------------------------ device memory, counters */

static void device_memory(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_context *context = &kernel->verbs->context;
	struct ibv_pd pd = {.context = context, .handle = 3};
	const struct ibv_alloc_dm_attr attr = {.length = 4096, .log_align_req = 6};
	const unsigned int access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE;
	struct provider_dm dm = {0};
	struct provider_mr mr = {0};

	assert_int_equal(ibv_cmd_alloc_dm(context, &attr, &dm, NULL), 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_ALLOC_DM_LENGTH)->data, 4096);
	assert_int_equal(fake_attr(UVERBS_ATTR_ALLOC_DM_ALIGNMENT)->data, 6);
	assert_int_equal(dm.handle, FAKE_HANDLE);
	assert_int_equal(dm.ibv.handle, FAKE_HANDLE);
	assert_int_equal(dm.ibv.comp_mask, IBV_DM_MASK_HANDLE);
	assert_int_equal(ibv_cmd_reg_dm_mr(&pd, &dm, 64, 128, 0, &mr, NULL), EINVAL);
	assert_int_equal(ibv_cmd_reg_dm_mr(&pd, &dm, 64, 128, access, &mr, NULL), 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_REG_DM_MR_OFFSET)->data, 64);
	assert_int_equal(fake_attr(UVERBS_ATTR_REG_DM_MR_DM_HANDLE)->data, FAKE_HANDLE);
	assert_int_equal(mr.ibv.handle, FAKE_HANDLE);
	assert_int_equal(mr.ibv.length, 128);
	assert_null(mr.ibv.addr);
	assert_false(kernel_mr_is_pinned(&mr.ibv));
	assert_int_equal(ibv_cmd_free_dm(&dm), 0);
	assert_int_equal(fake.header.method_id, UVERBS_METHOD_DM_FREE);
	device_close(kernel);
	kernel = device_open(false);
	assert_int_equal(ibv_cmd_alloc_dm(&kernel->verbs->context, &attr, &dm, NULL), EOPNOTSUPP);
	device_close(kernel);
}

static void counters_are_read(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_counters_init_attr attr = {0}, unknown = {.comp_mask = 1};
	struct provider_counters counters = {0};
	uint64_t values[3] = {0};

	assert_int_equal(
		ibv_cmd_create_counters(&kernel->verbs->context, &unknown, &counters, NULL),
		EOPNOTSUPP);
	assert_int_equal(ibv_cmd_create_counters(&kernel->verbs->context, &attr, &counters, NULL),
			 0);
	assert_int_equal(counters.handle, FAKE_HANDLE);
	assert_int_equal(ibv_cmd_read_counters(&counters, values, 3, 1, NULL), 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_READ_COUNTERS_BUFF)->len, sizeof(values));
	assert_int_equal(fake_attr(UVERBS_ATTR_READ_COUNTERS_BUFF)->data, (uintptr_t)values);
	assert_int_equal(fake_attr(UVERBS_ATTR_READ_COUNTERS_FLAGS)->data, 1);
	assert_int_equal(ibv_cmd_destroy_counters(&counters), 0);
	device_close(kernel);
}

static void device_shows_them(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ib_uverbs_ex_query_device_resp answer = {.rss_caps.supported_qpts = 1 << 8,
							.rss_caps.max_rwq_indirection_tables = 9,
							.max_wq_type_rq = 10,
							.max_dm_size = 11};
	struct ibv_device_attr_ex attr;

	memcpy(fake.answer, &answer, sizeof(answer));
	assert_int_equal(ibv_cmd_query_device_any(&kernel->verbs->context, NULL, &attr,
						  sizeof(attr), NULL, NULL),
			 0);
	assert_int_equal(attr.rss_caps.supported_qpts, 1 << 8);
	assert_int_equal(attr.rss_caps.max_rwq_indirection_tables, 9);
	assert_int_equal(attr.max_wq_type_rq, 10);
	assert_int_equal(attr.max_dm_size, 11);
	device_close(kernel);
}

/* ------------------------------------------------------------------ XRC */

static void xrc_objects(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_context *context = &kernel->verbs->context;
	struct ibv_xrcd_init_attr xrcd_attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD |
							    IBV_XRCD_INIT_ATTR_OFLAGS,
					       .fd = -1,
					       .oflags = O_CREAT};
	struct ib_uverbs_open_xrcd_resp xrcd_response, xrcd_answer = {.xrcd_handle = 40};
	struct ib_uverbs_open_xrcd xrcd_core;
	struct ib_uverbs_create_srq_resp srq_response, srq_answer = {.srq_handle = 41, .srqn = 42};
	struct ib_uverbs_create_xsrq srq_core;
	struct provider_xrcd xrcd = {0};
	struct ibv_pd pd = {.context = context, .handle = 3};
	struct ibv_cq cq = {.context = context, .handle = 4};
	struct ibv_srq_init_attr_ex srq_attr = {
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = &pd,
		.xrcd = &xrcd.ibv,
		.cq = &cq};
	struct provider_srq srq = {0};

	memcpy(fake.answer, &xrcd_answer, sizeof(xrcd_answer));
	assert_int_equal(ibv_cmd_open_xrcd(context, &xrcd, sizeof(xrcd), &xrcd_attr, NULL, 0,
					   &xrcd_response, sizeof(xrcd_response)),
			 0);
	memcpy(&xrcd_core, fake.core, sizeof(xrcd_core));
	assert_int_equal(xrcd_core.fd, UINT32_MAX);
	assert_int_equal(xrcd_core.oflags, O_CREAT);
	assert_int_equal(xrcd.handle, 40);
	memcpy(fake.answer, &srq_answer, sizeof(srq_answer));
	assert_int_equal(ibv_cmd_create_srq_ex(context, &srq, &srq_attr, NULL, 0, &srq_response,
					       sizeof(srq_response)),
			 0);
	memcpy(&srq_core, fake.core, sizeof(srq_core));
	assert_int_equal(srq_core.xrcd_handle, 40);
	assert_int_equal(srq_core.cq_handle, 4);
	assert_int_equal(srq.number, 42);
	assert_ptr_equal(srq.xrcd, &xrcd);
	assert_int_equal(ibv_cmd_close_xrcd(&xrcd), 0);
	device_close(kernel);
}

static void xrc_queue_pair_is_opened(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct provider_xrcd xrcd = {.handle = 40};
	struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_NUM |
						     IBV_QP_OPEN_ATTR_TYPE,
					.qp_num = 77,
					.xrcd = &xrcd.ibv,
					.qp_type = IBV_QPT_XRC_RECV};
	struct ib_uverbs_create_qp_resp response, answer = {.qp_handle = 50};
	struct ib_uverbs_open_qp core;
	struct provider_qp qp = {0};

	memcpy(fake.answer, &answer, sizeof(answer));
	assert_int_equal(ibv_cmd_open_qp(&kernel->verbs->context, &qp, sizeof(qp), &attr, NULL, 0,
					 &response, sizeof(response)),
			 0);
	memcpy(&core, fake.core, sizeof(core));
	assert_int_equal(core.pd_handle, 40);
	assert_int_equal(core.qpn, 77);
	assert_int_equal(qp.ibv.handle, 50);
	assert_int_equal(qp.comp_mask, PROVIDER_QP_XRCD);
	device_close(kernel);
}

static void no_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, size_t length,
		     uint8_t type, uint8_t level)
{
	(void)qp, (void)rkey, (void)addr, (void)length, (void)type, (void)level;
}

/* With a driver of rdma-core 44, whose queue pairs have one function less, and with a newer one.
 */
static void extended_queue_pair_of_each_driver(void **state)
{
	(void)state;
	struct provider_qp qp = {0};
	uint64_t mask = PROVIDER_QP_EX;

	assert_null(kernel_qp_extended(&qp.ibv));
	qp.ex.wr_flush = no_flush;
	assert_null(kernel_qp_extended(&qp.ibv));
	qp.comp_mask = PROVIDER_QP_XRCD | PROVIDER_QP_EX;
	assert_ptr_equal(kernel_qp_extended(&qp.ibv), &qp.ex);
	qp.ex.wr_flush = NULL;
	assert_ptr_equal(kernel_qp_extended(&qp.ibv), &qp.ex);
	qp.comp_mask = 0;
	memcpy(&qp.ex.wr_flush, &mask, sizeof(mask));
	assert_ptr_equal(kernel_qp_extended(&qp.ibv), &qp.ex);
	mask = PROVIDER_QP_XRCD;
	memcpy(&qp.ex.wr_flush, &mask, sizeof(mask));
	qp.comp_mask = PROVIDER_QP_EX; /* the driver's own memory */
	assert_null(kernel_qp_extended(&qp.ibv));
}

/* ------------------------------------------------------------------ posting */

static void sends_are_posted(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(false);
	struct ibv_qp qp = {
		.context = &kernel->verbs->context, .handle = 21, .qp_type = IBV_QPT_RC};
	struct ibv_sge elements[] = {{.addr = 1, .length = 2, .lkey = 3},
				     {.addr = 4, .length = 5, .lkey = 6}};
	struct ibv_send_wr second = {.wr_id = 12,
				     .sg_list = &elements[1],
				     .num_sge = 1,
				     .opcode = IBV_WR_SEND_WITH_IMM,
				     .imm_data = htonl(0x1234)};
	struct ibv_send_wr first = {.wr_id = 11,
				    .next = &second,
				    .sg_list = elements,
				    .num_sge = 2,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = IBV_SEND_SIGNALED,
				    .wr.rdma = {.remote_addr = 0x1000, .rkey = 8}};
	struct ibv_send_wr *bad = NULL;
	struct ib_uverbs_post_send header;
	struct ib_uverbs_send_wr sent[2];
	uint32_t failed = 2;

	memset(fake.answer, 0, sizeof(fake.answer));
	assert_int_equal(ibv_cmd_post_send(&qp, &first, &bad), 0);
	assert_null(bad);
	memcpy(&header, fake.message + 8, sizeof(header));
	memcpy(sent, fake.message + 8 + sizeof(header), sizeof(sent));
	assert_int_equal(fake.message_size, 8 + sizeof(header) + sizeof(sent) + 3 * 16);
	assert_int_equal(header.qp_handle, 21);
	assert_int_equal(header.wr_count, 2);
	assert_int_equal(header.sge_count, 3);
	assert_int_equal(header.wqe_size, sizeof(sent[0]));
	assert_int_equal(sent[0].wr_id, 11);
	assert_int_equal(sent[0].wr.rdma.remote_addr, 0x1000);
	assert_int_equal(sent[0].wr.rdma.rkey, 8);
	assert_int_equal(sent[0].send_flags, IBV_SEND_SIGNALED);
	assert_int_equal(sent[1].ex.imm_data, htonl(0x1234));
	assert_memory_equal(fake.message + fake.message_size - 16, &elements[1], 16);
	assert_memory_equal(fake.message + fake.message_size - 48, elements, 32);
	/* The kernel names the request that failed. */
	fake.fail = ENOMEM;
	memcpy(fake.answer, &failed, sizeof(failed));
	assert_int_equal(ibv_cmd_post_send(&qp, &first, &bad), ENOMEM);
	assert_ptr_equal(bad, &second);
	/* It doesn't. */
	memset(fake.answer, 0, sizeof(failed));
	assert_int_equal(ibv_cmd_post_send(&qp, &first, &bad), ENOMEM);
	assert_ptr_equal(bad, &first);
	device_close(kernel);
}

/* A datagram has its address handle's handle. */
static void datagrams_are_posted(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_qp qp = {
		.context = &kernel->verbs->context, .handle = 21, .qp_type = IBV_QPT_UD};
	struct ibv_ah ah = {.handle = 60};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
				 .wr.ud = {.ah = &ah, .remote_qpn = 61, .remote_qkey = 62}};
	struct ibv_send_wr *bad;
	struct ib_uverbs_send_wr sent;

	memset(fake.answer, 0, sizeof(fake.answer));
	assert_int_equal(ibv_cmd_post_send(&qp, &wr, &bad), 0);
	memcpy(&sent, fake.core + sizeof(struct ib_uverbs_post_send), sizeof(sent));
	assert_int_equal(sent.wr.ud.ah, 60);
	assert_int_equal(sent.wr.ud.remote_qpn, 61);
	assert_int_equal(sent.wr.ud.remote_qkey, 62);
	device_close(kernel);
}

enum { LONG_LIST = 3000 };

/* More than one command takes: the rest goes with further ones, and an error names its request. */
static void long_lists_are_divided(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	struct ibv_srq srq = {.context = &kernel->verbs->context, .handle = 22};
	struct ibv_qp qp = {.context = &kernel->verbs->context, .handle = 21};
	struct ibv_recv_wr *list = calloc(LONG_LIST, sizeof(*list)), *bad = NULL;
	struct ibv_sge element = {.addr = 1, .length = 2, .lkey = 3};
	struct ib_uverbs_post_srq_recv header;
	unsigned int before = fake.ioctls;
	uint32_t failed = 1;

	for (int i = 0; i < LONG_LIST; i++)
		list[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)i,
					       .next = i + 1 < LONG_LIST ? &list[i + 1] : NULL,
					       .sg_list = &element,
					       .num_sge = 1};
	memset(fake.answer, 0, sizeof(fake.answer));
	assert_int_equal(ibv_cmd_post_srq_recv(&srq, list, &bad), 0);
	memcpy(&header, fake.core, sizeof(header));
	assert_int_equal(fake.command, IB_USER_VERBS_CMD_POST_SRQ_RECV);
	assert_int_equal(header.srq_handle, 22);
	assert_in_range(fake.ioctls - before, 3, 10);
	uint32_t portions = fake.ioctls - before;
	uint32_t whole = (LONG_LIST - header.wr_count) / (portions - 1);

	assert_int_equal(header.wr_count + (portions - 1) * whole, LONG_LIST);
	fake.fail = ENOMEM;
	fake.fail_after = 1;
	assert_int_equal(ibv_cmd_post_recv(&qp, list, &bad), ENOMEM);
	assert_ptr_equal(bad, &list[whole]);
	fake.fail_after = 0;
	memcpy(fake.answer, &failed, sizeof(failed));
	assert_int_equal(ibv_cmd_post_recv(&qp, &list[5], &bad), ENOMEM);
	assert_ptr_equal(bad, &list[5]);
	free(list);
	device_close(kernel);
}

/* ------------------------------------------------------------------ imported contexts */

/* Objects name the imported context's own descriptor of events. */
static void imported_objects(struct ibv_context *context)
{
	struct ibv_pd pd = {.context = context, .handle = 3};
	struct ibv_cq cq = {.context = context, .handle = 4};
	struct ibv_qp_init_attr qp_attr = {.send_cq = &cq,
					   .recv_cq = &cq,
					   .cap.max_send_wr = 5,
					   .qp_type = IBV_QPT_RC,
					   .sq_sig_all = 1};
	struct ibv_srq_init_attr srq_attr = {.attr.max_wr = 6};
	struct ibv_wq_init_attr wq_attr = {.pd = &pd, .cq = &cq, .max_wr = 7};
	struct ib_uverbs_create_qp_resp qp_response;
	struct ib_uverbs_create_srq_resp srq_response;
	struct ib_uverbs_create_cq_resp cq_response;
	struct ib_uverbs_ex_create_wq_resp wq_response;
	const int fd = context->async_fd;
	struct provider_cq new = {0};
	struct ibv_qp qp = {0};
	struct ibv_srq srq = {0};
	struct ibv_wq wq = {0};

	assert_int_equal(ibv_cmd_create_cq(context, 8, NULL, 0, &new.ibv, NULL, 0, &cq_response,
					   sizeof(cq_response)),
			 0);
	assert_int_equal(fake.header.method_id, UVERBS_METHOD_CQ_CREATE);
	assert_int_equal(fake_attr(UVERBS_ATTR_CREATE_CQ_EVENT_FD)->data, fd);
	assert_int_equal(new.ibv.handle, FAKE_HANDLE);
	assert_int_equal(
		ibv_cmd_create_qp(&pd, &qp, &qp_attr, NULL, 0, &qp_response, sizeof(qp_response)),
		0);
	assert_int_equal(fake.header.object_id, UVERBS_OBJECT_QP);
	assert_int_equal(fake_attr(UVERBS_ATTR_CREATE_QP_EVENT_FD)->data, fd);
	assert_int_equal(fake_attr(UVERBS_ATTR_CREATE_QP_FLAGS)->data,
			 IB_UVERBS_QP_CREATE_SQ_SIG_ALL);
	assert_int_equal(((const uint32_t *)fake_value(UVERBS_ATTR_CREATE_QP_CAP))[0], 5);
	assert_int_equal(qp.handle, FAKE_HANDLE);
	assert_int_equal(ibv_cmd_create_srq(&pd, &srq, &srq_attr, NULL, 0, &srq_response,
					    sizeof(srq_response)),
			 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_CREATE_SRQ_EVENT_FD)->data, fd);
	assert_int_equal(fake_attr(UVERBS_ATTR_CREATE_SRQ_MAX_WR)->data, 6);
	assert_int_equal(srq.handle, FAKE_HANDLE);
	assert_int_equal(ibv_cmd_create_wq(context, &wq_attr, &wq, NULL, 0, &wq_response,
					   sizeof(wq_response)),
			 0);
	assert_int_equal(fake_attr(UVERBS_ATTR_CREATE_WQ_EVENT_FD)->data, fd);
	assert_int_equal(wq.handle, FAKE_HANDLE);
}

static void context_is_shared(void **state)
{
	(void)state;
	struct kernel_context *kernel = device_open(true);
	int fd = open("/dev/null", O_RDWR), other = open("/dev/zero", O_RDWR);
	struct ibv_context *context = kernel_import(fd);

	assert_non_null(context);
	assert_true(kernel_of(context)->imported);
	assert_false(kernel->imported);
	assert_ptr_equal(kernel_of(context)->device, kernel->device);
	assert_int_equal(context->cmd_fd, fd);
	assert_true(context->async_fd >= 0);
	struct ibv_pd pd = {.context = context, .handle = 3};
	struct ibv_mr *mr = kernel_import_mr(kernel_of(context), &pd, 9);

	assert_non_null(mr);
	assert_int_equal(fake_attr(UVERBS_ATTR_QUERY_MR_HANDLE)->data, 9);
	assert_int_equal(mr->handle, 9);
	assert_false(kernel_mr_is_pinned(mr));
	kernel_unimport_mr(kernel_of(context), mr);
	errno = 0;
	assert_null(kernel_import_pd(kernel_of(context), 3)); /* the driver has none */
	assert_int_equal(errno, EOPNOTSUPP);
	imported_objects(context);
	kernel_close(kernel_of(context));
	assert_null(kernel_import(other)); /* another device's node */
	assert_int_equal(errno, ENODEV);
	assert_int_equal(close(other), 0);
	device_close(kernel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_queues_in_both_forms),
		cmocka_unit_test(work_queue_is_modified),
		cmocka_unit_test(tables_are_padded),
		cmocka_unit_test(flows_are_encoded),
		cmocka_unit_test(longer_specs),
		cmocka_unit_test(flow_actions),
		cmocka_unit_test(device_memory),
		cmocka_unit_test(counters_are_read),
		cmocka_unit_test(device_shows_them),
		cmocka_unit_test(xrc_objects),
		cmocka_unit_test(xrc_queue_pair_is_opened),
		cmocka_unit_test(extended_queue_pair_of_each_driver),
		cmocka_unit_test(sends_are_posted),
		cmocka_unit_test(datagrams_are_posted),
		cmocka_unit_test(long_lists_are_divided),
		cmocka_unit_test(context_is_shared),
	};

	unsetenv("VERBENA_DEVICES");
	verbs_register_driver_34(&fake_provider);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
