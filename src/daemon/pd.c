/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. No state beyond the objects. */
#include "daemon/commands.h"
#include "daemon/conn.h"
#include "daemon/context.h"
#include "daemon/dispatch.h"

int command_alloc_pd(struct request *request, void *response)
{
	struct ib_uverbs_alloc_pd_resp *resp = response;
	struct object *object;
	int err = object_make(request, OBJECT_PD, sizeof(struct pd), &object);

	if (!err)
		resp->pd_handle = object->handle;
	return err;
}

int command_dealloc_pd(struct request *request, void *response)
{
	const struct ib_uverbs_dealloc_pd *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_PD, body->pd_handle);
}
