/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory: allocating, copying, registering, importing. hca/mem/dm.h says what it is. Copies
 * go by four bytes, as with the adapters that have such memory: programs that are written for these
 * find the same errors here.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/verbs_abi.h"
#include "abi/verbs_region.h"
#include "base/refused.h"
#include "base/sys.h"
#include "hca/mem/copy.h"
#include "hca/mem/dm.h"
#include "hca/mem/guard.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"

enum { DM_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, DM_COPY_ALIGN = 4 };

/* What a region of device memory may grant. */
#define DM_ACCESS                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_FLUSH_GLOBAL)

static size_t dm_pages(size_t length)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (length + page - 1) & ~(page - 1);
}

/* ------------------------------------------------------------------ copies */

static int dm_check_range(const struct dm *dm, uint64_t offset, size_t length)
{
	if (offset > dm->length || length > dm->length - offset)
		return refused(
			EFAULT,
			"device memory of %zu bytes has no %zu bytes at %llu (ibv_memcpy_to_dm, "
			"ibv_memcpy_from_dm)",
			dm->length, length, (unsigned long long)offset);
	if (offset % DM_COPY_ALIGN || length % DM_COPY_ALIGN)
		return refused(EINVAL,
			       "a copy to or from device memory has an offset and a length that "
			       "are multiples of %d",
			       (int)DM_COPY_ALIGN);
	return 0;
}

static int dm_put(struct ibv_dm *ibv, uint64_t offset, const void *from, size_t length)
{
	const struct dm *dm = dm_of(ibv);
	int err = dm_check_range(dm, offset, length);
	struct iovec piece = {(void *)from, length};

	if (!err && length && !copy_gather(dm->pages + offset, &piece, 1, 0, length))
		err = refused(EFAULT, "ibv_memcpy_to_dm: the %zu bytes at %p can't be read", length,
			      from);
	return fail_errno(err);
}

static int dm_get(void *to, struct ibv_dm *ibv, uint64_t offset, size_t length)
{
	const struct dm *dm = dm_of(ibv);
	int err = dm_check_range(dm, offset, length);
	struct iovec piece = {to, length};

	if (!err && length && !copy_scatter(&piece, 1, 0, dm->pages + offset, length))
		err = refused(EFAULT, "ibv_memcpy_from_dm: the %zu bytes at %p can't be written",
			      length, to);
	return fail_errno(err);
}

/* ------------------------------------------------------------------ buffers */

/* Maps the file `fd`, which is the buffer's from then on, also after a failure. 0 or a positive
 * errno. */
static int dm_map(struct dm *dm, int fd, size_t length)
{
	dm->fd = fd;
	dm->length = length;
	void *at = mmap(NULL, dm_pages(length), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return errno;
	dm->pages = at;
	guard_install(); /* for the copies */
	return 0;
}

static void dm_discard(struct dm *dm)
{
	if (dm->pages)
		munmap(dm->pages, dm_pages(dm->length));
	if (dm->fd >= 0)
		sys_close(dm->fd);
	free(dm);
}

static struct dm *dm_new(struct ibv_context *context)
{
	struct dm *dm = calloc(1, sizeof(*dm));

	if (!dm)
		return NULL;
	dm->ibv.context = context;
	dm->ibv.memcpy_to_dm = dm_put;
	dm->ibv.memcpy_from_dm = dm_get;
	dm->fd = -1;
	return dm;
}

/* Makes the memory of a buffer. 0 or a positive errno. */
static int dm_make_file(struct dm *dm, size_t length)
{
	int fd = memfd_create("verbena-dm", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return errno;
	if (ftruncate(fd, (off_t)dm_pages(length)) || fcntl(fd, F_ADD_SEALS, DM_SEALS)) {
		int err = errno;

		sys_close(fd);
		return err;
	}
	return dm_map(dm, fd, length);
}

/* Has the daemon give the buffer its handle. A forked child, which has no daemon, may allocate from
 * its parent's context all the same: the buffer then has no handle, so it can't be registered. 0 or
 * a positive errno. */
static int dm_register(struct dm *dm)
{
	struct context *context = context_of(dm->ibv.context);

	if (daemon_is_left(&context->conn))
		return 0;
	books_enter(context->hca);
	int err = daemon_alloc_dm(&context->conn, dm->length, dm->fd, &dm->handle);

	if (!err)
		books_add(context, HELD_DM, &dm->held);
	books_leave(context->hca);
	dm->ibv.handle = dm->handle;
	return -err;
}

static int dm_check_attributes(const struct ibv_alloc_dm_attr *attr)
{
	/* A buffer begins with a page; no stricter alignment can be promised. */
	if (attr->comp_mask || !attr->length || attr->length > LIMIT_DM_BYTES ||
	    attr->log_align_req >= 64 ||
	    1ull << attr->log_align_req > (unsigned long long)sysconf(_SC_PAGESIZE)) {
		log_warn("ibv_alloc_dm: a buffer of device memory has 1 to %u bytes, and begins "
			 "with a page",
			 LIMIT_DM_BYTES);
		return EINVAL;
	}
	return 0;
}

struct ibv_dm *verbs_alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	int err = dm_check_attributes(attr);

	if (err)
		return fail_null(err);
	struct dm *dm = dm_new(context);

	if (!dm)
		return fail_null(ENOMEM);
	err = dm_make_file(dm, attr->length);
	if (!err)
		err = dm_register(dm);
	if (err) {
		dm_discard(dm);
		return fail_null(err);
	}
	context_count(context, 1);
	return &dm->ibv;
}

/* 0 or a positive errno. */
static int dm_unregister(struct dm *dm, struct context *context)
{
	books_enter(context->hca);
	int err = -daemon_free_dm(&context->conn, dm->handle);

	if (err == EIO) /* without a daemon there is no object to end */
		err = 0;
	if (!err)
		books_drop(context, &dm->held);
	books_leave(context->hca);
	return err;
}

int verbs_free_dm(struct ibv_dm *ibv)
{
	struct dm *dm = dm_of(ibv);
	struct context *context = context_of(ibv->context);
	int err = handle_check("ibv_free_dm", ibv->handle, dm->handle);

	if (err)
		return fail_errno(err);
	if (dm->imported) {
		log_warn("imported device memory is given back with ibv_unimport_dm; ibv_free_dm "
			 "is for the context that allocated it");
		return fail_errno(EINVAL);
	}
	err = dm->handle ? dm_unregister(dm, context) : 0;
	if (err)
		return fail_errno(err);
	context_count(ibv->context, -1);
	dm_discard(dm);
	return 0;
}

/* ------------------------------------------------------------------ importing */

/* Whether the file is as its allocator's library made it: it can't be made shorter under the
 * mapping. */
static bool dm_is_sound(int fd, uint64_t length)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & DM_SEALS) == DM_SEALS && length && length <= LIMIT_DM_BYTES &&
	       !fstat(fd, &status) && status.st_size == (off_t)dm_pages(length);
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel)
		return kernel_import_dm(kernel, handle);
	struct dm *dm = dm_new(context);
	uint64_t length;
	int fd;

	if (!dm)
		return fail_null(ENOMEM);
	int err = -daemon_import_dm(conn_of(context), handle, &length, &fd);

	if (!err && !dm_is_sound(fd, length)) {
		sys_close(fd);
		err = EINVAL;
	}
	if (!err)
		err = dm_map(dm, fd, length);
	if (err) {
		dm_discard(dm);
		return fail_null(refused(err,
					 "ibv_import_dm: this context has no device memory with "
					 "the handle %u, or it can't be mapped: %s",
					 handle, strerror(err)));
	}
	dm->imported = true;
	dm->ibv.handle = dm->handle = handle;
	context_count(context, 1);
	return &dm->ibv;
}

