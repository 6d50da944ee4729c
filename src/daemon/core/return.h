/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that outlive their daemon and return to the next one.
 *
 * Absent: the roster says that a living process has a slot, but it isn't back. Its slot is kept
 * for it until it comes or ends. Returning: it has attached and says what it holds (struct process,
 * `returning`). Then it is as any other.
 *
 * A link exists again when both its processes have named it with the same id (a *claim* each). A
 * claim that the other side, once it is back, doesn't share ends with LINK_DOWN. Who asks for a
 * link to a process that isn't back waits until it is.
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
	struct slot_set *awaited_by; /* NULL: nobody */
};

/* A link that a process had at another daemon; id 0: none. */
struct claim {
	uint64_t id;
	uint32_t side;
};

/* Makes server->slots, and keeps those of living processes, as the roster says. 0 or -errno. */
int returns_open(struct server *server);
void returns_close(struct server *server);

/* PROTO_ATTACH_RETURN: gives the process its slot and cookie. 0; -ESTALE, -EINVAL. */
int return_begin(struct process *process, const struct proto_attach *body);

/* The process is gone: whoever waited for it hears so. Its slot is free already. */
void return_end(struct process *process);

/* Notes that `process` wants a link to the slot once its process is back. 0; -ENOENT there is
 * nobody who could come; -ENOMEM. */
int return_await(struct process *process, uint32_t slot);

#endif
