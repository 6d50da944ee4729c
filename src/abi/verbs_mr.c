/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions. The daemon allocates handles and keys and counts pinned memory; the pages are
 * populated here, as a kernel would pin them, and then the region is published to peers
 * (mr_publish). Deregistration is the reverse: first all access is ended. A null region has no
 * pages.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/populate.h"
#include "abi/verbs_abi.h"
#include "abi/verbs_region.h"
#include "base/env.h"
#include "base/log.h"
#include "base/refused.h"
#include "base/sys.h"
#include "hca/mem/convert.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/mem/shared.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/window.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Bytes that this process has registered: only for explain_limit(). */
static _Atomic uint64_t registered;

/* Access bits that have an effect here; those of the optional range are all ignored. */
#define MR_ACCESS                                                                    \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |     \
	 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_FLUSH_GLOBAL)

/* 0 or EINVAL. */
static int mr_check_range(const void *addr, size_t length, uint64_t iova, unsigned int access)
{
	uintptr_t end;
	uint64_t iova_end;

	if (mr_is_implicit(addr, length, access))
		return iova || access & IBV_ACCESS_HUGETLB ? EINVAL : 0;
	/* As in the kernel: a region of length 0 is accepted if its address isn't page-aligned,
	 * because the kernel then has a page to pin. */
	if ((!length && !((uintptr_t)addr % (uintptr_t)sysconf(_SC_PAGESIZE))) ||
	    length > LIMIT_MR_BYTES || __builtin_add_overflow((uintptr_t)addr, length, &end) ||
	    __builtin_add_overflow(iova, length, &iova_end))
		return EINVAL;
	/* As in the kernel: ibv_reg_mr(3) guarantees huge pages to on-demand regions only. */
	if (access & IBV_ACCESS_ON_DEMAND && access & IBV_ACCESS_HUGETLB &&
	    memory_page_size(addr) == (size_t)sysconf(_SC_PAGESIZE))
		return EINVAL;
	return 0;
}

static int mr_check_arguments(const void *addr, size_t length, uint64_t iova, unsigned int access)
{
	unsigned int remote = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

	if (access & IBV_ACCESS_FLUSH_PERSISTENT) {
		log_warn(
			"a region can't be registered for FLUSH to persistence: no memory is known "
			"to be persistent");
		return EINVAL;
	}
	if (access & ~(unsigned int)MR_ACCESS) {
		log_warn("a region can't be registered with access 0x%x: unknown bits", access);
		return EINVAL;
	}
	if (remote && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		log_warn("a region that others may write needs IBV_ACCESS_LOCAL_WRITE as well");
		return EINVAL;
	}
	if (mr_check_range(addr, length, iova, access)) {
		log_warn("a region can't have %zu bytes at %p with access 0x%x", length, addr,
			 access);
		return EINVAL;
	}
	return 0;
}

/* Whether the daemon counts what this process pins: it doesn't where it may lock any amount, in the
 * host's user namespace. */
static bool memlock_counts(void)
{
	/* The number of the first user namespace (the kernel's PROC_USER_INIT_INO). */
	static const char first[] = "user:[4026531837]";
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
	const char *setting = env_get("VERBENA_MEMLOCK");
	char space[64];
	ssize_t n = readlink("/proc/self/ns/user", space, sizeof(space));

	if (setting && !strcmp(setting, "off"))
		return false;
	if (syscall(SYS_capget, &header, data) || !(data[0].effective >> CAP_IPC_LOCK & 1))
		return true;
	return n != (ssize_t)strlen(first) || memcmp(space, first, (size_t)n) != 0;
}

/* Whether RLIMIT_MEMLOCK forbids a region that pins so many bytes more. What exceeded it before
 * shows that the daemon doesn't apply it. */
static bool exceeds_memlock(size_t length, struct rlimit *limit)
{
	uint64_t before = atomic_load(&registered);

	return getrlimit(RLIMIT_MEMLOCK, limit) == 0 && limit->rlim_cur != RLIM_INFINITY &&
	       before <= limit->rlim_cur && before + length > limit->rlim_cur && memlock_counts();
}

/* Logs why the daemon rejected the region, because its errno alone doesn't tell the user what to
 * do. */
