/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared receive queues of identifiers, their queue pairs' CQs, and options, with the errno of each
 * wrong use; calls of later releases (rdma/later.h). Server and client are two identifiers of this
 * process.
 *
 * usage: cm_options ADDRESS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <rdma/later.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"

static struct sockaddr *host, *host_port;
static struct rdma_cm_id *listener;

/* "0" chooses a port. */
static struct sockaddr *address(const char *text, const char *port)
{
	static struct sockaddr_storage places[2];
	static unsigned int next;
	struct sockaddr_storage *place = &places[next++ % 2];
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;

	MUST(!getaddrinfo(text, port, &hints, &found));
	memcpy(place, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return (struct sockaddr *)place;
}

static void listen_somewhere(const char *text)
{
	char port[8];

	host = address(text, "0");
	MUST(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, host));
	MUST(!rdma_listen(listener, 4));
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(listener)));
	host_port = address(text, port);
}

/* An identifier that has its route. */
static struct rdma_cm_id *client_make(void)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, host_port, 2000));
	MUST(!rdma_resolve_route(id, 2000));
	return id;
}

static struct ibv_qp_init_attr queue_attr(uint32_t receives)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 4,
			.max_recv_wr = receives,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
}

static int option(struct rdma_cm_id *id, int level, int name, const void *value, size_t size)
{
	return rdma_set_option(id, level, name, (void *)value, size);
}

/* ------------------------------------------------------------------ shared receive queues */

enum { MESSAGES = 50, BYTES = 64 };

/* Connects the client, whose QP exists, to the listener's next request, whose QP takes the receives
 * of an SRQ of its own. Returns the server's identifier. */
static struct rdma_cm_id *connect_with_srq(struct rdma_cm_id *client, uint8_t *memory,
					   struct ibv_mr **mr)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = MESSAGES, .max_sge = 1}};
	struct ibv_qp_init_attr queues = queue_attr(0);
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *server;

	/* Synchronous calls of one side wait for the other, so both get a channel. */
	struct rdma_event_channel *channel = rdma_create_event_channel();

	MUST(channel && !rdma_migrate_id(client, channel));
	MUST(!rdma_connect(client, &param));
	MUST(!rdma_get_request(listener, &server));
	MUST(!rdma_create_srq(server, NULL, &srq));
	MUST(server->srq && server->pd && srq.attr.max_wr >= MESSAGES);
	REFUSED(rdma_create_srq(server, NULL, &srq), EINVAL); /* one is enough */
	MUST(!rdma_create_qp(server, NULL, &queues));
	MUST(server->qp->srq == server->srq);
	*mr = rdma_reg_msgs(server, memory, BYTES * MESSAGES);
	MUST(*mr);
	for (uintptr_t i = 0; i < MESSAGES; i++)
		MUST(!rdma_post_recv(server, (void *)i, memory + i * BYTES, BYTES, *mr));
	MUST(!rdma_migrate_id(server, channel));
	MUST(!rdma_accept(server, &param));
	for (int i = 0; i < 2; i++) {
		struct rdma_cm_event *event;

		MUST(!rdma_get_cm_event(channel, &event));
		MUST(event->event == RDMA_CM_EVENT_ESTABLISHED);
		MUST(!rdma_ack_cm_event(event));
	}
	return server;
}

/* On Ethernet a connection has no alternate path, and goes on without one. */
static void alternate_path(struct rdma_cm_id *id)
{
	const uint32_t flags = IBV_PATH_FLAG_ALTERNATE | IBV_PATH_FLAG_BIDIRECTIONAL;
	uint8_t record[72] = {0};

	memcpy(record, &flags, sizeof(flags));
	memcpy(record + 8 + 8, &id->route.addr.addr.ibaddr.dgid, 16);
	memcpy(record + 8 + 24, &id->route.addr.addr.ibaddr.sgid, 16);
	REFUSED(option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, record, sizeof(record)),
		EOPNOTSUPP);
}

/* More messages than the QP says it can receive: its CQ has room for the SRQ's. */
static void messages(void)
{
	static uint8_t to[BYTES * MESSAGES], from[BYTES] = {42};
	struct rdma_cm_id *client = client_make();
	struct ibv_qp_init_attr queues = queue_attr(4);
	struct ibv_mr *sent, *received;
	struct ibv_wc wc;

	MUST(!rdma_create_qp(client, NULL, &queues));
	struct rdma_cm_id *server = connect_with_srq(client, to, &received);

	alternate_path(client);
	alternate_path(server);
	sent = rdma_reg_msgs(client, from, sizeof(from));
	for (int i = 0; i < MESSAGES; i++) {
		MUST(!rdma_post_send(client, NULL, from, sizeof(from), sent, 0));
		MUST(rdma_get_send_comp(client, &wc) == 1 && !wc.status);
	}
	for (uintptr_t i = 0; i < MESSAGES; i++) {
		MUST(rdma_get_recv_comp(server, &wc) == 1 && !wc.status);
		MUST(wc.wr_id == i && to[i * BYTES] == 42);
	}
	struct rdma_event_channel *channel = client->channel;

	rdma_disconnect(client);
	rdma_destroy_qp(server);
	MUST(server->srq && server->recv_cq); /* they outlive the QP */
	rdma_destroy_srq(server);
	MUST(!server->srq && !server->recv_cq);
	MUST(!rdma_dereg_mr(received) && !rdma_dereg_mr(sent));
	rdma_destroy_qp(client);
	MUST(!rdma_destroy_id(server) && !rdma_destroy_id(client));
	rdma_destroy_event_channel(channel);
}

