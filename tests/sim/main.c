/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulator of the transport core; its options are in seeds.h. */
#include "seeds.h"
#include "sim.h"

int main(int argc, char **argv)
{
	static const struct seeds seeds = {"sim", sim_run, sim_totals_print};

	return seeds_main(argc, argv, &seeds);
}
