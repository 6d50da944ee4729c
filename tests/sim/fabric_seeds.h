/* SPDX-License-Identifier: BSD-2-Clause */
/* What the simulations of the fabric share: dice that a seed determines, and a run of seeds. */
#ifndef TESTS_SIM_FABRIC_SEEDS_H
#define TESTS_SIM_FABRIC_SEEDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t dice;

static inline void dice_seed(uint64_t seed)
{
	dice = (seed + 1) * 0x9e3779b97f4a7c15u;
}

static inline uint32_t dice_roll(uint32_t sides)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)(dice >> 20) % sides;
}

/* Arguments: how many seeds (1000), and the first (0). Ends at the first that fails. */
static inline int seeds_run(int argc, char **argv, bool (*run)(uint64_t seed))
{
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;

	for (uint64_t seed = first; seed < first + count; seed++)
		if (!run(seed)) {
			printf("seed %llu fails\n", (unsigned long long)seed);
			return 1;
		}
	printf("%llu seeds\n", (unsigned long long)count);
	return 0;
}

#endif
