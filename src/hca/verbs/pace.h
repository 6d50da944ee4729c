/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rate limit of a QP (ibv_modify_qp_rate_limit, IBV_QP_RATE_LIMIT), on every carrier.
 *
 * A limited QP's requests enter its send queue held back: they lie behind sq.head, and sq.held
 * counts them. Carriers see requests up to head only. pace_release() moves head as the time allows:
 * a request may begin when those before it have had as long as their bytes take at the limit (and
 * `burst` bytes are in advance). So the limit is kept over requests; one request's packets leave as
 * fast as ever. The engine thread's timers release what the program's posts don't.
 *
 * All under qp.lock.
 */
#ifndef VERBENA_HCA_VERBS_PACE_H
#define VERBENA_HCA_VERBS_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/verbs/qp.h"

struct pace {
	uint32_t kbps;	   /* kilobits per second, of payload; 0: no limit */
	uint64_t burst_ns; /* what `burst` bytes take */
	uint64_t next;	   /* when the next request may begin, ns */
};

/* Limits the QP; 0 ends that. 0 or ENOMEM. */
int pace_set(struct qp *qp, uint32_t kbps, uint32_t burst) REQUIRES(qp->lock);
/* Releases the requests that may begin. The caller calls sq_go_on() then. */
void pace_release(struct qp *qp) REQUIRES(qp->lock);
/* The same from a timer, and starts them. Lowers *next to when it is to be called again. False:
 * nothing is held back. */
bool pace_expire(struct qp *qp, uint64_t now, uint64_t *next) REQUIRES(qp->lock);

#endif
