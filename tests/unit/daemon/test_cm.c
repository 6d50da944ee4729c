/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The node rdma_cm by direct commands: results for valid and invalid requests, the events that
 * follow, and clean-up after a client that dies.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/cm/cm_numbers.h"
#include "proto/cm.h"
#include "proto/proto.h"
#include "raw.h"

/* ------------------------------------------------------------------ a client */

struct client {
	int fd;
	int events; /* its first channel's */
	uint32_t channel;
};

static int cm(const struct client *c, uint32_t command, const void *body, size_t size, void *reply,
	      size_t reply_size)
{
	return raw_cm_exchange(c->fd, command, body, size, size, reply_size, reply, reply_size,
			       NULL);
}

#define CM(c, command, body) cm(c, RDMA_USER_CM_CMD_##command, &(body), sizeof(body), NULL, 0)
#define CM_REPLY(c, command, body, reply) \
	cm(c, RDMA_USER_CM_CMD_##command, &(body), sizeof(body), &(reply), sizeof(reply))

static int hello(int fd, uint64_t cookie)
{
	const struct proto_cm_hello body = {.abi = PROTO_ABI, .cookie = cookie};

	return raw_cm_exchange(fd, PROTO_CM_HELLO, &body, sizeof(body), sizeof(body), 0, NULL, 0,
			       NULL);
}

static uint32_t new_channel(const struct client *c, int *events)
{
	struct proto_cm_create_channel_resp resp;

	assert_int_equal(raw_cm_exchange(c->fd, PROTO_CM_CREATE_CHANNEL, NULL, 0, 0, sizeof(resp),
					 &resp, sizeof(resp), events),
			 0);
	assert_true(*events >= 0);
	return resp.channel;
}

static void open_client(struct client *c)
{
	c->fd = raw_connect_cm(&server);
	assert_int_equal(hello(c->fd, 0), 0);
	c->channel = new_channel(c, &c->events);
}

static void close_client(struct client *c)
{
	close(c->events);
	close(c->fd);
}

static int try_id(const struct client *c, uint32_t channel, uint16_t ps, uint64_t uid, uint32_t *id)
{
	struct rdma_ucm_create_id body = {.uid = uid, .ps = ps, .qp_type = IBV_QPT_RC};
	struct rdma_ucm_create_id_resp resp;

	memcpy(body.reserved, &channel, sizeof(channel));
	int err = CM_REPLY(c, CREATE_ID, body, resp);

	*id = err ? 0 : resp.id;
	return err;
}

static uint32_t new_id(const struct client *c, uint16_t ps, uint64_t uid)
{
	uint32_t id;

	assert_int_equal(try_id(c, c->channel, ps, uid, &id), 0);
	return id;
}

static uint32_t destroy(const struct client *c, uint32_t id)
{
	const struct rdma_ucm_destroy_id body = {.id = id};
	struct rdma_ucm_destroy_id_resp resp;

	assert_int_equal(CM_REPLY(c, DESTROY_ID, body, resp), 0);
	return resp.events_reported;
}

static bool is_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* Checks that this is the next event; the caller checks its identifier's uid, and id. */
static struct rdma_ucm_event_resp expect(int events, uint32_t type, uint32_t status)
{
	struct rdma_ucm_event_resp event;

	if (!is_readable(events, 20000))
		fail_msg("no event %u", type);
	assert_int_equal(recv(events, &event, sizeof(event), 0), sizeof(event));
	if (event.event != type || event.status != status)
		fail_msg("event %u, status %d instead of event %u, status %d", event.event,
			 (int)event.status, type, (int)status);
	return event;
}

/* ------------------------------------------------------------------ addresses */

static int bind_v4(const struct client *c, uint32_t id, uint32_t address, uint16_t port)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
	struct rdma_ucm_bind body = {.id = id, .addr_size = sizeof(in)};

	memcpy(&body.addr, &in, sizeof(in));
	return CM(c, BIND, body);
}

static int bind_v6_to(const struct client *c, uint32_t id, const struct in6_addr *address,
		      uint16_t port)
{
	const struct sockaddr_in6 in = {
		.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *address};
	struct rdma_ucm_bind body = {.id = id, .addr_size = sizeof(in)};

	memcpy(&body.addr, &in, sizeof(in));
	return CM(c, BIND, body);
}

static int bind_v6(const struct client *c, uint32_t id, uint16_t port)
{
	return bind_v6_to(c, id, &in6addr_any, port);
}

static int set_option(const struct client *c, uint32_t id, uint32_t name, const void *value,
		      uint32_t size)
{
	struct {
		struct rdma_ucm_set_option body;
		uint8_t value[8];
	} request = {.body = {.id = id, .level = RDMA_OPTION_ID, .optname = name, .optlen = size}};

	memcpy(request.value, value, size);
	return cm(c, RDMA_USER_CM_CMD_SET_OPTION, &request, sizeof(request.body) + size, NULL, 0);
}

static uint16_t port_of(const struct client *c, uint32_t id)
{
	const struct rdma_ucm_query body = {.id = id, .option = RDMA_USER_CM_QUERY_ADDR};
	struct rdma_ucm_query_addr_resp resp;
	struct sockaddr_in in;

	assert_int_equal(CM_REPLY(c, QUERY, body, resp), 0);
	memcpy(&in, &resp.src_addr, sizeof(in));
	return ntohs(in.sin_port); /* of either family */
}

static uint32_t listener(const struct client *c, uint16_t ps, uint32_t backlog, uint16_t *port)
{
	uint32_t id = new_id(c, ps, 100);
	const struct rdma_ucm_listen body = {.id = id, .backlog = backlog};

	assert_int_equal(bind_v4(c, id, INADDR_LOOPBACK, 0), 0);
	assert_int_equal(CM(c, LISTEN, body), 0);
	*port = port_of(c, id);
	return id;
}

static int resolve_addr(const struct client *c, uint32_t id, uint32_t address, uint16_t port)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
	struct rdma_ucm_resolve_addr body = {.id = id, .dst_size = sizeof(in), .timeout_ms = 1000};

	memcpy(&body.dst_addr, &in, sizeof(in));
	return CM(c, RESOLVE_ADDR, body);
}

/* An identifier that can connect to this port of this host. */
static uint32_t resolved(const struct client *c, uint16_t ps, uint64_t uid, uint16_t port)
{
	uint32_t id = new_id(c, ps, uid);
	const struct rdma_ucm_resolve_route body = {.id = id};

	assert_int_equal(resolve_addr(c, id, INADDR_LOOPBACK, port), 0);
	assert_int_equal(expect(c->events, REPORT_ADDR_RESOLVED, 0).uid, uid);
	assert_int_equal(CM(c, RESOLVE_ROUTE, body), 0);
	assert_int_equal(expect(c->events, REPORT_ROUTE_RESOLVED, 0).id, id);
	return id;
}

/* ------------------------------------------------------------------ connections */

/* QPNs that no QP has; each connection has its own, or it would be a stale one. */
static uint32_t last_qpn;

static int connect_with(const struct client *c, uint32_t id, uint8_t private_size)
{
	struct rdma_ucm_connect body = {.id = id,
					.conn_param = {.qp_num = ++last_qpn,
						       .private_data_len = private_size,
						       .responder_resources = 3,
						       .initiator_depth = 5,
						       .retry_count = 6,
						       .rnr_retry_count = 9,
						       .valid = 1}};

	memset(body.conn_param.private_data, 0xab, private_size);
	return CM(c, CONNECT, body);
}

static int accept_with(const struct client *c, uint32_t id, uint64_t uid, uint8_t private_size)
{
	struct rdma_ucm_accept body = {.uid = uid,
				       .id = id,
				       .conn_param = {.qp_num = ++last_qpn,
						      .private_data_len = private_size,
						      .responder_resources = 5,
						      .initiator_depth = 3,
						      .rnr_retry_count = 2,
						      .valid = 1}};

	memset(body.conn_param.private_data, 0xcd, private_size);
	return CM(c, ACCEPT, body);
}

