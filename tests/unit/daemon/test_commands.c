/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands of verbenad as a program could send them: every length, invalid handles, other
 * contexts' handles, objects in use, attributes beyond the limits. One daemon serves all tests;
 * after each, no object may be left.
 */
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "raw.h"
#include "shm/pub.h"

static struct raw_process process;
static int ctx;
static long fds_before;

static int open_context(void **state)
{
	(void)state;
	raw_expect_count(&server, "clients", 0);
	fds_before = raw_daemon_fds(&server);
	raw_attach(&server, &process);
	ctx = raw_context(&server, &process);
	return 0;
}

static int close_context(void **state)
{
	(void)state;
	close(ctx);
	raw_detach(&process);
	raw_expect_count(&server, "clients", 0);
	raw_expect_fds_equal(&server, fds_before);
	return 0;
}

/* ------------------------------------------------------------------ headers and lengths */

struct known {
	uint32_t command;
	size_t size, response;
};

#define ROW(number, request, reply)                                  \
	{                                                            \
		number, sizeof(struct request), sizeof(struct reply) \
	}
#define ROW0(number, request)                     \
	{                                         \
		number, sizeof(struct request), 0 \
	}

static const struct known on_context[] = {
	ROW(IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device, ib_uverbs_query_device_resp),
	ROW(IB_USER_VERBS_CMD_QUERY_PORT, ib_uverbs_query_port, ib_uverbs_query_port_resp),
	ROW(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp),
	ROW0(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd),
	ROW(IB_USER_VERBS_CMD_CREATE_AH, ib_uverbs_create_ah, proto_create_ah_resp),
	ROW0(IB_USER_VERBS_CMD_DESTROY_AH, ib_uverbs_destroy_ah),
	ROW(IB_USER_VERBS_CMD_REG_MR, ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp),
	ROW(IB_USER_VERBS_CMD_REREG_MR, ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp),
	ROW0(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr),
	ROW(IB_USER_VERBS_CMD_ALLOC_MW, ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp),
	ROW0(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw),
	ROW0(IB_USER_VERBS_CMD_ATTACH_MCAST, ib_uverbs_attach_mcast),
	ROW0(IB_USER_VERBS_CMD_DETACH_MCAST, ib_uverbs_detach_mcast),
	ROW(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel,
	    ib_uverbs_create_comp_channel_resp),
	ROW(IB_USER_VERBS_CMD_CREATE_CQ, ib_uverbs_create_cq, ib_uverbs_create_cq_resp),
	ROW(IB_USER_VERBS_CMD_RESIZE_CQ, ib_uverbs_resize_cq, ib_uverbs_resize_cq_resp),
	ROW(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq, ib_uverbs_destroy_cq_resp),
	ROW(IB_USER_VERBS_CMD_CREATE_QP, ib_uverbs_create_qp, ib_uverbs_create_qp_resp),
	ROW(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp),
	ROW(IB_USER_VERBS_CMD_CREATE_SRQ, ib_uverbs_create_srq, ib_uverbs_create_srq_resp),
	ROW(IB_USER_VERBS_CMD_CREATE_XSRQ, ib_uverbs_create_xsrq, ib_uverbs_create_srq_resp),
	ROW0(IB_USER_VERBS_CMD_MODIFY_SRQ, ib_uverbs_modify_srq),
	ROW(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq, ib_uverbs_destroy_srq_resp),
	ROW0(PROTO_DESTROY_CHANNEL, proto_handle),
	ROW(PROTO_OPEN_XRCD, proto_open_xrcd, proto_open_xrcd_resp),
	ROW0(IB_USER_VERBS_CMD_CLOSE_XRCD, ib_uverbs_close_xrcd),
	ROW(IB_USER_VERBS_CMD_CREATE_XSRQ, ib_uverbs_create_xsrq, ib_uverbs_create_srq_resp),
	ROW(IB_USER_VERBS_CMD_OPEN_QP, ib_uverbs_open_qp, ib_uverbs_create_qp_resp),
	ROW(PROTO_XRC_QUERY, proto_xrc_query, proto_xrc_state),
	ROW(PROTO_XRC_MODIFY, proto_xrc_modify, proto_xrc_state),
	ROW(PROTO_XRC_RETURNS, proto_xrc_returns, proto_xrc_state),
	ROW(PROTO_QUERY_GID, proto_query_gid, proto_query_gid_resp),
	ROW(PROTO_IMPORT_PD, proto_handle, proto_import_pd_resp),
	ROW0(PROTO_UNIMPORT_PD, proto_handle),
	ROW(PROTO_ROUTE, proto_route, proto_route_resp),
	ROW(PROTO_QUERY_MR, proto_handle, proto_query_mr_resp),
	ROW(PROTO_IMPORT_MR, proto_import_mr, proto_import_mr_resp),
	ROW(PROTO_CREATE_CHANNEL_CQ, ib_uverbs_create_cq, proto_create_channel_cq_resp),
	ROW(PROTO_CREATE_QP_CQS, proto_create_qp_cqs, proto_create_qp_cqs_resp),
	ROW(PROTO_ALLOC_NULL_MR, proto_handle, ib_uverbs_reg_mr_resp),
	ROW(PROTO_ALLOC_DM, proto_alloc_dm, proto_alloc_dm_resp),
	ROW0(PROTO_FREE_DM, proto_handle),
	ROW(PROTO_IMPORT_DM, proto_handle, proto_import_dm_resp),
	ROW(PROTO_REG_DM_MR, proto_reg_dm_mr, ib_uverbs_reg_mr_resp),
	ROW(PROTO_CREATE_FLOW, proto_create_flow, proto_create_flow_resp),
	ROW0(PROTO_DESTROY_FLOW, proto_handle),
};
#define ON_CONTEXT (sizeof(on_context) / sizeof(on_context[0]))

