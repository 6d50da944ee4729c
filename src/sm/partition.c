/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Partitions: the P_Keys of end ports, and of the switch ports that end ports are joined to, where
 * partitions are enforced.
 *
 * A port has the default partition's key in the first entry, then those of the partitions in their
 * order. Each port is a member of the default partition, at least a limited one, since queries of
 * the administration use it. A switch's port has the keys of the end port behind it, so that the
 * switch can refuse packets that the end port mustn't send or get. Tables that aren't known (of a
 * port that this manager hasn't written yet) are written without being read.
 */
#include "sm/internal.h"

#define DEFAULT_KEY 0x7fffu
#define KEYS_MAX 128u /* of one port */
#define ENFORCE_BOTH (SM_ENFORCE_IN | SM_ENFORCE_OUT)

int sm_partition_add(struct sm *sm, uint16_t pkey, enum sm_member_kind kind, uint64_t guid)
{
	struct sm_partition *larger;

	if (!(pkey & 0x7fff) || (kind == SM_MEMBER_PORT && !guid))
		return -EINVAL;
	larger = realloc(sm->partitions, (sm->partition_count + 1) * sizeof *larger);
	if (!larger)
		return -ENOMEM;
	sm->partitions = larger;
	sm->partitions[sm->partition_count++] = (struct sm_partition){guid, pkey, kind};
	return 0;
}

/* Which keys a port has ------------------------------------------------------------------------ */

static bool partition_has(const struct sm *sm, const struct sm_partition *partition,
			  const struct sm_node *node)
{
	switch (partition->kind) {
	case SM_MEMBER_PORT:
		return partition->guid == node->port_guid;
	case SM_MEMBER_ALL:
		return true;
	case SM_MEMBER_ADAPTERS:
		return node->type == SM_CA;
	case SM_MEMBER_SWITCHES:
		return node->type == SM_SWITCH;
	case SM_MEMBER_ROUTERS:
		return node->type == SM_ROUTER;
	case SM_MEMBER_SELF:
		return node->port_guid == sm->own_guid;
	}
	return false;
}

unsigned int partition_keys(const struct sm *sm, const struct sm_node *node, uint16_t *keys,
			    unsigned int room)
{
	bool is_full = !sm->partition_count || node->port_guid == sm->own_guid;
	unsigned int count = 0;

	if (room)
		keys[count++] = DEFAULT_KEY | (is_full ? 0x8000 : 0);
	for (uint32_t i = 0; i < sm->partition_count; i++) {
		const struct sm_partition *partition = &sm->partitions[i];
		unsigned int at = 0;

		if (!partition_has(sm, partition, node))
			continue;
		while (at < count && (keys[at] & 0x7fff) != (partition->pkey & 0x7fff))
			at++;
		if (at < count)
			keys[at] |= partition->pkey & 0x8000;
		else if (count < room)
			keys[count++] = partition->pkey;
	}
	return count;
}

/* The node whose keys a port's table has, and how many fit. NULL: it has no table that matters. */
static const struct sm_node *keys_owner(const struct sm *sm, uint32_t row, unsigned int *room)
{
	const struct sm_port *port = &sm->work->ports[row];
	const struct sm_node *node = &sm->work->nodes[port->node];
	uint32_t peer;

	*room = octets_get16(node->info + 28);
	if (node->type != SM_SWITCH || !port->number)
		return node;
	peer = subnet_peer_node(sm->work, row);
	*room = octets_get16(node->switch_info + 14);
	if (peer == SM_NONE || sm->work->nodes[peer].type == SM_SWITCH)
		return NULL;
	return &sm->work->nodes[peer];
}

uint8_t partition_enforcement(const struct sm *sm, uint32_t row)
{
	const struct sm_port *port = &sm->work->ports[row];
	uint16_t keys[KEYS_MAX];
	unsigned int room;
	const struct sm_node *owner;

	if (!sm->partition_count || !port->number ||
	    sm->work->nodes[port->node].type != SM_SWITCH || !(sm->options.enforce & ENFORCE_BOTH))
		return 0;
	owner = keys_owner(sm, row, &room);
	/* A table that hasn't room for all keys would refuse good packets. */
	if (!owner || partition_keys(sm, owner, keys, KEYS_MAX) > room)
		return 0;
	return sm->options.enforce & ENFORCE_BOTH;
}

/* Writing -------------------------------------------------------------------------------------- */

static void pkey_block(const struct sm *sm, uint32_t row, unsigned int block,
		       uint16_t keys[SM_PKEY_BLOCK])
{
	uint16_t all[KEYS_MAX] = {0};
	unsigned int room;
	const struct sm_node *owner = keys_owner(sm, row, &room);

	if (owner)
		partition_keys(sm, owner, all, room < KEYS_MAX ? room : KEYS_MAX);
	memset(keys, 0, SM_PKEY_BLOCK * sizeof *keys);
	if (block < KEYS_MAX / SM_PKEY_BLOCK)
		memcpy(keys, all + block * SM_PKEY_BLOCK, SM_PKEY_BLOCK * sizeof *keys);
}

bool pkeys_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	uint32_t row = subnet_port(sm->work, job->node, job->port);
	bool is_switch = sm->work->nodes[job->node].type == SM_SWITCH;
	uint16_t keys[SM_PKEY_BLOCK];

	pkey_block(sm, row, job->block, keys);
	octets_put32(mad + OFFSET_MODIFIER,
		     (is_switch ? (uint32_t)job->port << 16 : 0) | job->block);
	for (unsigned int i = 0; i < SM_PKEY_BLOCK; i++)
		octets_put16(mad + SMP_DATA + 2 * i, keys[i]);
	return true;
}

/* A port that has fewer keys than it claims isn't worth another sweep. */
void pkeys_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_port *port = &sm->work->ports[subnet_port(sm->work, job->node, job->port)];
	struct sm_pkey_block *block;

	if (status) {
		sm->counts.refused++;
		return;
	}
	if (!port->pkeys || job->block >= port->pkey_blocks)
		return;
	block = &port->pkeys[job->block];
	for (unsigned int i = 0; i < SM_PKEY_BLOCK; i++)
		block->keys[i] = octets_get16(mad + SMP_DATA + 2 * i);
	block->is_known = true;
}

void pkeys_configure(struct sm *sm, uint32_t row)
{
	struct sm_port *port = &sm->work->ports[row];
	uint16_t keys[SM_PKEY_BLOCK];
	unsigned int room;

	if (!keys_owner(sm, row, &room))
		return;
	if (!port->pkeys) {
		port->pkey_blocks = (uint16_t)((room + SM_PKEY_BLOCK - 1) / SM_PKEY_BLOCK);
		port->pkeys = calloc(port->pkey_blocks + 1u, sizeof *port->pkeys);
	}
	if (!port->pkeys) {
		sm->work->faults++;
		return;
	}
	for (unsigned int block = 0; block < port->pkey_blocks; block++) {
		pkey_block(sm, row, block, keys);
		if (!port->pkeys[block].is_known ||
		    memcmp(port->pkeys[block].keys, keys, sizeof keys) != 0)
			job_add(sm, JOB_PKEYS, port->node, port->number, block);
	}
}
