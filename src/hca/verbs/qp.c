/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue pairs: creating, modifying, querying, ending them. See qp.h and hca.h for the locks. */
#include "hca/verbs/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"
#include "hca/verbs/route.h"
#include "hca/verbs/srq.h"

void qp_ex_init(struct qp *qp);

#define LINGER_NS 1000000000ull /* for what a UD QP has posted, when it ends */

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
#define SEND_OPS_UC (SEND_OPS_UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define SEND_OPS_RC                                                                   \
	(SEND_OPS_UC | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

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

/* What was asked for, rounded up to what makes sense to have. */
static struct ibv_qp_cap grant(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_cap cap = attr->cap;

	if (attr->srq)
		cap.max_recv_wr = cap.max_recv_sge = 0;
	if (cap.max_send_wr && !cap.max_send_sge)
		cap.max_send_sge = 1;
	if (cap.max_recv_wr && !cap.max_recv_sge)
		cap.max_recv_sge = 1;
	/* The place that segments take serves inline data as well. */
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
	qp->cap = grant(attr);
	qp->epoch = 1;
	lock_init(&qp->lock);
	list_init(&qp->tx_wait);
	list_init(&qp->active);
	list_init(&qp->ack_node);
	list_init(&qp->inbound);
	list_init(&qp->srq_wait);
	list_init(&qp->rnr_node);
	list_init(&qp->groups);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->has_ex = true;
		qp_ex_init(qp);
	}
	if (sq_init(&qp->sq, &qp->cap) ||
	    rq_init(&qp->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge)) {
		if (qp->sq.wqes)
			munmap(qp->sq.wqes, (size_t)(qp->sq.mask + 1) * qp->sq.stride);
		free(qp);
		return NULL;
	}
	return qp;
}

