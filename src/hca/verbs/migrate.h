/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Automatic path migration of connected queue pairs on a fabric (InfiniBand Architecture
 * Specification 1, 17.2.8). The state is qp.attr.path_mig_state, under qp.lock:
 *   MIGRATED  one path           -> REARM     the program, with an alternate path
 *   REARM     waits for the peer -> ARMED     migrate_look(): the peer's QP is in REARM or ARMED
 *   ARMED     either may migrate -> MIGRATED  migrate_go(): the program says so, or a request is
 *                                             lost after its last retry, or the peer has migrated
 *
 * An adapter learns of the peer's state by a bit of each packet; here it is in the peer's published
 * table, and a KICK says when to look.
 *
 * A connection manager may load the alternate path as well, without the program: a LAP of the peer
 * (daemon/cm/cm_alternate.h).
 */
#ifndef VERBENA_HCA_VERBS_MIGRATE_H
#define VERBENA_HCA_VERBS_MIGRATE_H

#include "hca/verbs/qp.h"

/* Whether the attributes of an alternate path, and the state, can be set: 0 or EINVAL. */
int migrate_check(const struct qp *qp, const struct ibv_qp_attr *attr, int mask);
/* The same as far as it depends on the QP's state. *goes: the program has the QP migrate. */
int migrate_check_state(const struct qp *qp, const struct ibv_qp_attr *attr, int mask, bool *goes)
	REQUIRES(qp->lock);
/* Replaces the path by the alternate one, and tells the program. hca.engine is held. */
void migrate_go(struct qp *qp) REQUIRES(qp->lock);
/* Tells the program that the peer has migrated to another path than the QP's alternate one, so that
 * this QP doesn't follow, and what the peer sends is lost. hca.engine is held. */
void migrate_refuse(struct qp *qp) REQUIRES(qp->lock);
/* Follows from the peer's state. hca.engine is held. True: the peer is to look, too. */
bool migrate_look(struct qp *qp, enum ibv_mig_state peer) REQUIRES(qp->lock);

/* Asks the daemon for alternate paths, and loads them, if the engine thread has left that as work.
 * Control thread. */
void migrate_serve(struct hca *hca);

#endif
