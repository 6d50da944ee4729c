/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sharing a context's objects with another process that was given the cmd_fd, or within this one.
 *
 * cmd_fd is a sealed memory file with the context's token. A process that has the descriptor has
 * the right to share, as with the kernel's: it is passed by SCM_RIGHTS, and stays valid when the
 * daemon is replaced. An imported context is an ordinary context of this process with the same
 * token (daemon/objects/share.h).
 *
 * For the daemon an imported PD is a sibling of the original. In this process all siblings have one
 * number (struct pd.id), so that a queue pair of one may use the regions of another. An imported
 * region of this process is a copy of its owner's description; one of another process has keys of
 * this process, and refers to the other's memory (hca/mem/foreign.h).
 *
 * ibv_unimport_pd() can't fail, but objects that were made in the PD may live on: then the PD
 * exists until they are destroyed (context_count). So does a PD that ibv_dealloc_pd() ended before
 * its null regions.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/verbs_abi.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/refused.h"
#include "base/sys.h"
#include "hca/mem/foreign.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"

#undef ibv_get_device_list

/* ------------------------------------------------------------------ cmd_fd */

enum { SEALS = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL };

struct share_file {
	char magic[16];
	uint64_t token[2];
	char node[SHARE_NODE_SIZE]; /* uverbs0 */
};

static const char share_magic[16] = "verbena-context";

int share_file_make(const char *node, uint64_t token[2])
{
	struct share_file content = {0};

	memcpy(content.magic, share_magic, sizeof(content.magic));
	strncpy(content.node, node, sizeof(content.node) - 1);
	if (sys_getrandom(content.token, sizeof(content.token), 0) != sizeof(content.token))
		return -EAGAIN;
	int fd = memfd_create(share_magic, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (sys_write(fd, &content, sizeof(content)) != sizeof(content) ||
	    fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
		int err = errno ? -errno : -EIO;

		sys_close(fd);
		return err;
	}
	memcpy(token, content.token, sizeof(content.token));
	return fd;
}

int share_file_read(int fd, char node[SHARE_NODE_SIZE], uint64_t token[2])
{
	struct share_file content;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (fcntl(fd, F_GET_SEALS) != SEALS || st.st_size != sizeof(content) ||
	    sys_pread(fd, &content, sizeof(content), 0) != sizeof(content) ||
	    memcmp(content.magic, share_magic, sizeof(share_magic)) ||
	    content.node[sizeof(content.node) - 1]) {
		log_warn("ibv_import_device: descriptor %d isn't the cmd_fd of a Verbena context",
			 fd);
		return -EINVAL;
	}
	memcpy(node, content.node, sizeof(content.node));
	memcpy(token, content.token, sizeof(content.token));
	return 0;
}

/* ------------------------------------------------------------------ devices */

static bool is_device_node(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISCHR(st.st_mode);
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *ibv = NULL;
	char node[SHARE_NODE_SIZE];
	uint64_t token[2];

	if (is_device_node(cmd_fd)) /* the kernel's contexts have their device's */
		return context_with_old_slots(kernel_import(cmd_fd));
	int err = -share_file_read(cmd_fd, node, token);

	if (err)
		return fail_null(err);
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list)
		return NULL;
	err = ENODEV;
	for (unsigned int i = 0; list[i] && !ibv; i++) {
		if (strcmp(list[i]->dev_name, node))
			continue;
		ibv = context_open(list[i], cmd_fd, token);
		err = errno;
	}
	ibv_free_device_list(list);
	return ibv ? ibv
		   : fail_null(refused(err,
				       "ibv_import_device: the context of device %s can't be "
				       "shared: %s",
				       node, strerror(err)));
}

/* ------------------------------------------------------------------ protection domains */

static bool same_domain(const struct pd *pd, const struct pd *other)
{
	return other != pd && other->shown == pd->shown;
}

