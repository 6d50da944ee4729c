/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_churn SEED PORT COUNT INDEX ROUNDS: one of COUNT processes that connect to each other at
 * random.
 *
 * It listens on PORT + INDEX, and connects ROUNDS times to one of the others, which may have ended
 * or not started yet. A connection carries one message in each direction, or none; either side
 * disconnects, or simply destroys its id. Each id's events must come in an order that the manual
 * pages allow, each once; a violation ends the process with 1. Processes are killed at any time, so
 * a rejection or an error is allowed, but a connection that isn't over after half a minute isn't.
 *
 * One thread, one channel for all ids.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SILENCE_MS = 30000, MESSAGE = 64, OPEN_MAX_IDS = 16 };

enum stage { RESOLVING, ROUTING, CONNECTING, ACCEPTED, UP, OVER };

static const char *const stage_names[] = {"resolving", "routing", "connecting",
					  "accepted",  "up",	  "over"};

struct link {
	struct rdma_cm_id *id;
	enum stage stage;
	bool active, drop;
	int64_t since_ms;
	struct ibv_mr *mr;
	char out[MESSAGE], in[MESSAGE];
};

static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct link *links[OPEN_MAX_IDS];
static unsigned int seed, established, refused;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static void die(const char *what, const struct link *link)
{
	fprintf(stderr, "%s (%s, %s): %s\n", what, link && link->active ? "active" : "passive",
		link ? stage_names[link->stage] : "-", strerror(errno));
	exit(1);
}

static unsigned int choose(unsigned int below)
{
	return (unsigned int)rand_r(&seed) % below;
}

/* ------------------------------------------------------------------ links */

static int free_place(void)
{
	for (int i = 0; i < OPEN_MAX_IDS; i++)
		if (!links[i])
			return i;
	return -1;
}

static struct link *link_new(struct rdma_cm_id *id, bool active)
{
	struct link *link = calloc(1, sizeof(*link));

	link->id = id;
	link->active = active;
	link->since_ms = now_ms();
	id->context = link;
	links[free_place()] = link;
	return link;
}

static void link_end(struct link *link)
{
	for (int i = 0; i < OPEN_MAX_IDS; i++)
		if (links[i] == link)
			links[i] = NULL;
	if (link->id->qp)
		rdma_destroy_qp(link->id);
	if (link->mr)
		rdma_dereg_mr(link->mr);
	if (rdma_destroy_id(link->id))
		die("rdma_destroy_id", link);
	free(link);
}

/* Its QP, with a receive posted. */
static void link_prepare(struct link *link)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	if (rdma_create_qp(link->id, NULL, &attr))
		die("rdma_create_qp", link);
	link->mr = rdma_reg_msgs(link->id, link->out, sizeof(link->out) + sizeof(link->in));
	if (!link->mr)
		die("rdma_reg_msgs", link);
	if (rdma_post_recv(link->id, NULL, link->in, sizeof(link->in), link->mr))
		die("rdma_post_recv", link);
	memset(link->out, 'm', sizeof(link->out));
}

/* ------------------------------------------------------------------ what happens */

static void begin(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_cm_id *id;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
		die("rdma_create_id", NULL);
	struct link *link = link_new(id, true);

	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000))
		die("rdma_resolve_addr", link);
}

static void request(const struct rdma_cm_event *event)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};

	if (free_place() < 0 || !choose(8)) {
		/* This fails if the peer has died. */
		rdma_reject(event->id, NULL, 0);
		rdma_destroy_id(event->id);
		return;
	}
	struct link *link = link_new(event->id, false);

	link_prepare(link);
	link->stage = ACCEPTED;
	if (rdma_accept(link->id, &param))
		link->stage = OVER;
}

