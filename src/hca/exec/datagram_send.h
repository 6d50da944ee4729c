/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions for the ways of datagrams (struct datagram_carrier). The caller holds qp.lock. */
#ifndef VERBENA_HCA_EXEC_DATAGRAM_SEND_H
#define VERBENA_HCA_EXEC_DATAGRAM_SEND_H

#include "hca/verbs/carrier.h"

/* Bytes of payload: the longest datagram of any port, and one that fits every port's MTU. */
enum { DATAGRAM_BYTES = 4096, DATAGRAM_SHORT = 256 };

/* The longest message, bytes, that the QP may send. */
uint32_t datagram_room(const struct qp *qp);

/* Completes the request with success: an unreliable message needs no answer. Returns STEP_DONE. */
enum step datagram_sent(struct qp *qp, struct send_wqe *wqe);

/* Completes the request at sq.next with an error of this side: the QP goes to SQE. Returns
 * STEP_FAILED. */
enum step datagram_fail(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);

#endif
