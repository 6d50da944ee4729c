/* SPDX-License-Identifier: BSD-2-Clause */
/* See wq.h. */
#include "hca/verbs/wq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"

/* ------------------------------------------------------------------ work queues */

static int wq_post(struct ibv_wq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return rq_post(&wq_of(ibv)->qp->ibv, wr, bad);
}

static int wq_check(const struct ibv_wq_init_attr *attr)
{
	bool flags = attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS;

	if (attr->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS || attr->wq_type != IBV_WQT_RQ ||
	    !attr->pd || !attr->cq) {
		log_warn_few("ibv_create_wq: wq_type is %d and comp_mask 0x%x; a work queue has "
			     "the type IBV_WQT_RQ, a protection domain and a CQ, and comp_mask "
			     "may have IBV_WQ_INIT_ATTR_FLAGS only",
			     (int)attr->wq_type, attr->comp_mask);
		return EINVAL;
	}
	if (flags && attr->create_flags & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING) {
		log_warn_few("ibv_create_wq: create_flags is 0x%x; only "
			     "IBV_WQ_FLAGS_CVLAN_STRIPPING is supported",
			     attr->create_flags);
		return EOPNOTSUPP;
	}
	return 0;
}

static void wq_fill_public(struct wq *wq, struct ibv_context *context,
			   const struct ibv_wq_init_attr *attr)
{
	wq->ibv = (struct ibv_wq){
		.context = context,
		.wq_context = attr->wq_context,
		.pd = attr->pd,
		.cq = attr->cq,
		.state = IBV_WQS_RESET,
		.wq_type = attr->wq_type,
		.post_recv = wq_post,
	};
	pthread_mutex_init(&wq->ibv.mutex, NULL);
	pthread_cond_init(&wq->ibv.cond, NULL);
}

static void wq_set_stripping(struct wq *wq, uint32_t flags)
{
	atomic_store_explicit(&wq->qp->strips_tag, flags & IBV_WQ_FLAGS_CVLAN_STRIPPING,
			      memory_order_relaxed);
}

struct ibv_wq *wq_create(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
	int err = wq_check(attr);
	struct wq *wq = err ? NULL : calloc(1, sizeof(*wq));

	if (!wq) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	wq_fill_public(wq, context, attr);
	struct ibv_qp_init_attr_ex full = {
		.send_cq = attr->cq,
		.recv_cq = attr->cq,
		.cap = {.max_recv_wr = attr->max_wr, .max_recv_sge = attr->max_sge},
		.qp_type = IBV_QPT_RAW_PACKET,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = attr->pd,
	};
	struct ibv_qp *qp = qp_create_for_wq(context, &full, wq);

	if (!qp) {
		free(wq);
		return NULL;
	}
	wq->qp = qp_of(qp);
	if (attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS)
		wq_set_stripping(wq, attr->create_flags);
	wq->ibv.wq_num = qp->qp_num;
	wq->ibv.handle = qp->handle;
	attr->max_wr = full.cap.max_recv_wr;
	attr->max_sge = full.cap.max_recv_sge;
	return &wq->ibv;
}

static int wq_enter(struct wq *wq, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};

	return qp_modify(&wq->qp->ibv, &attr,
			 IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0));
}

static int wq_change_state(struct wq *wq, enum ibv_wq_state to)
{
	int err;

	switch (to) {
	case IBV_WQS_RDY:
		err = wq_enter(wq, IBV_QPS_INIT);
		return err ? err : wq_enter(wq, IBV_QPS_RTR);
	case IBV_WQS_ERR:
		return wq_enter(wq, IBV_QPS_ERR);
	default:
		return wq_enter(wq, IBV_QPS_RESET);
	}
}

/* Which changes there are: RESET to RDY, RDY to ERR, and from each state to RESET; to itself,
 * nothing is done. */
static bool may_change(enum ibv_wq_state from, enum ibv_wq_state to)
{
	return to == IBV_WQS_RESET || from == to || (from == IBV_WQS_RESET && to == IBV_WQS_RDY) ||
	       (from == IBV_WQS_RDY && to == IBV_WQS_ERR);
}

/* What of ibv_modify_wq() doesn't depend on the state that is asked for. 0 or a positive errno. */
static int wq_check_change(const struct ibv_wq *ibv, const struct ibv_wq_attr *attr)
{
	const uint32_t known = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;

	if (attr->attr_mask & ~known) {
		log_warn_few("ibv_modify_wq: attr_mask is 0x%x, and may have the bits 0x%x only",
			     attr->attr_mask, known);
		return EINVAL;
	}
	if (attr->attr_mask & IBV_WQ_ATTR_CURR_STATE && attr->curr_wq_state != ibv->state) {
		log_warn_few("ibv_modify_wq: curr_wq_state is %d, and the work queue is in state "
			     "%d",
			     (int)attr->curr_wq_state, (int)ibv->state);
		return EINVAL;
	}
	if (attr->attr_mask & IBV_WQ_ATTR_FLAGS &&
	    attr->flags_mask & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING) {
		log_warn_few("ibv_modify_wq: flags_mask is 0x%x; only "
			     "IBV_WQ_FLAGS_CVLAN_STRIPPING is supported",
			     attr->flags_mask);
		return EOPNOTSUPP;
	}
	return 0;
}