static int send_words(int fd, uint32_t command, size_t size, unsigned int in, unsigned int out)
{
	_Alignas(8) uint8_t packet[1024] = {0};
	const struct ib_uverbs_cmd_hdr header = {
		.command = command, .in_words = (uint16_t)in, .out_words = (uint16_t)out};

	memcpy(packet, &header, sizeof(header));
	assert_int_equal(raw_send(fd, packet, size, NULL, 0), 0);
	return raw_receive(fd, NULL, 0, NULL);
}

static void every_length_of_every_command(void **state)
{
	const size_t header = sizeof(struct ib_uverbs_cmd_hdr);

	(void)state;
	for (size_t i = 0; i < ON_CONTEXT; i++) {
		const struct known *k = &on_context[i];

		for (size_t size = 1; size < header + k->size + 64; size++) {
			unsigned int words = (unsigned int)(size / 4);
			int result = send_words(ctx, k->command, size, words, 512);

			if (size < header + k->size || size % 4)
				assert_int_equal(result, -EINVAL);
			if (size < header)
				continue;
			/* The header says another length than the packet has. */
			assert_int_equal(send_words(ctx, k->command, size, words + 1, 512),
					 -EINVAL);
			if (words)
				assert_int_equal(send_words(ctx, k->command, size, words - 1, 512),
						 -EINVAL);
		}
		/* No room for the response. */
		if (k->response)
			assert_int_equal(send_words(ctx, k->command, header + k->size,
						    (unsigned int)((header + k->size) / 4),
						    (unsigned int)(k->response / 4 - 1)),
					 -ENOSPC);
	}
}

static void every_unknown_command(void **state)
{
	(void)state;
	for (uint32_t number = 0; number < 256; number++) {
		int known = number == IB_USER_VERBS_CMD_GET_CONTEXT || number == PROTO_ATTACH ||
			    number == PROTO_LINK || number == PROTO_UNLINK ||
			    number == PROTO_LIST_DEVICES || number == PROTO_LINK_RETURN ||
			    number == PROTO_RETURNED || number == PROTO_XRC_REPORT ||
			    number == PROTO_XRC_MEMORY || number == PROTO_XRC_SOCKET ||
			    number == PROTO_XRC_MEMORY_RETURNS || number == PROTO_ALTERNATE ||
			    number == PROTO_SOURCE;

		for (size_t i = 0; i < ON_CONTEXT; i++)
			known |= on_context[i].command == number;
		if (!known)
			assert_int_equal(send_words(ctx, number, 200, 50, 512), -EOPNOTSUPP);
		if (number != IB_USER_VERBS_EX_CMD_QUERY_DEVICE)
			assert_int_equal(send_words(ctx, IB_USER_VERBS_CMD_FLAG_EXTENDED | number,
						    200, 22, 512),
					 -EOPNOTSUPP);
		/* Undefined bits. */
		assert_int_equal(send_words(ctx, 0x10000 | number, 200, 50, 512), -EINVAL);
		assert_int_equal(send_words(ctx, 0x100 | number, 200, 50, 512), -EINVAL);
	}
}