static int confirm(const struct client *c, uint32_t id)
{
	const struct rdma_ucm_accept body = {.id = id};

	return CM(c, ACCEPT, body);
}

static int disconnect(const struct client *c, uint32_t id)
{
	const struct rdma_ucm_disconnect body = {.id = id};

	return CM(c, DISCONNECT, body);
}

static struct ib_uverbs_qp_attr attr(const struct client *c, uint32_t id, uint32_t state)
{
	const struct rdma_ucm_init_qp_attr body = {.id = id, .qp_state = state};
	struct ib_uverbs_qp_attr a;

	assert_int_equal(CM_REPLY(c, INIT_QP_ATTR, body, a), 0);
	return a;
}

/* Two clients, one of which listens; and what they have when they are connected. */
struct pair {
	struct client a, b;
	uint16_t port;
	uint32_t listens, active, passive;
};

static void open_pair(struct pair *p, uint32_t backlog)
{
	open_client(&p->a);
	open_client(&p->b);
	p->listens = listener(&p->b, RDMA_PS_TCP, backlog, &p->port);
}

static void close_pair(struct pair *p)
{
	close_client(&p->a);
	close_client(&p->b);
}

static void request(struct pair *p)
{
	p->active = resolved(&p->a, RDMA_PS_TCP, 1, p->port);
	assert_int_equal(connect_with(&p->a, p->active, 56), 0);
	struct rdma_ucm_event_resp e = expect(p->b.events, REPORT_CONNECT_REQUEST, 0);

	assert_int_equal(e.uid, 100);
	p->passive = e.id;
}

static void establish(struct pair *p)
{
	request(p);
	assert_int_equal(accept_with(&p->b, p->passive, 2, 196), 0);
	expect(p->a.events, REPORT_CONNECT_RESPONSE, 0);
	assert_int_equal(confirm(&p->a, p->active), 0);
	assert_int_equal(expect(p->b.events, REPORT_ESTABLISHED, 0).uid, 2);
}

/* ------------------------------------------------------------------ tests: connecting */

/* The attributes of both queue pairs. */
static void check_attributes(const struct pair *p)
{
	struct ib_uverbs_qp_attr a, b;

	a = attr(&p->a, p->active, IBV_QPS_RTR);
	b = attr(&p->b, p->passive, IBV_QPS_RTS);
	assert_int_equal(a.qp_attr_mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	assert_int_equal(a.dest_qp_num, 0x88);
	assert_int_equal(a.rq_psn, b.sq_psn);
	assert_int_equal(a.ah_attr.grh.dgid[12], 127);
	assert_int_equal(b.retry_cnt, 6);
	assert_int_equal(b.rnr_retry, 7);
	assert_int_equal(b.max_rd_atomic, 3);
	b = attr(&p->b, p->passive, IBV_QPS_RTR);
	a = attr(&p->a, p->active, IBV_QPS_RTS);
	assert_int_equal(b.rq_psn, a.sq_psn);
	assert_int_equal(a.rnr_retry, 2);
}

static void test_connection(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, 10);
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, p.port);
	assert_int_equal(attr(&p.a, p.active, IBV_QPS_INIT).qp_access_flags, 0);
	assert_int_equal(connect_with(&p.a, p.active, 57), -EINVAL);
	last_qpn = 0x76;
	assert_int_equal(connect_with(&p.a, p.active, 56), 0);
	assert_int_equal(connect_with(&p.a, p.active, 0), -EINVAL);
	struct rdma_ucm_event_resp e = expect(p.b.events, REPORT_CONNECT_REQUEST, 0);
	const uint32_t active_qpn = e.param.conn.qp_num;

	p.passive = e.id;
	assert_int_equal(e.param.conn.private_data_len, 56);
	assert_int_equal(e.param.conn.private_data[55], 0xab);
	assert_int_equal(active_qpn, 0x77);
	assert_int_equal(e.param.conn.responder_resources, 5);
	assert_int_equal(e.param.conn.initiator_depth, 3);
	assert_int_equal(e.param.conn.retry_count, 6);
	assert_int_equal(e.param.conn.rnr_retry_count, 7);
	/* Before the answer only this side's queue pair can be made ready. */
	assert_int_equal(attr(&p.b, p.passive, IBV_QPS_RTR).dest_qp_num, 0x77);
	const struct rdma_ucm_init_qp_attr early = {.id = p.active, .qp_state = IBV_QPS_RTR};
	struct ib_uverbs_qp_attr a;

	assert_int_equal(CM_REPLY(&p.a, INIT_QP_ATTR, early, a), -EINVAL);
	last_qpn = 0x87;
	assert_int_equal(accept_with(&p.b, p.passive, 2, 196), 0);
	e = expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	assert_int_equal(e.uid, 1);
	assert_int_equal(e.param.conn.private_data_len, 196);
	assert_int_equal(e.param.conn.private_data[195], 0xcd);
	assert_int_equal(e.param.conn.qp_num, 0x88);
	assert_int_equal(confirm(&p.a, p.active), 0);
	assert_int_equal(expect(p.b.events, REPORT_ESTABLISHED, 0).uid, 2);

	check_attributes(&p);
	/* The other side answers when its program calls disconnect. */
	assert_int_equal(disconnect(&p.a, p.active), 0);
	assert_int_equal(expect(p.b.events, REPORT_DISCONNECTED, 0).uid, 2);
	assert_false(is_readable(p.a.events, 50));
	assert_int_equal(disconnect(&p.b, p.passive), 0);
	assert_int_equal(expect(p.a.events, REPORT_DISCONNECTED, 0).uid, 1);
	assert_int_equal(expect(p.a.events, REPORT_TIMEWAIT_EXIT, 0).uid, 1);
	assert_int_equal(expect(p.b.events, REPORT_TIMEWAIT_EXIT, 0).uid, 2);
	assert_int_equal(disconnect(&p.b, p.passive), 0);
	/* ADDR, ROUTE, RESPONSE, DISCONNECTED, TIMEWAIT; the request was the listener's. */
	assert_int_equal(destroy(&p.a, p.active), 5);
	assert_int_equal(destroy(&p.b, p.passive), 3);
	assert_int_equal(destroy(&p.b, p.listens), 1);
	close_pair(&p);
}

static void test_reject(void **state)
{
	struct pair p;
	struct rdma_ucm_reject body = {.private_data_len = 148, .reason = 0};

	(void)state;
	open_pair(&p, 10);
	request(&p);
	body.id = p.passive;
	body.reason = 5;
	assert_int_equal(CM(&p.b, REJECT, body), -EINVAL);
	body.reason = 0;
	body.private_data_len = 149;
	assert_int_equal(CM(&p.b, REJECT, body), -EINVAL);
	body.private_data_len = 148;
	body.private_data[147] = 0x5a;
	assert_int_equal(CM(&p.b, REJECT, body), 0);
	struct rdma_ucm_event_resp e = expect(p.a.events, REPORT_REJECTED, 28);

	assert_int_equal(e.param.conn.private_data_len, 148);
	assert_int_equal(e.param.conn.private_data[147], 0x5a);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), -EINVAL);
	assert_int_equal(CM(&p.b, REJECT, body), -EINVAL);
	/* The connecting side may reject, too. */
	request(&p);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), 0);
	expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	body.id = p.active;
	assert_int_equal(CM(&p.a, REJECT, body), 0);
	assert_int_equal(expect(p.b.events, REPORT_REJECTED, 28).uid, 2);
	/* Without a listener: rejected at once. */
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, p.port);
	destroy(&p.b, p.listens);
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	expect(p.a.events, REPORT_REJECTED, 8);
	/* Port 0 is a valid address (programs resolve it only to learn the device), but no listener
	 * can have it. */
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, 0);
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	expect(p.a.events, REPORT_REJECTED, 8);
	close_pair(&p);
}

