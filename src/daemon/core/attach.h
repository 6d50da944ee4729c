/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attaching, while the wire's sockets are still to be brought by those who had them from the last
 * daemon: a process that is new waits a moment, or it would have no wire for all its life.
 */
#ifndef VERBENA_DAEMON_CORE_ATTACH_H
#define VERBENA_DAEMON_CORE_ATTACH_H

struct server;

void attach_init(struct server *server);
/* Somebody is back or gone: perhaps nobody has to wait any more. */
void attach_resume(struct server *server);

#endif