EXPORT void ibv_unimport_dm(struct ibv_dm *ibv)
{
	struct ibv_context *context = ibv->context;
	struct kernel_context *kernel = kernel_context_of(context);

	if (kernel) {
		kernel_unimport_dm(kernel, ibv);
		return;
	}
	dm_discard(dm_of(ibv));
	context_count(context, -1);
}

/* ------------------------------------------------------------------ regions */

/* Whether both contexts name the same objects: they are one, or one was imported. */
static bool contexts_share(struct ibv_context *one, struct ibv_context *other)
{
	const struct context *a = context_of(one), *b = context_of(other);

	/* An array in a structure isn't NULL:
	 * NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
	return one == other || !memcmp(a->token, b->token, sizeof(a->token));
}

static int dm_check_region(struct ibv_pd *pd, const struct dm *dm, uint64_t offset, size_t length,
			   unsigned int access)
{
	unsigned int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (!dm->handle || !contexts_share(pd->context, dm->ibv.context) ||
	    access & ~(unsigned int)DM_ACCESS || !(access & IBV_ACCESS_ZERO_BASED) ||
	    (access & remote && !(access & IBV_ACCESS_LOCAL_WRITE)) || offset > dm->length ||
	    length > dm->length - offset)
		return refused(EINVAL,
			       "ibv_reg_dm_mr: %zu bytes at %llu with access 0x%x: a region of "
			       "device memory is within its %zu bytes, of the same context, with "
			       "IBV_ACCESS_ZERO_BASED, and with IBV_ACCESS_LOCAL_WRITE if others "
			       "may write; a forked child registers none",
			       length, (unsigned long long)offset, access, dm->length);
	return handle_check("ibv_reg_dm_mr", pd->handle, pd_of(pd)->shown);
}

struct ibv_mr *verbs_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *ibv, uint64_t offset,
			       size_t length, unsigned int access)
{
	const struct dm *dm = dm_of(ibv);

	if (kernel_context_of(ibv->context))
		return fail_null(refused(EINVAL, "ibv_reg_dm_mr: the device memory is of another "
						 "device's context"));
	access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	int err = dm_check_region(pd, dm, offset, length, access);

	if (err)
		return fail_null(err);
	struct mr_file *file =
		length ? file_open(dm->fd, offset, length, PROT_READ | PROT_WRITE) : NULL;

	if (length && !file)
		return NULL;
	struct ibv_mr *mr = region_add(&(struct mr){
		.ibv = {.pd = pd, .length = length},
		.base = file ? (uintptr_t)file_first_byte(file, length) : 0,
		.access = access,
		.file = file,
		.dm = dm->handle,
		.dm_offset = offset,
	});

	if (!mr)
		file_free(file);
	return mr;
}
