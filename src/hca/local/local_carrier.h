/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier: RC and UC between processes of a host, or within one (self), by the records of
 * a link (record.h) and by copies from process to process. The core (core/local_qp.h) decides what
 * happens when; local_world.c is what it needs of its surroundings. This header has what the engine
 * and the links call; carrier.h has what the QPs call.
 */
#ifndef VERBENA_HCA_LOCAL_LOCAL_CARRIER_H
#define VERBENA_HCA_LOCAL_LOCAL_CARRIER_H

#include <stdint.h>

#include "hca/local/record.h"
#include "hca/verbs/qp.h"

struct hca;
struct link;
struct qp;

/* ---- hca.engine is held */
/* Handles the records that are in the link's ring, `most` at most: returns how many. *error becomes
 * -EPROTO if the peer broke the ring's rules. */
unsigned int local_take_records(struct hca *hca, struct link *link, unsigned int most, int *error);
/* Sends the acknowledgements that no record has carried since the last pass. */
void local_flush_acks(struct hca *hca);
/* The same when the process exits (process/exit.c): `take` takes a QP's lock, or gives up; then
 * that QP's acknowledgement isn't sent. */
void local_flush_acks_by(struct hca *hca, bool (*take)(struct lock *lock));
/* Handles timers of messages that wait for a receive, and acknowledges what they let go on, because
 * no pass may follow. Returns when to look again (ns; UINT64_MAX: never). */
uint64_t local_scan_receivers(struct hca *hca, uint64_t now);

/* ---- hca.engine and qp.lock are held */
/* An XRC initiator's connection has taken a record: goes on with another connection, if it is its
 * turn (xrc_carrier.c). */
void xrc_go_on(struct qp *qp) REQUIRES(qp->lock);
/* The link's memory is about to be replaced or given back: the QP must announce again to the peer
 * that it is ready. */
void local_relink(struct qp *qp) REQUIRES(qp->lock);
/* The same, and the peer never came to the link: what was sent by it is sent again by the next. */
void local_untaken(struct qp *qp) REQUIRES(qp->lock);
/* Sends the peer another KICK, since it may copy by the link from now on. */
void local_announce(struct qp *qp) REQUIRES(qp->lock);

#endif
