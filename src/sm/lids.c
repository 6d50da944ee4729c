/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * LIDs: a port keeps the one that it once got from this manager; one that is new keeps the LID that
 * it has from another manager if that is free, so that a manager that takes over disturbs nothing.
 * The rest get the lowest free ones, the manager's own port first, then by port GUID. A LID of a
 * port that is gone is given to another one only when no other is left.
 *
 * With an LMC, a port of an adapter has a range of LIDs whose first one is a multiple of its
 * length. A port whose range has another length than before keeps its first LID if it can.
 */
#include "sm/internal.h"

static struct sm_lid *lid_place(const struct sm *sm, uint64_t guid)
{
	uint32_t at = sm_hash(guid) & (sm->lid_room - 1);

	while (sm->lids[at].guid && sm->lids[at].guid != guid)
		at = (at + 1) & (sm->lid_room - 1);
	return &sm->lids[at];
}

static bool lid_is_used(const struct sm *sm, uint32_t lid)
{
	return sm->lid_used[lid / 8] >> (lid % 8) & 1;
}

/* Whether a port may have these LIDs. */
static bool lids_are_free(const struct sm *sm, uint32_t lid, uint8_t lmc)
{
	uint32_t count = 1u << lmc;

	if (!lid || lid % count || lid + count > LID_MULTICAST)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (lid_is_used(sm, lid + i))
			return false;
	return true;
}

static void lids_mark(struct sm *sm, const struct sm_lid *entry, bool is_used)
{
	for (uint32_t lid = entry->lid; lid < entry->lid + (1u << entry->lmc); lid++)
		if (is_used)
			sm->lid_used[lid / 8] |= (uint8_t)(1u << (lid % 8));
		else
			sm->lid_used[lid / 8] &= (uint8_t) ~(1u << (lid % 8));
}

static bool lids_grow(struct sm *sm)
{
	struct sm_lid *old = sm->lids;
	uint32_t room = sm->lid_room;

	if (sm->lid_count * 2 < room)
		return true;
	sm->lids = calloc(room ? room * 2 : 64, sizeof *sm->lids);
	if (!sm->lids) {
		sm->lids = old;
		return false;
	}
	sm->lid_room = room ? room * 2 : 64;
	for (uint32_t i = 0; i < room; i++)
		if (old[i].guid)
			*lid_place(sm, old[i].guid) = old[i];
	free(old);
	return true;
}

static bool lid_note(struct sm *sm, uint64_t guid, uint16_t lid, uint8_t lmc)
{
	struct sm_lid *entry;

	if (!lids_grow(sm))
		return false;
	entry = lid_place(sm, guid);
	if (!entry->guid)
		sm->lid_count++;
	*entry = (struct sm_lid){guid, lid, lmc};
	lids_mark(sm, entry, true);
	sm->lids_changed = true;
	return true;
}

void sm_lid_restore(struct sm *sm, uint64_t guid, uint16_t lid, uint8_t lmc)
{
	if (!guid || lmc > 7 || !lids_are_free(sm, lid, lmc) ||
	    (sm->lid_room && lid_place(sm, guid)->guid))
		return;
	lid_note(sm, guid, lid, lmc);
	sm->lids_changed = false;
}

void sm_lids_save(struct sm *sm,
		  void (*visit)(void *context, uint64_t guid, uint16_t lid, uint8_t lmc),
		  void *context)
{
	if (!sm->lids_changed)
		return;
	for (uint32_t i = 0; i < sm->lid_room; i++)
		if (sm->lids[i].guid && sm->lids[i].lid)
			visit(context, sm->lids[i].guid, sm->lids[i].lid, sm->lids[i].lmc);
	sm->lids_changed = false;
}

/* Giving --------------------------------------------------------------------------------------- */

