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
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/mem/copy.h"
#include "hca/mem/guard.h"
#include "hca/mem/mapped.h"
#include "hca/mem/mr.h"
#include "hca/verbs/qp.h"

bool onesided_direct(const struct qp *qp)
{
	return qp->link->self || link_direct(qp->link);
}

bool onesided_is_mapped(const struct qp *qp, const struct send_wqe *wqe)
{
	struct mr_view view;

	return qp->link->regions && mr_read(qp->link->regions, wqe->rkey, &view) &&
	       view.file_serial;
}

/* The peer's QP goes to the error state for what we tried on it. */
static void tell_peer(struct qp *qp, enum ibv_event_type event)
{
	struct ring_header h = {.imm = event};

	if (qp->type != IBV_QPT_RC)
		return; /* unreliable: dropped without a word */
	local_record(qp, &h, REC_FATAL, 0);
	link_control(qp->link, &h, NULL, 0);
}

/* Tells the peer. What its QP isn't set up for is no question of keys: the request is invalid. */
static enum ibv_wc_status refuse(struct qp *qp, const struct send_wqe *wqe,
				 enum ibv_wc_status status, const char *why)
{
	log_info("QP 0x%x: remote access to 0x%llx, %u bytes, rkey 0x%x refused: %s",
		 qp->ibv.qp_num, (unsigned long long)wqe->remote_addr, wqe->length, wqe->rkey, why);
	tell_peer(qp, status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR
						       : IBV_EVENT_QP_ACCESS_ERR);
	return status;
}

/* A region of a third process, that the peer imported: only the peer can tell what it is. */
static bool is_imported(const struct qp *qp, const struct mr_view *mr, uint32_t access)
{
	return mr->access & PUB_MR_FOREIGN && access != IBV_ACCESS_REMOTE_ATOMIC &&
	       mr->pd == (atomic_load_explicit(&qp->remote->pd, memory_order_relaxed) |
			  PUB_MR_FOREIGN);
}

/*
 * What speaks against the operation; tells nobody. `why`, in words, when the peer refuses it, else
 * NULL. *view becomes the target's region. On no bytes no key is looked at, but the QP must be set
 * up for it.
 */
