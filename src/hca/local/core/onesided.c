/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One-sided operations that the initiator executes: RDMA WRITE and READ on another process's memory
 * by copies from process to process, and all of them (atomics too) on this process's own.
 *
 * Each call sets the hazard, looks QP and region up in the target's published memory, copies, and
 * clears the hazard, or keeps it for the next request of a list. A request that a responder would
 * refuse is refused here, and a FATAL record tells the responder's QP, so that its program sees the
 * same error as with an adapter. Within a process the responder's QP refuses it itself
 * (start_refused()), so that it is in the error state before the request has completed.
 */
#include <errno.h>

#include "hca/local/core/state.h"

bool local_region_is_mapped(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct mr_view view;

	if (!world_peer_region(lq, wqe->rkey, &view))
		return false;
	if (unlikely(view.pd & PUB_MR_WINDOW)) {
		view.region = world_peer_window(lq, wqe->rkey, &view);
		if (!view.region)
			return false;
	}
	return world_peer_mapped(lq, &view);
}

static const char not_allowed[] =
	"the peer's QP doesn't allow it (qp_access_flags, max_dest_rd_atomic)";

void local_report_refused(struct local_qp *lq, enum ibv_wc_status status)
{
	struct ring_header h = {.imm = status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR
									: IBV_EVENT_QP_ACCESS_ERR};

	local_fill_record(lq, &h, REC_FATAL, 0, (uint8_t)lq->peer_epoch);
	world_ring_control(lq, &h, NULL, 0);
}

/* Logs the refusal. If the peer's QP isn't set up for the operation it is an invalid request, not
 * an access error. */
static enum ibv_wc_status refuse_onesided(struct local_qp *lq, const struct send_wqe *wqe,
					  enum ibv_wc_status status, const char *why)
{
	world_log(lq, "remote access to 0x%llx, %u bytes, rkey 0x%x refused: %s",
		  (unsigned long long)wqe->remote_addr, wqe->length, wqe->rkey, why);
	return status;
}

/* Whether the region is a third process's that the peer imported: only the peer can resolve it. */
static bool peer_imported(struct local_qp *lq, const struct mr_view *mr, uint32_t access)
{
	return mr->access & PUB_MR_FOREIGN && access != IBV_ACCESS_REMOTE_ATOMIC &&
	       mr->pd == (world_peer_pd(lq) | PUB_MR_FOREIGN);
}

/* Why an entry of another protection domain than the peer's QP, which is no window for this QP,
 * isn't granted; NULL: only the peer can decide. */
static __attribute__((noinline)) const char *no_access(struct local_qp *lq,
						       const struct mr_view *view, uint32_t access,
						       enum ibv_wc_status *status)
{
	*status = LOCAL_ASK_PEER;
	return peer_imported(lq, view, access)
		       ? NULL
		       : "the region or window belongs to another protection "
			 "domain than the peer's QP, or the window to "
			 "another QP";
}

/* Validates the operation against the region that the request names; no side effects. Returns why
 * it is refused, in words, or NULL: it is granted, or only the peer can decide (*status). *view
 * becomes the target's region. */
static inline __attribute__((always_inline)) const char *
check_region(struct local_qp *lq, const struct send_wqe *wqe, uint32_t length, uint32_t access,
	     struct mr_view *view, enum ibv_wc_status *status)
{
	*status = IBV_WC_REM_ACCESS_ERR;
	if (unlikely(!world_peer_region(lq, wqe->rkey, view)))
		return "no such rkey (never registered or bound, deregistered or invalidated)";
	if (unlikely(view->pd != world_peer_pd(lq))) {
		view->region = world_peer_window(lq, wqe->rkey, view);
		if (unlikely(!view->region))
			return no_access(lq, view, access, status);
	}
	if (unlikely(!(view->access & access)))
		return "the region wasn't registered, or the window not bound, for it";
	if (unlikely(!mr_covers(view, wqe->remote_addr, length)))
		return "outside the region or window";
	*status = IBV_WC_SUCCESS;
	return NULL;
}

/* Whether the peer's QP is gone, or doesn't receive any more, in the life that this QP sends to. */
static bool peer_life_over(const struct local_qp *lq, uint64_t word)
{
	return pub_qp_epoch(word) != lq->peer_epoch || pub_qp_state(word) < IBV_QPS_RTR ||
	       pub_qp_state(word) == IBV_QPS_ERR;
}

static const char no_srq[] = "no SRQ of the target QP's domain has the number";

