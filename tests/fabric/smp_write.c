/* SPDX-License-Identifier: BSD-2-Clause */
/* smp_write LID ATTRIBUTE MODIFIER OFFSET HEX...: reads an attribute of a port by LID, replaces
 * bytes of it, each time as many as are given from an offset on, and writes it. */
#include <infiniband/mad.h>
#include <stdio.h>
#include <stdlib.h>

static void bytes_put(uint8_t data[64], unsigned int offset, const char *text)
{
	for (; text[0] && text[1] && offset < 64; text += 2) {
		char two[] = {text[0], text[1], 0};

		data[offset++] = (uint8_t)strtoul(two, NULL, 16);
	}
}

int main(int argc, char **argv)
{
	int classes[] = {IB_SMI_CLASS};
	struct ibmad_port *port = mad_rpc_open_port(NULL, 0, classes, 1);
	ib_portid_t target = {0};
	uint8_t data[64];
	unsigned int attribute, modifier;

	if (argc < 6 || argc % 2 || !port) {
		fprintf(stderr, "smp_write: no port, or another number of arguments\n");
		return 2;
	}
	attribute = (unsigned int)strtoul(argv[2], NULL, 0);
	modifier = (unsigned int)strtoul(argv[3], NULL, 0);
	ib_portid_set(&target, atoi(argv[1]), 0, 0);
	if (!smp_query_via(data, &target, attribute, modifier, 0, port)) {
		fprintf(stderr, "smp_write: cannot read\n");
		return 1;
	}
	if (attribute == IB_ATTR_PORT_INFO) { /* no change of the port's states */
		data[32] &= 0xf0;
		data[33] &= 0x0f;
	}
	for (int i = 4; i < argc; i += 2)
		bytes_put(data, (unsigned int)strtoul(argv[i], NULL, 0), argv[i + 1]);
	if (!smp_set_via(data, &target, attribute, modifier, 0, port)) {
		fprintf(stderr, "smp_write: cannot write\n");
		return 1;
	}
	mad_rpc_close_port(port);
	return 0;
}
