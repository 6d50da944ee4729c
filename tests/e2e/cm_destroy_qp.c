/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QPs are destroyed while another thread takes the events of their ids: the answer to
 * rdma_connect(), which moves the QP on; a rejection, which moves it to ERR; the end of a join,
 * which attaches it to the group. Some threads make ids and end them at any moment; one reads all
 * events of their channel; one accepts or rejects. The process must survive it.
 *
 * usage: cm_destroy_qp ADDRESS ROUNDS
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "must.h"

enum { MAKERS = 3, NOTHING = -1 };

static struct rdma_event_channel *served, *made;
static struct sockaddr_in server;
static atomic_int answers;
static int rounds;

/* What the reader saw last of an id: its context. */
struct seen {
	atomic_int event;
};

static void qp_of(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = type,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	MUST(!rdma_create_qp(id, NULL, &attr));
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	MUST(!rdma_destroy_id(id));
}

/* ------------------------------------------------------------------ the server */

static void answer(struct rdma_cm_id *id)
{
	qp_of(id, IBV_QPT_RC);
	if (atomic_fetch_add(&answers, 1) % 4 == 3)
		rdma_reject(id, NULL, 0);
	else if (!rdma_accept(id, NULL))
		return;
	end(id); /* rejected, or the client has gone already */
}

static void *serve(void *unused)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(served, &event)) {
		struct rdma_cm_id *id = event->id;
		enum rdma_cm_event_type type = event->event;

		MUST(!rdma_ack_cm_event(event));
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
			answer(id);
		else if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_REJECTED ||
			 type == RDMA_CM_EVENT_UNREACHABLE)
			end(id);
	}
	return unused;
}

/* ------------------------------------------------------------------ the reader */

static void *read_events(void *unused)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(made, &event)) {
		struct seen *seen = event->id->context;

		seen->event = event->event;
		MUST(!rdma_ack_cm_event(event));
	}
	return unused;
}

static int await_other_than(struct seen *seen, int event)
{
	while (seen->event == event)
		sched_yield();
	return seen->event;
}

/* ------------------------------------------------------------------ the makers */

/* Waits for none to some hundred turns of the scheduler, so that the end comes before, within and
 * after the handling of the event. */
static void dawdle(unsigned int *random)
{
	for (int turns = rand_r(random) % 8 ? rand_r(random) % 40 : rand_r(random) % 400; turns;
	     turns--)
		sched_yield();
}

static struct rdma_cm_id *resolve(struct seen *seen, enum rdma_port_space space)
{
	struct rdma_cm_id *id;

	seen->event = NOTHING;
	MUST(!rdma_create_id(made, &id, seen, space));
	MUST(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, 5000));
	MUST(await_other_than(seen, NOTHING) == RDMA_CM_EVENT_ADDR_RESOLVED);
	return id;
}

static void connection(unsigned int *random)
{
	struct rdma_conn_param param = {0};
	struct seen seen;
	struct rdma_cm_id *id = resolve(&seen, RDMA_PS_TCP);

	MUST(!rdma_resolve_route(id, 5000));
	MUST(await_other_than(&seen, RDMA_CM_EVENT_ADDR_RESOLVED) == RDMA_CM_EVENT_ROUTE_RESOLVED);
	qp_of(id, IBV_QPT_RC);
	MUST(!rdma_connect(id, &param));
	dawdle(random);
	end(id);
}

static void membership(unsigned int *random)
{
	struct sockaddr_in group = {.sin_family = AF_INET};
	struct seen seen;
	struct rdma_cm_id *id;

	MUST(inet_pton(AF_INET, "239.1.2.4", &group.sin_addr) == 1);
	id = resolve(&seen, RDMA_PS_UDP);
	qp_of(id, IBV_QPT_UD);
	MUST(!rdma_join_multicast(id, (struct sockaddr *)&group, &seen));
	dawdle(random);
	end(id);
}

static void *make(void *arg)
{
	unsigned int random = (unsigned int)(intptr_t)arg;

	for (int i = 0; i < rounds; i++)
		if (i % 4)
			connection(&random);
		else
			membership(&random);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAKERS], reader, other;
	struct rdma_cm_id *listener;

	MUST(argc == 3 && (rounds = atoi(argv[2])) > 0);
	server = (struct sockaddr_in){.sin_family = AF_INET};
	MUST(inet_pton(AF_INET, argv[1], &server.sin_addr) == 1);
	MUST((served = rdma_create_event_channel()) && (made = rdma_create_event_channel()));
	MUST(!rdma_create_id(served, &listener, NULL, RDMA_PS_TCP));
	MUST(!rdma_bind_addr(listener, (struct sockaddr *)&server) && !rdma_listen(listener, 0));
	server.sin_port = rdma_get_src_port(listener);
	MUST(!pthread_create(&other, NULL, serve, NULL));
	MUST(!pthread_create(&reader, NULL, read_events, NULL));
	for (intptr_t i = 0; i < MAKERS; i++)
		MUST(!pthread_create(&threads[i], NULL, make, (void *)(i + 1)));
	for (int i = 0; i < MAKERS; i++)
		MUST(!pthread_join(threads[i], NULL));
	MUST(answers > 0);
	return 0; /* the two threads wait for events that don't come */
}
