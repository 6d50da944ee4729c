/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages of a region. See populate.h. The kernel takes 0.13 us for each small page that it is asked
 * to populate, also when it is there: 36 ms for a GiB. Memory that is registered has mostly been
 * touched before, and to see that takes a 60th: PAGEMAP_SCAN (Linux 6.7) finds the first page that
 * is missing, and PROCMAP_QUERY (6.11) tells whether the mapping may be written. Only for private
 * anonymous memory: pages of files can be in a state that must be asked for. No state.
 */
#include "abi/populate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

/* From here on looking is quicker than populating. */
enum { LOOK_PAGES_MIN = 64 };

/* Linux's <linux/fs.h> has both, but headers may be older than the kernel. */
struct map_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
enum { MAP_READABLE = 1, MAP_WRITABLE = 2, MAP_IS_SHARED = 8 };

struct page_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGE_SCAN _IOWR('f', 16, struct page_scan)
enum { PAGE_PRESENT = 8 };

/* Whether all of it is private anonymous memory with this right. */
static bool is_plain_memory(uintptr_t start, uintptr_t end, uint64_t right)
{
	/* Not kept open: it stays that of the process that opened it, also in a forked child. */
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	while (start < end) {
		struct map_query query = {.size = sizeof(query), .query_addr = start};

		if (ioctl(fd, MAP_QUERY, &query) < 0 || query.inode ||
		    (query.vma_flags & (right | MAP_IS_SHARED)) != right || query.vma_end <= start)
			break;
		start = query.vma_end;
	}
	close(fd);
	return start >= end;
}

/* Whether a search for one that isn't there finds none. */
static bool all_present(uintptr_t start, uintptr_t end)
{
	uint64_t found[3]; /* from where, to where, what it is */
	struct page_scan scan = {.size = sizeof(scan),
				 .start = start,
				 .end = end,
				 .vec = (uintptr_t)found,
				 .vec_len = 1,
				 .max_pages = 1,
				 .category_inverted = PAGE_PRESENT,
				 .category_mask = PAGE_PRESENT,
				 .return_mask = PAGE_PRESENT};
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	int count = ioctl(fd, PAGE_SCAN, &scan);

	close(fd);
	return count == 0 && scan.walk_end == end;
}

int populate(void *addr, size_t length, bool write)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(uintptr_t)(page - 1);
	uintptr_t end = ((uintptr_t)addr + length + page - 1) & ~(uintptr_t)(page - 1);
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	if ((end - start) / page >= LOOK_PAGES_MIN &&
	    is_plain_memory(start, end, write ? MAP_WRITABLE : MAP_READABLE) &&
	    all_present(start, end))
		return 0;
	while (madvise((void *)start, end - start, advice) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		if (errno == EINVAL && madvise((void *)start, 0, advice) < 0)
			return 0;
		log_warn("a region can't be registered: the %zu bytes at %p aren't all mapped%s",
			 length, addr, write ? " and writable" : "");
		return EFAULT;
	}
	return 0;
}
