/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages to a QP whose SRQ matches tags. See tagged.h, which has threads and locks. */
#include "hca/verbs/tagged.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/srq.h"

enum { TMH_BYTES = sizeof(struct ibv_tmh) };

struct tagged *tagged_make(struct qp *qp, uint32_t max_send_wr)
{
	struct tagged *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->qp = qp;
	t->offloads = !max_send_wr;
	list_init(&t->waiting);
	list_init(&t->reading);
	list_init(&t->node);
	return t;
}

struct cq *tagged_cq(const struct qp *qp)
{
	return qp->srq->cq;
}

/* ------------------------------------------------------------------ headers */

static struct ibv_tmh tmh_of(const uint8_t *head)
{
	struct ibv_tmh tmh;

	memcpy(&tmh, head, sizeof(tmh));
	return tmh;
}

static struct ibv_rvh rvh_of(const uint8_t *head)
{
	struct ibv_rvh rvh;

	memcpy(&rvh, head + TMH_BYTES, sizeof(rvh));
	return rvh;
}

/* Whether the message has a tag, which goes to *tag. FIN, and what has no header, have none. */
static bool has_tag(const uint8_t *head, uint32_t length, uint64_t *tag)
{
	if (length < TMH_BYTES)
		return false;
	struct ibv_tmh tmh = tmh_of(head);

	*tag = be64toh(tmh.tag);
	return tmh.opcode == IBV_TMH_EAGER || (tmh.opcode == IBV_TMH_RNDV && length >= TAG_HEAD);
}

/* What happens to a message that has matched a buffer. */
static enum tagged_way matched_way(const struct qp *qp, const struct tag *tag) REQUIRES(qp->lock)
{
	const struct tagged *t = qp->tagged;

	if (tmh_of(t->head).opcode == IBV_TMH_EAGER)
		return TAGGED_EAGER;
	/* In RTR it isn't known yet how many READs the QP may have under way. */
	if (t->offloads && (qp->attr.max_rd_atomic || qp->state == IBV_QPS_RTR) &&
	    be32toh(rvh_of(t->head).len) <= tag->buffer.length)
		return TAGGED_RENDEZVOUS;
	return TAGGED_SOFTWARE;
}

static bool is_matched(enum tagged_way way)
{
	return way == TAGGED_EAGER || way == TAGGED_RENDEZVOUS || way == TAGGED_SOFTWARE;
}

/* ------------------------------------------------------------------ completions */

/* A completion that tells of the match also has the tag. */
static void push_tagged(struct qp *qp, struct cqe *cqe, bool solicited) REQUIRES(qp->lock)
{
	if (cqe->wc_flags & IBV_WC_TM_MATCH) {
		struct ibv_tmh tmh = tmh_of(qp->tagged->head);

		cqe->tag = be64toh(tmh.tag);
		cqe->tag_priv = be32toh(tmh.app_ctx);
	}
	cqe->qp_num = qp->ibv.qp_num;
	cq_push(qp->srq->cq, cqe, solicited);
}

static void say_match(struct qp *qp, uint64_t wr_id) REQUIRES(qp->lock)
{
	struct cqe cqe = {
		.wr_id = wr_id,
		.opcode = IBV_WC_TM_RECV,
		.wc_flags = IBV_WC_TM_MATCH,
	};

	qp->tagged->said = true;
	push_tagged(qp, &cqe, true);
}

/* The buffer is the program's again, for good or ill. */
static void buffer_complete(struct qp *qp, struct tag *tag, enum ibv_wc_status status,
			    uint32_t length) REQUIRES(qp->lock)
{
	struct cqe cqe = {
		.wr_id = tag->buffer.wr_id,
		.status = status,
		.opcode = IBV_WC_TM_RECV,
		.byte_len = length,
		.wc_flags = status == IBV_WC_SUCCESS ? IBV_WC_TM_DATA_VALID : 0,
	};

	srq_free_tag(qp->srq, tag);
	push_tagged(qp, &cqe, true);
}

/* ------------------------------------------------------------------ messages */

