/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Populating the pages of a region. See populate.h. The kernel takes 0.13 us for each small page
 * that it is asked to populate, even if the page is present: 36 ms for a GiB. Presence doesn't
 * matter for correctness: every copy goes through the owner's address space, which brings in the
 * pages that it needs. Access rights are the same throughout a mapping, and a truncated file lacks
 * its end. So of a large region only the last page of each mapping is populated. PROCMAP_QUERY
 * (Linux 6.11) tells where mappings end, or before that the lines of /proc/self/maps. No state.
 */
#include "abi/populate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

/* From so many pages on, looking the mappings up is faster than populating. The text has a line for
 * each mapping of the process up to the region, so it pays only from the second limit on. */
enum { LOOK_PAGES_MIN = 64, READ_PAGES_MIN = 1024 };

/* Defined in Linux's <linux/fs.h>, but the headers may be older than the kernel. */
struct map_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)

/* A walk over this process's mappings. `text` uses the same descriptor, and is opened on demand. */
struct walk {
	int fd;
	FILE *text;
	size_t page;
};

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

/* Finds the end of the mapping that contains `at` (0: there is none), reading the lines from the
 * last one on. EOPNOTSUPP: the text can't be read. */
static int read_end(struct walk *walk, uintptr_t at, uintptr_t *end)
{
	char line[128], *rest;
	bool whole = true;

	if (!walk->text)
		walk->text = fdopen(walk->fd, "rc");
	if (!walk->text)
		return EOPNOTSUPP;
	*end = 0;
	while (fgets(line, sizeof(line), walk->text)) {
		bool begins = whole; /* not the rest of a long line */

		whole = strchr(line, '\n') != NULL;
		if (!begins)
			continue;
		uintptr_t from = strtoul(line, &rest, 16), to = strtoul(rest + 1, NULL, 16);

		if (to <= at)
			continue;
		*end = from <= at ? to : 0;
		return 0;
	}
	return ferror(walk->text) ? EOPNOTSUPP : 0;
}

static int find_end(struct walk *walk, uintptr_t at, size_t left, uintptr_t *end)
{
	struct map_query query = {.size = sizeof(query), .query_addr = at};

	*end = 0;
	if (!walk->text && !ioctl(walk->fd, MAP_QUERY, &query))
		*end = query.vma_end;
	else if (walk->text || errno != ENOENT)
		return walk->text || left / walk->page >= READ_PAGES_MIN ? read_end(walk, at, end)
									 : EOPNOTSUPP;
	return 0;
}

/* Populates the last page of each mapping between the two. Results as populate_pages(). */
static int populate_ends(struct walk *walk, uintptr_t start, uintptr_t end, bool write)
{
	uintptr_t stop;
	int err = 0;

	for (; !err && start < end; start = stop) {
		err = find_end(walk, start, end - start, &stop);
		if (err)
			return err;
		if (stop <= start)
			return EFAULT;
		stop = stop < end ? stop : end;
		err = populate_pages(stop - walk->page, walk->page, write);
	}
	return err;
}

static int mapping_examine(uintptr_t start, uintptr_t end, size_t page, bool write)
{
	/* Not kept open: the file belongs to the process that opened it, also in a forked child. */
	struct walk walk = {.fd = sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC), .page = page};

	if (walk.fd < 0)
		return EOPNOTSUPP;
	int err = populate_ends(&walk, start, end, write);

	if (walk.text)
		fclose(walk.text);
	else
		sys_close(walk.fd);
	return err;
}

int memory_populate(void *addr, size_t length, bool write)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(uintptr_t)(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(uintptr_t)(page - 1);
	int err = EOPNOTSUPP;

	if ((end - start) / page >= LOOK_PAGES_MIN)
		err = mapping_examine(start, end, page, write);
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
