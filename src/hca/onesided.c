/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One-sided operations executed by the initiator: RDMA WRITE and READ on another process's memory
 * by process_vm_*, and all of them (atomics too) on this process's own.
 *
 * Each call: set the hazard, look QP and region up in the target's published table, copy, clear the
 * hazard. What a real responder would refuse is refused here, and the responder's QP is told
 * (FATAL), so that its program sees what it would see with a card.
 */
#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "hca/copy.h"
#include "hca/guard.h"
#include "hca/link.h"
#include "hca/mapped.h"
#include "hca/mr.h"
#include "hca/qp.h"

bool onesided_direct(const struct qp *qp)
{
	return qp->link->self || link_direct(qp->link);
}

/* The peer's QP goes to the error state for what we tried on it. */
static void tell_peer(struct qp *qp, enum ibv_event_type event)
{
	struct ring_header h = {.imm = event};

	if (qp->type != IBV_QPT_RC)
		return; /* unreliable: dropped without a word */
	qp_record(qp, &h, REC_FATAL, 0);
	link_control(qp->link, &h, NULL, 0);
}

static void log_refusal(const struct qp *qp, const struct send_wqe *wqe, const char *why)
{
	log_info("QP 0x%x: remote access to 0x%llx, %u bytes, rkey 0x%x refused: %s",
		 qp->ibv.qp_num, (unsigned long long)wqe->remote_addr, wqe->length, wqe->rkey, why);
}

static enum ibv_wc_status refuse(struct qp *qp, const struct send_wqe *wqe, const char *why)
{
	log_refusal(qp, wqe, why);
	tell_peer(qp, IBV_EVENT_QP_ACCESS_ERR);
	return IBV_WC_REM_ACCESS_ERR;
}

/* What the peer's QP isn't set up for is no question of keys: the request is invalid. */
static enum ibv_wc_status refuse_request(struct qp *qp, const struct send_wqe *wqe, const char *why)
{
	log_refusal(qp, wqe, why);
	tell_peer(qp, IBV_EVENT_QP_REQ_ERR);
	return IBV_WC_REM_INV_REQ_ERR;
}

/* A region of a third process, that the peer imported: only the peer can tell what it is. */
static bool is_imported(const struct qp *qp, const struct mr_view *mr, uint32_t access)
{
	return mr->access & PUB_MR_FOREIGN && access != IBV_ACCESS_REMOTE_ATOMIC &&
	       mr->pd == (atomic_load(&qp->remote->pd) | PUB_MR_FOREIGN);
}

/* Whether the peer's QP lets us do this to it at all; else *status says how it is refused. */
static bool allowed(struct qp *qp, const struct send_wqe *wqe, uint32_t access,
		    enum ibv_wc_status *status)
{
	uint64_t word = atomic_load_explicit(&qp->remote->state, memory_order_acquire);

	if (unlikely((uint8_t)pub_qp_epoch(word) != qp->remote_epoch ||
		     pub_qp_state(word) < IBV_QPS_RTR || pub_qp_state(word) == IBV_QPS_ERR)) {
		*status = IBV_WC_RETRY_EXC_ERR; /* a QP that isn't there doesn't answer */
		return false;
	}
	if (likely(pub_qp_access(word) & access))
		return true;
	*status = refuse_request(qp, wqe,
				 "the peer's QP doesn't allow it (qp_access_flags, "
				 "max_dest_rd_atomic)");
	return false;
}

/* An operation on no bytes: no key is looked at, but the QP must be set up for it. */
static enum ibv_wc_status zero_length(struct qp *qp, const struct send_wqe *wqe, uint32_t access)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	allowed(qp, wqe, access, &status);
	return status;
}

/* The owner's address of the operation's target, in region *view, or 0 (refused, *status says
 * how). */
static uint64_t target(struct qp *qp, const struct send_wqe *wqe, uint32_t length, uint32_t access,
		       struct mr_view *view, enum ibv_wc_status *status)
{
	const char *why = NULL;

	if (unlikely(!allowed(qp, wqe, access, status)))
		return 0;
	if (unlikely(!mr_read(qp->link->regions, wqe->rkey, view)))
		why = "no such rkey (never registered, deregistered, or an lkey)";
	else if (unlikely(view->pd != atomic_load_explicit(&qp->remote->pd, memory_order_relaxed)))
		why = is_imported(qp, view, access) ? NULL
						    : "the region belongs to another protection "
						      "domain than the peer's QP";
	else if (unlikely(!(view->access & access)))
		why = "the region wasn't registered for it";
	else if (unlikely(!mr_covers(view, wqe->remote_addr, length)))
		why = "outside the region";
	else
		return wqe->remote_addr + view->offset;
	*status = why ? refuse(qp, wqe, why) : ASK_PEER;
	return 0;
}

/* What a failed process_vm_* means: whose memory was it? */
static enum ibv_wc_status copy_status(struct qp *qp, const struct send_wqe *wqe, int err,
				      const struct iovec *local, int count)
{
	if (err == -ESRCH)
		return IBV_WC_RETRY_EXC_ERR;
	if (!copy_reachable(local, count))
		return IBV_WC_LOC_PROT_ERR;
	return refuse(qp, wqe, "the memory behind the region isn't mapped any more");
}

