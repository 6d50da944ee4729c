/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Queue pairs of an id: created with the CQs that they need, and moved through their states. See
 * rdmacm.h.
 *
 * The daemon says what a state's attributes are (INIT_QP_ATTR), since it knows the path and what
 * the peers negotiated. A connected QP is in INIT until the connection is made; a datagram QP is
 * ready at once. Owns the CQs and channels that the library created, while the QP exists.
 */
#include "rdmacm/rdmacm.h"

#include <rdma/rdma_verbs.h>
#include <stdlib.h>

#include "abi/marshall.h"
#include "base/fork.h"
#include "base/refused.h"

/* ------------------------------------------------------------------ who uses a QP */

struct mutex qps_lock = MUTEX_INITIALIZER(RANK_RDMACM_QPS);
static pthread_cond_t qp_released = PTHREAD_COND_INITIALIZER;

FORK_KEEP(qps_lock);

/* A child has none of its parent's threads. */
static unsigned int *qp_users(struct id *id) REQUIRES(qps_lock)
{
	if (id->qp_users_fork != rdmacm_forks) {
		id->qp_users_fork = rdmacm_forks;
		id->qp_users = 0;
	}
	return &id->qp_users;
}

static struct ibv_qp *hold_locked(struct id *id) REQUIRES(qps_lock)
{
	struct ibv_qp *qp = id->qp_ends ? NULL : id->pub.qp;

	if (qp)
		++*qp_users(id);
	return qp;
}

struct ibv_qp *id_hold_qp(struct id *id)
{
	mutex_take(&qps_lock);
	struct ibv_qp *qp = hold_locked(id);

	mutex_give(&qps_lock);
	return qp;
}

void id_release_qp(struct id *id)
{
	mutex_take(&qps_lock);
	--*qp_users(id);
	pthread_cond_broadcast(&qp_released);
	mutex_give(&qps_lock);
}

static void qp_wait_for_users(struct id *id)
{
	mutex_take(&qps_lock);
	id->qp_ends = true;
	while (*qp_users(id))
		mutex_wait(&qps_lock, &qp_released);
	mutex_give(&qps_lock);
}

/* NULL: the QP has ended. */
static void qp_set(struct id *id, struct ibv_qp *qp)
{
	mutex_take(&qps_lock);
	id->pub.qp = qp;
	id->connected = id->qp_ends = false;
	mutex_give(&qps_lock);
}

/* ------------------------------------------------------------------ states */

void qp_learn(struct id *id, const struct proto_cm_event *event)
{
	id->known |= event->known & (PROTO_CM_KNOWS_INIT | PROTO_CM_KNOWS_READY);
	if (event->known & PROTO_CM_KNOWS_INIT)
		id->init = event->init;
	if (event->known & PROTO_CM_KNOWS_READY) {
		id->rtr = event->rtr;
		id->rts = event->rts;
	}
}

/* The attributes for `state` that came with an event; NULL: none did. */
static const struct ib_uverbs_qp_attr *known_attr(const struct id *id, enum ibv_qp_state state)
{
	if (state == IBV_QPS_INIT)
		return id->known & PROTO_CM_KNOWS_INIT ? &id->init : NULL;
	if (!(id->known & PROTO_CM_KNOWS_READY))
		return NULL;
	return state == IBV_QPS_RTR ? &id->rtr : &id->rts;
}

static int ask_attr(struct id *id, enum ibv_qp_state state, struct ib_uverbs_qp_attr *attr)
{
	struct rdma_ucm_init_qp_attr body = {.id = id->handle, .qp_state = state};

	return cm_call(id->generation, RDMA_USER_CM_CMD_INIT_QP_ATTR, &body, sizeof(body), attr,
		       sizeof(*attr), NULL);
}

static int state_attr(struct id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr, int *mask)
{
	const struct ib_uverbs_qp_attr *known = known_attr(id, state);
	struct ib_uverbs_qp_attr asked;
	int err = known ? 0 : ask_attr(id, state, &asked);

	if (err)
		return err;
	if (!known)
		known = &asked;
	*attr = (struct ibv_qp_attr){0};
	ibv_copy_qp_attr_from_kern(attr, known);
	*mask = (int)known->qp_attr_mask;
	return 0;
}

/* Always asks the daemon: the program may change its QPs and call this at any time. */
EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *qp_attr, int *qp_attr_mask)
{
	struct ib_uverbs_qp_attr attr;
	int err = ask_attr(id_of(id), qp_attr->qp_state, &attr);

	if (err)
		return cm_result(err);
	ibv_copy_qp_attr_from_kern(qp_attr, &attr);
	*qp_attr_mask = (int)attr.qp_attr_mask;
	return 0;
}

static int id_move_qp(struct id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	int mask;
	int err = state_attr(id, state, &attr, &mask);

	return err ? err : -ibv_modify_qp(qp, &attr, mask);
}

