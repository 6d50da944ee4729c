/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a management datagram takes to a switch and back: asks the node behind the first port of
 * this machine's first device for NodeInfo, again and again, with some requests under way at once.
 * It knows nothing but libibumad, so that it measures a simulator as well.
 *
 *   smps COUNT WINDOW [PORT]    PORT: of the device
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/umad.h>

enum { MAD_BYTES = 256, TIMEOUT_MS = 1000, CLASS_DIRECTED = 0x81 };

struct asking {
	int fd, agent, port;
	uint8_t *packet;
	uint32_t sent;
};

static int ask(struct asking *asking)
{
	uint8_t *mad = umad_get_mad(asking->packet);
	uint32_t tid = ++asking->sent;

	memset(asking->packet, 0, umad_size() + MAD_BYTES);
	umad_set_addr(asking->packet, 0xffff, 0, 0, 0);
	mad[0] = mad[2] = mad[3] = 1;
	mad[1] = CLASS_DIRECTED;
	mad[7] = 1; /* hops */
	for (int i = 0; i < 4; i++)
		mad[12 + i] = (uint8_t)(tid >> (24 - 8 * i));
	mad[17] = 0x11; /* NodeInfo */
	memset(mad + 32, 0xff, 4);
	mad[129] = (uint8_t)asking->port;
	return umad_send(asking->fd, asking->agent, asking->packet, MAD_BYTES, TIMEOUT_MS, 0);
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int ask_all(struct asking *asking, uint32_t count, uint32_t window)
{
	uint32_t answered = 0;

	while (answered < count) {
		int length = MAD_BYTES, result;

		while (asking->sent < count && asking->sent - answered < window) {
			result = ask(asking);
			if (result)
				return result;
		}
		result = umad_recv(asking->fd, asking->packet, &length, 2 * TIMEOUT_MS);
		if (result < 0 || umad_status(asking->packet))
			return -ETIMEDOUT;
		answered++;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct asking asking = {.port = argc > 3 ? atoi(argv[3]) : 1};
	uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	uint32_t window = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	double begin;

	if (!count || !window) {
		fputs("usage: smps COUNT WINDOW [PORT]\n", stderr);
		return 2;
	}
	umad_init();
	asking.packet = calloc(1, umad_size() + MAD_BYTES);
	asking.fd = umad_open_port(NULL, 0);
	asking.agent = asking.fd < 0 ? -1 : umad_register(asking.fd, CLASS_DIRECTED, 1, 0, NULL);
	if (!asking.packet || asking.agent < 0) {
		fputs("smps: there is no device, or it can't be used\n", stderr);
		return 1;
	}
	begin = seconds();
	if (ask_all(&asking, count, window)) {
		fputs("smps: a request got no answer\n", stderr);
		return 1;
	}
	printf("smp_us %.3f\n", (seconds() - begin) * 1e6 / count);
	/* Without exit handlers: those of ibsim's library free what they mustn't. */
	fflush(stdout);
	_exit(0);
}
