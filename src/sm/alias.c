/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Alias GUIDs: GUIDs that a port has beside its own, which clients ask for by GuidInfoRecord (Set
 * and Delete). The manager keeps them, sorted by port and index, and writes them into the port's
 * GUIDInfo: at once, and again when the port comes back without them. GUIDs that a port has from
 * another manager are taken over when its table is read for the first time.
 *
 * A GUID belongs to one port only. One that another port has is declined: the answer has 0 in its
 * place.
 */
#include "sm/sa.h"

#define GUID_BLOCK 8u
#define BLOCKS_MAX 32u /* GUIDCap is 255 at most */
#define TRAP_GID_IN_SERVICE 64
#define TRAP_GID_OUT_OF_SERVICE 65

/* Components of the record: the LID, the block, two that are reserved, then eight GUIDs. */
enum { GUIDS_LID = 0, GUIDS_BLOCK = 1, GUIDS_FIRST = 4 };
enum { AT_BLOCK = 2, AT_GUIDS = 8 };

/* The table ------------------------------------------------------------------------------------ */

/* The place of a port's alias of that index, or where it belongs. */
static uint32_t alias_place(const struct sm *sm, uint64_t port_guid, unsigned int index)
{
	uint32_t low = 0, high = sm->alias_count;

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		const struct sm_alias *alias = &sm->aliases[middle];

		if (alias->port_guid < port_guid ||
		    (alias->port_guid == port_guid && alias->index < index))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool alias_is_at(const struct sm *sm, uint32_t place, uint64_t port_guid, unsigned int index)
{
	return place < sm->alias_count && sm->aliases[place].port_guid == port_guid &&
	       sm->aliases[place].index == index;
}

static const struct sm_alias *alias_by_guid(const struct sm *sm, uint64_t guid)
{
	for (uint32_t i = 0; i < sm->alias_count; i++)
		if (sm->aliases[i].guid == guid)
			return &sm->aliases[i];
	return NULL;
}

uint32_t subnet_find_any(const struct sm *sm, const struct sm_subnet *subnet, uint64_t guid)
{
	uint32_t row = subnet_find(subnet, guid);
	const struct sm_alias *alias;

	if (row != SM_NONE)
		return row;
	alias = alias_by_guid(sm, guid);
	return alias ? subnet_find(subnet, alias->port_guid) : SM_NONE;
}

static void alias_remove(struct sm *sm, uint32_t place)
{
	sm->alias_count--;
	memmove(sm->aliases + place, sm->aliases + place + 1,
		(sm->alias_count - place) * sizeof *sm->aliases);
}

/* Whether the port may have the GUID, which it then has. */
static bool alias_set(struct sm *sm, const struct sm_subnet *subnet, uint64_t port_guid,
		      unsigned int index, uint64_t guid)
{
	uint32_t place = alias_place(sm, port_guid, index);
	const struct sm_alias *other = alias_by_guid(sm, guid);
	struct sm_alias *larger;

	if (other || subnet_find(subnet, guid) != SM_NONE)
		return other && other->port_guid == port_guid && other->index == index;
	if (alias_is_at(sm, place, port_guid, index)) {
		sm->aliases[place].guid = guid;
		return true;
	}
	if (sm->alias_count == SM_ALIASES_MAX)
		return false;
	larger = realloc(sm->aliases, (sm->alias_count + 1) * sizeof *larger);
	if (!larger)
		return false;
	sm->aliases = larger;
	memmove(larger + place + 1, larger + place, (sm->alias_count - place) * sizeof *larger);
	larger[place] = (struct sm_alias){guid, port_guid, (uint16_t)index};
	sm->alias_count++;
	return true;
}

/* A GUID that nobody has: locally administered, made of the port's. */
static uint64_t alias_make(const struct sm *sm, const struct sm_subnet *subnet, uint64_t port_guid,
			   unsigned int index)
{
	uint64_t guid;
	uint32_t salt = 0;

	do {
		guid = 0x0200000000000000u |
		       (uint64_t)(sm_hash(port_guid + salt) & 0xffffff) << 32 |
		       (port_guid & 0xffffff) << 8 | index;
		salt++;
	} while (subnet_find(subnet, guid) != SM_NONE || alias_by_guid(sm, guid));
	return guid;
}

/* The port's tables ---------------------------------------------------------------------------- */

static unsigned int guid_room(const struct sm_subnet *subnet, uint32_t row)
{
	return subnet_end(subnet, row)->info[INFO_GUID_CAP];
}

/* The block as it is to be; whether it has an alias. */
static bool guid_block_wish(const struct sm *sm, const struct sm_node *node, unsigned int block,
			    uint8_t data[64])
{
	unsigned int first = block * GUID_BLOCK;
	bool has_alias = false;

	memset(data, 0, 64);
	if (!block)
		octets_put64(data, node->port_guid);
	for (uint32_t i = alias_place(sm, node->port_guid, first);
	     i < sm->alias_count && sm->aliases[i].port_guid == node->port_guid &&
	     sm->aliases[i].index < first + GUID_BLOCK;
	     i++) {
		octets_put64(data + (sm->aliases[i].index - first) * 8, sm->aliases[i].guid);
		has_alias = true;
	}
	return has_alias;
}

bool guids_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	octets_put32(mad + OFFSET_MODIFIER, job->block);
	if (job->kind == JOB_GUIDS_SET)
		guid_block_wish(sm, &sm->work->nodes[job->node], job->block, mad + SMP_DATA);
	return true;
}

