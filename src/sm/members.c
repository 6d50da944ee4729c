/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast groups: MCMemberRecord. A full member makes a group that isn't there, with the
 * properties that it names; later members have to agree with them. The last full member that
 * leaves ends it. The group of IPoIB's broadcast in the default partition is always there.
 */
#include "sm/sa.h"

enum {
	MEMBER_MGID = 0,
	MEMBER_GID = 1,
	MEMBER_QKEY = 2,
	MEMBER_LID = 3,
	MEMBER_MTU = 5,
	MEMBER_CLASS = 6,
	MEMBER_PKEY = 7,
	MEMBER_RATE = 9,
	MEMBER_SL = 12,
	MEMBER_FLOW = 13,
	MEMBER_STATE = 16,
};

enum { AT_MGID = 0, AT_GID = 16, AT_QKEY = 32, AT_LID = 36, AT_MTU = 38, AT_CLASS = 39 };
enum { AT_PKEY = 40, AT_RATE = 42, AT_LIFE = 43, AT_SL_FLOW = 44, AT_STATE = 48, AT_PROXY = 49 };

enum { STATE_FULL = 1, STATE_SEND_FULL = 8, STATE_ALL = 15 };

#define EXACTLY (2 << 6)
#define TRAP_GROUP_CREATED 66
#define TRAP_GROUP_DELETED 67

/* What a group's maker has to name. */
#define NEEDED_TO_CREATE                                                               \
	(1u << MEMBER_QKEY | 1u << MEMBER_PKEY | 1u << MEMBER_SL | 1u << MEMBER_FLOW | \
	 1u << MEMBER_CLASS)

/* Groups --------------------------------------------------------------------------------------- */

struct sm_group *sm_group_find(const struct sm *sm, const uint8_t mgid[16])
{
	for (uint32_t i = 0; i < SM_MULTICAST_LIDS; i++)
		if (sm->groups[i] && !memcmp(sm->groups[i]->record, mgid, 16))
			return sm->groups[i];
	return NULL;
}

static struct sm_group *group_create(struct sm *sm, const uint8_t record[52])
{
	struct sm_group *group;
	uint32_t place = 0;

	while (place < SM_MULTICAST_LIDS && sm->groups[place])
		place++;
	group = place < SM_MULTICAST_LIDS ? calloc(1, sizeof *group) : NULL;
	if (!group)
		return NULL;
	memcpy(group->record, record, sizeof group->record);
	group->lid = (uint16_t)(LID_MULTICAST + place);
	octets_put16(group->record + AT_LID, group->lid);
	group->is_dirty = true;
	sm->groups[place] = group;
	sm->has_dirty_groups = true;
	return group;
}

static void group_free(struct sm_group *group)
{
	if (!group)
		return;
	free(group->members);
	free(group->masks);
	free(group);
}

static void group_delete(struct sm *sm, struct sm_group *group)
{
	uint32_t place = group->lid - LID_MULTICAST;

	notice_own(sm, TRAP_GROUP_DELETED, group->record);
	sm->groups[place] = NULL;
	sm->freed_blocks[place / SM_MULTICAST_BLOCK] = true;
	sm->has_dirty_groups = true;
	group_free(group);
}

int sm_ipoib_add(struct sm *sm, const struct sm_ipoib *ipoib)
{
	uint8_t record[52] = {0xff, (uint8_t)(1 << 4 | ipoib->scope), 0x40, 0x1b};
	struct sm_group *group;
	uint16_t lid;

	if (!ipoib->pkey || ipoib->scope > 15 || ipoib->level >= SM_LEVELS ||
	    !plain_worth(ipoib->mtu) || ipoib->mtu > 5 || !rate_worth(ipoib->rate))
		return -EINVAL;
	octets_put16(record + 4, ipoib->pkey | 0x8000);
	memset(record + 12, 0xff, 4);
	group = sm_group_find(sm, record);
	octets_put32(record + AT_QKEY, ipoib->qkey);
	octets_put16(record + AT_PKEY, ipoib->pkey | 0x8000);
	record[AT_MTU] = EXACTLY | ipoib->mtu;
	record[AT_CLASS] = ipoib->traffic_class;
	record[AT_RATE] = EXACTLY | ipoib->rate;
	record[AT_LIFE] = EXACTLY | SM_LIFE_TIME;
	octets_put32(record + AT_SL_FLOW,
		     (uint32_t)ipoib->level << 28 | (ipoib->flow_label & 0xfffff) << 8);
	record[AT_STATE] = (uint8_t)(ipoib->scope << 4);
	if (!group)
		group = group_create(sm, record);
	if (!group)
		return -ENOMEM;
	lid = group->lid;
	memcpy(group->record, record, sizeof group->record);
	octets_put16(group->record + AT_LID, lid);
	group->is_permanent = true;
	return 0;
}

