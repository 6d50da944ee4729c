/* SPDX-License-Identifier: BSD-2-Clause */
/* Cached ICRCs of headers equal computed ones, in any sequence of sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/begun.h"
#include "wire/packet.h"

static const struct icrc_path paths[] = {
	{
		.source = {[10] = 0xff, 0xff, 10, 77, 0, 2},
		.destination = {[10] = 0xff, 0xff, 10, 77, 0, 3},
		.source_port = 0xd872,
		.destination_port = WIRE_PORT,
	},
	{
		.source = {[10] = 0xff, 0xff, 10, 77, 0, 2},
		.destination = {[10] = 0xff, 0xff, 10, 77, 0, 3},
		.source_port = 0xd873,
		.destination_port = WIRE_PORT,
	},
	{
		.source = {0xfe, 0x80, [15] = 1},
		.destination = {0xfe, 0x80, [15] = 2},
		.source_port = 0xd872,
		.destination_port = WIRE_PORT,
	},
};

static void same(struct net_begun *all, const struct icrc_path *path, uint32_t size, uint32_t place)
{
	assert_int_equal(net_begun(all, path, size, place), icrc_begin(path, size, place));
}

/* Two sizes alternately, as in a stream of WRITEs: neither evicts the other. */
static void two_sizes(void **state)
{
	struct net_begun all = {0};

	(void)state;
	for (int message = 0; message < 3; message++) {
		same(&all, &paths[0], 4128, 0);
		for (uint32_t place = 0; place < 15; place++)
			same(&all, &paths[0], 4112, place);
	}
	assert_int_equal(all.kept[0].count + all.kept[1].count, 1 + 15);
}

static void anything(void **state)
{
	static const uint32_t sizes[] = {20, 24, 4112, 4128};
	struct net_begun all = {0};
	uint32_t random = 1;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		random = random * 1664525 + 1013904223;
		const struct icrc_path *path = &paths[(random >> 28) % 3];
		uint32_t size = sizes[random >> 26 & 3];
		uint32_t place = (random >> 16) % (NET_BEGUN_PLACES + 8);

		same(&all, path, size, place);
		if (place >= NET_BEGUN_PLACES)
			continue;
		place = random >> 8 & 1 ? place + 1 : 0; /* the next one of a burst */
		assert_int_equal(net_begun_next(&all, path, size, place),
				 icrc_begin(path, size, (uint16_t)place));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_sizes),
		cmocka_unit_test(anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