/* An answer that can't be given is a refusal, so that the peer doesn't wait. Of datagrams, too. */
static void test_accept_in_vain(void **state)
{
	struct pair p;
	uint16_t port;

	(void)state;
	open_pair(&p, 10);
	request(&p);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 197), -EINVAL); /* 196 fit into a REP */
	expect(p.a.events, REPORT_REJECTED, 28);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), -EINVAL);
	destroy(&p.b, p.passive);
	/* A queue pair that isn't this program's. */
	request(&p);
	last_qpn |= 0x1000000;
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), -EINVAL);
	last_qpn &= 0xffffff;
	expect(p.a.events, REPORT_REJECTED, 28);
	destroy(&p.b, p.passive);
	/* Once more, while the peer's confirmation is awaited. */
	request(&p);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), 0);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), -EINVAL);
	expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	expect(p.a.events, REPORT_REJECTED, 28);
	/* A connection isn't harmed. */
	establish(&p);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), -EINVAL);
	assert_int_equal(confirm(&p.a, p.active), -EINVAL);
	assert_false(is_readable(p.a.events, 50));
	assert_int_equal(disconnect(&p.a, p.active), 0);
	expect(p.b.events, REPORT_DISCONNECTED, 0);
	listener(&p.b, RDMA_PS_UDP, 4, &port);
	assert_int_equal(connect_with(&p.a, resolved(&p.a, RDMA_PS_UDP, 1, port), 0), 0);
	struct rdma_ucm_event_resp e = expect(p.b.events, REPORT_CONNECT_REQUEST, 0);

	assert_int_equal(accept_with(&p.b, e.id, 2, 137), -EINVAL);
	expect(p.a.events, REPORT_UNREACHABLE, 2);
	close_pair(&p);
}

static void listen_again(struct pair *p)
{
	p->listens = new_id(&p->b, RDMA_PS_TCP, 100);
	const struct rdma_ucm_listen body = {.id = p->listens, .backlog = 10};

	assert_int_equal(bind_v4(&p->b, p->listens, INADDR_LOOPBACK, p->port), 0);
	assert_int_equal(CM(&p->b, LISTEN, body), 0);
}

/* Between two listeners on one port: a peer that the first one has served waits for the second. */
static void test_between_listeners(void **state)
{
	struct pair p;
	struct client c;

	(void)state;
	open_pair(&p, 10);
	open_client(&c);
	/* The first listener served no peer: rejected at once, though another listens right
	 * after. */
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, p.port);
	destroy(&p.b, p.listens);
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	listen_again(&p);
	expect(p.a.events, REPORT_REJECTED, 8);
	assert_false(is_readable(p.b.events, 0));
	/* The first listener served this peer. */
	request(&p);
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, p.port);
	destroy(&p.b, p.listens);
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	listen_again(&p);
	assert_int_equal(expect(p.b.events, REPORT_CONNECT_REQUEST, 0).uid, 100);
	/* Its program ends: no peer waits any more, and one that waits is rejected. */
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, p.port);
	destroy(&p.b, p.listens);
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	close_client(&p.b);
	expect(p.a.events, REPORT_REJECTED, 28); /* for the unanswered request */
	expect(p.a.events, REPORT_REJECTED, 28);
	expect(p.a.events, REPORT_REJECTED, 8);
	close_client(&p.a);
	close_client(&c);
}

static void test_datagrams(void **state)
{
	struct client a, b;
	uint16_t port;

	(void)state;
	open_client(&a);
	open_client(&b);
	listener(&b, RDMA_PS_UDP, 4, &port);
	uint32_t active = resolved(&a, RDMA_PS_UDP, 1, port);

	assert_int_equal(attr(&a, active, IBV_QPS_INIT).qkey, 0x01234567);
	assert_int_equal(connect_with(&a, active, 181), -EINVAL);
	assert_int_equal(connect_with(&a, active, 180), 0);
	struct rdma_ucm_event_resp e = expect(b.events, REPORT_CONNECT_REQUEST, 0);

	assert_int_equal(e.param.ud.private_data_len, 180);
	assert_int_equal(e.param.ud.private_data[179], 0xab);
	last_qpn = 0x187;
	assert_int_equal(accept_with(&b, e.id, 2, 136), 0);
	e = expect(a.events, REPORT_ESTABLISHED, 0);
	assert_int_equal(e.param.ud.qp_num, 0x188);
	assert_int_equal(e.param.ud.qkey, 0x01234567);
	assert_int_equal(e.param.ud.private_data[135], 0xcd);
	assert_int_equal(e.param.ud.ah_attr.grh.dgid[12], 127);
	assert_int_equal(disconnect(&a, active), -EINVAL);
	/* Rejected by the program, and rejected without a listener. */
	active = resolved(&a, RDMA_PS_UDP, 1, port);
	assert_int_equal(connect_with(&a, active, 0), 0);
	e = expect(b.events, REPORT_CONNECT_REQUEST, 0);
	const struct rdma_ucm_reject reject = {.id = e.id};

	assert_int_equal(CM(&b, REJECT, reject), 0);
	expect(a.events, REPORT_UNREACHABLE, 2);
	active = resolved(&a, RDMA_PS_UDP, 1, 1);
	assert_int_equal(connect_with(&a, active, 0), 0);
	expect(a.events, REPORT_UNREACHABLE, 1);
	close_client(&a);
	close_client(&b);
}

static void test_notify(void **state)
{
	struct pair p;
	struct rdma_ucm_notify body = {.event = IBV_EVENT_PATH_MIG};

	(void)state;
	open_pair(&p, 10);
	request(&p);
	body.id = p.passive;
	assert_int_equal(CM(&p.b, NOTIFY, body), -EINVAL);
	body.event = IBV_EVENT_COMM_EST;
	assert_int_equal(CM(&p.b, NOTIFY, body), -EINVAL);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), 0);
	assert_int_equal(CM(&p.b, NOTIFY, body), 0);
	expect(p.b.events, REPORT_ESTABLISHED, 0);
	assert_int_equal(CM(&p.b, NOTIFY, body), -EISCONN);
	expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	assert_int_equal(confirm(&p.a, p.active), 0);
	assert_false(is_readable(p.b.events, 50));
	close_pair(&p);
}

/* Two connections name the same queue pair: the first one is over. */
static void test_stale(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, 10);
	establish(&p);
	uint32_t first = p.passive;

	p.active = resolved(&p.a, RDMA_PS_TCP, 3, p.port);
	last_qpn -= 2; /* the first active one's */
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	last_qpn += 2;
	assert_int_equal(expect(p.a.events, REPORT_REJECTED, 10).uid, 3);
	/* The side that was asked twice ends the first connection. */
	assert_int_equal(expect(p.a.events, REPORT_DISCONNECTED, 0).uid, 1);
	destroy(&p.b, first);
	close_pair(&p);
}

/* ------------------------------------------------------------------ tests: backlog, death */

/* One of the numbers that the daemon says about its connections. */
static long of_connections(const char *name)
{
	json_t *status = raw_ctl(&server, "{\"op\":\"status\"}\n");
	long count = (long)json_integer_value(
		json_object_get(json_object_get(status, "connections"), name));

	json_decref(status);
	return count;
}

/* Requests that found no room aren't answered: their repetition gets through when there is room. */
static void test_backlog(void **state)
{
	enum { CLIENTS = 6, BACKLOG = 2 };
	struct pair p;
	long full = of_connections("backlog_full");

	(void)state;
	open_pair(&p, BACKLOG);
	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(connect_with(&p.a, resolved(&p.a, RDMA_PS_TCP, 1, p.port), 0), 0);
	assert_int_equal(of_connections("backlog_full") - full, CLIENTS - BACKLOG);
	for (int i = 0; i < CLIENTS; i++) {
		struct rdma_ucm_event_resp e = expect(p.b.events, REPORT_CONNECT_REQUEST, 0);

		assert_int_equal(accept_with(&p.b, e.id, 2, 0), 0);
		expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	}
	close_pair(&p);
}

