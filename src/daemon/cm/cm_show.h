/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager's counters, for `verbena status`. They contain nothing private to a user,
 * so all users may see them. */
#ifndef VERBENA_DAEMON_CM_CM_SHOW_H
#define VERBENA_DAEMON_CM_CM_SHOW_H

struct cm_service;
struct text;

/* Adds a member "connections" to the JSON object that is open. */
void cm_show(const struct cm_service *service, struct text *out);

#endif
