/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: creating, modifying, querying, ending them. See qp.h and hca.h for the locks. */
#include "hca/verbs/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/fabric/membership.h"
#include "hca/fabric/path.h"
#include "hca/mem/hazard.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/migrate.h"
#include "hca/verbs/route.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/window.h"

void qp_ex_init(struct qp *qp);

/* ------------------------------------------------------------------ creating */

static int check_caps(const struct ibv_qp_cap *cap)
{
	if (cap->max_send_wr > LIMIT_QP_WR || cap->max_recv_wr > LIMIT_QP_WR ||
	    cap->max_send_sge > LIMIT_SGE || cap->max_recv_sge > LIMIT_SGE ||
	    cap->max_inline_data > LIMIT_INLINE)
		return EINVAL;
	return 0;
}

#define SEND_OPS_UD (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define SEND_OPS_UC                                                                     \
	(SEND_OPS_UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | \
	 IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)
#define SEND_OPS_RC                                                                   \
	(SEND_OPS_UC | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV)

static int check_init(const struct ibv_qp_init_attr_ex *attr)
{
	uint64_t ops = 0;

	switch (attr->qp_type) {
	case IBV_QPT_RC:
		ops = SEND_OPS_RC;
		break;
	case IBV_QPT_UC:
		ops = SEND_OPS_UC;
		break;
	case IBV_QPT_UD:
		ops = SEND_OPS_UD;
		break;
	default:
		return EOPNOTSUPP;
	}
	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
					  IBV_QP_INIT_ATTR_CREATE_FLAGS))
		return EOPNOTSUPP;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)
		return EOPNOTSUPP;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops))
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !attr->send_cq ||
	    !attr->recv_cq)
		return EINVAL;
	return check_caps(&attr->cap);
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

/* The capabilities that the QP gets: those asked for, rounded up to usable values. */
static struct ibv_qp_cap qp_grant_caps(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	if (attr->srq)
		cap.max_recv_wr = cap.max_recv_sge = 0;
	if (cap.max_send_wr && !cap.max_send_sge)
		cap.max_send_sge = 1;
	if (cap.max_recv_wr && !cap.max_recv_sge)
		cap.max_recv_sge = 1;
	/* Segments and inline data share the same place in a WQE. */
	uint32_t body = cap.max_send_sge * sizeof(struct ibv_sge);

	if (cap.max_inline_data < body)
		cap.max_inline_data = body;
	return cap;
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
	qp->pd_id = pd_of(attr->pd)->id;
	qp->type = attr->qp_type;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->cap = qp_grant_caps(attr);
	lock_init(&qp->lock, RANK_QP);
	lock_init(&qp->builder.turn, RANK_QP_TURN);
	qp->carrier = &carrier_none;
	qp->epoch = 1;
	list_init(&qp->room_wait);
	list_init(&qp->tx_wait);
	list_init(&qp->active);
	list_init(&qp->srq_wait);
	list_init(&qp->groups);
	list_init(&qp->windows);
	list_init(&qp->window_wait);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->has_ex = true;
		qp_ex_init(qp);
	}
	if (sq_init(&qp->sq, &qp->cap) || (qp->has_ex && sq_init(&qp->builder.built, &qp->cap)) ||
	    rq_init(&qp->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge)) {
		sq_free(&qp->sq);
		sq_free(&qp->builder.built);
		free(qp);
		return NULL;
	}
	return qp;
}

static void qp_free(struct qp *qp)
{
	lock_assume_alone(&qp->lock);
	lock_assume_alone(&qp->builder.turn);
	sq_free(&qp->sq);
	sq_free(&qp->builder.built);
	rq_free(&qp->rq);
	free(qp->fanout);
	pthread_mutex_destroy(&qp->ibv.mutex);
	pthread_cond_destroy(&qp->ibv.cond);
	free(qp);
}

