/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The roster: which process has which slot, in the file `roster` of the run-time directory.
 *
 * The roster outlives the daemon. Processes go on exchanging data when their daemon was killed, and
 * their QPNs contain their slots; so the next daemon must keep a slot for its process while that
 * lives (return.h). The roster also says where each slot's numbers begin, because the quarantine of
 * numbers spans daemons. Only the daemon's user can read it, because a cookie is a secret.
 *
 * A daemon that can't write the roster serves all the same, but no process can return to its
 * successor.
 */
#ifndef VERBENA_DAEMON_CORE_ROSTER_H
#define VERBENA_DAEMON_CORE_ROSTER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/limits.h"

struct process;

/* One entry for each slot. The entry of slot 0, which no process has, is the file's head: `cookie`
 * and `born` are its magic number and version, `qpn_start` is the slot that was given out last. */
struct roster_entry {
	uint64_t cookie;
	uint64_t born; /* its start time, which differs for a later process of that pid */
	int32_t pid;   /* 0: the slot is free */
	uint32_t uid;
	uint32_t qpn_start, key_start; /* see ids_init() */
};

struct roster {
	int fd; /* -1: none */
	struct roster_entry entries[LIMIT_SLOTS];
};

/* Reads the roster that the last daemon left, or begins a new one. */
void roster_open(struct roster *roster, int dir_fd);
void roster_close(struct roster *roster);

/* Writes the entry of a process that has attached. */
void roster_enter(struct roster *roster, const struct process *process);
/* The slot's process has ended; the slot's new marks are those in struct slots. */
void roster_leave(struct roster *roster, const struct process *process);

/* The slot after the last one that was given out; 1 for a new roster. */
uint32_t roster_next_slot(const struct roster *roster);

/* Whether the entry's process still lives. */
bool roster_alive(const struct roster_entry *entry);

#endif
