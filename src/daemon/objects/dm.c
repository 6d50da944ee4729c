/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: buffers, and regions of them. A buffer's memory file comes from the process that
 * allocates it; the daemon keeps the descriptor for processes that import the buffer, and never
 * maps it. A region may be of another context than its buffer; when the buffer's context ends, the
 * region stays, since the memory stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "daemon/core/closer.h"
#include "daemon/core/commands.h"
#include "daemon/core/conn.h"
#include "daemon/core/dispatch.h"
#include "daemon/core/memory.h"
#include "daemon/core/process.h"
#include "daemon/core/server.h"
#include "daemon/core/user.h"
#include "daemon/objects/context.h"
#include "daemon/objects/share.h"
#include "proto/limits.h"

#define PAGE 4096ull

enum {
	DM_KNOWN = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
		   IB_UVERBS_ACCESS_REMOTE_READ | IB_UVERBS_ACCESS_REMOTE_ATOMIC |
		   IB_UVERBS_ACCESS_ZERO_BASED | IB_UVERBS_ACCESS_OPTIONAL_RANGE,
	DM_NEEDS_LOCAL_WRITE = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC,
};

static uint64_t dm_bytes(uint64_t length)
{
	return (length + PAGE - 1) & ~(PAGE - 1);
}

static int dm_check(const struct request *request, uint64_t length)
{
	const struct process *process = request->conn->context->process;

	if (!length || length > LIMIT_DM_BYTES)
		return -EINVAL;
	if (request->fds[0] < 0 || !memory_is_shared(request->fds[0], dm_bytes(length))) {
		complain(process->user,
			 "process %d (%s) has device memory that isn't a sealed memory file of "
			 "%llu bytes",
			 process->pid, process->comm, (unsigned long long)dm_bytes(length));
		return -EINVAL;
	}
	if (process->device_memory + dm_bytes(length) > LIMIT_DM_BYTES) {
		complain(process->user,
			 "process %d (%s) may not allocate %llu KiB of device memory more: it has "
			 "%llu of %u KiB",
			 process->pid, process->comm, (unsigned long long)dm_bytes(length) >> 10,
			 (unsigned long long)process->device_memory >> 10, LIMIT_DM_BYTES >> 10);
		return -ENOMEM;
	}
	return 0;
}

/* Each buffer is a descriptor of the daemon's. What a process has when it comes to this daemon from
 * another one it keeps. */
static int dm_check_share(struct request *request)
{
	const struct process *process = request->conn->context->process;

	if (request->old || pool_allows(&process->server->pools, process->user, POOL_FILES))
		return 0;
	if (request_may_wait(request))
		return -EAGAIN;
	complain(process->user,
		 "process %d (%s) may not allocate more device memory: user %u has as many of the "
		 "daemon's descriptors as a user may have (raise its hard limit of open files, see "
		 "prlimit(1))",
		 process->pid, process->comm, process->user->uid);
	return -ENOMEM;
}

int command_alloc_dm(struct request *request, void *response)
{
	const struct proto_alloc_dm *body = request->body;
	struct proto_alloc_dm_resp *resp = response;
	struct object *object;
	int err = dm_check(request, body->length);

	if (!err)
		err = dm_check_share(request);
	if (!err)
		err = object_make(request, OBJECT_DM, sizeof(struct dm), &object);
	if (err)
		return err;
	struct dm *dm = (struct dm *)object;

	list_init(&dm->regions);
	dm->length = body->length;
	dm->file = request->fds[0];
	request->fds[0] = -1;
	struct process *process = request->conn->context->process;

	process->device_memory += dm_bytes(dm->length);
	pool_take(&process->server->pools, process->user, POOL_FILES);
	resp->handle = object->handle;
	return 0;
}

bool dm_lose_one(struct dm *dm)
{
	if (list_empty(&dm->regions))
		return false;
	container_of(list_pop(&dm->regions), struct mr, by_dm)->dm = NULL;
	return true;
}

/* Regions of other contexts outlive it. */
void dm_release(struct dm *dm)
{
	struct process *process = dm->object.context->process;

	while (dm_lose_one(dm))
		;
	process->device_memory -= dm_bytes(dm->length);
	pool_give(&process->server->pools, process->user, POOL_FILES);
	closer_close(process->user->uid, &dm->file, 1);
}

int command_free_dm(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;

	(void)response;
	if (body->reserved)
		return -EINVAL;
	return object_destroy_handle(request->conn->context, OBJECT_DM, body->handle);
}

/* The buffer with this handle, of the context or of one with its token. */
static int dm_find(struct context *context, uint32_t handle, struct dm **out)
{
	struct object *object = object_find(context, OBJECT_DM, handle);
	int err = object ? 0 : share_find(context, OBJECT_DM, handle, &object);

	*out = err ? NULL : (struct dm *)object;
	return err;
}

int command_import_dm(struct request *request, void *response)
{
	const struct proto_handle *body = request->body;
	struct proto_import_dm_resp *resp = response;
	struct dm *dm;
	int err = body->reserved ? -EINVAL : dm_find(request->conn->context, body->handle, &dm);

	if (err)
		return err;
	/* A copy, because the connection closes the reply's descriptors; never the last one of its
	 * file. */
	int fd = fcntl(dm->file, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	request->reply_fds[request->reply_fd_count++] = fd;
	resp->length = dm->length;
	return 0;
}

/* Finds the buffer and checks the part of it. *dm stays NULL for a process that is returning and
 * whose buffer isn't known (yet): it is another context's. */
static int dm_check_part(struct request *request, const struct proto_reg_dm_mr *body,
			 struct dm **dm)
{
	int err = dm_find(request->conn->context, body->dm, dm);

	if (err == -ENOENT && request->old)
		return 0;
	if (err)
		return err;
	if (body->offset > (*dm)->length || body->length > (*dm)->length - body->offset)
		return -EINVAL;
	return 0;
}

static int dm_check_access(uint32_t access)
{
	if (access & ~(uint32_t)DM_KNOWN || !(access & IB_UVERBS_ACCESS_ZERO_BASED))
		return -EINVAL;
	if (access & DM_NEEDS_LOCAL_WRITE && !(access & IB_UVERBS_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

int command_reg_dm_mr(struct request *request, void *response)
{
	const struct proto_reg_dm_mr *body = request->body;
	struct ib_uverbs_reg_mr_resp *resp = response;
	struct pd *pd = body->reserved ? NULL : pd_find(request->conn->context, body->pd);
	struct dm *dm = NULL;
	struct mr *mr;
	int err = pd ? dm_check_access(body->access) : -EINVAL;

	if (!err)
		err = dm_check_part(request, body, &dm);
	if (!err)
		err = mr_make(request, pd, &mr);
	if (err)
		return err;
	mr->is_device = true;
	mr->dm = dm;
	if (dm) {
		list_add_tail(&dm->regions, &mr->by_dm);
		dm->object.users++;
	}
	mr->length = body->length;
	mr->access = body->access;
	mr_respond(mr, resp);
	return 0;
}
