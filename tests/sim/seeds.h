/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulators' front end: runs seeds, and checks that the runs covered enough. */
#ifndef VERBENA_TESTS_SIM_SEEDS_H
#define VERBENA_TESTS_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

struct seeds {
	const char *program;
	/* Runs one seed; ends the process when a check fails. */
	void (*run)(uint64_t seed, bool verbose);
	/* Prints the coverage of the runs. False: some required situation never occurred. */
	bool (*totals_print)(void);
};

/*
 * usage: PROGRAM [--from SEED] COUNT     runs seeds, the first to fail ends it
 *        PROGRAM --seed SEED [-v]        one seed; -v prints every step
 * Where counters begin (base/counter.h) is drawn from the seed, too.
 * From SEEDS_TOTALS seeds on the totals are printed and must be complete.
 */
enum { SEEDS_TOTALS = 1000 };
int seeds_main(int argc, char **argv, const struct seeds *seeds);

#endif