static void explain_limit(size_t length)
{
	struct rlimit limit;

	if (!exceeds_memlock(length, &limit)) {
		daemon_explain_limit(IB_USER_VERBS_CMD_REG_MR);
		return;
	}
	log_warn("%zu KiB can't be registered: with the %llu KiB that are registered already, that "
		 "is "
		 "more than this process may lock (RLIMIT_MEMLOCK, %llu KiB). Raise it (`ulimit -l "
		 "unlimited`, /etc/security/limits.conf, LimitMEMLOCK= of a unit), or set "
		 "VERBENA_MEMLOCK=off",
		 length >> 10, (unsigned long long)atomic_load(&registered) >> 10,
		 (unsigned long long)limit.rlim_cur >> 10);
}

static void fill_region(struct mr *mr, const struct ib_uverbs_reg_mr_resp *resp)
{
	mr->ibv.context = mr->ibv.pd->context;
	mr->ibv.handle = mr->handle = resp->mr_handle;
	mr->ibv.lkey = mr->ibv.rkey = mr->key = resp->lkey;
}

/* Bytes that the region pins, as the daemon counts them. */
static uint64_t region_pins(const struct mr *mr)
{
	return mr_is_pinned(mr) ? mr->ibv.length : 0;
}

/* Keeps the region's pages from children, or no longer (verbs_fork.c). 0 or a positive errno. */
static int region_keep(const struct mr *mr)
{
	return mr_is_pinned(mr) ? fork_register(mr_base(mr), mr->ibv.length) : 0;
}

static void region_let_go(const struct mr *mr)
{
	if (mr_is_pinned(mr))
		fork_unregister(mr_base(mr), mr->ibv.length);
}

static int region_populate(const struct mr *mr)
{
	bool write = mr->access & IBV_ACCESS_LOCAL_WRITE;

	return mr_is_pinned(mr) ? -memory_populate(mr_base(mr), mr->ibv.length, write) : 0;
}

/* Finds out whether peers may map the memory. A peer's mapping would go on showing the old pages
 * when the program replaces those of an on-demand region. */
static void region_look(struct mr *mr)
{
	bool may_share = context_of(mr->ibv.pd->context)->hca->share_memory && !mr->null_region &&
			 !(mr->access & IBV_ACCESS_ON_DEMAND);

	mr->print = 0;
	mr->reach.reach =
		may_share ? shared_find(mr_base(mr), mr->ibv.length, &mr->print) : PROTO_REACH_OFF;
}

/* Registers the region that mr's pd, base, length, iova and access describe. 0 or a negative
 * errno. */
static int region_make(struct mr *mr)
{
	struct ibv_mr *ibv = &mr->ibv;
	struct daemon_conn *conn = conn_of(ibv->pd->context);
	struct ib_uverbs_reg_mr_resp resp;

	region_look(mr);
	int err = mr_ask_keys(conn, mr, &resp);

	if (err == -ENOMEM)
		explain_limit(region_pins(mr));
	if (err)
		return err;
	err = region_populate(mr);
	if (err)
		goto out_daemon;
	fill_region(mr, &resp);
	err = mr_publish(context_of(ibv->context)->hca, mr);
	if (err)
		goto out_daemon;
	atomic_fetch_add(&registered, region_pins(mr));
	atomic_store(&context_of(ibv->context)->hca->last_key_index,
		     resp.lkey >> LIMIT_KEY_TAG_BITS);
	return 0;

out_daemon:
	daemon_dereg_mr(conn, resp.mr_handle);
	return err;
}

/* The same, with its memory converted if it can be (mem/convert.h); the program keeps the region.
 */
static int region_make_converted(struct context *context, struct mr *mr)
{
	convert_begin(context->hca);
	convert_region(context->hca, mr);
	books_enter(context->hca);
	int err = region_make(mr);

	if (!err)
		books_add(context, HELD_MR, &mr->held);
	books_leave(context->hca);
	if (err)
		convert_region_ends(context->hca, mr);
	convert_end(context->hca);
	if (err)
		region_let_go(mr);
	return err;
}

struct ibv_mr *region_add(const struct mr *wanted)
{
	struct context *context = context_of(wanted->ibv.pd->context);
	struct mr *mr = malloc(sizeof(*mr));

	if (!mr)
		return fail_null(ENOMEM);
	*mr = *wanted;
	list_init(&mr->pages);
	int err = -region_keep(mr);

	if (!err)
		err = region_make_converted(context, mr);
	if (err) {
		free(mr);
		return fail_null(-err);
	}
	pd_use(mr->ibv.pd, 1);
	context_count(mr->ibv.context, 1);
	return &mr->ibv;
}

/* Registers memory with the kernel's device. Its driver pins the pages, so that they must not move
 * in a fork (verbs_fork.c). */
