/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrcd.h. Owns the domains' descriptors and what a handle has beside its struct qp. */
#include "hca/verbs/xrcd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/exec/xrc_target.h"
#include "hca/exec/xrc_wire.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/event.h"
#include "hca/verbs/route.h"
#include "hca/verbs/srq.h"
#include "hca/verbs/xrc_follow.h"

/* ------------------------------------------------------------------ domains */

/* Reads the file's inode and keeps a descriptor of it. 0 or a positive errno. */
static int xrcd_take_file(struct xrcd *xrcd, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return errno;
	xrcd->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (xrcd->fd < 0)
		return errno;
	xrcd->dev = st.st_dev;
	xrcd->ino = st.st_ino;
	return 0;
}

static void xrcd_free(struct xrcd *xrcd)
{
	if (xrcd->fd >= 0)
		sys_close(xrcd->fd);
	free(xrcd);
}

static int xrcd_register(struct xrcd *xrcd, struct context *context, uint32_t oflags)
{
	const struct proto_open_xrcd body = {.dev = xrcd->dev, .ino = xrcd->ino, .oflags = oflags};
	struct proto_open_xrcd_resp resp;

	books_enter(context->hca);
	int err = daemon_open_xrcd(&context->conn, &body, &resp);

	if (!err) {
		xrcd->handle = resp.handle;
		atomic_store_explicit(&xrcd->domain, resp.domain, memory_order_relaxed);
		books_add(context, HELD_XRCD, &xrcd->held);
	}
	books_leave(context->hca);
	return -err;
}

static int xrcd_check(const struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;

	if (attr->comp_mask < IBV_XRCD_INIT_ATTR_RESERVED && (attr->comp_mask & needed) == needed &&
	    !(attr->oflags & ~(O_CREAT | O_EXCL)))
		return 0;
	log_warn_few("ibv_open_xrcd: comp_mask is 0x%x, and must be 0x%x (IBV_XRCD_INIT_ATTR_FD | "
		     "IBV_XRCD_INIT_ATTR_OFLAGS); oflags is 0x%x, and may have O_CREAT and O_EXCL "
		     "only",
		     attr->comp_mask, needed, (unsigned int)attr->oflags);
	return attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED ? EOPNOTSUPP : EINVAL;
}

/* The daemon has refused the domain, whose flags are right. */
static void say_xrcd_refused(const struct ibv_xrcd_init_attr *attr, int err)
{
	if (err == EAGAIN)
		log_warn_few("ibv_open_xrcd: no process has a domain of this file open, and oflags "
			     "has no O_CREAT, which would make one");
	else if (err == EINVAL && attr->oflags & O_EXCL)
		log_warn_few("ibv_open_xrcd: a domain of this file exists, and oflags has O_EXCL, "
			     "which asks for a new one");
	else
		log_warn_few("ibv_open_xrcd: the daemon refuses the domain: %s", strerror(err));
}

struct ibv_xrcd *xrcd_open(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	int err = xrcd_check(attr);
	struct xrcd *xrcd = err ? NULL : calloc(1, sizeof(*xrcd));

	if (!err && !xrcd)
		err = ENOMEM;
	if (!err) {
		xrcd->ibv.context = context;
		xrcd->fd = -1;
		if (attr->fd != -1)
			err = xrcd_take_file(xrcd, attr->fd);
		if (err)
			log_warn_few("ibv_open_xrcd: the file of descriptor %d can't be used: %s",
				     attr->fd, strerror(err));
	}
	if (!err)
		err = xrc_wire_begin(context_of(context)->hca);
	if (!err) {
		err = xrcd_register(xrcd, context_of(context), (uint32_t)attr->oflags);
		if (err)
			say_xrcd_refused(attr, err);
	}
	if (!err)
		return &xrcd->ibv;
	if (xrcd)
		xrcd_free(xrcd);
	errno = err;
	return NULL;
}

int xrcd_close(struct ibv_xrcd *ibv)
{
	struct xrcd *xrcd = hca_xrcd_of(ibv);
	struct context *context = context_of(ibv->context);

	books_enter(context->hca);
	int err = -daemon_close_xrcd(&context->conn, xrcd->handle);

	if (err == EIO) /* the daemon is gone, and the handle with it */
		err = 0;
	if (!err)
		books_drop(context, &xrcd->held);
	books_leave(context->hca);
	if (!err)
		xrcd_free(xrcd);
	return err;
}

