/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc.h. Owns the domains and the target queue pairs. */
#include "daemon/objects/xrc.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/counter.h"
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

int xrc_init(struct xrc *xrc)
{
	*xrc = (struct xrc){.last_number = COUNTER_START(4), .last_epoch = COUNTER_START(4)};
	list_init(&xrc->to_tell);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		list_init(&xrc->by_slot[slot]);
	if (getrandom(&xrc->seed, sizeof(xrc->seed), 0) != sizeof(xrc->seed))
		log_debug("no random seed for the files of XRC domains");
	if (index_init(&xrc->by_number) || index_init(&xrc->by_file) || index_init(&xrc->by_qpn)) {
		xrc_fini(xrc);
		return -ENOMEM;
	}
	return 0;
}

void xrc_fini(struct xrc *xrc)
{
	index_fini(&xrc->by_number);
	index_fini(&xrc->by_file);
	index_fini(&xrc->by_qpn);
}

/* ------------------------------------------------------------------ the table, events */

static void target_publish(const struct target *target)
{
	const struct proto_xrc_state *is = &target->is;
	const struct xrc_view view = {
		.state = is->state | (uint64_t)IB_UVERBS_QPT_XRC_TGT << 8 |
			 (uint64_t)(is->access & 0xffff) << 16 | pub_qp_epoch_bits(is->epoch),
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
	list_for_each(node, &target->domain->members) {
		struct process *process =
			container_of(node, struct xrc_member, node)->context->process;

		if (process != last && process != at)
			events_xrc(&process->events, target->qpn, slot, event);
		last = process;
	}
}

/* ------------------------------------------------------------------ domains */

static uint64_t file_key(const struct xrc *xrc, const struct user *user, uint64_t dev, uint64_t ino)
{
	return index_mix(index_mix(ino ^ xrc->seed) ^ dev) ^ user->uid;
}

/* Whether a context has it open that hasn't ended. */
static bool xrc_domain_is_alive(const struct xrc_domain *domain)
{
	list_for_each(node, (struct list *)&domain->members)
		if (!context_has_ended(container_of(node, struct xrc_member, node)->context))
			return true;
	return false;
}

/* A process that returns continues also with one that only ended contexts have open. */
static struct xrc_domain *domain_of_file(const struct request *request)
{
	const struct proto_open_xrcd *body = request->body;
	const struct conn *conn = request->conn;
	const struct server *server = conn->server;
	const struct xrc *xrc = &server->xrc;
	uint64_t key = file_key(xrc, conn->user, body->dev, body->ino);

	if (!body->ino)
		return NULL;
	for (struct index_node *at = index_first(&xrc->by_file, key); at; at = index_next(at)) {
		struct xrc_domain *domain = container_of(at, struct xrc_domain, by_file);

		if (domain->dev == body->dev && domain->ino == body->ino &&
		    domain->user == conn->user && domain->device == conn->device &&
		    (request->old || xrc_domain_is_alive(domain)))
			return domain;
	}
	return NULL;
}

/* Ends one connection that has the domain open and whose client has ended; not `but`. Whether there
 * was one: the domain may have ended with it. */
static bool domain_lose_one(struct xrc_domain *domain, const struct conn *but)
{
	list_for_each(node, &domain->members) {
		const struct context *context =
			container_of(node, struct xrc_member, node)->context;
		struct conn *conn = context->conn;

		if (conn == but || context_has_ended(context) || !conn_has_hung_up(conn))
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
		domain = domain_of_file(request);
	while (domain && domain_lose_one(domain, conn));
	return domain;
}

static bool number_is_taken(const struct server *server, uint32_t number)
{
	return index_first(&server->xrc.by_number, number);
}

static uint32_t new_number(struct server *server)
{
	do
		server->xrc.last_number++;
	while (!server->xrc.last_number || number_is_taken(server, server->xrc.last_number));
	return server->xrc.last_number;
}

/* 0 says that a target queue pair's shared memory has no epoch yet (shm/xrc_shared.h). */
static uint32_t next_epoch(struct xrc *xrc)
{
	if (!++xrc->last_epoch)
		xrc->last_epoch++;
	return xrc->last_epoch;
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
	list_init(&domain->members);
	index_add(&server->xrc.by_number, &domain->by_number, domain->number);
	if (domain->ino)
		index_add(&server->xrc.by_file, &domain->by_file,
			  file_key(&server->xrc, domain->user, domain->dev, domain->ino));
	return domain;
}

static void domain_end(struct xrc_domain *domain)
{
	struct xrc *xrc = &domain->server->xrc;

	index_remove(&xrc->by_number, &domain->by_number);
	index_remove(&xrc->by_file, &domain->by_file);
	free(domain);
}

/* The context's membership, made if there is none; NULL: no memory. */
static struct xrc_member *member_get(struct xrc_domain *domain, struct context *context)
{
	struct list *beside = &domain->members;

	list_for_each(node, &domain->members) {
		struct xrc_member *member = container_of(node, struct xrc_member, node);

		if (member->context == context)
			return member;
		if (member->context->process == context->process)
			beside = node;
	}
	struct xrc_member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	member->domain = domain;
	member->context = context;
	list_add_tail(beside, &member->node);
	return member;
}

static void member_put(struct xrc_member *member)
{
	struct xrc_domain *domain = member->domain;

	if (member->handles)
		return;
	list_del(&member->node);
	free(member);
	if (list_empty(&domain->members)) /* targets have ended with their handles */
		domain_end(domain);
}

/* The membership of the request's context in the domain; NULL: in a new one. NULL: no memory. */
static struct xrc_member *member_of_request(struct request *request, struct xrc_domain *domain)
{
	struct xrc_domain *made = domain ? NULL : xrc_domain_make(request);
	struct xrc_member *member = NULL;

	if (domain || made)
		member = member_get(domain ? domain : made, request->conn->context);
	if (made && !member)
		domain_end(made);
	return member;
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
	struct xrc_member *member = member_of_request(request, domain);

	if (!member) {
		object_free(object);
		return -ENOMEM;
	}
	member->handles++;
	((struct xrcd *)object)->member = member;
	*resp = (struct proto_open_xrcd_resp){object->handle, member->domain->number};
	return 0;
}

void xrcd_release(struct xrcd *xrcd)
{
	xrcd->member->handles--;
	member_put(xrcd->member);
}

int command_close_xrcd(struct request *request, void *response)
{
	const struct ib_uverbs_close_xrcd *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_XRCD, body->xrcd_handle);
}

/* ------------------------------------------------------------------ target queue pairs */

/* A handle that hasn't ended; NULL: none is left. */
static const struct qp *living_handle(const struct target *target)
{
	list_for_each(node, (struct list *)&target->handles) {
		const struct qp *qp = container_of(node, struct qp, by_target);

		if (!context_has_ended(qp->object.context))
			return qp;
	}
	return NULL;
}

static struct target *target_with_number(const struct server *server, uint32_t qpn)
{
	struct index_node *node = index_first(&server->xrc.by_qpn, qpn);

	return node ? container_of(node, struct target, by_qpn) : NULL;
}

static struct target *target_find(const struct server *server, uint32_t qpn)
{
	struct target *target = target_with_number(server, qpn);

	return target && living_handle(target) ? target : NULL;
}

bool xrc_takes_number(struct server *server, uint32_t qpn)
{
	struct target *target = target_with_number(server, qpn);

	if (target)
		target->numbered = true;
	return target;
}

bool xrc_has_slot(const struct server *server, uint32_t slot)
{
	return !list_empty(&server->xrc.by_slot[slot]);
}

uint32_t xrc_slots_kept(const struct server *server, const struct user *user)
{
	const struct slots *slots = &server->slots;
	uint32_t kept = 0;

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		const struct list *targets = &server->xrc.by_slot[slot];

		if (!list_empty(targets) && !slots->process[slot] && !slots->ended[slot])
			kept += container_of(targets->next, struct target, by_slot)->domain->user ==
				user;
	}
	return kept;
}

