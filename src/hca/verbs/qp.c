/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: creating, modifying, querying, ending them. See qp.h and hca.h for the locks. */
#include "hca/verbs/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/refused.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/exec/xrc_target.h"
#include "hca/fabric/membership.h"
#include "hca/fabric/path.h"
#include "hca/mem/hazard.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/roce/interface.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/migrate.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/route.h"
#include "hca/verbs/say.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/tagged.h"
#include "hca/verbs/window.h"
#include "hca/verbs/wq.h"
#include "hca/verbs/xrcd.h"

void qp_ex_init(struct qp *qp);

/* ------------------------------------------------------------------ creating */

/* Whether the QP gets a receive queue of its own; else what is asked of it is ignored. */
static bool has_receive_queue(const struct ibv_qp_init_attr_ex *attr)
{
	return !attr->srq && attr->qp_type != IBV_QPT_XRC_SEND;
}

static int check_caps(const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;

	if (cap->max_send_wr > LIMIT_QP_WR || cap->max_send_sge > LIMIT_SGE ||
	    cap->max_inline_data > LIMIT_INLINE)
		return EINVAL;
	return has_receive_queue(attr) &&
			       (cap->max_recv_wr > LIMIT_QP_WR || cap->max_recv_sge > LIMIT_SGE)
		       ? EINVAL
		       : 0;
}

#define SEND_OPS_UD (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define SEND_OPS_UC                                                                     \
	(SEND_OPS_UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | \
	 IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)
/* Of RC and of XRC's initiators. */
#define SEND_OPS_RC                                                                   \
	(SEND_OPS_UC | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV |         \
	 IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH)

#define SEND_OPS_RAW IBV_QP_EX_WITH_SEND

/* IBV_QP_CREATE_SOURCE_QPN and _BLOCK_SELF_MCAST_LB concern datagrams; the latter, and
 * _CVLAN_STRIPPING, frames. */
#define CREATE_FLAGS_UD (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SOURCE_QPN)
#define CREATE_FLAGS_RAW (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_CVLAN_STRIPPING)
#define CREATE_FLAGS (CREATE_FLAGS_UD | CREATE_FLAGS_RAW)

#define INIT_SPREADS (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)
#define INIT_KNOWN                                                                               \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS | \
	 INIT_SPREADS)

static uint32_t creation_flags(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags : 0;
}

/* The operations of ibv_wr_* that a QP of the type may be created for; 0: there is no such type. */
static uint64_t send_ops_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
	case IBV_QPT_XRC_SEND:
		return SEND_OPS_RC;
	case IBV_QPT_UC:
		return SEND_OPS_UC;
	case IBV_QPT_UD:
		return SEND_OPS_UD;
	case IBV_QPT_RAW_PACKET:
		return SEND_OPS_RAW;
	default:
		return 0;
	}
}

static int check_flags(const struct ibv_qp_init_attr_ex *attr)
{
	uint32_t flags = creation_flags(attr);
	uint32_t allowed = attr->qp_type == IBV_QPT_UD		 ? CREATE_FLAGS_UD
			   : attr->qp_type == IBV_QPT_RAW_PACKET ? CREATE_FLAGS_RAW
								 : 0;

	if (flags & ~(uint32_t)CREATE_FLAGS)
		return EOPNOTSUPP;
	return flags & ~allowed ? EINVAL : 0;
}

static bool init_spreads(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->comp_mask & INIT_SPREADS;
}

/* A QP that init_spreads frames over work queues has their CQs, and no queues of its own. */
static int check_queues(const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_qp_cap *cap = &attr->cap;
	/* An XRC initiator receives nothing; a receive CQ is ignored, as the kernel does. */
	bool receives = attr->recv_cq || attr->qp_type == IBV_QPT_XRC_SEND;

	if (!init_spreads(attr))
		return attr->send_cq && receives ? check_caps(attr) : EINVAL;
	bool both = (attr->comp_mask & INIT_SPREADS) == INIT_SPREADS;

	return both && attr->qp_type == IBV_QPT_RAW_PACKET && !attr->srq && !cap->max_send_wr &&
			       !cap->max_recv_wr &&
			       !(attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		       ? 0
		       : EINVAL;
}

static int check_init(const struct ibv_qp_init_attr_ex *attr)
{
	uint64_t ops = send_ops_of(attr->qp_type);

	if (!ops || attr->comp_mask & ~(uint32_t)INIT_KNOWN)
		return EOPNOTSUPP;
	int err = check_flags(attr);

	if (err)
		return err;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops))
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd)
		return EINVAL;
	if (attr->qp_type == IBV_QPT_XRC_SEND && attr->srq)
		return EINVAL;
	if (attr->srq && srq_of(attr->srq)->xrcd)
		return EINVAL;
	if (attr->srq && srq_of(attr->srq)->tags && attr->qp_type != IBV_QPT_RC) {
		log_warn("ibv_create_qp: only RC queue pairs can use a tag-matching SRQ");
		return EINVAL;
	}
	return check_queues(attr);
}

