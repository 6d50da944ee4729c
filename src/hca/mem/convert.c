/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converting private memory: which regions are converted, and the calls. See convert.h. No state
 * but what convert_state.h names.
 */
#include "hca/mem/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpu.h"
#include "base/env.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/sys.h"
#include "hca/mem/convert_state.h"
#include "hca/mem/mr.h"
#include "hca/mem/quiet.h"
#include "hca/mem/shared.h"
#include "hca/mem/warden.h"
#include "hca/process/hca.h"

bool convert_wanted(void)
{
	const char *how = env_get("VERBENA_MEMORY");

	return how && !strcmp(how, "shared");
}

/* ------------------------------------------------------------------ regions */

static bool mr_overlaps(const struct mr *mr, uintptr_t start, uintptr_t end)
{
	return mr->ibv.length && pages_start(mr) < end && start < pages_end(mr);
}

/* Whether memory that this thread writes meanwhile is on these pages. */
static bool own_memory_within(const struct hca *hca, uintptr_t start, uintptr_t end)
{
	enum { STACK = 256 << 10, THREAD = 16 << 10 };
	size_t warden_bytes;
	const void *warden = warden_memory(&warden_bytes);
	const struct {
		const void *at;
		size_t below, above;
	} own[] = {
		{__builtin_frame_address(0), STACK, STACK},
		{__builtin_thread_pointer(), THREAD, THREAD},
		{&errno, THREAD, THREAD},
		{&convert_file, 0, sizeof(convert_file)},
		{hca, 0, sizeof(*hca)},
		{warden, 0, warden_bytes},
	};

	for (unsigned int i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if ((uintptr_t)own[i].at + own[i].above >= start &&
		    (uintptr_t)own[i].at - own[i].below < end)
			return true;
	return false;
}

static const char *pages_refuse(const struct hca *hca, uintptr_t start, uintptr_t end)
	REQUIRES(convert_lock)
{
	if (own_memory_within(hca, start, end))
		return "the library itself uses the memory";
	list_for_each(node, &convert_regions) {
		const struct mr *mr = container_of(node, struct mr, pages);

		/* Peers write to it by system calls, at any time. */
		if (!mr_is_pinned(mr))
			return "there are regions on demand";
		if (mr_overlaps(mr, start, end))
			return "another region on these pages isn't converted";
	}
	return quiet_is_plain(start, end, &convert_file.marks)
		       ? NULL
		       : "it isn't plain memory (a file, huge pages, locked, "
			 "or changed by madvise(), ...)";
}

/* Finds the next pages of [*start, end) that aren't converted. False: all are. Where the mappings
 * can't be read any further, the rest is taken for private: pages_refuse() looks at it again. */
static bool private_find(struct proc_maps *maps, uintptr_t *start, uintptr_t *end)
	REQUIRES(convert_lock)
{
	struct proc_mapping m;
	uintptr_t from = *start;
	bool read = true;

	while (from < *end && (read = !proc_maps_next(maps, from, &m)) && m.start <= from &&
	       m.shared && is_ours(&m))
		from = m.end;
	*start = from;
	if (from >= *end)
		return false;
	while (read && m.start < *end && !(m.shared && is_ours(&m)))
		read = !proc_maps_next(maps, m.end, &m);
	if (read && m.start < *end)
		*end = m.start;
	return true;
}

#define CONVERTED_MUCH "too much memory was converted"

/* Converts pages that may be converted, in a quiet moment. False: the system has refused a part of
 * it. */
static bool pages_convert(uintptr_t start, const struct part *part) REQUIRES(convert_lock)
{
	uint64_t length = part->end - part->at;

	for (uint64_t done = 0, size; done < length; done += size) {
		size = LOOKED_AT * (uint64_t)page_bytes();
		size = length - done < size ? length - done : size;
		if (!looked_at_convert(start + done, size / page_bytes(), part->at + done))
			return false;
	}
	return true;
}

/* The same, from the look whether they may on. A thread that isn't stopped yet may change the
 * answer: so they are looked at once more. */
static const char *pages_convert_quietly(const struct hca *hca, uintptr_t start, uintptr_t end)
	REQUIRES(convert_lock)
{
	uint64_t at = convert_file.next + (start & (HUGE_BYTES - 1)), length = end - start;
	struct part part = {at, at + length, at + length + PART_GAP};
	sigset_t old;
	const char *why = NULL;

	if (convert_file.count == PARTS || length > FILE_BYTES / 4 || part.gap_end > FILE_BYTES / 2)
		why = CONVERTED_MUCH;
	if (!why)
		why = pages_refuse(hca, start, end);
	if (!why)
		why = quiet_begin(&old);
	if (why)
		return why;
	/* Once more: a thread that has ended or was stopped since may have changed the answers. */
	why = quiet_held_by();
	if (!why)
		why = pages_refuse(hca, start, end);
	bool done = !why && pages_convert(start, &part);

	quiet_end(&old);
	if (why)
		return why;
	convert_file.next = (part.gap_end | (HUGE_BYTES - 1)) + 1;
	convert_file.marked |= convert_file.marks;
	part_insert(convert_file.count, part);
	if (done)
		return NULL;
	part_cut(convert_file.count - 1, part.at, part.gap_end);
	return "the system has refused to map it anew";
}

static bool memory_overcommits(void)
{
	char how = '2';
	int fd = sys_open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = sys_read(fd, &how, 1);

	sys_close(fd);
	return n == 1 && how != '2';
}

/* A pipe by which threads wake one another is empty in a moment: whether it is worth to look
 * again, for the `n`th time. */
static bool looks_again(const char *why, int n)
{
	enum { LOOKS = 20, NAP_NS = 100000 };

	if (!why || strcmp(why, QUIET_PIPE) != 0 || n >= LOOKS)
		return false;
	sys_nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return true;
}

static const char *held_by_patiently(void)
{
	const char *why;
	int n = 0;

	do
		why = quiet_held_by();
	while (looks_again(why, n++));
	return why;
}

/* What must be so for any memory. NULL, or why it isn't. The limit comes first: a program that
 * registers thousands of buffers reaches it, and each look takes longer the more mappings there
 * are. */
static const char *convert_prepare(const struct mr *mr) REQUIRES(convert_lock)
{
	if (convert_file.count == PARTS)
		return CONVERTED_MUCH;
	if (mr->access & IBV_ACCESS_MW_BIND)
		return "windows may be bound to it";
	if (!memory_overcommits())
		return "the kernel accounts for memory strictly (vm.overcommit_memory)";
	const char *why = held_by_patiently();

	if (!why)
		why = convert_file_make();

	if (why)
		return why;
	convert_file.pagemap = sys_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	return convert_file.pagemap < 0 ? "/proc/self/pagemap can't be read" : NULL;
}

static const char *region_convert(const struct hca *hca, const struct mr *mr) REQUIRES(convert_lock)
{
	uintptr_t start = pages_start(mr), end = pages_end(mr), all = end;
	const char *why = convert_prepare(mr);

	if (why)
		return why;
	for (; !why && start < all; start = end) {
		struct proc_maps maps;

		end = all;
		if (proc_maps_open(&maps, 0)) {
			why = "its mappings can't be read";
			break;
		}
		bool found = private_find(&maps, &start, &end);

		proc_maps_close(&maps);
		if (!found)
			break;
		int n = 0;

		do
			why = pages_convert_quietly(hca, start, end);
		while (looks_again(why, n++));
	}
	sys_close(convert_file.pagemap);
	return why;
}

/* Makes all memory private while peers may be in the middle of operations. If the system refuses
 * that, the regions still need the file, and peers map it as before: the next attempt must stop
 * them again. */
static void move_all(struct hca *hca) REQUIRES(convert_lock)
{
	if (!convert_file.count && !convert_file.unsure)
		return;
	list_for_each(node, &convert_regions) {
		struct mr *mr = container_of(node, struct mr, pages);

		if (is_on_parts(mr) && mr_move(hca, mr))
			log_warn("a peer's copy doesn't end: what it copies is lost");
	}
	bool done = return_range(0, FILE_BYTES);

	list_for_each(node, &convert_regions) {
		struct mr *mr = container_of(node, struct mr, pages);

		if (!is_on_parts(mr))
			continue;
		if (likely(done))
			memset(mr->converted, 0, sizeof(mr->converted));
		else
			ranges_find(mr);
		mr->reach.reach = shared_find(mr_base(mr), mr->ibv.length, &mr->print);
		mr_moved(hca, mr);
	}
	if (unlikely(!done))
		return;
	convert_file.count = 0;
	atomic_fetch_add_explicit(&hca->pub->header.taken_back, 1, memory_order_relaxed);
}

/* ------------------------------------------------------------------ calls */

/* The signals of the thread that has the lock: fork() takes it, and may be called by a handler. */
static _Thread_local sigset_t convert_signals __attribute__((tls_model("initial-exec")));

/* Not analysed: whether the lock is taken depends on the HCA. */
void convert_begin(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	sigset_t old;

	if (!hca->convert)
		return;
	signals_hold(&old);
	mutex_take(&convert_lock);
	convert_signals = old;
}

void convert_end(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert)
		return;
	mutex_give(&convert_lock);
	signals_release(&convert_signals);
}

