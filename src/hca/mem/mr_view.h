/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking a region up in a regions' file (shm/pub.h): this process's, or a peer's. */
#ifndef VERBENA_HCA_MEM_MR_VIEW_H
#define VERBENA_HCA_MEM_MR_VIEW_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "shm/pub.h"
#include "wire/packet.h"

/* A copy of one entry, read once. */
struct mr_view {
	uint64_t start, length, offset;
	/* The rkey of the region that may be mapped: the one that was looked up or, of a window
	 * that was granted, its region's. Not next to file_serial: mapped_key() would become one
	 * load of both, which waits until both of their stores have left the processor's buffer. */
	uint32_t region;
	uint32_t access, pd, file_serial;
	union {
		uint32_t file_fd;
		uint32_t window_qpn; /* PUB_MR_WINDOW */
	};
};

/*
 * Reads what a lookup without files needs; the fields of files are left as they are.
 *
 * Inlined always, as mr_resolve() is: most callers are slow paths, by which the compiler would
 * judge a function of its own, and the fast path's call to it, to be seldom executed.
 */
static inline __attribute__((always_inline)) bool mr_read_range(const struct pub_regions *regions,
								uint32_t rkey, struct mr_view *view)
{
	if (unlikely(rkey >> LIMIT_KEY_TAG_BITS >= LIMIT_MRS_PER_SLOT))
		return false;
	const struct pub_mr *e = &regions->mr[rkey >> LIMIT_KEY_TAG_BITS];
	/* [H2], pairs with [H3] and with mr_publish()'s [K1]; seq_cst because of the caller's
	 * hazard: a mere acquire load may be executed before the hazard can be seen. */
	uint64_t word = atomic_load_explicit(&e->rkey_access, memory_order_seq_cst);

	if (unlikely((uint32_t)word != rkey || !rkey))
		return false;
	view->access = word >> 32;
	view->start = atomic_load_explicit(&e->start, memory_order_relaxed);
	view->length = atomic_load_explicit(&e->length, memory_order_relaxed);
	view->offset = atomic_load_explicit(&e->offset, memory_order_relaxed);
	view->pd = atomic_load_explicit(&e->pd, memory_order_relaxed);
	return true;
}

static inline __attribute__((always_inline)) bool mr_read(const struct pub_regions *regions,
							  uint32_t rkey, struct mr_view *view)
{
	if (unlikely(!mr_read_range(regions, rkey, view)))
		return false;
	const struct pub_mr *e = &regions->mr[rkey >> LIMIT_KEY_TAG_BITS];

	view->region = rkey;
	view->file_serial = atomic_load_explicit(&e->file_serial, memory_order_relaxed);
	view->file_fd = atomic_load_explicit(&e->file_fd, memory_order_relaxed);
	return true;
}

/* The print of the region's files (shared.h); `rkey` is that of an entry that was read. */
static inline uint64_t mr_read_print(const struct pub_regions *regions, uint32_t rkey)
{
	const struct pub_mr *e = &regions->mr[rkey >> LIMIT_KEY_TAG_BITS];

	return atomic_load_explicit(&e->file_print, memory_order_relaxed);
}

static inline bool mr_covers(const struct mr_view *view, uint64_t addr, uint64_t length)
{
	return addr >= view->start && length <= view->length &&
	       addr - view->start <= view->length - length;
}

/*
 * What FLUSH asks of the region that its key names, at each carrier: all rights of its placement
 * types, and, unless it is for the whole region, its range. Only a region's own entry has these
 * rights: not an imported region's, nor a window's, whose `pd` matches none.
 */
struct mr_flush {
	uint64_t addr, length;
	uint32_t access; /* 0: malformed */
	bool whole;
};

static inline struct mr_flush mr_flush_of(uint64_t addr, uint64_t length, uint8_t feth)
{
	uint32_t type = packet_flush_type(feth), level = packet_flush_level(feth);
	bool known = !(type & ~(uint32_t)(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT)) &&
		     level <= IBV_FLUSH_MR;

	return (struct mr_flush){
		.addr = addr,
		.length = length,
		.access =
			!known ? 0
			       : (type & IBV_FLUSH_GLOBAL ? IBV_ACCESS_FLUSH_GLOBAL : 0) |
					 (type & IBV_FLUSH_PERSISTENT ? IBV_ACCESS_FLUSH_PERSISTENT
								      : 0),
		.whole = level == IBV_FLUSH_MR,
	};
}

static inline bool mr_flush_granted(const struct mr_view *view, uint32_t pd,
				    const struct mr_flush *flush)
{
	return view->pd == pd && (view->access & flush->access) == flush->access &&
	       (flush->whole || mr_covers(view, flush->addr, flush->length));
}

/*
 * Whether the entry that was read is a memory window's (verbs/window.h) that the QP with this
 * number and protection domain may be used to reach: of type 1, or bound to this QP. Then the rkey
 * of the region that the window is part of, else 0.
 */
static inline uint32_t mr_window_region(const struct pub_regions *regions, uint32_t rkey,
					const struct mr_view *view, uint32_t pd, uint32_t qpn)
{
	const struct pub_mr *e = &regions->mr[rkey >> LIMIT_KEY_TAG_BITS];

	if (view->pd != (pd | PUB_MR_WINDOW) || (view->window_qpn && view->window_qpn != qpn))
		return 0;
	uint32_t region = atomic_load_explicit(&e->window_region, memory_order_relaxed);

	/* The window may have been bound anew while its fields were read. */
	atomic_thread_fence(memory_order_acquire); /* [B2], pairs with [B1] */
	return atomic_load_explicit(&e->rkey_access, memory_order_relaxed) ==
			       ((uint64_t)view->access << 32 | rkey)
		       ? region
		       : 0;
}

/*
 * The owner's address of [addr, addr + length) as `rkey` names it, or 0 when the key, the range,
 * the PD or the access right is wrong. `regions` are the owner's.
 */
static inline __attribute__((always_inline)) uint64_t mr_resolve(const struct pub_regions *regions,
								 uint32_t pd, uint64_t addr,
								 uint64_t length, uint32_t rkey,
								 uint32_t access)
{
	struct mr_view view;

	if (unlikely(!mr_read_range(regions, rkey, &view) || view.pd != pd ||
		     (view.access & access) != access || !mr_covers(&view, addr, length)))
		return 0;
	return addr + view.offset;
}

#endif
