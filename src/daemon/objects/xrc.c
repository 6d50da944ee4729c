/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc.h. Owns the domains and the target queue pairs. */
#include "daemon/objects/xrc.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdlib.h>

#include "base/log.h"
#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/mcast.h"
#include "daemon/objects/context.h"
#include "daemon/objects/xrc_share.h"
#include "proto/limits.h"
#include "shm/xrc.h"

/* enum ibv_qp_state, enum ibv_event_type, whose numbers the kernel's headers don't have. */
enum { STATE_RESET = 0, STATE_ERR = 6, EVENT_QP_ACCESS_ERR = 3, EVENT_COMM_EST = 4 };

void xrc_init(struct xrc *xrc)
{
	*xrc = (struct xrc){0};
	list_init(&xrc->domains);
}

/* ------------------------------------------------------------------ the table, events */

static void target_publish(const struct target *target)
{
	const struct proto_xrc_state *is = &target->is;
	const struct xrc_view view = {
		.state = is->state | (uint64_t)IB_UVERBS_QPT_XRC_TGT << 8 |
			 (uint64_t)(is->access & 0xffff) << 16 | (uint64_t)is->epoch << 32,
		.domain = target->domain->number,
		.peer = is->peer,
		.rq_psn = is->rq_psn,
		.rnr_timer = (uint8_t)is->rnr_timer,
	};

	/* Its place exists since the target was made. */
	xrc_table_set(mcast_xrc_table(target->domain->server), target->qpn, &view);
}

uint32_t xrc_dispatcher(const struct server *server, uint32_t slot)
{
	return server->slots.process[slot] ? slot : server->xrc.heir[slot];
}

static uint32_t dispatcher_of(const struct target *target)
{
	return xrc_dispatcher(target->domain->server, target->qpn >> LIMIT_QP_BITS);
}

/* What processes are told of it. */
static struct proto_xrc_state target_state(const struct target *target)
{
	struct proto_xrc_state is = target->is;

	is.dispatcher = dispatcher_of(target);
	return is;
}

/* Tells all processes that have the domain open, and the one that gets the queue pair's packets. */
static void target_tell(const struct target *target, uint32_t event)
{
	uint32_t slot = dispatcher_of(target);
	struct process *at = process_by_slot(target->domain->server, slot);
	const struct process *last = at;

	if (at)
		events_xrc(&at->events, target->qpn, slot, event);
	list_for_each(node, &target->domain->handles) {
		struct process *process =
			container_of(node, struct xrcd, by_domain)->object.context->process;

		if (process != last && process != at)
			events_xrc(&process->events, target->qpn, slot, event);
		last = process;
	}
}

/* ------------------------------------------------------------------ domains */

static struct xrc_domain *domain_of_file(struct server *server, const struct conn *conn,
					 const struct proto_open_xrcd *body)
{
	list_for_each(node, &server->xrc.domains) {
		struct xrc_domain *domain = container_of(node, struct xrc_domain, node);

		if (domain->dev == body->dev && domain->ino == body->ino && domain->ino &&
		    domain->user == conn->user && domain->device == conn->device)
			return domain;
	}
	return NULL;
}

/* Ends one connection that has the domain open and whose client has ended; not `but`. Whether there
 * was one: the domain may have ended with it. */
static bool domain_lose_one(struct xrc_domain *domain, const struct conn *but)
{
	list_for_each(node, &domain->handles) {
		struct conn *conn =
			container_of(node, struct xrcd, by_domain)->object.context->conn;

		if (conn == but || !conn_has_hung_up(conn))
			continue;
		conn_close(conn);
		return true;
	}
	return false;
}

/* A client that opens something may know already (by waitpid(), say) that another process has
 * ended, while the loop hasn't come to that process's connections. As with the kernel, what the
 * process had has ended by then. */
static struct xrc_domain *living_domain_of_file(struct request *request)
{
	const struct conn *conn = request->conn;
	struct xrc_domain *domain;

	do
		domain = domain_of_file(conn->server, conn, request->body);
	while (domain && domain_lose_one(domain, conn));
	return domain;
}

static bool number_is_taken(const struct server *server, uint32_t number)
{
	list_for_each(node, &server->xrc.domains)
		if (container_of(node, struct xrc_domain, node)->number == number)
			return true;
	return false;
}

static uint32_t new_number(struct server *server)
{
	do
		server->xrc.last_number++;
	while (!server->xrc.last_number || number_is_taken(server, server->xrc.last_number));
	return server->xrc.last_number;
}

static struct xrc_domain *xrc_domain_make(const struct request *request)
{
	const struct proto_open_xrcd *body = request->body;
	struct server *server = request->conn->server;
	const struct proto_return *old = request->old;
	struct xrc_domain *domain = calloc(1, sizeof(*domain));

