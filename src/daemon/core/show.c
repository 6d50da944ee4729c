/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes the daemon's state as JSON. See show.h. Keys that give access to a process's memory are
 * shown only to that process's user, the daemon's user and root. */
#include "daemon/core/show.h"

#include <arpa/inet.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cm/cm_show.h"
#include "daemon/core/conn.h"
#include "daemon/core/counters.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/text.h"
#include "daemon/core/user.h"
#include "daemon/net/mcast.h"
#include "daemon/net/slot_socket.h"
#include "daemon/objects/context.h"
#include "daemon/objects/pinned.h"
#include "shm/flow_rules.h"
#include "shm/pub.h"

/* ------------------------------------------------------------------ status */

static void gid_format(char *buffer, size_t size, const uint8_t *gid)
{
	if (!inet_ntop(AF_INET6, gid, buffer, (socklen_t)size))
		buffer[0] = 0;
}

/* The interfaces to which the device is bound, or else its base. */
static void show_interfaces(const struct device *device, struct text *out)
{
	json_open(out, "interfaces", '[');
	if (!device->bound)
		json_words(out, NULL, device->ifname);
	for (uint32_t i = 0; device->bound && i < device->bound->count; i++)
		json_words(out, NULL, device->bound->ifname[i]);
	json_close(out, ']');
}

static void show_wire(const struct wire *wire, struct text *out)
{
	json_open(out, "wire", '{');
	json_words(out, "state", wire->count ? "open" : wire->off ? "off" : "closed");
	if (wire->count) {
		json_flag(out, "ipv6", wire->ipv6);
		json_number(out, "port", WIRE_PORT);
		json_number(out, "sockets", wire->count);
	}
	if (wire->why[0])
		json_words(out, "why", wire->why);
	json_close(out, '}');
}

static void show_device(const struct device *device, struct text *out)
{
	const uint8_t *g = device->guid;
	char text[INET6_ADDRSTRLEN];

	json_open(out, NULL, '{');
	json_words(out, "name", device->name);
	json_words(out, "node", device->node);
	snprintf(text, sizeof(text), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3],
		 g[4], g[5], g[6], g[7]);
	json_words(out, "guid", text);
	json_number(out, "port", DEVICE_PORT);
	json_words(out, "state", device->port.up ? "ACTIVE" : "DOWN");
	json_number(out, "mtu", 128u << device_mtu(device));
	json_words(out, "rate", DEVICE_RATE);
	json_number(out, "port_cap_flags", DEVICE_PORT_CAPS);
	json_number(out, "device_cap_flags", device_capabilities());
	json_words(out, "fw_ver", DEVICE_FIRMWARE);
	show_interfaces(device, out);
	json_open(out, "gids", '[');
	for (uint32_t i = 0; i < LIMIT_GIDS; i++) {
		const struct host_address *entry = gids_get(&device->gids, i);

		if (!entry)
			continue;
		gid_format(text, sizeof(text), entry->gid);
		json_open(out, NULL, '{');
		json_number(out, "index", i);
		json_words(out, "gid", text);
		json_words(out, "type", "RoCE v2");
		json_words(out, "ifname", entry->ifname);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_open(out, "hidden_gids", '[');
	for (uint32_t i = LIMIT_GIDS; i < LIMIT_GID_INDICES; i++) {
		const struct host_address *entry = gids_get(&device->gids, i);

		if (!entry)
			continue;
		gid_format(text, sizeof(text), entry->gid);
		json_words(out, NULL, text);
	}
	json_close(out, ']');
	json_close(out, '}');
}

/* Shows the process and thread whose copy delays a deregistration of `process`, as `process`
 * reports it. `key`: the region's, or 0 for any. */
static void show_held_up(const struct process *process, uint32_t key, struct text *out)
{
	struct pub_held_up held_up;
	char text[16];

	if (pread(process->table, &held_up, sizeof(held_up), offsetof(struct pub, held_up)) !=
		    sizeof(held_up) ||
	    !held_up.pid || (key && held_up.key != key))
		return;
	snprintf(text, sizeof(text), "0x%x", held_up.key);
	json_open(out, "held_up", '{');
	json_number(out, "pid", held_up.pid);
	json_number(out, "thread", held_up.thread);
	json_words(out, "key", text);
	json_close(out, '}');
}