/* Unread requests end with the listener, and are rejected; so are those that waited for room. */
static void test_backlog_end(void **state)
{
	struct pair p;

	(void)state;
	open_pair(&p, 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(connect_with(&p.a, resolved(&p.a, RDMA_PS_TCP, 1, p.port), 0), 0);
	assert_int_equal(destroy(&p.b, p.listens), 0);
	assert_false(is_readable(p.b.events, 0));
	expect(p.a.events, REPORT_REJECTED, 28);
	expect(p.a.events, REPORT_REJECTED, 28);
	expect(p.a.events, REPORT_REJECTED, 8);
	assert_false(is_readable(p.a.events, 50));
	close_pair(&p);
}

/* A request for datagrams is refused at once, as by Linux. */
static void test_backlog_datagrams(void **state)
{
	struct pair p;
	uint16_t port;

	(void)state;
	open_client(&p.a);
	open_client(&p.b);
	listener(&p.b, RDMA_PS_UDP, 1, &port);
	for (int i = 0; i < 2; i++)
		assert_int_equal(connect_with(&p.a, resolved(&p.a, RDMA_PS_UDP, 1, port), 0), 0);
	expect(p.a.events, REPORT_UNREACHABLE, 2);
	assert_false(is_readable(p.a.events, 50));
	close_pair(&p);
}

/* Connection endpoints at the daemon, including those in TIMEWAIT. */
static long endpoints(void)
{
	return of_connections("endpoints");
}

/* Requests beyond a listener's backlog cost nothing: identifiers that connect in vain again and
 * again, by two processes at once. */
static void test_flood(void **state)
{
	enum { COUNT = 3000, BACKLOG = 4 };
	struct pair p;
	struct client c;
	long before = endpoints();

	(void)state;
	open_pair(&p, BACKLOG);
	open_client(&c);
	for (int i = 0; i < BACKLOG; i++)
		assert_int_equal(connect_with(&p.a, resolved(&p.a, RDMA_PS_TCP, 1, p.port), 0), 0);
	uint32_t one = resolved(&p.a, RDMA_PS_TCP, 1, p.port);
	uint32_t two = resolved(&c, RDMA_PS_TCP, 1, p.port);
	long rss = raw_daemon_rss(&server);

	for (int i = 0; i < COUNT; i++) {
		uint32_t *id = i % 2 ? &one : &two;
		const struct client *who = i % 2 ? &p.a : &c;

		assert_int_equal(connect_with(who, *id, 0), 0);
		destroy(who, *id);
		*id = resolved(who, RDMA_PS_TCP, 1, p.port);
	}
	/* Some earlier ones may have ended meanwhile. */
	assert_true(endpoints() <= before + 2 * BACKLOG);
#ifndef __SANITIZE_ADDRESS__
	assert_true(raw_daemon_rss(&server) - rss < 1024);
#endif
	(void)rss;
	/* The listener still works. */
	struct rdma_ucm_event_resp e = expect(p.b.events, REPORT_CONNECT_REQUEST, 0);

	assert_int_equal(accept_with(&p.b, e.id, 2, 0), 0);
	expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	close_client(&c);
	close_pair(&p);
}

/* Deaths in the states that are left: half a connection, half an end, datagrams. */
static void test_death_between(void **state)
{
	struct pair p;
	uint16_t port;

	(void)state;
	/* the connecting side, before it confirmed */
	open_pair(&p, 10);
	request(&p);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), 0);
	expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	close_client(&p.a);
	assert_int_equal(expect(p.b.events, REPORT_REJECTED, 28).uid, 2);
	close_client(&p.b);
	/* the side that got the DREQ, and the side that sent it */
	for (int asks = 0; asks < 2; asks++) {
		open_pair(&p, 10);
		establish(&p);
		assert_int_equal(disconnect(&p.a, p.active), 0);
		expect(p.b.events, REPORT_DISCONNECTED, 0);
		close_client(asks ? &p.a : &p.b);
		if (asks) {
			assert_int_equal(disconnect(&p.b, p.passive), 0);
			expect(p.b.events, REPORT_TIMEWAIT_EXIT, 0);
		} else {
			expect(p.a.events, REPORT_DISCONNECTED, 0);
			expect(p.a.events, REPORT_TIMEWAIT_EXIT, 0);
		}
		close_client(asks ? &p.b : &p.a);
	}
	/* the side whose datagram service was requested */
	open_client(&p.a);
	open_client(&p.b);
	listener(&p.b, RDMA_PS_UDP, 4, &port);
	assert_int_equal(connect_with(&p.a, resolved(&p.a, RDMA_PS_UDP, 1, port), 0), 0);
	expect(p.b.events, REPORT_CONNECT_REQUEST, 0);
	close_client(&p.b);
	expect(p.a.events, REPORT_UNREACHABLE, 2);
	close_client(&p.a);
}

/* The peer gets the same events as if the program had destroyed its identifiers. */
static void test_death(void **state)
{
	struct pair p;

	(void)state;
	/* the connecting side, before the answer */
	open_pair(&p, 10);
	request(&p);
	close_client(&p.a);
	open_client(&p.a);
	while (accept_with(&p.b, p.passive, 2, 0) == 0)
		fail_msg("accepted what is gone");
	close_pair(&p);
	/* the listener */
	open_pair(&p, 10);
	request(&p);
	close_client(&p.b);
	expect(p.a.events, REPORT_REJECTED, 28);
	close_client(&p.a);
	/* the accepting side */
	open_pair(&p, 10);
	request(&p);
	assert_int_equal(accept_with(&p.b, p.passive, 2, 0), 0);
	expect(p.a.events, REPORT_CONNECT_RESPONSE, 0);
	close_client(&p.b);
	expect(p.a.events, REPORT_REJECTED, 28);
	assert_int_equal(confirm(&p.a, p.active), -EINVAL);
	close_client(&p.a);
	/* either side of an established connection */
	open_pair(&p, 10);
	establish(&p);
	close_client(&p.a);
	assert_int_equal(expect(p.b.events, REPORT_DISCONNECTED, 0).uid, 2);
	close_client(&p.b);
	open_pair(&p, 10);
	establish(&p);
	close_client(&p.b);
	assert_int_equal(expect(p.a.events, REPORT_DISCONNECTED, 0).uid, 1);
	assert_int_equal(disconnect(&p.a, p.active), 0);
	expect(p.a.events, REPORT_TIMEWAIT_EXIT, 0);
	close_client(&p.a);
}

/* ------------------------------------------------------------------ tests: events */

static void test_migrate(void **state)
{
	struct client c;
	struct rdma_ucm_migrate_id body;
	struct rdma_ucm_migrate_resp resp;
	struct proto_cm_channel channel = {0};
	int events;

	(void)state;
	open_client(&c);
	uint32_t other = new_channel(&c, &events);
	uint32_t one = new_id(&c, RDMA_PS_TCP, 1), two = new_id(&c, RDMA_PS_TCP, 2);

	assert_int_equal(resolve_addr(&c, one, INADDR_LOOPBACK, 1), 0);
	assert_int_equal(resolve_addr(&c, two, INADDR_LOOPBACK, 1), 0);
	body = (struct rdma_ucm_migrate_id){.id = one, .fd = other};
	assert_int_equal(CM_REPLY(&c, MIGRATE_ID, body, resp), 0);
	assert_int_equal(expect(events, REPORT_ADDR_RESOLVED, 0).uid, 1);
	assert_int_equal(expect(c.events, REPORT_ADDR_RESOLVED, 0).uid, 2);
	assert_false(is_readable(c.events, 0));
	/* Events that were read were reported; those unread at destruction weren't. */
	body = (struct rdma_ucm_migrate_id){.id = one, .fd = c.channel};
	assert_int_equal(CM_REPLY(&c, MIGRATE_ID, body, resp), 0);
	assert_int_equal(resp.events_reported, 1);
	const struct rdma_ucm_resolve_route route = {.id = one};

	assert_int_equal(CM(&c, RESOLVE_ROUTE, route), 0);
	assert_true(is_readable(c.events, 1000));
	assert_int_equal(destroy(&c, one), 1);
	assert_false(is_readable(c.events, 0));
	/* A channel that is used stays. */
	channel.channel = c.channel;
	assert_int_equal(raw_cm_exchange(c.fd, PROTO_CM_DESTROY_CHANNEL, &channel, sizeof(channel),
					 sizeof(channel), 0, NULL, 0, NULL),
			 -EBUSY);
	destroy(&c, two);
	assert_int_equal(raw_cm_exchange(c.fd, PROTO_CM_DESTROY_CHANNEL, &channel, sizeof(channel),
					 sizeof(channel), 0, NULL, 0, NULL),
			 0);
	close(events);
	close_client(&c);
}

