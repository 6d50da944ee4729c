/* SPDX-License-Identifier: BSD-2-Clause */
/* Port spaces. See cm_ports.h. One thread: the daemon's; no locks. */
#include "daemon/cm/cm_ports.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/core/conn.h"
#include "daemon/core/ending.h"
#include "daemon/core/loop.h"
#include "daemon/core/user.h"
#include "wire/ip.h"

/* What one user has of one port space's ephemeral ports; freed with the last port. */
struct cm_port_share {
	struct list node;
	const struct user *user;
	uint16_t port_space;
	uint32_t taken;
};

/* A port in use, and the identifiers that share it. An ephemeral port counts for the user of the
 * first of them, so that it is counted once. */
struct cm_binding {
	struct index_node node;
	struct list ids;
	uint32_t count;		     /* of them */
	struct cm_port_share *share; /* NULL: not counted */
};

static uint64_t key_of(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

static struct cm_binding *cm_binding_find(const struct cm_ports *ports, uint16_t port_space,
					  uint16_t port)
{
	struct index_node *node = index_first(&ports->bindings, key_of(port_space, port));

	return node ? container_of(node, struct cm_binding, node) : NULL;
}

/* Reads numbers from a file of the network namespace; a number that isn't there keeps its value. */
static void read_numbers(const char *path, uint16_t *first, uint16_t *second)
{
	FILE *file = fopen(path, "re");
	unsigned int a, b;
	int n = file ? fscanf(file, "%u %u", &a, &b) : 0;

	if (file)
		fclose(file);
	if (n > 0 && a <= UINT16_MAX)
		*first = (uint16_t)a;
	if (n > 1 && second && b <= UINT16_MAX)
		*second = (uint16_t)b;
}

int cm_ports_init(struct cm_ports *ports)
{
	*ports = (struct cm_ports){.first = 32768, .last = 60999, .unprivileged = 1024};
	read_numbers("/proc/sys/net/ipv4/ip_local_port_range", &ports->first, &ports->last);
	read_numbers("/proc/sys/net/ipv4/ip_unprivileged_port_start", &ports->unprivileged, NULL);
	uint16_t v6_only = 0;

	read_numbers("/proc/sys/net/ipv6/bindv6only", &v6_only, NULL);
	ports->v6_only = v6_only;
	if (!ports->first || ports->last < ports->first)
		ports->first = ports->last = 32768;
	list_init(&ports->shares);
	return index_init(&ports->bindings);
}

void cm_ports_fini(struct cm_ports *ports)
{
	index_fini(&ports->bindings);
}

/* ------------------------------------------------------------------ shares */

static struct conn *cm_id_conn(const struct cm_id *id)
{
	return id->object.client->conn;
}

static bool port_is_ephemeral(const struct cm_ports *ports, uint16_t port)
{
	return port >= ports->first && port <= ports->last;
}

static bool port_share_allows(const struct cm_ports *ports, const struct cm_id *id)
{
	const struct user *user = cm_id_conn(id)->user;
	uint32_t own = 0, others = 0;

	list_for_each(node, (struct list *)&ports->shares) {
		const struct cm_port_share *share = container_of(node, struct cm_port_share, node);

		if (share->port_space == id->port_space)
			*(share->user == user ? &own : &others) += share->taken;
	}
	return share_allows(user, (uint32_t)ports->last - ports->first + 1, others, own);
}

/* Whether the identifier's user may have one more ephemeral port. Returns 0; -EADDRNOTAVAIL;
 * -EAGAIN: when the user's ended clients are freed (ending.h). */
static int port_share_check(const struct cm_ports *ports, const struct cm_id *id)
{
	struct conn *conn = cm_id_conn(id);

	if (port_share_allows(ports, id))
		return 0;
	if (ending_may_help(conn, false))
		return -EAGAIN;
	complain(conn->user,
		 "process %d may not have another ephemeral port of the RDMA CM: user %u has as "
		 "many as a user may have",
		 conn->pid, conn->user->uid);
	return -EADDRNOTAVAIL;
}

/* Counts a port for the identifier's user. NULL: no memory. */
static struct cm_port_share *port_share_take(struct cm_ports *ports, const struct cm_id *id)
{
	const struct user *user = cm_id_conn(id)->user;

	list_for_each(node, &ports->shares) {
		struct cm_port_share *share = container_of(node, struct cm_port_share, node);

		if (share->user == user && share->port_space == id->port_space) {
			share->taken++;
			return share;
		}
	}
	struct cm_port_share *share = calloc(1, sizeof(*share));

	if (!share)
		return NULL;
	*share = (struct cm_port_share){.user = user, .port_space = id->port_space, .taken = 1};
	list_add_tail(&ports->shares, &share->node);
	return share;
}

static void port_share_give(struct cm_port_share *share)
{
	if (!share || --share->taken)
		return;
	list_del(&share->node);
	free(share);
}

/* The first identifier has left: the port counts for the next one's user. */
static void port_share_pass_on(struct cm_ports *ports, struct cm_binding *binding)
{
	const struct cm_id *first = container_of(binding->ids.next, struct cm_id, port.node);
	struct cm_port_share *old = binding->share;

	if (!old || old->user == cm_id_conn(first)->user)
		return;
	binding->share = port_share_take(ports, first);
	port_share_give(old);
}

/* ------------------------------------------------------------------ binding */

static bool cm_id_has_ended(const struct cm_id *id)
{
	return id->object.client->ended;
}

/* Whether only identifiers have the port whose clients have ended. Of many that isn't looked at:
 * bind_any() may ask for each port that there is. */
static bool cm_binding_has_ended(const struct cm_binding *binding)
{
	enum { LOOKED_AT = 4 };

	if (binding->count > LOOKED_AT)
		return false;
	list_for_each(node, (struct list *)&binding->ids)
		if (!cm_id_has_ended(container_of(node, struct cm_id, port.node)))
			return false;
	return true;
}

static struct cm_binding *cm_binding_make(struct cm_ports *ports, const struct cm_id *id,
					  uint16_t port)
{
	struct cm_binding *binding = calloc(1, sizeof(*binding));

	if (!binding)
		return NULL;
	if (port_is_ephemeral(ports, port)) {
		binding->share = port_share_take(ports, id);
		if (!binding->share) {
			free(binding);
			return NULL;
		}
	}
	list_init(&binding->ids);
	index_add(&ports->bindings, &binding->node, key_of(id->port_space, port));
	return binding;
}

static int bind_to(struct cm_ports *ports, struct cm_id *id, uint16_t port)
{
	struct cm_binding *binding = cm_binding_find(ports, id->port_space, port);

	if (!binding)
		binding = cm_binding_make(ports, id, port);
	if (!binding)
		return -ENOMEM;
	list_add_tail(&binding->ids, &id->port.node);
	binding->count++;
	id->port.binding = binding;
	cm_address_set_port(&id->source, port);
	return 0;
}

/* Whether the two can't have the same port: -EADDRNOTAVAIL because of a wildcard, -EADDRINUSE
 * because of the same address, as in Linux. 0: they can. */
static int cm_ids_overlap(const struct cm_id *a, const struct cm_id *b)
{
	uint8_t x[16], y[16];

	if (a->source.any.sa_family != b->source.any.sa_family && a->family_only && b->family_only)
		return 0;
	if (cm_address_is_any(&a->source) || cm_address_is_any(&b->source))
		return -EADDRNOTAVAIL;
	cm_address_gid(&a->source, x);
	cm_address_gid(&b->source, y);
	return memcmp(x, y, sizeof(x)) ? 0 : -EADDRINUSE;
}

static int cm_binding_check(const struct cm_binding *binding, const struct cm_id *id, bool reuse)
{
	list_for_each(node, (struct list *)&binding->ids) {
		const struct cm_id *other = container_of(node, struct cm_id, port.node);

		if (other == id || cm_id_has_ended(other) ||
		    (reuse && other->reuse && other->state != ID_LISTEN))
			continue;
		int err = cm_ids_overlap(id, other);

		if (err)
			return err;
	}
	return 0;
}

/* Whether the identifier's user may have one more on this port. Returns as port_share_check(). */
static int cm_binding_check_share(const struct cm_binding *binding, const struct cm_id *id)
{
	struct conn *conn = cm_id_conn(id);
	uint32_t own = 0;

	if (binding->count < CM_PORT_IDS / 4)
		return 0;
	list_for_each(node, (struct list *)&binding->ids)
		own += cm_id_conn(container_of(node, struct cm_id, port.node))->user == conn->user;
	if (share_allows(conn->user, CM_PORT_IDS, binding->count - own, own))
		return 0;
	if (ending_may_help(conn, false))
		return -EAGAIN;
	complain(
		conn->user,
		"process %d may not have another identifier of the RDMA CM on port %u: user %u has "
		"as many as a user may have",
		conn->pid, (unsigned int)(uint16_t)binding->node.key, conn->user->uid);
	return -EADDRNOTAVAIL;
}

static int bind_any(struct cm_ports *ports, struct cm_id *id)
{
	uint32_t count = (uint32_t)ports->last - ports->first + 1, start = 0;
	int err = port_share_check(ports, id);

	if (err)
		return err;
	if (getrandom(&start, sizeof(start), 0) != sizeof(start))
		start = id->object.handle;
	for (uint32_t i = 0; i < count; i++) {
		uint16_t port = (uint16_t)(ports->first + (start + i) % count);
		const struct cm_binding *binding = cm_binding_find(ports, id->port_space, port);

		if (!binding || cm_binding_has_ended(binding))
			return bind_to(ports, id, port);
	}
	return ending_may_help(cm_id_conn(id), true) ? -EAGAIN : -EADDRNOTAVAIL;
}

int cm_ports_bind(struct cm_ports *ports, struct cm_id *id, bool privileged)
{
	uint16_t port = cm_address_port(&id->source);

	if (!port)
		return bind_any(ports, id);
	if (port < ports->unprivileged && !privileged)
		return -EACCES;
	struct cm_binding *binding = cm_binding_find(ports, id->port_space, port);
	int err = 0;

	if (binding)
		err = cm_binding_check(binding, id, id->reuse);
	if (binding && !err)
		err = cm_binding_check_share(binding, id);
	if (!binding && port_is_ephemeral(ports, port))
		err = port_share_check(ports, id);
	return err ? err : bind_to(ports, id, port);
}

void cm_ports_unbind(struct cm_ports *ports, struct cm_id *id)
{
	struct cm_binding *binding = id->port.binding;

	if (!binding)
		return;
	if (id->state == ID_LISTEN && id->was_asked && !cm_id_has_ended(id))
		ports->ended[ports->ended_next++ % CM_ENDED_MAX] =
			(struct cm_ended){.at_ms = now_ms(),
					  .port = (uint16_t)binding->node.key,
					  .client = id->object.client,
					  .asker = id->asker};
	list_del(&id->port.node);
	binding->count--;
	id->port.binding = NULL;
	if (!list_empty(&binding->ids)) {
		port_share_pass_on(ports, binding);
		return;
	}
	port_share_give(binding->share);
	index_remove(&ports->bindings, &binding->node);
	free(binding);
}

int cm_ports_check_listen(const struct cm_id *id)
{
	return cm_binding_check(id->port.binding, id, false);
}

/* ------------------------------------------------------------------ listeners */

/* How well a listener fits an address: 0 not at all, 1 bound to all addresses, 2 bound to this
 * one. */
static int cm_id_fits_gid(const struct cm_id *id, const uint8_t gid[16], bool by_ib)
{
	bool v4 = ip_is_v4(gid);
	uint8_t own[16];

	if (id->state != ID_LISTEN || cm_id_has_ended(id) || cm_address_is_ib(&id->source) != by_ib)
		return 0;
	if (cm_address_is_any(&id->source)) {
		bool same = by_ib || v4 == (id->source.any.sa_family == AF_INET);

		return same || (v4 && !id->family_only);
	}
	cm_address_gid(&id->source, own);
	return memcmp(own, gid, sizeof(own)) ? 0 : 2;
}

static struct cm_id *find_listener_of(const struct cm_ports *ports, uint16_t port_space,
				      uint16_t port, const uint8_t gid[16], bool by_ib)
{
	struct cm_binding *binding = cm_binding_find(ports, port_space, port);
	struct cm_id *best = NULL;
	int best_fit = 0;

	if (!binding)
		return NULL;
	list_for_each(node, &binding->ids) {
		struct cm_id *id = container_of(node, struct cm_id, port.node);
		int f = cm_id_fits_gid(id, gid, by_ib);

		if (f > best_fit) {
			best = id;
			best_fit = f;
		}
	}
	return best;
}

struct cm_id *cm_ports_listener(const struct cm_ports *ports, uint16_t port_space, uint16_t port,
				const uint8_t gid[16])
{
	return find_listener_of(ports, port_space, port, gid, false);
}

struct cm_id *cm_ports_listener_ib(const struct cm_ports *ports, uint16_t port_space, uint16_t port,
				   const uint8_t gid[16])
{
	return find_listener_of(ports, port_space, port, gid, true);
}

enum { MOMENT_MS = 5000 };

/* Whether both can be the same sender: requests for datagrams don't tell their slot. */
static bool may_be(const struct cm_asker *a, const struct cm_asker *b)
{
	return !memcmp(a->gid, b->gid, sizeof(a->gid)) &&
	       (!a->slot || !b->slot || a->slot == b->slot);
}

bool cm_ports_heard(const struct cm_ports *ports, uint16_t port, const struct cm_asker *asker)
{
	uint64_t now = now_ms();

	for (unsigned int i = 0; i < CM_ENDED_MAX; i++) {
		const struct cm_ended *e = &ports->ended[i];

		if (e->at_ms && e->port == port && now - e->at_ms < MOMENT_MS &&
		    may_be(&e->asker, asker))
			return true;
	}
	return false;
}

void cm_ports_forget(struct cm_ports *ports, const struct cm_client *client)
{
	for (unsigned int i = 0; i < CM_ENDED_MAX; i++)
		if (ports->ended[i].client == client)
			ports->ended[i] = (struct cm_ended){0};
}