static void commands_on_the_wrong_connection(void **state)
{
	const struct ib_uverbs_alloc_pd alloc = {0};
	const struct proto_link link = {.slot = 1};
	const struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} get = {.udata.cookie = process.resp.cookie}, wrong = {.udata.cookie = 12345};
	int fresh = raw_connect(&server);

	(void)state;
	assert_int_equal(
		raw_call(fresh, IB_USER_VERBS_CMD_ALLOC_PD, &alloc, sizeof(alloc), NULL, 0),
		-EINVAL);
	assert_int_equal(raw_call(fresh, PROTO_LINK, &link, sizeof(link), NULL, 0), -EINVAL);
	assert_int_equal(raw_call(ctx, PROTO_LINK, &link, sizeof(link), NULL, 0), -EINVAL);
	assert_int_equal(
		raw_call(process.fd, IB_USER_VERBS_CMD_ALLOC_PD, &alloc, sizeof(alloc), NULL, 0),
		-EINVAL);
	/* A second context on one connection, a context on a process connection, with an unknown
	 * cookie, without a cookie. */
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get), NULL, 0),
			 -EINVAL);
	assert_int_equal(
		raw_call(process.fd, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get), NULL, 0),
		-EINVAL);
	assert_int_equal(
		raw_call(fresh, IB_USER_VERBS_CMD_GET_CONTEXT, &wrong, sizeof(wrong), NULL, 0),
		-ESTALE);
	assert_int_equal(
		raw_call(fresh, IB_USER_VERBS_CMD_GET_CONTEXT, &get, sizeof(get.core), NULL, 0),
		-EINVAL);
	close(fresh);
}

static void extended_query_device(void **state)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_ex_cmd_hdr ex;
		struct ib_uverbs_ex_query_device body;
		uint64_t more;
	} packet = {.header = {.command = IB_USER_VERBS_CMD_FLAG_EXTENDED |
					  IB_USER_VERBS_EX_CMD_QUERY_DEVICE}};
	struct ib_uverbs_ex_query_device_resp resp;
	const size_t size = offsetof(typeof(packet), more);

	(void)state;
	packet.header.in_words = sizeof(packet.body) / 8;
	packet.header.out_words = sizeof(resp) / 8;
	assert_int_equal(raw_send(ctx, &packet, size, NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, &resp, sizeof(resp), NULL), 0);
	assert_int_equal(resp.response_length, sizeof(resp));
	assert_int_equal(resp.base.vendor_id, DEVICE_VENDOR_ID);
	assert_int_equal(resp.base.max_sge, LIMIT_SGE);
	assert_int_equal(resp.base.phys_port_cnt, 1);
	/* An older client's shorter structure. */
	size_t shorter = offsetof(struct ib_uverbs_ex_query_device_resp, rss_caps);

	packet.header.out_words = (uint16_t)(shorter / 8);
	assert_int_equal(raw_send(ctx, &packet, size, NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, &resp, shorter, NULL), 0);
	assert_int_equal(resp.response_length, shorter);
	packet.header.out_words = 10;
	assert_int_equal(raw_send(ctx, &packet, size, NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, NULL, 0, NULL), -ENOSPC);
	/* A newer client's longer one, without and with something in it. */
	packet.header.out_words = sizeof(resp) / 8;
	packet.header.in_words = 2;
	assert_int_equal(raw_send(ctx, &packet, sizeof(packet), NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, NULL, 0, NULL), 0);
	packet.more = 1;
	assert_int_equal(raw_send(ctx, &packet, sizeof(packet), NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, NULL, 0, NULL), -EOPNOTSUPP);
	packet.ex.cmd_hdr_reserved = 1;
	assert_int_equal(raw_send(ctx, &packet, sizeof(packet), NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, NULL, 0, NULL), -EINVAL);
	assert_int_equal(raw_send(ctx, &packet, 12, NULL, 0), 0);
	assert_int_equal(raw_receive(ctx, NULL, 0, NULL), -EINVAL);
}

/* ------------------------------------------------------------------ queries */

static void device_and_port(void **state)
{
	const struct ib_uverbs_query_device query = {0};
	struct ib_uverbs_query_port port = {.port_num = 1};
	struct ib_uverbs_query_device_resp device;
	struct ib_uverbs_query_port_resp attr;
	struct proto_list_devices_resp list;

	(void)state;
	assert_int_equal(raw_call(ctx, PROTO_LIST_DEVICES, NULL, 0, &list, sizeof(list)), 0);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.device[0].name, "verbena0");
	assert_string_equal(list.device[0].node, "uverbs0");
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_QUERY_DEVICE, &query, sizeof(query),
				  &device, sizeof(device)),
			 0);
	assert_true(device.node_guid != 0);
	assert_true(device.node_guid == list.device[0].node_guid);
	assert_int_equal(device.max_mw, LIMIT_MW);
	assert_true(device.device_cap_flags & IB_UVERBS_DEVICE_MEM_WINDOW);
	assert_true(device.device_cap_flags & IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS);
	assert_true(device.device_cap_flags & IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B);
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_QUERY_PORT, &port, sizeof(port), &attr,
				  sizeof(attr)),
			 0);
	assert_int_equal(attr.state, 4);
	assert_in_range(attr.active_mtu, 1, 5); /* the card's: see test_devices.c */
	assert_int_equal(attr.gid_tbl_len, LIMIT_GIDS);
	assert_int_equal(attr.link_layer, 2);
	for (int number = 0; number < 256; number++) {
		port.port_num = (uint8_t)number;
		if (number != 1)
			assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_QUERY_PORT, &port,
						  sizeof(port), NULL, 0),
					 -EINVAL);
	}
}

