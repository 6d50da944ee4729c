/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link: the shared memory of two processes of this host. The daemon makes the memory, hands it to
 * both processes, and closes it once both have it; it never reads it.
 */
#ifndef VERBENA_DAEMON_NET_LINK_H
#define VERBENA_DAEMON_NET_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process;

/* The side of a link that requested it. */
enum { LINK_ASKER = 0 };

struct link {
	uint64_t id;
	struct process *process[2];
	int memory;	     /* -1 once both events were sent */
	int bell[2];	     /* [s] wakes side s (shm/bell.h); -1: as `memory`, or one user */
	unsigned int unsent; /* events that still need the descriptors */
	bool strangers;	     /* of two users: they wake each other by the link's bells */
	bool show_regions;   /* each process gets the other's regions' file, too */
};

/*
 * Makes a link from `process` to the process at `slot`. Returns 0; -ENOENT: the slot is free;
 * -EINVAL: it is the process's own; -EALREADY: they have a link; -ENOMEM; -EMFILE: no descriptors,
 * or strangers have used up their share of the peer's.
 */
int link_make(struct process *process, uint32_t slot);

/* Makes the link that two processes had at another daemon; `side` is that of `process`. Returns 0
 * or -ENOMEM. */
int link_again(struct process *process, struct process *peer, unsigned int side, uint64_t id);

/* Ends a link that the process doesn't use any more: its peer gets LINK_DOWN, and they may be
 * linked anew. Returns 0 or -ENOENT. */
int link_give_up(struct process *process, uint32_t slot, uint64_t id);

/* The process ends: ends all its links, with LINK_DOWN to its peers. */
void link_free_all(struct process *process);

/* The link's event for one side has been sent or dropped. */
void link_event_done(struct link *link);

/* The user of the process on this side. */
uid_t link_uid(const struct link *link, unsigned int side);

#endif
