/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. A region or queue pair belongs to the domain with the number pd.id, which is
 * the process's own; the handle is only used with the daemon. */
#include <stdlib.h>

#include "abi/verbs_abi.h"
#include "base/mutex.h"
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

EXPORT int ibv_dealloc_pd(struct ibv_pd *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel)
		return kernel_dealloc_pd(kernel, ibv);
	int bad = handle_check("ibv_dealloc_pd", ibv->handle, pd_of(ibv)->shown);

	if (bad)
		return fail_errno(bad);
	struct context *context = context_of(ibv->context);

	books_enter(context->hca);
	int err = daemon_dealloc_pd(&context->conn, pd_of(ibv)->handle);

	if (err == -EIO) /* without a daemon there is no object to free */
		err = 0;
	if (!err)
		books_drop(context, &pd_of(ibv)->held);
	books_leave(context->hca);
	if (err)
		return fail_errno(-err);
	context_count(ibv->context, -1);
	free(pd_of(ibv));
	return 0;
}
