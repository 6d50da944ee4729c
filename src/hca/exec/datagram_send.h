/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ways of datagrams (struct datagram_carrier) do with a request. qp.lock is held. */
#ifndef VERBENA_HCA_EXEC_DATAGRAM_SEND_H
#define VERBENA_HCA_EXEC_DATAGRAM_SEND_H

#include "hca/verbs/carrier.h"

/* The longest that a datagram may be. */
enum { DATAGRAM_BYTES = 4096 };

/* The request completes with success: an unreliable message needs no answer. STEP_DONE. */
enum step datagram_sent(struct qp *qp, struct send_wqe *wqe);

/* The request at sq.next completes with an error of this side: the QP goes to SQE. STEP_FAILED. */
enum step datagram_fail(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);

#endif
