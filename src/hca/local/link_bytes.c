/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of messages that wait for receives: bounds for each link and each user. See link.h. */
#include "hca/local/link.h"

#include "hca/process/hca.h"

/* Bounds of what waits for receives, in bytes: from one link, and from all processes of one
 * user. */
enum { LINK_HELD_BYTES = 4 << 20, USER_HELD_BYTES = 32 << 20 };

/* The bytes that wait here from all processes of the link's user. */
static uint64_t user_held(const struct link *link) REQUIRES(link->hca->engine)
{
	uint64_t sum = 0;

	list_for_each(node, &link->hca->links) {
		const struct link *other = container_of(node, struct link, node);

		if (other->uid == link->uid)
			sum += other->held_bytes;
	}
	return sum;
}

bool link_hold_bytes(struct link *link, size_t bytes)
{
	lock_assert_held(&link->hca->engine);
	if (link->held_bytes + bytes > LINK_HELD_BYTES || user_held(link) + bytes > USER_HELD_BYTES)
		return false;
	link->held_bytes += bytes;
	return true;
}

void link_release_bytes(struct link *link, size_t bytes)
{
	link->held_bytes -= bytes;
}