int groups_begin(struct sm *sm)
{
	const struct sm_ipoib usual = {
		.pkey = 0x7fff, .mtu = 4, .rate = 3, .scope = 2, .qkey = 0x0b1b};

	return sm_ipoib_add(sm, &usual);
}

void groups_end(struct sm *sm)
{
	for (uint32_t i = 0; i < SM_MULTICAST_LIDS; i++)
		group_free(sm->groups[i]);
}

/* A group without a full member ends. */
static void group_settle(struct sm *sm, struct sm_group *group)
{
	group->is_dirty = true;
	sm->has_dirty_groups = true;
	if (group->is_permanent)
		return;
	for (uint32_t i = 0; i < group->count; i++)
		if (group->members[i].state & (STATE_FULL | STATE_SEND_FULL))
			return;
	group_delete(sm, group);
}

static void member_remove(struct sm_group *group, uint32_t at)
{
	group->members[at] = group->members[--group->count];
}

void groups_follow(struct sm *sm)
{
	for (uint32_t i = 0; i < SM_MULTICAST_LIDS; i++) {
		struct sm_group *group = sm->groups[i];

		if (!group)
			continue;
		for (uint32_t k = group->count; k-- > 0;) {
			uint32_t row = subnet_find(sm->subnet, group->members[k].guid);

			if (row == SM_NONE || sm->subnet->nodes[row].is_lost)
				member_remove(group, k);
		}
		group_settle(sm, group);
	}
}

/* Answers -------------------------------------------------------------------------------------- */

static void member_write(const struct sm_group *group, const struct sm_member *member,
			 uint8_t record[56])
{
	memcpy(record, group->record, 52);
	memset(record + 52, 0, 4);
	if (!member)
		return;
	memcpy(record + AT_GID, member->gid, 16);
	record[AT_STATE] |= member->state;
	record[AT_PROXY] = member->has_proxy ? 0x80 : 0;
}

void sa_members(struct sa_query *query)
{
	uint8_t record[56];
	/* Selectors, and what only members have. */
	uint64_t except = 1u << 4 | 1u << 8 | 1u << 10;

	for (uint32_t i = 0; i < SM_MULTICAST_LIDS; i++) {
		const struct sm_group *group = query->sm->groups[i];

		if (!group)
			continue;
		if (!query->is_trusted && !sa_has(query, MEMBER_GID)) {
			member_write(group, NULL, record);
			sa_offer(query, record, except | 1u << MEMBER_STATE);
			continue;
		}
		for (uint32_t k = 0; k < group->count; k++) {
			member_write(group, &group->members[k], record);
			sa_offer(query, record, except);
		}
	}
}

/* Joining -------------------------------------------------------------------------------------- */

/* By GID: a port may be a member by several. */
static uint32_t group_member_find(const struct sm_group *group, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < group->count; i++)
		if (!memcmp(group->members[i].gid, gid, 16))
			return i;
	return SM_NONE;
}

/* The port that the record names, or SM_NONE. */
static uint32_t member_port(const struct sa_query *query)
{
	if (octets_get64(query->record + AT_GID) != SM_PREFIX)
		return SM_NONE;
	return subnet_find_any(query->sm, query->subnet, octets_get64(query->record + AT_GID + 8));
}

