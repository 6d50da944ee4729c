/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a link: what two processes of a host share. The daemon makes, sizes and seals it;
 * both processes map it and close the descriptor then. It begins as zeros: an empty link.
 * ring[s] is written by side s and read by the other side.
 */
#ifndef VERBENA_SHM_LINK_H
#define VERBENA_SHM_LINK_H

#include "shm/ring.h"

struct link_memory {
	struct ring_ctl ctl[2];
	/* Side s has mapped the link and waits for the other's hazards. Written by side s, once,
	 * after its link is up; read by the other before its first copy              [I1 with I2].
	 * Also: side s writes it before it checks whether the other's QPs wait for its KICK [Q2];
	 * the other reads it after its QPs have published their state [Q1]. The later one of the
	 * two sees the other's store.
	 */
	_Alignas(64) _Atomic uint32_t installed[2];
	/*
	 * Side s has left the link, which has ended: no thread of it is in a copy by the link, and
	 * none will begin one. Written by side s, once [V1]; then it rings the other side's
	 * doorbell.
	 *
	 * The invariant: as long as side s may still begin a copy by the link, a deregistration of
	 * the other side sees the hazards of s. The other side, which has left itself, keeps the
	 * tables of s mapped until it finds
	 *   left[s] set [V2], which comes after all copies of s; or
	 *   installed[s] not set [V4]: s isn't up, and will find that the other side has left [V3]
	 *   before its first copy, because all of [I1], [V1], [V3], [V4] are seq_cst; or
	 *   that the process of s has ended.
	 */
	_Atomic uint32_t left[2];
	/*
	 * The number of the other side's regions that side s has mapped, or is about to map [M3];
	 * written by side s, read by the other one when a region ends [M4], which then asks side s,
	 * by `ended` and its doorbell, to look at its mappings [M5 with M6]. hca/mem/mapped.h. A
	 * side that lies keeps the other's freed files in memory, as it could by a descriptor.
	 */
	_Atomic uint32_t maps[2];
	_Atomic uint32_t ended[2];
	/*
	 * The number of times that side s has written straight into the other side's memory (RDMA
	 * WRITE by a copy or a mapping): a sign of work for the other side's pollers, which no
	 * record announces.
	 *
	 * Written by side s only, after the copy, by a load and a store without a lock and without
	 * a barrier: it must cost the writer nothing. So two threads of side s may count one write
	 * together, and a reader may see the count before the bytes or after them. Read by the
	 * other side's pollers before they nap (lease.c); a change prevents a nap, and nothing
	 * else depends on it. A side that ends leaves the count as it is; a side that counts
	 * without writing keeps the other's pollers awake, which it can do by records, too. In a
	 * link of a process to itself both sides are side 0.
	 */
	struct {
		_Alignas(64) _Atomic uint32_t count;
	} touched[2];
	_Alignas(4096) uint8_t ring[2][RING_BYTES];
};

#define LINK_SIZE sizeof(struct link_memory)
_Static_assert(LINK_SIZE <= 256 * 1024, "a link is small and touched lazily");

#endif