static void gids(void **state)
{
	static const uint8_t loopback[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
	struct proto_query_gid query = {.port = 1};
	struct proto_query_gid_resp gid;
	bool has_loopback = false, shows_loopback = false, alone;

	(void)state;
	assert_int_equal(raw_call(ctx, PROTO_QUERY_GID, &query, sizeof(query), &gid, sizeof(gid)),
			 0);
	assert_int_equal(gid.type, 2);
	alone = !memcmp(gid.gid, loopback, 16); /* on a host without a network */
	for (query.index = 0; query.index < LIMIT_GID_INDICES; query.index++) {
		int result =
			raw_call(ctx, PROTO_QUERY_GID, &query, sizeof(query), &gid, sizeof(gid));

		assert_true(result == 0 || result == -ENODATA);
		if (result || memcmp(gid.gid, loopback, 16) != 0)
			continue;
		has_loopback = true;
		shows_loopback |= query.index < LIMIT_GIDS;
	}
	assert_true(has_loopback);
	assert_int_equal(shows_loopback, alone);
	assert_int_equal(raw_call(ctx, PROTO_QUERY_GID, &query, sizeof(query), NULL, 0), -EINVAL);
	query = (struct proto_query_gid){.port = 2};
	assert_int_equal(raw_call(ctx, PROTO_QUERY_GID, &query, sizeof(query), NULL, 0), -EINVAL);
}

/* ------------------------------------------------------------------ objects */

struct set {
	uint32_t pd, channel, cq, srq, mr, qp, ah, qpn;
	struct ib_uverbs_reg_mr_resp keys;
};

static struct set make_set(int fd)
{
	struct set s;

	s.pd = raw_pd(fd);
	s.channel = raw_channel(fd);
	s.cq = raw_cq(fd, (int32_t)s.channel);
	s.srq = raw_srq(fd, s.pd);
	s.mr = raw_mr(fd, s.pd, &s.keys);
	s.qp = raw_qp(fd, s.pd, s.cq, &s.qpn);
	s.ah = raw_ah(fd, s.pd);
	return s;
}

static const uint32_t destroyers[] = {
	IB_USER_VERBS_CMD_DESTROY_AH, IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_DESTROY_SRQ,
	IB_USER_VERBS_CMD_DEREG_MR,   IB_USER_VERBS_CMD_DESTROY_CQ, PROTO_DESTROY_CHANNEL,
	IB_USER_VERBS_CMD_DEALLOC_PD,
};
enum { DESTROYERS = 7 };

static void handles_in_order(const struct set *s, uint32_t handles[DESTROYERS])
{
	const uint32_t list[DESTROYERS] = {s->ah, s->qp, s->srq, s->mr, s->cq, s->channel, s->pd};

	memcpy(handles, list, sizeof(list));
}

/* Sends a command without an answer: the next answer belongs to the next request. */
static void post(int fd, uint32_t command, uint32_t handle)
{
	const struct {
		struct ib_uverbs_cmd_hdr header;
		uint32_t words[4];
	} early = {{.command = command | PROTO_POSTED, .in_words = 6}, {handle}},
	  late = {{.command = command | PROTO_POSTED, .in_words = 6}, {0, 0, handle}};
	bool is_late =
		command == IB_USER_VERBS_CMD_DESTROY_CQ || command == IB_USER_VERBS_CMD_DESTROY_QP;

	assert_int_equal(raw_send(fd, is_late ? &late : &early, sizeof(early), NULL, 0), 0);
}

static void posted_is_done_and_not_answered(void **state)
{
	struct set s = make_set(ctx);

	(void)state;
	/* A CQ in use stays, and an unknown handle has no effect. */
	post(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, s.cq);
	post(ctx, PROTO_DESTROY_CHANNEL, s.channel);
	post(ctx, IB_USER_VERBS_CMD_DESTROY_QP, 0xffffff);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, s.cq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, s.channel), -EBUSY);
	post(ctx, IB_USER_VERBS_CMD_DESTROY_QP, s.qp);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_QP, s.qp), -ENOENT);
	post(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, s.cq);
	post(ctx, PROTO_DESTROY_CHANNEL, s.channel);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, s.cq), -ENOENT);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, s.channel), -ENOENT);
	/* Commands that create objects are always answered, and so are those that may fail. */
	assert_int_equal(send_words(ctx, IB_USER_VERBS_CMD_CREATE_CQ | PROTO_POSTED, 40, 10, 4),
			 -EINVAL);
	assert_int_equal(send_words(ctx, IB_USER_VERBS_CMD_DEALLOC_PD | PROTO_POSTED, 12, 3, 0),
			 -EINVAL);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_AH, s.ah), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_SRQ, s.srq), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEREG_MR, s.mr), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, s.pd), 0);
}