/* Why the region isn't converted; NULL: it is, or needn't be. */
static const char *region_look_at(const struct hca *hca, const struct mr *mr) REQUIRES(convert_lock)
{
	uint64_t print;

	switch (shared_find(mr_base(mr), mr->ibv.length, &print)) {
	case PROTO_REACH_PRIVATE:
		return region_convert(hca, mr);
	case PROTO_REACH_UNSEEN:
		return "its mappings can't be read (is a descriptor left?)";
	default:
		return NULL;
	}
}

/* Whether peers reach the region in a way that a return of its memory doesn't wait for: by a
 * window's key, or by system calls. */
static bool keeps_all_private(const struct mr *mr)
{
	return mr->access & IBV_ACCESS_MW_BIND ? is_on_parts(mr) : !mr_is_pinned(mr);
}

void convert_region(struct hca *hca, struct mr *mr) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || !mr->ibv.length || mr->file)
		return;
	if (mr_is_pinned(mr)) {
		const char *why = region_look_at(hca, mr);

		if (why)
			log_info("%zu bytes at %p aren't converted: %s", mr->ibv.length,
				 mr_base(mr), why);
		ranges_find(mr);
	}
	if (keeps_all_private(mr))
		move_all(hca);
	if (!convert_file.count && !convert_file.unsure)
		memset(mr->converted, 0, sizeof(mr->converted));
	if (is_on_parts(mr)) /* relaxed: only threads with the lock change the count */
		mr->reach.converted =
			atomic_load_explicit(&hca->pub->header.taken_back, memory_order_relaxed) +
			1;
	file_sweep();
	list_add_tail(&convert_regions, &mr->pages);
}

