/* SPDX-License-Identifier: BSD-2-Clause */
/* Multicast groups that an identifier has joined. They belong to the identifier and end with it. */
#ifndef VERBENA_DAEMON_CM_CM_MCAST_H
#define VERBENA_DAEMON_CM_CM_MCAST_H

#include <stdint.h>

#include "base/list.h"
#include "daemon/cm/cm_node.h"
#include "daemon/cm/cm_object.h"
#include "daemon/net/mcast.h"

struct cm_id;

struct cm_join {
	struct cm_object object;
	struct list node; /* on id->joins */
	struct cm_id *id;
	uint8_t gid[16];
	uint32_t reported;	  /* events that the program got, or gets next */
	struct mcast_join member; /* of a full member */
	/* On a node of a fabric: the question whether it may join, under way or not; the answer. */
	struct cm_query query;
	uint64_t uid; /* for the event that follows */
	bool is_joined, is_full;
	uint16_t lid;
	uint8_t sl;
	struct list at_node; /* on cm_node.joins */
};

/* The subnet administration may have forgotten the node's memberships: joins anew. A group that it
 * refuses then, or that has another LID now, is reported as lost (-ENETRESET). */
void cm_mcast_rejoin(struct cm_node *node);

/* An identifier that ends leaves one of its groups. False: it is in none. */
bool cm_mcast_leave_one(struct cm_id *id);

#endif
