/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions: keys and the count of pinned bytes. The daemon never touches the memory; the
 * process publishes the region itself, in a table that only leads to its own memory.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "daemon/commands.h"
#include "daemon/conn.h"
#include "daemon/context.h"
#include "daemon/dispatch.h"
#include "daemon/process.h"
#include "daemon/user.h"
#include "proto/limits.h"

#define PAGE 4096ull

enum {
	NEEDS_LOCAL_WRITE = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC,
	KNOWN = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
		IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC |
		IB_UVERBS_ACCESS_MW_BIND | IB_UVERBS_ACCESS_ZERO_BASED | IB_UVERBS_ACCESS_HUGETLB |
		IB_UVERBS_ACCESS_OPTIONAL_RANGE,
};

static int check_access(uint32_t access)
{
	if (access & IB_UVERBS_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	if (access & ~(uint32_t)KNOWN)
		return -EINVAL;
	if ((access & NEEDS_LOCAL_WRITE) && !(access & IB_UVERBS_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static int check_range(const struct ib_uverbs_reg_mr *body)
{
	uint64_t end;

	if (!body->length || body->length > LIMIT_MR_BYTES ||
	    __builtin_add_overflow(body->start, body->length, &end) ||
	    __builtin_add_overflow(end, PAGE - 1, &end) ||
	    __builtin_add_overflow(body->hca_va, body->length, &end))
		return -EINVAL;
	/* As the kernel: both names of a byte lie at the same place of a page. */
	if (!(body->access_flags & IB_UVERBS_ACCESS_ZERO_BASED) &&
	    (body->start ^ body->hca_va) & (PAGE - 1))
		return -EINVAL;
	return 0;
}

/* Whole pages, as the kernel counts them: each registration counts again. */
static uint64_t pinned_bytes(uint64_t start, uint64_t length)
{
	return ((start + length + PAGE - 1) & ~(PAGE - 1)) - (start & ~(PAGE - 1));
}

int command_reg_mr(struct request *request, void *response)
{
	const struct ib_uverbs_reg_mr *body = request->body;
	struct ib_uverbs_reg_mr_resp *resp = response;
	struct context *context = request->conn->context;
	struct process *process = context->process;
	struct pd *pd = (struct pd *)object_find(context, OBJECT_PD, body->pd_handle);
	struct object *object;
	int err = pd ? check_access(body->access_flags) : -EINVAL;

	if (!err)
		err = check_range(body);
	if (!err)
		err = object_make(context, OBJECT_MR, sizeof(struct mr), &object);
	if (err)
		return err;
	struct mr *mr = (struct mr *)object;

	err = keys_take(&process->keys, &mr->lkey, &mr->rkey);
	if (err) {
		object_free(object);
		return -ENOMEM;
	}
	mr->pd = pd;
	pd->object.users++;
	mr->addr = body->start;
	mr->length = body->length;
	mr->iova = body->hca_va;
	mr->access = body->access_flags;
	mr->pinned = pinned_bytes(body->start, body->length);
	process->pinned += mr->pinned;
	process->user->pinned += mr->pinned;
	*resp = (struct ib_uverbs_reg_mr_resp){
		.mr_handle = object->handle, .lkey = mr->lkey, .rkey = mr->rkey};
	return 0;
}

void mr_release(struct mr *mr)
{
	struct process *process = mr->object.context->process;

	process->pinned -= mr->pinned;
	process->user->pinned -= mr->pinned;
	keys_give(&process->keys, mr->lkey);
	mr->pd->object.users--;
}

int command_dereg_mr(struct request *request, void *response)
{
	const struct ib_uverbs_dereg_mr *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_MR, body->mr_handle);
}