static void show_client(const struct process *process, struct text *out)
{
	json_open(out, NULL, '{');
	json_number(out, "pid", (uint64_t)process->pid);
	json_number(out, "uid", process->user->uid);
	json_words(out, "comm", process->comm);
	json_number(out, "slot", process->slot);
	json_number(out, "contexts", process->context_count);
	json_open(out, "objects", '{');
	for (int kind = 0; kind < OBJECT_KINDS; kind++)
		json_number(out, object_kind_name((enum object_kind)kind), process->objects[kind]);
	json_close(out, '}');
	json_number(out, "links", process->link_count);
	json_number(out, "pinned_bytes", process->pinned);
	show_held_up(process, 0, out);
	counters_show_process(process, out);
	json_close(out, '}');
}

bool show_may_see(const struct show_for *who, const struct process *process)
{
	return process && (who->all || process->user->uid == who->uid);
}

void show_status(const struct server *server, const struct show_for *who, struct text *out)
{
	json_open(out, NULL, '{');
	json_flag(out, "ok", true);
	json_words(out, "version", VERBENA_VERSION);
	json_number(out, "pid", (uint64_t)getpid());
	json_number(out, "uid", geteuid());
	json_number(out, "netns", server->net_ns);
	json_number(out, "uptime_ms", now_ms() - server->started_ms);
	json_words(out, "runtime_dir", server->dir);
	if (server->config.file[0])
		json_words(out, "config", server->config.file);
	show_wire(&server->wire, out);
	json_open(out, "devices", '[');
	for (uint32_t i = 0; i < server->devices.count; i++)
		if (devices_list_has(&server->devices, &server->devices.device[i]))
			show_device(&server->devices.device[i], out);
	json_close(out, ']');
	counters_show_sum(server, who, out);
	if (server->cm)
		cm_show(server->cm, out);
	json_open(out, "clients", '[');
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (show_may_see(who, server->slots.process[slot]))
			show_client(server->slots.process[slot], out);
	json_close(out, ']');
	json_close(out, '}');
}

void show_sum(const struct server *server, struct text *out)
{
	const struct show_for everybody = {.all = true};

	json_open(out, NULL, '{');
	json_flag(out, "ok", true);
	counters_show_sum(server, &everybody, out);
	json_close(out, '}');
}

/* ------------------------------------------------------------------ resources */

/* How peers of the same user reach a region. */
static const char *reach_text(uint32_t reach)
{
	static const char *const texts[] = {
		[PROTO_REACH_MAPPED] = "mapped",
		[PROTO_REACH_PRIVATE] = "by system calls: its memory is private",
		[PROTO_REACH_PIECES] = "by system calls: it is in too many files",
		[PROTO_REACH_OFF] = "by system calls: VERBENA_MEMORY=private",
		[PROTO_REACH_UNSEEN] = "by system calls: the process can't see its own mappings",
	};

	return reach < sizeof(texts) / sizeof(texts[0]) ? texts[reach] : NULL;
}

/* What the process has said of the region when it registered it, or has published since. */
static uint32_t reach_now(const struct mr *mr)
{
	uint32_t taken_back;

	if (mr->reach.reach == PROTO_REACH_MAPPED && mr->reach.converted &&
	    pread(mr->object.context->process->table, &taken_back, sizeof(taken_back),
		  offsetof(struct pub, header.taken_back)) == sizeof(taken_back) &&
	    taken_back + 1 != mr->reach.converted)
		return PROTO_REACH_PRIVATE;
	return mr->reach.reach;
}

static void show_mr(const struct mr *mr, struct text *out)
{
	const char *reach = reach_text(reach_now(mr));

	json_number(out, "pd", mr->pd->object.handle);
	json_number(out, "access", mr->access);
	if (mr->without_memory) {
		json_flag(out, "null", true);
		return;
	}
	if (mr->length == UINT64_MAX) {
		json_flag(out, "implicit", true);
		json_number(out, "rkey", mr->key);
		show_held_up(mr->object.context->process, mr->key, out);
		return;
	}
	if (mr->dm)
		json_number(out, "dm", mr->dm->object.handle);
	json_number(out, "addr", mr->addr);
	json_number(out, "length", mr->length);
	json_number(out, "iova", mr->iova);
	json_number(out, "rkey", mr->key);
	if (reach)
		json_words(out, "reach", reach);
	show_held_up(mr->object.context->process, mr->key, out);
}

