/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulators' front end, see seeds.h. */
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"

enum { PROGRESS_EVERY = 10000 };

#ifdef COUNTERS_DRAWN
uint32_t counter_lead;

/* Three of four runs pass the end of each counter that rises by about 8, 128 or 2048 in it. Not one
 * of the run's own random numbers: a seed stands for the same run whatever its counters are. */
static void draw_lead(uint64_t seed)
{
	static const uint32_t most[] = {8, 128, 2048, UINT32_MAX};
	uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9ull;
	counter_lead = (uint32_t)(z >> 32) % most[z >> 30 & 3];
}
#else
static void draw_lead(uint64_t seed)
{
	(void)seed;
}
#endif

struct options {
	uint64_t from, count;
	bool verbose;
};

static bool options_read(int argc, char **argv, struct options *options)
{
	*options = (struct options){.from = 1};
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-v")) {
			options->verbose = true;
		} else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
			options->from = strtoull(argv[++i], NULL, 0);
			options->count = 1;
		} else if (!strcmp(argv[i], "--from") && i + 1 < argc) {
			options->from = strtoull(argv[++i], NULL, 0);
		} else if (!options->count) {
			options->count = strtoull(argv[i], NULL, 0);
		} else {
			return false;
		}
	}
	return options->count != 0;
}

int seeds_main(int argc, char **argv, const struct seeds *seeds)
{
	struct options o;

	if (!options_read(argc, argv, &o)) {
		fprintf(stderr, "usage: %s [--from SEED] COUNT | %s --seed SEED [-v]\n",
			seeds->program, seeds->program);
		return 2;
	}
	for (uint64_t n = 0; n < o.count; n++) {
		draw_lead(o.from + n);
		seeds->run(o.from + n, o.verbose);
		if ((n + 1) % PROGRESS_EVERY == 0) {
			printf("%llu seeds\n", (unsigned long long)n + 1);
			fflush(stdout);
		}
	}
	if (o.count >= SEEDS_TOTALS && !seeds->totals_print()) {
		fprintf(stderr, "something wasn't met at all\n");
		return 1;
	}
	printf("%llu seeds from %llu: all hold\n", (unsigned long long)o.count,
	       (unsigned long long)o.from);
	return 0;
}
