/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams to processes of this host, by their links. qp.lock is held. */
#ifndef VERBENA_HCA_LOCAL_LOCAL_DATAGRAM_H
#define VERBENA_HCA_LOCAL_LOCAL_DATAGRAM_H

#include "hca/local/record.h"
#include "hca/verbs/carrier.h"

struct link;

/* Puts a datagram into a link's ring. The request isn't completed, unless it has failed. */
enum put {
	PUT_SENT,
	PUT_WAIT,    /* the link isn't up, has no room, or the receiver none; the QP is resumed */
	PUT_DROPPED, /* it has waited long enough; it is counted */
	PUT_FAILED,  /* its memory isn't there: the request has failed */
};
enum put local_datagram_put(struct qp *qp, struct send_wqe *wqe, struct link *link,
			    const struct iovec *local, int count);

/* A datagram that arrived for this QP. Engine held, too. */
void local_datagram_take(struct qp *qp, struct link *link, const struct ring_header *h,
			 const uint8_t *payload, uint32_t room);
/* A datagram for a group. Engine held; qp.lock isn't. */
void local_datagram_take_group(struct link *link, const struct ring_header *h,
			       const uint8_t *payload, uint32_t room);

#endif
