/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory and fork(). This library pins no pages, so a fork needs no care: the kernel
 * resolves copy-on-write for any write to the parent's memory as for the parent's own, and children
 * keep what they inherit. rdma-core reports the same, IBV_FORK_UNNEEDED, on kernels that copy
 * pinned pages at a fork (since 5.12); here it holds on every kernel.
 *
 * RDMAV_USE_MADVISE=1 keeps registered pages from children nevertheless, as with newer rdma-core:
 * after ibv_fork_init() a child doesn't inherit them (MADV_DONTFORK).
 *
 * Regions may overlap within a page, so pages are counted: `ranges` is a sorted array of disjoint
 * page ranges, each with the number of regions in it, all above zero. Neighbours with equal counts
 * are merged. All data is guarded by `lock`.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/verbs_abi.h"
#include "base/env.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/refused.h"

struct range {
	uintptr_t start, end;
	unsigned int refs;
};

static struct mutex lock = MUTEX_INITIALIZER(RANK_FORK_PAGES);
static bool enabled;
static bool huge_pages; /* RDMAV_HUGEPAGES_SAFE: mappings may have larger pages */
static bool too_late;	/* a region was registered before, so its pages aren't in `ranges` */
static struct range *ranges;
static size_t count, space;

/* A child has none of the pages of its parent's ranges, so it forgets them. */
static void ranges_leave(void)
{
	mutex_init(&lock, RANK_FORK_PAGES);
	ranges = NULL;
	count = space = 0;
}

__attribute__((constructor)) static void ranges_watch_forks(void)
{
	pthread_atfork(NULL, NULL, ranges_leave);
}

/* ------------------------------------------------------------------ the array of ranges */

static bool ranges_reserve(size_t more)
{
	if (count + more <= space)
		return true;
	size_t wanted = (count + more) * 2;
	struct range *bigger = realloc(ranges, wanted * sizeof(*ranges));

	if (!bigger)
		return false;
	ranges = bigger;
	space = wanted;
	return true;
}

/* Index of the first range that ends after `addr`. */
static size_t range_find(uintptr_t addr)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ranges[middle].end > addr)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The caller has reserved room. */
static void range_insert(size_t at, uintptr_t start, uintptr_t end, unsigned int refs)
{
	memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof(*ranges));
	ranges[at] = (struct range){start, end, refs};
	count++;
}

static void range_erase(size_t at)
{
	count--;
	memmove(&ranges[at], &ranges[at + 1], (count - at) * sizeof(*ranges));
}

/* Makes `addr` a boundary, if it is inside a range. The caller has reserved room. */
static void range_split(uintptr_t addr)
{
	size_t i = range_find(addr);

	if (i == count || ranges[i].start >= addr)
		return;
	range_insert(i + 1, addr, ranges[i].end, ranges[i].refs);
	ranges[i].end = addr;
}

/* Merges equal neighbours from the range before `start` to the one after `end`. */
static void ranges_join(uintptr_t start, uintptr_t end)
{
	size_t i = range_find(start ? start - 1 : 0);

	while (i + 1 < count && ranges[i].start <= end) {
		if (ranges[i].end == ranges[i + 1].start && ranges[i].refs == ranges[i + 1].refs) {
			ranges[i].end = ranges[i + 1].end;
			range_erase(i + 1);
		} else {
			i++;
		}
	}
}

/* Calls madvise() on the parts of [start, end) that belong to no range. */
static int advise_gaps(uintptr_t start, uintptr_t end, int advice)
{
	for (size_t i = range_find(start); start < end; i++) {
		uintptr_t stop = i < count && ranges[i].start < end ? ranges[i].start : end;

		if (stop > start && madvise((void *)start, stop - start, advice) < 0)
			return errno;
		start = i < count ? ranges[i].end : end;
	}
	return 0;
}

