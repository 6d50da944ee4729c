/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control socket: one line of JSON from the client, one back, then the connection is closed.
 * Nothing blocks; a client has ten seconds. Requests are {"op":"status"}, {"op":"resources"},
 * {"op":"stop"} (with "force":true also while there are clients), {"op":"capture","snap":bytes}
 * (beside its reply comes the capture's event socket, see capture.h).
 */
#ifndef VERBENA_DAEMON_CORE_CTL_H
#define VERBENA_DAEMON_CORE_CTL_H

struct server;

/* Takes over the accepted socket `fd`. Returns 0 or -errno (then `fd` stays the caller's). */
int ctl_open(struct server *server, int fd);
void ctl_close_all(struct server *server);

#endif
