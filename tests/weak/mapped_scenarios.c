/* SPDX-License-Identifier: BSD-2-Clause */
/* Removal of a mapping of a peer's region that has ended: the control thread (0) unmaps it while a
 * thread (1) may be copying through it, by the region's key or by a window's. Afterwards another
 * mapping may use the address. */
#include "scenarios.h"

#include "hca/mem/mapped.c"

enum { SLOT = 4, RKEY = 5 << LIMIT_KEY_TAG_BITS | 1, SERIAL = 7, START = 0x1000 };
enum { WINDOW = 9, WINDOW_KEY = WINDOW << LIMIT_KEY_TAG_BITS | 4, PD = 3 };
#define KEY ((uint64_t)RKEY << 32 | SERIAL)

static struct hca hca;
static struct link of_peer;
static struct mapped_regions table;
static struct pub_regions regions; /* without the region, which has ended */
static struct pub_regions own_regions;
static struct link_memory memory;
static uint64_t pages[4];

static void setup(void)
{
	struct mapped *place = place_of(&table, KEY);

	of_peer.hca = &hca;
	hca.regions = &own_regions;
	of_peer.memory = &memory;
	of_peer.slot = SLOT;
	memset(own_regions.hazard, 0, sizeof(own_regions.hazard));
	memset(&memory, 0, offsetof(struct link_memory, ring));
	of_peer.regions = &regions;
	for (unsigned int i = 0; i < MAPPED_WISHES; i++)
		atomic_store(&of_peer.wishes.key[i], 0);
	atomic_store(&of_peer.places, &table);
	atomic_store(&place->key, KEY);
	place->base = (uint8_t *)pages;
	place->at = START;
	table.passed[place - table.place] = 0;
	atomic_store(&place->length, sizeof(pages));
	pages[0] = 0;
	model_word(&place->key, 8, "key");
	model_word(&place->length, 8, "length");
	model_word(&own_regions.hazard[0].target, 8, "hazard");
	model_memory(&place->base, sizeof(place->base));
	model_memory(pages, sizeof(pages));
}

static void clear_and_use(void)
{
	bool busy = false;

	if (mapped_clear(&of_peer, &table, place_of(&table, KEY), &busy))
		pages[0] = 1;
	else if (!busy)
		model_fail("a region that has ended counts as registered");
}

static void copy_from(const struct mr_view *view)
{
	uint8_t *at = mapped_at(&of_peer, view, START, sizeof(pages));

	if (at && *(uint64_t *)at) /* NOLINT */
		model_fail("what isn't mapped any more was read");
}

static void copy_mapped(void)
{
	const struct mr_view view = {
		.start = START, .length = sizeof(pages), .region = RKEY, .file_serial = SERIAL};
	_Atomic uint64_t *hazard = hazard_set(&hca, SLOT, RKEY);

	copy_from(&view);
	hazard_clear(hazard);
}

/* The region has ended, and yet its owner lets a window stay, which no library does. */
static void window_setup(void)
{
	struct pub_mr *e = &regions.mr[WINDOW];

	setup();
	e->length = sizeof(pages);
	e->offset = START;
	e->pd = PD | PUB_MR_WINDOW;
	e->window_region = RKEY;
	e->file_serial = SERIAL;
	e->rkey_access = (uint64_t)IBV_ACCESS_REMOTE_READ << 32 | WINDOW_KEY;
}

/* Two copies, so that the second one's hazard may be what the control thread sees of the place. */
static void copy_through_window(void)
{
	for (int i = 0; i < 2; i++) {
		_Atomic uint64_t *hazard = hazard_set(&hca, SLOT, WINDOW_KEY);
		struct mr_view view = {0};

		if (!mr_read(&regions, WINDOW_KEY, &view) ||
		    !(view.region = mr_window_region(&regions, WINDOW_KEY, &view, PD, 1)))
			model_fail("the window isn't granted");
		copy_from(&view);
		hazard_clear(hazard);
	}
}

/* ------------------------------------------------------------------ the owner asks */

static struct link of_initiator; /* the owner's */
static bool found_registered;
static uint64_t done_before;

static void end_setup(void)
{
	of_peer.hca = of_initiator.hca = &hca;
	of_peer.memory = of_initiator.memory = &memory;
	of_initiator.side = 1;
	of_initiator.regions = &own_regions;
	of_initiator.doorbell = 0;
	atomic_store(&of_initiator.state, LINK_UP);
	memset(&memory, 0, offsetof(struct link_memory, ring));
	atomic_store(&regions.mr[RKEY >> LIMIT_KEY_TAG_BITS].rkey_access, RKEY);
	found_registered = false;
	model_word(&regions.mr[RKEY >> LIMIT_KEY_TAG_BITS].rkey_access, 8, "rkey_access");
	model_word(&memory.maps[0], 4, "maps");
	model_word(&memory.ended[0], 4, "ended");
	done_before = 0;
	model_memory(&done_before, sizeof(done_before));
}

/* What the owner did before it asked happens before what the initiator does then. */
static void end_and_ask(void)
{
	mr_entry_clear(&regions.mr[RKEY >> LIMIT_KEY_TAG_BITS]);
	done_before = 1;
	tell_ended(&hca, &of_initiator);
}

static void count_and_map(void)
{
	struct mr_view view;

	mapped_count_here(&of_peer, 1);
	found_registered = mr_read(&regions, RKEY, &view);
	if (atomic_load_explicit(&memory.ended[0], memory_order_acquire) && !done_before)
		model_fail("asked too early");
}

static void was_asked(void)
{
	if (found_registered && atomic_load(&memory.ended[0]) == 0)
		model_fail("the owner asks nobody, and the region is mapped");
}

const struct model_scenario mapped_scenarios[] = {
	{"mapped.clear", setup, {clear_and_use, copy_mapped}, NULL},
	{"mapped.window", window_setup, {clear_and_use, copy_through_window}, NULL},
	{"mapped.end", end_setup, {end_and_ask, count_and_map}, was_asked},
	{0},
};
