/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams between nodes of a fabric: the carrier datagram_fabric, and its addresses. */
#ifndef VERBENA_HCA_EXEC_DATAGRAM_FABRIC_H
#define VERBENA_HCA_EXEC_DATAGRAM_FABRIC_H

#include "hca/exec/arrival.h"
#include "hca/fabric/ways.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/qp.h"

struct membership;

/* Fills in a new address handle. 0; EINVAL: no such port or source GID, or a group without a GID.
 */
int datagram_address(const struct membership *membership, struct ah *ah,
		     const struct ibv_ah_attr *attr);

/* Where a UD QP's request goes. */
struct way_address datagram_way(const struct qp *qp, const struct send_wqe *wqe) REQUIRES(qp->lock);

/* A datagram arrived whose P_Key doesn't match the QP's, or else with another Q_Key: tells the
 * fabric, which counts that and sends a trap. */
void datagram_report(const struct qp *qp, const struct record_ud *ud, const struct arrival *arrival,
		     bool is_pkey) REQUIRES(qp->lock);

#endif