struct ib_uverbs_create_qp qp_create_command(const struct qp *qp)
{
	return (struct ib_uverbs_create_qp){
		.user_handle = (uintptr_t)qp,
		.pd_handle = pd_of(qp->ibv.pd)->handle,
		.send_cq_handle = cq_of(qp->ibv.send_cq)->handle,
		.recv_cq_handle = cq_of(qp->ibv.recv_cq)->handle,
		.srq_handle = qp->srq ? qp->srq->handle : 0,
		.max_send_wr = qp->cap.max_send_wr,
		.max_recv_wr = qp->cap.max_recv_wr,
		.max_send_sge = qp->cap.max_send_sge,
		.max_recv_sge = qp->cap.max_recv_sge,
		.max_inline_data = qp->cap.max_inline_data,
		.sq_sig_all = qp->sq_sig_all,
		.qp_type = qp->type,
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
	struct cq *send = cq_of(qp->ibv.send_cq), *recv = cq_of(qp->ibv.recv_cq);
	struct proto_create_qp_cqs cmd = {.send = new_cq(send), .qp = *alone};
	struct proto_create_qp_cqs_resp resp;

	if (recv != send)
		cmd.recv = new_cq(recv);
	else if (!send->registered)
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
	struct ib_uverbs_create_qp cmd = qp_create_command(qp);
	struct ib_uverbs_create_qp_resp resp;

	books_enter(qp->hca);
	bool alone = cq_of(qp->ibv.send_cq)->registered && cq_of(qp->ibv.recv_cq)->registered;
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
	atomic_fetch_add(&cq_of(qp->ibv.send_cq)->users, change);
	atomic_fetch_add(&cq_of(qp->ibv.recv_cq)->users, change);
}

struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct qp *qp = NULL;
	int err = check_init(attr);

	if (!err) {
		qp = qp_new(context, attr);
		err = qp ? register_qp(qp) : ENOMEM;
	}
	if (err) {
		if (qp)
			qp_free(qp);
		errno = err;
		return NULL;
	}
	use_cqs(qp, 1);
	lock_take(&qp->hca->engine);
	qp->hazards = hazard_own(qp->hca);
	lock_take(&qp->lock);
	/* The number's former QP left its epoch in the entry: records for that QP are not for this
	 * one. */
	qp->epoch = pub_qp_epoch(pub_qp_read_state(&qp->hca->pub->qp[qp->index])) + 1;
	qp_publish(qp);
	lock_give(&qp->lock);
	qp->hca->qps[qp->index] = qp;
	engine_leave(qp->hca);
	attr->cap = qp->cap;
	return &qp->ibv;
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
	uint64_t word = qp->state | (uint64_t)qp->type << 8 |
			(uint64_t)(qp_remote_access(qp) & 0xffff) << 16 | (uint64_t)qp->epoch << 32;

	atomic_store_explicit(&e->peer, qp->attr.dest_qp_num, memory_order_relaxed);
	atomic_store_explicit(&e->pd, qp->pd_id, memory_order_relaxed);
	atomic_store_explicit(&e->rq_psn, qp->attr.rq_psn, memory_order_relaxed);
	atomic_store_explicit(&e->receives, qp->rq.published, memory_order_relaxed);
	if (unlikely(qp->hca->membership != NULL)) {
		atomic_store_explicit(&e->alternate, path_word_alternate(&qp->attr),
				      memory_order_relaxed);
		atomic_store_explicit(&e->path, path_word(&qp->attr), memory_order_relaxed);
	}
	atomic_store_explicit(&e->arm_groups,
			      cq_of(qp->ibv.send_cq)->arm_group |
				      (uint32_t)cq_of(qp->ibv.recv_cq)->arm_group << 8,
			      memory_order_relaxed);
	/* Published before anything that follows: the program may reuse the memory of a failed QP's
	 * requests. */
	pub_qp_write_state(e, word);
}

void qp_fail(struct qp *qp, int event)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	qp_publish(qp);
	sq_flush(qp);
	/* The carrier first: it may give a receive back, which is then flushed with the others. */
	qp->carrier->stop(qp);
	qp->starved = false;
	rq_flush(qp);
	if (event >= 0)
		async_qp(qp, event);
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

/* Takes the QP off every list. hca.engine and qp.lock are held. */
static void qp_disconnect(struct qp *qp) REQUIRES(qp->lock)
{
	qp->carrier->disconnect(qp);
	qp->carrier = &carrier_none;
	qp->starved = false;
}

