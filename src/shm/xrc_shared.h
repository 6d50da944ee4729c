/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the processes of a user share of each XRC target queue pair that gets packets (docs/xrc.md):
 * the state of its responder, of which one process at a time, the holder, has the use.
 *
 * It is one memory file for each user, made by the daemon at the user's first domain and mapped by
 * each of the user's processes that opens a domain. The daemon never reads or maps it: it gives a
 * place to each target queue pair at each RESET (proto_xrc_state.place), and empties places that it
 * takes back. A place isn't given out again soon, so a process that hasn't heard of a RESET yet
 * works on a place that no other process reads.
 *
 *   written    by                                                     and then
 *   is, responder  the process that gets the packets, when it begins  epoch (release) [Y1]
 *   responder  the holder                                             holder (release) [Y3]
 *   holder     the holder, which hands the responder on; or the
 *              process that gets the packets, if the holder is dead
 *
 * A process reads `epoch` (acquire [Y2]) before it uses `is` or the responder, and `holder`
 * (acquire [Y4]) before it uses the responder: it may, if that is its own slot.
 *
 * A holder may be killed between any two stores. What it was executing was for an SRQ of its own,
 * which has ended with it, so the message's next packet is refused, whatever the state says about
 * the message; `expected` and `msn` change between packets only.
 *
 * The user's own processes can write nonsense here. A core that reads it answers nonsense to the
 * peer; it indexes nothing by it without a bound.
 */
#ifndef VERBENA_SHM_XRC_SHARED_H
#define VERBENA_SHM_XRC_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

#include "proto/limits.h"
#include "proto/proto.h"

/* More places than target queue pairs, so that places that were given back stay unused for a
 * while. */
enum { XRC_SHARED_PLACES = 2 * LIMIT_XRC_TARGETS, XRC_SHARED_RESPONDER = 7168 };

struct xrc_shared {
	_Alignas(64) _Atomic uint32_t epoch;  /* of the queue pair; 0: nothing is here yet */
	_Alignas(64) _Atomic uint32_t holder; /* a slot */
	struct proto_xrc_state is;	      /* as the queue pair was connected */
	_Alignas(64) uint8_t responder[XRC_SHARED_RESPONDER];
	_Alignas(64) uint8_t reserved[704];
};
_Static_assert(sizeof(struct xrc_shared) == 8192, "pages of its own");

#define XRC_SHARED_BYTES ((size_t)XRC_SHARED_PLACES * sizeof(struct xrc_shared))

#endif