static struct ibv_mr *kernel_region_register(struct kernel_context *kernel, struct ibv_pd *pd,
					     void *addr, size_t length, uint64_t iova,
					     unsigned int access)
{
	bool pinned = !(access & IBV_ACCESS_ON_DEMAND);
	int err = pinned ? fork_register(addr, length) : 0;

	if (err)
		return fail_null(err);
	struct ibv_mr *mr = kernel_reg_mr(kernel, pd, addr, length, iova, access);

	if (!mr && pinned) {
		err = errno;
		fork_unregister(addr, length);
		errno = err;
	}
	return mr;
}

static struct ibv_mr *region_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      unsigned int access, struct mr_file *file)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel)
		return kernel_region_register(kernel, pd, addr, length, iova, access);
	int err = handle_check("ibv_reg_mr", pd->handle, pd_of(pd)->shown);

	access &= ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	if (!err)
		err = mr_check_arguments(addr, length, iova, access);
	if (err)
		return fail_null(err);
	return region_add(&(struct mr){
		.ibv = {.pd = pd, .addr = addr, .length = length},
		.base = (uintptr_t)addr,
		.iova = iova,
		.access = access,
		.file = file,
	});
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return region_register(pd, addr, length, (uintptr_t)addr, access, NULL);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      int access)
{
	return region_register(pd, addr, length, iova, access, NULL);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned int access)
{
	return region_register(pd, addr, length, iova, access, NULL);
}

struct ibv_mr *verbs_alloc_null_mr(struct ibv_pd *pd)
{
	int err = handle_check("ibv_alloc_null_mr", pd->handle, pd_of(pd)->shown);

	if (err)
		return fail_null(err);
	struct ibv_mr *mr = region_add(&(struct mr){
		.ibv = {.pd = pd, .length = SIZE_MAX},
		.access = IBV_ACCESS_LOCAL_WRITE,
		.null_region = true,
	});

	if (mr)
		mr->rkey = 0; /* ibv_alloc_null_mr(3): only the lkey is valid */
	return mr;
}

/* ------------------------------------------------------------------ memory files */

/*
 * A software device uses the host's memory, so this call takes memory files (memfd_create), not
 * buffers of other devices. The file must not shrink (F_SEAL_SHRINK), as memory of an adapter
 * can't.
 */
static int mr_check_file(int fd, uint64_t end)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return refused(errno == EBADF ? EBADF : EOPNOTSUPP,
			       "ibv_reg_dmabuf_mr: descriptor %d is no memory file "
			       "(memfd_create), which this device takes only",
			       fd);
	if (!(seals & F_SEAL_SHRINK)) {
		log_warn("a memory file can't be registered as long as it may shrink (see "
			 "F_SEAL_SHRINK in fcntl(2))");
		return EINVAL;
	}
	if (!fstat(fd, &status) && (uint64_t)status.st_size >= end)
		return 0;
	return refused(EINVAL,
		       "ibv_reg_dmabuf_mr: the memory file of descriptor %d is shorter "
		       "than offset + length, %llu bytes",
		       fd, (unsigned long long)end);
}

void file_free(struct mr_file *file)
{
	if (!file)
		return;
	if (file->pages)
		munmap(file->pages, file->size);
	if (file->fd >= 0)
		sys_close(file->fd);
	free(file);
}

struct mr_file *file_open(int fd, uint64_t offset, size_t length, int prot)
{
	uint64_t skip = offset % (uint64_t)sysconf(_SC_PAGESIZE);
	struct mr_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	file->size = skip + length;
	if (file->fd >= 0)
		file->pages =
			mmap(NULL, file->size, prot, MAP_SHARED, file->fd, (off_t)(offset - skip));
	if (file->fd < 0 || file->pages == MAP_FAILED) {
		int error = errno;

		file->pages = NULL;
		file_free(file);
		errno = error;
		return NULL;
	}
	return file;
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	struct kernel_context *kernel = kernel_context_of(pd->context);

	if (kernel)
		return kernel_reg_dmabuf_mr(kernel, pd, offset, length, iova, fd, access);
	unsigned int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	uint64_t end;

	if (!length || __builtin_add_overflow(offset, length, &end) || end > INT64_MAX)
		return fail_null(refused(EINVAL,
					 "ibv_reg_dmabuf_mr: a file has no %zu bytes at %llu",
					 length, (unsigned long long)offset));
	int err = mr_check_file(fd, end);

	if (err)
		return fail_null(err);
	struct mr_file *file = file_open(
		fd, offset, length, PROT_READ | ((unsigned int)access & remote ? PROT_WRITE : 0));

