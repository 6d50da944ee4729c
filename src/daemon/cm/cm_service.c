/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_service.h. */
#include "daemon/cm/cm_service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/env.h"
#include "base/log.h"
#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_node.h"
#include "daemon/core/conn.h"
#include "daemon/core/server.h"
#include "proto/limits.h"

/* A message to be received: one for an endpoint of this daemon, or a request that is held. */
struct at_home {
	struct list node;
	struct cm_path path; /* as seen by the receiver */
	uint64_t until_ms;   /* held: the latest time to deliver it; else 0 */
	uint8_t mad[MAD_SIZE];
};

enum { HOLD_MS = 1000, HELD_MAX = 256 };

static struct at_home *message_new(const struct cm_path *path, const uint8_t mad[MAD_SIZE])
{
	struct at_home *m = malloc(sizeof(*m));

	if (!m)
		return NULL;
	m->until_ms = 0;
	m->path = *path;
	memcpy(m->mad, mad, MAD_SIZE);
	return m;
}

void cm_service_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_SIZE])
{
	struct cm_service *service = arg;

	if (path->node) {
		struct cm_node *node = cm_node_by_number(service, path->node);

		if (node)
			cm_node_send(node, path, mad);
		return;
	}
	if (!path->on_host) {
		cm_udp_send(&service->wire, path, mad);
		return;
	}
	struct at_home *m = message_new(path, mad);

	if (!m) {
		service->lost++; /* like a lost packet: the sender repeats it */
		return;
	}
	memcpy(m->path.local, path->remote, 16);
	memcpy(m->path.remote, path->local, 16);
	list_add_tail(&service->at_home, &m->node);
	cm_udp_show_local(&service->wire, path, mad);
}

static void cm_service_set_timer(struct cm_service *service)
{
	uint64_t at, now = now_ms();

	bool any = cm_deadline(&service->cm, &at);

	if (!list_empty(&service->held)) {
		uint64_t until = container_of(service->held.next, struct at_home, node)->until_ms;

		at = any && at < until ? at : until;
		any = true;
	}
	if (!any)
		timer_cancel(&service->timer);
	else
		timer_set(&service->server->loop, &service->timer, at > now ? at - now : 0);
}

/* ------------------------------------------------------------------ requests that are too early */

struct cm_asker cm_service_asker(const struct cm_path *path, const struct cm_mad *mad)
{
	/* On this host the QPN contains the process's slot. */
	struct cm_asker asker = {.slot = path->on_host ? mad->qpn >> LIMIT_QP_BITS : 0};

	memcpy(asker.gid, path->remote, sizeof(asker.gid));
	return asker;
}

/* Whether a request is to be held: no listener, but the last one on that port got a request from
 * the same sender. */
static bool cm_mad_is_early(const struct cm_service *service, const struct at_home *m)
{
	struct cm_mad mad;

	if (cm_mad_decode(m->mad, &mad) || (mad.message != CM_REQ && mad.message != CM_SIDR_REQ) ||
	    mad.service_id >> 32)
		return false;
	uint16_t port_space = (uint16_t)(mad.service_id >> 16), port = (uint16_t)mad.service_id;
	const struct cm_asker asker = cm_service_asker(&m->path, &mad);
	const struct cm_node *node = m->path.node ? cm_node_by_number(service, m->path.node) : NULL;
	const struct cm_ports *ports = node ? &node->ports : &service->ports;
	uint8_t address[16];

	/* A node's listeners are bound to IP addresses. */
	memcpy(address, m->path.local, sizeof(address));
	if (node && !cm_node_address(node, 4, address))
		cm_node_address(node, 6, address);
	return cm_ports_heard(ports, port, &asker) &&
	       !cm_ports_listener(ports, port_space, port, address) &&
	       !cm_ports_listener_ib(ports, port_space, port, m->path.local);
}

static bool cm_mad_hold(struct cm_service *service, struct at_home *m)
{
	if (m->until_ms || service->held_count == HELD_MAX || !cm_mad_is_early(service, m))
		return false;
	m->until_ms = now_ms() + HOLD_MS;
	service->held_count++;
	list_add_tail(&service->held, &m->node);
	return true;
}

