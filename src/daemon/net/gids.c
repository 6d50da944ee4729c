/* SPDX-License-Identifier: BSD-2-Clause */
/* The GID table. See gids.h. There is one entry for each GID: an address on two interfaces is one
 * address of the host. */
#include "daemon/net/gids.h"

#include <string.h>

#include "base/log.h"

const struct host_address *gids_get(const struct gids *gids, uint32_t index)
{
	return index < LIMIT_GIDS && gids->used[index] ? &gids->entry[index] : NULL;
}

const struct host_address *gids_find(const struct gids *gids, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < LIMIT_GIDS; i++)
		if (gids->used[i] && !memcmp(gids->entry[i].gid, gid, sizeof(gids->entry[i].gid)))
			return &gids->entry[i];
	return NULL;
}

/* The same address in `wanted`, on the same interface if it is still there. NULL: it is gone. */
static const struct host_address *find_wanted(const struct host_address *entry,
					      const struct host_address *wanted, unsigned int count)
{
	const struct host_address *found = NULL;

	for (unsigned int i = 0; i < count; i++) {
		if (memcmp(wanted[i].gid, entry->gid, sizeof(entry->gid)) != 0)
			continue;
		if (!found || wanted[i].ifindex == entry->ifindex)
			found = &wanted[i];
	}
	return found;
}

/* The index of `gid`, or the first hole, or LIMIT_GIDS. */
static unsigned int place_for(const struct gids *gids, const uint8_t *gid)
{
	const struct host_address *there = gids_find(gids, gid);
	unsigned int i = 0;

	if (there)
		return (unsigned int)(there - gids->entry);
	while (i < LIMIT_GIDS && gids->used[i])
		i++;
	return i;
}

static bool gids_put(struct gids *gids, const struct host_address *address)
{
	unsigned int i = place_for(gids, address->gid);

	if (i == LIMIT_GIDS) {
		if (!gids->full_said)
			log_warn("the host has more than %u addresses; the others get no GID",
				 LIMIT_GIDS - 1);
		gids->full_said = true;
		return false;
	}
	if (gids->used[i]) {
		/* The interface's MAC address may have changed. */
		if (gids->entry[i].ifindex == address->ifindex)
			gids->entry[i] = *address;
		return false;
	}
	gids->used[i] = true;
	gids->entry[i] = *address;
	return true;
}

bool gids_update(struct gids *gids, const struct host_address *first,
		 const struct host_address *wanted, unsigned int count)
{
	bool changed = !gids->used[0];

	gids->used[0] = true;
	gids->entry[0] = *first;
	for (unsigned int i = 1; i < LIMIT_GIDS; i++) {
		const struct host_address *now =
			gids->used[i] ? find_wanted(&gids->entry[i], wanted, count) : NULL;

		if (!gids->used[i] || (now && now->ifindex == gids->entry[i].ifindex))
			continue;
		gids->used[i] = now;
		if (now)
			gids->entry[i] = *now; /* the address moved to another interface */
		changed = true;
	}
	for (unsigned int i = 0; i < count; i++)
		changed |= gids_put(gids, &wanted[i]);
	return changed;
}