static void qp_free(struct qp *qp)
{
	if (qp->sq.wqes)
		munmap(qp->sq.wqes, (size_t)(qp->sq.mask + 1) * qp->sq.stride);
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
		.srq_handle = qp->srq ? qp->ibv.srq->handle : 0,
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

static struct proto_new_cq new_cq(const struct cq *cq)
{
	return cq->registered ? (struct proto_new_cq){0}
			      : (struct proto_new_cq){cq->depth, cq->comp_vector};
}

/* The CQs that it is to come with (cq_with_qp.h), and itself. */
static int create_with_cqs(struct qp *qp, const struct ib_uverbs_create_qp *alone,
			   struct ib_uverbs_create_qp_resp *out)
{
	struct cq *send = cq_of(qp->ibv.send_cq), *recv = cq_of(qp->ibv.recv_cq);
	struct proto_create_qp_cqs cmd = {.send = new_cq(send), .qp = *alone};
	struct proto_create_qp_cqs_resp resp;

	if (recv != send)
		cmd.recv = new_cq(recv);
	else if (!send->registered)
		return -EINVAL; /* it is for one side */
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
	/* A number's earlier owner left its epoch: records for it are not for us. */
	qp->epoch = pub_qp_epoch(atomic_load(&qp->hca->pub->qp[qp->index].state)) + 1;
	lock_take(&qp->hca->engine);
	lock_take(&qp->lock);
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

void qp_publish(struct qp *qp)
{
	struct pub_qp *e = &qp->hca->pub->qp[qp->index];
	uint64_t word = qp->state | (uint64_t)qp->type << 8 |
			(uint64_t)(qp_remote_access(qp) & 0xffff) << 16 | (uint64_t)qp->epoch << 32;

	atomic_store_explicit(&e->peer, qp->attr.dest_qp_num, memory_order_relaxed);
	atomic_store_explicit(&e->pd, qp->pd_id, memory_order_relaxed);
	atomic_store_explicit(&e->rq_psn, qp->attr.rq_psn, memory_order_relaxed);
	atomic_store_explicit(&e->receives, qp->rq.told, memory_order_relaxed);
	/* Before anything that follows: the program may reuse what a failed QP's requests named. */
	atomic_store(&e->state, word);
}

void qp_fail(struct qp *qp, int event)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = qp->ibv.state = IBV_QPS_ERR;
	qp_publish(qp);
	sq_flush(qp);
	/* First what gives a receive back, which is flushed then. */
	responder_drop_inbound(qp);
	if (qp->roce)
		roce_stop(qp);
	rq_flush(qp);
	if (event >= 0)
		async_qp(qp, event);
	if (qp->srq)
		async_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* Takes the QP off every list. Engine and qp.lock held. */
static void leave_lists(struct qp *qp)
{
	list_del(&qp->ack_node);
	list_del(&qp->srq_wait);
	list_del(&qp->rnr_node);
	responder_drop_inbound(qp);
	link_unwait(qp);
	lock_take(&qp->hca->active_lock);
	list_del(&qp->active);
	atomic_store(&qp->is_active, false);
	lock_give(&qp->hca->active_lock);
}

/* What arrived and was executed has been acknowledged by a card long since. */
static void send_last_ack(struct qp *qp)
{
	if (!qp->ack_pending || !qp->link)
		return;
	struct ring_header h = {0};

	qp_record(qp, &h, REC_ACK, 0);
	link_control(qp->link, &h, NULL, 0);
}

/* Back to the beginning: queues empty, numbers 0. Engine and qp.lock held. */
static void reset(struct qp *qp)
{
	struct ibv_qp_attr none = {.cap = qp->cap, .port_num = 1};

	send_last_ack(qp);
	roce_disconnect(qp);
	leave_lists(qp);
	qp->sq.head = qp->sq.next = qp->sq.acked = 0;
	qp->rq.head = qp->rq.tail = qp->rq.held = qp->rq.told = 0;
	qp->reads_out = qp->blocking_out = qp->settled_out = 0;
	qp->receives_used = qp->receives_seen = 0;
	qp->next_msn = qp->arrived_msn = qp->done_msn = 0;
	qp->link = NULL;
	qp->remote = NULL;
	qp->peer_ready = qp->kick_pending = qp->pulled = qp->rnr_waiting = false;
	qp->halted = qp->comm_established = qp->sqd_notify = false;
	atomic_store_explicit(&qp->ack_pending, false, memory_order_relaxed);
	qp->write_void = false;
	qp->write_done = 0;
	qp->stalled_since = 0;
	qp->ud_psn = qp->next_psn = 0;
	qp->attr = none;
	qp->epoch++;
	qp->state = qp->ibv.state = IBV_QPS_RESET;
	qp_publish(qp);
}

/* ------------------------------------------------------------------ modifying */

static int check_path(struct qp *qp, const struct ibv_ah_attr *ah, struct route *route)
{
	if (!ah->is_global || ah->port_num != 1) {
		log_warn("ibv_modify_qp: RoCE needs a global route (is_global, grh) and port 1");
		return EINVAL;
	}
	return route_find(qp->context, &ah->grh, route);
}

static int check_values(struct qp *qp, const struct ibv_qp_attr *attr, int mask,
			struct route *route)
{
	if ((mask & IBV_QP_PORT) && attr->port_num != 1)
		return EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
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
	return mask & IBV_QP_AV ? check_path(qp, &attr->ah_attr, route) : 0;
}

#define COPY(bit, field)                              \
	do {                                          \
		if (mask & (bit))                     \
			qp->attr.field = attr->field; \
	} while (0)

static void store(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
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

/* RTR of a connected QP: learns its peer, and tells it. */
static int connect_qp(struct qp *qp, const struct route *route)
{
	memcpy(qp->sgid, route->at.sgid, sizeof(qp->sgid));
	if (route->roce)
		return roce_connect(qp, &route->at);
	uint32_t slot = qp->attr.dest_qp_num >> LIMIT_QP_BITS;
	struct link *link = link_get(qp->hca, slot);

	if (!link)
		return ENOMEM;
	qp->link = link;
	qp->kick_pending = true;
	link_wait(link, qp);
	return 0;
}

/* What the wire's core is to know of a change. */
static void enter_on_roce(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	if (from == to || from == IBV_QPS_SQD)
		roce_change(qp, mask);
	if (to == IBV_QPS_RTS && from != to)
		roce_send_ready(qp, from);
	else if (to == IBV_QPS_SQD && from == IBV_QPS_RTS)
		roce_drain(qp);
}

/* The new state's own work. Engine and qp.lock held. */
static int enter(struct qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask,
		 const struct route *route)
{
	int err = 0;

	if (to == IBV_QPS_RTR && from == IBV_QPS_INIT && qp->type != IBV_QPT_UD)
		err = connect_qp(qp, route);
	if (err)
		return err;
	qp->state = qp->ibv.state = to;
	qp_publish(qp);
	if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		qp->ud_psn = qp->next_psn = qp->attr.sq_psn;
	if (to == IBV_QPS_SQD && from == IBV_QPS_RTS)
		qp->sqd_notify = qp->attr.en_sqd_async_notify;
	if (qp->roce) {
		enter_on_roce(qp, from, to, mask);
		return 0;
	}
	if (to == IBV_QPS_RTR || to == IBV_QPS_RTS) {
		qp_wake(qp);
	} else if (qp->sqd_notify && qp->sq.acked == qp->sq.next) {
		qp->sqd_notify = false;
		async_qp(qp, IBV_EVENT_SQ_DRAINED);
	}
	return 0;
}

static int modify_locked(struct qp *qp, const struct ibv_qp_attr *attr, int mask,
			 const struct route *route)
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
	int err = qp_state_check(qp->type, from, to, mask);

	if (err)
		return err;
	if (to == IBV_QPS_RESET) {
		reset(qp);
		return 0;
	}
	if (to == IBV_QPS_ERR) {
		qp_fail(qp, -1);
		return 0;
	}
	store(qp, attr, mask);
	return enter(qp, from, to, mask, route);
}

/*
 * A card takes messages in when they arrive, whatever the program does; here they may still be in
 * the ring. Before a QP stops to receive they are taken in, or the peer would miss its
 * acknowledgement.
 */
static void take_in_arrived(struct qp *qp)
{
	struct link *link = qp->link;

	if (link && link_is(link, LINK_UP))
		engine_drain(qp->hca, link);
	if (qp->roce)
		engine_take_in(qp->hca);
}

/* The slot of a connected QP's peer, 0: none. */
static uint32_t peer_slot(struct qp *qp)
{
	lock_take(&qp->lock);
	uint32_t slot = qp->link ? qp->link->slot : 0;

	lock_give(&qp->lock);
	return slot;
}

/* The QP has left the states in which it sends: when this returns, its requests' memory may be
 * used for something else. */
static void wait_for_fetchers(struct qp *qp, uint32_t peer)
{
	if (peer)
		hazard_wait_qp(qp->hca, peer, qp->ibv.qp_num);
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
	uint32_t peer = resets || fails ? peer_slot(qp) : 0;

	if (resets || fails)
		take_in_arrived(qp);
	lock_take(&qp->hca->engine);
	/* What came until now was sent to the QP's former life. A card has dropped it long since;
	 * here it is still in the socket, and with PSNs like the new ones it would be believed. */
	if (route.roce)
		roce_take_in(qp->hca->roce);
	lock_take(&qp->lock);
	err = modify_locked(qp, attr, mask, &route);
	lock_give(&qp->lock);
	engine_leave(qp->hca);
	if (!err)
		wait_for_fetchers(qp, peer);
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

	(void)mask; /* everything is at hand; the mask says what must be filled at least */
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

static void unpublish(struct qp *qp)
{
	struct hca *hca = qp->hca;

	lock_take(&hca->engine);
	lock_take(&qp->lock);
	send_last_ack(qp);
	roce_disconnect(qp);
	leave_lists(qp);
	hca->qps[qp->index] = NULL;
	/* The epoch stays: the number's next owner goes on from it. */
	atomic_store(&hca->pub->qp[qp->index].state, (uint64_t)(qp->epoch + 1) << 32);
	lock_give(&qp->lock);
	lock_give(&hca->engine);
}

static bool datagrams_wait(struct qp *qp)
{
	lock_take(&qp->lock);
	bool yes = qp->type == IBV_QPT_UD && qp->state == IBV_QPS_RTS &&
		   qp->sq.next != qp->sq.head && qp->hca->conn.fd >= 0;

	lock_give(&qp->lock);
	return yes;
}

/* A card has sent what was posted; here a datagram may wait for a link, because it is the first to
 * its process. A program that asked for no completion ends its QP now. */
static void send_last_datagrams(struct qp *qp)
{
	uint64_t until = now_ns() + LINGER_NS;

	while (datagrams_wait(qp) && now_ns() < until)
		engine_poll(qp->hca);
}

int qp_destroy(struct ibv_qp *ibv)
{
	struct qp *qp = qp_of(ibv);
	uint32_t peer = peer_slot(qp);
	struct link *link = qp->link;

	if (!list_empty(&qp->groups))
		return EBUSY;
	send_last_datagrams(qp);
	take_in_arrived(qp);
	unpublish(qp);
	if (link)
		link_send_last(link);
	wait_for_fetchers(qp, peer);
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
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	qp_free(qp);
	return 0;
}
