/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier: RC and UC between processes of a host, or within one (self), by the records of
 * a link (record.h) and by copies from process to process. What its files call on one another, and
 * what the engine calls; carrier.h says the rest.
 */
#ifndef VERBENA_HCA_LOCAL_LOCAL_CARRIER_H
#define VERBENA_HCA_LOCAL_LOCAL_CARRIER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "hca/local/record.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"

/* ---- for the engine; hca.engine is held */
/* A record that arrived by `link`. `room`: how many bytes of the ring `payload` is at most. */
void local_take_record(struct hca *hca, struct link *link, const struct ring_header *h,
		       const uint8_t *payload, uint32_t room);
/* Sends the acknowledgements that found no record to travel with since the last pass. */
void local_flush_acks(struct hca *hca);
/* Timers of messages that wait for a receive. Returns when to look again (ns; UINT64_MAX: never).
 */
uint64_t responder_scan(struct hca *hca, uint64_t now);

/* ---- starting.c: requests; qp.lock held */
void local_post(struct qp *qp);
/* Completes the oldest request. An error fails the QP. */
void local_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);
/* True once the peer's QP was seen ready for us. The link is up. */
bool local_peer_ready(struct qp *qp);

/* ---- requester.c: responses that arrive; engine and qp.lock held */
void requester_ack(struct qp *qp, uint32_t ack);
void requester_response(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
			uint32_t room);
/* Tells the peer once that this QP is ready, streams what was asked for. */
void requester_resume(struct qp *qp);
bool local_expire(struct qp *qp, uint64_t now, uint64_t *next);

/* ---- responder.c: requests that arrive; engine and qp.lock held */
void responder_request(struct qp *qp, const struct ring_header *h, const uint8_t *payload,
		       uint32_t room);
void responder_ud(struct qp *qp, struct link *link, const struct ring_header *h,
		  const uint8_t *payload, uint32_t room);
/* A datagram for a group. qp.lock isn't held. */
void responder_group(struct link *link, const struct ring_header *h, const uint8_t *payload,
		     uint32_t room);
/* Goes on with messages that waited (a receive was posted, the ring has room). */
void responder_resume(struct qp *qp);
void responder_drop_inbound(struct qp *qp);

/* ---- onesided.c: one-sided operations that are executed here; qp.lock held */
/* A status that no completion has: the peer imported the region, and must execute it itself. */
#define ASK_PEER ((enum ibv_wc_status)0x7fff)
bool onesided_direct(const struct qp *qp);
/* Whether the region that the request names is in a memory file, so that it can be mapped here. */
bool onesided_is_mapped(const struct qp *qp, const struct send_wqe *wqe);
/* Whether the WRITE would be granted; no side effects. */
bool onesided_may_write(struct qp *qp, const struct send_wqe *wqe);
enum ibv_wc_status onesided_write(struct qp *qp, const struct send_wqe *wqe);
enum ibv_wc_status onesided_read(struct qp *qp, const struct send_wqe *wqe);
enum ibv_wc_status onesided_atomic(struct qp *qp, const struct send_wqe *wqe);

/* Learns where the peer QP's published entry is; the link is up. */
void local_find_remote(struct qp *qp);
/* Fills what every record of a QP carries, with the pending acknowledgement. */
void local_record(struct qp *qp, struct ring_header *h, enum record_kind kind, uint8_t flags);
/* An acknowledgement is due: it travels with the next record, or goes at the end of the pass. */
void local_owe_ack(struct qp *qp);

#endif
