/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. A region or queue pair belongs to the domain with the number pd.id, which is
 * the process's own; the handle is only used with the daemon. */
#include <infiniband/later.h>
#include <stdlib.h>

#include "abi/verbs_abi.h"
#include "base/mutex.h"
#include "base/refused.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv);

	if (kernel)
		return kernel_alloc_pd(kernel);
	struct hca *hca = context_of(ibv)->hca;
	struct pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return fail_null(ENOMEM);
	books_enter(hca);
	int err = daemon_alloc_pd(conn_of(ibv), &pd->handle);

	if (!err)
		books_add(context_of(ibv), HELD_PD, &pd->held);
	books_leave(hca);
	if (err) {
		free(pd);
		return fail_null(-err);
	}
	pd->ibv.context = ibv;
	pd->ibv.handle = pd->shown = pd->handle;
	mutex_take(&hca->lock);
	pd->id = ++hca->next_pd_id;
	mutex_give(&hca->lock);
	context_count(ibv, 1);
	return &pd->ibv;
}

/* ------------------------------------------------------------------ parent and thread domains */

static int parent_domain_check(struct ibv_context *context,
			       const struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			       IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;

	if (attr->comp_mask & ~known || !attr->pd || attr->pd->context != context ||
	    (attr->td && attr->td->context != context))
		return refused(EINVAL,
			       "ibv_alloc_parent_domain: comp_mask is 0x%x, and may have the bits "
			       "0x%x only; pd, and td if there is one, must be of this context",
			       attr->comp_mask, known);
	/* One allocator is of no use without the other. */
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS &&
	    (!attr->alloc || !attr->free))
		return refused(EINVAL,
			       "ibv_alloc_parent_domain: alloc and free must be given both");
	return !pd_of(attr->pd)->parent_of
		       ? 0
		       : refused(EINVAL, "ibv_alloc_parent_domain: pd is a parent domain, which "
					 "none extends; pass the domain of ibv_alloc_pd()");
}

/* For the daemon, and for keys, it is the domain that it extends. */
struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *context,
					 struct ibv_parent_domain_init_attr *attr)
{
	int err = parent_domain_check(context, attr);

	if (err)
		return fail_null(err);
	struct pd *pd = calloc(1, sizeof(*pd)), *of = pd_of(attr->pd);

	if (!pd)
		return fail_null(ENOMEM);
	pd->ibv = of->ibv;
	pd->handle = of->handle;
	pd->shown = of->shown;
	pd->id = of->id;
	pd->parent_of = of;
	pd->td = attr->td ? td_of(attr->td) : NULL;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->pd_context = attr->pd_context;
	atomic_fetch_add(&of->users, 1);
	if (pd->td)
		atomic_fetch_add(&pd->td->users, 1);
	context_count(context, 1);
	return &pd->ibv;
}

static int parent_domain_end(struct pd *pd)
{
	atomic_fetch_sub(&pd->parent_of->users, 1);
	if (pd->td)
		atomic_fetch_sub(&pd->td->users, 1);
	context_count(pd->ibv.context, -1);
	free(pd);
	return 0;
}

struct ibv_td *verbs_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	if (attr->comp_mask)
		return fail_null(refused(EINVAL, "ibv_alloc_td: comp_mask is 0x%x, and must be 0",
					 attr->comp_mask));
	struct td *td = calloc(1, sizeof(*td));

	if (!td)
		return fail_null(ENOMEM);
	td->ibv.context = context;
	context_count(context, 1);
	return &td->ibv;
}

int verbs_dealloc_td(struct ibv_td *ibv)
{
	const uint32_t users = atomic_load(&td_of(ibv)->users);

	if (users)
		return fail_errno(refused(EBUSY,
					  "ibv_dealloc_td: %u parent domains use the thread "
					  "domain, and must be ended first",
					  users));
	context_count(ibv->context, -1);
	free(td_of(ibv));
	return 0;
}

/* Null regions don't keep a domain from being ended, as with mlx5, whose kernel doesn't know them
 * (perftest ends its domain and leaves the region): the domain ends with the last of them. */
EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel)
		return kernel_dealloc_pd(kernel, ibv);
	int bad = handle_check("ibv_dealloc_pd", ibv->handle, pd_of(ibv)->shown);

	if (!bad && atomic_load(&pd_of(ibv)->users))
		bad = refused(EBUSY, "ibv_dealloc_pd: parent domains, or a parent domain's "
				     "objects, use the protection domain; they must be ended "
				     "first");
	if (bad)
		return fail_errno(bad);
	if (pd_of(ibv)->parent_of)
		return parent_domain_end(pd_of(ibv));
	struct context *context = context_of(ibv->context);

	books_enter(context->hca);
	int err = daemon_dealloc_pd(&context->conn, pd_of(ibv)->handle);

	if (err == -EIO) /* without a daemon there is no object to free */
		err = 0;
	if (!err)
		books_drop(context, &pd_of(ibv)->held);
	books_leave(context->hca);
	if (err == -EINPROGRESS) {
		pd_end_later(pd_of(ibv));
		return 0;
	}
	if (err == -EBUSY)
		log_warn_few("ibv_dealloc_pd: objects (regions, queue pairs, address handles, ...) "
			     "use the protection domain; they must be ended first");
	if (err)
		return fail_errno(-err);
	context_count(ibv->context, -1);
	free(pd_of(ibv));
	return 0;
}
