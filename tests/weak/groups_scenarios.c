/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of groups. Thread 0 is the daemon's; thread 1 a sender: it must find a member that the
 * daemon has reported as attached. Other contents of the table aren't relied upon (groups.h).
 */
#include "scenarios.h"

#include "shm/groups.c"

enum { TOLD, NEW_SLOT = 5 };

static struct groups table;
static const uint8_t old_gid[16] = {0xff, 0x0e, [15] = 1}, new_gid[16] = {0xff, 0x0e, [15] = 2};
static uint32_t place;

/* The old group's last member has left; a new group takes its place. */
static void setup(void)
{
	uint64_t key[2];

	memcpy(key, new_gid, sizeof(key));
	memset(table.gid, 0, sizeof(table.gid));
	memset(table.slots, 0, sizeof(table.slots));
	place = groups_bucket(&table, key);
	memcpy(key, old_gid, sizeof(key));
	atomic_store(&table.gid[place].word[0], key[0]);
	atomic_store(&table.gid[place].word[1], key[1]);
	model_word(&table.gid[place].word[0], 8, "gid[0]");
	model_word(&table.gid[place].word[1], 8, "gid[1]");
	model_word(&table.slots[place].word[0], 8, "slots");
}

static void attach(void)
{
	if (groups_set(&table, new_gid, NEW_SLOT))
		model_fail("there is no room");
	model_event_set(TOLD);
}

static void send_once_told(void)
{
	uint64_t slots[GROUPS_WORDS] = {0};

	model_event_wait(TOLD);
	if (!groups_find(&table, new_gid, slots) || slots[0] != 1ull << NEW_SLOT)
		model_fail("who is attached isn't found");
}

/* An address was removed from the host. A thread that sees the new number doesn't find it any
 * more. */
static const uint8_t gone_gid[16] = {1}, there_gid[16] = {2};

static void setup_own(void)
{
	memset(table.own, 0, sizeof(table.own));
	atomic_store(&table.own_count, 1);
	atomic_store(&table.addresses, 1);
	memcpy(&table.own[0], gone_gid, sizeof(gone_gid));
	model_word(&table.own[0].word[0], 8, "own[0]");
	model_word(&table.own[0].word[1], 8, "own[1]");
	model_word(&table.addresses, 8, "addresses");
	model_word(&table.own_count, 4, "own_count");
}

static void change_own(void)
{
	groups_set_own(&table, &there_gid, 1);
}

static void look_for_own(void)
{
	if (groups_addresses(&table) != 1 && groups_is_own(&table, gone_gid))
		model_fail("an address that is gone is found with the new number");
}

const struct model_scenario groups_scenarios[] = {
	{"groups.told", setup, {attach, send_once_told}, NULL},
	{"groups.own", setup_own, {change_own, look_for_own}, NULL},
	{0},
};
