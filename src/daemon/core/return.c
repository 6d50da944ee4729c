/* SPDX-License-Identifier: BSD-2-Clause */
/* Returning processes. See return.h. Owns the absent entries, claims and sets of slots. */
#include "daemon/core/return.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/attach.h"
#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/net/link.h"
#include "daemon/net/mcast.h"
#include "daemon/objects/context.h"
#include "daemon/objects/xrc.h"

/* ------------------------------------------------------------------ waiting for a slot */

static int set_add(struct slot_set **set, uint32_t slot)
{
	if (!*set)
		*set = calloc(1, sizeof(**set));
	if (!*set)
		return -ENOMEM;
	(*set)->bits[slot / 64] |= 1ull << slot % 64;
	return 0;
}

static bool set_has(const struct slot_set *set, uint32_t slot)
{
	return set && set->bits[slot / 64] >> slot % 64 & 1;
}

int return_await(struct process *process, uint32_t slot)
{
	struct slots *slots = &process->server->slots;
	struct process *peer = slots->process[slot];

	if (peer && peer->returning)
		return set_add(&peer->awaited_by, process->slot);
	return slots->absent[slot] ? set_add(&slots->absent[slot]->awaited_by, process->slot)
				   : -ENOENT;
}

/* Links the processes in `set` with the process at `slot`, or reports to them that there is
 * none. */
static void serve_waiting(struct server *server, struct slot_set *set, uint32_t slot)
{
	for (uint32_t i = 0; set && i < LIMIT_SLOTS; i++) {
		struct process *waiting = set_has(set, i) ? server->slots.process[i] : NULL;
		int err = waiting ? link_make(waiting, slot) : 0;

		if (err && err != -EALREADY)
			events_down(&waiting->events, slot, 0);
	}
	free(set);
}

/* ------------------------------------------------------------------ links */

/* The process at `slot` is back or has ended: ends the remaining claims of other processes on
 * it. */
static void end_claims_on(struct server *server, uint32_t slot)
{
	for (uint32_t i = 0; i < LIMIT_SLOTS; i++) {
		struct process *process = server->slots.process[i];

		if (!process || !process->claims || !process->claims[slot].id)
			continue;
		events_down(&process->events, slot, process->claims[slot].id);
		process->claims[slot].id = 0;
	}
}

/* The process is back: ends its remaining claims on slots whose processes are back or have
 * ended. */
static void end_claims_of(struct process *process)
{
	const struct slots *slots = &process->server->slots;

	for (uint32_t slot = 0; process->claims && slot < LIMIT_SLOTS; slot++) {
		struct claim *claim = &process->claims[slot];
		const struct process *peer = slots->process[slot];

		if (!claim->id || slots->absent[slot] || (peer && peer->returning))
			continue;
		events_down(&process->events, slot, claim->id);
		claim->id = 0;
	}
}

int return_unclaim(struct process *process, uint32_t slot, uint64_t id)
{
	struct claim *claim = process->claims && slot < LIMIT_SLOTS ? &process->claims[slot] : NULL;

	if (!id || !claim || claim->id != id)
		return -ENOENT;
	claim->id = 0;
	return 0;
}

int command_link_return(struct request *request, void *response)
{
	const struct proto_link_return *body = request->body;
	struct process *process = request->conn->process;

	(void)response;
	if (!body->link_id || !body->slot || body->slot >= LIMIT_SLOTS || body->side > 1 ||
	    body->slot == process->slot)
		return -EINVAL;
	if (process->links && process->links[body->slot])
		return -EEXIST;
	if (!process->claims)
		process->claims = calloc(LIMIT_SLOTS, sizeof(*process->claims));
	if (!process->claims)
		return -ENOMEM;
	struct process *peer = process_by_slot(process->server, body->slot);
	struct claim *theirs = peer && peer->claims ? &peer->claims[process->slot] : NULL;

	if (theirs && theirs->id == body->link_id && theirs->side != body->side) {
		theirs->id = 0;
		return link_again(process, peer, body->side, body->link_id);
	}
	process->claims[body->slot] = (struct claim){body->link_id, body->side};
	return 0;
}

/* ------------------------------------------------------------------ coming back */