static void up(struct link *link)
{
	if (link->stage != (link->active ? CONNECTING : ACCEPTED))
		die("ESTABLISHED out of order", link);
	link->stage = UP;
	established++;
	if (choose(4) && rdma_post_send(link->id, NULL, link->out, sizeof(link->out), link->mr, 0))
		die("rdma_post_send", link);
	switch (choose(3)) {
	case 0:
		if (rdma_disconnect(link->id))
			die("rdma_disconnect", link);
		break;
	case 1:
		link->drop = true; /* destroyed without disconnecting */
		break;
	default: /* the peer ends it, or the sweep does */
		break;
	}
}

static void failed(struct link *link, const struct rdma_cm_event *event)
{
	bool expected = event->event == RDMA_CM_EVENT_REJECTED ||
			event->event == RDMA_CM_EVENT_UNREACHABLE ||
			event->event == RDMA_CM_EVENT_CONNECT_ERROR;

	if (!expected || link->stage == UP || link->stage == OVER)
		die(rdma_event_str(event->event), link);
	refused++;
	link->stage = OVER;
}

static void resolved(struct link *link)
{
	if (link->stage != RESOLVING)
		die("ADDR_RESOLVED out of order", link);
	link->stage = ROUTING;
	if (rdma_resolve_route(link->id, 2000))
		die("rdma_resolve_route", link);
}

static void routed(struct link *link)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};

	if (link->stage != ROUTING)
		die("ROUTE_RESOLVED out of order", link);
	link_prepare(link);
	link->stage = CONNECTING;
	if (rdma_connect(link->id, &param))
		die("rdma_connect", link);
}

static void happened(const struct rdma_cm_event *event)
{
	struct link *link = event->id->context;

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		request(event);
		break;
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		resolved(link);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		routed(link);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		up(link);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* An accepted connection may lose its peer before the peer has confirmed. */
		if (link->stage != UP && link->stage != ACCEPTED)
			die("DISCONNECTED out of order", link);
		link->stage = OVER;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		failed(link, event);
		break;
	}
}

/* Ends connections that are over, and some that are established. */
static void sweep(void)
{
	for (int i = 0; i < OPEN_MAX_IDS; i++) {
		struct link *link = links[i];

		if (!link)
			continue;
		if (link->stage == OVER || link->drop || (link->stage == UP && !choose(4)))
			link_end(link);
		else if (now_ms() - link->since_ms > SILENCE_MS)
			die("nothing happens any more", link);
	}
}

/* A handler may destroy an id whose event isn't acknowledged yet, so connections are ended
 * later. */
static void events(int timeout_ms)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&fd, 1, timeout_ms) < 0)
		die("poll", NULL);
	while (!rdma_get_cm_event(channel, &event)) {
		happened(event);
		rdma_ack_cm_event(event);
	}
	if (errno != EAGAIN)
		die("rdma_get_cm_event", NULL);
	sweep();
}

static void start(uint16_t port)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};

	channel = rdma_create_event_channel();
	if (!channel || fcntl(channel->fd, F_SETFL, O_NONBLOCK))
		die("rdma_create_event_channel", NULL);
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&here) || rdma_listen(listener, 64))
		die("listening", NULL);
}

static bool any_active(void)
{
	for (int i = 0; i < OPEN_MAX_IDS; i++)
		if (links[i])
			return true;
	return false;
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	unsigned int port = (unsigned int)atoi(argv[2]), count = (unsigned int)atoi(argv[3]);
	unsigned int index = (unsigned int)atoi(argv[4]), rounds = (unsigned int)atoi(argv[5]);

	seed = (unsigned int)atoi(argv[1]) * 1000 + index;
	start((uint16_t)(port + index));
	for (unsigned int i = 0; i < rounds; i++) {
		/* Leaves room for requests. */
		while (free_place() < 0 || free_place() >= OPEN_MAX_IDS / 2)
			events(10);
		begin((uint16_t)(port + choose(count)));
		events(0);
	}
	while (any_active())
		events(10);
	if (rdma_destroy_id(listener))
		die("rdma_destroy_id of the listener", NULL);
	rdma_destroy_event_channel(channel);
	printf("established %u, refused %u\n", established, refused);
	return 0;
}