static void fill_public(struct qp *qp, struct ibv_context *context,
			const struct ibv_qp_init_attr_ex *attr)
{
	qp->ibv.context = context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = attr->pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.srq = attr->srq;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
}

/* As many places as mlx5 gives: 2^n. Its receive queues have 64 bytes at least, 16 for each
 * segment. */
static uint32_t send_places(const struct ibv_qp_cap *cap)
{
	return cap->max_send_wr ? queue_places(cap->max_send_wr) : 0;
}

static uint32_t receive_places(const struct ibv_qp_cap *cap)
{
	uint32_t least = cap->max_recv_sge < 2 ? 4 : cap->max_recv_sge == 2 ? 2 : 1;
	uint32_t places = queue_places(cap->max_recv_wr);

	if (!cap->max_recv_wr)
		return 0;
	return places > least ? places : least;
}

/* The capabilities that the QP gets: those asked for, rounded up to usable values. */
static struct ibv_qp_cap qp_grant_caps(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	if (!has_receive_queue(attr))
		cap.max_recv_wr = cap.max_recv_sge = 0;
	if (cap.max_send_wr && !cap.max_send_sge)
		cap.max_send_sge = 1;
	if (cap.max_recv_wr && !cap.max_recv_sge)
		cap.max_recv_sge = 1;
	cap.max_send_wr = send_places(&cap);
	cap.max_recv_wr = receive_places(&cap);
	/* Segments and inline data share the same place in a WQE. */
	uint32_t body = cap.max_send_sge * sizeof(struct ibv_sge);

	if (cap.max_inline_data < body)
		cap.max_inline_data = body;
	return cap;
}

/* Without one for the program, the send queue of a QP is its tag-matching SRQ's. 0 or ENOMEM. */
static int make_send_queue(struct qp *qp, struct ibv_pd *pd) REQUIRES(qp->lock)
{
	struct ibv_qp_cap cap = qp->cap;

	if (qp->srq && qp->srq->tags) {
		qp->tagged = tagged_make(qp, cap.max_send_wr);
		if (!qp->tagged)
			return ENOMEM;
	}
	bool lent = qp->tagged && qp->tagged->offloads;

	if (lent)
		cap = (struct ibv_qp_cap){.max_send_wr = TAGGED_PLACES,
					  .max_send_sge = LIMIT_TAG_SGE,
					  .max_inline_data = TAGGED_INLINE};
	int err = sq_init(&qp->sq, &cap, pd);

	places_set(&qp->freed.sends, SEND_QUEUE_START);
	if (lent) {
		qp->sq.max_wr = 0; /* the program posts nothing */
		qp->sq.room = SEND_QUEUE_START;
	}
	return err;
}

/* Makes the QP's queues. 0 or ENOMEM. */
static int make_queues(struct qp *qp, struct ibv_pd *pd) REQUIRES(qp->lock, qp->builder.turn)
{
	struct srq *srq = qp->srq;
	int err = make_send_queue(qp, pd);

	if (!err && qp->has_ex)
		err = sq_init(&qp->builder.built, &qp->cap, pd);
	if (!err)
		err = rq_init(&qp->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge, pd,
			      QUEUE_RECEIVE);
	places_set(&qp->freed.receives, RECV_QUEUE_START);
	if (err)
		return err;
	qp->receives =
		srq ? srq_use_places(srq, srq->cq ? srq->cq : qp->recv_cq) : &qp->freed.receives;
	return qp->receives ? 0 : ENOMEM;
}

/* From now on the SRQ may end. */
static void qp_leave_srq(struct qp *qp)
{
	if (qp->srq && qp->receives)
		srq_leave_places(qp->srq, qp->receives);
	qp->receives = NULL;
}

static void end_queues(struct qp *qp) REQUIRES(qp->lock, qp->builder.turn)
{
	qp_leave_srq(qp);
	sq_free(&qp->sq);
	sq_free(&qp->builder.built);
	rq_free(&qp->rq);
	free(qp->tagged);
}

