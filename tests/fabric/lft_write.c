/* SPDX-License-Identifier: BSD-2-Clause */
/* lft_write SWITCH-LID LID PORT: writes one entry of a switch's linear forwarding table. */
#include <infiniband/mad.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int classes[] = {IB_SMI_CLASS};
	struct ibmad_port *port = mad_rpc_open_port(NULL, 0, classes, 1);
	ib_portid_t target = {0};
	uint8_t block[64];
	unsigned int lid;

	if (argc != 4 || !port) {
		fprintf(stderr, "lft_write: no port, or not three arguments\n");
		return 2;
	}
	lid = (unsigned int)atoi(argv[2]);
	ib_portid_set(&target, atoi(argv[1]), 0, 0);
	if (!smp_query_via(block, &target, IB_ATTR_LINEARFORWTBL, lid / 64, 0, port)) {
		fprintf(stderr, "lft_write: cannot read the table\n");
		return 1;
	}
	block[lid % 64] = (uint8_t)atoi(argv[3]);
	if (!smp_set_via(block, &target, IB_ATTR_LINEARFORWTBL, lid / 64, 0, port)) {
		fprintf(stderr, "lft_write: cannot write the table\n");
		return 1;
	}
	mad_rpc_close_port(port);
	return 0;
}