	if (!domain)
		return NULL;
	bool again = old && old->number && !number_is_taken(server, old->number);

	*domain = (struct xrc_domain){
		.server = server,
		.user = request->conn->user,
		.device = request->conn->device,
		.dev = body->dev,
		.ino = body->ino,
		.number = again ? old->number : new_number(server),
	};
	list_init(&domain->handles);
	list_init(&domain->targets);
	list_add_tail(&server->xrc.domains, &domain->node);
	return domain;
}

int command_open_xrcd(struct request *request, void *response)
{
	const struct proto_open_xrcd *body = request->body;
	struct proto_open_xrcd_resp *resp = response;
	struct xrc_domain *domain = living_domain_of_file(request);
	struct object *object;

	if (body->reserved)
		return -EINVAL;
	/* As the kernel: what O_CREAT and O_EXCL say is about a file's domain. */
	if (!request->old && domain && body->oflags & O_EXCL)
		return -EINVAL;
	if (!request->old && !domain && body->ino && !(body->oflags & O_CREAT))
		return -EAGAIN;
	int err = object_make(request, OBJECT_XRCD, sizeof(struct xrcd), &object);

	if (err)
		return err;
	if (!domain)
		domain = xrc_domain_make(request);
	if (!domain) {
		object_free(object);
		return -ENOMEM;
	}
	struct xrcd *xrcd = (struct xrcd *)object;

	xrcd->domain = domain;
	list_add_tail(&domain->handles, &xrcd->by_domain);
	*resp = (struct proto_open_xrcd_resp){object->handle, domain->number};
	return 0;
}

void xrcd_release(struct xrcd *xrcd)
{
	struct xrc_domain *domain = xrcd->domain;

	list_del(&xrcd->by_domain);
	if (!list_empty(&domain->handles))
		return;
	list_del(&domain->node); /* targets have ended with their handles */
	free(domain);
}

int command_close_xrcd(struct request *request, void *response)
{
	const struct ib_uverbs_close_xrcd *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_XRCD, body->xrcd_handle);
}

/* ------------------------------------------------------------------ target queue pairs */

static struct target *target_find(const struct server *server, uint32_t qpn)
{
	list_for_each(node, &server->xrc.domains) {
		struct xrc_domain *domain = container_of(node, struct xrc_domain, node);

		list_for_each(at, &domain->targets) {
			struct target *target = container_of(at, struct target, node);

			if (target->qpn == qpn)
				return target;
		}
	}
	return NULL;
}

bool xrc_takes_number(struct server *server, uint32_t qpn)
{
	struct target *target = server->xrc.targets ? target_find(server, qpn) : NULL;

	if (target)
		target->numbered = true;
	return target;
}

/* Calls `what` for each target queue pair with a number of the slot. Returns how many there are. */
static uint32_t for_each_of_slot(const struct server *server, uint32_t slot,
				 void (*what)(struct target *target))
{
	uint32_t count = 0;

	list_for_each(node, &server->xrc.domains) {
		struct xrc_domain *domain = container_of(node, struct xrc_domain, node);

		list_for_each(at, &domain->targets) {
			struct target *target = container_of(at, struct target, node);

			if (target->qpn >> LIMIT_QP_BITS != slot)
				continue;
			count++;
			what(target);
		}
	}
	return count;
}

static void only_count(struct target *target)
{
	(void)target;
}

bool xrc_has_slot(const struct server *server, uint32_t slot)
{
	return server->xrc.targets && for_each_of_slot(server, slot, only_count);
}

/* ------------------------------------------------------------------ heirs */

/* Makes the process of the first handle the heir of the number's slot, which has none. */
static void take_heir(struct target *target)
{
	uint16_t *heir = &target->domain->server->xrc.heir[target->qpn >> LIMIT_QP_BITS];

	if (!*heir && !list_empty(&target->handles))
		*heir = (uint16_t)container_of(target->handles.next, struct qp, by_target)
				->object.context->process->slot;
}

static void tell_change(struct target *target)
{
	target_tell(target, PROTO_XRC_NO_EVENT);
}

/* Finds an heir for a slot whose process has ended. */
static void find_heir(struct server *server, uint32_t slot)
{
	if (!for_each_of_slot(server, slot, take_heir) || !server->xrc.heir[slot])
		return;
	log_info("process at slot %u gets the packets for XRC queue pairs of slot %u",
		 server->xrc.heir[slot], slot);
	for_each_of_slot(server, slot, tell_change);
}

void xrc_settle_heirs(struct server *server)
{
	for (uint32_t slot = 1; server->xrc.targets && slot < LIMIT_SLOTS; slot++)
		if (!server->slots.process[slot] && !server->slots.absent[slot] &&
		    !server->xrc.heir[slot])
			find_heir(server, slot);
}

static void forget_number(struct target *target)
{
	target->numbered = false;
}

