/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link: what two processes of this host share. The daemon makes its memory, introduces the two,
 * and forgets the memory once both have it; it never looks inside.
 */
#ifndef VERBENA_DAEMON_NET_LINK_H
#define VERBENA_DAEMON_NET_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process;

/* Which side of a link wished for it. */
enum { LINK_ASKER = 0 };

struct link {
	uint64_t id;
	struct process *process[2];
	int memory;  /* -1 once both events are out */
	int bell[2]; /* that side s hears (shm/bell.h); -1: as `memory`, or not of strangers */
	unsigned int unsent; /* events that still need the descriptors */
	bool strangers;	     /* two users: they wake each other by bells of this link */
	bool show_regions;   /* each gets the other's, too */
};

/*
 * Introduces `process` to the one at `slot`. 0; -ENOENT nobody there; -EINVAL that's itself;
 * -EALREADY they were introduced; -ENOMEM; -EMFILE no descriptors, or strangers have their share of
 * the peer's.
 */
int link_make(struct process *process, uint32_t slot);

/* The link that two processes had at another daemon; `side` is that of `process`. 0 or -ENOMEM. */
int link_again(struct process *process, struct process *peer, unsigned int side, uint64_t id);

/* The process doesn't use this link any more: its peer is told, and they may be introduced anew. 0
 * or -ENOENT. */
int link_give_up(struct process *process, uint32_t slot, uint64_t id);

/* The process ends: its peers are told. */
void link_free_all(struct process *process);

/* The link's event for one side has been sent or dropped. */
void link_event_done(struct link *link);

uid_t link_uid(const struct link *link, unsigned int side);

#endif
