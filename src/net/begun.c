/* SPDX-License-Identifier: BSD-2-Clause */
/* A cache of icrc_begin(). See begun.h. */
#include "net/begun.h"

#include <stdbool.h>
#include <string.h>

#include "base/cpu.h"

static bool is_for(const struct net_begun_size *kept, const struct icrc_path *path, uint32_t size)
{
	return kept->size == size && !memcmp(&kept->path, path, sizeof(*path));
}

/* The entry for such packets; a new one replaces the entry that wasn't used last. */
static struct net_begun_size *begun_find_size(struct net_begun *all, const struct icrc_path *path,
					      uint32_t size)
{
	struct net_begun_size *kept = &all->kept[all->last];

	if (likely(is_for(kept, path, size)))
		return kept;
	all->last = (all->last + 1) % NET_BEGUN_SIZES;
	kept = &all->kept[all->last];
	if (!is_for(kept, path, size)) {
		kept->path = *path;
		kept->size = size;
		kept->count = 0;
	}
	return kept;
}

uint32_t net_begun(struct net_begun *all, const struct icrc_path *path, uint32_t size,
		   uint32_t place)
{
	if (unlikely(place >= NET_BEGUN_PLACES))
		return icrc_begin(path, size, (uint16_t)place);
	struct net_begun_size *kept = begun_find_size(all, path, size);

	for (; kept->count <= place; kept->count++)
		kept->begun[kept->count] = icrc_begin(path, size, (uint16_t)kept->count);
	return kept->begun[place];
}