int return_begin(struct process *process, const struct proto_attach *body)
{
	struct slots *slots = &process->server->slots;
	struct absent *absent = body->slot < LIMIT_SLOTS ? slots->absent[body->slot] : NULL;

	if (!body->qpn_index || body->qpn_index >= LIMIT_QPS_PER_SLOT || !body->key_index ||
	    body->key_index >= LIMIT_MRS_PER_SLOT)
		return -EINVAL;
	if (!absent || absent->cookie != body->cookie || absent->uid != process->user->uid) {
		complain(process->user,
			 "process %d (%s) can't return to slot %u: the roster doesn't have it",
			 process->pid, process->comm, body->slot);
		return -ESTALE;
	}
	process->slot = absent->slot;
	process->cookie = absent->cookie;
	process->awaited_by = absent->awaited_by;
	process->returning = true;
	absent->awaited_by = NULL;
	slots->absent[absent->slot] = NULL;
	loop_remove(&process->server->loop, &absent->death);
	close(absent->fd);
	free(absent);
	return 0;
}

int command_returned(struct request *request, void *response)
{
	struct process *process = request->conn->process;
	struct slot_set *awaited_by = process->awaited_by;

	(void)response;
	process->returning = false;
	process->awaited_by = NULL;
	ids_claimed(&process->qpns);
	keys_claimed(&process->keys);
	list_for_each(node, &process->contexts)
		table_claimed(&container_of(node, struct context, node)->table);
	end_claims_of(process);
	end_claims_on(process->server, process->slot);
	serve_waiting(process->server, awaited_by, process->slot);
	mcast_settle(process->server);
	xrc_settle(process->server);
	log_info("process %d (%s) is back with all that it holds", process->pid, process->comm);
	return 0;
}

void return_end(struct process *process)
{
	end_claims_on(process->server, process->slot);
	serve_waiting(process->server, process->awaited_by, process->slot);
	free(process->claims);
	mcast_settle(process->server);
}

/* ------------------------------------------------------------------ absents */

static void absent_free(struct absent *absent)
{
	loop_remove(&absent->server->loop, &absent->death);
	close(absent->fd);
	free(absent->awaited_by);
	free(absent);
}

static void return_on_death(struct watch *watch, uint32_t events)
{
	struct absent *absent = container_of(watch, struct absent, death);
	struct server *server = absent->server;
	struct slot_set *awaited_by = absent->awaited_by;
	uint32_t slot = absent->slot;

	(void)events;
	absent->awaited_by = NULL;
	server->slots.absent[slot] = NULL;
	absent_free(absent);
	process_slot_done(server, slot);
	xrc_settle(server);
	end_claims_on(server, slot);
	serve_waiting(server, awaited_by, slot);
	mcast_settle(server);
	attach_resume(server);
}

/* Keeps the slot for the entry's process, unless that has ended. */
static int keep_slot(struct server *server, uint32_t slot, const struct roster_entry *entry)
{
	int fd = (int)syscall(SYS_pidfd_open, entry->pid, 0);

	if (fd < 0)
		return errno == ESRCH || errno == EINVAL ? 0 : -errno;
	/* Checked again: the pid may have been reused before the pidfd was opened. */
	struct absent *absent = roster_alive(entry) ? calloc(1, sizeof(*absent)) : NULL;

	if (!absent) {
		close(fd);
		return 0;
	}
	*absent = (struct absent){.server = server,
				  .fd = fd,
				  .death = {.fd = -1, .ready = return_on_death},
				  .slot = slot,
				  .uid = entry->uid,
				  .cookie = entry->cookie};
	int err = loop_add(&server->loop, &absent->death, fd, EPOLLIN);

	if (!err)
		err = ids_claim(&server->slots.ids, slot);
	if (err) {
		absent_free(absent);
		return err;
	}
	server->slots.absent[slot] = absent;
	return 0;
}

/* Sets where the slot's numbers begin. It isn't known how many of them a process used that ended
 * without a daemon, so a share of them is skipped. */
static void take_marks(struct slots *slots, uint32_t slot, const struct roster_entry *entry)
{
	bool unknown = entry->pid && !roster_alive(entry);

	slots->qpn_start[slot] = entry->qpn_start + (unknown ? LIMIT_QPS_PER_SLOT / 4 : 0);
	slots->key_start[slot] = entry->key_start + (unknown ? LIMIT_MRS_PER_SLOT / 4 : 0);
}

int returns_open(struct server *server)
{
	struct slots *slots = &server->slots;
	int err = 0;

	roster_open(&server->roster, server->dir_fd);
	slots_init(slots, roster_next_slot(&server->roster));
	for (uint32_t slot = 1; !err && slot < LIMIT_SLOTS; slot++) {
		const struct roster_entry *entry = &server->roster.entries[slot];

		take_marks(slots, slot, entry);
		if (roster_alive(entry))
			err = keep_slot(server, slot, entry);
	}
	ids_claimed(&slots->ids);
	return err;
}

void returns_close(struct server *server)
{
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++)
		if (server->slots.absent[slot])
			absent_free(server->slots.absent[slot]);
	roster_close(&server->roster);
}
