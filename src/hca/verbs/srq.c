/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queues. srq.lock guards the ring and the limit; hca.engine guards the list of QPs
 * that wait for a receive. */
#include "hca/verbs/srq.h"
#include "base/refused.h"
#include "base/sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "hca/engine/engine.h"
#include "hca/exec/xrc_target.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"
#include "hca/verbs/xrcd.h"

int srq_register(struct daemon_conn *conn, struct srq *srq, uint32_t max_wr, uint32_t max_sge,
		 struct ib_uverbs_create_srq_resp *resp)
{
	struct ib_uverbs_create_xsrq body = {
		.pd_handle = pd_of(srq->ibv.pd)->handle,
		.max_wr = max_wr,
		.max_sge = max_sge,
	};

	if (!srq->cq)
		return daemon_create_srq(conn, body.pd_handle, max_wr, max_sge, &resp->srq_handle);
	body.cq_handle = srq->cq->handle;
	if (srq->xrcd) {
		body.srq_type = IBV_SRQT_XRC;
		body.xrcd_handle = srq->xrcd->handle;
	} else {
		body.srq_type = IBV_SRQT_TM;
		lock_take(&srq->lock);
		body.max_num_tags = srq->tags->max_tags;
		lock_give(&srq->lock);
	}
	return daemon_create_xsrq(conn, &body, resp);
}

static int register_srq(struct srq *srq, struct context *context, uint32_t max_wr, uint32_t max_sge)
{
	struct ib_uverbs_create_srq_resp resp = {0};

	books_enter(context->hca);
	int err = srq_register(&context->conn, srq, max_wr, max_sge, &resp);

	if (!err)
		books_add(context, HELD_SRQ, &srq->held);
	books_leave(context->hca);
	srq->ibv.handle = srq->handle = resp.srq_handle;
	srq->number = resp.srqn;
	srq->index = resp.srqn & (LIMIT_QPS_PER_SLOT - 1);
	if (!err && srq->xrcd)
		atomic_store(&context->hca->last_qp_index, srq->index);
	return -err;
}

/* ------------------------------------------------------------------ places */

/* What one CQ has freed. Several CQs may be polled at once, each under its own lock, and a common
 * count would need an atomic addition for each completion. */
struct srq_places {
	uint8_t before[CACHE_LINE];
	struct places places;
	uint8_t behind[CACHE_LINE];
	struct list node;    /* srq.places */
	const struct cq *cq; /* which exists as long as there are users */
	uint32_t users;	     /* QPs that complete there; the SRQ, if the CQ is its own */
};

struct places *srq_use_places(struct srq *srq, struct cq *cq)
{
	struct srq_places *found = NULL, *fresh = calloc(1, sizeof(*fresh));

	lock_take(&srq->lock);
	list_for_each(node, &srq->places) {
		struct srq_places *p = container_of(node, struct srq_places, node);

		if (p->cq == cq)
			found = p;
	}
	if (!found && fresh) {
		found = fresh;
		fresh = NULL;
		found->cq = cq;
		list_add_tail(&srq->places, &found->node);
	}
	if (found)
		found->users++;
	lock_give(&srq->lock);
	free(fresh);
	return found ? &found->places : NULL;
}

void srq_leave_places(struct srq *srq, struct places *places)
{
	struct srq_places *p = container_of(places, struct srq_places, places);

	lock_take(&srq->lock);
	bool last = !--p->users;

	if (last) {
		list_del(&p->node);
		srq->freed_before += places_freed(places);
	}
	lock_give(&srq->lock);
	if (last)
		free(p);
}

static uint32_t srq_freed(struct srq *srq) REQUIRES(srq->lock)
{
	uint32_t freed = srq->freed_before;

	list_for_each(node, &srq->places)
		freed += places_freed(&container_of(node, struct srq_places, node)->places);
	return freed;
}

static bool srq_find_room(struct recv_queue *rq)
{
	struct srq *srq = container_of(rq, struct srq, rq);

	lock_assert_held(&srq->lock);
	uint32_t freed = srq_freed(srq);

	if (places_suffice(rq->head - freed, rq->max_wr, 1)) {
		rq->room = freed + rq->max_wr;
		return true;
	}
	if (!rq->said_full)
		log_warn("ibv_post_srq_recv: SRQ %u: %u of %u places are taken; %u receives wait "
			 "for messages (a place is free once its completion was polled)",
			 srq->handle, rq->head - freed, rq->max_wr, rq->head - rq->tail);
	rq->said_full = true;
	return false;
}