/* The PD's number in this process: that of a sibling, or a new one. */
static uint32_t domain_number(struct hca *hca, const struct context *context, const struct pd *pd)
{
	uint32_t id = 0;

	mutex_take(&hca->lock);
	list_for_each(node, &hca->contexts) {
		const struct context *other = container_of(node, struct context, node);

		if (memcmp(other->token, context->token, sizeof(context->token)))
			continue;
		list_for_each(held, &other->held[HELD_PD])
			if (same_domain(pd, container_of(held, struct pd, held)))
				id = container_of(held, struct pd, held)->id;
	}
	if (!id)
		id = ++hca->next_pd_id;
	mutex_give(&hca->lock);
	return id;
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *ibv, uint32_t handle)
{
	struct kernel_context *kernel = kernel_context_of(ibv);

	if (kernel)
		return kernel_import_pd(kernel, handle);
	struct context *context = context_of(ibv);
	struct pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return fail_null(ENOMEM);
	pd->ibv.context = ibv;
	pd->ibv.handle = pd->shown = handle;
	pd->imported = true;
	books_enter(context->hca);
	int err = daemon_import_pd(&context->conn, handle, &pd->handle);

	if (!err) {
		pd->id = domain_number(context->hca, context, pd);
		books_add(context, HELD_PD, &pd->held);
	}
	books_leave(context->hca);
	if (err) {
		free(pd);
		return fail_null(refused(-err,
					 "ibv_import_pd: the context has no protection domain with "
					 "the handle %u: %s",
					 handle, strerror(-err)));
	}
	context_count(ibv, 1);
	return &pd->ibv;
}

/* Ends a PD that the program has given back: 0; -EBUSY: objects use it, so it stays. */
static int pd_give_back(struct pd *pd)
{
	struct context *context = context_of(pd->ibv.context);

	if (atomic_load(&pd->users)) /* parent domains */
		return -EBUSY;
	books_enter(context->hca);
	int err = pd->imported ? daemon_unimport_pd(&context->conn, pd->handle)
			       : daemon_dealloc_pd(&context->conn, pd->handle);
	bool busy = err == -EBUSY || err == -EINPROGRESS;

	if (!busy)
		books_drop(context, &pd->held);
	books_leave(context->hca);
	return busy ? -EBUSY : 0;
}

void pd_end_later(struct pd *pd)
{
	struct open_context *open =
		container_of(context_of(pd->ibv.context), struct open_context, context);

	atomic_store(&pd->released, true);
	atomic_fetch_add(&open->released, 1);
	/* The last object that used the PD may have been destroyed meanwhile. */
	share_end_released(open);
}

EXPORT void ibv_unimport_pd(struct ibv_pd *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel) {
		kernel_unimport_pd(kernel, ibv);
		return;
	}
	struct pd *pd = pd_of(ibv);
	struct ibv_context *context = ibv->context;

	if (pd_give_back(pd)) {
		pd_end_later(pd);
		return;
	}
	free(pd);
	context_count(context, -1);
}

/* Unlinks and returns all released PDs of the context; the calling thread is responsible for
 * them. */
static struct pd *take_released(struct context *context)
{
	struct pd *first = NULL;

	mutex_take(&context->hca->lock);
	list_for_each(held, &context->held[HELD_PD]) {
		struct pd *pd = container_of(held, struct pd, held);

		if (!atomic_exchange(&pd->released, false))
			continue;
		pd->next_released = first;
		first = pd;
	}
	mutex_give(&context->hca->lock);
	return first;
}

void share_end_released(struct open_context *open)
{
	struct hca *hca = open->context.hca;
	struct pd *pd, *next;

	/* The lock is taken first: the thread that destroys the last object runs this after those
	 * that still saw the object. */
	mutex_take(&hca->release_lock);
	for (pd = take_released(&open->context); pd; pd = next) {
		next = pd->next_released;
		if (pd_give_back(pd)) {
			atomic_store(&pd->released, true);
			continue;
		}
		atomic_fetch_sub(&open->released, 1);
		atomic_fetch_sub(&open->objects, 1);
		free(pd);
	}
	mutex_give(&hca->release_lock);
}

/* ------------------------------------------------------------------ regions */

