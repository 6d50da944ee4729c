/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The builder interface, ibv_wr_*: each call fills the next place of the QP's builder;
 * ibv_wr_complete() copies all requests to the send queue or, after a mistake, none. The builder's
 * turn is held from ibv_wr_start() to ibv_wr_complete() or ibv_wr_abort(), as the manual page
 * allows; qp.lock is held within ibv_wr_complete() only (struct wr_builder).
 */
#include <errno.h>
#include <string.h>

#include "base/cpu.h"
#include "hca/mem/mr_view.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/say.h"
#include "hca/verbs/window.h"

static struct qp *qp_of_ex(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct qp, ex);
}

/* These three aren't analysed: ibv_wr_start() takes the turn, and ibv_wr_complete() or
 * ibv_wr_abort() gives it back. */
static void wr_start(struct ibv_qp_ex *ex) NO_THREAD_SAFETY_ANALYSIS
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;

	lock_take(&b->turn);
	b->built.head = 0;
	b->error = 0;
	b->current = b->addressed = NULL;
}

static void wr_abort(struct ibv_qp_ex *ex) NO_THREAD_SAFETY_ANALYSIS
{
	lock_give(&qp_of_ex(ex)->builder.turn);
}

/* Copies the requests that are built to the send queue. 0, or EINVAL or ENOMEM: none was posted. */
static int post_built(struct qp *qp, const struct send_queue *built) REQUIRES(qp->lock)
{
	struct send_queue *sq = &qp->sq;

	if (unlikely(qp->state == IBV_QPS_RESET))
		return EINVAL;
	if (unlikely(!sq_has_room(qp, built->head)))
		return ENOMEM;
	for (uint32_t i = 0; i < built->head; i++) {
		const struct send_wqe *wqe = sq_at(built, i);
		size_t body =
			wqe->flags & SEND_INLINE ? wqe->length : wqe->num_sge * sizeof(wqe->sge[0]);

		memcpy(sq_at(sq, sq_end(sq) + i), wqe, sizeof(*wqe) + body);
	}
	sq_grow(qp, built->head);
	sq_start_posted(qp);
	return 0;
}

static int wr_complete(struct ibv_qp_ex *ex) NO_THREAD_SAFETY_ANALYSIS
{
	struct qp *qp = qp_of_ex(ex);
	struct wr_builder *b = &qp->builder;
	const int mistake = b->error;
	int err = mistake;

	if (likely(!err)) {
		lock_take(&qp->lock);
		err = post_built(qp, &b->built);
		lock_give(&qp->lock);
	}
	lock_give(&b->turn);
	/* Of a full queue sq_find_room() has said it. */
	if (unlikely(mistake || err == EINVAL))
		say_built_refused(qp);
	return err;
}

/* The next place, with the fields that all operations have; NULL after a mistake. */
static struct send_wqe *wr_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct qp *qp = qp_of_ex(ex);
	struct wr_builder *b = &qp->builder;

	lock_assert_held(&b->turn); /* since wr_start() */
	if (unlikely(b->error))
		return NULL;
	if (unlikely(b->built.head >= b->built.max_wr)) {
		b->error = ENOMEM;
		b->current = b->addressed = NULL;
		return NULL;
	}
	struct send_wqe *wqe = sq_at(&b->built, b->built.head++);
	unsigned int flags = ex->wr_flags;

	wqe->wr_id = ex->wr_id;
	wqe->opcode = opcode;
	wqe->flags = (flags & IBV_SEND_SIGNALED || qp->sq_sig_all ? SEND_SIGNALED : 0) |
		     (flags & IBV_SEND_SOLICITED ? SEND_SOLICITED : 0) |
		     (flags & IBV_SEND_FENCE ? SEND_FENCE : 0);
	wqe->length = wqe->num_sge = wqe->progress = wqe->imm = 0;
	if (unlikely(qp->type == IBV_QPT_XRC_SEND))
		wqe->srqn = 0; /* no SRQ, until ibv_wr_set_xrc_srqn() */
	if (unlikely(qp->type == IBV_QPT_RAW_PACKET))
		sq_to_segment(wqe, flags);
	b->current = b->addressed = wqe;
	return wqe;
}

