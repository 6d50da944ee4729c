/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams to processes of this host, by their links. qp.lock is held. */
#ifndef VERBENA_HCA_LOCAL_LOCAL_DATAGRAM_H
#define VERBENA_HCA_LOCAL_LOCAL_DATAGRAM_H

#include "hca/local/record.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/qp.h"

struct link;

/* Puts a datagram into a link's ring. The request isn't completed, unless it has failed. */
enum put {
	PUT_SENT,
	PUT_WAIT,    /* no link, no room or no receive yet: the QP is resumed later */
	PUT_DROPPED, /* it has waited long enough; it has been counted as dropped */
	PUT_FAILED,  /* its memory can't be read: the request has completed with an error */
};
enum put local_datagram_put(struct qp *qp, struct send_wqe *wqe, struct link *link,
			    const struct iovec *local, int count) REQUIRES(qp->lock);

/* Starts the UD request at sq.next, whose memory is `local`: it goes by this link. As
 * datagram_carrier.send and .skip. */
enum step local_datagram_send(struct qp *qp, struct send_wqe *wqe, struct link *link,
			      const struct iovec *local, int count) REQUIRES(qp->lock);
void local_datagram_skip(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock);

/* Handles a datagram that arrived for this QP. hca.engine is held, too. */
void local_datagram_take(struct qp *qp, struct link *link, const struct ring_header *h,
			 const uint8_t *payload, uint32_t room);
/* Handles a datagram for a group. hca.engine is held; qp.lock isn't. */
void local_datagram_take_group(struct link *link, const struct ring_header *h,
			       const uint8_t *payload, uint32_t room);

#endif
