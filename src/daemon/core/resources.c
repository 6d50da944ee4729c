/* SPDX-License-Identifier: BSD-2-Clause */
/* See resources.h. No state of its own. */
#include "daemon/core/resources.h"

#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_show.h"
#include "daemon/core/conn.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/show.h"
#include "daemon/core/text.h"
#include "daemon/core/user.h"
#include "daemon/net/mcast.h"
#include "daemon/objects/context.h"

/* The arrays, in their order. PART_KINDS stands for one of each kind of object. */
enum {
	PART_PROCESSES,
	PART_USERS,
	PART_CONTEXTS,
	PART_KINDS,
	PART_GROUPS = PART_KINDS + OBJECT_KINDS,
	PART_IDS,
	PART_END,
};

/* What a step looks at, at most. */
enum { PLACES = 64, ATTACHMENTS = 16 };

static const char *part_name(uint32_t part)
{
	switch (part) {
	case PART_PROCESSES:
		return "process";
	case PART_USERS:
		return "user";
	case PART_CONTEXTS:
		return "context";
	case PART_GROUPS:
		return "mcast";
	case PART_IDS:
		return "cm_id";
	default:
		return object_kind_name((enum object_kind)(part - PART_KINDS));
	}
}

/* The next process that `who` may see, from the slot under way on; NULL: none. */
static const struct process *process_at(const struct server *server, const struct show_for *who,
					struct resources *at)
{
	while (at->slot < LIMIT_SLOTS && !show_may_see(who, server->slots.process[at->slot])) {
		at->slot++;
		at->serial = at->index = at->nth = 0;
	}
	return at->slot < LIMIT_SLOTS ? server->slots.process[at->slot] : NULL;
}

/* A step of a part that has one entry, or few, for each process. */
static bool write_process(const struct server *server, const struct show_for *who,
			  struct resources *at, struct text *out)
{
	const struct process *process = process_at(server, who, at);

	if (!process)
		return false;
	if (at->part == PART_PROCESSES)
		show_process(process, out);
	else
		show_contexts(process, out);
	at->slot++;
	return true;
}

static void resources_next(struct resources *at, uint64_t serial)
{
	at->serial = serial + 1;
	at->index = at->nth = 0;
}

/* The process's context under way, or the next; NULL: none. */
static const struct context *context_at(const struct process *process, struct resources *at)
{
	list_for_each(node, (struct list *)&process->contexts) {
		const struct context *context = container_of(node, struct context, node);

		if (context->serial < at->serial || context->ended)
			continue;
		if (context->serial > at->serial)
			at->index = at->nth = 0;
		at->serial = context->serial;
		return context;
	}
	return NULL;
}

/* Some of a queue pair's attachments. Returns whether there are more. */
static bool write_groups(const struct qp *qp, struct resources *at, struct text *out)
{
	uint32_t nth = 0;

	list_for_each(node, (struct list *)&qp->groups) {
		if (nth == at->nth + ATTACHMENTS) {
			at->nth = nth;
			return true;
		}
		if (nth++ >= at->nth)
			show_attachment(qp, container_of(node, struct attachment, by_qp), out);
	}
	at->nth = 0;
	return false;
}

/* Some places of a context's table. */
static void write_places(const struct context *context, struct resources *at, struct text *out)
{
	bool groups = at->part == PART_GROUPS;
	uint32_t kind = groups ? OBJECT_QP : at->part - PART_KINDS;

	for (uint32_t i = 0; i < PLACES && at->index < context->table.room; i++) {
		const struct object *object = table_at(&context->table, at->index);

		if (object && object->kind == kind) {
			if (groups && write_groups((const struct qp *)object, at, out))
				return;
			if (!groups)
				show_object(object, out);
		}
		at->index++;
	}
	if (at->index >= context->table.room)
		resources_next(at, context->serial);
}

static bool write_objects(const struct server *server, const struct show_for *who,
			  struct resources *at, struct text *out)
{
	const struct process *process = process_at(server, who, at);
	const struct context *context = process ? context_at(process, at) : NULL;

	if (context) {
		write_places(context, at, out);
	} else if (process) {
		at->slot++;
		at->serial = at->index = at->nth = 0;
	}
	return process;
}

/* Some identifiers of a client of the CM. */
static bool write_ids(const struct server *server, const struct show_for *who, struct resources *at,
		      struct text *out)
{
	list_for_each(node, (struct list *)&server->conns) {
		const struct conn *conn = container_of(node, struct conn, node);

		if (conn->serial < at->serial || !conn->cm ||
		    !(who->all || conn->user->uid == who->uid))
			continue;
		if (conn->serial > at->serial)
			at->index = 0;
		at->serial = conn->serial;
		for (uint32_t i = 0; i < PLACES && at->index < conn->cm->table.room; i++)
			cm_show_place(conn, at->index++, out);
		if (at->index >= conn->cm->table.room)
			resources_next(at, conn->serial);
		return true;
	}
	return false;
}

/* A step of the part under way. False: it is complete. */
static bool write_part(const struct server *server, const struct show_for *who,
		       struct resources *at, struct text *out)
{
	switch (at->part) {
	case PART_PROCESSES:
	case PART_CONTEXTS:
		return write_process(server, who, at, out);
	case PART_USERS:
		show_users(server, who, out);
		return false;
	case PART_IDS:
		return write_ids(server, who, at, out);
	default:
		return write_objects(server, who, at, out);
	}
}

bool resources_write(const struct server *server, const struct show_for *who, struct resources *at,
		     struct text *out)
{
	if (at->part == PART_END)
		return false;
	if (!at->open) {
		if (!at->part) {
			json_open(out, NULL, '{');
			json_flag(out, "ok", true);
		}
		json_open(out, part_name(at->part), '[');
		at->open = true;
	}
	if (write_part(server, who, at, out))
		return true;
	json_close(out, ']');
	*at = (struct resources){.part = at->part + 1};
	if (at->part == PART_END)
		json_close(out, '}');
	return at->part != PART_END;
}