static struct qp *qp_new(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	fill_public(qp, context, attr);
	qp->context = context_of(context);
	qp->hca = qp->context->hca;
	qp->srq = attr->srq ? srq_of(attr->srq) : NULL;
	qp->send_cq = cq_of(attr->send_cq);
	qp->recv_cq = attr->qp_type == IBV_QPT_XRC_SEND ? NULL : cq_of(attr->recv_cq);
	qp->pd_id = pd_of(attr->pd)->id;
	qp->type = attr->qp_type;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->cap = qp_grant_caps(attr);
	lock_init(&qp->lock, RANK_QP);
	lock_bias(&qp->lock);
	lock_init(&qp->builder.turn, RANK_QP_TURN);
	qp->carrier = &carrier_none;
	list_init(&qp->room_wait);
	list_init(&qp->tx_wait);
	list_init(&qp->active);
	list_init(&qp->srq_wait);
	list_init(&qp->groups);
	list_init(&qp->flows);
	list_init(&qp->windows);
	list_init(&qp->window_wait);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->has_ex = true;
		qp_ex_init(qp);
	}
	if (make_queues(qp, attr->pd)) {
		end_queues(qp);
		free(qp);
		return NULL;
	}
	return qp;
}

static void qp_free(struct qp *qp)
{
	lock_assume_alone(&qp->lock);
	lock_assume_alone(&qp->builder.turn);
	end_queues(qp);
	pace_free(qp->pace);
	free(qp->fanout);
	spread_free(qp->spread);
	pthread_mutex_destroy(&qp->ibv.mutex);
	pthread_cond_destroy(&qp->ibv.cond);
	free(qp);
}

/* Not a result: the structure ends in an array, which GCC's ABI notes are about. */
void qp_create_command(const struct qp *qp, struct ib_uverbs_create_qp *cmd)
{
	*cmd = (struct ib_uverbs_create_qp){
		.user_handle = (uintptr_t)qp,
		.pd_handle = pd_of(qp->ibv.pd)->handle,
		.send_cq_handle = qp->send_cq->handle,
		.recv_cq_handle = qp->recv_cq ? qp->recv_cq->handle : 0,
		.srq_handle = qp->srq ? qp->srq->handle : 0,
		.max_send_wr = qp->cap.max_send_wr,
		.max_recv_wr = qp->cap.max_recv_wr,
		.max_send_sge = qp->cap.max_send_sge,
		.max_recv_sge = qp->cap.max_recv_sge,
		.max_inline_data = qp->cap.max_inline_data,
		.sq_sig_all = qp->sq_sig_all,
		.qp_type = qp->wq ? PROTO_QPT_WQ : qp->type,
		.is_srq = qp->srq != NULL,
	};
}

static struct proto_new_cq new_cq(struct cq *cq)
{
	if (cq->registered)
		return (struct proto_new_cq){0};
	return (struct proto_new_cq){cq_depth(cq), cq->comp_vector};
}

/* Has the daemon make the QP together with those of its CQs that were left for that
 * (cq_create_for_qp). */
static int create_with_cqs(struct qp *qp, const struct ib_uverbs_create_qp *alone,
			   struct ib_uverbs_create_qp_resp *out)
{
	struct cq *send = qp->send_cq, *recv = qp->recv_cq ? qp->recv_cq : send;
	struct proto_create_qp_cqs cmd = {.send = new_cq(send), .qp = *alone};
	struct proto_create_qp_cqs_resp resp;

	if (recv != send)
		cmd.recv = new_cq(recv);
	else if (!send->registered && qp->recv_cq)
		return -EINVAL; /* such a CQ serves one side only */
	int err = daemon_create_qp_cqs(&qp->context->conn, &cmd, &resp);

	if (err)
		return err;
	if (cmd.send.cqe)
		cq_came(send, &resp.send);
	if (cmd.recv.cqe)
		cq_came(recv, &resp.recv);
	*out = resp.qp;
	return 0;
}