/* ------------------------------------------------------------------ making */

/* The SRQ has ended, or was never there. */
static void srq_free(struct srq *srq)
{
	lock_assume_alone(&srq->lock);
	rq_free(&srq->rq);
	tags_end(srq->tags);
	free(srq);
}

/* The SRQ's completions free nothing any more. */
static void srq_end_places(struct srq *srq)
{
	if (!srq->own_places)
		return;
	cq_forget_places(srq->cq, srq->own_places);
	srq_leave_places(srq, srq->own_places);
}

/* `xrcd`, `cq` and `tags`: as in struct srq; `tags` are the new SRQ's, also when it fails. */
static struct ibv_srq *srq_make(struct ibv_pd *pd, const struct ibv_srq_init_attr *init,
				struct xrcd *xrcd, struct cq *cq, struct tags *tags)
{
	struct context *context = context_of(pd->context);
	uint32_t max_wr = init->attr.max_wr, max_sge = init->attr.max_sge;
	int err;

	struct srq *srq = calloc(1, sizeof(*srq));

	if (!srq) {
		tags_end(tags);
		errno = ENOMEM;
		return NULL;
	}
	lock_init(&srq->lock, RANK_SRQ);
	srq->ibv.pd = pd;
	srq->xrcd = xrcd;
	srq->cq = cq;
	srq->tags = tags;
	list_init(&srq->places);
	srq->freed_before = RECV_QUEUE_START;
	max_sge = max_sge ? max_sge : 1;
	err = rq_init(&srq->rq, max_wr, max_sge, pd, QUEUE_SRQ);
	if (!err && cq) {
		srq->own_places = srq_use_places(srq, cq);
		err = srq->own_places ? 0 : ENOMEM;
	}
	if (!err)
		err = register_srq(srq, context, max_wr, max_sge);
	if (err) {
		srq_end_places(srq);
		srq_free(srq);
		errno = err;
		return NULL;
	}
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = init->srq_context;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	srq->pd_id = pd_of(pd)->id;
	pd_use(pd, 1);
	list_init(&srq->waiters);
	return &srq->ibv;
}

static bool srq_attr_valid(const struct ibv_srq_attr *attr)
{
	return attr->max_wr && attr->max_wr <= LIMIT_SRQ_WR && attr->max_sge <= LIMIT_SGE;
}

/* Whether such an SRQ can be made; else errno is set. */
static bool srq_attr_accept(const struct ibv_srq_attr *attr)
{
	if (srq_attr_valid(attr))
		return true;
	log_warn_few("ibv_create_srq: max_wr is %u, which must be 1 to %u; max_sge is %u, and %u "
		     "at most",
		     attr->max_wr, LIMIT_SRQ_WR, attr->max_sge, LIMIT_SGE);
	errno = EINVAL;
	return false;
}

struct ibv_srq *srq_create(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	if (!srq_attr_accept(&init->attr))
		return NULL;
	return srq_make(pd, init, NULL, NULL, NULL);
}

/* Why a tag-matching SRQ can't be made, or NULL. */
static const char *tm_refusal(const struct ibv_srq_init_attr_ex *init)
{
	if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_TM) || !init->tm_cap.max_num_tags)
		return "its tm_cap has no max_num_tags";
	if (init->tm_cap.max_num_tags > LIMIT_TAGS || init->tm_cap.max_ops > LIMIT_TAG_OPS)
		return "its tm_cap is beyond tm_caps of ibv_query_device_ex()";
	if (!cq_of(init->cq)->extended)
		return "its CQ was not made by ibv_create_cq_ex()";
	return srq_attr_valid(&init->attr) ? NULL : "its max_wr or max_sge is beyond the device's";
}

struct ibv_srq *srq_create_tm(struct ibv_srq_init_attr_ex *init)
{
	const struct ibv_srq_init_attr plain = {.srq_context = init->srq_context,
						.attr = init->attr};
	const char *refusal = tm_refusal(init);

	if (refusal) {
		log_warn("ibv_create_srq_ex: a tag-matching SRQ can't be made: %s", refusal);
		errno = EINVAL;
		return NULL;
	}
	struct cq *cq = cq_of(init->cq);
	struct tags *tags = tags_make(init->tm_cap.max_num_tags, init->tm_cap.max_ops);

	if (!tags) {
		errno = ENOMEM;
		return NULL;
	}
	struct ibv_srq *ibv = srq_make(init->pd, &plain, NULL, cq, tags);