void xrc_process_ended(struct server *server, uint32_t slot)
{
	if (!server->xrc.targets)
		return;
	for_each_of_slot(server, slot, forget_number);
	for (uint32_t i = 0; i < LIMIT_SLOTS; i++)
		if (server->xrc.heir[i] == slot)
			server->xrc.heir[i] = 0;
	xrc_settle_heirs(server);
}

int xrc_make_target(struct xrc_domain *domain, uint32_t qpn, struct target **out)
{
	struct xrc *xrc = &domain->server->xrc;
	struct target *target =
		xrc->targets < LIMIT_XRC_TARGETS ? calloc(1, sizeof(*target)) : NULL;
	const struct xrc_view view = {.domain = domain->number};

	if (!target || xrc_table_set(mcast_xrc_table(domain->server), qpn, &view)) {
		complain(domain->user, "no place for another XRC target queue pair: there are %u",
			 xrc->targets);
		free(target);
		return -ENOMEM;
	}
	target->domain = domain;
	target->qpn = qpn;
	target->numbered = true;
	target->is.epoch = ++xrc->last_epoch;
	target->is.place = xrc_place_take(xrc);
	list_init(&target->handles);
	list_add_tail(&domain->targets, &target->node);
	xrc->targets++;
	target_publish(target);
	*out = target;
	return 0;
}

void xrc_join(struct target *target, struct qp *qp)
{
	qp->target = target;
	list_add_tail(&target->handles, &qp->by_target);
}

static void target_end(struct target *target)
{
	struct xrc_domain *domain = target->domain;
	struct server *server = domain->server;
	uint32_t slot = target->qpn >> LIMIT_QP_BITS;
	struct process *process = process_by_slot(server, slot);

	xrc_table_clear(mcast_xrc_table(server), target->qpn);
	list_del(&target->node);
	server->xrc.targets--;
	target_tell(target, PROTO_XRC_NO_EVENT);
	xrc_place_give(&server->xrc, domain->user, target->is.place);
	if (process && target->numbered)
		ids_give(&process->qpns, target->qpn & (LIMIT_QPS_PER_SLOT - 1));
	else if (!process && !server->slots.absent[slot] && !xrc_has_slot(server, slot)) {
		server->xrc.heir[slot] = 0;
		process_slot_done(server, slot);
	}
	free(target);
}

void xrc_leave(struct qp *qp)
{
	struct target *target = qp->target;

	list_del(&qp->by_target);
	qp->target = NULL;
	if (list_empty(&target->handles))
		target_end(target);
}

/* The target queue pair that the context's handle leads to; NULL: none. */
static struct target *target_of_handle(struct context *context, uint32_t handle)
{
	struct qp *qp = (struct qp *)object_find(context, OBJECT_QP, handle);

	return qp ? qp->target : NULL;
}

/* Writes the state that a process gives, as far as the process may choose. */
static void target_set(struct target *target, const struct proto_xrc_state *to)
{
	struct proto_xrc_state *is = &target->is, was = *is;
	struct xrc *xrc = &target->domain->server->xrc;
	bool resets = to->state == STATE_RESET && is->state != STATE_RESET;

	*is = *to;
	is->version = was.version + 1;
	is->epoch = resets ? ++xrc->last_epoch : was.epoch;
	is->place = resets ? xrc_place_take(xrc) : was.place;
	is->dispatcher = 0;
	is->access &= 0xffff;
	is->peer &= 0xffffff;
	is->rq_psn &= 0xffffff;
	is->rnr_timer &= 31;
	is->reserved = 0;
	if (!resets)
		return;
	target->established = false;
	xrc_place_give(xrc, target->domain->user, was.place);
}

int command_xrc_modify(struct request *request, void *response)
{
	const struct proto_xrc_modify *body = request->body;
	struct target *target = target_of_handle(request->conn->context, body->handle);

	if (!target || body->reserved || body->to.state > STATE_ERR)
		return -EINVAL;
	if (body->to.version != target->is.version)
		return -EAGAIN;
	target_set(target, &body->to);
	target_publish(target);
	target_tell(target, PROTO_XRC_NO_EVENT);
	*(struct proto_xrc_state *)response = target_state(target);
	return 0;
}

static bool has_domain_open(const struct process *process, const struct xrc_domain *domain)
{
	list_for_each(node, &domain->handles)
		if (container_of(node, struct xrcd, by_domain)->object.context->process == process)
			return true;
	return false;
}

/* Whether the process may report about the queue pair: it has the domain open, or the initiator. */
static bool may_report(const struct process *process, const struct target *target)
{
	return target->is.peer >> LIMIT_QP_BITS == process->slot ||
	       has_domain_open(process, target->domain);
}