static int register_qp(struct qp *qp)
{
	struct ib_uverbs_create_qp cmd;
	struct ib_uverbs_create_qp_resp resp;

	qp_create_command(qp, &cmd);
	books_enter(qp->hca);
	bool alone = qp->send_cq->registered && (!qp->recv_cq || qp->recv_cq->registered);
	int err = alone ? daemon_create_qp(&qp->context->conn, &cmd, &resp)
			: create_with_cqs(qp, &cmd, &resp);

	if (!err) {
		qp->ibv.handle = qp->handle = resp.qp_handle;
		qp->ibv.qp_num = resp.qpn;
		qp->index = resp.qpn & (LIMIT_QPS_PER_SLOT - 1);
		atomic_store(&qp->hca->last_qp_index, qp->index);
		books_add(qp->context, HELD_QP, &qp->held);
	}
	books_leave(qp->hca);
	return -err;
}

static void use_cqs(struct qp *qp, int change)
{
	atomic_fetch_add(&qp->send_cq->users, change);
	if (qp->recv_cq)
		atomic_fetch_add(&qp->recv_cq->users, change);
}

/* Whether a QP may have `number` as the source of its datagrams: another process's would be a
 * forgery, which receivers drop. */
static bool source_is_own(struct hca *hca, uint32_t number)
{
	lock_take(&hca->engine);
	const struct qp *qp = hca->qps[number & (LIMIT_QPS_PER_SLOT - 1)];
	bool own = qp && qp_number(qp) == number && qp->type == IBV_QPT_UD;

	lock_give(&hca->engine);
	return own;
}

static int check_source(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	if (!(creation_flags(attr) & IBV_QP_CREATE_SOURCE_QPN) ||
	    source_is_own(context_of(context)->hca, attr->source_qpn))
		return 0;
	log_warn("ibv_create_qp_ex: source_qpn is 0x%x, which is no UD queue pair of this process",
		 attr->source_qpn);
	return EINVAL;
}

static void set_datagram_flags(struct qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	uint32_t flags = creation_flags(attr);

	qp->source_qpn = flags & IBV_QP_CREATE_SOURCE_QPN ? attr->source_qpn : qp->ibv.qp_num;
	qp->blocks_self = flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	qp->strips_tag = flags & IBV_QP_CREATE_CVLAN_STRIPPING;
}

/* Makes the QP and has the daemon give it a number; no other thread knows it. 0 or a positive
 * errno. */
static int qp_make_for(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr,
		       struct wq *wq, struct spread *spread, struct qp **out)
{
	struct qp *qp = qp_new(context, attr);
	int err = qp ? 0 : ENOMEM;

	if (!err) {
		qp->wq = wq;
		err = pace_timed_make(qp);
		if (!err)
			err = register_qp(qp);
	}
	if (err) {
		if (qp)
			qp_free(qp);
		return err;
	}
	qp->spread = spread;
	*out = qp;
	return 0;
}

/* A QP that init_spreads frames is ready as long as it exists. */
static void qp_enter_table(struct qp *qp)
{
	lock_take(&qp->hca->engine);
	qp->hazards = hazard_own(qp->hca);
	lock_take(&qp->lock);
	/* The number's former QP left its epoch in the entry: records for that QP are not for this
	 * one. */
	qp->epoch = pub_qp_epoch(pub_qp_read_state(&qp->hca->pub->qp[qp->index])) + 1;
	if (qp->spread)
		qp->state = IBV_QPS_RTR;
	qp_publish(qp);
	lock_give(&qp->lock);
	qp->hca->qps[qp->index] = qp;
	engine_leave(qp->hca);
}

static struct ibv_qp *qp_create_as(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				   struct wq *wq)
{
	struct ibv_qp_init_attr_ex full = *attr;
	struct spread *spread = NULL;
	struct qp *qp = NULL;
	int err = check_init(attr);

	if (err)
		say_no_qp(attr);
	else
		err = check_source(context, attr);
	if (!err && attr->qp_type == IBV_QPT_RAW_PACKET)
		err = interface_want(context_of(context)->hca, context_of(context)->device_index);
	if (!err && init_spreads(attr)) {
		err = spread_make(attr, &spread);
		if (!err)
			full.send_cq = full.recv_cq = spread->ind->wqs[0]->ibv.cq;
	}
	if (!err)
		err = qp_make_for(context, &full, wq, spread, &qp);
	if (err) {
		spread_free(spread);
		errno = err;
		return NULL;
	}
	set_datagram_flags(qp, attr);
	use_cqs(qp, 1);
	pd_use(attr->pd, 1);
	qp_enter_table(qp);
	attr->cap = qp->cap;
	return &qp->ibv;
}

struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return target_create(context, attr);
	return qp_create_as(context, attr, NULL);
}

struct ibv_qp *qp_create_for_wq(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr,
				struct wq *wq)
{
	return qp_create_as(context, attr, wq);
}