/* More events than a socket holds wait in the daemon, in order, for a program that reads late. */
static void test_many_events(void **state)
{
	enum { COUNT = 1000 };
	struct client c;

	(void)state;
	open_client(&c);
	for (uint64_t uid = 1; uid <= COUNT; uid++)
		assert_int_equal(resolve_addr(&c, new_id(&c, RDMA_PS_TCP, uid), INADDR_LOOPBACK, 1),
				 0);
	for (uint64_t uid = 1; uid <= COUNT; uid++)
		assert_int_equal(expect(c.events, REPORT_ADDR_RESOLVED, 0).uid, uid);
	assert_false(is_readable(c.events, 0));
	close_client(&c);
}

/* ------------------------------------------------------------------ tests: ports */

static void test_ports(void **state)
{
	const int on = 1;
	struct client c;
	uint16_t port;

	(void)state;
	open_client(&c);
	uint32_t one = new_id(&c, RDMA_PS_TCP, 1), two = new_id(&c, RDMA_PS_TCP, 2);
	uint32_t other_space = new_id(&c, RDMA_PS_UDP, 3);

	assert_int_equal(bind_v4(&c, one, INADDR_ANY, 0), 0);
	assert_int_equal(bind_v4(&c, one, INADDR_ANY, 0), -EINVAL);
	port = port_of(&c, one);
	assert_int_not_equal(port, 0);
	assert_int_equal(bind_v4(&c, two, INADDR_ANY, port), -EADDRNOTAVAIL);
	assert_int_equal(bind_v4(&c, other_space, INADDR_ANY, port), 0);
	assert_int_equal(bind_v4(&c, two, 0x01020304, port), -EADDRNOTAVAIL);
	destroy(&c, one);
	assert_int_equal(bind_v4(&c, two, INADDR_LOOPBACK, port), 0);

	/* Shared by identifiers that set the option, but not with a listener. */
	uint32_t a = new_id(&c, RDMA_PS_TCP, 1), b = new_id(&c, RDMA_PS_TCP, 2);

	assert_int_equal(set_option(&c, a, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(bind_v4(&c, a, INADDR_LOOPBACK, 0), 0);
	port = port_of(&c, a);
	assert_int_equal(bind_v4(&c, b, INADDR_LOOPBACK, port), -EADDRINUSE);
	assert_int_equal(set_option(&c, b, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(bind_v4(&c, b, INADDR_LOOPBACK, port), 0);
	const struct rdma_ucm_listen body = {.id = a};

	assert_int_equal(CM(&c, LISTEN, body), -EADDRINUSE);
	destroy(&c, b);
	assert_int_equal(CM(&c, LISTEN, body), 0);
	assert_int_equal(CM(&c, LISTEN, body), -EINVAL);
	close_client(&c);
}

/* How an identifier binds a port. */
enum bound_to { ANY4, LO4, ANY6, LO6, BOUND_TO };
enum bound_how { PLAIN, ONLY, BOTH, REUSE, LISTENS, BOUND_HOW }; /* BOTH: AFONLY set to 0 */

static int bind_as(const struct client *c, uint32_t id, enum bound_to to, enum bound_how how,
		   uint16_t port)
{
	const int only = how != BOTH, on = 1;
	const struct rdma_ucm_listen body = {.id = id};
	int err = 0;

	if (how == ONLY || how == BOTH)
		err = set_option(c, id, RDMA_OPTION_ID_AFONLY, &only, sizeof(only));
	if (!err && (how == REUSE || how == LISTENS))
		err = set_option(c, id, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
	assert_int_equal(err, 0);
	switch (to) {
	case ANY4:
		err = bind_v4(c, id, INADDR_ANY, port);
		break;
	case LO4:
		err = bind_v4(c, id, INADDR_LOOPBACK, port);
		break;
	case ANY6:
		err = bind_v6_to(c, id, &in6addr_any, port);
		break;
	default:
		err = bind_v6_to(c, id, &in6addr_loopback, port);
		break;
	}
	return err || how != LISTENS ? err : CM(c, LISTEN, body);
}

/* Whether Linux keeps the identifier to its own family. `v6only`: the host's bindv6only. */
static bool is_only(enum bound_to to, enum bound_how how, bool v6only)
{
	if (how == ONLY || how == BOTH)
		return how == ONLY;
	return to == ANY4 || to == LO4 || v6only;
}

/* What Linux (cma_check_port()) says to the second of two on one port. */
static int verdict(enum bound_to a, enum bound_how how_a, enum bound_to b, enum bound_how how_b,
		   bool v6only)
{
	bool reuse = how_b == REUSE || how_b == LISTENS;

	/* The first listener shares its port no more, and a second one may not share. */
	if (reuse && how_a == REUSE && how_b == REUSE)
		return 0;
	if ((a < ANY6) != (b < ANY6) && is_only(a, how_a, v6only) && is_only(b, how_b, v6only))
		return 0;
	if (a == ANY4 || a == ANY6 || b == ANY4 || b == ANY6)
		return -EADDRNOTAVAIL;
	return a == b ? -EADDRINUSE : 0;
}

/* Each two addresses of each two kinds on one port. */
static void test_ports_table(void **state)
{
	struct client c;
	unsigned int v6only = 0;
	FILE *file = fopen("/proc/sys/net/ipv6/bindv6only", "r");

	(void)state;
	if (file && fscanf(file, "%u", &v6only) != 1)
		v6only = 0;
	if (file)
		fclose(file);
	open_client(&c);
	for (int i = 0; i < BOUND_TO * BOUND_TO * BOUND_HOW * BOUND_HOW; i++) {
		enum bound_to a = i % BOUND_TO, b = i / BOUND_TO % BOUND_TO;
		enum bound_how how_a = i / BOUND_TO / BOUND_TO % BOUND_HOW;
		enum bound_how how_b = i / BOUND_TO / BOUND_TO / BOUND_HOW;
		uint32_t one = new_id(&c, RDMA_PS_TCP, 1), two = new_id(&c, RDMA_PS_TCP, 2);

		assert_int_equal(bind_as(&c, one, a, how_a, 0), 0);
		int err = bind_as(&c, two, b, how_b, port_of(&c, one));

		if (err != verdict(a, how_a, b, how_b, v6only))
			fail_msg("address %d kind %d, then address %d kind %d: %d, not %d", a,
				 how_a, b, how_b, err, verdict(a, how_a, b, how_b, v6only));
		destroy(&c, one);
		destroy(&c, two);
	}
	close_client(&c);
}

/* Listeners on all addresses, and of one family: which one gets the request. */
static void test_listeners(void **state)
{
	struct pair p;
	const int on = 1;

	(void)state;
	open_client(&p.a);
	open_client(&p.b);
	uint32_t six = new_id(&p.b, RDMA_PS_TCP, 6);
	const struct rdma_ucm_listen body = {.id = six};

	assert_int_equal(bind_v6(&p.b, six, 0), 0);
	assert_int_equal(CM(&p.b, LISTEN, body), 0);
	p.active = resolved(&p.a, RDMA_PS_TCP, 1, port_of(&p.b, six));
	assert_int_equal(connect_with(&p.a, p.active, 0), 0);
	assert_int_equal(expect(p.b.events, REPORT_CONNECT_REQUEST, 0).uid, 6);
	assert_int_equal(set_option(&p.b, six, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), -EINVAL);
	close_pair(&p);
}

/* ------------------------------------------------------------------ tests: wrong requests */

static const struct {
	uint32_t command;
	size_t size, out, least;
	size_t id; /* where the identifier is; 0: there is none */
} commands[] = {
	{RDMA_USER_CM_CMD_CREATE_ID, sizeof(struct rdma_ucm_create_id),
	 sizeof(struct rdma_ucm_create_id_resp), 0, 0},
	{RDMA_USER_CM_CMD_DESTROY_ID, sizeof(struct rdma_ucm_destroy_id),
	 sizeof(struct rdma_ucm_destroy_id_resp), 0, offsetof(struct rdma_ucm_destroy_id, id)},
	{RDMA_USER_CM_CMD_CONNECT, sizeof(struct rdma_ucm_connect), 0,
	 offsetof(struct rdma_ucm_connect, ece), offsetof(struct rdma_ucm_connect, id)},
	{RDMA_USER_CM_CMD_ACCEPT, sizeof(struct rdma_ucm_accept), 0,
	 offsetof(struct rdma_ucm_accept, ece), offsetof(struct rdma_ucm_accept, id)},
	{RDMA_USER_CM_CMD_RESOLVE_ROUTE, sizeof(struct rdma_ucm_resolve_route), 0, 0, 1},
	{RDMA_USER_CM_CMD_LISTEN, sizeof(struct rdma_ucm_listen), 0, 0, 1},
	{RDMA_USER_CM_CMD_REJECT, sizeof(struct rdma_ucm_reject), 0, 0, 1},
	{RDMA_USER_CM_CMD_DISCONNECT, sizeof(struct rdma_ucm_disconnect), 0, 0, 1},
	{RDMA_USER_CM_CMD_INIT_QP_ATTR, sizeof(struct rdma_ucm_init_qp_attr),
	 sizeof(struct ib_uverbs_qp_attr), 0, 1},
	{RDMA_USER_CM_CMD_NOTIFY, sizeof(struct rdma_ucm_notify), 0, 0, 1},
	{RDMA_USER_CM_CMD_MIGRATE_ID, sizeof(struct rdma_ucm_migrate_id),
	 sizeof(struct rdma_ucm_migrate_resp), 0, 1},
	{RDMA_USER_CM_CMD_QUERY, sizeof(struct rdma_ucm_query), 0, 0, 1},
	{RDMA_USER_CM_CMD_BIND, sizeof(struct rdma_ucm_bind), 0, 0, 1},
	{RDMA_USER_CM_CMD_RESOLVE_ADDR, sizeof(struct rdma_ucm_resolve_addr), 0, 0, 1},
	{RDMA_USER_CM_CMD_SET_OPTION, sizeof(struct rdma_ucm_set_option), 0, 0, 1},
	{PROTO_CM_DESTROY_CHANNEL, sizeof(struct proto_cm_channel), 0, 0, 1},
	{PROTO_CM_HELLO, sizeof(struct proto_cm_hello), 0, offsetof(struct proto_cm_hello, node),
	 0},
};

/* DISCONNECT may be posted: it is executed before the next request, and never answered. The other
 * commands may not. */
static void test_posted(void **state)
{
	const struct rdma_ucm_cmd_hdr header = {.cmd = RDMA_USER_CM_CMD_DISCONNECT | PROTO_POSTED,
						.in = sizeof(struct rdma_ucm_disconnect)};
	uint8_t packet[sizeof(header) + sizeof(struct rdma_ucm_disconnect)];
	struct pair p;

	(void)state;
	open_pair(&p, 10);
	establish(&p);
	const struct rdma_ucm_disconnect body = {.id = p.active}, nobody = {.id = 0xffffff};

	memcpy(packet, &header, sizeof(header));
	memcpy(packet + sizeof(header), &nobody, sizeof(nobody));
	assert_int_equal(raw_send(p.a.fd, packet, sizeof(packet), NULL, 0), 0);
	memcpy(packet + sizeof(header), &body, sizeof(body));
	assert_int_equal(raw_send(p.a.fd, packet, sizeof(packet), NULL, 0), 0);
	assert_int_equal(expect(p.b.events, REPORT_DISCONNECTED, 0).uid, 2);
	assert_int_equal(attr(&p.a, p.active, IBV_QPS_INIT).qp_state, IBV_QPS_INIT);
	assert_int_equal(
		cm(&p.a, RDMA_USER_CM_CMD_LISTEN | PROTO_POSTED, &body, sizeof(body), NULL, 0),
		-EINVAL);
	assert_int_equal(disconnect(&p.b, p.passive), 0);
	assert_int_equal(expect(p.a.events, REPORT_DISCONNECTED, 0).uid, 1);
	destroy(&p.a, p.active);
	destroy(&p.b, p.passive);
	destroy(&p.b, p.listens);
	close_pair(&p);
}

static void test_lengths(void **state)
{
	uint8_t body[2048] = {0};
	struct client c;

	(void)state;
	open_client(&c);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		size_t size = commands[i].size,
		       least = commands[i].least ? commands[i].least : size;
		uint32_t n = commands[i].command;
		size_t out = commands[i].out;

		assert_int_equal(
			raw_cm_exchange(c.fd, n, body, least - 1, least - 1, out, NULL, 0, NULL),
			-EINVAL);
		assert_int_equal(
			raw_cm_exchange(c.fd, n, body, size + 4, size + 4, out, NULL, 0, NULL),
			-EINVAL);
		assert_int_equal(raw_cm_exchange(c.fd, n, body, size, size + 1, out, NULL, 0, NULL),
				 -EINVAL);
		assert_int_equal(raw_cm_exchange(c.fd, n, body, size, size - 1, out, NULL, 0, NULL),
				 -EINVAL);
		if (out)
			assert_int_equal(
				raw_cm_exchange(c.fd, n, body, size, size, out - 1, NULL, 0, NULL),
				-ENOSPC);
		/* A right length, and no such identifier: all zeros. */
		if (commands[i].id)
			assert_int_equal(
				raw_cm_exchange(c.fd, n, body, size, size, out, NULL, 0, NULL),
				-EINVAL);
	}
	assert_int_equal(raw_send(c.fd, body, 3, NULL, 0), 0);
	assert_int_equal(raw_receive(c.fd, NULL, 0, NULL), -EINVAL);
	close_client(&c);
}

static void test_unsupported(void **state)
{
	static const uint32_t none[] = {
		RDMA_USER_CM_CMD_BIND_IP,	 RDMA_USER_CM_CMD_RESOLVE_IP,
		RDMA_USER_CM_CMD_QUERY_ROUTE,	 RDMA_USER_CM_CMD_GET_EVENT,
		RDMA_USER_CM_CMD_GET_OPTION,	 RDMA_USER_CM_CMD_JOIN_IP_MCAST,
		RDMA_USER_CM_CMD_JOIN_MCAST + 1, 0x7f,
		PROTO_CM_WRITE_EVENT + 1,	 UINT32_MAX};
	struct client c;
	uint8_t zeros[512] = {0};

	(void)state;
	open_client(&c);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(cm(&c, none[i], zeros, sizeof(zeros), NULL, 0), -EOPNOTSUPP);
	close_client(&c);
}

/* Handles of another client, of another kind, of what is gone. */
static void test_handles(void **state)
{
	struct client a, b;
	uint32_t id;

	(void)state;
	open_client(&a);
	open_client(&b);
	uint32_t mine = new_id(&a, RDMA_PS_TCP, 1), gone = new_id(&a, RDMA_PS_TCP, 1);

	destroy(&a, gone);
	const uint32_t wrong[] = {0, mine ^ 1, gone, a.channel, UINT32_MAX};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct rdma_ucm_destroy_id body = {.id = wrong[i]};
		struct rdma_ucm_destroy_id_resp resp;

		assert_int_equal(CM_REPLY(&a, DESTROY_ID, body, resp), -EINVAL);
		assert_int_equal(bind_v4(&a, wrong[i], INADDR_LOOPBACK, 0), -EINVAL);
	}
	assert_int_equal(try_id(&a, mine, RDMA_PS_TCP, 1, &id), -EINVAL);
	assert_int_equal(try_id(&a, a.channel, RDMA_PS_TCP, 0, &id), -EINVAL);
	assert_int_equal(try_id(&a, a.channel, 1, 1, &id), -EINVAL);
	assert_int_equal(try_id(&a, a.channel, RDMA_PS_IB, 1, &id), 0);
	/* Calls in the wrong order. */
	assert_int_equal(connect_with(&a, mine, 0), -EINVAL);
	assert_int_equal(accept_with(&a, mine, 1, 0), -EINVAL);
	assert_int_equal(disconnect(&a, mine), -EINVAL);
	const struct rdma_ucm_resolve_route route = {.id = mine};

	assert_int_equal(CM(&a, RESOLVE_ROUTE, route), -EINVAL);
	close_client(&a);
	close_client(&b);
}

static void test_hello(void **state)
{
	struct proto_cm_hello body = {.abi = PROTO_ABI + 1};
	int fd = raw_connect_cm(&server), pair[2];
	struct raw_process process;

	(void)state;
	assert_int_equal(raw_cm_exchange(fd, PROTO_CM_CREATE_CHANNEL, NULL, 0, 0, 8, NULL, 0, NULL),
			 -EINVAL);
	assert_int_equal(raw_cm_exchange(fd, PROTO_CM_HELLO, &body, sizeof(body), sizeof(body), 0,
					 NULL, 0, NULL),
			 -EPROTONOSUPPORT);
	assert_int_equal(hello(fd, 0x1234), -ESTALE);
	raw_attach(&server, &process);
	assert_int_equal(hello(fd, 0), 0);
	assert_int_equal(hello(fd, process.resp.cookie), 0);
	/* Descriptors aren't allowed here. */
	const struct rdma_ucm_cmd_hdr header = {.cmd = PROTO_CM_CREATE_CHANNEL, .out = 8};

	assert_int_equal(pipe(pair), 0);
	assert_int_equal(raw_send(fd, &header, sizeof(header), pair, 1), 0);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EINVAL);

	/* Once the process is known, its queue pairs' numbers are accepted. */
	struct client c = {.fd = fd};
	uint16_t port;

	c.channel = new_channel(&c, &c.events);
	listener(&c, RDMA_PS_TCP, 1, &port);
	uint32_t id = resolved(&c, RDMA_PS_TCP, 1, port);

	assert_int_equal(connect_with(&c, id, 0), -EINVAL);
	close(pair[0]);
	close(pair[1]);
	close_client(&c);
	raw_detach(&process);
}

static int set_path(const struct client *c, uint32_t id, const struct ib_path_rec_data *paths,
		    uint32_t size)
{
	struct {
		struct rdma_ucm_set_option body;
		uint8_t value[2 * sizeof(struct ib_path_rec_data)];
	} request = {.body = {.id = id,
			      .level = RDMA_OPTION_IB,
			      .optname = RDMA_OPTION_IB_PATH,
			      .optlen = size}};

	memcpy(request.value, paths, size);
	return cm(c, RDMA_USER_CM_CMD_SET_OPTION, &request, sizeof(request.body) + size, NULL, 0);
}

/* A path that is set instead of resolved: that of another identifier with the same ends. */
static void test_path(void **state)
{
	struct client c;
	struct {
		struct rdma_ucm_query_path_resp head;
		struct ib_path_rec_data path;
	} found;
	struct ib_path_rec_data paths[2] = {{0}};

	(void)state;
	open_client(&c);
	const struct rdma_ucm_query ask = {.id = resolved(&c, RDMA_PS_TCP, 1, 1234),
					   .option = RDMA_USER_CM_QUERY_PATH};
	uint32_t id = new_id(&c, RDMA_PS_TCP, 2);

	assert_int_equal(CM_REPLY(&c, QUERY, ask, found), 0);
	paths[1] = found.path;
	assert_int_equal(set_path(&c, id, paths, sizeof(paths)), -EINVAL); /* no address yet */
	assert_int_equal(resolve_addr(&c, id, INADDR_LOOPBACK, 1234), 0);
	expect(c.events, REPORT_ADDR_RESOLVED, 0);
	assert_int_equal(set_path(&c, id, paths, 0), -EINVAL);
	assert_int_equal(set_path(&c, id, paths, sizeof(paths[0]) - 1), -EINVAL);
	assert_int_equal(set_path(&c, id, paths, sizeof(paths[0])), -EINVAL); /* no such path */
	((uint8_t *)paths[1].path_rec)[8 + 15]++;
	assert_int_equal(set_path(&c, id, paths, sizeof(paths)),
			 -EINVAL); /* to another destination */
	((uint8_t *)paths[1].path_rec)[8 + 15]--;
	((uint8_t *)paths[1].path_rec)[48] = 0x68;
	assert_int_equal(set_path(&c, id, paths, sizeof(paths)), 0);
	assert_int_equal(expect(c.events, REPORT_ROUTE_RESOLVED, 0).id, id);
	assert_int_equal(set_path(&c, id, paths, sizeof(paths)), -EINVAL);
	assert_int_equal(connect_with(&c, id, 0), 0);
	expect(c.events, REPORT_REJECTED, 8);
	close_client(&c);
}

static void test_options(void **state)
{
	struct client c;
	uint8_t value[8] = {1};

	(void)state;
	open_client(&c);
	uint32_t id = new_id(&c, RDMA_PS_TCP, 1);

	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_TOS, value, 1), 0);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_TOS, value, 4), -EINVAL);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_REUSEADDR, value, 1), -EINVAL);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_ACK_TIMEOUT, value, 1), 0);
	value[0] = 32;
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_ACK_TIMEOUT, value, 1), -EINVAL);
	assert_int_equal(set_option(&c, id, 17, value, 1), -ENOSYS);

	/* Address reuse: may be set at any time except by a listener, and reset before there is a
	 * port. */
	const int on = 1, off = 0;
	const struct rdma_ucm_listen body = {.id = id};
	uint32_t datagrams = new_id(&c, RDMA_PS_UDP, 2);

	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_REUSEADDR, &off, sizeof(off)), 0);
	assert_int_equal(bind_v4(&c, id, INADDR_ANY, 0), 0);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_REUSEADDR, &off, sizeof(off)), -EINVAL);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(CM(&c, LISTEN, body), 0);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), -EINVAL);
	assert_int_equal(set_option(&c, id, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), -EINVAL);
	value[0] = 14;
	assert_int_equal(set_option(&c, datagrams, RDMA_OPTION_ID_ACK_TIMEOUT, value, 1), -EINVAL);
	close_client(&c);
}

