/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Populating the pages of a region. See populate.h. The kernel takes 0.13 us for each small page
 * that it is asked to populate, even if the page is present: 36 ms for a GiB. Presence doesn't
 * matter for correctness: every copy goes through the owner's address space, which brings in the
 * pages that it needs. Access rights are the same throughout a mapping, and a truncated file lacks
 * its end. So of a large region only the last page of each mapping is populated. Where mappings end
 * is looked up (base/proc_maps.h). No state.
 */
#include "abi/populate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/proc_maps.h"

/* From so many pages on, looking the mappings up is faster than populating. The text has a line for
 * each mapping of the process up to the region, so it pays only from the second limit on. */
enum { LOOK_PAGES_MIN = 64, READ_PAGES_MIN = 1024 };

/* 0; EFAULT; EOPNOTSUPP: the kernel doesn't support it. */
static int populate_pages(uintptr_t start, size_t length, bool write)
{
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	while (madvise((void *)start, length, advice) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == EINVAL && madvise((void *)start, 0, advice) < 0)
			return EOPNOTSUPP;
		return EFAULT;
	}
	return 0;
}

/* Populates the last page of each mapping between the two. Results as populate_pages(). */
static int populate_ends(struct proc_maps *maps, uintptr_t start, uintptr_t end, bool write)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool lines = (end - start) / page >= READ_PAGES_MIN;
	struct proc_mapping mapping;
	int err = 0;

	while (!err && start < end) {
		err = -proc_maps_find(maps, start, lines, &mapping);
		if (err)
			return err == ENOENT ? EFAULT : err;
		start = mapping.end < end ? mapping.end : end;
		err = populate_pages(start - page, page, write);
	}
	return err;
}

static int mapping_examine(uintptr_t start, uintptr_t end, bool write)
{
	/* Not kept open: the file belongs to the process that opened it, also in a forked child. */
	struct proc_maps maps;

	if (proc_maps_open(&maps, 0))
		return EOPNOTSUPP;
	int err = populate_ends(&maps, start, end, write);

	proc_maps_close(&maps);
	return err;
}

int memory_populate(void *addr, size_t length, bool write)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(uintptr_t)(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(uintptr_t)(page - 1);
	int err = EOPNOTSUPP;

	if ((end - start) / page >= LOOK_PAGES_MIN)
		err = mapping_examine(start, end, write);
	if (err == EOPNOTSUPP)
		err = populate_pages(start, end - start, write);
	if (err != EFAULT)
		return 0;
	log_warn("a region can't be registered: the %zu bytes at %p aren't all mapped%s", length,
		 addr, write ? " and writable" : "");
	return EFAULT;
}

/* As the kernel counts: a mapping of transparent huge pages has small ones. */
size_t memory_page_size(const void *addr)
{
	uintptr_t at = (uintptr_t)addr, from, to;
	FILE *file = fopen("/proc/self/smaps", "rce");
	bool ours = false;
	size_t kib = 0;
	char line[512];

	while (file && !kib && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
			ours = from <= at && at < to;
		else if (!ours || sscanf(line, "KernelPageSize: %zu kB", &kib) != 1)
			kib = 0;
	}
	if (file)
		fclose(file);
	return kib * 1024;
}
