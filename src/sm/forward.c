/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing forwarding tables: SwitchInfo's limits, and those blocks that differ from what the switch
 * is known to hold. A block counts as unknown from the moment its request is sent until the answer
 * comes, which repeats what the switch stored.
 */
#include "sm/internal.h"

/* Unicast -------------------------------------------------------------------------------------- */

bool unicast_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	struct sm_tables *tables = sm->work->nodes[job->node].tables;

	tables->is_known[job->block] = false;
	octets_put32(mad + OFFSET_MODIFIER, job->block);
	memcpy(mad + SMP_DATA, tables->wanted + job->block * SM_UNICAST_BLOCK, SM_UNICAST_BLOCK);
	return true;
}

void unicast_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_tables *tables = sm->work->nodes[job->node].tables;

	sm->counts.unicast_blocks++;
	if (status) {
		sm->counts.refused++;
		sm->work->faults++;
		return;
	}
	memcpy(tables->unicast + job->block * SM_UNICAST_BLOCK, mad + SMP_DATA, SM_UNICAST_BLOCK);
	tables->is_known[job->block] = true;
}

/* What SwitchInfo is to have; byte 11 without the notice of a change. */
static void switch_wish(const struct sm *sm, const struct sm_node *node, uint8_t wish[20])
{
	uint32_t capabilities =
		octets_get32(sm->work->ports[node->first_port].info + INFO_CAPABILITIES);

	memcpy(wish, node->switch_info, 20);
	octets_put16(wish + 6, sm->work->top_lid);
	wish[11] = (uint8_t)(SM_LIFE_TIME << 3) | (wish[11] & 3);
	if (capabilities & CAN_MULTICAST_TOP)
		octets_put16(wish + 18, multicast_top(sm));
}

bool switch_set_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	switch_wish(sm, &sm->work->nodes[job->node], mad + SMP_DATA);
	return true;
}

void switch_set_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_node *node = &sm->work->nodes[job->node];

	memcpy(node->switch_info, mad + SMP_DATA, sizeof node->switch_info);
	if (status) {
		sm->counts.refused++;
		sm->work->faults++;
	}
}

static void switch_configure(struct sm *sm, uint32_t row)
{
	const struct sm_node *node = &sm->work->nodes[row];
	uint8_t is[20], wish[20];

	switch_wish(sm, node, wish);
	memcpy(is, node->switch_info, sizeof is);
	is[11] &= (uint8_t)~4u;
	if (memcmp(is, wish, sizeof is) != 0)
		job_add(sm, JOB_SWITCH_SET, row, 0, 0);
}

void forward_unicast(struct sm *sm)
{
	struct sm_subnet *subnet = sm->work;
	uint32_t blocks = subnet->top_lid / SM_UNICAST_BLOCK + 1;

	for (uint32_t i = 0; i < subnet->switch_count; i++) {
		const struct sm_node *node = &subnet->nodes[subnet->switches[i]];
		const struct sm_tables *tables = node->tables;

		if (!node->has_switch_info || node->is_lost)
			continue;
		switch_configure(sm, subnet->switches[i]);
		for (uint32_t block = 0; block < blocks; block++) {
			size_t at = (size_t)block * SM_UNICAST_BLOCK;

			if (!tables->is_known[block] ||
			    memcmp(tables->unicast + at, tables->wanted + at, SM_UNICAST_BLOCK))
				job_add(sm, JOB_UNICAST, subnet->switches[i], 0, block);
		}
	}
}

/* Multicast: job->port is the position, job->block the block of 32 MLIDs ----------------------- */

uint16_t multicast_top(const struct sm *sm)
{
	uint16_t top = LID_MULTICAST - 1;

	for (uint32_t i = 0; i < SM_MULTICAST_LIDS; i++)
		if (sm->groups[i])
			top = (uint16_t)(LID_MULTICAST + i);
	return top;
}

