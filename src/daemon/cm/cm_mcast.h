/* SPDX-License-Identifier: BSD-2-Clause */
/* Groups that an identifier has joined. They belong to it and end with it. */
#ifndef VERBENA_DAEMON_CM_CM_MCAST_H
#define VERBENA_DAEMON_CM_CM_MCAST_H

#include <stdint.h>

#include "base/list.h"
#include "daemon/cm/cm_object.h"
#include "daemon/net/mcast.h"

struct cm_id;

struct cm_join {
	struct cm_object object;
	struct list node; /* on id->joins */
	struct cm_id *id;
	uint8_t gid[16];
	uint32_t reported;	  /* events that its program got, or gets next */
	struct mcast_join member; /* if it is a full one */
};

/* The identifier ends. */
void cm_mcast_leave_all(struct cm_id *id);

#endif