/* ------------------------------------------------------------------ tests: groups */

static struct rdma_ucm_join_mcast join_body(uint32_t id, const char *group, uint16_t flags)
{
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct rdma_ucm_join_mcast body = {.uid = 77, .id = id, .join_flags = flags};

	if (inet_pton(AF_INET, group, &four.sin_addr) == 1) {
		body.addr_size = sizeof(four);
		memcpy(&body.addr, &four, sizeof(four));
	} else {
		assert_int_equal(inet_pton(AF_INET6, group, &six.sin6_addr), 1);
		body.addr_size = sizeof(six);
		memcpy(&body.addr, &six, sizeof(six));
	}
	return body;
}

static int join(const struct client *c, uint32_t id, const char *group, uint16_t flags,
		uint32_t *handle)
{
	const struct rdma_ucm_join_mcast body = join_body(id, group, flags);
	struct rdma_ucm_create_id_resp resp = {0};
	int err = CM_REPLY(c, JOIN_MCAST, body, resp);

	if (handle)
		*handle = resp.id;
	return err;
}

static int leave(const struct client *c, uint32_t handle, uint32_t *reported)
{
	const struct rdma_ucm_destroy_id body = {.id = handle};
	struct rdma_ucm_destroy_id_resp resp = {0};
	int err = CM_REPLY(c, LEAVE_MCAST, body, resp);

	if (reported)
		*reported = resp.events_reported;
	return err;
}