/* The masks of a block at one position, in network order. */
static void masks_write(const struct sm *sm, uint32_t place, unsigned int position,
			unsigned int block, uint8_t data[64])
{
	for (unsigned int i = 0; i < SM_MULTICAST_BLOCK; i++) {
		const struct sm_group *group = sm->groups[block * SM_MULTICAST_BLOCK + i];
		const uint8_t *mask = group && group->masks && place < group->mask_count
					      ? group->masks[place] + position * 2
					      : NULL;

		data[2 * i] = mask ? mask[1] : 0;
		data[2 * i + 1] = mask ? mask[0] : 0;
	}
}

static uint16_t *masks_known(const struct sm_tables *tables, unsigned int position,
			     unsigned int block)
{
	return tables->multicast + position * SM_MULTICAST_LIDS + block * SM_MULTICAST_BLOCK;
}

bool multicast_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	struct sm_node *node = &sm->work->nodes[job->node];

	node->tables->multicast_known[job->port][job->block] = false;
	octets_put32(mad + OFFSET_MODIFIER, (uint32_t)job->port << 28 | job->block);
	masks_write(sm, node->place, job->port, job->block, mad + SMP_DATA);
	return true;
}

void multicast_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_tables *tables = sm->work->nodes[job->node].tables;
	uint16_t *known = masks_known(tables, job->port, job->block);

	sm->counts.multicast_blocks++;
	if (status) {
		sm->counts.refused++;
		sm->work->faults++;
		return;
	}
	for (unsigned int i = 0; i < SM_MULTICAST_BLOCK; i++)
		known[i] = octets_get16(mad + SMP_DATA + 2 * i);
	tables->multicast_known[job->port][job->block] = true;
}

static bool masks_differ(const struct sm *sm, const struct sm_node *node, unsigned int position,
			 unsigned int block)
{
	const uint16_t *known = masks_known(node->tables, position, block);
	uint8_t wish[64];

	if (!node->tables->multicast_known[position][block])
		return true;
	masks_write(sm, node->place, position, block, wish);
	for (unsigned int i = 0; i < SM_MULTICAST_BLOCK; i++)
		if (known[i] != octets_get16(wish + 2 * i))
			return true;
	return false;
}

static void multicast_block_forward(struct sm *sm, unsigned int block)
{
	struct sm_subnet *subnet = sm->work;

	for (uint32_t i = 0; i < subnet->switch_count; i++) {
		struct sm_node *node = &subnet->nodes[subnet->switches[i]];

		/* No more MLIDs than the switch's table has. */
		if (!node->tables || node->is_lost ||
		    octets_get16(node->switch_info + 4) <= block * SM_MULTICAST_BLOCK)
			continue;
		if (!node->tables->multicast)
			node->tables->multicast = calloc(SM_POSITIONS * SM_MULTICAST_LIDS,
							 sizeof *node->tables->multicast);
		if (!node->tables->multicast) {
			subnet->faults++;
			continue;
		}
		for (unsigned int position = 0; position <= node->ports / 16u; position++)
			if (masks_differ(sm, node, position, block))
				job_add(sm, JOB_MULTICAST, subnet->switches[i], position, block);
	}
}

void forward_multicast(struct sm *sm)
{
	bool has_block[SM_MULTICAST_LIDS / SM_MULTICAST_BLOCK] = {false};
	bool has_new_top = sm->has_dirty_groups && sm->phase == PHASE_IDLE;

	sm->has_dirty_groups = false;
	for (uint32_t i = 0; i < SM_MULTICAST_LIDS; i++) {
		struct sm_group *group = sm->groups[i];

		if (!group)
			continue;
		/* A group that never had members is in no table. */
		has_block[i / SM_MULTICAST_BLOCK] |= group->count > 0 || group->masks;
		if (group->is_dirty)
			group_tree_make(sm, group);
		group->is_dirty = false;
	}
	for (unsigned int block = 0; block < SM_MULTICAST_LIDS / SM_MULTICAST_BLOCK; block++)
		if (has_block[block] || sm->freed_blocks[block]) {
			sm->freed_blocks[block] = false;
			multicast_block_forward(sm, block);
		}
	for (uint32_t i = 0; has_new_top && i < sm->work->switch_count; i++)
		if (!sm->work->nodes[sm->work->switches[i]].is_lost)
			switch_configure(sm, sm->work->switches[i]);
}