int xrcd_again(struct daemon_conn *conn, struct xrcd *xrcd)
{
	const struct proto_open_xrcd body = {.dev = xrcd->dev, .ino = xrcd->ino};
	struct context *context = context_of(xrcd->ibv.context);
	struct hca *hca = context->hca;
	struct proto_open_xrcd_resp resp;
	int err = daemon_open_xrcd(conn, &body, &resp);

	if (err || resp.domain == xrcd_number(xrcd))
		return err;
	lock_take(&hca->engine);
	atomic_store_explicit(&xrcd->domain, resp.domain, memory_order_relaxed);
	list_for_each(held, &context->held[HELD_SRQ]) {
		struct srq *srq = container_of(held, struct srq, held);

		if (srq->xrcd == xrcd)
			xrc_srq_publish(srq);
	}
	lock_give(&hca->engine);
	return 0;
}

/* ------------------------------------------------------------------ handles of target QPs */

/* A handle without a number; `register_it` asks the daemon for it. */
static struct qp *handle_new(struct ibv_context *context, struct xrcd *xrcd, void *qp_context)
{
	struct qp *qp = calloc(1, sizeof(*qp));
	struct xrc_handle *handle = calloc(1, sizeof(*handle));

	if (!qp || !handle) {
		free(qp);
		free(handle);
		return NULL;
	}
	qp->ibv.context = context;
	qp->ibv.qp_context = qp_context;
	qp->ibv.qp_type = IBV_QPT_XRC_RECV;
	qp->ibv.state = IBV_QPS_RESET;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	lock_init(&qp->lock, RANK_QP);
	lock_init(&qp->builder.turn, RANK_QP_TURN);
	lock_assume_alone(&qp->lock); /* no other thread knows it yet */
	qp->context = context_of(context);
	qp->hca = qp->context->hca;
	qp->type = IBV_QPT_XRC_RECV;
	qp->carrier = &carrier_none;
	qp->target = handle;
	handle->qp = qp;
	handle->xrcd = xrcd;
	list_init(&handle->node);
	list_init(&qp->room_wait);
	list_init(&qp->tx_wait);
	list_init(&qp->active);
	list_init(&qp->srq_wait);
	list_init(&qp->groups);
	list_init(&qp->windows);
	list_init(&qp->window_wait);
	return qp;
}

static void handle_free(struct qp *qp)
{
	pthread_mutex_destroy(&qp->ibv.mutex);
	pthread_cond_destroy(&qp->ibv.cond);
	free(qp->target);
	free(qp);
}

/* The daemon has made the handle. Within an entry. */
static void handle_came(struct qp *qp, uint32_t handle, uint32_t qpn)
{
	struct hca *hca = qp->hca;

	qp->ibv.handle = qp->handle = handle;
	qp->ibv.qp_num = qpn;
	books_add(qp->context, HELD_QP, &qp->held);
	lock_take(&hca->engine);
	list_add_tail(&hca->xrc->handles, &qp->target->node);
	lock_give(&hca->engine);
}

static int handle_create(struct qp *qp)
{
	const struct ib_uverbs_create_qp cmd = {.user_handle = (uintptr_t)qp,
						.pd_handle = qp->target->xrcd->handle,
						.qp_type = IBV_QPT_XRC_RECV};
	struct ib_uverbs_create_qp_resp resp;

	books_enter(qp->hca);
	int err = daemon_create_qp(&qp->context->conn, &cmd, &resp);

	if (!err) {
		atomic_store(&qp->hca->last_qp_index, resp.qpn & (LIMIT_QPS_PER_SLOT - 1));
		handle_came(qp, resp.qp_handle, resp.qpn);
	}
	books_leave(qp->hca);
	return -err;
}

static int handle_open(struct qp *qp, uint32_t qpn)
{
	uint32_t handle;

	books_enter(qp->hca);
	int err = daemon_open_qp(&qp->context->conn, qp->target->xrcd->handle, qpn,
				 IBV_QPT_XRC_RECV, &handle);

	if (!err)
		handle_came(qp, handle, qpn);
	books_leave(qp->hca);
	return -err;
}

/* Learns the state that the queue pair has. */
static int handle_learn(struct qp *qp, struct proto_xrc_state *is)
{
	int err = -daemon_xrc_query(&qp->context->conn, qp->handle, 0, is);

	if (!err)
		xrc_follow(qp->hca, qp->ibv.qp_num, is);
	return err;
}

static struct ibv_qp *handle_made(struct qp *qp, int err)
{
	struct proto_xrc_state is;

	if (!err) {
		handle_learn(qp, &is);
		return &qp->ibv;
	}
	if (qp)
		handle_free(qp);
	errno = err;
	return NULL;
}

struct ibv_qp *target_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct xrcd *xrcd = attr->comp_mask & IBV_QP_INIT_ATTR_XRCD && attr->xrcd
				    ? hca_xrcd_of(attr->xrcd)
				    : NULL;
	struct qp *qp = NULL;
	int err = 0;

	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
					  IBV_QP_INIT_ATTR_PD) ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags))
		err = EOPNOTSUPP;
	else if (!xrcd || xrcd->ibv.context != context)
		err = EINVAL;
	if (!err) {
		qp = handle_new(context, xrcd, attr->qp_context);
		err = qp ? handle_create(qp) : ENOMEM;
	}
	if (!err)
		attr->cap = (struct ibv_qp_cap){0};
	return handle_made(qp, err);
}

