/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Correct and incorrect use of verbs, over every carrier within one host, with the status that an
 * adapter gives on both sides. The tests are in the files named in faults.h.
 */
#include "faults.h"

enum { TESTS_MAX = 320 };

int main(int argc, char **argv)
{
	static const struct rig_test *const tables[] = {
		data_tests,	  remote_tests,	      state_tests,     queue_tests, loose_tests,
		dry_tests,	  unmapped_tests,     foreign_tests,   file_tests,  found_tests,
		behaviour_tests,  dereg_tests,	      order_tests,     away_tests,  reach_tests,
		window_tests,	  window_wrong_tests, region_tests,    dm_tests,    odp_tests,
		domain_tests,	  placement_tests,    xrc_tests,       tag_tests,   tag_wrong_tests,
		tag_random_tests, ofed_tests,	      converted_tests, kept_tests,  held_tests,
	};
	static struct rig_test all[TESTS_MAX + 1];
	unsigned int count = 0;

	for (unsigned int i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct rig_test *test = tables[i]; test->name && count < TESTS_MAX;
		     test++)
			all[count++] = *test;
	rig_main(argc, argv, all);
}