static bool port_has_pkey(const struct sm *sm, const struct sm_node *node, uint16_t pkey)
{
	uint16_t keys[128];
	unsigned int count = partition_keys(sm, node, keys, 128);

	for (unsigned int i = 0; i < count; i++)
		if (!((keys[i] ^ pkey) & 0x7fff))
			return true;
	return false;
}

/* An MGID that a group may have; zero: one is to be made. */
static bool mgid_is_refused(const struct sm *sm, const uint8_t *record)
{
	static const uint8_t zero[16];
	uint16_t signature = octets_get16(record + 2);

	if (!memcmp(record, zero, sizeof zero))
		return false;
	/* The flags that have no meaning are zero. */
	if (record[0] != 0xff || octet_high(record[1]) > 1)
		return true;
	if (signature == 0xa01b)
		return (record[1] & 15) == 2;
	/* IPoIB's groups belong to the broadcast group's link. */
	return signature == 0x401b &&
	       octets_get32(record + AT_QKEY) != octets_get32(sm->groups[0]->record + AT_QKEY);
}

static void mgid_make(struct sm *sm, uint8_t mgid[16])
{
	do {
		memset(mgid, 0, 16);
		mgid[0] = 0xff;
		mgid[1] = 0x12;
		octets_put16(mgid + 2, 0xa01b);
		octets_put64(mgid + 4, SM_PREFIX);
		octets_put32(mgid + 12, ++sm->mgid_serial);
	} while (sm_group_find(sm, mgid));
}

/* MTU or rate of a new group: as wished, of what the port can do. 0: impossible. */
static uint8_t property_choose(const struct sa_query *query, unsigned int component, uint8_t most,
			       uint32_t (*worth)(uint8_t code))
{
	uint8_t selector = 2;

	if (!sa_has(query, component))
		return most;
	if (sa_has(query, component - 1))
		selector = (uint8_t)sa_component(query, component - 1);
	return sa_select(selector, (uint8_t)sa_component(query, component), most, worth);
}

static struct sm_group *group_make(struct sa_query *query, uint32_t row)
{
	const struct sm_port *port = subnet_end(query->subnet, row);
	uint8_t record[52], mtu, rate;
	struct sm_group *group;

	memcpy(record, query->record, sizeof record);
	mtu = property_choose(query, MEMBER_MTU, octet_high(port->info[INFO_MTU_SM_SL]),
			      plain_worth);
	rate = property_choose(query, MEMBER_RATE, port_rate(port), rate_worth);
	if (!mtu || !rate || mgid_is_refused(query->sm, record) ||
	    !port_has_pkey(query->sm, &query->subnet->nodes[row], octets_get16(record + AT_PKEY))) {
		query->status = SA_INVALID;
		return NULL;
	}
	if (record[0] != 0xff)
		mgid_make(query->sm, record);
	record[AT_MTU] = EXACTLY | mtu;
	record[AT_RATE] = EXACTLY | rate;
	record[AT_LIFE] = EXACTLY | SM_LIFE_TIME;
	record[AT_STATE] = (uint8_t)((record[1] & 15) << 4);
	memset(record + AT_GID, 0, 16);
	memset(record + AT_PROXY, 0, 3);
	group = group_create(query->sm, record);
	if (!group)
		query->status = SA_NO_RESOURCES;
	else
		notice_own(query->sm, TRAP_GROUP_CREATED, record);
	return group;
}

/* Whether what the query names is what the group has. */
static bool group_agrees(const struct sa_query *query, const struct sm_group *group)
{
	const uint8_t *is = group->record, *wish = query->record;

	if (sa_has(query, MEMBER_QKEY) && memcmp(is + AT_QKEY, wish + AT_QKEY, 4) != 0)
		return false;
	if (sa_has(query, MEMBER_LID) && memcmp(is + AT_LID, wish + AT_LID, 2) != 0)
		return false;
	if (sa_has(query, MEMBER_PKEY) &&
	    ((octets_get16(is + AT_PKEY) ^ octets_get16(wish + AT_PKEY)) & 0x7fff))
		return false;
	if (sa_has(query, MEMBER_CLASS) && is[AT_CLASS] != wish[AT_CLASS])
		return false;
	if (sa_has(query, MEMBER_SL) && octet_high(is[AT_SL_FLOW]) != octet_high(wish[AT_SL_FLOW]))
		return false;
	return property_choose(query, MEMBER_MTU, is[AT_MTU] & 63, plain_worth) ==
		       (is[AT_MTU] & 63) &&
	       property_choose(query, MEMBER_RATE, is[AT_RATE] & 63, rate_worth) ==
		       (is[AT_RATE] & 63);
}