static bool names_no_srq(struct local_qp *lq)
{
	return unlikely(lq->type == IBV_QPT_XRC_SEND) && !world_peer_srq(lq);
}

/*
 * Validates the whole operation; no side effects. *why becomes the reason, in words, if the peer
 * refuses it, else NULL. For no bytes no key is looked up, but the QP must be set up for the
 * operation.
 */
static inline __attribute__((always_inline)) enum ibv_wc_status
check_grant(struct local_qp *lq, const struct send_wqe *wqe, uint32_t length, uint32_t access,
	    struct mr_view *view, const char **why)
{
	uint64_t word = world_peer_word(lq);
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	*why = NULL;
	if (unlikely(peer_life_over(lq, word)))
		return IBV_WC_RETRY_EXC_ERR; /* as a QP that doesn't exist: no answer */
	if (names_no_srq(lq)) {
		*why = no_srq;
		return IBV_WC_REM_ACCESS_ERR;
	}
	if (unlikely(!(pub_qp_access(word) & access))) {
		*why = not_allowed;
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (length)
		*why = check_region(lq, wqe, length, access, view, &status);
	return unlikely(*why) ? IBV_WC_REM_ACCESS_ERR : status;
}

/* The same, and logs a refusal. */
static inline __attribute__((always_inline)) enum ibv_wc_status
ask_grant(struct local_qp *lq, const struct send_wqe *wqe, uint32_t length, uint32_t access,
	  struct mr_view *view)
{
	const char *why;
	enum ibv_wc_status status = check_grant(lq, wqe, length, access, view, &why);

