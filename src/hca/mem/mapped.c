/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions mapped here. See mapped.h. Owns the mappings, by link; link.places_lock is taken
 * when one is made.
 *
 * A user counts itself in, then looks at the key; who changes a place takes its key away, then
 * looks at the users. Both in one order (seq_cst), so one of them sees the other.    [M1 with M2]
 */
#include "hca/mem/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "hca/local/link.h"
#include "hca/mem/mr.h"

enum { PLACES = 256 };

struct mapped_regions {
	struct mapped place[PLACES];
};

/* The peer's descriptor, as one of ours; -1. */
static int fetch_descriptor(pid_t pid, int fd)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0);

	if (process < 0)
		return -1;
	int own = (int)syscall(SYS_pidfd_getfd, process, fd, 0);

	sys_close(process);
	return own;
}

/* A file that can shrink under us, or isn't as long as its owner says, is none to map. */
static bool is_sound(int fd, uint64_t end)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &status) && status.st_size >= 0 &&
	       end <= (uint64_t)status.st_size;
}

/* Maps the region into the empty place; without success its base is NULL. */
static void map_region(struct mapped *place, pid_t pid, const struct mr_view *view)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = view->file_offset % page, end;
	int fd = fetch_descriptor(pid, (int)view->file_fd);

	place->base = NULL;
	place->pages = NULL;
	if (fd < 0) {
		log_debug("a memory file of process %d can't be had: %m", pid);
		return;
	}
	if (!__builtin_add_overflow(view->file_offset, view->length, &end) && is_sound(fd, end)) {
		void *pages =
			mmap(NULL, skip + view->length, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, fd, (off_t)(view->file_offset - skip));

		if (pages != MAP_FAILED) {
			place->pages = pages;
			place->size = skip + view->length;
			place->length = view->length;
			place->base = (uint8_t *)pages + skip;
		}
	}
	sys_close(fd);
}

static void unmap(struct mapped *place)
{
	if (place->pages)
		munmap(place->pages, place->size);
	place->pages = NULL;
	place->base = NULL;
}

static struct mapped_regions *table_of(struct link *link)
{
	struct mapped_regions *table = atomic_load_explicit(&link->places, memory_order_acquire);

	if (likely(table != NULL))
		return table;
	table = calloc(1, sizeof(*table));
	atomic_store_explicit(&link->places, table, memory_order_release);
	return table;
}

/* The place is somebody else's, or new: it becomes the region's if nobody uses it. */
static void change(struct link *link, struct mapped *place, uint64_t key,
		   const struct mr_view *view)
{
	uint64_t before = atomic_load(&place->key);

	if (before == key)
		return;
	atomic_store(&place->key, 0); /* [M1], pairs with [M2] */
	if (atomic_load(&place->users)) {
		atomic_store(&place->key, before);
		return;
	}
	unmap(place);
	map_region(place, link->pid, view);
	atomic_store(&place->key, key);
}

static struct mapped *place_of(struct mapped_regions *table, uint32_t rkey)
{
	return &table->place[(rkey >> LIMIT_KEY_TAG_BITS) % PLACES];
}

/* First use of a region: what the fast path then finds. */
static bool make(struct link *link, uint32_t rkey, uint64_t key, const struct mr_view *view)
{
	lock_take(&link->places_lock);
	struct mapped_regions *table = table_of(link);

	if (table)
		change(link, place_of(table, rkey), key, view);
	lock_give(&link->places_lock);
	return table && atomic_load(&place_of(table, rkey)->key) == key;
}

static struct mapped *enter(struct link *link, uint32_t rkey, uint64_t key)
{
	struct mapped_regions *table = atomic_load_explicit(&link->places, memory_order_acquire);

	if (unlikely(!table))
		return NULL;
	struct mapped *place = place_of(table, rkey);

	atomic_fetch_add(&place->users, 1);
	if (likely(atomic_load(&place->key) == key)) /* [M2], pairs with [M1] */
		return place;
	mapped_end(place);
	return NULL;
}

uint8_t *mapped_begin(struct link *link, uint32_t rkey, const struct mr_view *view, uint64_t at,
		      uint64_t length, struct mapped **use)
{
	uint64_t key = (uint64_t)rkey << 32 | view->file_serial;

	if (likely(!view->file_serial))
		return NULL;
	struct mapped *place = enter(link, rkey, key);

	if (unlikely(!place) && make(link, rkey, key, view))
		place = enter(link, rkey, key);
	if (unlikely(!place))
		return NULL;
	if (unlikely(!place->base)) {
		mapped_end(place);
		return NULL;
	}
	uint64_t from = at - (view->start + view->offset);

	/* The peer may have changed its entry since it was mapped, and nothing else. */
	if (unlikely(from > place->length || length > place->length - from)) {
		mapped_end(place);
		return NULL;
	}
	*use = place;
	return place->base + from;
}

void mapped_free(struct link *link)
{
	struct mapped_regions *table = atomic_load(&link->places);

	if (!table)
		return;
	for (unsigned int i = 0; i < PLACES; i++)
		unmap(&table->place[i]);
	atomic_store(&link->places, NULL);
	free(table);
}