	if (ibv)
		atomic_fetch_add(&cq->users, 1);
	return ibv;
}

struct ibv_srq *srq_create_xrc(struct ibv_srq_init_attr_ex *init)
{
	const struct ibv_srq_init_attr plain = {.srq_context = init->srq_context,
						.attr = init->attr};
	struct cq *cq = cq_of(init->cq);

	if (!srq_attr_accept(&init->attr))
		return NULL;
	struct ibv_srq *ibv = srq_make(init->pd, &plain, hca_xrcd_of(init->xrcd), cq, NULL);
	int err;

	if (!ibv)
		return NULL;
	atomic_fetch_add(&cq->users, 1);
	err = xrc_srq_begins(srq_of(ibv));
	if (!err)
		return ibv;
	srq_destroy(ibv);
	errno = err;
	return NULL;
}

/* Moves the posted receives into *ring, which becomes the SRQ's; *ring becomes the old one. EINVAL:
 * it has fewer places than are taken. */
static int srq_swap(struct srq *srq, struct recv_queue *ring) REQUIRES(srq->lock)
{
	uint32_t freed = srq_freed(srq);

	if (!places_suffice(srq->rq.head - freed, ring->max_wr, 0))
		return refused(EINVAL,
			       "ibv_modify_srq: the SRQ has more receives posted than "
			       "max_wr, %u, would have places for",
			       ring->max_wr);
	for (uint32_t i = srq->rq.tail; i != srq->rq.head; i++)
		memcpy(rq_at(ring, i), rq_at(&srq->rq, i), srq->rq.stride);
	ring->head = srq->rq.head;
	ring->tail = srq->rq.tail;
	ring->room = freed + ring->max_wr;
	struct recv_queue old = srq->rq;

	ring->used = old.used;
	srq->rq = *ring;
	*ring = old;
	return 0;
}

static uint32_t srq_max_sge(struct srq *srq)
{
	lock_take(&srq->lock);
	uint32_t max_sge = srq->rq.max_sge;

	lock_give(&srq->lock);
	return max_sge;
}

/* Whether fewer receives are left than the armed limit: that disarms it, since there is one event
 * for each arming. */
static inline bool srq_limit_reached(struct srq *srq) REQUIRES(srq->lock)
{
	if (likely(!srq->limit || srq->rq.head - srq->rq.tail >= srq->limit))
		return false;
	srq->limit = 0;
	return true;
}

static int srq_set_limit(struct srq *srq, uint32_t limit) REQUIRES(srq->lock)
{
	if (limit > srq->rq.max_wr) {
		log_warn_few("ibv_modify_srq: srq_limit is %u, and the SRQ has %u places", limit,
			     srq->rq.max_wr);
		return EINVAL;
	}
	srq->limit = limit;
	return 0;
}

int srq_modify(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct srq *srq = srq_of(ibv);
	struct context *context = context_of(ibv->context);
	bool resizes = mask & IBV_SRQ_MAX_WR;
	struct recv_queue ring = {0};
	bool reached = false;
	int err = 0;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) ||
	    (resizes && (!attr->max_wr || attr->max_wr > LIMIT_SRQ_WR)))
		return refused(EINVAL,
			       "ibv_modify_srq: srq_attr_mask is 0x%x, and may have "
			       "IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT only; max_wr is %u, and "
			       "must be 1 to %u",
			       (unsigned int)mask, resizes ? attr->max_wr : 1, LIMIT_SRQ_WR);
	if (resizes)
		err = rq_init(&ring, attr->max_wr, srq_max_sge(srq), ibv->pd, QUEUE_SRQ);
	if (err)
		return err;
	books_enter(context->hca);
	if (resizes)
		err = -daemon_modify_srq(&context->conn, srq->handle, attr->max_wr);
	lock_take(&srq->lock);
	if (!err && resizes)
		err = srq_swap(srq, &ring);
	if (!err && (mask & IBV_SRQ_LIMIT))
		err = srq_set_limit(srq, attr->srq_limit);
	if (!err && (mask & IBV_SRQ_LIMIT))
		reached = srq_limit_reached(srq); /* at once, if so few are posted */
	lock_give(&srq->lock);
	books_leave(context->hca);
	rq_free(&ring);
	if (reached)
		async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	return err;
}

int srq_query(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct srq *srq = srq_of(ibv);

	lock_take(&srq->lock);
	*attr = (struct ibv_srq_attr){
		.max_wr = srq->rq.max_wr, .max_sge = srq->rq.max_sge, .srq_limit = srq->limit};
	lock_give(&srq->lock);
	return 0;
}

