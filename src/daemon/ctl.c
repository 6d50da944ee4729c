/* SPDX-License-Identifier: BSD-2-Clause */
/* The control socket: one line of JSON in, one out, then it closes. What `verbena` speaks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/daemon.h"

enum { LINE_MAX_BYTES = 4096 };

struct ctl {
	struct source source;
	size_t got;
	char line[LINE_MAX_BYTES];
	char *out; /* the reply, once there is one */
	size_t out_size, out_sent;
};

static const char *const state_names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

static void ctl_close(struct ctl *c)
{
	loop_remove(&c->source);
	close(c->source.fd);
	free(c->out);
	free(c);
}

/* ------------------------------------------------------------------ status */

static json_t *gid_list(void)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < LIMIT_GIDS; i++) {
		const struct gid_entry *e = &server.device.gids[i];
		char text[48], *t = text;

		if (!e->used)
			continue;
		for (int k = 0; k < 16; k += 2)
			t += sprintf(t, "%s%02x%02x", k ? ":" : "", e->gid[k], e->gid[k + 1]);
		json_array_append_new(list, json_pack("{s:i,s:s,s:s,s:i}", "index", i, "gid", text,
						      "type", "RoCE v2", "ifindex", e->ifindex));
	}
	return list;
}

static json_t *device_list(void)
{
	const uint8_t *g = (const uint8_t *)&server.device.guid;
	char guid[32];

	snprintf(guid, sizeof(guid), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3],
		 g[4], g[5], g[6], g[7]);
	return json_pack("[{s:s,s:s,s:s,s:i,s:s,s:i,s:o}]", "name", server.device.name, "node",
			 server.device.node, "guid", guid, "port", 1, "state", "ACTIVE", "mtu",
			 4096, "gids", gid_list());
}

static json_t *client(const struct process *p)
{
	json_t *objects = json_object();
	unsigned int contexts = 0;

	for (int type = 0; type < OBJ_TYPES; type++) {
		unsigned int n = 0;

		list_for_each(node, &p->contexts)
			n += container_of(node, struct conn, of_process)->objects[type].used;
		json_object_set_new(objects, object_names[type], json_integer(n));
	}
	list_for_each(node, &p->contexts)
		contexts++;
	return json_pack("{s:i,s:i,s:s,s:i,s:i,s:o,s:i,s:I}", "pid", p->pid, "uid", p->uid, "comm",
			 p->comm, "slot", p->slot, "contexts", contexts, "objects", objects,
			 "links", p->peer_count, "pinned_bytes", (json_int_t)p->pinned_bytes);
}

static json_t *do_status(void)
{
	json_t *clients = json_array();
	struct stat netns = {0};

	list_for_each(node, &server.processes)
		json_array_append_new(clients, client(container_of(node, struct process, node)));
	stat("/proc/self/ns/net", &netns);
	return json_pack("{s:b,s:s,s:i,s:i,s:I,s:I,s:s,s:o,s:o}", "ok", 1, "version",
			 VERBENA_VERSION, "pid", getpid(), "uid", geteuid(), "netns",
			 (json_int_t)netns.st_ino, "uptime_ms",
			 (json_int_t)((clock_ns() - server.started_ns) / 1000000), "runtime_dir",
			 server.dir, "devices", device_list(), "clients", clients);
}

/* ------------------------------------------------------------------ resources */

static void set(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer(value));
}

static void describe_qp(json_t *j, const struct process *p, const struct object *o)
{
	static const char *const types[] = {"?", "?", "RC", "UC", "UD"};
	const struct pub_qp *e = &p->table->qp[o->qp.qpn & (LIMIT_QPS_PER_SLOT - 1)];
	uint32_t state = pub_qp_state(atomic_load(&e->state));

	set(j, "qpn", o->qp.qpn);
	json_object_set_new(j, "type", json_string(types[o->qp.type]));
	json_object_set_new(j, "state", json_string(state < 7 ? state_names[state] : "?"));
	set(j, "pd", o->uses[0]->handle);
	set(j, "send_cq", o->uses[1]->handle);
	set(j, "recv_cq", o->uses[2]->handle);
	if (o->uses[3])
		set(j, "srq", o->uses[3]->handle);
	set(j, "remote_qpn", atomic_load(&e->peer));
}