static void show_mw(const struct mw *mw, struct text *out)
{
	json_number(out, "pd", mw->pd->object.handle);
	json_number(out, "type", mw->type);
	json_number(out, "rkey", mw->rkey);
}

static void show_dm(const struct dm *dm, struct text *out)
{
	json_number(out, "length", dm->length);
	json_number(out, "users", dm->object.users);
}

static void show_cq(const struct cq *cq, struct text *out)
{
	json_number(out, "cqe", cq->cqe);
	json_number(out, "comp_vector", cq->comp_vector);
	if (cq->channel)
		json_number(out, "channel", cq->channel->object.handle);
	json_number(out, "users", cq->object.users);
}

/* As published by its process; of an XRC target queue pair the daemon itself has the state. */
static struct pub_qp_view qp_view(const struct qp *qp)
{
	if (qp->target)
		return (struct pub_qp_view){.state = qp->target->is.state,
					    .peer = qp->target->is.peer};
	return process_read_qp(qp->object.context->process, qp->qpn);
}

static void show_qp(const struct qp *qp, struct text *out)
{
	static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
	static const char *const types[] = {[IB_UVERBS_QPT_RC] = "RC",
					    [IB_UVERBS_QPT_UC] = "UC",
					    [IB_UVERBS_QPT_UD] = "UD",
					    [IB_UVERBS_QPT_XRC_INI] = "XRC_SEND",
					    [IB_UVERBS_QPT_XRC_TGT] = "XRC_RECV",
					    [IB_UVERBS_QPT_RAW_PACKET] = "RAW_PACKET",
					    [PROTO_QPT_WQ] = "WQ"};
	struct pub_qp_view view = qp_view(qp);
	uint32_t state = pub_qp_state(view.state);

	json_number(out, "qpn", qp->qpn);
	json_words(out, "type", types[qp->type]);
	json_words(out, "state",
		   state < sizeof(states) / sizeof(states[0]) ? states[state] : "UNKNOWN");
	if (qp->xrcd)
		json_number(out, "xrcd", qp->xrcd->object.handle);
	if (qp->pd)
		json_number(out, "pd", qp->pd->object.handle);
	if (qp->send_cq)
		json_number(out, "send_cq", qp->send_cq->object.handle);
	if (qp->recv_cq)
		json_number(out, "recv_cq", qp->recv_cq->object.handle);
	if (qp->srq)
		json_number(out, "srq", qp->srq->object.handle);
	if (view.peer && (qp->type == IB_UVERBS_QPT_RC || qp->type == IB_UVERBS_QPT_UC))
		json_number(out, "remote_qpn", view.peer & 0xffffff);
}

static void show_flow(const struct flow *flow, struct text *out)
{
	static const char *const types[] = {"NORMAL", "ALL_DEFAULT", "MC_DEFAULT", "SNIFFER"};
	const struct flow_rules *flows = mcast_flows(flow->object.context->process->server);
	struct flow_rule rule;

	json_number(out, "qpn", flow->qp->qpn);
	if (!flows || !flows_read(flows, flow->place, &rule))
		return;
	json_words(out, "type", types[rule.type]);
	json_number(out, "priority", rule.priority);
	json_flag(out, "drops", rule.actions & FLOW_DROP);
	json_flag(out, "counts", rule.actions & FLOW_COUNT);
	json_flag(out, "passes", rule.actions & FLOW_DONT_TRAP);
	json_flag(out, "egress", rule.actions & FLOW_EGRESS);
	json_number(out, "tag", rule.tag);
}

static void show_ah(const struct ah *ah, struct text *out)
{
	char dgid[INET6_ADDRSTRLEN];

	gid_format(dgid, sizeof(dgid), ah->attr.grh.dgid);
	json_number(out, "pd", ah->pd->object.handle);
	json_words(out, "dgid", dgid);
	json_number(out, "sgid_index", ah->attr.grh.sgid_index);
}