/* rdma_create_srq_ex(): kinds and domains. */
static void kinds(void)
{
	struct rdma_cm_id *id = client_make();
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 8};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(id->verbs, &cq_attr);
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
	struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 4, .max_sge = 1}};

	MUST(cq && pd);
	REFUSED(rdma_create_srq_ex(id, &attr), EINVAL); /* its type must be given */
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	attr.pd = pd;
	MUST(!rdma_create_srq_ex(id, &attr) && id->srq->pd == pd);
	rdma_destroy_srq(id);
	attr.srq_type = IBV_SRQT_TM;
	REFUSED(rdma_create_srq_ex(id, &attr), EINVAL); /* no CQ, no list */
	attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	attr.cq = ibv_cq_ex_to_cq(cq);
	attr.tm_cap.max_num_tags = 4;
	MUST(!rdma_create_srq_ex(id, &attr));
	rdma_destroy_srq(id);
	rdma_destroy_srq(id); /* there is none any more */
	attr.srq_type = (enum ibv_srq_type)7;
	MUST(rdma_create_srq_ex(id, &attr) == -1);

	struct rdma_cm_id *unbound;

	attr.srq_type = IBV_SRQT_BASIC;
	MUST(!rdma_create_id(NULL, &unbound, NULL, RDMA_PS_TCP));
	REFUSED(rdma_create_srq_ex(unbound, &attr), EINVAL); /* it has no device yet */
	MUST(!rdma_destroy_id(unbound) && !rdma_destroy_id(id));
	MUST(!ibv_dealloc_pd(pd) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

/* ------------------------------------------------------------------ options */

static void options(void)
{
	static const uint8_t bytes[600];
	static const int on = 1, off;
	struct rdma_cm_id *id, *datagrams;
	const uint8_t tos = 32, timeout = 14;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_create_id(NULL, &datagrams, NULL, RDMA_PS_UDP));
	MUST(!option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	MUST(!option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(!option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	MUST(!option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
	/* A size that the option hasn't; a level or an option that isn't there; no value. */
	for (int name = RDMA_OPTION_ID_TOS; name <= RDMA_OPTION_ID_ACK_TIMEOUT; name++)
		REFUSED(option(id, RDMA_OPTION_ID, name, bytes, 3), EINVAL);
	REFUSED(option(id, RDMA_OPTION_ID, 4, &on, sizeof(on)), ENOSYS);
	REFUSED(option(id, RDMA_OPTION_IB, 0, &on, sizeof(on)), ENOSYS);
	REFUSED(option(id, 2, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), ENOSYS);
	REFUSED(option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, sizeof(tos)), EFAULT);
	REFUSED(option(datagrams, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), EINVAL);
	/* Too early for a path; and none of a path's records is one. */
	REFUSED(option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, bytes, 72), EINVAL);
	MUST(!rdma_bind_addr(id, host));
	REFUSED(option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &off, sizeof(off)), EINVAL);
	MUST(!rdma_listen(id, 1));
	REFUSED(option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), EINVAL);
	REFUSED(option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), EINVAL);
	MUST(!rdma_destroy_id(id) && !rdma_destroy_id(datagrams));
}

