/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that outlive their daemon and return to the next one.
 *
 * A process is *absent* while the roster says that it has a slot, it lives, and it hasn't attached
 * yet. Its slot is kept for it until it attaches or ends. It is *returning* (struct process,
 * `returning`) from its attach until it has named all that it holds. Then it is like any other.
 *
 * A link exists again when both its processes have named it with the same id (a *claim* each). A
 * claim that the other side, once it is back, doesn't share ends with LINK_DOWN. A request for a
 * link to an absent or returning process waits until that process is back.
 */
#ifndef VERBENA_DAEMON_CORE_RETURN_H
#define VERBENA_DAEMON_CORE_RETURN_H

#include <stdint.h>

#include "daemon/core/loop.h"
#include "proto/limits.h"
#include "proto/proto.h"

struct process;
struct server;

struct slot_set {
	uint64_t bits[LIMIT_SLOTS / 64];
};

struct absent {
	struct server *server;
	struct watch death;
	int fd; /* pidfd, watched */
	uint32_t slot, uid;
	uint64_t cookie;
	struct slot_set *awaited_by; /* slots whose processes want a link to it; NULL: none */
};

/* A link that a process had at another daemon; id 0: none. */
struct claim {
	uint64_t id;
	uint32_t side;
};

/* Initializes server->slots, and keeps the slots of living processes that the roster names. Returns
 * 0 or -errno. */
int returns_open(struct server *server);
void returns_close(struct server *server);

/* PROTO_ATTACH_RETURN: gives the process its old slot and cookie. Returns 0; -ESTALE: the roster
 * doesn't know it; -EINVAL. */
int return_begin(struct process *process, const struct proto_attach *body);

/* The process gives back a link that it has claimed and that doesn't exist again yet. Returns 0;
 * -ENOENT: it has claimed no such link. */
int return_unclaim(struct process *process, uint32_t slot, uint64_t id);

/* The process has ended: reports that to the processes that waited for a link to it. Its slot is
 * free already. */
void return_end(struct process *process);

/* Notes that `process` wants a link to the slot once the slot's process is back. Returns 0;
 * -ENOENT: no process is expected there; -ENOMEM. */
int return_await(struct process *process, uint32_t slot);

#endif
