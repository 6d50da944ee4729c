/* SPDX-License-Identifier: BSD-2-Clause */
/* What the connection manager counts, shown to `verbena status`. It names no user's secrets, so
 * everybody may see it. */
#ifndef VERBENA_DAEMON_CM_CM_SHOW_H
#define VERBENA_DAEMON_CM_CM_SHOW_H

struct cm_service;
struct text;

/* A member "connections" of the object that is open. */
void cm_show(const struct cm_service *service, struct text *out);

#endif