static int datagrams_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int err = -ibv_modify_qp(qp, &attr, IBV_QP_STATE);

	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTS;
	return -ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int qp_to_init(struct id *id, struct ibv_qp *qp)
{
	int err = id_move_qp(id, qp, IBV_QPS_INIT);

	return err || id->pub.qp_type != IBV_QPT_UD ? err : datagrams_ready(qp);
}

int qp_to_rts(struct id *id, struct ibv_qp *qp, uint8_t responder_resources,
	      uint8_t initiator_depth)
{
	struct ibv_qp_attr attr;
	int mask;
	/* The access rights depend on what was negotiated since the QP was made. */
	int err = id_move_qp(id, qp, IBV_QPS_INIT);

	if (!err)
		err = state_attr(id, IBV_QPS_RTR, &attr, &mask);
	if (err)
		return err;
	if (responder_resources != RDMA_MAX_RESP_RES && mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		attr.max_dest_rd_atomic = responder_resources;
	err = -ibv_modify_qp(qp, &attr, mask);
	if (err)
		return err;
	err = state_attr(id, IBV_QPS_RTS, &attr, &mask);
	if (err)
		return err;
	if (initiator_depth != RDMA_MAX_INIT_DEPTH && mask & IBV_QP_MAX_QP_RD_ATOMIC)
		attr.max_rd_atomic = initiator_depth;
	return -ibv_modify_qp(qp, &attr, mask);
}

static void qp_held_to_error(struct id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (!qp)
		return;
	/* A QP in RESET or ERR has nothing to flush. */
	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	id_release_qp(id);
}

void qp_to_error(struct id *id)
{
	qp_held_to_error(id, id_hold_qp(id));
}

void qp_note_connection(struct id *id)
{
	mutex_take(&qps_lock);
	id->connected = id->pub.qp && !id->qp_ends;
	mutex_give(&qps_lock);
}

void qp_of_connection_to_error(struct id *id)
{
	mutex_take(&qps_lock);
	struct ibv_qp *qp = id->connected ? hold_locked(id) : NULL;

	mutex_give(&qps_lock);
	qp_held_to_error(id, qp);
}

/* ------------------------------------------------------------------ queues */

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

typedef struct ibv_cq *create_cq_function(struct ibv_context *context,
					  struct ibv_cq_init_attr_ex *attr);

static struct ibv_cq *create_cq_for_any(struct ibv_context *context,
					struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

/* Creates a CQ with a channel of its own and the id as context, as rdma_get_send_comp() expects.
 * `create`: private_create_cq_for_qp if the CQ is used by one QP only. */
static int create_cq(struct id *id, uint32_t entries, create_cq_function *create,
		     struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->pub.verbs);
	if (!*channel)
		return -errno;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = entries ? entries : 1, .cq_context = &id->pub, .channel = *channel};

	*cq = create(id->pub.verbs, &attr);
	if (*cq)
		return 0;
	int err = -errno;

	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return err;
}

static void destroy_cqs(struct id *id)
{
	struct rdma_cm_id *pub = &id->pub;

	destroy_cq(&pub->send_cq, &pub->send_cq_channel);
	/* The SRQ's CQ, if the id has one, stays. */
	if (!pub->srq)
		destroy_cq(&pub->recv_cq, &pub->recv_cq_channel);
}

/* How many receives of the QP may be complete at once: those of an SRQ, which may be larger than
 * the program says. */
static uint32_t receives_of(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_srq_attr srq;

	if (attr->srq && !ibv_query_srq(attr->srq, &srq) && srq.max_wr > attr->cap.max_recv_wr)
		return srq.max_wr;
	return attr->cap.max_recv_wr;
}

static int create_cqs(struct id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *pub = &id->pub;
	int err = 0;

	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return 0; /* it has no queue; the SRQ brings the CQ */
	if ((pub->recv_cq && attr->recv_cq && pub->recv_cq != attr->recv_cq) ||
	    (pub->send_cq && attr->send_cq && pub->send_cq != attr->send_cq))
		return refused(-EINVAL, "rdma_create_qp: the identifier has CQs already (those of "
					"its SRQ); pass them, or none");
	if (!attr->recv_cq && pub->recv_cq)
		attr->recv_cq = pub->recv_cq;
	if (!attr->recv_cq && attr->qp_type != IBV_QPT_XRC_SEND) {
		err = create_cq(id, receives_of(attr), private_create_cq_for_qp, &pub->recv_cq,
				&pub->recv_cq_channel);
		attr->recv_cq = pub->recv_cq;
	}
	if (!err && !attr->send_cq) {
		err = create_cq(id, attr->cap.max_send_wr, private_create_cq_for_qp, &pub->send_cq,
				&pub->send_cq_channel);
		attr->send_cq = pub->send_cq;
	}
	if (err)
		destroy_cqs(id);
	return err;
}

