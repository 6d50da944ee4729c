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

/*
 * What all users' programs take from one pool of the host. The rule of shares, the same for all: a
 * user may have no more than half of what the others leave, so that the next user gets some.
 * Root and the daemon's own user aren't limited by it, only by the pool. docs/trust.md has the
 * table of all limits, and a test compares it with these.
 */
enum pool_kind {
	POOL_GROUPS,	  /* multicast groups in which the user is */
	POOL_ATTACHMENTS, /* of queue pairs to groups */
	POOL_TARGETS,	  /* XRC target queue pairs */
	POOL_FLOWS,	  /* flow rules */
	POOL_FILES,	  /* objects with descriptors of the daemon's: device memory, CM channels */
	POOL_KINDS,
};

/* What there is, by all users. */
struct pools {
	uint32_t taken[POOL_KINDS];
	uint32_t files; /* the size of POOL_FILES: it depends on the daemon's limit */
};

struct user {
	struct list node;
	uid_t uid;
	uint32_t connections; /* of all kinds */
	uint32_t ending;      /* connections that have ended and aren't freed yet (ending.h) */
	uint32_t processes;   /* attached */
	uint32_t ctls;	      /* of the connections: those to `ctl` */
	uint32_t objects;     /* of all kinds, by all processes */
	uint32_t taken[POOL_KINDS];
	uint64_t pinned;      /* bytes, by all processes */
	int xrc_memory;	      /* what its processes share (shm/xrc_shared.h); -1: nothing yet */
	uint64_t lines_at_ms; /* when `lines` was last refilled */
	uint32_t lines;	      /* log lines that are still allowed */
	uint32_t suppressed;
};

/* Finds or makes the user; counts one connection. NULL: no memory. */
struct user *user_get(struct list *users, uid_t uid);
/* Counts one connection less. The last one, when none is ending either, frees the user, at once or
 * when its log lines don't count any more and another user comes. */
void user_put(struct user *user);
/* A connection that was ending has been freed. */
void user_put_ended(struct user *user);

/* Whether a user may have one more of something of which there is `all`, when it has `own` and the
 * other users have `others`. */
bool share_allows(const struct user *user, uint32_t all, uint32_t others, uint32_t own);

/* Whether the user may take one more from the pool. Root and the daemon's own user may always have
 * more of POOL_FILES, until the daemon's descriptors run out. */
bool pool_allows(const struct pools *pools, const struct user *user, enum pool_kind kind);
void pool_take(struct pools *pools, struct user *user, enum pool_kind kind);
void pool_give(struct pools *pools, struct user *user, enum pool_kind kind);
/* The whole pool, and its name in docs/trust.md. */
uint32_t pool_size(const struct pools *pools, enum pool_kind kind);
const char *pool_name(enum pool_kind kind);

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