const struct recv_wqe *tagged_take(struct qp *qp, struct receive *room, const uint8_t *head,
				   uint32_t length, bool whole)
{
	struct tagged *t = qp->tagged;
	struct srq_match match;
	uint64_t tag;
	bool tagged = has_tag(head, length, &tag);

	memcpy(t->head, head, length < TAG_HEAD ? length : TAG_HEAD);
	if (!srq_take_tagged(qp->srq, tagged ? &tag : NULL, &room->wqe, &match))
		return NULL;
	t->said = false;
	t->far = match.far;
	t->tag = match.tag;
	if (!match.tag) {
		t->way = tagged ? TAGGED_UNEXPECTED : TAGGED_NO_TAG;
		return &room->wqe;
	}
	t->way = matched_way(qp, match.tag);
	room->wqe = (struct recv_wqe){
		.wr_id = match.tag->buffer.wr_id,
		.length = t->way == TAGGED_EAGER ? match.tag->buffer.length + TMH_BYTES
						 : LIMIT_RNDV_BYTES,
	};
	if (!whole)
		tagged_keep(qp);
	return &room->wqe;
}

void tagged_keep(struct qp *qp)
{
	const struct tagged *t = qp->tagged;

	if (is_matched(t->way) && !t->said)
		say_match(qp, t->tag->buffer.wr_id);
}

bool tagged_is_matched(const struct qp *qp)
{
	return is_matched(qp->tagged->way);
}

int tagged_segments(const struct qp *qp, struct iovec *out, const struct hazard_scope *scope)
{
	struct tagged *t = qp->tagged;
	const struct tag *tag = t->tag;
	bool eager = t->way == TAGGED_EAGER;
	int n = 0;

	if (t->way != TAGGED_RENDEZVOUS)
		n = mr_resolve_list(qp->hca, qp->srq->pd_id, tag->sge, tag->buffer.num_sge,
				    IBV_ACCESS_LOCAL_WRITE, out + eager, scope);
	if (n < 0)
		return n;
	/* EAGER: the header goes before the data; SOFTWARE: what the buffer has no room for, after
	 * it. */
	out[eager ? 0 : n] = (struct iovec){t->scratch, eager ? TMH_BYTES : LIMIT_RNDV_BYTES};
	return n + 1;
}

/* The data of a rendezvous is to be read. */
static void rendezvous_begins(struct qp *qp) REQUIRES(qp->lock)
{
	struct tagged *t = qp->tagged;

	if (!t->said)
		say_match(qp, t->tag->buffer.wr_id);
	memcpy(t->tag->head, t->head, TAG_HEAD);
	list_add_tail(&t->waiting, &t->tag->node);
	tagged_wake(qp);
}

/* The flags, the status and the length of a message that is complete. */
static void fill_completion(const struct tagged *t, struct cqe *cqe)
{
	uint32_t room = t->tag ? t->tag->buffer.length : 0;

	switch (t->way) {
	case TAGGED_NO_TAG:
		cqe->opcode = IBV_WC_TM_NO_TAG;
		return;
	case TAGGED_UNEXPECTED:
		cqe->wc_flags |= t->far ? IBV_WC_TM_SYNC_REQ : 0;
		return;
	case TAGGED_SOFTWARE:
		cqe->status = IBV_WC_TM_RNDV_INCOMPLETE;
		cqe->byte_len = cqe->byte_len < room ? cqe->byte_len : room;
		break;
	default:
		cqe->byte_len -= TMH_BYTES;
	}
	cqe->wc_flags |= IBV_WC_TM_DATA_VALID | (t->said ? 0 : IBV_WC_TM_MATCH);
}

void tagged_complete(struct qp *qp, const struct recv_wqe *wqe, const struct arrival *arrival,
		     enum ibv_wc_status status)
{
	struct tagged *t = qp->tagged;
	struct cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = IBV_WC_TM_RECV,
		.byte_len = arrival->length,
		.imm = arrival->imm,
		.src_qp = arrival->src_qpn,
		.wc_flags = arrival->has_imm	   ? IBV_WC_WITH_IMM
			    : arrival->invalidates ? IBV_WC_WITH_INV
						   : 0,
	};

	if (status == IBV_WC_SUCCESS && t->way == TAGGED_RENDEZVOUS) {
		rendezvous_begins(qp);
		t->way = TAGGED_NONE;
		return;
	}
	if (status == IBV_WC_SUCCESS)
		fill_completion(t, &cqe);
	else if (t->way == TAGGED_UNEXPECTED)
		srq_uncount(qp->srq);
	else if (t->way == TAGGED_NO_TAG)
		cqe.opcode = IBV_WC_TM_NO_TAG;
	if (is_matched(t->way))
		srq_free_tag(qp->srq, t->tag);
	else
		cqe.places = qp->receives; /* it took an ordinary receive */
	t->way = TAGGED_NONE;
	push_tagged(qp, &cqe, arrival->solicited || cqe.status != IBV_WC_SUCCESS);
}

