/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow rules: which raw packet queue pair gets which frames. The daemon checks a rule once, here,
 * and publishes it (shm/flow_rules.h); processes decide by what is published where a frame goes.
 * The daemon sees no frame.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <string.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/device.h"
#include "daemon/net/mcast.h"
#include "daemon/objects/context.h"
#include "shm/flow_rules.h"
#include "wire/steer.h"

_Static_assert(PROTO_FLOW_BYTES == STEER_BYTES, "one limit");

static bool has_unknown(const struct proto_create_flow *body)
{
	static const uint8_t none[sizeof(body->reserved)];

	return body->type > IBV_FLOW_ATTR_SNIFFER || body->size > sizeof(body->specs) ||
	       body->port != 1 || memcmp(body->reserved, none, sizeof(none)) ||
	       body->flags &
		       ~(uint32_t)(IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS);
}

/* Checks what the client sent, and fills the rule but for its handle. *tags: it gives a tag. */
static int rule_of(const struct proto_create_flow *body, const struct qp *qp,
		   const struct device *device, struct flow_rule *rule, bool *tags)
{
	bool passes = body->flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	struct steer_actions actions;
	const char *why;

	if (has_unknown(body))
		return -EINVAL;
	int err = steer_check(body->specs, body->size, body->count, &actions, &why);

	if (err)
		return err;
	if (body->type != IBV_FLOW_ATTR_NORMAL && (actions.describes || body->flags))
		return -EINVAL;
	if (passes && actions.drops)
		return -EINVAL;
	*tags = actions.tags;
	*rule = (struct flow_rule){
		.qpn = qp->qpn,
		.tag = actions.tag,
		.device = (uint16_t)device->index,
		.priority = body->priority,
		.type = (uint8_t)body->type,
		.actions = (body->flags & IBV_FLOW_ATTR_FLAGS_EGRESS ? FLOW_EGRESS : 0) |
			   (passes ? FLOW_DONT_TRAP : 0) | (actions.drops ? FLOW_DROP : 0) |
			   (actions.counts ? FLOW_COUNT : 0),
		.size = body->size,
	};
	memcpy(rule->specs, body->specs, body->size);
	return 0;
}

/* Whether a rule of this user is for the same frames at the same priority, and says something else
 * about what is done with them: it drops them and the new one doesn't, or the other way round; or
 * the new one gives a tag that isn't its. As a card of the mlx5 family, which has one entry for
 * both. */
static bool rule_contradicts(const struct request *request, const struct flow_rules *flows,
			     const struct flow_rule *rule, bool tags)
{
	uint64_t user = (uint64_t)request->conn->context->process->user->uid + 1;
	uint32_t places = atomic_load_explicit(&flows->places, memory_order_relaxed);
	struct flow_rule other;

	for (uint32_t i = 0; i < places; i++) {
		if (!flows_read(flows, i, &other) || other.type != rule->type ||
		    other.device != rule->device || other.priority != rule->priority ||
		    (other.actions ^ rule->actions) & (FLOW_DONT_TRAP | FLOW_EGRESS) ||
		    atomic_load_explicit(&flows->user[other.qpn >> LIMIT_QP_BITS],
					 memory_order_relaxed) != user)
			continue;
		bool differ = (other.actions ^ rule->actions) & FLOW_DROP ||
			      (tags && other.tag != rule->tag);

		if (differ && steer_same(other.specs, other.size, rule->specs, rule->size))
			return true;
	}
	return false;
}

static int check_quota(struct request *request)
{
	const struct process *process = request->conn->context->process;

	if (pool_allows(&process->server->pools, process->user, POOL_FLOWS))
		return 0;
	if (request_may_wait(request))
		return -EAGAIN;
	complain(process->user,
		 "process %d (%s) may not make another flow rule: user %u has %u, the most that "
		 "a user may have",
		 process->pid, process->comm, process->user->uid, process->user->taken[POOL_FLOWS]);
	return -ENOMEM;
}

/* A number that no rule of this daemon had before. */
static uint64_t new_name(void)
{
	static uint64_t last;

	return ++last;
}

static int flow_publish(struct flow *flow, struct flow_rule *rule)
{
	struct process *process = flow->object.context->process;
	struct flow_rules *flows = mcast_flows(process->server);

	rule->handle = flow->object.handle;
	int place = flows ? flows_add(flows, new_name(), rule) : -ENOMEM;

	if (place < 0)
		return place;
	flow->place = (uint32_t)place;
	pool_take(&process->server->pools, process->user, POOL_FLOWS);
	return 0;
}

int command_create_flow(struct request *request, void *response)
{
	const struct proto_create_flow *body = request->body;
	struct proto_create_flow_resp *resp = response;
	struct context *context = request->conn->context;
	struct qp *qp = (struct qp *)object_find(context, OBJECT_QP, body->qp);
	struct flow_rule rule;
	struct object *object;
	bool tags;

	if (!qp || qp->type != IB_UVERBS_QPT_RAW_PACKET)
		return -EINVAL;
	int err = rule_of(body, qp, request->conn->device, &rule, &tags);
	const struct flow_rules *flows = mcast_flows(context->process->server);

	/* A process that returns had its rules accepted, perhaps in another order. */
	if (!err && !request->old && flows && rule_contradicts(request, flows, &rule, tags))
		err = -EEXIST;
	if (!err)
		err = check_quota(request);
	if (!err)
		err = object_make(request, OBJECT_FLOW, sizeof(struct flow), &object);
	if (err)
		return err;
	struct flow *flow = (struct flow *)object;

	err = flow_publish(flow, &rule);
	if (err) {
		object_free(object);
		return err;
	}
	flow->qp = qp;
	qp->object.users++;
	resp->handle = object->handle;
	return 0;
}

void flow_release(struct flow *flow)
{
	struct process *process = flow->object.context->process;
	struct flow_rules *flows = mcast_flows(process->server);

	if (flows)
		flows_remove(flows, flow->place);
	pool_give(&process->server->pools, process->user, POOL_FLOWS);
	flow->qp->object.users--;
}

int command_destroy_flow(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_FLOW, body->handle);
}