/* Back to RESET: queues empty, counts 0. hca.engine and qp.lock are held. */
static void qp_reset(struct qp *qp) REQUIRES(qp->lock)
{
	struct ibv_qp_attr none = {.cap = qp->cap, .port_num = 1};

	qp_disconnect(qp);
	qp->sq.head = qp->sq.next = qp->sq.acked = 0;
	qp->rq.head = qp->rq.tail = qp->rq.held = qp->rq.published = 0;
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

static int check_values(struct qp *qp, const struct ibv_qp_attr *attr, int mask,
			struct route *route)
{
	const struct membership *membership = qp->hca->membership;
	uint32_t ports = membership ? membership->node->ports : 1;
	uint32_t pkeys = membership ? FABRIC_PKEYS : LIMIT_PKEYS;

	if ((mask & IBV_QP_PORT) && (!attr->port_num || attr->port_num > ports))
		return EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index >= pkeys)
		return EINVAL;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return EINVAL;
	if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > LIMIT_RD_ATOM) ||
	    ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > LIMIT_RD_ATOM))
		return EINVAL;
	if (((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31) ||
	    ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31) ||
	    ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) ||
	    ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7))
		return EINVAL;
	if ((mask & IBV_QP_DEST_QPN) && attr->dest_qp_num > 0xffffff)
		return EINVAL;
	int err = migrate_check(qp, attr, mask);

	return !err && mask & IBV_QP_AV ? check_path(qp, &attr->ah_attr, route) : err;
}

#define COPY(bit, field)                              \
	do {                                          \
		if (mask & (bit))                     \
			qp->attr.field = attr->field; \
	} while (0)

static void qp_store_attr(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
	REQUIRES(qp->lock)
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
	if (mask & IBV_QP_RQ_PSN)
		qp->attr.rq_psn = attr->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		qp->attr.sq_psn = attr->sq_psn & 0xffffff;
	if (mask & IBV_QP_ALT_PATH) {
		qp->attr.alt_ah_attr = attr->alt_ah_attr;
		qp->attr.alt_pkey_index = attr->alt_pkey_index;
		qp->attr.alt_port_num = attr->alt_port_num;
		qp->attr.alt_timeout = attr->alt_timeout;
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
		return EINVAL;
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
	qp_store_attr(qp, attr, migrates ? mask & ~IBV_QP_PATH_MIG_STATE : mask);
	err = qp_enter(qp, from, to, mask, route);
	if (!err && migrates)
		migrate_go(qp);
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

int qp_modify(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct qp *qp = qp_of(ibv);
	int known = IBV_QP_DEST_QPN * 2 - 1; /* all bits up to the highest of the classic ones */
	struct route route = {0};
	int err;

	if (mask & ~known)
		return mask & IBV_QP_RATE_LIMIT ? EOPNOTSUPP : EINVAL;
	err = check_values(qp, attr, mask, &route);
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
	engine_leave(qp->hca);
	/* The QP has left the states in which it sends: when this call returns, the program may use
	 * its requests' memory for something else. */
	if (!err && (resets || fails))
		old.carrier->settle(qp->hca, ibv->qp_num, old.peer_qpn, false);
	if (!err && resets)
		window_leave_qp(qp);
	if (!err && resets) {
		cq_forget_qp(cq_of(ibv->send_cq), ibv->qp_num);
		if (ibv->recv_cq != ibv->send_cq)
			cq_forget_qp(cq_of(ibv->recv_cq), ibv->qp_num);
	}
	return err;
}

int qp_query(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *qp = qp_of(ibv);

	(void)mask; /* all attributes are at hand; the mask names those that must be filled */
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
	pub_qp_write_state(&hca->pub->qp[qp->index], (uint64_t)(qp->epoch + 1) << 32);
	lock_give(&qp->lock);
	hazard_disown(hca, qp->hazards);
	lock_give(&hca->engine);
}

int qp_destroy(struct ibv_qp *ibv)
{
	struct qp *qp = qp_of(ibv);
	struct connection old = connection_of(qp);

	if (!list_empty(&qp->groups))
		return EBUSY;
	old.carrier->linger(qp);
	old.carrier->take_in(qp);
	qp_unpublish(qp);
	old.carrier->settle(qp->hca, ibv->qp_num, old.peer_qpn, true);
	window_leave_qp(qp);
	books_enter(qp->hca);
	daemon_destroy_qp(&qp->context->conn, qp->handle);
	books_drop(qp->context, &qp->held);
	books_leave(qp->hca);
	cq_forget_qp(cq_of(ibv->send_cq), ibv->qp_num);
	if (ibv->recv_cq != ibv->send_cq)
		cq_forget_qp(cq_of(ibv->recv_cq), ibv->qp_num);
	use_cqs(qp, -1); /* from now on they may end */
	event_queue_forget(&qp->context->async, qp);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != qp->async_reported)
		sys_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	qp_free(qp);
	return 0;
}
