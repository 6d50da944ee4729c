/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors to rsockets: pages of pointers that are allocated on demand and never freed, so
 * looking up takes no lock. See rs.h.
 *
 * A forked child has its parent's rsockets in the table, but not their connections, because queue
 * pairs stay with the parent. The child can only close them.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/fork.h"
#include "base/mutex.h"
#include "rsocket/rs.h"

enum { PAGE_BITS = 10, PAGE_ENTRIES = 1 << PAGE_BITS, PAGES = 1024 };

static struct rs **pages[PAGES];
static struct mutex pages_lock = MUTEX_INITIALIZER(RANK_RSOCKET_PAGES);
static uint32_t generation; /* changes in a forked child, which has one thread */

static void in_child(void)
{
	generation++;
}

__attribute__((constructor)) static void table_watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

FORK_KEEP(pages_lock);

static struct rs **page_of(unsigned int fd)
{
	return __atomic_load_n(&pages[fd >> PAGE_BITS], __ATOMIC_ACQUIRE);
}

int rs_table_set(int fd, struct rs *rs)
{
	if (fd < 0 || fd >= PAGES * PAGE_ENTRIES)
		return -EMFILE;
	mutex_take(&pages_lock);
	struct rs **page = page_of((unsigned int)fd);

	if (!page) {
		page = calloc(PAGE_ENTRIES, sizeof(*page));
		__atomic_store_n(&pages[fd >> PAGE_BITS], page, __ATOMIC_RELEASE);
	}
	mutex_give(&pages_lock);
	if (!page)
		return -ENOMEM;
	rs->generation = generation;
	__atomic_store_n(&page[fd & (PAGE_ENTRIES - 1)], rs, __ATOMIC_RELEASE);
	return 0;
}

void rs_table_clear(int fd)
{
	__atomic_store_n(&page_of((unsigned int)fd)[fd & (PAGE_ENTRIES - 1)], NULL,
			 __ATOMIC_RELEASE);
}

static struct rs *rs_lookup_locked(int fd)
{
	if (fd < 0 || fd >= PAGES * PAGE_ENTRIES)
		return NULL;
	struct rs **page = page_of((unsigned int)fd);

	return page ? __atomic_load_n(&page[fd & (PAGE_ENTRIES - 1)], __ATOMIC_ACQUIRE) : NULL;
}

struct rs *rs_table_get(int fd)
{
	struct rs *rs = rs_lookup_locked(fd);

	return rs && rs->generation == generation ? rs : NULL;
}

struct rs *rs_table_get_inherited(int fd)
{
	struct rs *rs = rs_lookup_locked(fd);

	return rs && rs->generation != generation ? rs : NULL;
}
