/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which packets the requester retransmits after a loss. To most peers it repeats everything from
 * the oldest unacknowledged packet on (go-back-N). To a peer that keeps out-of-order packets
 * (early.h) it repeats only the missing packet; if that isn't enough, or recent holes were large,
 * it repeats up to one burst. New packets continue to be sent meanwhile.
 *
 * This file decides what is retransmitted, and whether a report of a loss is new; requester_send.c
 * sends it. Its state is in struct requester: the fields from `again` to `arrived`, `hole` and
 * `repeat`. It has no timers, threads or locks: the code that detects a loss calls it.
 */
#ifndef VERBENA_TRANSPORT_REPAIR_H
#define VERBENA_TRANSPORT_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

struct tp;

/* Retransmits everything from `una` on although nothing was lost (RNR). */
void repair_rewind(struct tp *tp, uint64_t now);
/* Retransmits everything from `una` on because `una` was lost. Does nothing if the requester has
 * gone back for this loss already: the report may have been in flight for `echo_ns` at that
 * time. */
void repair_go_back(struct tp *tp, uint64_t echo_ns, uint64_t now);
/* The peer has received later packets than `una`, but not `una`. `echo_ns` as above. */
void repair_missing(struct tp *tp, uint64_t echo_ns, uint64_t now);
/* No answer came for a while: sends `una`, or the hole that begins with it, again next. */
void repair_probe(struct tp *tp);
/* A missing packet arrived while a hole was known. `repeated`: it can only have
 * arrived so soon because it was repeated; `alone`: no packet after it had arrived. In the latter
 * case more may be missing: then that is repeated, and the result is true. */
bool repair_arrived(struct tp *tp, bool repeated, bool alone, uint64_t now);
/* The peer repeated its last acknowledgement. */
void repair_kept(struct tp *tp);

#endif
