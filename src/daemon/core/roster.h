/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The roster: which process has which slot, in the file `roster` of the run-time directory.
 *
 * It outlives the daemon. Data goes on between processes whose daemon was killed, and their QPNs
 * have their slots in them; so the next daemon must give a slot to nobody else while its process
 * lives (return.h). It also says where each slot's numbers begin, because numbers age across
 * daemons as well. Only the daemon's user can read it: a cookie is a secret.
 *
 * A daemon that can't write it serves all the same; then nobody can return to its successor.
 */
#ifndef VERBENA_DAEMON_CORE_ROSTER_H
#define VERBENA_DAEMON_CORE_ROSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/limits.h"

struct process;

/* One entry a slot; that of slot 0, which nobody has, is the file's head: `cookie` and `born` say
 * what file this is, `qpn_start` which slot was given out last. */
struct roster_entry {
	uint64_t cookie;
	uint64_t born; /* the process's start time, so that a reused pid isn't taken for it */
	int32_t pid;   /* 0: nobody */
	uint32_t uid;
	uint32_t qpn_start, key_start; /* see ids_init() */
};

struct roster {
	int fd; /* -1: none */
	struct roster_entry entries[LIMIT_SLOTS];
};

/* Reads what a predecessor left, or begins anew. */
void roster_open(struct roster *roster, int dir_fd);
void roster_close(struct roster *roster);

void roster_enter(struct roster *roster, const struct process *process);
/* The slot's process is gone; its marks are those in struct slots. */
void roster_leave(struct roster *roster, const struct process *process);

/* The slot after the one that was given out last; 1 for a new roster. */
uint32_t roster_next_slot(const struct roster *roster);

/* Whether the entry's process still lives. */
bool roster_alive(const struct roster_entry *entry);

#endif
