/* SPDX-License-Identifier: BSD-2-Clause */
/* What `verbena status` and `verbena resources` show of the connection manager. */
#ifndef VERBENA_DAEMON_CM_CM_SHOW_H
#define VERBENA_DAEMON_CM_CM_SHOW_H

struct cm_service;
struct server;
struct show_for;
struct text;

/* Adds a member "connections" to the JSON object that is open: the counters. They contain nothing
 * private to a user, so all users may see them. */
void cm_show(const struct cm_service *service, struct text *out);
/* Adds a member "cm_id": the identifiers of the programs that `who` may see. */
void cm_show_ids(const struct server *server, const struct show_for *who, struct text *out);

#endif