/* Chooses the program's PD, or the id's own: the device's default PD at first. */
static int choose_pd(struct id *id, struct ibv_pd *wanted, struct ibv_pd **pd)
{
	if (!id->pub.verbs)
		return refused(-EINVAL, "rdma_create_qp, rdma_create_srq: the identifier has no "
					"device before an address is resolved or bound");
	*pd = wanted ? wanted : id->pub.pd;
	return (*pd)->context == id->pub.verbs
		       ? 0
		       : refused(-EINVAL, "rdma_create_qp, rdma_create_srq: the protection domain "
					  "is of another context than the identifier (id->verbs)");
}

/* An XRC target is in the program's domain, or in the device's default one. */
static int choose_domain(struct id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type != IBV_QPT_XRC_RECV ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && attr->xrcd))
		return 0;
	attr->xrcd = device_xrcd(id->device);
	attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	return attr->xrcd ? 0 : -errno;
}

static int create_qp(struct id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_pd *wanted = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL, *pd;
	int err = choose_pd(id, wanted, &pd);

	if (err)
		return err;
	if (id->pub.qp || attr->qp_type != id->pub.qp_type)
		return refused(-EINVAL, "rdma_create_qp: qp_type is %d, and the identifier's %d%s",
			       (int)attr->qp_type, (int)id->pub.qp_type,
			       id->pub.qp ? "; it has a queue pair already" : "");
	attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
	attr->pd = pd;
	err = choose_domain(id, attr);
	if (err)
		return err;
	if (!attr->srq && attr->qp_type != IBV_QPT_XRC_RECV)
		attr->srq = id->pub.srq;
	err = create_cqs(id, attr);
	if (err)
		return err;
	struct ibv_qp *qp = ibv_create_qp_ex(id->pub.verbs, attr);

	if (!qp) {
		err = -errno;
		goto out_cqs;
	}
	err = qp_to_init(id, qp);
	if (err)
		goto out_qp;
	err = joins_take_qp(id, qp);
	id->pub.pd = pd;
	qp_set(id, qp);
	if (err)
		id_destroy_qp(id);
	return err;

out_qp:
	ibv_destroy_qp(qp);
out_cqs:
	destroy_cqs(id);
	return err;
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *qp_init_attr)
{
	return cm_result(create_qp(id_of(id), qp_init_attr));
}

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_context = qp_init_attr->qp_context,
		.send_cq = qp_init_attr->send_cq,
		.recv_cq = qp_init_attr->recv_cq,
		.srq = qp_init_attr->srq,
		.cap = qp_init_attr->cap,
		.qp_type = qp_init_attr->qp_type,
		.sq_sig_all = qp_init_attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	int err = create_qp(id_of(id), &attr);

	if (!err)
		qp_init_attr->cap = attr.cap;
	return cm_result(err);
}

void id_destroy_qp(struct id *id)
{
	qp_wait_for_users(id);
	if (id->pub.qp) {
		joins_lose_qp(id);
		ibv_destroy_qp(id->pub.qp);
	}
	qp_set(id, NULL);
	destroy_cqs(id);
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	id_destroy_qp(id_of(id));
}

/* ------------------------------------------------------------------ shared receive queues */

static int create_srq(struct id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_pd *wanted = attr->comp_mask & IBV_SRQ_INIT_ATTR_PD ? attr->pd : NULL, *pd;
	bool extended = attr->srq_type == IBV_SRQT_XRC;
	int err = choose_pd(id, wanted, &pd);

	if (err)
		return err;
	if (id->pub.srq || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		return refused(-EINVAL, "rdma_create_srq: %s",
			       id->pub.srq ? "the identifier has an SRQ already"
					   : "comp_mask needs IBV_SRQ_INIT_ATTR_TYPE");
	attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
	attr->pd = pd;
	if (extended && !(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD && attr->xrcd)) {
		attr->xrcd = device_xrcd(id->device);
		if (!attr->xrcd)
			return -errno;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
	}
	if (extended && !(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ && attr->cq)) {
		err = create_cq(id, attr->attr.max_wr, create_cq_for_any, &id->pub.recv_cq,
				&id->pub.recv_cq_channel);
		if (err)
			return err;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
		attr->cq = id->pub.recv_cq;
	}
	struct ibv_srq *srq = ibv_create_srq_ex(id->pub.verbs, attr);

	if (!srq) {
		err = -errno;
		if (extended)
			destroy_cq(&id->pub.recv_cq, &id->pub.recv_cq_channel);
		return err;
	}
	id->pub.pd = pd;
	id->pub.srq = srq;
	return 0;
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	return cm_result(create_srq(id_of(id), attr));
}

EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex extended = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd,
	};
	int err = create_srq(id_of(id), &extended);

	if (!err)
		attr->attr = extended.attr;
	return cm_result(err);
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (!id->qp)
		destroy_cqs(id_of(id));
}