struct ibv_qp *target_open(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed =
		IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	bool named = attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT;
	struct qp *qp = NULL;
	int err = 0;

	if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		err = EOPNOTSUPP;
	else if ((attr->comp_mask & needed) != needed || attr->qp_type != IBV_QPT_XRC_RECV ||
		 !attr->xrcd || attr->xrcd->context != context)
		err = EINVAL;
	if (err) {
		log_warn_few("ibv_open_qp: comp_mask is 0x%x, and needs 0x%x (NUM, XRCD and TYPE); "
			     "only an XRC target can be opened (qp_type %d; this is %d), by a "
			     "domain of this context",
			     attr->comp_mask, needed, (int)IBV_QPT_XRC_RECV, (int)attr->qp_type);
	} else {
		qp = handle_new(context, hca_xrcd_of(attr->xrcd), named ? attr->qp_context : NULL);
		err = qp ? handle_open(qp, attr->qp_num) : ENOMEM;
		if (err)
			log_warn_few("ibv_open_qp: XRC target 0x%x can't be opened in this domain: "
				     "%s",
				     attr->qp_num, strerror(err));
	}
	return handle_made(qp, err);
}

int target_query(struct qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init)
{
	struct proto_xrc_state is;
	int err = handle_learn(qp, &is);

	if (err)
		return err;
	*attr = xrc_attr_get(&is).attr;
	attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)is.state;
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->ibv.qp_context,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	return 0;
}

/* What the queue pair becomes when `attr` is applied to `is`. 0 or a positive errno. */
static int target_change(const struct ibv_qp_attr *attr, int mask, const struct route *route,
			 struct proto_xrc_state *is)
{
	struct xrc_attr with = xrc_attr_get(is);
	enum ibv_qp_state from = (enum ibv_qp_state)is->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return EINVAL;
	if ((unsigned int)to > IBV_QPS_ERR)
		return EINVAL;
	int err = qp_state_check(IBV_QPT_XRC_RECV, from, to, mask);

	if (err)
		return err;
	if (to == IBV_QPS_RESET)
		with = (struct xrc_attr){.attr = {.port_num = 1}};
	else if (to != IBV_QPS_ERR)
		qp_copy_attr(&with.attr, attr, mask);
	if (mask & IBV_QP_AV) {
		with.at = route->at;
		with.roce = route->roce;
	}
	is->state = to;
	is->access = attr_published_rights(&with.attr);
	is->peer = with.attr.dest_qp_num;
	is->rq_psn = with.attr.rq_psn;
	is->rnr_timer = with.attr.min_rnr_timer;
	memcpy(is->attr, &with, sizeof(with));
	return 0;
}

int target_modify(struct qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct route route = {0};
	struct proto_xrc_state is, now;
	int err = qp_check_values(qp, attr, mask, &route);

	if (err)
		return err;
	do { /* until no other process has changed it meanwhile */
		err = handle_learn(qp, &is);
		if (!err)
			err = target_change(attr, mask, &route, &is);
		if (!err)
			err = -daemon_xrc_modify(&qp->context->conn, qp->handle, &is, &now);
	} while (err == EAGAIN);
	if (!err)
		xrc_follow(qp->hca, qp->ibv.qp_num, &now);
	return err;
}

int target_destroy(struct qp *qp)
{
	struct hca *hca = qp->hca;
	struct ibv_qp *ibv = &qp->ibv;

	lock_take(&hca->engine);
	list_del(&qp->target->node);
	lock_give(&hca->engine);
	books_enter(hca);
	/* Not posted: the program may tell another process that the queue pair has ended. A failure
	 * means that the handle is gone with its daemon. */
	daemon_close_target(&qp->context->conn, qp->handle);
	books_drop(qp->context, &qp->held);
	books_leave(hca);
	event_queue_forget(&qp->context->async, qp);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != qp->async_reported)
		sys_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	handle_free(qp);
	return 0;
}

int target_again(struct daemon_conn *conn, struct qp *qp)
{
	struct hca *hca = qp->hca;
	struct proto_xrc_state was, now;

	lock_take(&hca->engine);
	was = qp->target->is;
	lock_give(&hca->engine);
	int err = daemon_xrc_returns(conn, qp->target->xrcd->handle, &was, &now);

	if (err)
		return err;
	lock_take(&hca->engine);
	qp->target->is = now;
	lock_give(&hca->engine);
	return 0;
}
