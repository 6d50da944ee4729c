/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier: RC and UC between processes of a host, or within one (self), by the records of
 * a link (record.h) and by copies from process to process. What happens when is the core's
 * (core/local_qp.h); local_world.c is what the core needs of the rest. Here: what the engine and
 * the links call. carrier.h says what the QPs call.
 */
#ifndef VERBENA_HCA_LOCAL_LOCAL_CARRIER_H
#define VERBENA_HCA_LOCAL_LOCAL_CARRIER_H

#include <stdint.h>

#include "hca/local/record.h"

struct hca;
struct link;
struct qp;

/* ---- hca.engine is held */
/* A record that arrived by `link`. `room`: how many bytes of the ring `payload` is at most. */
void local_take_record(struct hca *hca, struct link *link, const struct ring_header *h,
		       const uint8_t *payload, uint32_t room);
/* Sends the acknowledgements that found no record to travel with since the last pass. */
void local_flush_acks(struct hca *hca);
/* Timers of messages that wait for a receive. Returns when to look again (ns; UINT64_MAX: never).
 */
uint64_t local_scan_receivers(struct hca *hca, uint64_t now);

/* ---- hca.engine and qp.lock are held */
/* The link's memory is another one than before, or goes: the peer must be told again that the QP
 * is ready. */
void local_relink(struct qp *qp);
/* From now on the peer may copy by the link: it is told again. */
void local_announce(struct qp *qp);

#endif