static void expect_objects(size_t channels, size_t cqs, size_t qps)
{
	json_t *resources = raw_ctl(&server, "{\"op\":\"resources\"}\n");

	assert_int_equal(json_array_size(json_object_get(resources, "channel")), channels);
	assert_int_equal(json_array_size(json_object_get(resources, "cq")), cqs);
	assert_int_equal(json_array_size(json_object_get(resources, "qp")), qps);
	json_decref(resources);
}

static void channel_with_its_first_cq(void **state)
{
	struct ib_uverbs_create_cq body = {.cqe = 16, .comp_channel = -1};
	struct proto_create_channel_cq_resp resp;

	(void)state;
	assert_int_equal(
		raw_call(ctx, PROTO_CREATE_CHANNEL_CQ, &body, sizeof(body), &resp, sizeof(resp)),
		0);
	uint32_t other = raw_cq(ctx, (int32_t)resp.channel);

	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, resp.cq), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, resp.channel), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, other), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, resp.channel), 0);
	/* None without the other. */
	body.cqe = LIMIT_CQE + 1;
	assert_int_equal(
		raw_call(ctx, PROTO_CREATE_CHANNEL_CQ, &body, sizeof(body), &resp, sizeof(resp)),
		-EINVAL);
	expect_objects(0, 0, 0);
}

static void qp_with_its_cqs(void **state)
{
	struct proto_create_qp_cqs body = {.send = {.cqe = 16},
					   .recv = {.cqe = 32},
					   .qp = {.pd_handle = raw_pd(ctx), .qp_type = 2}};
	struct proto_create_qp_cqs_resp resp;

	(void)state;
	assert_int_equal(
		raw_call(ctx, PROTO_CREATE_QP_CQS, &body, sizeof(body), &resp, sizeof(resp)), 0);
	expect_objects(2, 2, 1);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, resp.send.cq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, resp.recv.cq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_QP, resp.qp.qp_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, resp.send.cq), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, resp.send.channel), 0);
	/* The other one serves another QP, which brings only one of its own. */
	body.recv.cqe = 0;
	body.qp.recv_cq_handle = resp.recv.cq;
	const uint32_t old = resp.recv.cq, channel = resp.recv.channel;

	assert_int_equal(
		raw_call(ctx, PROTO_CREATE_QP_CQS, &body, sizeof(body), &resp, sizeof(resp)), 0);
	expect_objects(2, 2, 1);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_QP, resp.qp.qp_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, resp.send.cq), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, resp.send.channel), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, old), 0);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, channel), 0);
	/* All or none of them are created. */
	for (int i = 0; i < 4; i++) {
		struct proto_create_qp_cqs wrong = {
			.send = {.cqe = i == 0 ? LIMIT_CQE + 1 : 16},
			.recv = {.cqe = i == 1 ? 0 : 16, .comp_vector = i == 2 ? 4096 : 0},
			.qp = {.pd_handle = i == 3 ? 0xffffff : body.qp.pd_handle, .qp_type = 2}};

		wrong.qp.recv_cq_handle = 0xffffff;
		assert_int_equal(raw_call(ctx, PROTO_CREATE_QP_CQS, &wrong, sizeof(wrong), &resp,
					  sizeof(resp)),
				 -EINVAL);
		expect_objects(0, 0, 0);
	}
}

static void in_use_is_busy(void **state)
{
	struct set s = make_set(ctx);
	uint32_t handles[DESTROYERS];

	(void)state;
	assert_int_equal(s.qpn >> LIMIT_QP_BITS, process.resp.slot);
	assert_int_equal(s.keys.rkey, s.keys.lkey);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DEALLOC_PD, s.pd), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, s.cq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, PROTO_DESTROY_CHANNEL, s.channel), -EBUSY);
	handles_in_order(&s, handles);
	for (int i = 0; i < DESTROYERS; i++) {
		assert_int_equal(raw_destroy(ctx, destroyers[i], handles[i]), 0);
		assert_int_equal(raw_destroy(ctx, destroyers[i], handles[i]), -ENOENT);
	}
}

static void srq_in_use_is_busy(void **state)
{
	uint32_t pd = raw_pd(ctx), cq = raw_cq(ctx, -1), srq = raw_srq(ctx, pd);
	const struct ib_uverbs_create_qp body = {.pd_handle = pd,
						 .send_cq_handle = cq,
						 .recv_cq_handle = cq,
						 .srq_handle = srq,
						 .is_srq = 1,
						 .qp_type = 2};
	struct ib_uverbs_create_qp_resp resp;

	(void)state;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_QP, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_SRQ, srq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_QP, resp.qp_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_SRQ, srq), 0);
}

static int make_xsrq(const struct ib_uverbs_create_xsrq *body,
		     struct ib_uverbs_create_srq_resp *resp)
{
	return raw_call(ctx, IB_USER_VERBS_CMD_CREATE_XSRQ, body, sizeof(*body), resp,
			sizeof(*resp));
}