int wq_modify(struct ibv_wq *ibv, struct ibv_wq_attr *attr)
{
	struct wq *wq = wq_of(ibv);
	bool state = attr->attr_mask & IBV_WQ_ATTR_STATE;

	int err = wq_check_change(ibv, attr);

	if (err)
		return err;
	if (state && (attr->wq_state > IBV_WQS_ERR || !may_change(ibv->state, attr->wq_state))) {
		log_warn_few("ibv_modify_wq: a work queue in state %d can't go to state %d",
			     (int)ibv->state, (int)attr->wq_state);
		return EINVAL;
	}
	if (attr->attr_mask & IBV_WQ_ATTR_FLAGS && attr->flags_mask)
		wq_set_stripping(wq, attr->flags);
	if (!state || (attr->wq_state == ibv->state && attr->wq_state != IBV_WQS_RESET))
		return 0;
	err = wq_change_state(wq, attr->wq_state);
	if (!err)
		ibv->state = attr->wq_state;
	return err;
}

int wq_destroy(struct ibv_wq *ibv)
{
	struct wq *wq = wq_of(ibv);

	if (atomic_load(&wq->users)) {
		log_warn_few("ibv_destroy_wq: work queue %u is in an indirection table, which must "
			     "be destroyed first (ibv_destroy_rwq_ind_table)",
			     ibv->wq_num);
		return EBUSY;
	}
	int err = qp_destroy(&wq->qp->ibv);

	if (err)
		return err;
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(wq);
	return 0;
}

/* ------------------------------------------------------------------ tables */

struct ibv_rwq_ind_table *wq_table_create(struct ibv_context *context,
					  struct ibv_rwq_ind_table_init_attr *attr)
{
	static _Atomic int numbers;
	uint32_t places = 1u << (attr->log_ind_tbl_size & 31);
	bool wrong = attr->comp_mask || attr->log_ind_tbl_size > LIMIT_TABLE_LOG || !attr->ind_tbl;

	for (uint32_t i = 0; !wrong && i < places; i++)
		wrong = !attr->ind_tbl[i] || attr->ind_tbl[i]->context != context;
	struct wq_table *ind =
		wrong ? NULL : calloc(1, sizeof(*ind) + places * sizeof(ind->wqs[0]));

	if (wrong)
		log_warn_few("ibv_create_rwq_ind_table: comp_mask is 0x%x, which must be 0; "
			     "log_ind_tbl_size is %u, and %u at most; each place of ind_tbl needs "
			     "a work queue of this context",
			     attr->comp_mask, attr->log_ind_tbl_size, LIMIT_TABLE_LOG);
	if (!ind) {
		errno = wrong ? EINVAL : ENOMEM;
		return NULL;
	}
	ind->mask = places - 1;
	for (uint32_t i = 0; i < places; i++) {
		ind->wqs[i] = wq_of(attr->ind_tbl[i]);
		atomic_fetch_add(&ind->wqs[i]->users, 1);
	}
	ind->ibv.context = context;
	ind->ibv.ind_tbl_num = ind->ibv.ind_tbl_handle =
		atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
	return &ind->ibv;
}

int wq_table_destroy(struct ibv_rwq_ind_table *ibv)
{
	struct wq_table *ind = container_of(ibv, struct wq_table, ibv);

	uint32_t users = atomic_load(&ind->users);

	if (users) {
		log_warn_few("ibv_destroy_rwq_ind_table: %u queue pairs use the table, which must "
			     "be destroyed first",
			     users);
		return EBUSY;
	}
	for (uint32_t i = 0; i <= ind->mask; i++)
		atomic_fetch_sub(&ind->wqs[i]->users, 1);
	free(ind);
	return 0;
}

/* ------------------------------------------------------------------ spreading */

static int check_hash(const struct ibv_rx_hash_conf *conf)
{
	if (conf->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ ||
	    conf->rx_hash_fields_mask & ~RX_HASH_FIELDS) {
		log_warn_few(
			"ibv_create_qp: rx_hash_function is %u and rx_hash_fields_mask 0x%llx; "
			"supported are IBV_RX_HASH_FUNC_TOEPLITZ and the fields 0x%llx",
			conf->rx_hash_function, (unsigned long long)conf->rx_hash_fields_mask,
			(unsigned long long)RX_HASH_FIELDS);
		return EOPNOTSUPP;
	}
	if (conf->rx_hash_key_len == TOEPLITZ_KEY && conf->rx_hash_key)
		return 0;
	log_warn_few("ibv_create_qp: rx_hash_key_len is %u; rx_hash_key must have %u bytes",
		     conf->rx_hash_key_len, (unsigned int)TOEPLITZ_KEY);
	return EINVAL;
}

int spread_make(const struct ibv_qp_init_attr_ex *attr, struct spread **out)
{
	int err = attr->rwq_ind_tbl ? check_hash(&attr->rx_hash_conf) : EINVAL;

	if (err)
		return err;
	struct spread *spread = calloc(1, sizeof(*spread));

	if (!spread)
		return ENOMEM;
	spread->ind = container_of(attr->rwq_ind_tbl, struct wq_table, ibv);
	spread->fields = attr->rx_hash_conf.rx_hash_fields_mask;
	memcpy(spread->key, attr->rx_hash_conf.rx_hash_key, sizeof(spread->key));
	atomic_fetch_add(&spread->ind->users, 1);
	*out = spread;
	return 0;
}

void spread_free(struct spread *spread)
{
	if (!spread)
		return;
	atomic_fetch_sub(&spread->ind->users, 1);
	free(spread);
}

struct qp *wq_choose(const struct spread *spread, const struct ether_frame *frame)
{
	uint32_t hash = toeplitz_frame(spread->key, spread->fields, frame);

	return spread->ind->wqs[hash & spread->ind->mask]->qp;
}