static int range_add(uintptr_t start, uintptr_t end)
{
	size_t inside = 0;

	for (size_t i = range_find(start); i < count && ranges[i].start < end; i++)
		inside++;
	if (!ranges_reserve(inside +
			    3)) /* at most a gap before each range, one after, and two splits */
		return refused(ENOMEM, "memory can't be kept from forked children: there is none "
				       "for the list of such ranges");
	int err = advise_gaps(start, end, MADV_DONTFORK);

	if (err) {
		advise_gaps(start, end, MADV_DOFORK);
		return refused(
			err,
			"%zu bytes at %p can't be kept from forked children (madvise "
			"MADV_DONTFORK: %s); ibv_fork_init() or RDMAV_FORK_SAFE asked for it",
			end - start, (void *)start, strerror(err));
	}
	range_split(start);
	range_split(end);
	uintptr_t at = start;

	for (size_t i = range_find(start); at < end; i++) {
		uintptr_t stop = i < count && ranges[i].start < end ? ranges[i].start : end;

		if (stop > at) {
			range_insert(i, at, stop, 1);
			at = stop;
		} else {
			ranges[i].refs++;
			at = ranges[i].end;
		}
	}
	ranges_join(start, end);
	return 0;
}

static int range_remove(uintptr_t start, uintptr_t end)
{
	int err = 0;

	if (!ranges_reserve(2))
		return refused(ENOMEM, "memory stays away from forked children: there is none for "
				       "the list of such ranges");
	range_split(start);
	range_split(end);
	for (size_t i = range_find(start); i < count && ranges[i].start < end;) {
		if (--ranges[i].refs) {
			i++;
			continue;
		}
		if (madvise((void *)ranges[i].start, ranges[i].end - ranges[i].start, MADV_DOFORK) <
		    0)
			err = errno; /* unmapped meanwhile: there is nothing to inherit */
		range_erase(i);
	}
	ranges_join(start, end);
	return err;
}

/* ------------------------------------------------------------------ page sizes */

/* The largest page size among the mappings that [start, end) touches. */
static size_t page_size(uintptr_t start, uintptr_t end)
{
	size_t largest = (size_t)sysconf(_SC_PAGESIZE);
	FILE *file = huge_pages ? fopen("/proc/self/smaps", "rce") : NULL;
	bool ours = false;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		uintptr_t from, to;
		size_t kib;

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			ours = from < end && to > start;
		else if (ours && sscanf(line, "KernelPageSize: %zu kB", &kib) == 1 &&
			 kib * 1024 > largest)
			largest = kib * 1024;
	}
	if (file)
		fclose(file);
	return largest;
}

/* Applies `what` to the pages of [base, base + size). The caller holds lock. */
static int ranges_advise(int (*what)(uintptr_t, uintptr_t), const void *base, size_t size)
{
	uintptr_t start = (uintptr_t)base, end;

	if (!enabled || !size)
		return 0;
	bool beyond = __builtin_add_overflow(start, size, &end);
	uintptr_t mask = beyond ? 0 : page_size(start, end) - 1;

	if (beyond || end + mask < end)
		return refused(EINVAL, "%zu bytes at %p are beyond the last address", size, base);
	return what(start & ~mask, (end + mask) & ~mask);
}

/* ------------------------------------------------------------------ calls */

int fork_register(void *addr, size_t length)
{
	mutex_take(&lock);
	int err = ranges_advise(range_add, addr, length);

	too_late |= !enabled;
	mutex_give(&lock);
	return err;
}

void fork_unregister(void *addr, size_t length)
{
	mutex_take(&lock);
	ranges_advise(range_remove, addr, length); /* fails only if the memory is unmapped */
	mutex_give(&lock);
}

/* For programs that manage memory of their own: 0, or -1 with errno. */
EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	mutex_take(&lock);
	int err = ranges_advise(range_add, base, size);

	mutex_give(&lock);
	return fail_errno(err) ? -1 : 0;
}

EXPORT int ibv_dofork_range(void *base, size_t size)
{
	mutex_take(&lock);
	int err = ranges_advise(range_remove, base, size);

	mutex_give(&lock);
	return fail_errno(err) ? -1 : 0;
}

static bool madvise_wanted(void)
{
	const char *text = env_get("RDMAV_USE_MADVISE");

	return text && strcmp(text, "0") != 0;
}

EXPORT int ibv_fork_init(void)
{
	int err = 0;

	if (!madvise_wanted())
		return 0;
	mutex_take(&lock);
	if (!enabled && too_late) {
		log_info("ibv_fork_init: too late, memory regions have been registered before");
		err = EINVAL;
	} else if (!enabled) {
		enabled = true;
		huge_pages = env_get("RDMAV_HUGEPAGES_SAFE") != NULL;
	}
	mutex_give(&lock);
	return fail_errno(err);
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}