/* Takes over what another manager gave the port. */
static void guids_adopt(struct sm *sm, const struct sm_node *node, const struct sm_job *job,
			const uint8_t *data)
{
	for (unsigned int i = 0; i < GUID_BLOCK; i++) {
		unsigned int index = job->block * GUID_BLOCK + i;
		uint64_t guid = octets_get64(data + 8 * i);

		if (index && guid &&
		    !alias_is_at(sm, alias_place(sm, node->port_guid, index), node->port_guid,
				 index))
			alias_set(sm, sm->work, node->port_guid, index, guid);
	}
}

void guids_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	struct sm_node *node = &sm->work->nodes[job->node];
	unsigned int blocks = (guid_room(sm->work, job->node) + GUID_BLOCK - 1) / GUID_BLOCK;

	if (status || job->block >= blocks)
		return;
	if (!node->guids)
		node->guids = calloc(blocks, 64);
	if (!node->guids)
		return;
	memcpy(node->guids + job->block * 64u, mad + SMP_DATA, 64);
	if (job->kind == JOB_GUIDS && !(node->guids_known >> job->block & 1))
		guids_adopt(sm, node, job, mad + SMP_DATA);
	node->guids_known |= 1u << job->block;
}

void guids_read(struct sm *sm, uint32_t row)
{
	for (unsigned int block = 0; block * GUID_BLOCK < guid_room(sm->work, row); block++)
		if (!(sm->work->nodes[row].guids_known >> block & 1))
			job_add(sm, JOB_GUIDS, row, 0, block);
}

static void guids_configure(struct sm *sm, uint32_t row)
{
	const struct sm_node *node = &sm->work->nodes[row];
	uint8_t wish[64];

	for (unsigned int block = 0; block * GUID_BLOCK < guid_room(sm->work, row); block++) {
		bool has_alias = guid_block_wish(sm, node, block, wish);
		bool is_known = node->guids_known >> block & 1;

		if (is_known ? memcmp(node->guids + block * 64, wish, 64) != 0 : has_alias)
			job_add(sm, JOB_GUIDS_SET, row, 0, block);
	}
}

void aliases_configure(struct sm *sm)
{
	sm->has_dirty_guids = false;
	for (uint32_t row = 0; sm->alias_count + sm->alias_deletions && row < sm->work->node_count;
	     row++)
		if (!sm->work->nodes[row].is_lost)
			guids_configure(sm, row);
}

/* The administration --------------------------------------------------------------------------- */

/* The node and block that the query names. False: the status says why there are none. */
static bool guids_query_check(struct sa_query *query, uint32_t *row)
{
	unsigned int block = query->record[AT_BLOCK];

	if (!sa_has(query, GUIDS_LID) || !sa_has(query, GUIDS_BLOCK)) {
		query->status = SA_INSUFFICIENT;
		return false;
	}
	*row = subnet_by_lid(query->subnet, octets_get16(query->record));
	/* The first GUID is the port's own. */
	if (*row == SM_NONE || block * GUID_BLOCK >= guid_room(query->subnet, *row) ||
	    (!block && sa_has(query, GUIDS_FIRST))) {
		query->status = *row == SM_NONE ? SA_NO_RECORDS : SA_INVALID;
		return false;
	}
	return true;
}

static void guid_announce(struct sm *sm, uint16_t trap, uint64_t guid)
{
	uint8_t gid[16];

	gid_make(gid, guid);
	notice_own(sm, trap, gid);
}

/* The answer: the block as it is to be, 0 where a GUID was declined. */
static void guids_answer(struct sa_query *query, const struct sm_node *node, uint32_t declined)
{
	uint8_t record[72] = {0};

	octets_put16(record, node->lid);
	record[AT_BLOCK] = query->record[AT_BLOCK];
	guid_block_wish(query->sm, node, record[AT_BLOCK], record + AT_GUIDS);
	for (unsigned int i = 0; i < GUID_BLOCK; i++)
		if (declined >> i & 1)
			octets_put64(record + AT_GUIDS + 8 * i, 0);
	query->sm->has_dirty_guids = true;
	sa_add(query, record);
}

void sa_guids_set(struct sa_query *query)
{
	const struct sm_node *node;
	uint32_t row, declined = 0;

	if (!guids_query_check(query, &row))
		return;
	node = &query->subnet->nodes[row];
	for (unsigned int i = 0; i < GUID_BLOCK; i++) {
		unsigned int index = query->record[AT_BLOCK] * GUID_BLOCK + i;
		uint64_t guid = octets_get64(query->record + AT_GUIDS + 8 * i);

		if (!sa_has(query, GUIDS_FIRST + i))
			continue;
		if (!guid)
			guid = alias_make(query->sm, query->subnet, node->port_guid, index);
		if (index < guid_room(query->subnet, row) &&
		    alias_set(query->sm, query->subnet, node->port_guid, index, guid))
			guid_announce(query->sm, TRAP_GID_IN_SERVICE, guid);
		else
			declined |= 1u << i;
	}
	guids_answer(query, node, declined);
}

void sa_guids_remove(struct sa_query *query)
{
	struct sm *sm = query->sm;
	const struct sm_node *node;
	uint32_t row;

	if (!guids_query_check(query, &row))
		return;
	node = &query->subnet->nodes[row];
	for (unsigned int i = 0; i < GUID_BLOCK; i++) {
		unsigned int index = query->record[AT_BLOCK] * GUID_BLOCK + i;
		uint32_t place = alias_place(sm, node->port_guid, index);

		if (!sa_has(query, GUIDS_FIRST + i) ||
		    !alias_is_at(sm, place, node->port_guid, index))
			continue;
		guid_announce(sm, TRAP_GID_OUT_OF_SERVICE, sm->aliases[place].guid);
		alias_remove(sm, place);
		sm->alias_deletions++;
	}
	guids_answer(query, node, 0);
}
