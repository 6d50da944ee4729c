/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma(8) for programs of `verbena run`; see rdma.h. A program of its own, because PATH finds it by
 * its name. */
#include "cli/rdma.h"

int main(int argc, char **argv)
{
	return rdma_run(argc, argv);
}
