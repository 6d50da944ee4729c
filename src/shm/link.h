/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of a link: what two processes of a host share. The daemon makes, sizes and seals it;
 * both processes map it and close the descriptor then. It begins as zeros: an empty link.
 * ring[s] is written by side s and read by the other side.
 */
#ifndef VERBENA_SHM_LINK_H
#define VERBENA_SHM_LINK_H

#include "shm/ring.h"

/* Of struct link_memory, `part`. */
enum link_memory_part { LINK_PART_OPEN, LINK_PART_TAKEN, LINK_PART_SHUT };

struct link_memory {
	struct ring_ctl ctl[2];
	/*
	 * Whether side s takes part in the link. The two sides come to the link at different times,
	 * and one may leave it before the other has come: the daemon was killed after it had told
	 * the one of the link, and before it told the other. It is decided once:
	 *   OPEN -> TAKEN  by side s, before its link is up. From then on it may take records from
	 *                  the other side's ring, and may copy
	 *   OPEN -> SHUT   by the other side, which leaves. If side s hears of the link at all, it
	 *                  refuses it
	 *
	 * The invariant: if the other side has made it SHUT, then side s has taken nothing that the
	 * other side wrote into the ring, and has copied nothing, and never will. So the other side
	 * sends its requests again by the next link, and none is executed twice.
	 *
	 * Each change is one compare-and-swap from OPEN, so one of the two fails, and the side
	 * whose change fails knows which of the two came first. Nothing else that is shared depends
	 * on the order, so both are relaxed: a side that refuses the link looks at nothing else of
	 * it, and one that has shut it writes nothing more. A side that dies after its change
	 * leaves it as it is: after TAKEN the other side waits for `left` or for that end, after
	 * SHUT side s has nothing to wait for.
	 *
	 * A side that lies harms its own connections only. If side s takes TAKEN back, the other
	 * side sends requests again that s has executed; they reach the memory and the receives of
	 * s alone, and complete once where they were posted. If a side sets its own or the other
	 * word to SHUT, the two have no link until they ask for the next one.
	 */
	_Alignas(64) _Atomic uint32_t part[2];
	/* Side s has mapped the link and waits for the other's hazards. Written by side s, once,
	 * after its link is up; read by the other before its first copy              [I1 with I2].
	 * Also: side s writes it before it checks whether the other's QPs wait for its KICK [Q2];
	 * the other reads it after its QPs have published their state [Q1]. The later one of the
	 * two sees the other's store.
	 */
	_Atomic uint32_t installed[2];
	/*
	 * Side s has left the link, which has ended: no thread of it is in a copy by the link, and
	 * none will begin one. Written by side s, once [V1]; then it rings the other side's
	 * doorbell.
	 *
	 * The invariant: as long as side s may still begin a copy by the link, a deregistration of
	 * the other side sees the hazards of s. The other side, which has left itself, keeps the
	 * tables of s mapped until it finds
	 *   left[s] set [V2], which comes after all copies of s; or
	 *   part[s] OPEN, and makes it SHUT: s never copies; or
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