static void describe(json_t *j, const struct process *p, enum object_type type,
		     const struct object *o)
{
	switch (type) {
	case OBJ_MR:
		set(j, "pd", o->uses[0]->handle);
		set(j, "addr", o->mr.addr);
		set(j, "length", o->mr.length);
		set(j, "access", o->mr.access);
		set(j, "rkey", o->mr.rkey);
		break;
	case OBJ_CQ:
		set(j, "cqe", o->cq.cqe);
		if (o->uses[0])
			set(j, "channel", o->uses[0]->handle);
		break;
	case OBJ_QP:
		describe_qp(j, p, o);
		break;
	case OBJ_SRQ:
		set(j, "pd", o->uses[0]->handle);
		set(j, "max_wr", o->srq.max_wr);
		break;
	case OBJ_AH:
		set(j, "pd", o->uses[0]->handle);
		break;
	default:
		break;
	}
}

static void list_objects(json_t *list, enum object_type type, const struct conn *conn)
{
	const struct table *t = &conn->objects[type];
	const struct process *p = conn->process;

	for (uint32_t i = 0; i < t->size; i++) {
		const struct object *o = table_at(t, i);

		if (!o)
			continue;
		json_t *j = json_pack("{s:i,s:s,s:I}", "pid", p->pid, "comm", p->comm, "handle",
				      (json_int_t)o->handle);

		describe(j, p, type, o);
		json_array_append_new(list, j);
	}
}

static json_t *do_resources(void)
{
	json_t *all = json_pack("{s:b}", "ok", 1);

	for (int type = 0; type < OBJ_TYPES; type++) {
		json_t *list = json_array();

		list_for_each(node, &server.conns) {
			struct conn *conn = container_of(node, struct conn, node);

			if (conn->is_context)
				list_objects(list, type, conn);
		}
		json_object_set_new(all, object_names[type], list);
	}
	return all;
}

static json_t *do_stop(json_t *request)
{
	unsigned int clients = 0;

	list_for_each(node, &server.processes)
		clients++;
	if (clients && !json_is_true(json_object_get(request, "force")))
		return json_pack("{s:b,s:s,s:i}", "ok", 0, "error",
				 "programs use this daemon; say force to stop it all the same",
				 "clients", clients);
	server.stop = true;
	return json_pack("{s:b,s:i}", "ok", 1, "clients", clients);
}

/* ------------------------------------------------------------------ the socket */

static json_t *run(const char *line, size_t size)
{
	json_error_t error;
	json_t *request = json_loadb(line, size, 0, &error), *reply;
	const char *op = json_string_value(json_object_get(request, "op"));

	if (!op)
		reply = json_pack("{s:b,s:s}", "ok", 0, "error",
				  "not a request: one JSON object "
				  "with \"op\" is expected");
	else if (!strcmp(op, "status"))
		reply = do_status();
	else if (!strcmp(op, "resources"))
		reply = do_resources();
	else if (!strcmp(op, "stop"))
		reply = do_stop(request);
	else
		reply = json_pack("{s:b,s:s}", "ok", 0, "error", "unknown op");
	json_decref(request);
	return reply;
}

static void send_more(struct ctl *c)
{
	while (c->out_sent < c->out_size) {
		ssize_t n = send(c->source.fd, c->out + c->out_sent, c->out_size - c->out_sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			loop_change(&c->source, EPOLLOUT);
			return;
		}
		if (n <= 0)
			break;
		c->out_sent += n;
	}
	ctl_close(c);
}

static void on_ctl(struct source *source, uint32_t events)
{
	struct ctl *c = container_of(source, struct ctl, source);

	(void)events;
	if (c->out) {
		send_more(c);
		return;
	}
	ssize_t n = recv(source->fd, c->line + c->got, sizeof(c->line) - c->got, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0)
		c->got += n;
	bool complete = memchr(c->line, '\n', c->got) != NULL;

	if (!complete && n > 0 && c->got < sizeof(c->line))
		return;
	if (!c->got) {
		ctl_close(c);
		return;
	}
	json_t *reply = run(c->line, c->got);
	char *text = json_dumps(reply, JSON_COMPACT);

	json_decref(reply);
	if (!text || asprintf(&c->out, "%s\n", text) < 0)
		c->out = NULL;
	free(text);
	if (!c->out) {
		ctl_close(c);
		return;
	}
	c->out_size = strlen(c->out);
	send_more(c);
}

void ctl_accept(struct source *source, uint32_t events)
{
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ctl *c = fd >= 0 ? calloc(1, sizeof(*c)) : NULL;

	(void)events;
	if (!c) {
		if (fd >= 0)
			close(fd);
		return;
	}
	c->source = (struct source){.ready = on_ctl, .fd = fd};
	if (loop_add(&c->source, EPOLLIN)) {
		close(fd);
		free(c);
	}
}
