/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions mapped here. See mapped.h. Owns the mappings, by link; the control thread makes
 * and removes them, the thread that unmaps the link removes the rest.
 *
 * A copying thread sets its hazard [H1], then reads the place's key; the control thread clears the
 * key, then looks at each hazard [H4]. All are seq_cst: a hazard that is seen without the owner's
 * slot was set for no copy that has read the key before, and the next copy for which it is set
 * reads 0. [M1 with M2]
 */
#include "hca/mem/mapped.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "hca/local/link.h"
#include "hca/mem/hazard.h"
#include "hca/process/control.h"

/* Bytes whose presence is looked up at once, and that are populated between two checks whether the
 * link still is up. */
#define PIECE (16ull << 20)
enum { PAGE = 4096 };

struct mapped_regions {
	struct mapped place[MAPPED_PLACES];
	/* Of places that are MAPPED_LEAVING: the hazards that have passed (hazards_pass()). The
	 * control thread's. */
	uint64_t passed[MAPPED_PLACES];
};

/* Totals of the process. */
static _Atomic uint32_t mapped_count;
static _Atomic uint64_t mapped_bytes;

/* ------------------------------------------------------------------ populating (control thread) */

static bool is_up(const struct link *link)
{
	return link_is(link, LINK_UP);
}

/* Enters pages that exist into this process's page table. Pages of a file on disk aren't entered
 * for writing, since that would have them written back. A page that isn't entered is at its first
 * access. */
static void populate_run(const struct peer_map *map, bool write, uint8_t *at, uint64_t size)
{
	madvise(at, size, write && map->in_memory ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* Populates those pages of [at, at + size) that the file has in memory. */
static void populate_existing(const struct peer_map *map, bool write, uint8_t *at, uint64_t size)
{
	static unsigned char there[PIECE / PAGE]; /* the control thread's */
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), pages = size / page, end;

	if (mincore(at, size, there) < 0)
		return;
	for (uint64_t i = 0; i < pages; i = end + 1) {
		for (end = i; end < pages && there[end] & 1;)
			end++;
		if (end > i)
			populate_run(map, write, at + i * page, (end - i) * page);
	}
}

static void mapped_populate(const struct link *link, const struct peer_map *map, bool write)
{
	for (uint64_t at = 0; at < map->size && is_up(link); at += PIECE)
		populate_existing(map, write, (uint8_t *)map->pages + at,
				  map->size - at < PIECE ? map->size - at : PIECE);
}

/* ------------------------------------------------------------------ making (control thread) */

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

/* Counts a mapping of the peer's regions. Only the control thread does, and the thread that unmaps
 * the link, when no other uses it. */
static void mapped_count_here(struct link *link, int change)
{
	_Atomic uint32_t *maps = &link->memory->maps[link->side];

	/* [M3], pairs with [M4] */
	atomic_fetch_add(maps, (uint32_t)change);
}

static void mapped_unmap(struct link *link, struct mapped *place)
{
	if (place->map.pages) {
		peer_unmap(&place->map);
		mapped_unreserve(atomic_load_explicit(&place->length, memory_order_relaxed));
		mapped_count_here(link, -1);
	}
	atomic_store_explicit(&place->length, 0, memory_order_relaxed);
	place->base = NULL;
}

/* Whether peers may write the region: by its own key, or by that of a window which may be bound to
 * it (verbs/window.c). */
static bool may_write(const struct mr_view *view)
{
	const uint32_t windows = IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE;

	return view->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) ||
	       (view->access & windows) == windows;
}

/* Maps the region while a hazard keeps it registered. 0 or -errno. */
static int map_region(struct link *link, uint64_t key, struct mapped *place, bool *write)
{
	uint32_t rkey = key >> 32;
	struct mr_view view;
	_Atomic uint64_t *hazard = hazard_set(link->hca, link->slot, rkey);
	int err = -ENOENT;

	if (mr_read(link->regions, rkey, &view) && view.file_serial == (uint32_t)key) {
		const struct peer_map_region region = {.addr = place->at = view.start + view.offset,
						       .length = view.length,
						       .print = mr_read_print(link->regions, rkey),
						       .fd = (int)view.file_fd,
						       .write = may_write(&view)};

		err = mapped_reserve(view.length) ? 0 : -ENOSPC;
		if (!err) {
			err = peer_map(&link->process, &region, &place->map);
			if (err)
				mapped_unreserve(view.length);
		}
		atomic_store_explicit(&place->length, err ? 0 : view.length, memory_order_relaxed);
		*write = region.write;
	}
	hazard_clear(hazard);
	return err;
}

