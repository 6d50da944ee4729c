/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the requester sends again because it was lost. To most peers that is everything from the
 * oldest packet on that isn't acknowledged (go-back-N); where the peer keeps what comes after it
 * (early.h), only what is missing: that packet alone; if that isn't enough, or holes were large
 * lately, as much as a burst holds. Meanwhile new packets go on.
 *
 * Here it is decided what goes out again, and whether news of a loss is news; requester_send.c
 * sends it. What is remembered for that are the fields of struct requester from `again` to
 * `arrived`, `hole` and `repeat`. No timers, threads or locks: whoever learns of a loss calls.
 */
#ifndef VERBENA_TRANSPORT_REPAIR_H
#define VERBENA_TRANSPORT_REPAIR_H

#include <stdbool.h>
#include <stdint.h>

struct tp;

/* Everything from `una` on goes out again, though nothing was lost (RNR). */
void repair_rewind(struct tp *tp, uint64_t now);
/* The same because `una` was lost; unless that is known: the news may have been under way for
 * `echo_ns` when we went back the last time. */
void repair_go_back(struct tp *tp, uint64_t echo_ns, uint64_t now);
/* The peer has got later packets than `una`, and not that one; `echo_ns` as above. */
void repair_missing(struct tp *tp, uint64_t echo_ns, uint64_t now);
/* Nothing was heard for a while: `una`, or the hole that begins with it, goes out again next. */
void repair_probe(struct tp *tp);
/* While a hole is known: what was missing has arrived; `repeated`: because it was repeated, which
 * hadn't happened yet else; `alone`: and nothing after it had. That may be because more is missing:
 * then that is repeated, and the answer is true. */
bool repair_arrived(struct tp *tp, bool repeated, bool alone, uint64_t now);
/* The peer acknowledged once more what it had acknowledged. */
void repair_kept(struct tp *tp);

#endif