/* Releases the held requests that have a listener now, or have waited long enough. */
static void cm_mads_release(struct cm_service *service)
{
	uint64_t now = now_ms();

	list_for_each(node, &service->held) {
		struct at_home *m = container_of(node, struct at_home, node);

		if (now < m->until_ms && cm_mad_is_early(service, m))
			continue;
		list_del(node);
		service->held_count--;
		list_add_tail(&service->at_home, node);
	}
}

static void drop_held(struct cm_service *service)
{
	struct list *node;

	while ((node = list_pop(&service->held)))
		free(container_of(node, struct at_home, node));
}

void cm_service_take(struct cm_service *service, const struct cm_path *path,
		     const uint8_t mad[MAD_SIZE])
{
	struct at_home *m = message_new(path, mad);

	if (!m) {
		service->lost++;
		return;
	}
	if (cm_mad_hold(service, m))
		return;
	cm_receive(&service->cm, path, mad, now_ms());
	free(m);
}

/* ------------------------------------------------------------------ */

void cm_service_run(struct cm_service *service)
{
	struct list *node;

	if (service->running)
		return;
	service->running = true;
	cm_mads_release(service);
	/* The loop ends: a message causes at most one other, until a program acts. */
	while ((node = list_pop(&service->at_home))) {
		struct at_home *m = container_of(node, struct at_home, node);

		if (cm_mad_hold(service, m))
			continue;
		cm_receive(&service->cm, &m->path, m->mad, now_ms());
		free(m);
	}
	service->running = false;
	cm_service_set_timer(service);
}

uint64_t cm_service_needed_ms(const struct cm_service *service)
{
	uint64_t until = cm_needed_until(&service->cm), now = now_ms();

	return until > now ? until - now : 0;
}

static void cm_service_on_timer(struct timer *timer)
{
	struct cm_service *service = container_of(timer, struct cm_service, timer);

	cm_tick(&service->cm, now_ms());
	cm_service_run(service);
}

void cm_service_network_changed(struct server *server)
{
	if (!server->cm)
		return;
	list_for_each(node, &server->conns) {
		struct conn *conn = container_of(node, struct conn, node);

		if (conn->cm)
			cm_client_network_changed(conn->cm);
	}
	cm_service_run(server->cm);
}

void cm_service_open_udp(struct cm_service *service)
{
	struct server *server = service->server;

	if (udp_slots_open(&server->wire) == 0)
		cm_udp_open(&service->wire, service, server->wire.fd[0]);
}

static uint64_t cm_guid_word(const uint8_t guid[8])
{
	uint64_t word = 0;

	for (int i = 0; i < 8; i++)
		word = word << 8 | guid[i];
	return word;
}

int cm_service_open(struct server *server)
{
	struct cm_service *service = calloc(1, sizeof(*service));
	struct cm_config config = {CM_CONFIG_DEFAULT,
				   .guid = cm_guid_word(server->devices.device[0].guid)};
	const char *carrier = env_get("VERBENA_CARRIER");

	if (!service || getrandom(&config.seed, sizeof(config.seed), 0) != sizeof(config.seed)) {
		free(service);
		return -ENOMEM;
	}
	service->server = server;
	service->force_wire = carrier && !strcmp(carrier, "wire");
	server->wire.loops[0] = service->force_wire;
	list_init(&service->at_home);
	list_init(&service->held);
	list_init(&service->nodes);
	list_init(&service->alternates);
	timer_init(&service->timer, cm_service_on_timer);
	cm_udp_init(&service->wire, server);
	neighbours_init(&service->neighbours, &server->loop);
	int err = cm_init(&service->cm, &config, &cm_service_ops, service);

	if (!err)
		err = cm_ports_init(&service->ports);
	if (err) {
		cm_fini(&service->cm);
		free(service);
		return err;
	}
	server->cm = service;
	return 0;
}

void cm_service_close(struct server *server)
{
	struct cm_service *service = server->cm;

	if (!service)
		return;
	timer_cancel(&service->timer);
	drop_held(service);
	neighbours_fini(&service->neighbours);
	cm_udp_close(&service->wire);
	cm_fini(&service->cm);
	cm_ports_fini(&service->ports);
	free(service);
	server->cm = NULL;
}
