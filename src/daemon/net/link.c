/* SPDX-License-Identifier: BSD-2-Clause */
/* Links. See link.h. The `links` arrays of both processes point to the link, each at the other's
 * slot. */
#include "daemon/net/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/proc_file.h"
#include "daemon/core/events.h"
#include "daemon/core/memory.h"
#include "daemon/core/process.h"
#include "daemon/core/return.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "shm/bell.h"
#include "shm/link.h"

uid_t link_uid(const struct link *link, unsigned int side)
{
	return link->process[side]->user->uid;
}

/*
 * Whether two processes count as different users, between which keys aren't shown. A process has
 * the user that it had when it connected, as with a node of the kernel's, and keeps what it has
 * got. But a process that has changed its user since (a server that gave up root) is not shown that
 * user's regions in a new link.
 */
static bool are_strangers(const struct process *one, const struct process *two)
{
	return one->user != two->user || process_uid_now(one) != one->user->uid ||
	       process_uid_now(two) != two->user->uid;
}

/*
 * The share of a process's descriptors for links that it didn't request. A link costs it two
 * descriptors; SHARE_LINKS of its soft limit are for links that other users' processes requested,
 * and no user gets more than half of what the other strangers leave.
 */
#define SHARE_LINKS(files) ((files) / 8 * 3)

static uint32_t files_limit(const struct process *process)
{
	enum { BYTES = 4096, USUAL = 1024 };
	char text[BYTES];
	unsigned int soft;

	proc_file_read(process->pid, "limits", text, sizeof(text));
	const char *line = strstr(text, "Max open files");

	return line && sscanf(line, "Max open files %u", &soft) == 1 ? soft : USUAL;
}

static bool is_imposed(const struct link *link, const struct process *process)
{
	return link && link->strangers && link->process[!LINK_ASKER] == process;
}

static int check_share(const struct process *asker, const struct process *peer)
{
	uint32_t all = SHARE_LINKS(files_limit(peer)), others = 0, own = 0;

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		const struct link *link = peer->links[slot];

		if (!is_imposed(link, peer))
			continue;
		if (link->process[LINK_ASKER]->user == asker->user)
			own++;
		else
			others++;
	}
	if (others < all && own + 1 <= (all - others + 1) / 2)
		return 0;
	complain(asker->user,
		 "process %d (%s) of user %u gets no link to process %d (%s): %u of that user's "
		 "and %u of other strangers' have one, which leaves none for them of its %u "
		 "descriptors (see prlimit(1))",
		 asker->pid, asker->comm, asker->user->uid, peer->pid, peer->comm, own, others,
		 files_limit(peer));
	return -EMFILE;
}

static int links_room(struct process *process)
{
	if (!process->links)
		process->links = calloc(LIMIT_SLOTS, sizeof(struct link *));
	return process->links ? 0 : -ENOMEM;
}

static void link_close_fds(struct link *link)
{
	int *const fds[] = {&link->memory, &link->bell[0], &link->bell[1]};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

void link_event_done(struct link *link)
{
	if (!--link->unsent)
		link_close_fds(link);
}

static void link_forget(struct link *link)
{
	for (unsigned int side = 0; side < 2; side++) {
		struct process *self = link->process[side], *peer = link->process[!side];

		self->links[peer->slot] = NULL;
		self->link_count--;
	}
	free(link);
}

static void link_announce(struct link *link)
{
	/* One reference more, because the descriptors must outlive the first event until the second
	 * is queued. */
	link->unsent = 3;
	for (unsigned int side = 0; side < 2; side++)
		if (events_link(&link->process[side]->events, link, side))
			link_event_done(link);
	link_event_done(link);
}

static void link_enter(struct link *link)
{
	for (unsigned int side = 0; side < 2; side++) {
		struct process *self = link->process[side], *peer = link->process[!side];

		self->links[peer->slot] = link;
		self->link_count++;
	}
}

int link_again(struct process *process, struct process *peer, unsigned int side, uint64_t id)
{
	struct link *link =
		links_room(process) || links_room(peer) ? NULL : calloc(1, sizeof(*link));

	if (!link)
		return -ENOMEM;
	link->id = id;
	link->memory = link->bell[0] = link->bell[1] = -1; /* both processes have them */
	link->process[side] = process;
	link->process[!side] = peer;
	link_enter(link);
	return 0;
}

/* Makes the link's memory, and its bells if the two are of different users. Returns 0 or -errno. */
static int make_fds(struct link *link)
{
	link->memory = memory_make("verbena-link", LINK_SIZE);
	int err = link->memory < 0 ? link->memory : 0;

	for (unsigned int side = 0; !err && link->strangers && side < 2; side++) {
		link->bell[side] = bell_make();
		err = link->bell[side] < 0 ? link->bell[side] : 0;
	}
	if (err)
		link_close_fds(link);
	return err;
}

/* NULL: no memory. */
static struct link *link_new_between(struct process *asker, struct process *peer)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->memory = link->bell[0] = link->bell[1] = -1;
	link->process[LINK_ASKER] = asker;
	link->process[!LINK_ASKER] = peer;
	link->strangers = are_strangers(asker, peer);
	/* Decided for both sides at once: a process that shows its regions must see the other's
	 * hazards. */
	link->show_regions = !link->strangers && asker->regions >= 0 && peer->regions >= 0;
	return link;
}

int link_make(struct process *process, uint32_t slot)
{
	struct process *peer = process_by_slot(process->server, slot);

	if (peer == process)
		return -EINVAL;
	if (slot < LIMIT_SLOTS && (!peer || peer->returning) && !return_await(process, slot))
		return 0;
	if (!peer || !events_alive(&peer->events) || !events_alive(&process->events))
		return -ENOENT;
	if (links_room(process) || links_room(peer))
		return -ENOMEM;
	if (process->links[slot])
		return -EALREADY;
	struct link *link = link_new_between(process, peer);

	if (!link)
		return -ENOMEM;
	int err = link->strangers ? check_share(process, peer) : 0;

	if (err) {
		free(link);
		return err;
	}
	err = make_fds(link);

	if (err) {
		complain(process->user,
			 "no memory or descriptors for a link between processes %d and %d: %s",
			 process->pid, peer->pid, strerror(-err));
		free(link);
		return err;
	}
	link->id = ++process->server->last_link_id;
	link_enter(link);
	log_debug("link %llu between processes %d and %d", (unsigned long long)link->id,
		  process->pid, peer->pid);
	link_announce(link);
	return 0;
}

/* `process` ends, or ends the link: its own pending event is dropped, the peer gets LINK_DOWN. */
static void link_end(struct link *link, struct process *process)
{
	unsigned int peer_side = link->process[0] == process;

	events_link_down(&link->process[peer_side]->events, link, peer_side);
	events_link_forget(&process->events, link);
	link_forget(link);
}

int link_give_up(struct process *process, uint32_t slot, uint64_t id)
{
	struct link *link = process->links && slot < LIMIT_SLOTS ? process->links[slot] : NULL;

	if (!link || link->id != id)
		return return_unclaim(process, slot, id);
	log_debug("link %llu is given up by process %d", (unsigned long long)id, process->pid);
	link_end(link, process);
	return 0;
}

void link_free_all(struct process *process)
{
	for (uint32_t slot = 0; process->links && slot < LIMIT_SLOTS; slot++)
		if (process->links[slot])
			link_end(process->links[slot], process);
}
