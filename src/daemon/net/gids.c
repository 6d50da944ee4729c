/* SPDX-License-Identifier: BSD-2-Clause */
/* The GID table. See gids.h. But for index 0 there is one entry for each GID: an address on two
 * interfaces is one address of the host. */
#include "daemon/net/gids.h"

#include <string.h>

#include "base/log.h"

const struct host_address *gids_get(const struct gids *gids, uint32_t index)
{
	return index < LIMIT_GID_INDICES && gids->used[index] ? &gids->entry[index] : NULL;
}

const struct host_address *gids_find(const struct gids *gids, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < LIMIT_GID_INDICES; i++)
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

/* A part of the table: entries from `from` to before `to`. */
struct part {
	unsigned int from, to;
};

static const struct part listed = {1, LIMIT_GIDS}, hidden = {LIMIT_GIDS, LIMIT_GID_INDICES};

/* The index of `gid` in the part, or the first hole, or the part's end. */
static unsigned int place_for(const struct gids *gids, struct part part, const uint8_t *gid)
{
	unsigned int hole = part.to;

	for (unsigned int i = part.to; i-- > part.from;) {
		if (!gids->used[i])
			hole = i;
		else if (!memcmp(gids->entry[i].gid, gid, sizeof(gids->entry[i].gid)))
			return i;
	}
	return hole;
}

static bool gids_put(struct gids *gids, struct part part, const struct host_address *address)
{
	unsigned int i = place_for(gids, part, address->gid);

	if (i == part.to) {
		if (!gids->full_said)
			log_warn("more than %u addresses; the others get no GID",
				 part.to - part.from);
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

/* The part's entries follow `wanted`. */
static bool part_update(struct gids *gids, struct part part, const struct host_address *wanted,
			unsigned int count)
{
	bool changed = false;

	for (unsigned int i = part.from; i < part.to; i++) {
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
		changed |= gids_put(gids, part, &wanted[i]);
	return changed;
}

bool gids_update(struct gids *gids, const struct host_address *first,
		 const struct host_address *wanted, unsigned int count)
{
	bool changed =
		!gids->used[0] || memcmp(gids->entry[0].gid, first->gid, sizeof(first->gid)) != 0;

	gids->used[0] = true;
	gids->entry[0] = *first;
	return part_update(gids, listed, wanted, count) || changed;
}

bool gids_update_hidden(struct gids *gids, const struct host_address *wanted, unsigned int count)
{
	return part_update(gids, hidden, wanted, count);
}

void gids_forget(struct gids *gids)
{
	*gids = (struct gids){.full_said = gids->full_said};
}
