/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One identifier of the connection manager, and what becomes of it: for scripts to look at.
 *
 * usage: cm_probe bind ADDRESS
 *        cm_probe resolve SOURCE|- DESTINATION TIMEOUT_MS
 *        cm_probe listen|hear ADDRESS PORT
 *        cm_probe connect SOURCE|- DESTINATION PORT
 *
 * Prints a line for each event, "EVENT STATUS DEVICE", and for a call that fails "CALL ERRNO". When
 * the device of a queue pair goes: "fatal DEVICE", then what became of the posted receive, and the
 * errno of a verb.
 * `listen`, `hear` and `connect` go on until they are killed: they accept (`hear` doesn't), and
 * confirm, and never disconnect.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMEOUT_MS = 2000 };

static struct rdma_event_channel *channel;

static _Noreturn void usage(void)
{
	fprintf(stderr, "usage: cm_probe bind|resolve|listen|hear|connect ARGUMENT...\n");
	exit(2);
}

/* "-" stands for none; a link-local address may have its interface after a %. Valid for the next
 * two calls. */
static struct sockaddr *address(const char *text, const char *port)
{
	static struct sockaddr_storage places[2];
	static unsigned int next;
	struct sockaddr_storage *place = &places[next++ % 2];

	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
	struct addrinfo *found;

	if (!strcmp(text, "-"))
		return NULL;
	if (getaddrinfo(text, port, &hints, &found))
		usage();
	memcpy(place, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return (struct sockaddr *)place;
}

static const char *device_of(const struct rdma_cm_id *id)
{
	return id->verbs ? ibv_get_device_name(id->verbs->device) : "-";
}

/* Ends the program if the call failed. */
static void called(const char *call, int result)
{
	if (!result)
		return;
	printf("%s %s\n", call, strerrorname_np(errno));
	exit(1);
}

/* Waits for the end of the queue pair's device. */
static void *watch_device(void *arg)
{
	struct rdma_cm_id *id = arg;
	struct ibv_async_event event;
	struct ibv_wc wc = {0};

	do {
		if (ibv_get_async_event(id->verbs, &event))
			return NULL;
		ibv_ack_async_event(&event);
	} while (event.event_type != IBV_EVENT_DEVICE_FATAL);
	printf("fatal %s\n", device_of(id));
	if (ibv_poll_cq(id->recv_cq, 1, &wc) == 1)
		printf("receive %llu %d\n", (unsigned long long)wc.wr_id, wc.status);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	int err = ibv_modify_qp(id->qp, &attr, IBV_QP_STATE);

	errno = 0;
	struct ibv_pd *pd = ibv_alloc_pd(id->verbs);

	printf("modify %s alloc %s\n", strerrorname_np(err), pd ? "0" : strerrorname_np(errno));
	return NULL;
}

static void add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};

	struct ibv_recv_wr receive = {.wr_id = 5}, *bad;
	pthread_t thread;

	called("rdma_create_qp", rdma_create_qp(id, NULL, &init));
	called("ibv_post_recv", ibv_post_recv(id->qp, &receive, &bad));
	called("pthread_create", pthread_create(&thread, NULL, watch_device, id));
}

/* Returns the next event; `id`: its identifier. */
static enum rdma_cm_event_type next_event(struct rdma_cm_id **id)
{
	struct rdma_cm_event *event;

	called("rdma_get_cm_event", rdma_get_cm_event(channel, &event));
	enum rdma_cm_event_type type = event->event;

	*id = event->id;
	printf("%s %d %s\n", rdma_event_str(type) + strlen("RDMA_CM_EVENT_"), event->status,
	       device_of(event->id));
	called("rdma_ack_cm_event", rdma_ack_cm_event(event));
	return type;
}

static void listen_for_ever(struct rdma_cm_id *id, char **argv, bool answers)
{
	struct rdma_conn_param usual = {.retry_count = 7, .rnr_retry_count = 7};

	called("rdma_bind_addr", rdma_bind_addr(id, address(argv[0], argv[1])));
	called("rdma_listen", rdma_listen(id, 0));
	printf("listening %u %s\n", ntohs(rdma_get_src_port(id)), device_of(id));
	for (;;) {
		struct rdma_cm_id *peer;

		if (next_event(&peer) != RDMA_CM_EVENT_CONNECT_REQUEST || !answers)
			continue;
		add_qp(peer);
		if (rdma_accept(peer, &usual))
			printf("rdma_accept %s\n", strerrorname_np(errno));
	}
}

static void resolve(struct rdma_cm_id *id, const char *source, const char *destination,
		    const char *port, int timeout_ms)
{
	called("rdma_resolve_addr", rdma_resolve_addr(id, address(source, NULL),
						      address(destination, port), timeout_ms));
	if (next_event(&id) != RDMA_CM_EVENT_ADDR_RESOLVED)
		exit(1);
}

static void connect_for_ever(struct rdma_cm_id *id, char **argv)
{
	struct rdma_conn_param usual = {.retry_count = 7, .rnr_retry_count = 7};

	resolve(id, argv[0], argv[1], argv[2], TIMEOUT_MS);
	called("rdma_resolve_route", rdma_resolve_route(id, TIMEOUT_MS));
	if (next_event(&id) != RDMA_CM_EVENT_ROUTE_RESOLVED)
		exit(1);
	add_qp(id);
	called("rdma_connect", rdma_connect(id, &usual));
	for (;;)
		next_event(&id);
}

int main(int argc, char **argv)
{
	struct rdma_cm_id *id;

	setvbuf(stdout, NULL, _IOLBF, 0);
	channel = rdma_create_event_channel();
	called("rdma_create_event_channel", channel ? 0 : -1);
	called("rdma_create_id", rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	if (argc == 3 && !strcmp(argv[1], "bind")) {
		called("rdma_bind_addr", rdma_bind_addr(id, address(argv[2], NULL)));
		printf("bound 0 %s\n", device_of(id));
	} else if (argc == 5 && !strcmp(argv[1], "resolve")) {
		resolve(id, argv[2], argv[3], "7471", atoi(argv[4]));
	} else if (argc == 4 && !strcmp(argv[1], "listen")) {
		listen_for_ever(id, argv + 2, true);
	} else if (argc == 4 && !strcmp(argv[1], "hear")) {
		listen_for_ever(id, argv + 2, false);
	} else if (argc == 5 && !strcmp(argv[1], "connect")) {
		connect_for_ever(id, argv + 2);
	} else {
		usage();
	}
	return 0;
}