int srq_destroy(struct ibv_srq *ibv)
{
	struct srq *srq = srq_of(ibv);
	struct context *context = context_of(ibv->context);

	if (srq->xrcd)
		xrc_srq_ends(srq);
	books_enter(context->hca);
	int err = -daemon_destroy_srq(&context->conn, srq->handle);

	if (err == EIO) /* the daemon is gone, and the SRQ's handle with it */
		err = 0;
	if (!err)
		books_drop(context, &srq->held);
	books_leave(context->hca);
	if (err == EBUSY)
		log_warn_few(
			"ibv_destroy_srq: queue pairs use the SRQ, and must be destroyed first");
	if (err)
		return err;
	srq_end_places(srq);
	if (srq->cq)
		atomic_fetch_sub(&srq->cq->users, 1);
	event_queue_forget(&context->async, srq);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != srq->async_reported)
		sys_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	pd_use(ibv->pd, -1);
	srq_free(srq);
	return 0;
}

static void resume_waiters(struct srq *srq)
{
	struct hca *hca = context_of(srq->ibv.context)->hca;
	struct list batch, *node;

	lock_take(&hca->engine);
	atomic_store(&srq->has_waiters, 0);
	list_init(&batch);
	while ((node = list_pop(&srq->waiters)))
		list_add_tail(&batch, node);
	while ((node = list_pop(&batch))) {
		struct qp *qp = container_of(node, struct qp, srq_wait);

		lock_take(&qp->lock);
		qp->carrier->receive_posted(qp); /* enters the list again if the SRQ is empty */
		lock_give(&qp->lock);
	}
	engine_leave(hca);
}

int srq_post(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *srq = srq_of(ibv);

	lock_take(&srq->lock);
	int err = rq_add(&srq->rq, wr, bad, srq_find_room);

	lock_give(&srq->lock);
	if (unlikely(err))
		say_srq_refused(srq_max_sge(srq), *bad, err);
	if (unlikely(atomic_load(&srq->has_waiters)))
		resume_waiters(srq);
	return err;
}

/* Most receives have one segment: no call of memcpy() for it. */
static inline void receive_copy(struct recv_wqe *to, const struct recv_wqe *from)
{
	*to = *from;
	to->sge[0] = from->sge[0]; /* each place has room for one */
	if (unlikely(from->num_sge > 1))
		memcpy(to->sge, from->sge, from->num_sge * sizeof(from->sge[0]));
}

/* Takes the next receive as srq_take() does. *event: its limit is reached. */
static inline enum receive_fit srq_next(struct srq *srq, uint32_t length, struct recv_wqe *out,
					bool *event) REQUIRES(srq->lock)
{
	const struct recv_wqe *wqe = rq_at(&srq->rq, srq->rq.tail);

	if (unlikely(srq->rq.tail == srq->rq.head))
		return RECEIVE_NONE;
	if (unlikely(wqe->length < length))
		return RECEIVE_TOO_SHORT;
	receive_copy(out, wqe);
	srq->rq.tail++;
	*event = srq_limit_reached(srq);
	return RECEIVE_FITS;
}

enum receive_fit srq_take(struct srq *srq, uint32_t length, struct recv_wqe *out)
{
	bool event = false;

	lock_take(&srq->lock);
	enum receive_fit fit = srq_next(srq, length, out, &event);

	lock_give(&srq->lock);
	if (event)
		async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	return fit;
}

uint64_t srq_take_ordinary(struct srq *srq, const struct hca *hca, uint32_t length,
			   const struct hazard_scope *scope, struct recv_wqe *out)
{
	bool event = false;
	uint64_t at = 0;

	lock_take(&srq->lock);
	const struct recv_wqe *wqe = rq_at(&srq->rq, srq->rq.tail);

	if (likely(srq->rq.tail != srq->rq.head && recv_is_ordinary(wqe, length))) {
		const struct ibv_sge place = recv_place(wqe, length);

		at = mr_resolve_own(hca, srq->pd_id, &place, IBV_ACCESS_LOCAL_WRITE, scope);
	}
	if (likely(at))
		srq_next(srq, length, out, &event);
	lock_give(&srq->lock);
	if (unlikely(event))
		async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	return at;
}

void srq_give_back(struct srq *srq, const struct recv_wqe *wqe)
{
	lock_take(&srq->lock);
	/* It has taken a place all the time, so there is one. */
	receive_copy(rq_at(&srq->rq, --srq->rq.tail), wqe);
	lock_give(&srq->lock);
}

