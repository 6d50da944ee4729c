/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attaching, while the UDP sockets of the last daemon may still be brought back by a returning
 * process: a new process's PROTO_ATTACH is then postponed for a moment, because a process gets its
 * UDP socket when it attaches or never.
 */
#ifndef VERBENA_DAEMON_CORE_ATTACH_H
#define VERBENA_DAEMON_CORE_ATTACH_H

struct server;

void attach_init(struct server *server);
/* A process has returned or ended: decides anew whether postponed PROTO_ATTACH must still wait. */
void attach_resume(struct server *server);

#endif