/* ------------------------------------------------------------------ heirs */

/* The slot of a process that has one of this slot's target queue pairs open; 0: none. */
static uint32_t xrc_heir_for(const struct server *server, uint32_t slot)
{
	list_for_each(node, (struct list *)&server->xrc.by_slot[slot]) {
		const struct qp *handle = living_handle(container_of(node, struct target, by_slot));

		if (handle)
			return handle->object.context->process->slot;
	}
	return 0;
}

/* Finds an heir for a slot whose process has ended. */
static void find_heir(struct server *server, uint32_t slot)
{
	uint32_t heir = xrc_heir_for(server, slot);

	if (!heir)
		return;
	server->xrc.heir[slot] = (uint16_t)heir;
	log_info("process at slot %u gets the packets for XRC queue pairs of slot %u", heir, slot);
	list_for_each(node, &server->xrc.by_slot[slot]) {
		struct target *target = container_of(node, struct target, by_slot);

		list_del(&target->to_tell);
		list_add_tail(&server->xrc.to_tell, &target->to_tell);
	}
	ending_begin(server);
}

bool xrc_tell_one(struct xrc *xrc)
{
	struct list *node = list_pop(&xrc->to_tell);

	if (node)
		target_tell(container_of(node, struct target, to_tell), PROTO_XRC_NO_EVENT);
	return node;
}

