/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtual Ethernet segment of a device: frames of raw packet queue pairs between the processes
 * of one user (docs/raw.md).
 *
 * Which queue pairs get a frame is decided by the flow rules that the daemon publishes
 * (shm/flow_rules.h), by the same function at both ends: the sender finds the processes and puts a
 * record into the ring of each; a receiver finds which of its own queue pairs the frame is for. So
 * a sender that doesn't keep the rules can send a frame that no rule is for, which is dropped, but
 * can't choose its receiver.
 *
 * Owns hca.segment: a copy of the rules, sorted, under its lock. The copy is made anew when the
 * daemon's count of changes differs.
 */
#ifndef VERBENA_HCA_EXEC_SEGMENT_H
#define VERBENA_HCA_EXEC_SEGMENT_H

#include "base/thread_safety.h"
#include "hca/process/hca.h"
#include "shm/ring.h"

struct link;
struct send_wqe;

/* Makes hca.segment: 0 or -ENOMEM. */
int segment_make(struct hca *hca);
void segment_unmake(struct hca *hca);
/* In a forked child: another thread of the parent may have held the lock. */
void segment_leave(struct hca *hca);

/* Handles a frame that arrived by a link. qp.lock isn't held. */
void segment_take(struct hca *hca, struct link *link, const struct ring_header *h,
		  const uint8_t *frame, uint32_t room) REQUIRES(hca->engine);

/* The same for a frame that arrived by the device's interface (interface.h), in memory that nothing
 * else writes. */
void segment_take_outer(struct hca *hca, uint32_t device, const uint8_t *frame, uint32_t length)
	REQUIRES(hca->engine);

#endif