/* Forgets the LIDs of ports that aren't in the subnet. */
static void lids_release(struct sm *sm, const struct sm_subnet *subnet)
{
	struct sm_lid *old = sm->lids;
	uint32_t room = sm->lid_room;

	sm->lids = NULL;
	sm->lid_room = sm->lid_count = 0;
	memset(sm->lid_used, 0, sizeof sm->lid_used);
	for (uint32_t i = 0; i < room; i++)
		if (old[i].guid && old[i].lid && subnet_find(subnet, old[i].guid) != SM_NONE)
			lid_note(sm, old[i].guid, old[i].lid, old[i].lmc);
	free(old);
	sm->lids_changed = true;
}

static uint16_t lid_next_free(const struct sm *sm, uint16_t from, uint8_t lmc)
{
	uint32_t step = 1u << lmc;

	for (uint32_t lid = (from + step - 1) & ~(step - 1); lid < LID_MULTICAST; lid += step)
		if (lids_are_free(sm, lid, lmc))
			return (uint16_t)lid;
	return 0;
}

/* The entry of a port that had another number of LIDs. False: it needs other LIDs. */
static bool lid_resize(struct sm *sm, struct sm_lid *entry, uint8_t lmc)
{
	lids_mark(sm, entry, false);
	sm->lids_changed = true;
	if (!lids_are_free(sm, entry->lid, lmc)) {
		entry->lid = 0;
		entry->lmc = 0;
		return false;
	}
	entry->lmc = lmc;
	lids_mark(sm, entry, true);
	return true;
}

/* Keeps what the port has: by this manager's table, else what another one gave it. */
static void lid_keep(struct sm *sm, struct sm_subnet *subnet, struct sm_node *node)
{
	uint16_t has = octets_get16(subnet->ports[node->first_port].info + INFO_LID);
	struct sm_lid *entry = sm->lid_room ? lid_place(sm, node->port_guid) : NULL;

	node->lid = 0;
	if (entry && entry->guid && entry->lid) {
		if (entry->lmc == node->lmc || lid_resize(sm, entry, node->lmc))
			node->lid = entry->lid;
		return;
	}
	if (lids_are_free(sm, has, node->lmc) && lid_note(sm, node->port_guid, has, node->lmc))
		node->lid = has;
}

static int lid_give(struct sm *sm, struct sm_subnet *subnet, struct sm_node *node, uint16_t *from)
{
	uint16_t lid = lid_next_free(sm, *from, node->lmc);

	if (!lid) {
		lids_release(sm, subnet);
		lid = lid_next_free(sm, 1, node->lmc);
	}
	if (!lid)
		return -ENOSPC;
	if (!lid_note(sm, node->port_guid, lid, node->lmc))
		return -ENOMEM;
	node->lid = lid;
	*from = lid;
	return 0;
}

static int guid_order(const void *a, const void *b)
{
	const struct sm_node *left = *(struct sm_node *const *)a;
	const struct sm_node *right = *(struct sm_node *const *)b;

	if ((left->hops == 0) != (right->hops == 0))
		return left->hops == 0 ? -1 : 1;
	return left->port_guid < right->port_guid ? -1 : left->port_guid > right->port_guid;
}

int sm_lids_assign(struct sm *sm, struct sm_subnet *subnet)
{
	struct sm_node **rest = calloc(subnet->node_count + 1, sizeof *rest);
	uint16_t from[8] = {1, 1, 1, 1, 1, 1, 1, 1}; /* by LMC */
	uint32_t count = 0;
	int result = 0;

	if (!rest)
		return -ENOMEM;
	for (uint32_t i = 0; i < subnet->node_count; i++) {
		struct sm_node *node = &subnet->nodes[i];

		if (node->is_lost)
			continue;
		node->lmc = node->type == SM_SWITCH ? 0 : sm->options.lmc;
		lid_keep(sm, subnet, node);
		if (!node->lid)
			rest[count++] = node;
	}
	qsort(rest, count, sizeof *rest, guid_order);
	for (uint32_t i = 0; i < count && !result; i++)
		result = lid_give(sm, subnet, rest[i], &from[rest[i]->lmc]);
	free(rest);
	if (subnet->node_count)
		sm->own_lid = subnet->nodes[0].lid;
	return result;
}
