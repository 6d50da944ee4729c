/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles: the daemon checks them against the port and its GIDs, and counts them. */
#include <errno.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/net/route.h"
#include "daemon/objects/context.h"
#include "daemon/objects/share.h"

int command_create_ah(struct request *request, void *response)
{
	const struct ib_uverbs_create_ah *body = request->body;
	struct proto_create_ah_resp *resp = response;
	struct context *context = request->conn->context;
	struct pd *pd = pd_find(context, body->pd_handle);
	const struct ib_uverbs_ah_attr *attr = &body->attr;
	struct object *object;
	/* On Ethernet an address is a GRH; its source must be a GID that the port has now. */
	int err = pd && attr->is_global
			  ? device_find_route(request->conn->device, attr->port_num,
					      attr->grh.sgid_index, attr->grh.dgid, &resp->route)
			  : -EINVAL;

	if (!err)
		err = object_make(request, OBJECT_AH, sizeof(struct ah), &object);
	if (err)
		return err;
	struct ah *ah = (struct ah *)object;

	ah->attr = *attr;
	ah->pd = pd;
	domain_pd_use(pd);
	resp->ah_handle = object->handle;
	return 0;
}

void ah_release(struct ah *ah)
{
	domain_pd_unuse(ah->pd);
}

int command_destroy_ah(struct request *request, void *response)
{
	const struct ib_uverbs_destroy_ah *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_AH, body->ah_handle);
}