struct ibv_qp_ex *qp_to_ex(struct ibv_qp *ibv)
{
	struct qp *qp = qp_of(ibv);

	return qp->has_ex ? &qp->ex : NULL;
}

/* ------------------------------------------------------------------ states */

uint32_t qp_number(const struct qp *qp)
{
	return qp->hca->slot << LIMIT_QP_BITS | qp->index;
}

void qp_publish(struct qp *qp)
{
	struct pub_qp *e = &qp->hca->pub->qp[qp->index];
	uint32_t rights =
		attr_published_rights(&qp->attr) | (qp->recv_cq && !qp->srq ? PUB_QP_COUNTS : 0);
	uint64_t word = qp->state | (uint64_t)qp->type << 8 | (uint64_t)rights << 16 |
			pub_qp_epoch_bits(qp->epoch);

	atomic_store_explicit(&e->peer, qp->attr.dest_qp_num, memory_order_relaxed);
	atomic_store_explicit(&e->pd, qp->pd_id, memory_order_relaxed);
	atomic_store_explicit(&e->rq_psn, qp->attr.rq_psn, memory_order_relaxed);
	atomic_store_explicit(&e->receives, qp->rq.published, memory_order_relaxed);
	const struct cq *send = qp->send_cq, *recv = qp->recv_cq ? qp->recv_cq : qp->send_cq;

	if (unlikely(qp->hca->membership != NULL)) {
		atomic_store_explicit(&e->alternate, path_word_alternate(&qp->attr),
				      memory_order_relaxed);
		atomic_store_explicit(&e->path, path_word(&qp->attr), memory_order_relaxed);
	}
	if (unlikely(qp->tagged != NULL)) {
		recv = tagged_cq(qp);
		send = qp->tagged->offloads ? recv : send;
	}
	atomic_store_explicit(&e->arm_groups, send->arm_group | (uint32_t)recv->arm_group << 8,
			      memory_order_relaxed);
	/* Published before anything that follows: the program may reuse the memory of a failed QP's
	 * requests. */
	pub_qp_write_state(e, word);
}

