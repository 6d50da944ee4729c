/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The carrier of XRC initiators on this host (docs/xrc.md): a connection of the local carrier's
 * core for each process that has an SRQ to which the QP has sent. One is current (qp->local): all
 * outstanding requests are its own. The QP turns to another one when nothing is outstanding, so its
 * requests are executed in order, and complete in order.
 *
 * A connection that the QP turns to looks anew whether the target QP is ready (as after a new
 * link): while it wasn't current, its link may have been another one.
 */
#ifndef VERBENA_HCA_LOCAL_XRC_CARRIER_H
#define VERBENA_HCA_LOCAL_XRC_CARRIER_H

#include "hca/verbs/qp.h"

struct local_conn;

/* From RTR to RESET; under qp.lock. */
struct xrc_conns {
	struct local_conn *first; /* the list of all: struct local_conn.next */
};

#endif
