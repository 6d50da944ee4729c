/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages to a QP whose SRQ matches tags (docs/tags.md), for every carrier: what a message is
 * received by, its completions, and the READ and the notice (FIN) of a rendezvous.
 *
 * A message that matches a tag is received by the tag's buffer. Carriers see an ordinary receive
 * whose segments begin with a place for the message's header; so they copy as ever
 * (tagged_segments()).
 *
 * A message that is complete when it is matched has one completion. Any other has one when it is
 * matched (IBV_WC_TM_MATCH) and one when its data is there (IBV_WC_TM_DATA_VALID), so that matches
 * are reported in their order, whichever message ends first.
 *
 * Rendezvous. The QP's own send queue belongs to the SRQ if the program asked for none
 * (max_send_wr 0): then the data is fetched by a READ, which FIN follows. Otherwise, or if the
 * buffer is too short, the program gets the request's headers and does the same.
 *
 * Flags of struct tagged:
 *   offloads  set by tagged_make(), before any other thread knows the QP; never cleared
 *   said      IBV_WC_TM_MATCH of the message under way was reported: set by tagged_keep() or
 *             tagged_take(), cleared by tagged_take()
 *
 * The caller of each holds qp.lock, under which the lists of buffers change, and hca.engine too
 * unless it is said otherwise.
 */
#ifndef VERBENA_HCA_VERBS_TAGGED_H
#define VERBENA_HCA_VERBS_TAGGED_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"
#include "hca/exec/arrival.h"
#include "hca/mem/hazard.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/tags.h"

struct srq;

/* What the message under way is received by, and why. */
enum tagged_way {
	TAGGED_NONE,	   /* there is none, or it isn't a SEND */
	TAGGED_NO_TAG,	   /* an ordinary receive: it has no tag */
	TAGGED_UNEXPECTED, /* an ordinary receive: its tag matched no buffer */
	TAGGED_EAGER,	   /* a buffer, with the data in the message */
	TAGGED_RENDEZVOUS, /* a buffer, with the data to be read */
	TAGGED_SOFTWARE,   /* a buffer that gets the headers: the program reads the data */
};

struct tagged {
	struct qp *qp;
	bool offloads; /* the send queue is the SRQ's */
	bool said;
	bool far; /* UNEXPECTED: its completion asks for IBV_WR_TAG_SYNC */
	enum tagged_way way;
	struct tag *tag;		   /* EAGER, RENDEZVOUS, SOFTWARE */
	uint8_t head[TAG_HEAD];		   /* the message's first bytes, as they were checked */
	uint8_t scratch[LIMIT_RNDV_BYTES]; /* where carriers put what no buffer gets */
	struct list waiting; /* struct tag.node: rendezvous whose READ isn't posted yet */
	struct list reading; /* ... is posted */
	struct list node;    /* on hca.tagged: READs may be posted; under hca.engine */
};

/* For a new QP of this SRQ, whose send queue has `max_send_wr` places for the program. NULL: there
 * is no memory. No lock is needed. */
struct tagged *tagged_make(struct qp *qp, uint32_t max_send_wr);
/* The places of the send queue that the SRQ has; segments and inline data of its requests. */
enum { TAGGED_PLACES = 16, TAGGED_INLINE = TAG_HEAD };

/* Takes what a SEND is received by, as receive_take(). `head`: its first bytes, TAG_HEAD or as many
 * as it has; `whole`: all of it is here. */
const struct recv_wqe *tagged_take(struct qp *qp, struct receive *room, const uint8_t *head,
				   uint32_t length, bool whole) REQUIRES(qp->lock);
/* The message takes longer than this call. */
void tagged_keep(struct qp *qp) REQUIRES(qp->lock);
/* Whether a tag's buffer receives it; if not, a receive does, as any other message. */
bool tagged_is_matched(const struct qp *qp);
/* The buffer's segments, as receive_segments(). */
int tagged_segments(const struct qp *qp, struct iovec *out, const struct hazard_scope *scope);
/* It is complete; or it won't come. */
void tagged_complete(struct qp *qp, const struct recv_wqe *wqe, const struct arrival *arrival,
		     enum ibv_wc_status status) REQUIRES(qp->lock);
void tagged_give_back(struct qp *qp, const struct recv_wqe *wqe) REQUIRES(qp->lock);

/* A request of the SRQ in the QP's send queue has completed. */
void tagged_request_done(struct qp *qp, const struct send_wqe *wqe, enum ibv_wc_status status)
	REQUIRES(qp->lock);
/* READs that wait may be posted now: the QP came to RTS, or its send queue has room. */
void tagged_wake(struct qp *qp) REQUIRES(qp->lock);
/* The QP has failed, was reset or ends: completes the buffers of its rendezvous with
 * IBV_WC_WR_FLUSH_ERR. */
void tagged_flush(struct qp *qp) REQUIRES(qp->lock);
/* Posts READs that may be posted. No qp.lock is held. */
void tagged_pass(struct hca *hca);

/* The CQ that the QP's receives complete to. */
struct cq *tagged_cq(const struct qp *qp);

#endif