/* Allocates keys for the region, with the books entered. 0 or a negative errno. */
static int foreign_begin(struct mr *mr)
{
	struct context *context = context_of(mr->ibv.context);
	struct proto_import_mr_resp resp;

	books_enter(context->hca);
	int err = daemon_import_mr(&context->conn, pd_of(mr->ibv.pd)->handle, mr->handle, &resp);

	if (!err) {
		*mr->foreign = (struct foreign){
			.handle = resp.handle, .slot = resp.owner_slot, .rkey = resp.owner_rkey};
		mr->ibv.lkey = mr->ibv.rkey = mr->key = resp.lkey;
		books_add(context, HELD_MR, &mr->held);
		atomic_store(&context->hca->last_key_index, resp.lkey >> LIMIT_KEY_TAG_BITS);
	}
	books_leave(context->hca);
	return err;
}

static void foreign_end(struct mr *mr)
{
	struct context *context = context_of(mr->ibv.context);

	books_enter(context->hca);
	daemon_dereg_mr(&context->conn, mr->foreign->handle);
	books_drop(context, &mr->held);
	books_leave(context->hca);
}

static void explain_foreign(int err)
{
	if (err == -EOPNOTSUPP)
		log_warn("ibv_import_mr: the region belongs to a process whose memory can't be "
			 "reached from here (another user's, or process_vm_readv isn't allowed)");
	else if (err == -EINVAL)
		log_warn("ibv_import_mr: the region is none of this protection domain (any more)");
	else if (err == -ETIMEDOUT)
		log_warn("ibv_import_mr: the process that registered the region doesn't run");
}

/* Imports a region of another process. No lock is held meanwhile, because the link to that process
 * may have to be made first. */
static int import_foreign(struct mr *mr)
{
	struct hca *hca = context_of(mr->ibv.context)->hca;

	mr->foreign = calloc(1, sizeof(*mr->foreign));
	if (!mr->foreign)
		return -ENOMEM;
	int err = foreign_begin(mr);

	if (!err) {
		err = foreign_find(hca, mr);
		if (err)
			foreign_end(mr);
		else
			mr_publish(hca, mr);
	}
	if (!err)
		return 0;
	explain_foreign(err);
	free(mr->foreign);
	return err;
}

/* Imports a region of this process: copies its description. */
static void import_own(struct mr *mr, const struct proto_query_mr_resp *resp)
{
	mr->ibv.length = resp->length;
	mr->ibv.lkey = mr->ibv.rkey = mr->key = resp->lkey;
	mr->iova = resp->iova;
	mr->access = resp->access;
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel)
		return kernel_import_mr(kernel, pd, handle);
	struct proto_query_mr_resp resp;
	int err = daemon_query_mr(conn_of(pd->context), handle, &resp);

	if (err && err != -EOPNOTSUPP)
		return fail_null(refused(-err,
					 "ibv_import_mr: the context has no region with the handle "
					 "%u: %s",
					 handle, strerror(-err)));
	struct mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return fail_null(ENOMEM);
	/* The address stays NULL: the manual page promises none. */
	mr->ibv = (struct ibv_mr){.context = pd->context, .pd = pd, .handle = handle};
	mr->handle = handle;
	mr->imported = true;
	if (!err)
		import_own(mr, &resp);
	else
		err = import_foreign(mr);
	if (err) {
		free(mr);
		return fail_null(-err);
	}
	pd_use(pd, 1);
	context_count(pd->context, 1);
	return &mr->ibv;
}

EXPORT void ibv_unimport_mr(struct ibv_mr *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel) {
		kernel_unimport_mr(kernel, ibv);
		return;
	}
	struct mr *mr = container_of(ibv, struct mr, ibv);
	struct ibv_context *context = ibv->context;

	if (mr->foreign) {
		/* While a copy is still running, the import and its key are kept, because the key
		 * must not be reused. */
		if (mr_revoke(context_of(context)->hca, mr))
			return;
		foreign_forget(mr);
		foreign_end(mr);
		free(mr->foreign);
	}
	pd_use(ibv->pd, -1);
	free(mr);
	context_count(context, -1);
}
