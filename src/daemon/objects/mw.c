/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: their keys. A window's key has an index of the regions' table, since peers look
 * both up in the same place. The process binds windows itself (src/hca/mem/window.h), so the daemon
 * knows neither their regions nor their rights.
 */
#include <errno.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/objects/context.h"
#include "daemon/objects/share.h"

/* enum ibv_mw_type, whose numbers the kernel's header doesn't have. */
enum { MW_TYPE_1 = 1, MW_TYPE_2 = 2 };

static int mw_take_key(struct request *request, struct mw *mw)
{
	struct keys *keys = &request->conn->context->process->keys;

	if (!request->old)
		return !keys_take(keys, &mw->rkey) ? 0
		       : request_may_wait(request) ? -EAGAIN
						   : -ENOMEM;
	mw->rkey = request->old->number;
	return keys_claim(keys, request->old->number);
}

int command_alloc_mw(struct request *request, void *response)
{
	const struct ib_uverbs_alloc_mw *body = request->body;
	struct ib_uverbs_alloc_mw_resp *resp = response;
	struct pd *pd = pd_find(request->conn->context, body->pd_handle);
	struct object *object;

	if (!pd || (body->mw_type != MW_TYPE_1 && body->mw_type != MW_TYPE_2))
		return -EINVAL;
	int err = object_make(request, OBJECT_MW, sizeof(struct mw), &object);

	if (err)
		return err;
	struct mw *mw = (struct mw *)object;

	err = mw_take_key(request, mw);
	if (err) {
		object_free(object);
		return err;
	}
	mw->pd = pd;
	domain_pd_use(pd);
	mw->type = body->mw_type;
	*resp = (struct ib_uverbs_alloc_mw_resp){.mw_handle = object->handle, .rkey = mw->rkey};
	return 0;
}

void mw_release(struct mw *mw)
{
	keys_give(&mw->object.context->process->keys, mw->rkey);
	domain_pd_unuse(mw->pd);
}

int command_dealloc_mw(struct request *request, void *response)
{
	const struct ib_uverbs_dealloc_mw *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_MW, body->mw_handle);
}
