/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache of icrc_begin(): it depends on the path, the packet's size and its identification (its
 * place in the burst). The packets of a path have two sizes at a time (the first packet of an RDMA
 * WRITE has one header more than the following ones; requests and acknowledgements).
 *
 * No locks: each cache has one user. All zeros is an empty cache.
 */
#ifndef VERBENA_NET_BEGUN_H
#define VERBENA_NET_BEGUN_H

#include <stdint.h>

#include "base/cpu.h"
#include "wire/icrc.h"

enum { NET_BEGUN_SIZES = 2, NET_BEGUN_PLACES = 64 };

struct net_begun {
	struct net_begun_size {
		struct icrc_path path;
		uint32_t size; /* of such packets; 0: unused */
		uint32_t count;
		uint32_t begun[NET_BEGUN_PLACES]; /* for identifications 0 to count - 1 */
	} kept[NET_BEGUN_SIZES];
	uint32_t last; /* the entry that was used last */
};

/* icrc_begin() of a packet of `size` bytes with identification `place`. */
uint32_t net_begun(struct net_begun *all, const struct icrc_path *path, uint32_t size,
		   uint32_t place);

/* The same where the call before was for a packet of that path and size, with an identification
 * below NET_BEGUN_PLACES: the next one of a burst. */
static inline uint32_t net_begun_next(struct net_begun *all, const struct icrc_path *path,
				      uint32_t size, uint32_t place)
{
	const struct net_begun_size *kept = &all->kept[all->last];

	return likely(place < kept->count) ? kept->begun[place] : net_begun(all, path, size, place);
}

#endif
