/* SPDX-License-Identifier: BSD-2-Clause */
/* Links that wait for their peer to leave. See link_part.h. Owns the list hca.parting. */
#include "hca/local/link_part.h"

#include "base/cpu.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/peer.h"
#include "hca/process/hca.h"

/* The first of both sides decides. */
static bool part_becomes(_Atomic uint32_t *part, enum link_memory_part what)
{
	uint32_t open = LINK_PART_OPEN;

	return atomic_compare_exchange_strong_explicit(part, &open, what, memory_order_relaxed,
						       memory_order_relaxed);
}

bool link_take_part(struct link_memory *memory, uint32_t side)
{
	return part_becomes(&memory->part[side], LINK_PART_TAKEN);
}

bool link_peer_came(const struct link *link)
{
	return link->self || atomic_load_explicit(&link->memory->part[!link->side],
						  memory_order_relaxed) == LINK_PART_TAKEN;
}

bool link_shut_out(struct link *link)
{
	link->shut_out = part_becomes(&link->memory->part[!link->side], LINK_PART_SHUT);
	return link->shut_out;
}

void link_tell_left(struct link *link)
{
	/* [V1], pairs with [V2] */
	atomic_store_explicit(&link->memory->left[link->side], 1, memory_order_release);
	if (link->regions)
		link_ring(link); /* the peer may wait for this */
}

bool link_peer_left(const struct link *link)
{
	const struct link_memory *memory = link->memory;

	if (!link->regions || link->shut_out)
		return true;
	/* [V2], pairs with [V1] */
	return atomic_load_explicit(&memory->left[!link->side], memory_order_acquire);
}

void link_part(struct hca *hca, struct link *link)
{
	if (link->parting)
		return;
	link->parting = true;
	link->next_parting = hca->parting;
	hca->parting = link;
	link->parting_fd = peer_end_descriptor(&link->process);
	if (link->parting_fd >= 0 && !engine_await_end(hca, link->parting_fd)) {
		sys_close(link->parting_fd);
		link->parting_fd = -1;
	}
}

void link_end_parting(struct link *link)
{
	struct link **at = &link->hca->parting;

	if (!link->parting)
		return;
	while (*at != link)
		at = &(*at)->next_parting;
	*at = link->next_parting;
	link->parting = false;
	if (link->parting_fd >= 0)
		sys_close(link->parting_fd);
}

bool link_any_parted(const struct hca *hca)
{
	for (const struct link *link = hca->parting; link; link = link->next_parting)
		if (link_peer_left(link) || (link->parting_fd < 0 && !peer_alive(&link->process)))
			return true;
	return false;
}

bool link_parts_unwatched(const struct hca *hca)
{
	for (const struct link *link = hca->parting; link; link = link->next_parting)
		if (link->parting_fd < 0)
			return true;
	return false;
}