static void tag_matching_srq(void **state)
{
	uint32_t pd = raw_pd(ctx), cq = raw_cq(ctx, -1);
	const struct ib_uverbs_create_xsrq right = {.srq_type = IB_UVERBS_SRQT_TM,
						    .pd_handle = pd,
						    .cq_handle = cq,
						    .max_wr = 4,
						    .max_sge = 1,
						    .max_num_tags = LIMIT_TAGS};
	struct ib_uverbs_create_xsrq body = right;
	struct ib_uverbs_create_srq_resp resp;

	(void)state;
	body.max_num_tags = 0;
	assert_int_equal(make_xsrq(&body, &resp), -EINVAL);
	body.max_num_tags = LIMIT_TAGS + 1;
	assert_int_equal(make_xsrq(&body, &resp), -EINVAL);
	body = right, body.cq_handle = pd;
	assert_int_equal(make_xsrq(&body, &resp), -EINVAL);
	body = right, body.pd_handle = cq;
	assert_int_equal(make_xsrq(&body, &resp), -EINVAL);
	body = right, body.max_wr = 0;
	assert_int_equal(make_xsrq(&body, &resp), -EINVAL);
	assert_int_equal(make_xsrq(&right, &resp), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, cq), -EBUSY);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_SRQ, resp.srq_handle), 0);
	assert_int_equal(raw_destroy(ctx, IB_USER_VERBS_CMD_DESTROY_CQ, cq), 0);
}

static void wrong_handles(void **state)
{
	struct set s = make_set(ctx);
	uint32_t handles[DESTROYERS];

	(void)state;
	handles_in_order(&s, handles);
	for (int i = 0; i < DESTROYERS; i++) {
		/* Handles of another kind, unknown ones, and neighbours. */
		for (int j = 0; j < DESTROYERS; j++)
			if (i != j)
				assert_int_equal(raw_destroy(ctx, destroyers[i], handles[j]),
						 -ENOENT);
		assert_int_equal(raw_destroy(ctx, destroyers[i], 0), -ENOENT);
		assert_int_equal(raw_destroy(ctx, destroyers[i], UINT32_MAX), -ENOENT);
		assert_int_equal(raw_destroy(ctx, destroyers[i], handles[i] + 100), -ENOENT);
		assert_int_equal(raw_destroy(ctx, destroyers[i], handles[i] | 1u << 31), -ENOENT);
		assert_int_equal(raw_destroy(ctx, destroyers[i], handles[i] + (1u << 22)), -ENOENT);
	}
	assert_int_equal(raw_count(&server, "qp"), 1);
	assert_int_equal(raw_count(&server, "pd"), 1);
}

static void others_handles(void **state)
{
	struct raw_process other;
	uint32_t handles[DESTROYERS];

	(void)state;
	raw_attach(&server, &other);
	int theirs = raw_context(&server, &other), second = raw_context(&server, &process);
	struct set s = make_set(theirs);

	/* Shifts this context's table, so that equal handles can't hide a fault. */
	for (int i = 0; i < 40; i++)
		raw_pd(ctx);
	raw_pd(second);
	handles_in_order(&s, handles);
	for (int i = 0; i < DESTROYERS; i++) {
		int result = raw_destroy(ctx, destroyers[i], handles[i]);

		/* This context's own object may have the same handle; then that one was
		 * destroyed. */
		if (destroyers[i] != IB_USER_VERBS_CMD_DEALLOC_PD)
			assert_int_equal(result, -ENOENT);
		result = raw_destroy(second, destroyers[i], handles[i]);
		if (destroyers[i] != IB_USER_VERBS_CMD_DEALLOC_PD)
			assert_int_equal(result, -ENOENT);
	}
	/* All objects of the other context still exist. */
	for (int i = 0; i < DESTROYERS; i++)
		assert_int_equal(raw_destroy(theirs, destroyers[i], handles[i]), 0);
	close(theirs);
	close(second);
	raw_detach(&other);
	raw_expect_count(&server, "clients", 1);
}

static int create_cq(uint32_t cqe, uint32_t vector, int32_t channel)
{
	const struct ib_uverbs_create_cq body = {
		.cqe = cqe, .comp_vector = vector, .comp_channel = channel};

	return raw_call(ctx, IB_USER_VERBS_CMD_CREATE_CQ, &body, sizeof(body), NULL, 0);
}

