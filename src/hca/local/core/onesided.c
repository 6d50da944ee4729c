/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One-sided operations that the initiator executes: RDMA WRITE and READ on another process's memory
 * by copies from process to process, and all of them (atomics too) on this process's own.
 *
 * Each call: set the hazard, look QP and region up in the target's published table, copy, clear the
 * hazard. What a real responder would refuse is refused here, and the responder's QP is told
 * (FATAL), so that its program sees what it would see with a card.
 */
#include <errno.h>

#include "hca/local/core/state.h"

bool local_region_is_mapped(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct mr_view view;

	return world_peer_region(lq, wqe->rkey, &view) && view.file_serial;
}

/* The peer's QP goes to the error state for what was tried on it. */
static void tell_peer(struct local_qp *lq, enum ibv_event_type event)
{
	struct ring_header h = {.imm = event};

	if (lq->type != IBV_QPT_RC)
		return; /* unreliable: dropped without a word */
	local_fill_record(lq, &h, REC_FATAL, 0, lq->peer_epoch);
	world_ring_control(lq, &h, NULL, 0);
}

/* Tells the peer. What its QP isn't set up for is no question of keys: the request is invalid. */
static enum ibv_wc_status refuse_onesided(struct local_qp *lq, const struct send_wqe *wqe,
					  enum ibv_wc_status status, const char *why)
{
	world_log(lq, "remote access to 0x%llx, %u bytes, rkey 0x%x refused: %s",
		  (unsigned long long)wqe->remote_addr, wqe->length, wqe->rkey, why);
	tell_peer(lq, status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR
						       : IBV_EVENT_QP_ACCESS_ERR);
	return status;
}

/* A region of a third process, that the peer imported: only the peer can tell what it is. */
static bool peer_imported(struct local_qp *lq, const struct mr_view *mr, uint32_t access)
{
	return mr->access & PUB_MR_FOREIGN && access != IBV_ACCESS_REMOTE_ATOMIC &&
	       mr->pd == (world_peer_pd(lq) | PUB_MR_FOREIGN);
}

/* What the region that the request names says against it; no side effects. NULL: nothing, or only
 * the peer can tell (*status). *view becomes the target's region. */
static const char *check_region(struct local_qp *lq, const struct send_wqe *wqe, uint32_t length,
				uint32_t access, struct mr_view *view, enum ibv_wc_status *status)
{
	*status = IBV_WC_REM_ACCESS_ERR;
	if (unlikely(!world_peer_region(lq, wqe->rkey, view)))
		return "no such rkey (never registered, deregistered, or an lkey)";
	if (unlikely(view->pd != world_peer_pd(lq))) {
		*status = LOCAL_ASK_PEER;
		return peer_imported(lq, view, access) ? NULL
						       : "the region belongs to another protection "
							 "domain than the peer's QP";
	}
	if (unlikely(!(view->access & access)))
		return "the region wasn't registered for it";
	if (unlikely(!mr_covers(view, wqe->remote_addr, length)))
		return "outside the region";
	*status = IBV_WC_SUCCESS;
	return NULL;
}

/*
 * Whether the operation is granted; no side effects. `why`, in words, when the peer refuses it,
 * else NULL. On no bytes no key is looked at, but the QP must be set up for it.
 */