/* Fills the place, whose key is 0. */
static void mapped_fill(struct link *link, struct mapped *place, uint64_t key)
{
	bool write = false;

	mapped_count_here(link, 1);
	int err = map_region(link, key, place, &write);

	if (err) {
		mapped_count_here(link, -1);
		place->base = err == -ESTALE ? MAPPED_GONE : NULL;
		log_info("region 0x%x of process %d can't be mapped (%s): it is reached by system "
			 "calls",
			 (uint32_t)(key >> 32), link->pid,
			 err == -ESTALE ? "the process has replaced its memory" : strerror(-err));
		return;
	}
	mapped_populate(link, &place->map, write);
	place->base = place->map.base;
}

static bool is_registered(const struct link *link, uint64_t key)
{
	struct mr_view view;

	return mr_read(link->regions, key >> 32, &view) && view.file_serial == (uint32_t)key;
}

/* Empties the place. False: its region is still registered; or *busy: a thread may be copying. */
static bool mapped_clear(struct link *link, struct mapped_regions *table, struct mapped *place,
			 bool *busy)
{
	uint64_t key = atomic_load_explicit(&place->key, memory_order_relaxed);
	uint64_t *passed = &table->passed[place - table->place];

	if (!key)
		return true;
	if (key != MAPPED_LEAVING) {
		if (is_registered(link, key))
			return false;
		atomic_store(&place->key, MAPPED_LEAVING); /* [M1], pairs with [M2] */
		*passed = 0;
	}
	if (!hazards_pass(link->hca, link->slot, passed)) {
		*busy = true;
		return false;
	}
	mapped_unmap(link, place);
	atomic_store_explicit(&place->key, 0, memory_order_relaxed);
	return true;
}

static struct mapped *place_of(struct mapped_regions *table, uint64_t key)
{
	return &table->place[(key >> (32 + LIMIT_KEY_TAG_BITS)) % MAPPED_PLACES];
}

/* The caller has emptied the places of regions that have ended. */
static void mapped_grant(struct link *link, struct mapped_regions *table, uint64_t key)
{
	struct mapped *place = place_of(table, key);

	if (atomic_load(&place->key) || !is_registered(link, key))
		return;
	mapped_fill(link, place, key);
	atomic_store(&place->key, key);
}

static struct mapped_regions *table_of(struct link *link)
{
	struct mapped_regions *table = atomic_load_explicit(&link->places, memory_order_acquire);

	if (table)
		return table;
	table = aligned_alloc(_Alignof(struct mapped_regions), sizeof(*table));
	if (table)
		memset(table, 0, sizeof(*table));
	atomic_store_explicit(&link->places, table, memory_order_release);
	return table;
}

/* True: a place is to be emptied once a copy has ended. */
static bool mapped_serve_link(struct link *link)
{
	struct mapped_regions *table = table_of(link);
	bool busy = false;

	for (unsigned int i = 0; table && i < MAPPED_PLACES; i++)
		mapped_clear(link, table, &table->place[i], &busy);
	for (unsigned int i = 0; table && i < MAPPED_WISHES; i++) {
		uint64_t key = atomic_load(&link->wishes.key[i]);

		if (key)
			mapped_grant(link, table, key);
	}
	return busy;
}

/* Keeps the link's tables mapped until link.watchers is decremented. False: the link isn't up. */
static bool mapped_watch(struct hca *hca, struct link *link)
{
	mutex_take(&hca->lock);
	bool up = is_up(link) && !link->self && link->regions;

	if (up)
		atomic_fetch_add(&link->watchers, 1);
	mutex_give(&hca->lock);
	return up;
}

bool mapped_serve(struct hca *hca)
{
	bool again = false;

	if (!work_take(&hca->control_work, CONTROL_MAPPINGS))
		return false;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (!link || !atomic_exchange(&link->wishes.fresh, false) ||
		    !mapped_watch(hca, link))
			continue;
		if (mapped_serve_link(link)) {
			atomic_store(&link->wishes.fresh, true);
			again = true;
		}
		atomic_fetch_sub(&link->watchers, 1);
	}
	if (again)
		work_leave(&hca->control_work, CONTROL_MAPPINGS);
	return again;
}

/* ------------------------------------------------------------------ regions that end */