void tagged_give_back(struct qp *qp, const struct recv_wqe *wqe)
{
	struct tagged *t = qp->tagged;
	enum tagged_way way = t->way;

	t->way = TAGGED_NONE;
	if (is_matched(way) && t->said) {
		buffer_complete(qp, t->tag, IBV_WC_WR_FLUSH_ERR, 0);
		return;
	}
	if (is_matched(way)) {
		srq_put_back_tag(qp->srq, t->tag);
		return;
	}
	if (way == TAGGED_UNEXPECTED)
		srq_uncount(qp->srq);
	srq_give_back(qp->srq, wqe);
}

/* ------------------------------------------------------------------ rendezvous */

void tagged_wake(struct qp *qp)
{
	struct tagged *t = qp->tagged;
	struct hca *hca = qp->hca;

	if (list_empty(&t->waiting) || !list_empty(&t->node))
		return;
	lock_assert_held(&hca->engine);
	list_add_tail(&hca->tagged, &t->node);
}

static struct send_wqe *new_request(struct qp *qp, enum ibv_wr_opcode opcode) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = sq_at(&qp->sq, sq_end(&qp->sq));

	*wqe = (struct send_wqe){
		.opcode = opcode,
		.flags = SEND_SIGNALED | SEND_OFFLOADED,
	};
	return wqe;
}

/* The READ into the buffer: as many of its segments as the data needs. */
static void add_read(struct qp *qp, struct tag *tag) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = new_request(qp, IBV_WR_RDMA_READ);
	struct ibv_rvh rvh = rvh_of(tag->head);
	uint32_t left = wqe->length = be32toh(rvh.len);

	wqe->wr_id = (uintptr_t)tag;
	wqe->remote_addr = be64toh(rvh.va);
	wqe->rkey = be32toh(rvh.rkey);
	for (uint32_t i = 0; left && i < tag->buffer.num_sge; i++) {
		struct ibv_sge *sge = &wqe->sge[wqe->num_sge++];

		*sge = tag->sge[i];
		sge->length = sge->length < left ? sge->length : left;
		left -= sge->length;
	}
	sq_grow(qp, 1);
}

/* FIN: the request's headers with another opcode, after its READ. */
static void add_fin(struct qp *qp, const struct tag *tag) REQUIRES(qp->lock)
{
	struct send_wqe *wqe = new_request(qp, IBV_WR_SEND);

	wqe->flags |= SEND_INLINE | SEND_FENCE;
	wqe->length = TAG_HEAD;
	memcpy(wqe->data, tag->head, TAG_HEAD);
	wqe->data[offsetof(struct ibv_tmh, opcode)] = IBV_TMH_FIN;
	sq_grow(qp, 1);
}

static void post_reads(struct qp *qp) REQUIRES(qp->lock)
{
	struct tagged *t = qp->tagged;

	if (qp->state != IBV_QPS_RTS)
		return;
	while (!list_empty(&t->waiting) && sq_end(&qp->sq) - qp->sq.acked + 2 <= TAGGED_PLACES) {
		struct tag *tag = container_of(list_pop(&t->waiting), struct tag, node);

		list_add_tail(&t->reading, &tag->node);
		add_read(qp, tag);
		add_fin(qp, tag);
	}
	sq_start_posted(qp);
}

void tagged_pass(struct hca *hca) REQUIRES(hca->engine)
{
	struct list *node;

	while ((node = list_pop(&hca->tagged))) {
		struct qp *qp = container_of(node, struct tagged, node)->qp;

		lock_take(&qp->lock);
		post_reads(qp);
		lock_give(&qp->lock);
	}
}

void tagged_request_done(struct qp *qp, const struct send_wqe *wqe, enum ibv_wc_status status)
{
	if (wqe->opcode == IBV_WR_RDMA_READ)
		buffer_complete(qp, (struct tag *)(uintptr_t)wqe->wr_id, status, wqe->length);
	else if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		async_qp(qp, IBV_EVENT_QP_FATAL); /* no buffer is left that could say it */
	tagged_wake(qp);
}

static void flush_list(struct qp *qp, struct list *tags) REQUIRES(qp->lock)
{
	struct list *node;

	while ((node = list_pop(tags)))
		buffer_complete(qp, container_of(node, struct tag, node), IBV_WC_WR_FLUSH_ERR, 0);
}

void tagged_flush(struct qp *qp)
{
	struct tagged *t = qp->tagged;

	list_del(&t->node);
	flush_list(qp, &t->reading);
	flush_list(qp, &t->waiting);
}
