/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage: sim [--from SEED] COUNT     runs seeds, the first to fail ends it
 *        sim --seed SEED [-v]        one seed; -v prints every packet
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int usage(void)
{
	fprintf(stderr, "usage: sim [--from SEED] COUNT | sim --seed SEED [-v]\n");
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t from = 1, count = 0;
	bool verbose = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-v")) {
			verbose = true;
		} else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
			from = strtoull(argv[++i], NULL, 0);
			count = 1;
		} else if (!strcmp(argv[i], "--from") && i + 1 < argc) {
			from = strtoull(argv[++i], NULL, 0);
		} else if (!count) {
			count = strtoull(argv[i], NULL, 0);
		} else {
			return usage();
		}
	}
	if (!count)
		return usage();
	for (uint64_t seed = from; seed < from + count; seed++) {
		sim_run(seed, verbose);
		if ((seed - from + 1) % 10000 == 0) {
			printf("%llu seeds\n", (unsigned long long)(seed - from + 1));
			fflush(stdout);
		}
	}
	if (count >= 1000 && !sim_totals_print()) {
		fprintf(stderr, "something wasn't met at all\n");
		return 1;
	}
	printf("%llu seeds from %llu: all hold\n", (unsigned long long)count,
	       (unsigned long long)from);
	return 0;
}