static uint32_t bound(const struct client *c, uint16_t ps)
{
	uint32_t id = new_id(c, ps, 1);

	assert_int_equal(bind_v4(c, id, INADDR_LOOPBACK, 0), 0);
	return id;
}

/* One that may join groups: bound to loopback it has a device once it is resolved. */
static uint32_t joinable(const struct client *c, uint16_t ps)
{
	uint32_t id = new_id(c, ps, 1);

	assert_int_equal(resolve_addr(c, id, INADDR_LOOPBACK, 7), 0);
	expect(c->events, REPORT_ADDR_RESOLVED, 0);
	return id;
}

/* The event tells how to send to the group. */
static void expect_join(const struct client *c, uint32_t handle, const char *gid)
{
	struct rdma_ucm_event_resp e = expect(c->events, REPORT_MULTICAST_JOIN, 0);
	struct ib_uverbs_ah_attr ah;
	uint8_t wanted[16];

	assert_int_equal(e.uid, 77);
	assert_int_equal(e.id, handle);
	assert_int_equal(e.param.ud.qp_num, 0xffffff);
	assert_int_equal(e.param.ud.qkey, 0x01234567);
	memcpy(&ah, &e.param.ud.ah_attr, sizeof(ah));
	assert_int_equal(inet_pton(AF_INET6, gid, wanted), 1);
	assert_memory_equal(ah.grh.dgid, wanted, sizeof(wanted));
	assert_int_equal(ah.is_global, 1);
	assert_int_equal(ah.port_num, 1);
	assert_int_equal(ah.grh.hop_limit, 64);
}

