/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains, also those that several contexts share (share.h). The objects are the only
 * state. */
#include <errno.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/objects/context.h"
#include "daemon/objects/share.h"

struct pd *pd_find(struct context *context, uint32_t handle)
{
	struct pd *pd = (struct pd *)object_find(context, OBJECT_PD, handle);

	return pd && pd->domain && pd->domain->ended ? NULL : pd;
}

void pd_release(struct pd *pd)
{
	domain_leave(pd);
}

int command_alloc_pd(struct request *request, void *response)
{
	struct ib_uverbs_alloc_pd_resp *resp = response;
	struct object *object;
	int err = object_make(request, OBJECT_PD, sizeof(struct pd), &object);

	if (err)
		return err;
	/* A process that is returning may come back after processes that imported this PD: then the
	 * domain exists. */
	struct domain *domain =
		request->old ? domain_find(request->conn->context, object->handle) : NULL;

	if (domain)
		domain_join(domain, (struct pd *)object);
	resp->pd_handle = object->handle;
	return 0;
}

/* Ends the domain for all contexts that share it. -EBUSY; -EINPROGRESS: null regions alone use it,
 * so the program may regard it as ended, and the client ends it after them. */
int command_dealloc_pd(struct request *request, void *response)
{
	const struct ib_uverbs_dealloc_pd *body = request->body;
	struct pd *pd = pd_find(request->conn->context, body->pd_handle);

	(void)response;
	if (!pd)
		return -ENOENT;
	if (pd->object.users && pd->object.users == pd->null_regions && !pd->domain)
		return -EINPROGRESS;
	if (pd->object.users || (pd->domain && domain_busy(pd->domain)))
		return -EBUSY;
	if (pd->domain)
		pd->domain->ended = true;
	object_destroy(&pd->object);
	return 0;
}

/* ------------------------------------------------------------------ sharing */

/* Finds the domain that `handle` names, or makes it with the PD `handle` as its first sibling.
 * Returns 0; -ENOENT, -EINVAL, -ENOMEM. */
static int find_domain(const struct request *request, uint32_t handle, struct domain **out)
{
	struct context *context = request->conn->context;
	struct object *original = NULL;

	*out = domain_find(context, handle);
	if (*out)
		return (*out)->ended ? -ENOENT : 0;
	int err = share_find(context, OBJECT_PD, handle, &original);

	/* A process that is returning may come back before the process from which it had imported,
	 * or have outlived it. */
	if (err && !(err == -ENOENT && request->old))
		return err;
	*out = domain_make(context, handle);
	if (!*out)
		return -ENOMEM;
	if (original)
		domain_join(*out, (struct pd *)original);
	return 0;
}

int command_import_pd(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;
	struct proto_import_pd_resp *resp = response;
	struct domain *domain;
	struct object *object;

	if (body->reserved)
		return -EINVAL;
	int err = object_make(request, OBJECT_PD, sizeof(struct pd), &object);

	if (err)
		return err;
	((struct pd *)object)->imported = true;
	err = find_domain(request, body->handle, &domain);
	if (err) {
		object_destroy(object);
		return err;
	}
	domain_join(domain, (struct pd *)object);
	resp->handle = object->handle;
	return 0;
}

/* Works on the original too, once another context has ended the domain. */
int command_unimport_pd(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;
	struct object *object = object_find(request->conn->context, OBJECT_PD, body->handle);
	const struct pd *pd = (const struct pd *)object;

	(void)response;
	if (!pd || body->reserved || !(pd->imported || (pd->domain && pd->domain->ended)))
		return -EINVAL;
	if (object->users)
		return -EBUSY;
	object_destroy(object);
	return 0;
}
