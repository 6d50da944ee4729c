/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A user (uid) with connections to the daemon: what is counted per user, so that one user can't
 * exhaust what all users share, and how many log lines the user's programs may cause.
 */
#ifndef VERBENA_DAEMON_CORE_USER_H
#define VERBENA_DAEMON_CORE_USER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/log.h"

struct user {
	struct list node;
	uid_t uid;
	uint32_t connections; /* of all kinds; the user is freed with the last */
	uint32_t processes;   /* attached */
	uint32_t ctls;	      /* of the connections: those to `ctl` */
	uint32_t objects;     /* of all kinds, by all processes */
	uint64_t pinned;      /* bytes, by all processes */
	int xrc_memory;	      /* what its processes share (shm/xrc_shared.h); -1: nothing yet */
	uint64_t lines_at_ms; /* when `lines` was last refilled */
	uint32_t lines;	      /* log lines that are still allowed */
	uint32_t suppressed;
};

/* Finds or makes the user; counts one connection. NULL: no memory. */
struct user *user_get(struct list *users, uid_t uid);
/* Counts one connection less. */
void user_put(struct user *user);

/* Whether a line that this user's program caused may be logged. Logs how many were suppressed
 * before. */
bool user_may_log(struct user *user);

/* Logs a warning that a client can cause at will; limited per user. */
#define complain(user, ...)                    \
	do {                                   \
		if (user_may_log(user))        \
			log_warn(__VA_ARGS__); \
	} while (0)

#endif