	if (!file)
		return fail_null(errno);
	struct ibv_mr *mr = region_register(pd, file_first_byte(file, length), length, iova,
					    (unsigned int)access, file);

	if (!mr)
		file_free(file);
	return mr;
}

/* ------------------------------------------------------------------ changing a region */

#define REREG_FLAGS \
	(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS)

/* Returns `mr` with the changes that `flags` ask for. */
static struct mr region_changed(const struct mr *mr, int flags, struct ibv_pd *pd, void *addr,
				size_t length, int access)
{
	struct mr wanted = *mr;

	if (flags & IBV_REREG_MR_CHANGE_PD)
		wanted.ibv.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		wanted.access = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		wanted.ibv.addr = addr;
		wanted.ibv.length = length;
		wanted.base = (uintptr_t)addr;
		wanted.iova = wanted.access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
	}
	return wanted;
}

/* What libibverbs refuses before any provider sees the call. */
static int check_rereg_input(int flags, const void *addr, size_t length, int access)
{
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;

	if (flags & ~REREG_FLAGS || (moves && (!addr || !length)) ||
	    (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)))
		return refused(EINVAL,
			       "ibv_rereg_mr: flags is 0x%x, and may have the bits 0x%x only; "
			       "IBV_REREG_MR_CHANGE_TRANSLATION needs addr and length, and access "
			       "needs IBV_REREG_MR_CHANGE_ACCESS",
			       (unsigned int)flags, (unsigned int)REREG_FLAGS);
	return 0;
}

/* Whether the region's kind can be changed at all, and so: what libibverbs refuses as well. */
static int check_rereg_kind(const struct mr *wanted, int flags)
{
	/* A memory file's region keeps its translation. */
	if (wanted->file && !wanted->dm && flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		return refused(EOPNOTSUPP, "ibv_rereg_mr: a memory file's region keeps its "
					   "translation; register another one");
	if (wanted->imported || wanted->null_region || wanted->dm)
		return refused(EINVAL, "ibv_rereg_mr: an imported region, a null region and one of "
				       "device memory stay as they are; register another one");
	return 0;
}

static int check_rereg(const struct mr *wanted, int flags)
{
	if (!flags || !wanted->ibv.pd || wanted->ibv.pd->context != wanted->ibv.context)
		return refused(EINVAL, "ibv_rereg_mr: flags must have a bit, and pd must be of the "
				       "region's context");
	return mr_check_arguments(wanted->ibv.addr, wanted->ibv.length, wanted->iova,
				  wanted->access);
}

/* Changes the region at the daemon, and populates its pages. The region isn't accessible meanwhile.
 * 0 or a negative errno. */
static int region_change(struct mr *mr, struct mr *wanted, int flags)
{
	const struct ibv_mr *ibv = &wanted->ibv;
	struct ib_uverbs_rereg_mr_resp resp;
	int err = region_populate(wanted);

	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		wanted->reach.converted = 0;
	region_look(wanted);
	if (!err)
		err = daemon_rereg_mr(conn_of(ibv->context), wanted->handle, flags, wanted->base,
				      ibv->length, wanted->iova, pd_of(ibv->pd)->handle,
				      wanted->access, wanted->reach, &resp);
	if (err == -ENOMEM)
		explain_limit(region_pins(wanted));
	if (err)
		return err;
	atomic_fetch_add(&registered, region_pins(wanted) - region_pins(mr));
	pd_use(ibv->pd, 1);
	pd_use(mr->ibv.pd, -1);
	mr->ibv.pd = ibv->pd;
	mr->ibv.addr = ibv->addr;
	mr->ibv.length = ibv->length;
	mr->base = wanted->base;
	mr->iova = wanted->iova;
	mr->access = wanted->access;
	mr->print = wanted->print;
	mr->reach = wanted->reach;
	mr->ibv.lkey = mr->ibv.rkey = mr->key = resp.lkey;
	return 0;
}

static int kernel_region_change(struct kernel_context *kernel, struct ibv_mr *mr, int flags,
				struct ibv_pd *pd, void *addr, size_t length, int access)
{
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION && addr && length;
	void *old_addr = mr->addr;
	size_t old_length = mr->length;

	if (moves && fork_register(addr, length))
		return IBV_REREG_MR_ERR_DONT_FORK_NEW;
	int err = kernel_rereg_mr(kernel, mr, flags, pd, addr, length, access);

	if (moves)
		fork_unregister(err ? addr : old_addr, err ? length : old_length);
	if (!err)
		return 0;
	errno = err;
	return IBV_REREG_MR_ERR_CMD;
}

static int kernel_region_end(struct kernel_context *kernel, struct ibv_mr *mr)
{
	bool pinned = kernel_mr_is_pinned(mr);
	void *addr = mr->addr;
	size_t length = mr->length;
	int err = kernel_dereg_mr(kernel, mr);

	if (!err && pinned)
		fork_unregister(addr, length);
	return err;
}

static int rereg_refused(int err, enum ibv_rereg_mr_err_code code)
{
	errno = err;
	return code;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t length,
			int access)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);
	int err = check_rereg_input(flags, addr, length, access);

	if (err)
		return rereg_refused(err, IBV_REREG_MR_ERR_INPUT);
	if (kernel)
		return kernel_region_change(kernel, ibv, flags, pd, addr, length, access);
	struct mr *mr = container_of(ibv, struct mr, ibv);
	struct hca *hca = context_of(ibv->context)->hca;
	struct mr wanted = region_changed(mr, flags, pd, addr, length, access), old = *mr;
	bool moves = flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS);

	err = check_rereg_kind(&wanted, flags);
	if (err)
		return rereg_refused(err, IBV_REREG_MR_ERR_INPUT);
	err = handle_check("ibv_rereg_mr", ibv->handle, mr->handle);
	if (!err && flags & IBV_REREG_MR_CHANGE_PD && pd && kernel_context_of(pd->context))
		err = EINVAL;
	if (!err && flags & IBV_REREG_MR_CHANGE_PD && pd)
		err = handle_check("ibv_rereg_mr", pd->handle, pd_of(pd)->shown);
	if (!err)
		err = check_rereg(&wanted, flags);
	if (err)
		return rereg_refused(err, IBV_REREG_MR_ERR_CMD);
	if (moves && region_keep(&wanted))
		return rereg_refused(EINVAL, IBV_REREG_MR_ERR_DONT_FORK_NEW);
	err = window_region_ends(hca, mr);
	if (err) {
		if (moves)
			region_let_go(&wanted);
		return rereg_refused(-err, IBV_REREG_MR_ERR_CMD);
	}
	convert_begin(hca);
	err = mr_revoke(hca, mr);
	books_enter(hca);
	if (!err)
		err = region_change(mr, &wanted, flags);
	mr_publish(hca, mr); /* the new region, or the old one after a failure */
	books_leave(hca);
	convert_region_changed(hca, mr, &old);
	convert_end(hca);
	if (moves)
		region_let_go(err ? &wanted : &old);
	return err ? rereg_refused(-err, IBV_REREG_MR_ERR_CMD) : 0;
}