static void show_srq(const struct srq *srq, struct text *out)
{
	json_number(out, "pd", srq->pd->object.handle);
	json_number(out, "max_wr", srq->max_wr);
	json_number(out, "max_sge", srq->max_sge);
	if (srq->cq)
		json_number(out, "cq", srq->cq->object.handle);
	if (srq->max_tags)
		json_number(out, "max_tags", srq->max_tags);
	if (srq->xrcd) {
		json_number(out, "srqn", srq->srqn);
		json_number(out, "xrcd", srq->xrcd->object.handle);
	}
}

static void show_xrcd(const struct xrcd *xrcd, struct text *out)
{
	const struct xrc_domain *domain = xrcd->member->domain;

	json_number(out, "domain", domain->number);
	if (domain->ino) {
		json_number(out, "dev", domain->dev);
		json_number(out, "ino", domain->ino);
	}
	json_number(out, "users", xrcd->object.users);
	json_number(out, "targets", domain->targets);
}

void show_object(const struct object *object, struct text *out)
{
	json_open(out, NULL, '{');
	json_number(out, "pid", (uint64_t)object->context->process->pid);
	json_words(out, "comm", object->context->process->comm);
	json_words(out, "device", object->context->conn->device->name);
	json_number(out, "handle", object->handle);
	switch (object->kind) {
	case OBJECT_MR:
		show_mr((const struct mr *)object, out);
		break;
	case OBJECT_MW:
		show_mw((const struct mw *)object, out);
		break;
	case OBJECT_DM:
		show_dm((const struct dm *)object, out);
		break;
	case OBJECT_CQ:
		show_cq((const struct cq *)object, out);
		break;
	case OBJECT_QP:
		show_qp((const struct qp *)object, out);
		break;
	case OBJECT_FLOW:
		show_flow((const struct flow *)object, out);
		break;
	case OBJECT_SRQ:
		show_srq((const struct srq *)object, out);
		break;
	case OBJECT_AH:
		show_ah((const struct ah *)object, out);
		break;
	case OBJECT_XRCD:
		show_xrcd((const struct xrcd *)object, out);
		break;
	case OBJECT_PD:
	case OBJECT_CHANNEL:
		json_number(out, "users", object->users);
		break;
	case OBJECT_KINDS:
		break;
	}
	json_close(out, '}');
}

void show_contexts(const struct process *process, struct text *out)
{
	list_for_each(node, &process->contexts) {
		const struct context *context = container_of(node, struct context, node);

		if (context->ended)
			continue;
		json_open(out, NULL, '{');
		json_number(out, "pid", (uint64_t)process->pid);
		json_words(out, "comm", process->comm);
		json_words(out, "device", context->conn->device->name);
		json_close(out, '}');
	}
}

void show_attachment(const struct qp *qp, const struct attachment *a, struct text *out)
{
	char gid[INET6_ADDRSTRLEN], listening[128];

	gid_format(gid, sizeof(gid), a->group->gid);
	mcast_listening(a->group, listening, sizeof(listening));
	json_open(out, NULL, '{');
	json_number(out, "pid", (uint64_t)qp->object.context->process->pid);
	json_words(out, "comm", qp->object.context->process->comm);
	json_number(out, "qpn", qp->qpn);
	json_words(out, "gid", gid);
	json_words(out, "interfaces", listening);
	json_close(out, '}');
}

void show_process(const struct process *process, struct text *out)
{
	uint64_t limit = pinned_limit(process);

	json_open(out, NULL, '{');
	json_number(out, "pid", (uint64_t)process->pid);
	json_words(out, "comm", process->comm);
	json_number(out, "uid", process->user->uid);
	json_number(out, "pinned_bytes", process->pinned);
	if (limit != UINT64_MAX)
		json_number(out, "memlock_bytes", limit);
	json_close(out, '}');
}

static void show_user(const struct user *user, struct text *out)
{
	json_open(out, NULL, '{');
	json_number(out, "uid", user->uid);
	json_number(out, "processes", user->processes);
	json_number(out, "objects", user->objects);
	json_number(out, "pinned_bytes", user->pinned);
	json_close(out, '}');
}

void show_users(const struct server *server, const struct show_for *who, struct text *out)
{
	list_for_each(node, (struct list *)&server->users) {
		const struct user *user = container_of(node, struct user, node);

		if (user->processes && (who->all || who->uid == user->uid))
			show_user(user, out);
	}
}