/* The bytes, to the peer's address `to`. 0 or -errno. */
static int put(struct link *link, const struct send_wqe *wqe, const struct mr_view *view,
	       uint64_t to, const struct iovec *local, int count)
{
	struct mapped *use;
	uint8_t *here = link->self ? (uint8_t *)(uintptr_t)to
				   : mapped_begin(link, wqe->rkey, view, to, wqe->length, &use);

	if (!here)
		return copy_to_process(link->pid, to, local, count, wqe->length);
	if (link->self)
		return copy_gather_ordered(here, local, count, wqe->length) ? 0 : -EFAULT;
	bool done = copy_gather_far(here, local, count, wqe->length);

	mapped_end(use);
	return done ? 0 : -EFAULT;
}

static int get(struct link *link, const struct send_wqe *wqe, const struct mr_view *view,
	       uint64_t from, const struct iovec *local, int count)
{
	struct mapped *use;
	uint8_t *here = link->self ? (uint8_t *)(uintptr_t)from
				   : mapped_begin(link, wqe->rkey, view, from, wqe->length, &use);

	if (!here)
		return copy_from_process(link->pid, from, local, count, wqe->length);
	bool done = copy_scatter(local, count, 0, here, wqe->length);

	if (!link->self)
		mapped_end(use);
	return done ? 0 : -EFAULT;
}

bool onesided_may_write(struct qp *qp, const struct send_wqe *wqe)
{
	uint64_t word = atomic_load_explicit(&qp->remote->state, memory_order_acquire);
	struct mr_view view;

	return (uint8_t)pub_qp_epoch(word) == qp->remote_epoch &&
	       pub_qp_state(word) >= IBV_QPS_RTR && pub_qp_state(word) != IBV_QPS_ERR &&
	       pub_qp_access(word) & IBV_ACCESS_REMOTE_WRITE &&
	       (!wqe->length ||
		(mr_read(qp->link->regions, wqe->rkey, &view) &&
		 view.pd == atomic_load_explicit(&qp->remote->pd, memory_order_relaxed) &&
		 view.access & IBV_ACCESS_REMOTE_WRITE &&
		 mr_covers(&view, wqe->remote_addr, wqe->length)));
}

enum ibv_wc_status onesided_write(struct qp *qp, const struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct mr_view view;
	int count = sq_segments(qp, wqe, 0, local), err = 0;

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	if (!wqe->length)
		return zero_length(qp, wqe, IBV_ACCESS_REMOTE_WRITE);
	_Atomic uint64_t *hazard = hazard_set(qp->hca, qp->link->slot, wqe->rkey);
	uint64_t to = target(qp, wqe, wqe->length, IBV_ACCESS_REMOTE_WRITE, &view, &status);

	if (likely(to))
		err = put(qp->link, wqe, &view, to, local, count);
	hazard_clear(hazard);
	return likely(!err) ? status : copy_status(qp, wqe, err, local, count);
}

enum ibv_wc_status onesided_read(struct qp *qp, const struct send_wqe *wqe)
{
	struct iovec local[LIMIT_SGE];
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct mr_view view;
	int count = sq_segments(qp, wqe, IBV_ACCESS_LOCAL_WRITE, local), err = 0;

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	if (!wqe->length)
		return zero_length(qp, wqe, IBV_ACCESS_REMOTE_READ);
	_Atomic uint64_t *hazard = hazard_set(qp->hca, qp->link->slot, wqe->rkey);
	uint64_t from = target(qp, wqe, wqe->length, IBV_ACCESS_REMOTE_READ, &view, &status);

	if (likely(from))
		err = get(qp->link, wqe, &view, from, local, count);
	hazard_clear(hazard);
	return likely(!err) ? status : copy_status(qp, wqe, err, local, count);
}

GUARDED static uint64_t atomic_apply(_Atomic uint64_t *word, const struct record_atomic *op)
{
	uint64_t old = op->compare_add;

	if (!op->is_swap)
		return atomic_fetch_add(word, op->compare_add);
	atomic_compare_exchange_strong(word, &old, op->swap);
	return old;
}

bool atomic_execute(uint64_t addr, const struct record_atomic *op, uint64_t *old)
{
	guard_place_t place;

	if (GUARD_SET(place))
		return false;
	guard_enter(place);
	*old = atomic_apply((_Atomic uint64_t *)(uintptr_t)addr, op);
	guard_leave();
	return true;
}

/* Own memory only: CPU atomics need a mapping. */
enum ibv_wc_status onesided_atomic(struct qp *qp, const struct send_wqe *wqe)
{
	struct record_atomic op = {
		.is_swap = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
	};
	uint64_t old;
	struct iovec local[LIMIT_SGE];
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct mr_view view;
	int count = sq_segments(qp, wqe, IBV_ACCESS_LOCAL_WRITE, local);

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	_Atomic uint64_t *hazard = hazard_set(qp->hca, qp->link->slot, wqe->rkey);
	uint64_t at = target(qp, wqe, 8, IBV_ACCESS_REMOTE_ATOMIC, &view, &status);

	if (at && at % 8) {
		status = refuse_request(qp, wqe, "an atomic's target isn't a multiple of 8");
	} else if (at && (!atomic_execute(at, &op, &old) ||
			  !copy_scatter(local, count, 0, &old, sizeof(old)))) {
		status = copy_status(qp, wqe, -EFAULT, local, count);
	}
	hazard_clear(hazard);
	return status;
}
