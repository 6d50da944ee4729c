/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a link: what two processes of a host share. Made, sized and sealed by the daemon,
 * mapped by both, the descriptor closed after mapping. All zero at first: that is an empty link.
 * ring[s] is written by side s and read by the other side.
 */
#ifndef VERBENA_SHM_LINK_H
#define VERBENA_SHM_LINK_H

#include "shm/ring.h"

struct link_memory {
	struct ring_ctl ctl[2];
	/* Side s has the link and looks for the other's hazards. Written by side s, once, after its
	 * link is up; read by the other before its first copy                        [I1 with I2].
	 * Written also before side s looks whether the other's QPs wait for its KICK [Q2], and read
	 * after these have published their state [Q1]: the one that is late learns of the other.
	 */
	_Alignas(64) _Atomic uint32_t installed[2];
	_Alignas(4096) uint8_t ring[2][RING_BYTES];
};

#define LINK_SIZE sizeof(struct link_memory)
_Static_assert(LINK_SIZE <= 256 * 1024, "a link is small and touched lazily");

#endif