void convert_region_ends(struct hca *hca, struct mr *mr) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || list_empty(&mr->pages))
		return;
	list_del(&mr->pages);
	unneeded_return(mr);
}

void convert_region_changed(struct hca *hca, struct mr *mr,
			    const struct mr *old) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || list_empty(&mr->pages))
		return;
	memset(mr->converted, 0, sizeof(mr->converted));
	if (mr_is_pinned(mr))
		ranges_find(mr);
	if (keeps_all_private(mr))
		move_all(hca);
	unneeded_return(old);
}

void convert_before_fork(struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	convert_begin(hca);
	if (!hca->convert || (!convert_file.count && !convert_file.unsure))
		return;
	reserve_use(&convert_file.reserve, &convert_file.status);
	bool held = quiet_held_by();

	if (held)
		copies_make();
	reserve_keep(&convert_file.reserve, convert_file.fd);
	if (!held)
		move_all(hca);
}

void convert_after_fork(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (hca->convert)
		copies_drop();
	convert_end(hca);
}

void convert_leave(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert)
		return;
	mutex_init(&convert_lock, RANK_CONVERT);
	while (list_pop(&convert_regions))
		;
	copies_place();
	reserve_drop(&convert_file.reserve, &convert_file.status);
	if (file_is_open())
		sys_close(convert_file.fd);
	convert_file.fd = -1;
	convert_file.next = 0;
	convert_file.count = 0;
	signals_release(&convert_signals);
}