/* Asks the peer at the slot to look at its mappings of this process's memory, if it has any. */
static void tell_ended(struct hca *hca, struct link *link)
{
	mutex_take(&hca->lock); /* keeps the link's memory mapped */
	if (is_up(link) && !link->self && link->regions) {
		struct link_memory *memory = link->memory;

		/* [M4], pairs with [M3] */
		if (atomic_load(&memory->maps[!link->side])) {
			/* [M5], pairs with [M6] */
			atomic_store_explicit(&memory->ended[!link->side], 1, memory_order_release);
			link_ring(link);
		}
	}
	mutex_give(&hca->lock);
}

void mapped_owner_ends(struct hca *hca)
{
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (unlikely(link != NULL))
			tell_ended(hca, link);
	}
}

void mapped_hear(struct hca *hca)
{
	bool any = false;

	if (likely(!atomic_load_explicit(&mapped_count, memory_order_relaxed)))
		return;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		/* This thread is the one that unmaps links. */
		if (!link || !is_up(link) || link->self)
			continue;
		_Atomic uint32_t *ended = &link->memory->ended[link->side];

		/* [M6], pairs with [M5] */
		if (!atomic_load_explicit(ended, memory_order_relaxed) ||
		    !atomic_exchange_explicit(ended, 0, memory_order_acquire))
			continue;
		atomic_store(&link->wishes.fresh, true);
		any = true;
	}
	if (!any)
		return;
	work_leave(&hca->control_work, CONTROL_MAPPINGS);
	control_wake(hca);
}

/* ------------------------------------------------------------------ using */

__attribute__((cold, noinline)) static void mapped_wish(struct link *link, uint64_t key)
{
	_Atomic uint64_t *place =
		&link->wishes.key[(key >> (32 + LIMIT_KEY_TAG_BITS)) % MAPPED_WISHES];

	if (atomic_load_explicit(place, memory_order_relaxed) == key || !link->hca->share_memory)
		return;
	atomic_store(place, key);
	atomic_store(&link->wishes.fresh, true);
	work_leave(&link->hca->control_work, CONTROL_MAPPINGS);
	control_wake(link->hca);
}

static inline uint64_t mapped_key(const struct mr_view *view)
{
	return (uint64_t)view->region << 32 | view->file_serial;
}

/* The region's place. NULL: it has none (yet). */
static inline struct mapped *mapped_find(struct link *link, uint64_t key)
{
	struct mapped_regions *table = atomic_load_explicit(&link->places, memory_order_acquire);

	if (likely(table != NULL)) {
		struct mapped *place = place_of(table, key);

		if (likely(atomic_load(&place->key) == key)) /* [M2], pairs with [M1] */
			return place;
	}
	mapped_wish(link, key);
	return NULL;
}

inline uint8_t *mapped_at(struct link *link, const struct mr_view *view, uint64_t at,
			  uint64_t length)
{
	if (!view->file_serial)
		return NULL;
	const struct mapped *place = mapped_find(link, mapped_key(view));

	if (unlikely(!place))
		return NULL;
	uint64_t from = at - place->at;
	uint64_t mapped = atomic_load_explicit(&place->length, memory_order_relaxed);

	/* Without a mapping its length is 0. And the peer may have changed its entry since the
	 * region was mapped; the mapping stays as it is. */
	if (likely(from < mapped && length <= mapped - from))
		return place->base + from;
	return place->base == MAPPED_GONE ? MAPPED_GONE : NULL;
}

/* Not under a hazard, so nothing but atomic words is looked at. */
bool mapped_is(struct link *link, const struct mr_view *view)
{
	if (!view->file_serial)
		return false;
	const struct mapped *place = mapped_find(link, mapped_key(view));

	return place && atomic_load_explicit(&place->length, memory_order_relaxed);
}

void mapped_free(struct link *link)
{
	struct mapped_regions *table = atomic_load(&link->places);

	for (unsigned int i = 0; i < MAPPED_WISHES; i++)
		atomic_store(&link->wishes.key[i], 0);
	if (!table)
		return;
	for (unsigned int i = 0; i < MAPPED_PLACES; i++)
		mapped_unmap(link, &table->place[i]);
	atomic_store(&link->places, NULL);
	free(table);
}

void mapped_leave(struct link *link)
{
	for (unsigned int i = 0; i < MAPPED_WISHES; i++)
		atomic_store(&link->wishes.key[i], 0);
	atomic_store(&link->places, NULL); /* the control thread may have been at work on it */
	atomic_store(&mapped_count, 0);
	atomic_store(&mapped_bytes, 0);
}
