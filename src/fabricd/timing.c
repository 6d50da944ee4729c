/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See timing.h. The memory is a sealed memory file, sparse: what no packet passes takes none. A
 * verbena-fabric that goes on after another one makes a new file, and the processes take it when
 * they join again; what was waited and not counted until then is lost.
 */
#include "fabricd/timing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int timing_begin(struct server *server)
{
	const struct fabric_header *header = server->fabric.header;
	struct timing *timing = &server->timing;
	size_t bytes = clocks_bytes(header->ports);
	void *memory = MAP_FAILED;

	timing->file = -1;
	timing->taken = calloc((size_t)header->ports * FABRIC_VLS, sizeof *timing->taken);
	timing->file = memfd_create("verbena-clocks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (!timing->taken || timing->file < 0)
		return timing->taken ? -errno : -ENOMEM;
	if (!ftruncate(timing->file, (off_t)bytes) &&
	    !fcntl(timing->file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, timing->file, 0);
	if (memory == MAP_FAILED)
		return -errno;
	clocks_locate(&timing->clocks, memory, header->ports, header->slow);
	return 0;
}

static void lane_fold(struct server *server, uint32_t port, uint8_t vl)
{
	struct timing *timing = &server->timing;
	uint64_t *taken = &timing->taken[(size_t)port * FABRIC_VLS + vl];
	uint64_t ticks = clocks_wait_ticks(&timing->clocks, port, vl);
	uint64_t more =
		ticks > *taken ? ticks - *taken : 0; /* a process may write anything there */

	*taken = ticks;
	if (more)
		fabric_wait_add(&server->fabric, port, vl,
				more < UINT32_MAX ? (uint32_t)more : UINT32_MAX);
}

void timing_fold(struct server *server)
{
	const struct clocks *clocks = &server->timing.clocks;

	if (!clocks->slow)
		return;
	for (uint32_t first = 0; first < clocks->ports; first += 64) {
		uint64_t bits = __atomic_load_n(&clocks->touched[first / 64], __ATOMIC_RELAXED);

		for (; bits; bits &= bits - 1) {
			uint32_t port = first + (uint32_t)__builtin_ctzll(bits);

			for (uint8_t vl = 0; vl < FABRIC_VLS && port < clocks->ports; vl++)
				lane_fold(server, port, vl);
		}
	}
}
