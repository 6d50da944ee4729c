/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program's calls on completion queues, completion channels and asynchronous events. Unless it
 * is said otherwise, functions that return a pointer return NULL with errno on failure, and others
 * 0 or a positive errno; the manual page of the ibv_ call of the same name lists the errnos.
 */
#ifndef VERBENA_HCA_VERBS_COMPLETION_H
#define VERBENA_HCA_VERBS_COMPLETION_H

#include "hca/verbs/cq.h"

/* What ibv_create_cq_ex() may be asked to report, and the flags that it takes. */
#define CQ_WC_FLAGS                                                                       \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |           \
	 IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |                \
	 IBV_WC_EX_WITH_DLID_PATH_BITS | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG | \
	 IBV_WC_EX_WITH_TM_INFO | CQ_WC_TIMESTAMPS)
#define CQ_WC_TIMESTAMPS \
	(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define CQ_FLAGS (IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

/*
 * A CQ as cq_create() makes it. Between ibv_start_poll() and ibv_end_poll() a program may call
 * anything, also calls that add completions to this CQ or remove a QP's; so cq.lock isn't held
 * meanwhile. The completion that the program reads is a copy, taken off the ring, and `turn` keeps
 * other readers out until the end of the batch. Order: turn before every other lock.
 */
struct cq_object {
	struct cq cq;
	struct lock turn;
	/* Under turn; if one thread only uses the CQ (cq.single_threaded), it is that thread's, and
	 * turn isn't taken. */
	struct cqe current;
	bool ignore_overrun; /* set by cq_create() and never changed, so no lock guards it */
};

static inline struct cq_object *cq_object_of(struct cq *cq)
{
	return container_of(cq, struct cq_object, cq);
}

/* Makes a CQ. Its cqe is the next 2^n - 1, as with adapters. */
struct ibv_cq *cq_create(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr);
/* The same for the use of one QP; the daemon makes it together with that QP
 * (verbena_create_cq_for_qp). */
struct ibv_cq *cq_create_for_qp(struct ibv_context *context,
				const struct ibv_cq_init_attr_ex *attr);
int cq_resize(struct ibv_cq *cq, int cqe);
/* Blocks until every event of the CQ that the program has read is acknowledged. */
int cq_destroy(struct ibv_cq *cq);
void cq_ack_events(struct ibv_cq *cq, unsigned int count);

/* Removes the oldest completion into *out; false: there is none. Takes cq.lock. */
bool cq_take(struct cq *cq, struct cqe *out);

/* Fills the function pointers of struct ibv_cq_ex. */
void cq_ex_init(struct cq *cq);

struct ibv_comp_channel *channel_create(struct ibv_context *context);
int channel_destroy(struct ibv_comp_channel *channel);
/* 0, or -1 with errno (EAGAIN when the descriptor is O_NONBLOCK and there is no event). */
int channel_get_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);

int async_get_event(struct ibv_context *context, struct ibv_async_event *event); /* 0 or -1 */
void async_ack_event(const struct ibv_async_event *event);

#endif