static void cq_attributes(void **state)
{
	struct ib_uverbs_resize_cq resize = {.cq_handle = raw_cq(ctx, -1), .cqe = 100};

	(void)state;
	assert_int_equal(create_cq(0, 0, -1), -EINVAL);
	assert_int_equal(create_cq(1, 0, -1), 0);
	assert_int_equal(create_cq(LIMIT_CQE, LIMIT_COMP_VECTORS - 1, -1), 0);
	assert_int_equal(create_cq(LIMIT_CQE + 1, 0, -1), -EINVAL);
	assert_int_equal(create_cq(UINT32_MAX, 0, -1), -EINVAL);
	assert_int_equal(create_cq(1, LIMIT_COMP_VECTORS, -1), -EINVAL);
	assert_int_equal(create_cq(1, 0, 12345), -EINVAL);
	assert_int_equal(create_cq(1, 0, 0), -EINVAL);
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_RESIZE_CQ, &resize, sizeof(resize), NULL, 0), 0);
	resize.cqe = LIMIT_CQE + 1;
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_RESIZE_CQ, &resize, sizeof(resize), NULL, 0),
		-EINVAL);
	resize.cqe = 0;
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_RESIZE_CQ, &resize, sizeof(resize), NULL, 0),
		-EINVAL);
}

static int create_qp(const struct ib_uverbs_create_qp *body)
{
	return raw_call(ctx, IB_USER_VERBS_CMD_CREATE_QP, body, sizeof(*body), NULL, 0);
}

static bool is_type(int type)
{
	return (type >= 2 && type <= 4) || type == IB_UVERBS_QPT_RAW_PACKET ||
	       type == (int)PROTO_QPT_WQ;
}

static void qp_attributes(void **state)
{
	uint32_t pd = raw_pd(ctx), cq = raw_cq(ctx, -1);
	const struct ib_uverbs_create_qp good = {
		.pd_handle = pd, .send_cq_handle = cq, .recv_cq_handle = cq, .qp_type = 2};
	struct ib_uverbs_create_qp b;

	(void)state;
	for (int type = 0; type < 256; type++) {
		b = good;
		b.qp_type = (uint8_t)type;
		/* An XRC target's pd_handle is a domain's. */
		assert_int_equal(create_qp(&b), type == IB_UVERBS_QPT_XRC_TGT ? -EINVAL
						: is_type(type) || type == IB_UVERBS_QPT_XRC_INI
							? 0
							: -EOPNOTSUPP);
	}
	b = good;
	b.max_send_wr = LIMIT_QP_WR + 1;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.max_recv_wr = UINT32_MAX;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.max_send_sge = LIMIT_SGE + 1;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.max_recv_sge = LIMIT_SGE + 1;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.max_inline_data = LIMIT_INLINE + 1;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.pd_handle = cq;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.send_cq_handle = pd;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.recv_cq_handle = 0;
	assert_int_equal(create_qp(&b), -EINVAL);
	b = good;
	b.is_srq = 1;
	b.srq_handle = pd;
	assert_int_equal(create_qp(&b), -EINVAL);
	/* No partly created object is left: the CQ is used by the six QPs that were created. */
	assert_int_equal(raw_count(&server, "qp"), 6);
}

static void srq_attributes(void **state)
{
	struct ib_uverbs_create_srq body = {.pd_handle = raw_pd(ctx), .max_wr = LIMIT_SRQ_WR};
	struct ib_uverbs_modify_srq modify = {.attr_mask = 1, .max_wr = 10};

	(void)state;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_SRQ, &body, sizeof(body), NULL, 0),
			 0);
	body.max_wr++;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_SRQ, &body, sizeof(body), NULL, 0),
			 -EINVAL);
	body.max_wr = 1;
	body.max_sge = LIMIT_SGE + 1;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_SRQ, &body, sizeof(body), NULL, 0),
			 -EINVAL);
	modify.srq_handle = raw_srq(ctx, body.pd_handle);
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_MODIFY_SRQ, &modify, sizeof(modify), NULL, 0), 0);
	modify.max_wr = LIMIT_SRQ_WR + 1;
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_MODIFY_SRQ, &modify, sizeof(modify), NULL, 0),
		-EINVAL);
	modify.attr_mask = 4;
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_MODIFY_SRQ, &modify, sizeof(modify), NULL, 0),
		-EINVAL);
	modify.attr_mask = 2;
	modify.srq_limit = 11;
	assert_int_equal(
		raw_call(ctx, IB_USER_VERBS_CMD_MODIFY_SRQ, &modify, sizeof(modify), NULL, 0),
		-EINVAL);
}

static void ah_attributes(void **state)
{
	struct ib_uverbs_create_ah body = {.pd_handle = raw_pd(ctx),
					   .attr = {.is_global = 1, .port_num = 1}};

	(void)state;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_AH, &body, sizeof(body), NULL, 0),
			 0);
	body.attr.port_num = 2;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_AH, &body, sizeof(body), NULL, 0),
			 -EINVAL);
	body.attr.port_num = 1;
	body.attr.is_global = 0;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_AH, &body, sizeof(body), NULL, 0),
			 -EINVAL);
	body.attr.is_global = 1;
	body.attr.grh.sgid_index = 255;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_AH, &body, sizeof(body), NULL, 0),
			 -EINVAL);
}