static enum ibv_wc_status why_not(const struct qp *qp, const struct send_wqe *wqe, uint32_t length,
				  uint32_t access, struct mr_view *view, const char **why)
{
	uint64_t word = pub_qp_read_state(qp->remote);

	*why = NULL;
	if (unlikely((uint8_t)pub_qp_epoch(word) != qp->remote_epoch ||
		     pub_qp_state(word) < IBV_QPS_RTR || pub_qp_state(word) == IBV_QPS_ERR))
		return IBV_WC_RETRY_EXC_ERR; /* a QP that isn't there doesn't answer */
	if (unlikely(!(pub_qp_access(word) & access))) {
		*why = "the peer's QP doesn't allow it (qp_access_flags, max_dest_rd_atomic)";
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (!length)
		return IBV_WC_SUCCESS;
	if (unlikely(!mr_read(qp->link->regions, wqe->rkey, view)))
		*why = "no such rkey (never registered, deregistered, or an lkey)";
	else if (unlikely(view->pd != atomic_load_explicit(&qp->remote->pd, memory_order_relaxed)))
		*why = is_imported(qp, view, access) ? NULL
						     : "the region belongs to another protection "
						       "domain than the peer's QP";
	else if (unlikely(!(view->access & access)))
		*why = "the region wasn't registered for it";
	else if (unlikely(!mr_covers(view, wqe->remote_addr, length)))
		*why = "outside the region";
	else
		return IBV_WC_SUCCESS;
	return *why ? IBV_WC_REM_ACCESS_ERR : ASK_PEER;
}

/* The same, and the peer is told. */
static enum ibv_wc_status check(struct qp *qp, const struct send_wqe *wqe, uint32_t length,
				uint32_t access, struct mr_view *view)
{
	const char *why;
	enum ibv_wc_status status = why_not(qp, wqe, length, access, view, &why);

	return likely(!why) ? status : refuse(qp, wqe, status, why);
}

/* What a failed process_vm_* means: whose memory was it? */
static enum ibv_wc_status copy_status(struct qp *qp, const struct send_wqe *wqe, int err,
				      const struct iovec *local, int count)
{
	if (err == -ESRCH)
		return IBV_WC_RETRY_EXC_ERR;
	if (!copy_reachable(local, count))
		return IBV_WC_LOC_PROT_ERR;
	return refuse(qp, wqe, IBV_WC_REM_ACCESS_ERR,
		      "the memory behind the region isn't mapped any more");
}

/* The bytes of a WRITE to the peer's address `there`, or of a READ from it. 0 or -errno. */
static int transfer(struct link *link, const struct send_wqe *wqe, const struct mr_view *view,
		    uint64_t there, const struct iovec *local, int count, bool write)
{
	struct mapped *use = NULL;
	uint8_t *here = link->self ? (uint8_t *)(uintptr_t)there
				   : mapped_begin(link, wqe->rkey, view, there, wqe->length, &use);

	if (!here)
		return write ? copy_to_process(link->pid, there, local, count, wqe->length)
			     : copy_from_process(link->pid, there, local, count, wqe->length);
	bool done;

	if (!write)
		done = copy_scatter(local, count, 0, here, wqe->length);
	else if (link->self)
		done = copy_gather_ordered(here, local, count, wqe->length);
	else
		done = copy_gather_far(here, local, count, wqe->length);
	if (use)
		mapped_end(use);
	return done ? 0 : -EFAULT;
}

bool onesided_may_write(struct qp *qp, const struct send_wqe *wqe)
{
	struct mr_view view;
	const char *why;

	return why_not(qp, wqe, wqe->length, IBV_ACCESS_REMOTE_WRITE, &view, &why) ==
	       IBV_WC_SUCCESS;
}

static inline enum ibv_wc_status execute(struct qp *qp, const struct send_wqe *wqe, bool write)
{
	uint32_t access = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct iovec local[LIMIT_SGE];
	struct mr_view view;
	int count = sq_segments(qp, wqe, write ? 0 : IBV_ACCESS_LOCAL_WRITE, local), err = 0;

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	if (!wqe->length)
		return check(qp, wqe, 0, access, &view);
	_Atomic uint64_t *hazard = hazard_set(qp->hca, qp->link->slot, wqe->rkey);
	enum ibv_wc_status status = check(qp, wqe, wqe->length, access, &view);

	if (likely(status == IBV_WC_SUCCESS))
		err = transfer(qp->link, wqe, &view, wqe->remote_addr + view.offset, local, count,
			       write);
	hazard_clear(hazard);
	return likely(!err) ? status : copy_status(qp, wqe, err, local, count);
}

enum ibv_wc_status onesided_write(struct qp *qp, const struct send_wqe *wqe)
{
	return execute(qp, wqe, true);
}

enum ibv_wc_status onesided_read(struct qp *qp, const struct send_wqe *wqe)
{
	return execute(qp, wqe, false);
}

GUARDED static uint64_t atomic_apply(_Atomic uint64_t *word, const struct record_atomic *op)
{
	uint64_t old = op->compare_add;

	/* [X1], pairs with the program's own atomic operations */
	if (!op->is_swap)
		return atomic_fetch_add(word, op->compare_add);
	/* [X1], pairs with the program's own atomic operations */
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
	struct mr_view view;
	int count = sq_segments(qp, wqe, IBV_ACCESS_LOCAL_WRITE, local);

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	_Atomic uint64_t *hazard = hazard_set(qp->hca, qp->link->slot, wqe->rkey);
	enum ibv_wc_status status = check(qp, wqe, 8, IBV_ACCESS_REMOTE_ATOMIC, &view);

	if (likely(status == IBV_WC_SUCCESS)) {
		uint64_t at = wqe->remote_addr + view.offset;

		if (at % 8)
			status = refuse(qp, wqe, IBV_WC_REM_INV_REQ_ERR,
					"an atomic's target isn't a multiple of 8");
		else if (!atomic_execute(at, &op, &old) ||
			 !copy_scatter(local, count, 0, &old, sizeof(old)))
			status = copy_status(qp, wqe, -EFAULT, local, count);
	}
	hazard_clear(hazard);
	return status;
}
