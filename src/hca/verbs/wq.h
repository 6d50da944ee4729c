/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work queues, indirection tables, and how frames are spread over them.
 *
 * A work queue is a raw packet queue pair that only receives, and that no flow rule names: its
 * number, its receives, its state and its place in the books are those of that QP, which the
 * program never sees. A queue pair that was created with an indirection table hands each of its
 * frames to the work queue that the frame's hash selects; it has no queues of its own.
 *
 * Locks: tables and what a QP has of one never change. A work queue has users (tables), a table has
 * users (QPs), and neither ends before them; the engine finds a QP, and so its table, under
 * hca.engine.
 */
#ifndef VERBENA_HCA_VERBS_WQ_H
#define VERBENA_HCA_VERBS_WQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "wire/toeplitz.h"

struct qp;

struct wq {
	struct ibv_wq ibv;
	struct qp *qp;
	_Atomic uint32_t users; /* places of tables */
};

struct wq_table {
	struct ibv_rwq_ind_table ibv;
	_Atomic uint32_t users; /* QPs */
	uint32_t mask;		/* places - 1 */
	struct wq *wqs[];
};

/* How a QP spreads its frames. */
struct spread {
	struct wq_table *ind;
	uint64_t fields; /* enum ibv_rx_hash_fields */
	uint8_t key[TOEPLITZ_KEY];
};

static inline struct wq *wq_of(struct ibv_wq *ibv)
{
	return container_of(ibv, struct wq, ibv);
}

/* ---- the program's calls; NULL with errno, or a positive errno */
struct ibv_wq *wq_create(struct ibv_context *context, struct ibv_wq_init_attr *attr);
int wq_modify(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int wq_destroy(struct ibv_wq *wq); /* EBUSY: a table has it */
struct ibv_rwq_ind_table *wq_table_create(struct ibv_context *context,
					  struct ibv_rwq_ind_table_init_attr *attr);
int wq_table_destroy(struct ibv_rwq_ind_table *table); /* EBUSY: a QP has it */

/* ---- inside the HCA */
/* What a QP with this table and hash gets: 0; EINVAL, EOPNOTSUPP, ENOMEM. */
int spread_make(const struct ibv_qp_init_attr_ex *attr, struct spread **out);
void spread_free(struct spread *spread); /* NULL: does nothing */
/* The QP of the work queue that a frame goes to. hca.engine is held. */
struct qp *wq_choose(const struct spread *spread, const struct ether_frame *frame);

#endif
