/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains and their target queue pairs (docs/xrc.md).
 *
 * A domain belongs to one user and one device. Its name is a file's inode; a domain without a file
 * is anonymous, and only one handle leads to it. It lives as long as any handle of it (struct
 * xrcd).
 *
 * A target queue pair belongs to its domain and lives as long as any handle of it: an OBJECT_QP
 * with `target` set, made by CREATE_QP or OPEN_QP by any process that has the domain open. Its
 * number is one of the process that made it; while it lives, the number and the slot are given to
 * nothing else, also when that process has ended. Its packets come to the socket of the number's
 * slot; when that slot's process has ended, another one that has such a queue pair open is its
 * heir, and gets the socket (xrc_share.h). Its state changes by PROTO_XRC_MODIFY, and by
 * PROTO_XRC_REPORT to ERR; both write the table (shm/xrc.h) and send PROTO_EVENT_XRC to each
 * process that has the domain open.
 *
 * No request and no end of a process looks at more targets than those of one slot, or at more
 * members than one domain has: one user's queue pairs must not make another user's commands slow.
 *
 * A process that returns to another daemon brings its handles of domains (PROTO_OPEN_XRCD) and of
 * target queue pairs (PROTO_XRC_RETURNS); the first that comes makes the domain or the queue pair
 * again.
 */
#ifndef VERBENA_DAEMON_OBJECTS_XRC_H
#define VERBENA_DAEMON_OBJECTS_XRC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/index.h"
#include "daemon/objects/objects.h"
#include "proto/limits.h"
#include "proto/proto.h"
#include "shm/xrc_shared.h"

struct device;
struct server;
struct user;

struct xrc {
	struct index by_number, by_file;  /* the domains; by_file: those that have a file */
	struct index by_qpn;		  /* the target queue pairs, */
	struct list by_slot[LIMIT_SLOTS]; /* and those with a number of the slot */
	uint64_t seed;			  /* of by_file's keys, so that no user can choose them */
	uint32_t last_number, last_epoch;
	uint32_t next_place;
	uint64_t places[XRC_SHARED_PLACES / 64]; /* a bit for each place in use (xrc_share.h) */
	uint16_t
		heir[LIMIT_SLOTS]; /* the slot of the process that has the slot's socket; 0: none */
	struct list to_tell;	   /* struct target.to_tell: they have a new dispatcher */
};

struct xrc_domain {
	struct index_node by_number, by_file;
	struct server *server;
	struct user *user;
	struct device *device;
	uint64_t dev, ino; /* 0, 0: anonymous */
	uint32_t number;
	struct list members; /* struct xrc_member.node; those of one process are neighbours */
	uint32_t targets;
};

/* A context that has the domain open. */
struct xrc_member {
	struct list node;
	struct xrc_domain *domain;
	struct context *context;
	uint32_t handles; /* the last one ends the membership */
};

/* A target queue pair. */
struct target {
	struct index_node by_qpn;
	struct list by_slot; /* on xrc->by_slot[] */
	struct list to_tell; /* on xrc->to_tell, or alone */
	struct xrc_domain *domain;
	struct list handles; /* struct qp.by_target */
	uint32_t qpn;
	struct proto_xrc_state is;
	bool established; /* COMM_EST was reported in this epoch */
	bool numbered;	  /* its number is taken in the range of the process at its slot */
};

/* 0 or -ENOMEM. */
int xrc_init(struct xrc *xrc);
/* All processes must be gone. */
void xrc_fini(struct xrc *xrc);

/* Whether a target queue pair has this number, which has just been taken in its process's range. If
 * so, the number is given back when the queue pair ends. */
bool xrc_takes_number(struct server *server, uint32_t qpn);
/* Whether some target queue pair has a number of this slot. */
bool xrc_has_slot(const struct server *server, uint32_t slot);
/* How many slots have no process any more and are kept by target queue pairs of the user's: they
 * count as its processes. */
uint32_t xrc_slots_kept(const struct server *server, const struct user *user);
/* The slot of the process that gets the packets for the slot's numbers; 0: none. */
uint32_t xrc_dispatcher(const struct server *server, uint32_t slot);
/* A process has returned, or won't: finds heirs for the slots that have none. */
void xrc_settle_heirs(struct server *server);
/* The process at the slot, and its range of numbers, have ended. */
void xrc_process_ended(struct server *server, uint32_t slot);
/* Processes are told of new dispatchers bit by bit (ending.h): one queue pair's. False: all are. */
bool xrc_tell_one(struct xrc *xrc);
bool xrc_has_to_tell(const struct xrc *xrc);

/* Makes a target queue pair in RESET with this number, which has been taken in its process's range,
 * without handles. 0, or -ENOMEM. */
int xrc_make_target(struct xrc_domain *domain, uint32_t qpn, struct target **out);
/* Adds a handle to it, or takes one away; the last one ends it. */
void xrc_join(struct target *target, struct qp *qp);
void xrc_leave(struct qp *qp);

#endif