int command_xrc_query(struct request *request, void *response)
{
	const struct proto_xrc_query *body = request->body;
	const struct conn *conn = request->conn;
	const struct target *target = NULL;

	if (conn->kind == CONN_CONTEXT && !body->qpn)
		target = target_of_handle(conn->context, body->handle);
	else if (conn->kind == CONN_PROCESS && !body->handle)
		target = target_find(conn->server, body->qpn);
	if (!target || (conn->process && conn->process->slot != dispatcher_of(target) &&
			!has_domain_open(conn->process, target->domain)))
		return -EINVAL;
	*(struct proto_xrc_state *)response = target_state(target);
	return 0;
}

int command_xrc_report(struct request *request, void *response)
{
	const struct proto_xrc_report *body = request->body;
	struct target *target = target_find(request->conn->server, body->qpn);

	(void)response;
	if (body->reserved || (body->event > EVENT_COMM_EST && body->event != PROTO_XRC_NO_EVENT))
		return -EINVAL;
	/* It may have ended, or be in another epoch, since the process met it. */
	if (!target || (uint8_t)target->is.epoch != (uint8_t)body->epoch ||
	    !may_report(request->conn->process, target) || target->is.state == STATE_ERR ||
	    target->is.state == STATE_RESET)
		return 0;
	if (body->event != EVENT_COMM_EST) {
		target->is.state = STATE_ERR;
		target->is.version++;
		target_publish(target);
	} else if (target->established) {
		return 0;
	}
	target->established = true;
	target_tell(target, body->event);
	return 0;
}

/* Makes a handle of `target` in the request's context. */
static int handle_make(struct request *request, struct xrcd *xrcd, struct target *target,
		       uint32_t *handle)
{
	struct object *object;
	int err = object_make(request, OBJECT_QP, sizeof(struct qp), &object);

	if (err)
		return err;
	struct qp *qp = (struct qp *)object;

	qp->type = IB_UVERBS_QPT_XRC_TGT;
	qp->qpn = target->qpn;
	qp->xrcd = xrcd;
	xrcd->object.users++;
	list_init(&qp->groups);
	xrc_join(target, qp);
	*handle = object->handle;
	return 0;
}

int command_open_qp(struct request *request, void *response)
{
	const struct ib_uverbs_open_qp *body = request->body;
	struct ib_uverbs_create_qp_resp *resp = response;
	struct context *context = request->conn->context;
	struct xrcd *xrcd = (struct xrcd *)object_find(context, OBJECT_XRCD, body->pd_handle);

	while (xrcd && domain_lose_one(xrcd->domain, request->conn))
		; /* the domain lives by this handle */
	struct target *target = target_find(request->conn->server, body->qpn);

	if (!xrcd || body->qp_type != IB_UVERBS_QPT_XRC_TGT || !target ||
	    target->domain != xrcd->domain)
		return -EINVAL;
	resp->qpn = target->qpn;
	return handle_make(request, xrcd, target, &resp->qp_handle);
}

static int target_make_again(struct xrc_domain *domain, uint32_t qpn,
			     const struct proto_xrc_state *was, struct target **out)
{
	struct xrc *xrc = &domain->server->xrc;
	int err = xrc_make_target(domain, qpn, out);

	if (err)
		return err;
	(*out)->numbered = false;
	xrc_place_give(xrc, domain->user, (*out)->is.place);
	target_set(*out, was);
	(*out)->is.epoch = was->epoch;
	(*out)->is.place = xrc_place_again(xrc, was->place);
	if ((int32_t)(was->epoch - xrc->last_epoch) > 0)
		xrc->last_epoch = was->epoch;
	target_publish(*out);
	return 0;
}

/* A process that returns brings a handle: the queue pair exists again, or is made again. */
int command_xrc_returns(struct request *request, void *response)
{
	const struct proto_xrc_returns *body = request->body;
	struct context *context = request->conn->context;
	struct server *server = request->conn->server;
	struct xrcd *xrcd = (struct xrcd *)object_find(context, OBJECT_XRCD, body->xrcd);
	uint32_t qpn = request->old ? request->old->number : 0, handle;
	struct target *target = target_find(server, qpn);
	int err = 0;

	if (!xrcd || !request->old || body->reserved || body->was.state > STATE_ERR ||
	    qpn >> LIMIT_QP_BITS == 0 || qpn > 0xffffff ||
	    (target && target->domain != xrcd->domain))
		return -EINVAL;
	if (!target)
		err = target_make_again(xrcd->domain, qpn, &body->was, &target);
	if (!err && qpn >> LIMIT_QP_BITS == context->process->slot &&
	    !ids_claim(&context->process->qpns, qpn & (LIMIT_QPS_PER_SLOT - 1)))
		target->numbered = true;
	if (!err) {
		err = handle_make(request, xrcd, target, &handle);
		if (err && list_empty(&target->handles))
			target_end(target);
	}
	if (!err)
		*(struct proto_xrc_state *)response = target_state(target);
	return err;
}
