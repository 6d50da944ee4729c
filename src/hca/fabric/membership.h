/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * That this process's HCA is on a node of a fabric: the node, the memory in which the process
 * counts what it sends, and the connection to verbena-fabric by which the node's events come.
 *
 * hca.membership is set when the HCA is made and never changes; NULL: the process is on no fabric,
 * and the devices are verbenad's.
 *
 * States of the connection (enum membership_state; under `lock`):
 *   JOINED  events come
 *   LOST    verbena-fabric has ended. Data goes on: the tables are still there
 *   ASKED   the control thread looks whether another one runs
 *   GONE    another fabric runs in its place, which this process isn't on
 *   JOINED -> LOST    membership_next(), engine thread
 *   LOST -> ASKED     membership_due(), engine thread, each MEMBERSHIP_LOOK_NS
 *   ASKED -> JOINED, LOST, GONE  membership_again(), control thread
 */
#ifndef VERBENA_HCA_FABRIC_MEMBERSHIP_H
#define VERBENA_HCA_FABRIC_MEMBERSHIP_H

#include <stdbool.h>

#include "base/lock.h"
#include "hca/fabric/flows.h"
#include "hca/fabric/node.h"
#include "hca/fabric/transit.h"
#include "proto/fabric.h"

#define MEMBERSHIP_LOOK_NS 250000000ull

struct pub;

enum membership_state { MEMBER_JOINED, MEMBER_LOST, MEMBER_ASKED, MEMBER_GONE };

struct membership {
	const struct node *node;
	struct flows flows;
	struct clocks clocks; /* of its links' speeds; slow 0: none. Doesn't change */
	struct lock lock;
	enum membership_state state GUARDED_BY(lock);
	bool is_greeted GUARDED_BY(lock); /* the answer to JOIN has come; events follow */
	int socket GUARDED_BY(lock);	  /* -1: none */
	uint64_t look_at;		  /* LOST: ns; the engine thread's */
};

/* Joins the node that the environment names, if it names one, and publishes that in the process's
 * table. 0, with *out NULL if there is no such node; or -errno. */
int membership_make(struct pub *pub, struct membership **out);
/* NULL is allowed, here and below. */
void membership_unmake(struct membership *membership);
/* In a forked child: what it counts isn't the parent's. */
void membership_leave(struct membership *membership);

/* The connection, to be watched by the engine thread; -1: there is none. */
int membership_socket(struct membership *membership);
/* The next event; never blocks. -EAGAIN: there is none; -EPIPE: the connection has ended. */
int membership_next(struct membership *membership, struct proto_fabric_event *event);
/* Whether the control thread is to call membership_again(); else *next (ns) is lowered to when to
 * look again. Engine thread. */
bool membership_due(struct membership *membership, uint64_t now, uint64_t *next);
/* Joins the fabric that runs now. 0: there is a connection to be watched; -ESTALE: it is another
 * fabric, so that the device is gone for good; else -errno: it is tried again later. Control
 * thread. */
int membership_again(struct membership *membership);

/* Tells the fabric which ports of a way, Armed until now, data comes in by. As membership_report().
 */
void membership_arm(struct membership *membership, const struct fabric_route *route);

/* Tells the fabric that a port dropped a packet for a key; `violation->request` is filled in. Any
 * thread, under any lock; never blocks. */
void membership_report(struct membership *membership, struct proto_fabric_violation *violation);

#endif