void qp_fail(struct qp *qp, int event)
{
	if (unlikely(qp->type == IBV_QPT_XRC_RECV)) {
		xrc_stand_in_fail(qp, event);
		return;
	}
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	qp_publish(qp);
	sq_flush(qp);
	/* The carrier first: it may give a receive back, which is then flushed with the others. */
	qp->carrier->stop(qp);
	qp->starved = false;
	rq_flush(qp);
	if (unlikely(qp->tagged != NULL))
		tagged_flush(qp);
	if (event >= 0) {
		say_peer_refused(qp, event);
		async_qp(qp, event);
	}
	if (qp->srq)
		async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void qp_drained(struct qp *qp)
{
	if (!qp->sqd_notify)
		return;
	qp->sqd_notify = false;
	async_qp(qp, IBV_EVENT_SQ_DRAINED);
}

void qp_disconnect(struct qp *qp)
{
	qp->carrier->disconnect(qp);
	qp->carrier = &carrier_none;
	/* Not by the carrier: a limit of the rate watches the QP, too. */
	qp_timer_stop(qp);
	qp->starved = false;
	if (unlikely(qp->tagged != NULL))
		tagged_flush(qp);
}

/* Back to RESET: queues empty, counts 0. hca.engine and qp.lock are held. */
static void qp_reset(struct qp *qp) REQUIRES(qp->lock)
{
	struct ibv_qp_attr none = {.cap = qp->cap, .port_num = 1};

	qp_disconnect(qp);
	qp->sq.head = qp->sq.next = qp->sq.acked = SEND_QUEUE_START;
	qp->sq.held = 0;
	qp->sq.room = SEND_QUEUE_START + qp->sq.max_wr;
	pace_set(qp, 0, 0);
	if (qp->pace) {
		pace_forget(qp);
		pace_timed_drop(qp);
	}
	qp->rq.head = qp->rq.tail = qp->rq.published = RECV_QUEUE_START;
	qp->rq.used = false;
	qp->rq.room = RECV_QUEUE_START + qp->rq.max_wr;
	qp->comm_established = qp->sqd_notify = false;
	qp->attr = none;
	qp->epoch++;
	qp->state = IBV_QPS_RESET;
	qp_publish(qp);
}

/* ------------------------------------------------------------------ modifying */

static int check_path(struct qp *qp, const struct ibv_ah_attr *ah, struct route *route)
{
	if (qp->hca->membership)
		return route_find_on_fabric(qp->hca->membership, ah, route);
	if (!ah->is_global || ah->port_num != 1) {
		log_warn("ibv_modify_qp: RoCE needs a global route (is_global, grh) and port 1");
		return EINVAL;
	}
	return route_find(qp->context, &ah->grh, route);
}

/* Whether the attributes have values that are possible. */
static bool has_right_values(const struct membership *membership, const struct ibv_qp_attr *attr,
			     int mask)
{
	const uint32_t ports = membership ? membership->node->ports : 1;
	const uint32_t pkeys = membership ? FABRIC_PKEYS : LIMIT_PKEYS;
	const struct {
		int bit;
		const char *name;
		uint32_t value, least, most;
	} all[] = {
		{IBV_QP_PORT, "port_num", attr->port_num, 1, ports},
		{IBV_QP_PKEY_INDEX, "pkey_index", attr->pkey_index, 0, pkeys - 1},
		{IBV_QP_PATH_MTU, "path_mtu", attr->path_mtu, IBV_MTU_256, IBV_MTU_4096},
		{IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr->max_rd_atomic, 0, LIMIT_RD_ATOM},
		{IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr->max_dest_rd_atomic, 0,
		 LIMIT_RD_ATOM},
		{IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr->min_rnr_timer, 0, 31},
		{IBV_QP_TIMEOUT, "timeout", attr->timeout, 0, 31},
		{IBV_QP_RETRY_CNT, "retry_cnt", attr->retry_cnt, 0, 7},
		{IBV_QP_RNR_RETRY, "rnr_retry", attr->rnr_retry, 0, 7},
		{IBV_QP_DEST_QPN, "dest_qp_num", attr->dest_qp_num, 0, 0xffffff},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (mask & all[i].bit &&
		    (all[i].value < all[i].least || all[i].value > all[i].most)) {
			log_warn_few("ibv_modify_qp: %s is %u, which must be %u to %u", all[i].name,
				     all[i].value, all[i].least, all[i].most);
			return false;
		}
	return true;
}

int qp_check_values(struct qp *qp, const struct ibv_qp_attr *attr, int mask, struct route *route)
{
	if (!has_right_values(qp->hca->membership, attr, mask))
		return EINVAL;
	int err = migrate_check(qp, attr, mask);

	return !err && mask & IBV_QP_AV ? check_path(qp, &attr->ah_attr, route) : err;
}

#define COPY(bit, field)                         \
	do {                                     \
		if (mask & (bit))                \
			to->field = attr->field; \
	} while (0)

void qp_copy_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *attr, int mask)
{
	COPY(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	COPY(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	COPY(IBV_QP_PKEY_INDEX, pkey_index);
	COPY(IBV_QP_PORT, port_num);
	COPY(IBV_QP_QKEY, qkey);
	COPY(IBV_QP_AV, ah_attr);
	COPY(IBV_QP_PATH_MTU, path_mtu);
	COPY(IBV_QP_TIMEOUT, timeout);
	COPY(IBV_QP_RETRY_CNT, retry_cnt);
	COPY(IBV_QP_RNR_RETRY, rnr_retry);
	COPY(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	COPY(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	COPY(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	COPY(IBV_QP_DEST_QPN, dest_qp_num);
	COPY(IBV_QP_RATE_LIMIT, rate_limit);
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_ALT_PATH) {
		to->alt_ah_attr = attr->alt_ah_attr;
		to->alt_pkey_index = attr->alt_pkey_index;
		to->alt_port_num = attr->alt_port_num;
		to->alt_timeout = attr->alt_timeout;
	}
	COPY(IBV_QP_PATH_MIG_STATE, path_mig_state);
}

/* INIT to RTR: from now on the QP has a carrier that moves its requests. */
static int connect_qp(struct qp *qp, const struct route *route) REQUIRES(qp->lock)
{
	const struct carrier *carrier =
		carrier_choose(qp->hca, qp->type, qp->attr.dest_qp_num, route);

	memcpy(qp->sgid, route->at.sgid, sizeof(qp->sgid));
	int err = carrier->connect(qp, route);

	if (!err)
		qp->carrier = carrier;
	return err;
}

/* Calls the carrier's operation for a new state, or for changed attributes. */
static void tell_carrier(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
	REQUIRES(qp->lock)
{
	if (from == to || from == IBV_QPS_SQD)
		qp->carrier->change(qp, mask);
	if (from == to)
		return;
	if (to == IBV_QPS_RTR)
		qp->carrier->receive_ready(qp);
	else if (to == IBV_QPS_RTS)
		qp->carrier->send_ready(qp, from);
	else if (to == IBV_QPS_SQD)
		qp->carrier->drain(qp);
}

/* Does what entering the new state requires. hca.engine and qp.lock are held. */
static int qp_enter(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask,
		    const struct route *route) REQUIRES(qp->lock)
{
	int err = to == IBV_QPS_RTR && from == IBV_QPS_INIT ? connect_qp(qp, route) : 0;

	if (err)
		return err;
	qp->state = to;
	qp_publish(qp);
	if (to == IBV_QPS_SQD && from == IBV_QPS_RTS)
		qp->sqd_notify = qp->attr.en_sqd_async_notify;
	tell_carrier(qp, from, to, mask);
	if (unlikely(qp->tagged != NULL))
		tagged_wake(qp);
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS && mask & IBV_QP_PATH_MIG_STATE)
		qp->carrier->change(qp, IBV_QP_PATH_MIG_STATE);
	return 0;
}

static int modify_locked(struct qp *qp, const struct ibv_qp_attr *attr, int mask,
			 const struct route *route) REQUIRES(qp->lock)
{
	enum ibv_qp_state from = qp->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from) {
		log_warn("ibv_modify_qp: cur_qp_state is %s, the QP is in %s",
			 qp_state_name(attr->cur_qp_state), qp_state_name(from));
		return EINVAL;
	}
	if ((unsigned int)to > IBV_QPS_ERR)
		return refused(EINVAL, "ibv_modify_qp: there is no state %d", (int)to);
	bool migrates;
	int err = qp_state_check(qp->type, from, to, mask);

	if (!err)
		err = migrate_check_state(qp, attr, mask, &migrates);
	if (err)
		return err;
	if (to == IBV_QPS_RESET) {
		qp_reset(qp);
		return 0;
	}
	if (to == IBV_QPS_ERR) {
		qp_fail(qp, -1);
		return 0;
	}
	err = mask & IBV_QP_RATE_LIMIT ? pace_set(qp, attr->rate_limit, 0) : 0;
	if (err)
		return err;
	qp_copy_attr(&qp->attr, attr, migrates ? mask & ~IBV_QP_PATH_MIG_STATE : mask);
	err = qp_enter(qp, from, to, mask, route);
	if (!err && migrates)
		migrate_go(qp);
	if (!err && mask & IBV_QP_RATE_LIMIT)
		sq_start_posted(qp); /* what the old limit held back */
	return err;
}

/* A QP's carrier and peer, kept for carrier.settle, which is called when the QP has neither any
 * more. */
struct connection {
	const struct carrier *carrier;
	uint32_t peer_qpn;
};

static struct connection connection_of(struct qp *qp)
{
	lock_take(&qp->lock);
	struct connection c = {qp->carrier, qp->attr.dest_qp_num};

	lock_give(&qp->lock);
	return c;
}

/* Removes the QP's completions from its CQs. All places of its queues, which are empty, are free.
 * Not before: a thread that polls such a completion would count it. */
static void forget_completions(struct qp *qp)
{
	cq_forget_qp(qp->send_cq, qp->ibv.qp_num);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		cq_forget_qp(qp->recv_cq, qp->ibv.qp_num);
	places_set(&qp->freed.sends, SEND_QUEUE_START);
	places_set(&qp->freed.receives, RECV_QUEUE_START);
}

int qp_modify(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct qp *qp = qp_of(ibv);
	/* All bits up to the highest of the classic ones, and the one that was added. */
	int known = (IBV_QP_DEST_QPN * 2 - 1) | IBV_QP_RATE_LIMIT;
	struct route route = {0};
	int err;

	if (qp->spread) {
		log_warn("ibv_modify_qp: a queue pair with an indirection table has no states");
		return EOPNOTSUPP;
	}
	if (mask & ~known)
		return refused(EINVAL, "ibv_modify_qp: attr_mask 0x%x has unknown bits",
			       (unsigned int)mask);
	if (context_removed(qp->context))
		return refused(EIO, "ibv_modify_qp: the device has been removed");
	mask = qp_state_mask(qp->type, mask);
	if (qp->target)
		return target_modify(qp, attr, mask);
	err = qp_check_values(qp, attr, mask, &route);
	if (err)
		return err;
	bool resets = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET;
	bool fails = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR;
	struct connection old = connection_of(qp);

	if (resets || fails)
		old.carrier->take_in(qp);
	lock_take(&qp->hca->engine);
	if (mask & IBV_QP_AV)
		carrier_choose(qp->hca, qp->type, attr->dest_qp_num, &route)
			->take_in_former(qp->hca);
	lock_take(&qp->lock);
	err = modify_locked(qp, attr, mask, &route);
	lock_give(&qp->lock);
	/* What the program has seen arrive is acknowledged now: an adapter acknowledges before it
	 * reports, and this process may do nothing more for longer than its peer waits. */
	if (fails)
		engine_acknowledge(qp->hca);
	engine_leave(qp->hca);
	/* The QP has left the states in which it sends: when this call returns, the program may use
	 * its requests' memory for something else. */
	if (!err && (resets || fails))
		old.carrier->settle(qp->hca, ibv->qp_num, old.peer_qpn, false);
	if (!err && resets)
		window_leave_qp(qp);
	if (!err && resets)
		forget_completions(qp);
	return err;
}

int qp_limit_rate(struct ibv_qp *ibv, const struct ibv_qp_rate_limit_attr *limit)
{
	struct qp *qp = qp_of(ibv);

	if (limit->comp_mask)
		return refused(EINVAL, "ibv_modify_qp_rate_limit: comp_mask is 0x%x, and must be 0",
			       limit->comp_mask);
	lock_take(&qp->lock);
	bool may = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_SQD;
	int err = may ? pace_set(qp, limit->rate_limit, limit->max_burst_sz)
		      : refused(EINVAL,
				"ibv_modify_qp_rate_limit: the QP is in %s; a rate is for "
				"RTR, RTS and SQD",
				qp_state_name(qp->state));

	if (!err) {
		qp->attr.rate_limit = limit->rate_limit;
		sq_start_posted(qp);
	}
	lock_give(&qp->lock);
	return err;
}

int qp_query(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *qp = qp_of(ibv);

	(void)mask; /* all attributes are at hand; the mask names those that must be filled */
	if (qp->target)
		return target_query(qp, attr, init);
	lock_take(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->cap;
	attr->sq_draining = qp->state == IBV_QPS_SQD && qp->sq.acked != qp->sq.next;
	lock_give(&qp->lock);
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context,
		.send_cq = ibv->send_cq,
		.recv_cq = ibv->recv_cq,
		.srq = ibv->srq,
		.cap = qp->cap,
		.qp_type = ibv->qp_type,
		.sq_sig_all = qp->sq_sig_all,
	};
	return 0;
}

/* ------------------------------------------------------------------ ending */

static void qp_unpublish(struct qp *qp)
{
	struct hca *hca = qp->hca;

	lock_take(&hca->engine);
	lock_take(&qp->lock);
	qp_disconnect(qp);
	hca->qps[qp->index] = NULL;
	/* The epoch stays in the entry: the number's next QP continues from it. */
	pub_qp_write_state(&hca->pub->qp[qp->index], pub_qp_epoch_bits(qp->epoch + 1));
	lock_give(&qp->lock);
	hazard_disown(hca, qp->hazards);
	lock_give(&hca->engine);
}

int qp_destroy(struct ibv_qp *ibv)
{
	struct qp *qp = qp_of(ibv);

	if (qp->target)
		return target_destroy(qp);
	struct connection old = connection_of(qp);

	if (!list_empty(&qp->groups) || !list_empty(&qp->flows))
		return refused(EBUSY,
			       "ibv_destroy_qp: QP 0x%x is in multicast groups (leave them by "
			       "ibv_detach_mcast) or has flow rules (ibv_destroy_flow)",
			       ibv->qp_num);
	old.carrier->linger(qp);
	old.carrier->take_in(qp);
	qp_unpublish(qp);
	old.carrier->settle(qp->hca, ibv->qp_num, old.peer_qpn, true);
	window_leave_qp(qp);
	forget_completions(qp);
	qp_leave_srq(qp);
	books_enter(qp->hca);
	daemon_destroy_qp(&qp->context->conn, qp->handle);
	books_drop(qp->context, &qp->held);
	books_leave(qp->hca);
	use_cqs(qp, -1); /* from now on they may end */
	event_queue_forget(&qp->context->async, qp);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != qp->async_reported)
		sys_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	struct ibv_pd *pd = ibv->pd;

	qp_free(qp);
	pd_use(pd, -1);
	return 0;
}
