/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts and their objects' lives. See context.h and objects.h. */
#include "daemon/objects/context.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/mcast.h"
#include "daemon/objects/share.h"
#include "proto/limits.h"

enum { CONTEXTS_MAX = 1024 };

static const char *const kind_names[] = {
	[OBJECT_AH] = "ah",	      [OBJECT_FLOW] = "flow", [OBJECT_QP] = "qp",
	[OBJECT_SRQ] = "srq",	      [OBJECT_MW] = "mw",     [OBJECT_MR] = "mr",
	[OBJECT_DM] = "dm",	      [OBJECT_CQ] = "cq",     [OBJECT_PD] = "pd",
	[OBJECT_CHANNEL] = "channel", [OBJECT_XRCD] = "xrcd",
};
_Static_assert(sizeof(kind_names) / sizeof(kind_names[0]) == OBJECT_KINDS, "every kind has a name");

/* The number of objects of each kind that one process may hold. */
static const uint32_t quotas[] = {
	[OBJECT_AH] = LIMIT_AH,
	[OBJECT_FLOW] = LIMIT_PROCESS_FLOWS,
	[OBJECT_QP] = LIMIT_QPS_PER_SLOT - 1,
	[OBJECT_SRQ] = LIMIT_SRQ,
	[OBJECT_MW] = LIMIT_MW,
	[OBJECT_MR] = LIMIT_MR,
	[OBJECT_DM] = LIMIT_DM,
	[OBJECT_CQ] = LIMIT_CQ,
	[OBJECT_CHANNEL] = LIMIT_CQ,
	[OBJECT_PD] = LIMIT_PD,
	[OBJECT_XRCD] = LIMIT_XRCD,
};
_Static_assert(sizeof(quotas) / sizeof(quotas[0]) == OBJECT_KINDS, "every kind has a quota");

const char *object_kind_name(enum object_kind kind)
{
	return kind_names[kind];
}

int context_make(struct process *process, struct conn *conn, const uint64_t token[2],
		 struct context **out)
{
	if (process->context_count >= CONTEXTS_MAX) {
		complain(process->user,
			 "process %d (%s) may not open the device more than %d times at once",
			 process->pid, process->comm, CONTEXTS_MAX);
		return -ENOMEM;
	}
	/* Its interface has gone since the program listed the devices. The first device also serves
	 * nodes of a fabric, which need no interface. */
	if (!process->returning && conn->device->index &&
	    !devices_list_has(&process->server->devices, conn->device))
		return -ENODEV;
	struct context *context = calloc(1, sizeof(*context));

	if (!context)
		return -ENOMEM;
	context->process = process;
	context->conn = conn;
	context->serial = ++process->server->last_serial;
	table_init(&context->table);
	for (int kind = 0; kind < OBJECT_KINDS; kind++)
		list_init(&context->objects[kind]);
	share_enter(context, token);
	list_add_tail(&process->contexts, &context->node);
	process->context_count++;
	*out = context;
	return 0;
}

bool context_has_ended(const struct context *context)
{
	return context->ended || context->process->ended;
}

void context_end(struct context *context)
{
	context->ended = true;
	share_leave(context);
}

/* A step of destroying it, which takes a bounded time. */
static void object_destroy_some(struct object *object)
{
	if ((object->kind == OBJECT_QP && mcast_detach_one((struct qp *)object)) ||
	    (object->kind == OBJECT_DM && dm_lose_one((struct dm *)object)))
		return;
	object_destroy(object);
}

bool context_free_some(struct context *context)
{
	for (int kind = 0; kind < OBJECT_KINDS; kind++)
		if (!list_empty(&context->objects[kind])) {
			object_destroy_some(
				container_of(context->objects[kind].next, struct object, node));
			return true;
		}
	return false;
}

void context_free(struct context *context)
{
	list_del(&context->node);
	context->process->context_count--;
	table_fini(&context->table);
	free(context);
}

bool request_may_wait(struct request *request)
{
	request->later = ending_may_help(request->conn, false);
	return request->later;
}

/* Gives the object a handle: a new one, or the old one when its process is returning. */
static int name_object(struct object *object, const struct proto_return *old)
{
	if (!old)
		return table_add(&object->context->table, object, &object->handle) ? -ENOMEM : 0;
	object->handle = old->handle;
	return table_claim(&object->context->table, object, old->handle);
}

int object_make(struct request *request, enum object_kind kind, size_t size, struct object **out)
{
	struct context *context = request->conn->context;
	struct process *process = context->process;

	bool is_full = process->objects[kind] >= quotas[kind];
	bool has_much = process->user->objects >= process->server->config.user_objects;

	if ((is_full || (has_much && !request->old)) && request_may_wait(request))
		return -EAGAIN;
	if (is_full) {
		complain(process->user,
			 "process %d (%s) may not make more than %u objects of kind %s",
			 process->pid, process->comm, quotas[kind], kind_names[kind]);
		return -ENOMEM;
	}
	if (has_much && !request->old) {
		complain(process->user,
			 "process %d (%s) may not make another %s: user %u has %u objects, the "
			 "most that user-objects in verbenad.conf allows",
			 process->pid, process->comm, kind_names[kind], process->user->uid,
			 process->user->objects);
		return -ENOMEM;
	}
	struct object *object = calloc(1, size);

	if (!object)
		return -ENOMEM;
	object->kind = kind;
	object->context = context;
	int err = name_object(object, request->old);

	if (err) {
		free(object);
		return err;
	}
	list_add_tail(&context->objects[kind], &object->node);
	process->objects[kind]++;
	process->user->objects++;
	*out = object;
	return 0;
}

struct object *object_find(struct context *context, enum object_kind kind, uint32_t handle)
{
	struct object *object = table_find(&context->table, handle);

	return object && object->kind == kind ? object : NULL;
}

void object_free(struct object *object)
{
	struct context *context = object->context;

	table_remove(&context->table, object->handle);
	list_del(&object->node);
	context->process->objects[object->kind]--;
	context->process->user->objects--;
	free(object);
}

void object_destroy(struct object *object)
{
	switch (object->kind) {
	case OBJECT_AH:
		ah_release((struct ah *)object);
		break;
	case OBJECT_FLOW:
		flow_release((struct flow *)object);
		break;
	case OBJECT_QP:
		qp_release((struct qp *)object);
		break;
	case OBJECT_SRQ:
		srq_release((struct srq *)object);
		break;
	case OBJECT_MW:
		mw_release((struct mw *)object);
		break;
	case OBJECT_MR:
		mr_release((struct mr *)object);
		break;
	case OBJECT_DM:
		dm_release((struct dm *)object);
		break;
	case OBJECT_CQ:
		cq_release((struct cq *)object);
		break;
	case OBJECT_XRCD:
		xrcd_release((struct xrcd *)object);
		break;
	case OBJECT_PD:
		pd_release((struct pd *)object);
		break;
	case OBJECT_CHANNEL:
	case OBJECT_KINDS:
		break; /* these kinds hold nothing */
	}
	object_free(object);
}

int object_destroy_handle(struct context *context, enum object_kind kind, uint32_t handle)
{
	struct object *object = object_find(context, kind, handle);

	if (!object)
		return -ENOENT; /* as in the kernel: EINVAL is for uses of an object */
	if (object->users)
		return -EBUSY;
	object_destroy(object);
	return 0;
}