static void all_qp_numbers(void **state)
{
	uint32_t pd = raw_pd(ctx), cq = raw_cq(ctx, -1), qpn;
	static uint8_t seen[LIMIT_QPS_PER_SLOT];
	const struct ib_uverbs_create_qp body = {
		.pd_handle = pd, .send_cq_handle = cq, .recv_cq_handle = cq, .qp_type = 2};

	(void)state;
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 1; i < LIMIT_QPS_PER_SLOT; i++) {
		raw_qp(ctx, pd, cq, &qpn);
		assert_int_equal(qpn >> LIMIT_QP_BITS, process.resp.slot);
		assert_false(seen[qpn % LIMIT_QPS_PER_SLOT]);
		seen[qpn % LIMIT_QPS_PER_SLOT] = 1;
	}
	assert_false(seen[0]);
	assert_int_equal(create_qp(&body), -ENOMEM);
}

/* ------------------------------------------------------------------ what `verbena` shows */

static void resources_are_shown(void **state)
{
	static const char *const kinds[] = {"pd", "mr", "cq", "qp", "srq", "ah", "channel"};
	struct set s = make_set(ctx);
	json_t *reply = raw_ctl(&server, "{\"op\":\"resources\"}"); /* the end, without newline */

	(void)state;
	assert_true(json_is_true(json_object_get(reply, "ok")));
	for (size_t i = 0; i < 7; i++) {
		const json_t *list = json_object_get(reply, kinds[i]);
		const json_t *entry = json_array_get(list, 0);

		assert_int_equal(json_array_size(list), 1);
		assert_int_equal(json_integer_value(json_object_get(entry, "pid")), getpid());
		assert_true(json_is_string(json_object_get(entry, "comm")));
		assert_null(json_object_get(entry, "lkey"));
	}
	const json_t *qp = json_array_get(json_object_get(reply, "qp"), 0);

	assert_int_equal(json_integer_value(json_object_get(qp, "qpn")), s.qpn);
	assert_string_equal(json_string_value(json_object_get(qp, "type")), "RC");
	assert_string_equal(json_string_value(json_object_get(qp, "state")), "RESET");
	json_decref(reply);
}

/* One process can create as many objects as the device reports, and the device reports no fewer. */
static void claims_are_limits(void **state)
{
	const struct ib_uverbs_query_device body = {0};
	struct ib_uverbs_query_device_resp resp;
	uint32_t pd = raw_pd(ctx), cq = raw_cq(ctx, -1), qpn;

	(void)state;
	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_QUERY_DEVICE, &body, sizeof(body), &resp,
				  sizeof(resp)),
			 0);
	/* In one slot, a number is reserved for multicast groups. */
	assert_int_equal(resp.max_qp, LIMIT_QPS_PER_SLOT - 2);
	assert_int_equal(resp.max_res_rd_atom, resp.max_qp * LIMIT_RD_ATOM);
	for (uint32_t i = 0; i < resp.max_qp; i++)
		raw_qp(ctx, pd, cq, &qpn);
	assert_int_equal(resp.max_ah, LIMIT_AH);
	for (uint32_t i = 0; i < resp.max_ah; i++)
		raw_ah(ctx, pd);
	const struct ib_uverbs_create_ah ah = {.pd_handle = pd,
					       .attr = {.is_global = 1, .port_num = 1}};

	assert_int_equal(raw_call(ctx, IB_USER_VERBS_CMD_CREATE_AH, &ah, sizeof(ah), NULL, 0),
			 -ENOMEM);
	/* Nothing is said of the others that is no quota of a process (context.c). */
	assert_int_equal(resp.max_cq, LIMIT_CQ);
	assert_int_equal(resp.max_pd, LIMIT_PD);
	assert_int_equal(resp.max_srq, LIMIT_SRQ);
	assert_int_equal(resp.max_mr, LIMIT_MRS_PER_SLOT - 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_context, close_context)
	const struct CMUnitTest tests[] = {
		TEST(every_length_of_every_command),
		TEST(every_unknown_command),
		TEST(commands_on_the_wrong_connection),
		TEST(extended_query_device),
		TEST(device_and_port),
		TEST(gids),
		TEST(posted_is_done_and_not_answered),
		TEST(channel_with_its_first_cq),
		TEST(qp_with_its_cqs),
		TEST(in_use_is_busy),
		TEST(srq_in_use_is_busy),
		TEST(tag_matching_srq),
		TEST(wrong_handles),
		TEST(others_handles),
		TEST(cq_attributes),
		TEST(qp_attributes),
		TEST(srq_attributes),
		TEST(ah_attributes),
		TEST(all_qp_numbers),
		TEST(claims_are_limits),
		TEST(resources_are_shown),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
