/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions: their keys, and the pinned memory. The daemon never touches the memory; the
 * process publishes the region itself, in a table that leads only to its own memory.
 */
#include <errno.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <string.h>

#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/process.h"
#include "daemon/objects/context.h"
#include "daemon/objects/pinned.h"
#include "daemon/objects/share.h"
#include "proto/limits.h"

#define PAGE 4096ull

/* The kernel's header has the structure, but not the bits of its flags. */
enum {
	REREG_TRANSLATION = 1,
	REREG_PD = 2,
	REREG_ACCESS = 4,
	REREG_KNOWN = REREG_TRANSLATION | REREG_PD | REREG_ACCESS,
};

enum {
	NEEDS_LOCAL_WRITE = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC,
	ACCESS_FLUSH_GLOBAL = 1 << 8, /* the headers of Linux 6.1 don't name it */
	KNOWN = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
		IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC |
		IB_UVERBS_ACCESS_MW_BIND | IB_UVERBS_ACCESS_ZERO_BASED | IB_UVERBS_ACCESS_HUGETLB |
		IB_UVERBS_ACCESS_ON_DEMAND | ACCESS_FLUSH_GLOBAL | IB_UVERBS_ACCESS_OPTIONAL_RANGE,
};

static int check_access(uint32_t access)
{
	if (access & ~(uint32_t)KNOWN)
		return -EINVAL;
	if ((access & NEEDS_LOCAL_WRITE) && !(access & IB_UVERBS_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

/* The whole address space, on demand. */
static bool is_implicit(uint64_t start, uint64_t length, uint32_t access)
{
	return access & IB_UVERBS_ACCESS_ON_DEMAND && !start && length == UINT64_MAX;
}

/* On-demand regions pin nothing. */
static uint64_t mr_pins(uint64_t start, uint64_t length, uint32_t access)
{
	return access & IB_UVERBS_ACCESS_ON_DEMAND ? 0 : pinned_bytes(start, length);
}

static int check_range(uint64_t start, uint64_t length, uint64_t iova, uint32_t access)
{
	uint64_t end;

	if (is_implicit(start, length, access))
		return iova || access & IB_UVERBS_ACCESS_HUGETLB ? -EINVAL : 0;
	if (length > LIMIT_MR_BYTES || __builtin_add_overflow(start, length, &end) ||
	    __builtin_add_overflow(end, PAGE - 1, &end) ||
	    __builtin_add_overflow(iova, length, &end))
		return -EINVAL;
	/* As in the kernel: an empty region is accepted only if it touches a page. */
	if (!pinned_bytes(start, length))
		return -EINVAL;
	/* As in the kernel: address and iova have the same offset within a page. */
	if (!(access & IB_UVERBS_ACCESS_ZERO_BASED) && (start ^ iova) & (PAGE - 1))
		return -EINVAL;
	return 0;
}

static int take_keys(struct request *request, struct mr *mr)
{
	struct keys *keys = &request->conn->context->process->keys;

	if (!request->old)
		return !keys_take(keys, &mr->key)  ? 0
		       : request_may_wait(request) ? -EAGAIN
						   : -ENOMEM;
	mr->key = request->old->number;
	return keys_claim(keys, mr->key);
}

/* What the process says of the region's memory. */
static struct proto_reg_mr reach_of(const struct request *request)
{
	struct proto_reg_mr udata = {.reach = PROTO_REACH_UNKNOWN};

	if (request->udata_size >= sizeof(udata))
		memcpy(&udata, request->udata, sizeof(udata));
	return udata;
}

int mr_make(struct request *request, struct pd *pd, struct mr **out)
{
	struct object *object;
	int err = object_make(request, OBJECT_MR, sizeof(struct mr), &object);

	if (err)
		return err;
	struct mr *mr = (struct mr *)object;

	err = take_keys(request, mr);
	if (err) {
		object_free(object);
		return err;
	}
	mr->pd = pd;
	domain_pd_use(pd);
	list_init(&mr->by_dm);
	*out = mr;
	return 0;
}

void mr_respond(const struct mr *mr, struct ib_uverbs_reg_mr_resp *resp)
{
	resp->mr_handle = mr->object.handle;
	resp->lkey = mr->key;
	resp->rkey = mr->key;
}

int command_reg_mr(struct request *request, void *response)
{
	const struct ib_uverbs_reg_mr *body = request->body;
	struct ib_uverbs_reg_mr_resp *resp = response;
	struct context *context = request->conn->context;
	struct pd *pd = pd_find(context, body->pd_handle);
	struct mr *mr;
	int err = pd ? check_access(body->access_flags) : -EINVAL;

	if (!err)
		err = check_range(body->start, body->length, body->hca_va, body->access_flags);
	if (!err)
		err = mr_make(request, pd, &mr);
	if (err)
		return err;
	uint64_t pinned = mr_pins(body->start, body->length, body->access_flags);

	err = pinned_add(context->process, pinned);
	if (err) {
		object_destroy(&mr->object);
		return err;
	}
	mr->pinned = pinned;
	mr->addr = body->start;
	mr->length = body->length;
	mr->iova = body->hca_va;
	mr->access = body->access_flags;
	mr->reach = reach_of(request);
	mr_respond(mr, resp);
	return 0;
}

int command_alloc_null_mr(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;
	struct ib_uverbs_reg_mr_resp *resp = response;
	struct pd *pd = body->reserved ? NULL : pd_find(request->conn->context, body->handle);
	struct mr *mr;
	int err = pd ? mr_make(request, pd, &mr) : -EINVAL;

	if (err)
		return err;
	mr->without_memory = true;
	pd->null_regions++;
	mr->length = UINT64_MAX;
	mr->access = IB_UVERBS_ACCESS_LOCAL_WRITE;
	mr_respond(mr, resp);
	return 0;
}

/* Sets what the region is to be after IB_USER_VERBS_CMD_REREG_MR. Returns 0 or -EINVAL,
 * -EOPNOTSUPP. */
static int rereg_wanted(struct context *context, const struct ib_uverbs_rereg_mr *body,
			struct mr *wanted)
{
	if (!body->flags || body->flags & ~(uint32_t)REREG_KNOWN)
		return -EINVAL;
	if (body->flags & REREG_PD)
		wanted->pd = pd_find(context, body->pd_handle);
	if (!wanted->pd)
		return -EINVAL;
	if (body->flags & REREG_ACCESS)
		wanted->access = body->access_flags;
	if (body->flags & REREG_TRANSLATION) {
		wanted->addr = body->start;
		wanted->length = body->length;
		wanted->iova = body->hca_va;
	}
	int err = check_access(wanted->access);

	return err ? err : check_range(wanted->addr, wanted->length, wanted->iova, wanted->access);
}

/* The keys stay: the process has ended all access before its request. */
int command_rereg_mr(struct request *request, void *response)
{
	const struct ib_uverbs_rereg_mr *body = request->body;
	struct ib_uverbs_rereg_mr_resp *resp = response;
	struct context *context = request->conn->context;
	struct mr *mr = (struct mr *)object_find(context, OBJECT_MR, body->mr_handle);

	if (!mr || mr->imported || mr->without_memory || mr->is_device)
		return mr ? -EINVAL : -ENOENT;
	struct mr wanted = *mr;
	int err = rereg_wanted(context, body, &wanted);

	if (err)
		return err;
	if (body->flags & (REREG_TRANSLATION | REREG_ACCESS)) {
		/* As in the kernel: the new pages are pinned before the old ones are released. */
		wanted.pinned = mr_pins(wanted.addr, wanted.length, wanted.access);
		err = pinned_add(context->process, wanted.pinned);
		if (err)
			return err;
		pinned_sub(context->process, mr->pinned);
	}
	domain_pd_unuse(mr->pd);
	domain_pd_use(wanted.pd);
	mr->pd = wanted.pd;
	mr->addr = wanted.addr;
	mr->length = wanted.length;
	mr->iova = wanted.iova;
	mr->access = wanted.access;
	mr->pinned = wanted.pinned;
	mr->reach = reach_of(request);
	*resp = (struct ib_uverbs_rereg_mr_resp){.lkey = mr->key, .rkey = mr->key};
	return 0;
}

void mr_release(struct mr *mr)
{
	struct process *process = mr->object.context->process;

	pinned_sub(process, mr->pinned);
	keys_give(&process->keys, mr->key);
	list_del(&mr->by_dm);
	if (mr->dm)
		mr->dm->object.users--;
	domain_pd_unuse(mr->pd);
	mr->pd->null_regions -= mr->without_memory;
}

int command_dereg_mr(struct request *request, void *response)
{
	const struct ib_uverbs_dereg_mr *body = request->body;

	(void)response;
	return object_destroy_handle(request->conn->context, OBJECT_MR, body->mr_handle);
}

/* Describes a region. Within the owner's process the importer gets no object of its own, as in the
 * kernel. Another process needs keys of its own, and must import the region. */
int command_query_mr(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;
	struct proto_query_mr_resp *resp = response;
	struct context *context = request->conn->context;
	struct object *object;
	int err = body->reserved ? -EINVAL : share_find(context, OBJECT_MR, body->handle, &object);

	if (err)
		return err;
	if (object->context->process != context->process)
		return -EOPNOTSUPP;
	const struct mr *mr = (const struct mr *)object;

	*resp = (struct proto_query_mr_resp){.addr = mr->addr,
					     .length = mr->length,
					     .iova = mr->iova,
					     .lkey = mr->key,
					     .rkey = mr->key,
					     .access = mr->access};
	return 0;
}

/* Finds the region `shared` of another process. *out stays NULL for a process that is returning:
 * the owner may not be back yet, or have ended. */
static int find_foreign(const struct request *request, const struct pd *pd, uint32_t shared,
			const struct mr **out)
{
	const struct context *context = request->conn->context;
	struct object *object;

	if (request->old)
		return 0;
	int err = share_find(context, OBJECT_MR, shared, &object);

	if (err)
		return err;
	const struct mr *mr = (const struct mr *)object;
	const struct process *owner = object->context->process;

	if (owner == context->process || !pd->domain || mr->pd->domain != pd->domain)
		return -EINVAL;
	if (owner->user != context->process->user)
		return -EOPNOTSUPP;
	*out = mr;
	return 0;
}

int command_import_mr(struct request *request, void *response)
{
	const struct proto_import_mr *body = request->body;
	struct proto_import_mr_resp *resp = response;
	struct context *context = request->conn->context;
	struct pd *pd = pd_find(context, body->pd);
	const struct mr *original = NULL;
	struct mr *mr;
	int err = pd ? find_foreign(request, pd, body->shared, &original) : -EINVAL;

	if (!err)
		err = mr_make(request, pd, &mr);
	if (err)
		return err;
	mr->imported = true;
	*resp = (struct proto_import_mr_resp){
		.handle = mr->object.handle, .lkey = mr->key, .rkey = mr->key};
	if (!original)
		return 0;
	mr->addr = original->addr;
	mr->length = original->length;
	mr->iova = original->iova;
	mr->access = original->access;
	resp->owner_slot = original->object.context->process->slot;
	resp->owner_rkey = original->key;
	return 0;
}