	return likely(!why) ? status : refuse_onesided(lq, wqe, status, why);
}

/* The status for a failed copy: depends on whether this side's or the peer's memory isn't mapped.
 * -EAGAIN: nothing was copied, and the peer is to do it. */
static enum ibv_wc_status copy_status(struct local_qp *lq, const struct send_wqe *wqe, int err,
				      const struct iovec *local, int count)
{
	if (err == -ESRCH)
		return IBV_WC_RETRY_EXC_ERR;
	if (err == -EAGAIN)
		return LOCAL_ASK_PEER;
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

/* ------------------------------------------------------------------ the hazard of a list */

/*
 * A hazard is taken by an atomic operation, which takes as long as a small copy. So a request keeps
 * its hazard for the next one, if that is of the same kind and names the same key: the key is
 * looked up again, under the hazard, as the rule wants (mem/hazard.h). A deregistration waits for
 * one hazard as long as for KEPT_BYTES to be copied. local_qp_post() clears what is left; only
 * requests that take no other hazard, and wait for none, are executed between.
 */
enum { KEPT_BYTES = 8192, KEPT_EACH = 64 /* what a request counts besides its bytes */ };

static inline void hazard_of_list(struct local_qp *lq, uint32_t rkey)
{
	if (lq->hazard && likely(lq->hazard_rkey == rkey))
		return;
	local_hazard_clear(lq);
	lq->hazard = world_hazard_region(lq, rkey);
	lq->hazard_rkey = rkey;
	lq->hazard_bytes = 0;
}

/* Whether the request after `wqe`, which is being executed, is of its kind and on its region. */
static inline bool is_followed(const struct local_qp *lq, const struct send_wqe *wqe)
{
	uint32_t place = lq->sq->next + 1;

	if (place == lq->sq->head)
		return false;
	const struct send_wqe *next = sq_at(lq->sq, place);

	return next->opcode == wqe->opcode && next->rkey == wqe->rkey;
}

static inline void hazard_end(struct local_qp *lq, const struct send_wqe *wqe)
{
	lq->hazard_bytes += wqe->length + KEPT_EACH;
	if (!is_followed(lq, wqe) || unlikely(lq->hazard_bytes > KEPT_BYTES))
		local_hazard_clear(lq);
}

/* A segment's key isn't valid. A READ's segments are looked at when there is an answer: so a READ
 * that the peer refuses ends with the peer's status, as on adapters (docs/behaviour.md). */
static enum ibv_wc_status no_segments(struct local_qp *lq, const struct send_wqe *wqe, bool write)
{
	struct mr_view view;
	enum ibv_wc_status status =
		write ? IBV_WC_SUCCESS
		      : ask_grant(lq, wqe, wqe->length, IBV_ACCESS_REMOTE_READ, &view);

	return status == IBV_WC_SUCCESS ? IBV_WC_LOC_PROT_ERR : status;
}

/* Inlined into each of the two operations, with its checks: the region's entry then stays in
 * registers. */
static inline __attribute__((always_inline)) enum ibv_wc_status
execute_onesided(struct local_qp *lq, const struct send_wqe *wqe, bool write)
{
	uint32_t access = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	struct mr_view view;
	int err = 0;
	int count = world_request_segments(lq, wqe, write ? 0 : IBV_ACCESS_LOCAL_WRITE, local);

	if (unlikely(count < 0))
		return no_segments(lq, wqe, write);
	if (!wqe->length)
		return ask_grant(lq, wqe, 0, access, &view);
	hazard_of_list(lq, wqe->rkey);
	enum ibv_wc_status status = ask_grant(lq, wqe, wqe->length, access, &view);

	if (likely(status == IBV_WC_SUCCESS)) {
		uint64_t there = wqe->remote_addr + view.offset;

		err = write ? world_peer_put(lq, &view, there, local, count, wqe->length)
			    : world_peer_get(lq, &view, there, local, count, wqe->length);
	}
	hazard_end(lq, wqe);
	return likely(!err) ? status : copy_status(lq, wqe, err, local, count);
}

/* ------------------------------------------------------------------ several READs by one call */

/*
 * A call of the kernel costs as much as copying 8 KiB. So the READs at the queue's head that name
 * one region, which isn't mapped here, are executed by one call. It copies them in order, and all
 * of them count only if it copies all; else each is executed by itself, which finds out what is
 * wrong with it.
 */
enum { RUN_BYTES = 1 << 20 /* for which a deregistration may have to wait */ };

struct read_run {
	struct iovec remote[LOCAL_RUN], local[LIMIT_SGE];
	uint32_t reads, segments;
	size_t length;
};

/* Adds a request for the region `view`, if it is one of the run. */
static bool run_add(struct local_qp *lq, const struct send_wqe *wqe, const struct mr_view *view,
		    struct read_run *run)
{
	if (wqe->opcode != IBV_WR_RDMA_READ || !wqe->length ||
	    run->length + wqe->length > RUN_BYTES || run->segments + wqe->num_sge > LIMIT_SGE ||
	    !mr_covers(view, wqe->remote_addr, wqe->length) ||
	    world_link_prefers_ring(lq, wqe->length))
		return false;
	int count =
		world_request_segments(lq, wqe, IBV_ACCESS_LOCAL_WRITE, run->local + run->segments);

	if (unlikely(count < 0))
		return false;
	run->remote[run->reads++] =
		(struct iovec){(void *)(uintptr_t)(wqe->remote_addr + view->offset), wqe->length};
	run->segments += count;
	run->length += wqe->length;
	return true;
}

/* Whether the READ at the queue's head may be the first one of a run, after its hazard was set:
 * then *view is its region. */
static bool run_begins(struct local_qp *lq, const struct send_wqe *wqe, struct mr_view *view)
{
	const char *why;

	return check_grant(lq, wqe, wqe->length, IBV_ACCESS_REMOTE_READ, view, &why) ==
		       IBV_WC_SUCCESS &&
	       !why && !(view->access & PUB_MR_MOVING) && !(view->pd & PUB_MR_WINDOW) &&
	       !world_peer_mapped(lq, view);
}

bool local_has_runs(const struct local_qp *lq)
{
	return !lq->self && lq->type == IBV_QPT_RC && !lq->routed && lq->state == IBV_QPS_RTS;
}

uint32_t local_read_run(struct local_qp *lq)
{
	uint32_t place = lq->sq->next;
	const struct send_wqe *first = sq_at(lq->sq, place);
	WORLD_MEMORY(memory, lq);
	struct mr_view view;
	struct read_run run;

	if (likely(!is_followed(lq, first)) || !local_has_runs(lq) || !first->length)
		return 0;
	hazard_of_list(lq, first->rkey);
	if (!run_begins(lq, first, &view))
		return 0;
	run.reads = run.segments = 0;
	run.length = 0;
	while (place != lq->sq->head && run.reads < LOCAL_RUN &&
	       sq_at(lq->sq, place)->rkey == first->rkey &&
	       run_add(lq, sq_at(lq->sq, place), &view, &run))
		place++;
	if (run.reads < 2)
		return 0;
	int err = world_peer_get_several(lq, run.remote, (int)run.reads, run.local,
					 (int)run.segments, run.length);

	local_hazard_clear(lq);
	return likely(!err) ? run.reads : 0;
}

/* ------------------------------------------------------------------ one request */

enum ibv_wc_status local_write_to_peer(struct local_qp *lq, const struct send_wqe *wqe)
{
	return execute_onesided(lq, wqe, true);
}

enum ibv_wc_status local_read_from_peer(struct local_qp *lq, const struct send_wqe *wqe)
{
	return execute_onesided(lq, wqe, false);
}

/* Whether the peer's QP has no resources for requests that are answered. Its rights for READs and
 * atomics say so, too; ATOMIC WRITE needs the right for WRITEs. */
static bool lacks_resources(struct local_qp *lq)
{
	uint64_t word = world_peer_word(lq);

	return !peer_life_over(lq, word) && !(pub_qp_access(word) & PUB_QP_ANSWERS);
}

/* Executes `op` on memory that is mapped here. 0 or -errno; -EAGAIN: it isn't. */
static int atomic_on_peer(struct local_qp *lq, const struct send_wqe *wqe,
			  const struct mr_view *view, const struct record_atomic *op, uint64_t *old)
{
	uint64_t at = wqe->remote_addr + view->offset;

	if (!lq->self)
		return world_peer_atomic(lq, view, at, op, old);
	return world_own_atomic(lq, at, op, old) ? 0 : -EFAULT;
}

/* Executes it, and gives an atomic's answer to the segments; `count` negative: they aren't valid,
 * which shows when the answer is there. */
static enum ibv_wc_status atomic_execute_here(struct local_qp *lq, const struct send_wqe *wqe,
					      const struct mr_view *view,
					      const struct record_atomic *op,
					      const struct iovec *local, int count)
{
	uint64_t old;

	if (unlikely((wqe->remote_addr + view->offset) % 8))
		return refuse_onesided(lq, wqe, IBV_WC_REM_INV_REQ_ERR,
				       "an atomic's target isn't a multiple of 8");
	int err = atomic_on_peer(lq, wqe, view, op, &old);

	if (unlikely(err == -EAGAIN))
		return LOCAL_ASK_PEER;
	if (likely(!err) && unlikely(count < 0))
		return IBV_WC_LOC_PROT_ERR;
	if (likely(!err) && op->operation != RECORD_STORE &&
	    unlikely(!world_scatter(lq, local, count, 0, &old, sizeof(old))))
		err = -EFAULT;
	if (unlikely(err))
		return copy_status(lq, wqe, err, local, count);
	return IBV_WC_SUCCESS;
}

enum ibv_wc_status local_atomic_here(struct local_qp *lq, const struct send_wqe *wqe,
				     const struct record_atomic *op)
{
	bool stores = op->operation == RECORD_STORE;
	uint32_t right = stores ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	struct mr_view view;
	/* What is stored has been read already. */
	int count = stores ? 0 : world_request_segments(lq, wqe, IBV_ACCESS_LOCAL_WRITE, local);

	if (unlikely(lacks_resources(lq)))
		return refuse_onesided(lq, wqe, IBV_WC_REM_INV_REQ_ERR, not_allowed);
	world_hazard *hazard = world_hazard_region(lq, wqe->rkey);
	enum ibv_wc_status status = ask_grant(lq, wqe, 8, right, &view);

	if (likely(status == IBV_WC_SUCCESS))
		status = atomic_execute_here(lq, wqe, &view, op, local, count);
	world_hazard_clear(hazard);
	return likely(status != LOCAL_ASK_PEER || !lq->self)
		       ? status
		       : refuse_onesided(lq, wqe, IBV_WC_REM_ACCESS_ERR, "the region is imported");
}

enum ibv_wc_status local_flush_at_peer(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct mr_flush flush =
		mr_flush_of(wqe->remote_addr, wqe->atomic.compare_add, (uint8_t)wqe->atomic.swap);
	uint64_t word = world_peer_word(lq);
	struct mr_view view;

	if (unlikely(peer_life_over(lq, word)))
		return IBV_WC_RETRY_EXC_ERR;
	if (names_no_srq(lq))
		return refuse_onesided(lq, wqe, IBV_WC_REM_ACCESS_ERR, no_srq);
	if (unlikely(!flush.access || (pub_qp_access(word) & flush.access) != flush.access))
		return refuse_onesided(lq, wqe, IBV_WC_REM_INV_REQ_ERR, not_allowed);
	bool there = world_peer_region(lq, wqe->rkey, &view);

	if (there && unlikely(peer_imported(lq, &view, flush.access)))
		return LOCAL_ASK_PEER;
	if (unlikely(!there || !mr_flush_granted(&view, world_peer_pd(lq), &flush)))
		return refuse_onesided(lq, wqe, IBV_WC_REM_ACCESS_ERR,
				       "no region there was registered for FLUSH of this type");
	world_flush_fence(lq);
	return IBV_WC_SUCCESS;
}
