/* SPDX-License-Identifier: BSD-2-Clause */
/* What `verbena status` and `verbena resources` show of the connection manager. */
#ifndef VERBENA_DAEMON_CM_CM_SHOW_H
#define VERBENA_DAEMON_CM_CM_SHOW_H

#include <stdint.h>

struct cm_service;
struct conn;
struct text;

/* Adds a member "connections" to the JSON object that is open: the counters. They contain nothing
 * private to a user, so all users may see them. */
void cm_show(const struct cm_service *service, struct text *out);
/* Adds the identifier at this place of a client's table to the array that is open, if there is
 * one. */
void cm_show_place(const struct conn *conn, uint32_t index, struct text *out);

#endif
