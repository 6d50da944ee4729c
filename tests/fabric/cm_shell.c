/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program of the connection manager that does what lines on its standard input say, one answer
 * for each, as verbs_shell does. One connection, RC, on a node of a fabric. Numbers are decimal.
 *
 *   port                          nothing; says that the program runs: error=
 *   listen IP PORT                error=
 *   accept                        waits for a request and the connection: error=
 *   connect IP PORT LID OWN-LID   by this path: error=
 *   load LID OWN-LID [GUID OWN-GUID]
 *                                 an alternate path, perhaps between other ports, whose GUIDs are
 *                                 hexadecimal; over the connection: error=, or event= status=
 *   send COUNT                    one after the other: status= done=
 *   receive COUNT                 waits for so many: done=
 *   migration                     state= dlid= alternate=
 *   disconnect, end               begins to disconnect; answers the peer's wish: error=
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lines.h"

enum { RECEIVES = 64, BYTES = 64, PATIENCE_MS = 60000 };

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener, *id;
static struct ibv_mr *mr;
static uint8_t memory[BYTES * 2];

/* The next event; its status, if it has one, else -1 unless it is the expected one. */
static int event_wait(enum rdma_cm_event_type wanted, struct rdma_cm_id **of)
{
	struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&ready, 1, PATIENCE_MS) != 1 || rdma_get_cm_event(channel, &event))
		return -ETIME;
	int status = event->event == wanted ? 0 : event->status ? event->status : -1;

	if (of)
		*of = event->id;
	rdma_ack_cm_event(event);
	return status;
}

static void receive_post(void)
{
	struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	ibv_post_recv(id->qp, &wr, &bad);
}

static int qp_make(void)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 8,
						.max_recv_wr = RECEIVES,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	if (rdma_create_qp(id, NULL, &init))
		return errno;
	mr = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; mr && i < RECEIVES; i++)
		receive_post();
	return mr ? 0 : errno;
}

static struct sockaddr_in address_of(char **words)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)atoi(words[2]))};

	inet_pton(AF_INET, words[1], &address.sin_addr);
	return address;
}

static struct ibv_path_data path_make(const char *lid, const char *own, uint32_t flags)
{
	const struct rdma_ib_addr *ends = &id->route.addr.addr.ibaddr;
	struct ibv_path_data data = {
		.flags = flags,
		.path = {.dgid = ends->dgid,
			 .sgid = ends->sgid,
			 .dlid = htons((uint16_t)atoi(lid)),
			 .slid = htons((uint16_t)atoi(own)),
			 .reversible_numpath = 0x81,
			 .pkey = 0xffff,
			 .mtu = 2 << 6 | IBV_MTU_2048,
			 .rate = 2 << 6 | IBV_RATE_200_GBPS,
			 .packetlifetime = 2 << 6 | 10},
	};

	return data;
}

/* ------------------------------------------------------------------ commands */

static void do_port(char **words)
{
	(void)words;
	printf("error=0\n");
}

static void do_listen(char **words)
{
	struct sockaddr_in address = address_of(words);
	int err = rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP);

	if (!err)
		err = rdma_bind_addr(listener, (struct sockaddr *)&address);
	if (!err)
		err = rdma_listen(listener, 1);
	printf("error=%d\n", err ? errno : 0);
}

static void do_accept(char **words)
{
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	int err = event_wait(RDMA_CM_EVENT_CONNECT_REQUEST, &id);

	(void)words;
	if (!err)
		err = qp_make();
	if (!err)
		err = rdma_accept(id, &param);
	if (!err)
		err = event_wait(RDMA_CM_EVENT_ESTABLISHED, NULL);
	printf("error=%d\n", err == -1 ? errno : err);
}

static void do_connect(char **words)
{
	struct rdma_conn_param param = {.retry_count = 3, .rnr_retry_count = 7};
	struct sockaddr_in address = address_of(words);
	const uint8_t timeout = 12; /* 17 ms */
	int err = rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);

	if (!err)
		err = rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 5000);
	if (!err)
		err = event_wait(RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	if (!err) {
		struct ibv_path_data path = path_make(words[3], words[4],
						      IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
							      IBV_PATH_FLAG_BIDIRECTIONAL);

		err = rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path);
	}
	if (!err)
		err = event_wait(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	if (!err)
		err = rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				      (void *)&timeout, sizeof timeout);
	if (!err)
		err = qp_make();
	if (!err)
		err = rdma_connect(id, &param);
	if (!err)
		err = event_wait(RDMA_CM_EVENT_ESTABLISHED, NULL);
	printf("error=%d\n", err == -1 ? errno : err);
}

static void do_load(char **words)
{
	struct ibv_path_data path = path_make(
		words[1], words[2], IBV_PATH_FLAG_ALTERNATE | IBV_PATH_FLAG_BIDIRECTIONAL);

	if (words[3] && words[4]) {
		path.path.dgid.global.interface_id = htobe64(strtoull(words[3], NULL, 16));
		path.path.sgid.global.interface_id = htobe64(strtoull(words[4], NULL, 16));
	}
	if (rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path)) {
		printf("error=%d\n", errno);
		return;
	}
	int status = event_wait(RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);

	printf("event=%s status=%d\n", status ? "other" : "ROUTE_RESOLVED", status);
}

static int completion_wait(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	return (int)wc.status;
}

static void do_send(char **words)
{
	struct ibv_sge sge = {(uintptr_t)memory + BYTES, BYTES, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	int done = 0, status = 0;

	for (int count = atoi(words[1]); done < count && !status; done += !status) {
		ibv_post_send(id->qp, &wr, &bad);
		status = completion_wait(id->send_cq);
	}
	printf("status=%d done=%d\n", status, done);
}

static void do_receive(char **words)
{
	int done = 0;

	for (int count = atoi(words[1]); done < count; done++) {
		if (completion_wait(id->recv_cq))
			break;
		receive_post();
	}
	printf("done=%d\n", done);
}

static void do_migration(char **words)
{
	static const char *const names[] = {"MIGRATED", "REARM", "ARMED"};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)words;
	ibv_query_qp(id->qp, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_AV | IBV_QP_ALT_PATH, &init);
	printf("state=%s dlid=%u alternate=%u\n", names[attr.path_mig_state], attr.ah_attr.dlid,
	       attr.alt_ah_attr.dlid);
}

static void do_disconnect(char **words)
{
	int err = rdma_disconnect(id);

	(void)words;
	if (!err)
		err = event_wait(RDMA_CM_EVENT_DISCONNECTED, NULL);
	printf("error=%d\n", err);
}

/* The peer's disconnection. */
static void do_end(char **words)
{
	int err = event_wait(RDMA_CM_EVENT_DISCONNECTED, NULL);

	(void)words;
	if (!err)
		err = rdma_disconnect(id);
	printf("error=%d\n", err);
}

static const struct command commands[] = {
	{"port", do_port},	 {"listen", do_listen},	      {"accept", do_accept},
	{"connect", do_connect}, {"load", do_load},	      {"send", do_send},
	{"receive", do_receive}, {"migration", do_migration}, {"disconnect", do_disconnect},
	{"end", do_end},
};

int main(void)
{
	channel = rdma_create_event_channel();
	if (!channel)
		return 1;
	lines_run(commands, sizeof commands / sizeof commands[0]);
	return 0;
}