static struct sm_member *member_add(struct sm_group *group, uint64_t guid, const uint8_t gid[16])
{
	uint32_t room = group->room ? group->room * 2 : 4;

	if (group->count == SM_MEMBERS_MAX)
		return NULL;
	if (group->count == group->room) {
		struct sm_member *larger = realloc(group->members, room * sizeof *larger);

		if (!larger)
			return NULL;
		group->members = larger;
		group->room = room;
	}
	group->members[group->count] = (struct sm_member){.guid = guid};
	memcpy(group->members[group->count].gid, gid, 16);
	return &group->members[group->count++];
}

/* The group to join: one that is there, or a new one. NULL: the status says why. */
static struct sm_group *group_for_join(struct sa_query *query, uint32_t row, uint8_t state)
{
	struct sm_group *group = sa_has(query, MEMBER_MGID) && query->record[0]
					 ? sm_group_find(query->sm, query->record)
					 : NULL;

	if (!group) {
		if (!(state & (STATE_FULL | STATE_SEND_FULL)))
			query->status = SA_INVALID;
		else if ((query->mask & NEEDED_TO_CREATE) != NEEDED_TO_CREATE)
			query->status = SA_INSUFFICIENT;
		else
			group = group_make(query, row);
		return group;
	}
	if (group_agrees(query, group) && port_has_pkey(query->sm, &query->subnet->nodes[row],
							octets_get16(group->record + AT_PKEY)))
		return group;
	query->status = SA_INVALID;
	return NULL;
}

void sa_member_join(struct sa_query *query)
{
	uint8_t state = query->record[AT_STATE] & STATE_ALL, answer[56];
	uint32_t row = member_port(query), at;
	struct sm_member *member;
	struct sm_group *group;

	if (!sa_has(query, MEMBER_GID) || !sa_has(query, MEMBER_STATE)) {
		query->status = SA_INSUFFICIENT;
		return;
	}
	if (row == SM_NONE || !state) {
		query->status = row == SM_NONE ? SA_INVALID_GID : SA_INVALID;
		return;
	}
	group = group_for_join(query, row, state);
	if (!group)
		return;
	at = group_member_find(group, query->record + AT_GID);
	member = at == SM_NONE ? member_add(group, query->subnet->nodes[row].port_guid,
					    query->record + AT_GID)
			       : &group->members[at];
	if (member)
		member->state |= state;
	else
		query->status = SA_NO_RESOURCES;
	if (member)
		member_write(group, member, answer);
	group_settle(query->sm, group);
	if (member)
		sa_add(query, answer);
}

void sa_member_leave(struct sa_query *query)
{
	uint8_t state = query->record[AT_STATE] & STATE_ALL, answer[56];
	uint32_t row = member_port(query), at = SM_NONE;
	struct sm_group *group = NULL;

	if (!sa_has(query, MEMBER_MGID) || !sa_has(query, MEMBER_GID) ||
	    !sa_has(query, MEMBER_STATE)) {
		query->status = SA_INSUFFICIENT;
		return;
	}
	if (row != SM_NONE)
		group = sm_group_find(query->sm, query->record);
	if (group)
		at = group_member_find(group, query->record + AT_GID);
	if (at == SM_NONE || !state || (group->members[at].state & state) != state) {
		query->status = SA_INVALID;
		return;
	}
	member_write(group, &group->members[at], answer);
	group->members[at].state &= (uint8_t)~state;
	octet_set_low(&answer[AT_STATE], group->members[at].state);
	if (!group->members[at].state)
		member_remove(group, at);
	group_settle(query->sm, group);
	sa_add(query, answer);
}