/* ------------------------------------------------------------------ tags */

/* How far the count that the program has reported may be behind before a message that matches no
 * tag asks for it, as adapters do. */
enum { FAR_BEHIND = 0x3fff };

bool srq_take_tagged(struct srq *srq, const uint64_t *tag, struct recv_wqe *out,
		     struct srq_match *match)
{
	struct tags *tags = srq->tags;
	bool event = false, taken = true;

	*match = (struct srq_match){0};
	lock_take(&srq->lock);
	match->tag = tag ? tags_match(tags, *tag) : NULL;
	if (!match->tag)
		taken = srq_next(srq, 0, out, &event) == RECEIVE_FITS;
	if (taken && !match->tag && tag) {
		tags_count(tags);
		match->far = (uint16_t)(tags->unexpected - tags->handled) > FAR_BEHIND;
	}
	lock_give(&srq->lock);
	if (event)
		async_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	return taken;
}

void srq_free_tag(struct srq *srq, struct tag *tag)
{
	lock_take(&srq->lock);
	tags_free(srq->tags, tag);
	lock_give(&srq->lock);
}

void srq_put_back_tag(struct srq *srq, struct tag *tag)
{
	lock_take(&srq->lock);
	tags_put_back(srq->tags, tag);
	lock_give(&srq->lock);
}

void srq_uncount(struct srq *srq)
{
	lock_take(&srq->lock);
	tags_uncount(srq->tags);
	lock_give(&srq->lock);
}

/* Completes an operation on the list. */
static void complete_op(struct srq *srq, const struct ibv_ops_wr *wr, enum ibv_wc_status status)
	REQUIRES(srq->lock)
{
	static const uint32_t opcodes[] = {
		[IBV_WR_TAG_ADD] = IBV_WC_TM_ADD,
		[IBV_WR_TAG_DEL] = IBV_WC_TM_DEL,
		[IBV_WR_TAG_SYNC] = IBV_WC_TM_SYNC,
	};
	const struct cqe cqe = {
		.wr_id = wr->wr_id,
		.status = status,
		.opcode = opcodes[wr->opcode],
		.wc_flags = tags_in_step(srq->tags) ? 0 : IBV_WC_TM_SYNC_REQ,
	};

	if (wr->flags & IBV_OPS_SIGNALED)
		cq_push(srq->cq, &cqe, true);
}

/* Executes an operation on the list. 0, or EINVAL or ENOMEM: nothing has changed. */
static int execute_op(struct srq *srq, struct ibv_ops_wr *wr) REQUIRES(srq->lock)
{
	struct tags *tags = srq->tags;
	int err = 0;

	if (!tags->max_ops) {
		log_info("ibv_post_srq_ops: the SRQ was made with max_ops 0, so it takes none");
		return ENOMEM;
	}
	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		err = tags_add(tags, wr);
		break;
	case IBV_WR_TAG_DEL:
		err = tags_remove(tags, wr->tm.handle);
		break;
	case IBV_WR_TAG_SYNC:
		break;
	default:
		return refused(EINVAL, "ibv_post_srq_ops: there is no operation %d",
			       (int)wr->opcode);
	}
	if (err == ENOMEM)
		log_info("ibv_post_srq_ops: the list of tags is full: it has the %u buffers that "
			 "max_num_tags allows",
			 tags->max_tags);
	if (err && err != ENOENT)
		return err;
	/* The count is about the buffers before this operation, and about its own. */
	if (wr->flags & IBV_OPS_TM_SYNC)
		tags_sync(tags, wr->tm.unexpected_cnt);
	complete_op(srq, wr, err ? IBV_WC_TM_ERR : IBV_WC_SUCCESS);
	return 0;
}

int srq_post_ops(struct ibv_srq *ibv, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	struct srq *srq = srq_of(ibv);
	int err = 0;

	if (!srq->tags) {
		*bad = wr;
		return refused(EINVAL, "ibv_post_srq_ops: only a tag-matching SRQ (IBV_SRQT_TM) "
				       "takes such operations");
	}
	lock_take(&srq->lock);
	for (; wr && !err; wr = err ? wr : wr->next)
		err = execute_op(srq, wr);
	lock_give(&srq->lock);
	if (err)
		*bad = wr;
	if (unlikely(atomic_load(&srq->has_waiters)))
		resume_waiters(srq); /* a message may match now */
	return err;
}
