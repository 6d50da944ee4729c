/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Alternate paths of connections on a fabric (IBTA 12.8), for automatic path migration.
 *
 *   program ── SET_OPTION ──► LAP ─────► the peer's daemon ── EVENT_ALTERNATE ──► peer's process
 *                                                                                 loads its QP
 *   program's process ◄─────  APR ◄───────────────────────── PROTO_ALTERNATE ────────┘
 *   loads its QP, too ── PROTO_ALTERNATE ──► ROUTE_RESOLVED or ROUTE_ERROR to the program
 *
 * A state of the identifier within ID_CONNECT: id.alternate is on the service's list `alternates`
 * while the process that has the queue pair is to load the path, and the daemon waits for the
 * result. Each function runs on the loop's thread.
 */
#ifndef VERBENA_DAEMON_CM_CM_ALTERNATE_H
#define VERBENA_DAEMON_CM_CM_ALTERNATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/mad.h"

struct cm_id;

struct cm_alternate {
	struct list node;	 /* in no list: the process has nothing to load */
	struct cm_mad_path path; /* as this side sees it */
	bool own;		 /* the identifier's program wants it; else the peer */
};

/* SET_OPTION: sends a LAP for this path record. 0: an event follows; -EINVAL: no established
 * connection whose REQ this side sent, or another LAP is under way; -EOPNOTSUPP: not on a fabric,
 * or not RC or UC; -EAGAIN: the program's events are unread. */
int cm_alternate_begin(struct cm_id *id, const uint8_t record[64]);
/* A LAP has come. */
void cm_alternate_on_load(struct cm_id *id, const struct cm_mad *mad);
/* An APR has come; NULL: none comes. */
void cm_alternate_on_loaded(struct cm_id *id, const struct cm_mad *mad);
/* To be called before a message of the connection: if the queue pair has migrated to the alternate
 * path, the messages take it, too, so that they don't need the cable that was cut. As in Linux the
 * path brings its port along. */
void cm_alternate_follow(struct cm_id *id);
/* The connection has ended, or the identifier ends. */
void cm_alternate_end(struct cm_id *id);

#endif