static void test_groups(void **state)
{
	struct client c;
	uint32_t four, six, again, sender, reported;

	(void)state;
	open_client(&c);
	uint32_t id = joinable(&c, RDMA_PS_UDP);

	assert_int_equal(join(&c, id, "224.1.2.3", 0, &four), 0);
	expect_join(&c, four, "::ffff:224.1.2.3");
	assert_int_equal(join(&c, id, "ff0e::17", 0, &six), 0);
	expect_join(&c, six, "ff0e::17");
	/* A second join of the same group is separate, as in the kernel. */
	assert_int_equal(join(&c, id, "224.1.2.3", 0, &again), 0);
	expect_join(&c, again, "::ffff:224.1.2.3");
	assert_int_equal(join(&c, id, "224.1.2.4", RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, &sender),
			 0);
	expect_join(&c, sender, "::ffff:224.1.2.4");
	assert_int_equal(leave(&c, four, &reported), 0);
	assert_int_equal(reported, 1);
	assert_int_equal(leave(&c, four, NULL), -ENOENT);
	assert_int_equal(leave(&c, sender, NULL), 0);
	assert_int_equal(leave(&c, again, NULL), 0);
	destroy(&c, id);
	assert_int_equal(leave(&c, six, NULL), -ENOENT); /* it went with its identifier */
	close_client(&c);
}

static void test_bad_groups(void **state)
{
	static const char *const none[] = {"127.0.0.1",	      "240.0.0.1", "0.0.0.0",
					   "255.255.255.255", "::",	   "fe80::1"};
	struct client c, other;
	uint32_t handle;

	(void)state;
	open_client(&c);
	open_client(&other);
	uint32_t id = joinable(&c, RDMA_PS_UDP), idle = new_id(&c, RDMA_PS_UDP, 1);
	uint32_t anywhere = new_id(&c, RDMA_PS_UDP, 1);

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(join(&c, id, none[i], 0, NULL), -EINVAL);
	assert_int_equal(bind_v4(&c, anywhere, INADDR_ANY, 0), 0);
	assert_int_equal(join(&c, anywhere, "224.1.1.1", 0, NULL), -EINVAL); /* no device */
	assert_int_equal(join(&c, idle, "224.1.1.1", 0, NULL), -EINVAL);
	assert_int_equal(join(&c, bound(&c, RDMA_PS_UDP), "224.1.1.1", 0, NULL), -EINVAL);
	assert_int_equal(join(&c, joinable(&c, RDMA_PS_TCP), "224.1.1.1", 0, NULL), -EINVAL);
	assert_int_equal(join(&c, id, "224.1.1.1", RDMA_MC_JOIN_FLAG_RESERVED, NULL), -EINVAL);
	assert_int_equal(join(&c, id, "224.1.1.1", 0xffff, NULL), -EINVAL);
	assert_int_equal(join(&c, id ^ 1, "224.1.1.1", 0, NULL), -EINVAL);
	assert_int_equal(join(&other, id, "224.1.1.1", 0, NULL), -EINVAL);
	struct rdma_ucm_join_mcast body = join_body(id, "224.1.1.1", 0);
	struct rdma_ucm_create_id_resp resp;

	for (unsigned int size = 0; size < 1024; size++) {
		body.addr_size = (uint16_t)size;
		if (size < sizeof(struct sockaddr_in) || size > sizeof(struct sockaddr_storage))
			assert_int_equal(CM_REPLY(&c, JOIN_MCAST, body, resp), -EINVAL);
	}
	assert_false(is_readable(c.events, 0));
	assert_int_equal(join(&c, id, "224.1.1.1", 0, &handle), 0);
	assert_int_equal(leave(&other, handle, NULL), -ENOENT);
	assert_int_equal(leave(&c, id, NULL), -ENOENT);
	assert_int_equal(leave(&c, c.channel, NULL), -ENOENT);
	assert_int_equal(leave(&c, 0, NULL), -ENOENT);
	/* A group can't be connected to, but it is an address to send to. */
	expect(c.events, REPORT_MULTICAST_JOIN, 0);
	id = bound(&c, RDMA_PS_UDP);
	assert_int_equal(resolve_addr(&c, id, 0xe0010101, 0), 0);
	expect(c.events, REPORT_ADDR_RESOLVED, 0);
	assert_int_equal(join(&c, id, "224.1.1.1", 0, NULL), 0);
	close_client(&c);
	close_client(&other);
}

/* An unread event moves with its identifier to another channel, or is removed with its group. */
static void test_group_events(void **state)
{
	struct client c;
	int events;
	uint32_t handle, reported;

	(void)state;
	open_client(&c);
	uint32_t id = joinable(&c, RDMA_PS_UDP);
	const struct rdma_ucm_migrate_id body = {.id = id, .fd = new_channel(&c, &events)};
	struct rdma_ucm_migrate_resp resp;

	assert_int_equal(join(&c, id, "224.1.2.3", 0, &handle), 0);
	assert_true(is_readable(c.events, 0));
	assert_int_equal(CM_REPLY(&c, MIGRATE_ID, body, resp), 0);
	assert_false(is_readable(c.events, 0));
	assert_true(is_readable(events, 0));
	assert_int_equal(leave(&c, handle, &reported), 0);
	assert_int_equal(reported, 0);
	assert_false(is_readable(events, 0));
	assert_int_equal(join(&c, id, "224.1.2.3", 0, NULL), 0);
	assert_true(is_readable(events, 0));
	destroy(&c, id);
	assert_false(is_readable(events, 0));
	close(events);
	close_client(&c);
}

/* Nothing is left when all are gone: no identifier, no channel. */
static void test_nothing_left(void **state)
{
	long before;
	struct pair p;

	(void)state;
	raw_expect_count(&server, "clients", 0);
	for (int round = 0; round < 2; round++) {
		before = raw_daemon_fds(&server);
		for (int i = 0; i < 20; i++) {
			open_pair(&p, 10);
			establish(&p);
			request(&p);
			close_pair(&p);
		}
		open_client(&p.a); /* after this answer, those before are gone */
		close_client(&p.a);
	}
	raw_expect_fds(&server, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connection),
		cmocka_unit_test(test_reject),
		cmocka_unit_test(test_accept_in_vain),
		cmocka_unit_test(test_posted),
		cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_notify),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_backlog),
		cmocka_unit_test(test_backlog_end),
		cmocka_unit_test(test_backlog_datagrams),
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_migrate),
		cmocka_unit_test(test_many_events),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_ports_table),
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_unsupported),
		cmocka_unit_test(test_handles),
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_bad_groups),
		cmocka_unit_test(test_group_events),
		cmocka_unit_test(test_nothing_left),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_death_between),
		cmocka_unit_test(test_path),
		cmocka_unit_test(test_between_listeners),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
