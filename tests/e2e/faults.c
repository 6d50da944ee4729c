/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Correct and incorrect use of verbs, over every carrier within one host, with the status that an
 * adapter gives on both sides. The tests are in the files named in faults.h.
 */
#include <stdlib.h>
#include <string.h>

#include "faults.h"

int main(int argc, char **argv)
{
	static const struct rig_test *const tables[] = {
		data_tests,	    remote_tests,	 state_tests,	  queue_tests,
		loose_tests,	    dry_tests,		 unmapped_tests,  foreign_tests,
		file_tests,	    found_tests,	 behaviour_tests, dereg_tests,
		order_tests,	    away_tests,		 reach_tests,	  window_tests,
		window_wrong_tests, region_tests,	 dm_tests,	  odp_tests,
		domain_tests,	    placement_tests,	 xrc_tests,	  tag_tests,
		tag_wrong_tests,    tag_random_tests,	 ofed_tests,	  converted_tests,
		later_tests,	    window_mapped_tests, kept_tests,	  held_tests,
		places_tests,
	};
	struct rig_test *all = NULL;
	size_t count = 0;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		size_t more = 0;

		while (tables[i][more].name)
			more++;
		all = realloc(all, (count + more + 1) * sizeof(*all));
		if (!all)
			abort();
		/* With the mark at the table's end, which the next table replaces. */
		memcpy(all + count, tables[i], (more + 1) * sizeof(*all));
		count += more;
	}
	rig_main(argc, argv, all);
}
