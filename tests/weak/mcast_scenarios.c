/* SPDX-License-Identifier: BSD-2-Clause */
/* A new daemon's table of groups: a process that was attached under the last daemon is found, in
 * the old table or in the new one, while it returns. Thread 0 is the daemon's, thread 1 a
 * sender. */
#include "scenarios.h"

#include "hca/exec/mcast.c"

enum { MEMBER = 5 };

static struct groups last, next;
static struct mcast mcast;
static const uint8_t gid[16] = {0xff, 0x0e, [15] = 2};

static void setup(void)
{
	memset(&mcast, 0, sizeof(mcast));
	memset(next.gid, 0, sizeof(next.gid));
	memset(next.slots, 0, sizeof(next.slots));
	atomic_store(&next.settled, 0);
	groups_set(&last, gid, MEMBER);
	groups_set(&next, gid, MEMBER); /* to learn its index */
	for (uint32_t i = 0; i < GROUPS_PLACES; i++) {
		if (!atomic_load(&next.slots[i].word[0]))
			continue;
		atomic_store(&next.slots[i].word[0], 0);
		model_word(&next.gid[i].word[0], 8, "gid[0]");
		model_word(&next.gid[i].word[1], 8, "gid[1]");
		model_word(&next.slots[i].word[0], 8, "slots");
	}
	model_word(&next.settled, 4, "settled");
	atomic_store(&mcast.table, &next);
	atomic_store(&mcast.old, &last);
}

/* As the daemon's mcast.c does it when the last process has returned. */
static void member_returns(void)
{
	groups_set(&next, gid, MEMBER);
	atomic_store_explicit(&next.settled, 1, memory_order_release);
}

static void send_to_group(void)
{
	uint64_t slots[GROUPS_WORDS];

	if (!find_processes(&mcast, gid, slots) || slots[0] != 1ull << MEMBER)
		model_fail("a member was missed");
}

const struct model_scenario mcast_scenarios[] = {
	{"mcast.settled", setup, {member_returns, send_to_group}, NULL},
	{0},
};
