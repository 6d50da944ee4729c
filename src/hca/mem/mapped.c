/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions mapped here. See mapped.h. Owns the mappings, by link; the control thread makes
 * and removes them, the thread that unmaps the link removes the rest.
 *
 * A copying thread increments the place's users, then reads its key; the control thread clears the
 * key, then reads the users. All are seq_cst, so one of them sees the other. [M1 with M2]
 */
#include "hca/mem/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/local/link.h"
#include "hca/process/control.h"

/* Bytes to populate between two checks whether the link still is up. */
#define PIECE (64ull << 20)

struct mapped_regions {
	struct mapped place[MAPPED_PLACES];
};

/* Totals of the process. */
static _Atomic uint32_t mapped_count;
static _Atomic uint64_t mapped_bytes;

/* ------------------------------------------------------------------ making (control thread) */

/* Whether the file may be mapped: it can't shrink under the mapping, and is as long as its owner
 * claims. */
static bool is_sound(int fd, uint64_t end)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &status) && status.st_size >= 0 &&
	       end <= (uint64_t)status.st_size;
}

static bool is_up(const struct link *link)
{
	return link_is(link, LINK_UP);
}

/* Populates the pages of file[from, to), which is mapped at `at`, in this process's page table. */
static void mapped_populate(const struct link *link, uint8_t *at, uint64_t from, uint64_t to)
{
	while (from < to && is_up(link)) {
		uint64_t n = to - from < PIECE ? to - from : PIECE;

		if (madvise(at, n, MADV_POPULATE_WRITE) < 0)
			return; /* later accesses populate it by faults */
		at += n;
		from += n;
	}
}

/* Populates those pages of file[begin, end) that exist. SEEK_DATA moves the file's offset, so it is
 * done on an open file of our own, not on the owner's. */
static void populate_existing(const struct link *link, int fd, uint8_t *pages, uint64_t begin,
			      uint64_t end)
{
	char path[64];
	off_t data, hole = (off_t)begin;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int own = sys_open(path, O_RDWR | O_CLOEXEC);

	if (own < 0)
		return;
	while ((data = lseek(own, hole, SEEK_DATA)) >= 0 && (uint64_t)data < end) {
		hole = lseek(own, data, SEEK_HOLE);
		if (hole < 0)
			break;
		uint64_t to = (uint64_t)hole < end ? (uint64_t)hole : end;

		mapped_populate(link, pages + ((uint64_t)data - begin), (uint64_t)data, to);
	}
	sys_close(own);
}

/* Reserves `size` bytes of the process's bounds. False: a bound would be exceeded. */
static bool mapped_reserve(uint64_t size)
{
	if (atomic_fetch_add(&mapped_count, 1) < MAPPED_MAX) {
		if (size <= MAPPED_BYTES_MAX &&
		    atomic_fetch_add(&mapped_bytes, size) <= MAPPED_BYTES_MAX - size)
			return true;
		if (size <= MAPPED_BYTES_MAX)
			atomic_fetch_sub(&mapped_bytes, size);
	}
	atomic_fetch_sub(&mapped_count, 1);
	return false;
}

static void mapped_unreserve(uint64_t size)
{
	atomic_fetch_sub(&mapped_bytes, size);
	atomic_fetch_sub(&mapped_count, 1);
}

static void mapped_unmap(struct mapped *place)
{
	if (place->pages) {
		munmap(place->pages, place->size);
		mapped_unreserve(place->size);
	}
	place->pages = NULL;
	place->base = NULL;
}

/* Duplicates the descriptor of the region's file while a hazard keeps the region registered, so
 * that the number names this file. -1: the region is gone. */
static int fetch_file(struct link *link, uint64_t key, struct mr_view *view)
{
	uint32_t rkey = key >> 32;
	_Atomic uint64_t *hazard = hazard_set(link->hca, link->slot, rkey);
	bool there = mr_read(link->regions, rkey, view) && view->file_serial == (uint32_t)key;
	int fd = there ? peer_descriptor(&link->process, (int)view->file_fd) : -1;

	hazard_clear(hazard);
	return fd;
}

/* Maps the region's part of the file into the empty place; on failure the place's base is NULL. */
static void map_file(const struct link *link, struct mapped *place, int fd,
		     const struct mr_view *view)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = view->file_offset % page, end;
	uint64_t begin = view->file_offset - skip;

	if (__builtin_add_overflow(view->file_offset, view->length, &end) || !is_sound(fd, end) ||
	    !mapped_reserve(skip + view->length))
		return;
	void *pages = mmap(NULL, skip + view->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			   (off_t)begin);

	if (pages == MAP_FAILED) {
		mapped_unreserve(skip + view->length);
		return;
	}
	populate_existing(link, fd, pages, begin, end);
	place->pages = pages;
	place->size = skip + view->length;
	place->length = view->length;
	place->base = (uint8_t *)pages + skip;
}

