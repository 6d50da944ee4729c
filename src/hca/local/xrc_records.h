/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC within the host, the target's side: records that initiators send to SRQs of this process, and
 * the stand-ins that execute them (exec/xrc_target.h). The initiator's side is xrc_carrier.h.
 *
 * Owns nothing: the stand-ins are in struct xrc_here. Everything here is under hca.engine.
 */
#ifndef VERBENA_HCA_LOCAL_XRC_RECORDS_H
#define VERBENA_HCA_LOCAL_XRC_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/exec/xrc_target.h"

/* Handles a record with REC_XRC, which it clears. */
void xrc_take_record(struct hca *hca, struct link *link, struct ring_header *h,
		     const uint8_t *payload, uint32_t room);
/* Calls `what` for each stand-in that is connected by the link. */
void xrc_for_each_of_link(struct hca *hca, const struct link *link, void (*what)(struct qp *qp));
/* Ends, or stops, the stand-ins of a target queue pair that has changed. */
void xrc_local_follow(struct hca *hca, uint32_t qpn);

/* Whether the stand-in has a message that waits for a receive. */
bool xrc_local_waits(const struct qp *qp) REQUIRES(qp->lock);
/* Refuses that message. */
void xrc_local_refuse(struct qp *qp) REQUIRES(qp->lock);

#endif