static struct send_wqe *wr_begin_remote(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
					uint32_t rkey, uint64_t addr)
{
	struct send_wqe *wqe = wr_begin(ex, opcode);

	if (wqe) {
		wqe->rkey = rkey;
		wqe->remote_addr = addr;
	}
	return wqe;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct send_wqe *wqe = wr_begin(ex, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		wqe->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct send_wqe *wqe = wr_begin(ex, IBV_WR_SEND_WITH_INV);

	if (wqe)
		wqe->imm = wqe->rkey = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;
	struct send_wqe *wqe = wr_begin(ex, IBV_WR_LOCAL_INV);

	lock_assert_held(&b->turn); /* since wr_start() */
	if (wqe)
		wqe->rkey = rkey;
	b->current = NULL; /* it has no payload */
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;
	struct send_wqe *wqe = wr_begin(ex, IBV_WR_BIND_MW);

	lock_assert_held(&b->turn); /* since wr_start() */
	if (wqe)
		b->error = window_fill_bind(wqe, mw, IBV_MW_TYPE_2, rkey, info);
	b->current = NULL;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_begin_remote(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct send_wqe *wqe = wr_begin_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);

	if (wqe)
		wqe->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_begin_remote(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
			      uint64_t swap)
{
	struct send_wqe *wqe = wr_begin_remote(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	if (wqe) {
		wqe->atomic.compare_add = compare;
		wqe->atomic.swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct send_wqe *wqe = wr_begin_remote(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr);

	if (wqe)
		wqe->atomic.compare_add = add;
}

static void wr_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *bytes)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;
	struct send_wqe *wqe = wr_begin_remote(ex, IBV_WR_ATOMIC_WRITE, rkey, addr);

	lock_assert_held(&b->turn); /* since wr_start() */
	if (wqe) {
		memcpy(wqe->data, bytes, 8);
		wqe->flags |= SEND_INLINE;
		wqe->length = 8;
	}
	b->current = NULL; /* it has its payload */
}

static void wr_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, size_t length,
		     uint8_t type, uint8_t level)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;
	struct send_wqe *wqe = wr_begin_remote(ex, IBV_WR_FLUSH, rkey, addr);
	uint8_t feth = packet_feth(type, level);
	bool whole = level == IBV_FLUSH_MR;

	lock_assert_held(&b->turn); /* since wr_start() */
	b->current = NULL;	    /* it has no payload */
	if (!wqe)
		return;
	if (packet_flush_type(feth) != type || packet_flush_level(feth) != level ||
	    !mr_flush_of(addr, length, feth).access || (!whole && length > LIMIT_MSG_BYTES)) {
		b->error = EINVAL;
		return;
	}
	wqe->atomic.compare_add = whole ? 0 : length;
	wqe->atomic.swap = feth;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;

	lock_assert_held(&b->turn); /* since wr_start() */
	struct send_wqe *wqe = b->current;

	if (wqe)
		sq_address(wqe, ah_of(ah), qpn, qkey);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t srqn)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;

	lock_assert_held(&b->turn); /* since wr_start() */
	struct send_wqe *wqe = b->addressed;

	if (wqe)
		wqe->srqn = srqn & 0xffffff;
}

static bool is_atomic(const struct send_wqe *wqe)
{
	return wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;
	uint64_t length = 0;

	lock_assert_held(&b->turn); /* since wr_start() */
	struct send_wqe *wqe = b->current;

	if (unlikely(!wqe))
		return;
	for (size_t i = 0; count <= b->built.max_sge && i < count; i++) {
		wqe->sge[i] = list[i];
		length += list[i].length;
	}
	if (unlikely(count > b->built.max_sge || length > LIMIT_MSG_BYTES)) {
		b->error = count > b->built.max_sge ? ENOMEM : EINVAL;
		return;
	}
	wqe->num_sge = count;
	wqe->length = length;
	if (unlikely(is_atomic(wqe)) && length > 8)
		sq_trim(wqe, 8);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count,
				    const struct ibv_data_buf *list)
{
	struct wr_builder *b = &qp_of_ex(ex)->builder;
	size_t length = 0;

	lock_assert_held(&b->turn); /* since wr_start() */
	struct send_wqe *wqe = b->current;

	if (unlikely(!wqe))
		return;
	if (unlikely(wqe->opcode == IBV_WR_RDMA_READ || is_atomic(wqe))) {
		sq_lack(wqe);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (unlikely(list[i].length > b->built.max_inline - length)) {
			b->error = ENOMEM;
			return;
		}
		memcpy(wqe->data + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	wqe->flags |= SEND_INLINE;
	wqe->length = length;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &buf);
}

/* Sets the calls that the QP was created with. Calls that its type doesn't have were refused
 * then. */
void qp_ex_init(struct qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (qp->type == IBV_QPT_RAW_PACKET)
		return;
	ex->wr_send_imm = wr_send_imm;
	if (qp->type == IBV_QPT_UD) {
		ex->wr_set_ud_addr = wr_set_ud_addr;
		return;
	}
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_local_inv = wr_local_inv;
	if (qp->type == IBV_QPT_UC)
		return;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_flush = wr_flush;
	if (qp->type == IBV_QPT_XRC_SEND)
		ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
}