static bool is_registered(const struct link *link, uint64_t key)
{
	struct mr_view view;

	return mr_read(link->regions, key >> 32, &view) && view.file_serial == (uint32_t)key;
}

/* Empties the place, unless its region is still registered or a thread is copying. */
static bool mapped_clear(struct link *link, struct mapped *place)
{
	uint64_t before = atomic_load(&place->key);

	if (!before)
		return true;
	if (is_registered(link, before))
		return false;
	atomic_store(&place->key, 0); /* [M1], pairs with [M2] */
	if (atomic_load(&place->users)) {
		atomic_store(&place->key, before);
		return false;
	}
	mapped_unmap(place);
	return true;
}

static struct mapped *place_of(struct mapped_regions *table, uint64_t key)
{
	return &table->place[(key >> (32 + LIMIT_KEY_TAG_BITS)) % MAPPED_PLACES];
}

static void mapped_grant(struct link *link, struct mapped_regions *table, uint64_t key)
{
	struct mapped *place = place_of(table, key);
	struct mr_view view;

	if (atomic_load(&place->key) == key || !mapped_clear(link, place))
		return;
	if (atomic_load(&mapped_count) >= MAPPED_MAX / 2)
		for (unsigned int i = 0; i < MAPPED_PLACES; i++)
			mapped_clear(link, &table->place[i]);
	int fd = fetch_file(link, key, &view);

	if (fd < 0) {
		log_debug("a memory file of process %d can't be had", link->pid);
	} else {
		map_file(link, place, fd, &view);
		sys_close(fd);
	}
	atomic_store(&place->key, key);
}

static struct mapped_regions *table_of(struct link *link)
{
	struct mapped_regions *table = atomic_load_explicit(&link->places, memory_order_acquire);

	if (table)
		return table;
	table = calloc(1, sizeof(*table));
	atomic_store_explicit(&link->places, table, memory_order_release);
	return table;
}

static void mapped_serve_link(struct link *link)
{
	struct mapped_regions *table = table_of(link);

	for (unsigned int i = 0; table && i < MAPPED_WISHES; i++) {
		uint64_t key = atomic_load(&link->wishes.key[i]);

		if (key)
			mapped_grant(link, table, key);
	}
}

/* Keeps the link's tables mapped until link.watchers is decremented. False: the link isn't up. */
static bool mapped_watch(struct hca *hca, struct link *link)
{
	mutex_take(&hca->lock);
	bool up = is_up(link) && !link->self;

	if (up)
		atomic_fetch_add(&link->watchers, 1);
	mutex_give(&hca->lock);
	return up;
}

void mapped_serve(struct hca *hca)
{
	if (!work_take(&hca->control_work, CONTROL_MAPPINGS))
		return;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (!link || !atomic_exchange(&link->wishes.fresh, false) ||
		    !mapped_watch(hca, link))
			continue;
		mapped_serve_link(link);
		atomic_fetch_sub(&link->watchers, 1);
	}
}

/* ------------------------------------------------------------------ using */

static struct mapped *mapped_enter(struct link *link, uint64_t key)
{
	struct mapped_regions *table = atomic_load_explicit(&link->places, memory_order_acquire);

	if (unlikely(!table))
		return NULL;
	struct mapped *place = place_of(table, key);

	atomic_fetch_add(&place->users, 1);
	if (likely(atomic_load(&place->key) == key)) /* [M2], pairs with [M1] */
		return place;
	mapped_end(place);
	return NULL;
}

__attribute__((cold)) static void mapped_wish(struct link *link, uint64_t key)
{
	_Atomic uint64_t *place =
		&link->wishes.key[(key >> (32 + LIMIT_KEY_TAG_BITS)) % MAPPED_WISHES];

	if (atomic_load_explicit(place, memory_order_relaxed) == key)
		return;
	atomic_store(place, key);
	atomic_store(&link->wishes.fresh, true);
	work_leave(&link->hca->control_work, CONTROL_MAPPINGS);
	control_wake(link->hca);
}

uint8_t *mapped_begin(struct link *link, uint32_t rkey, const struct mr_view *view, uint64_t at,
		      uint64_t length, struct mapped **use)
{
	uint64_t key = (uint64_t)rkey << 32 | view->file_serial;

	if (likely(!view->file_serial))
		return NULL;
	struct mapped *place = mapped_enter(link, key);

	if (unlikely(!place)) {
		mapped_wish(link, key);
		return NULL;
	}
	if (unlikely(!place->base)) {
		mapped_end(place);
		return NULL;
	}
	uint64_t from = at - (view->start + view->offset);

	/* The peer may have changed its entry since the region was mapped; the mapping stays as it
	 * is. */
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

	for (unsigned int i = 0; i < MAPPED_WISHES; i++)
		atomic_store(&link->wishes.key[i], 0);
	if (!table)
		return;
	for (unsigned int i = 0; i < MAPPED_PLACES; i++)
		mapped_unmap(&table->place[i]);
	atomic_store(&link->places, NULL);
	free(table);
}