static enum ibv_wc_status check_grant(struct local_qp *lq, const struct send_wqe *wqe,
				      uint32_t length, uint32_t access, struct mr_view *view,
				      const char **why)
{
	uint64_t word = world_peer_word(lq);
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	*why = NULL;
	if (unlikely((uint8_t)pub_qp_epoch(word) != lq->peer_epoch ||
		     pub_qp_state(word) < IBV_QPS_RTR || pub_qp_state(word) == IBV_QPS_ERR))
		return IBV_WC_RETRY_EXC_ERR; /* a QP that isn't there doesn't answer */
	if (unlikely(!(pub_qp_access(word) & access))) {
		*why = "the peer's QP doesn't allow it (qp_access_flags, max_dest_rd_atomic)";
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (length)
		*why = check_region(lq, wqe, length, access, view, &status);
	return unlikely(*why) ? IBV_WC_REM_ACCESS_ERR : status;
}

/* The same, and the peer is told. */
static enum ibv_wc_status ask_grant(struct local_qp *lq, const struct send_wqe *wqe,
				    uint32_t length, uint32_t access, struct mr_view *view)
{
	const char *why;
	enum ibv_wc_status status = check_grant(lq, wqe, length, access, view, &why);

	return likely(!why) ? status : refuse_onesided(lq, wqe, status, why);
}

/* What a copy that failed means: whose memory was it? */
static enum ibv_wc_status copy_status(struct local_qp *lq, const struct send_wqe *wqe, int err,
				      const struct iovec *local, int count)
{
	if (err == -ESRCH)
		return IBV_WC_RETRY_EXC_ERR;
	if (!world_reachable(local, count))
		return IBV_WC_LOC_PROT_ERR;
	return refuse_onesided(lq, wqe, IBV_WC_REM_ACCESS_ERR,
			       "the memory behind the region isn't mapped any more");
}

bool local_may_write(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct mr_view view;
	const char *why;

	return check_grant(lq, wqe, wqe->length, IBV_ACCESS_REMOTE_WRITE, &view, &why) ==
	       IBV_WC_SUCCESS;
}

static inline enum ibv_wc_status execute_onesided(struct local_qp *lq, const struct send_wqe *wqe,
						  bool write)
{
	uint32_t access = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	struct mr_view view;
	int err = 0;
	int count = world_request_segments(lq, wqe, write ? 0 : IBV_ACCESS_LOCAL_WRITE, local);

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	if (!wqe->length)
		return ask_grant(lq, wqe, 0, access, &view);
	world_hazard *hazard = world_hazard_region(lq, wqe->rkey);
	enum ibv_wc_status status = ask_grant(lq, wqe, wqe->length, access, &view);

	if (likely(status == IBV_WC_SUCCESS)) {
		uint64_t there = wqe->remote_addr + view.offset;

		err = write ? world_peer_put(lq, wqe->rkey, &view, there, local, count, wqe->length)
			    : world_peer_get(lq, wqe->rkey, &view, there, local, count,
					     wqe->length);
	}
	world_hazard_clear(hazard);
	return likely(!err) ? status : copy_status(lq, wqe, err, local, count);
}

enum ibv_wc_status local_write_to_peer(struct local_qp *lq, const struct send_wqe *wqe)
{
	return execute_onesided(lq, wqe, true);
}

enum ibv_wc_status local_read_from_peer(struct local_qp *lq, const struct send_wqe *wqe)
{
	return execute_onesided(lq, wqe, false);
}

/* Own memory only: CPU atomics need a mapping. */
enum ibv_wc_status local_atomic_on_self(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct record_atomic op = {
		.is_swap = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
		.compare_add = wqe->atomic.compare_add,
		.swap = wqe->atomic.swap,
	};
	WORLD_MEMORY(memory, lq);
	uint64_t old;
	struct iovec local[LIMIT_SGE];
	struct mr_view view;
	int count = world_request_segments(lq, wqe, IBV_ACCESS_LOCAL_WRITE, local);

	if (unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	world_hazard *hazard = world_hazard_region(lq, wqe->rkey);
	enum ibv_wc_status status = ask_grant(lq, wqe, 8, IBV_ACCESS_REMOTE_ATOMIC, &view);

	if (likely(status == IBV_WC_SUCCESS)) {
		uint64_t at = wqe->remote_addr + view.offset;

		if (at % 8)
			status = refuse_onesided(lq, wqe, IBV_WC_REM_INV_REQ_ERR,
						 "an atomic's target isn't a multiple of 8");
		else if (!world_own_atomic(lq, at, &op, &old) ||
			 !world_scatter(lq, local, count, 0, &old, sizeof(old)))
			status = copy_status(lq, wqe, -EFAULT, local, count);
	}
	world_hazard_clear(hazard);
	return status;
}