/* 0, or a negative errno: it is still registered. */
static int region_end(struct hca *hca, struct mr *mr)
{
	int err = mr_revoke(hca, mr);

	if (err) /* but no new access begins */
		return err;
	books_enter(hca);
	err = daemon_dereg_mr(conn_of(mr->ibv.context), mr->handle);

	if (err == -EIO) /* without a daemon there is no object to end */
		err = 0;
	if (!err)
		books_drop(context_of(mr->ibv.context), &mr->held);
	books_leave(hca);
	if (err)
		mr_publish(hca, mr);
	return err;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct kernel_context *kernel = kernel_context_of(ibv->context);

	if (kernel)
		return kernel_region_end(kernel, ibv);
	struct mr *mr = container_of(ibv, struct mr, ibv);

	if (mr->imported) {
		log_warn("an imported region is given back with ibv_unimport_mr; ibv_dereg_mr is "
			 "for "
			 "the one that was registered");
		return fail_errno(EINVAL);
	}
	struct hca *hca = context_of(ibv->context)->hca;
	int err = handle_check("ibv_dereg_mr", ibv->handle, mr->handle);

	if (err)
		return fail_errno(err); /* the region stays registered, as in the kernel */
	err = window_region_ends(hca, mr);
	if (err) /* memory windows are bound to it, and it stays as it is */
		return fail_errno(-err);
	convert_begin(hca);
	err = region_end(hca, mr);
	if (!err)
		convert_region_ends(hca, mr);
	convert_end(hca);
	if (err)
		return fail_errno(-err);
	atomic_fetch_sub(&registered, region_pins(mr));
	region_let_go(mr);
	pd_use(ibv->pd, -1);
	if (mr->dmah_users)
		atomic_fetch_sub(mr->dmah_users, 1);
	context_count(ibv->context, -1);
	file_free(mr->file);
	free(mr);
	return 0;
}