bool xrc_has_to_tell(const struct xrc *xrc)
{
	return !list_empty(&xrc->to_tell);
}

void xrc_settle_heirs(struct server *server)
{
	for (uint32_t slot = 1; slot < LIMIT_SLOTS; slot++)
		if (xrc_has_slot(server, slot) && !server->slots.process[slot] &&
		    !server->slots.absent[slot] && !server->xrc.heir[slot])
			find_heir(server, slot);
}

void xrc_process_ended(struct server *server, uint32_t slot)
{
	list_for_each(node, &server->xrc.by_slot[slot])
		container_of(node, struct target, by_slot)->numbered = false;
	for (uint32_t i = 0; i < LIMIT_SLOTS; i++)
		if (server->xrc.heir[i] == slot)
			server->xrc.heir[i] = 0;
	xrc_settle_heirs(server);
}

int xrc_make_target(struct xrc_domain *domain, uint32_t qpn, struct target **out)
{
	struct server *server = domain->server;
	struct xrc *xrc = &server->xrc;
	bool allowed = pool_allows(&server->pools, domain->user, POOL_TARGETS);
	struct target *target = allowed ? calloc(1, sizeof(*target)) : NULL;
	const struct xrc_view view = {.domain = domain->number};

	if (!target || xrc_table_set(mcast_xrc_table(server), qpn, &view)) {
		complain(domain->user,
			 "no place for another XRC target queue pair: user %u has %u, all users %u",
			 domain->user->uid, domain->user->taken[POOL_TARGETS],
			 server->pools.taken[POOL_TARGETS]);
		free(target);
		return -ENOMEM;
	}
	target->domain = domain;
	target->qpn = qpn;
	target->numbered = true;
	target->is.epoch = next_epoch(xrc);
	target->is.place = xrc_place_take(xrc);
	list_init(&target->handles);
	list_init(&target->to_tell);
	index_add(&xrc->by_qpn, &target->by_qpn, qpn);
	list_add_tail(&xrc->by_slot[qpn >> LIMIT_QP_BITS], &target->by_slot);
	domain->targets++;
	pool_take(&server->pools, domain->user, POOL_TARGETS);
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
	index_remove(&server->xrc.by_qpn, &target->by_qpn);
	list_del(&target->by_slot);
	list_del(&target->to_tell);
	domain->targets--;
	pool_give(&server->pools, domain->user, POOL_TARGETS);
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
	is->epoch = resets ? next_epoch(xrc) : was.epoch;
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
	list_for_each(node, (struct list *)&domain->members)
		if (container_of(node, struct xrc_member, node)->context->process == process)
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

	while (xrcd && domain_lose_one(xrcd->member->domain, request->conn))
		; /* the domain lives by this handle */
	struct target *target = target_find(request->conn->server, body->qpn);

	if (!xrcd || body->qp_type != IB_UVERBS_QPT_XRC_TGT || !target ||
	    target->domain != xrcd->member->domain)
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
	struct target *target = target_with_number(server, qpn);
	int err = 0;

	if (!xrcd || !request->old || body->reserved || body->was.state > STATE_ERR ||
	    qpn >> LIMIT_QP_BITS == 0 || qpn > 0xffffff ||
	    (target && target->domain != xrcd->member->domain))
		return -EINVAL;
	if (!target)
		err = target_make_again(xrcd->member->domain, qpn, &body->was, &target);
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
