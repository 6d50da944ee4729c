/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects that a client of the `rdma_cm` node names by handles: channels, identifiers, and groups
 * that identifiers have joined. */
#ifndef VERBENA_DAEMON_CM_CM_OBJECT_H
#define VERBENA_DAEMON_CM_CM_OBJECT_H

#include <stdint.h>

#include "base/list.h"

struct cm_client;

enum cm_kind { CM_KIND_CHANNEL, CM_KIND_ID, CM_KIND_JOIN, CM_KINDS };

struct cm_object {
	enum cm_kind kind;
	uint32_t handle;
	struct cm_client *client;
	struct list node; /* on client->objects[kind] */
};

/* Gives the object a handle. Returns 0; -ENOMEM, also when the client or its user has too many. */
int cm_object_enter(struct cm_client *client, struct cm_object *object, enum cm_kind kind);
void cm_object_leave(struct cm_object *object);
/* NULL: no such handle, or of another kind. */
void *cm_object_find(const struct cm_client *client, enum cm_kind kind, uint32_t handle);

#endif