/* The path of a resolved identifier is set instead of resolved, as one of several records. */
static void path(void)
{
	enum {
		SECOND = 72,
		FLAGS = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL
	};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	uint8_t records[5 * SECOND] = {0};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint32_t flags = FLAGS;

	MUST(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(!rdma_resolve_addr(id, NULL, host_port, 2000));
	MUST(!rdma_get_cm_event(channel, &event));
	MUST(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && !rdma_ack_cm_event(event));
	memcpy(records + 4 * SECOND, &flags, sizeof(flags));
	memcpy(records + 4 * SECOND + 8 + 8, &id->route.addr.addr.ibaddr.dgid, 16);
	memcpy(records + 4 * SECOND + 8 + 24, &id->route.addr.addr.ibaddr.sgid, 16);
	REFUSED(option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, records, 71), EINVAL);
	REFUSED(option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, records, 4 * SECOND), EINVAL);
	MUST(!option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, records, sizeof(records)));
	MUST(!rdma_get_cm_event(channel, &event));
	MUST(event->event == RDMA_CM_EVENT_ROUTE_RESOLVED && !rdma_ack_cm_event(event));
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* A CQ that isn't the one which the identifier has. */
static void queues(void)
{
	struct rdma_cm_id *id = client_make();
	struct ibv_qp_init_attr attr = queue_attr(1);
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);

	MUST(cq && !rdma_create_qp(id, NULL, &attr));
	attr = queue_attr(1);
	REFUSED(rdma_create_qp(id, NULL, &attr), EINVAL); /* it has one */
	rdma_destroy_qp(id);
	id->recv_cq = cq;
	attr.recv_cq = attr.send_cq = ibv_create_cq(id->verbs, 4, NULL, NULL, 0);
	MUST(attr.recv_cq);
	REFUSED(rdma_create_qp(id, NULL, &attr), EINVAL);
	id->recv_cq = NULL;
	MUST(!ibv_destroy_cq(attr.recv_cq) && !ibv_destroy_cq(cq) && !rdma_destroy_id(id));
}

/* ------------------------------------------------------------------ look-ups with an event */

static void expect_event(struct rdma_event_channel *channel, int type, int status, uint64_t arg)
{
	struct rdma_cm_event *event;
	uint64_t got;

	MUST(!rdma_get_cm_event(channel, &event));
	memcpy(&got, &event->param, sizeof(got));
	MUST((int)event->event == type && event->status == status && got == arg);
	MUST(!rdma_ack_cm_event(event));
}

static void look_ups(const char *text)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	const struct rdma_addrinfo dns = {.ai_flags = RAI_DNS, .ai_port_space = RDMA_PS_TCP};
	const struct rdma_addrinfo sa = {.ai_flags = RAI_SA};
	const struct rdma_addrinfo no_name = {.ai_flags = RAI_NUMERICHOST};
	struct rdma_addrinfo *found;
	struct rdma_cm_id *id;

	MUST(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	REFUSED(rdma_query_addrinfo(id, &found), ENOENT);
	REFUSED(rdma_resolve_addrinfo(id, NULL, "service", &sa), EOPNOTSUPP);
	REFUSED(rdma_resolve_addrinfo(id, NULL, NULL, NULL), EINVAL);
	MUST(!rdma_resolve_addrinfo(id, text, "7471", &dns));
	REFUSED(rdma_resolve_addrinfo(id, text, "7471", &dns), EBUSY);
	expect_event(channel, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0, 0);
	MUST(!rdma_query_addrinfo(id, &found));
	MUST(found && found->ai_dst_addr && found->ai_port_space == RDMA_PS_TCP);
	rdma_freeaddrinfo(found);
	MUST(!rdma_resolve_addrinfo(id, "nothing here", "7471", &no_name));
	expect_event(channel, RDMA_CM_EVENT_ADDRINFO_ERROR, -ENOENT, 0);
	/* It isn't taken: the identifier's end frees it. */
	MUST(!rdma_resolve_addrinfo(id, text, "7471", NULL));
	expect_event(channel, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0, 0);
	MUST(!rdma_destroy_id(id));
	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP)); /* synchronous */
	MUST(!rdma_resolve_addrinfo(id, text, "7471", NULL));
	MUST(!rdma_query_addrinfo(id, &found));
	rdma_freeaddrinfo(found);
	MUST(rdma_resolve_addrinfo(id, "nothing here", "7471", &no_name) == -1);
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

/* Events that the program writes itself: in order, as many as the channel takes. */
static void written_events(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	const enum rdma_cm_event_type user = (enum rdma_cm_event_type)RDMA_CM_EVENT_USER;
	struct rdma_cm_id *id;
	int count = 0;

	MUST(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	REFUSED(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), EINVAL);
	REFUSED(repoll_create(0), EOPNOTSUPP);
	while (!rdma_write_cm_event(id, user, -100000 + count, UINT64_MAX - (uint64_t)count))
		count++;
	MUST(errno == EAGAIN && count > 10);
	for (int i = 0; i < count; i++)
		expect_event(channel, RDMA_CM_EVENT_USER, -100000 + i, UINT64_MAX - (uint64_t)i);
	MUST(!rdma_write_cm_event(id, user, 0, 1)); /* unread: ends with the identifier */
	MUST(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: cm_options ADDRESS\n");
		return 2;
	}
	listen_somewhere(argv[1]);
	messages();
	kinds();
	options();
	path();
	queues();
	look_ups(argv[1]);
	written_events();
	MUST(!rdma_destroy_id(listener));
	puts("ok");
	return 0;
}
