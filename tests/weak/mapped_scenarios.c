/* SPDX-License-Identifier: BSD-2-Clause */
/* Removal of a mapping of a peer's region that has ended: the control thread (0) unmaps it while a
 * thread (1) may be copying through it. Afterwards another mapping may use the address. */
#include "scenarios.h"

#include "hca/mem/mapped.c"

enum { RKEY = 5 << LIMIT_KEY_TAG_BITS | 1, SERIAL = 7, START = 0x1000 };
#define KEY ((uint64_t)RKEY << 32 | SERIAL)

static struct hca hca;
static struct link of_peer;
static struct mapped_regions table;
static struct pub_regions regions; /* without the region, which has ended */
static uint64_t pages[4];

static void setup(void)
{
	struct mapped *place = place_of(&table, KEY);

	of_peer.hca = &hca;
	of_peer.regions = &regions;
	for (unsigned int i = 0; i < MAPPED_WISHES; i++)
		atomic_store(&of_peer.wishes.key[i], 0);
	atomic_store(&of_peer.places, &table);
	atomic_store(&place->key, KEY);
	atomic_store(&place->users, 0);
	place->base = (uint8_t *)pages;
	place->length = sizeof(pages);
	pages[0] = 0;
	model_word(&place->key, 8, "key");
	model_word(&place->users, 4, "users");
	model_memory(&place->base, sizeof(place->base));
	model_memory(pages, sizeof(pages));
}

static void clear_and_use(void)
{
	if (mapped_clear(&of_peer, place_of(&table, KEY)))
		pages[0] = 1;
}

static void copy_mapped(void)
{
	const struct mr_view view = {
		.start = START, .length = sizeof(pages), .file_serial = SERIAL};
	struct mapped *use;
	uint8_t *at = mapped_begin(&of_peer, RKEY, &view, START, sizeof(pages), &use);

	if (!at)
		return;
	if (*(uint64_t *)at) /* NOLINT */
		model_fail("what isn't mapped any more was read");
	mapped_end(use);
}

const struct model_scenario mapped_scenarios[] = {
	{"mapped.clear", setup, {clear_and_use, copy_mapped}, NULL},
	{0},
};
