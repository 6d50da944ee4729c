/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread does that drives the engine: passes over the rings of all links and over the
 * socket. It takes the records and packets, resumes QPs that waited, and sends acknowledgements.
 */
#include "hca/engine/pass.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/local_carrier.h"
#include "hca/local/local_conn.h"
#include "hca/process/context.h"
#include "hca/roce/interface.h"
#include "hca/roce/roce.h"
#include "hca/verbs/carrier.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/tagged.h"

enum {
	ROCE_LOOKS = 8,	  /* how many rings a look at the socket counts as, by the time it takes */
	ACK_RECORDS = 32, /* acknowledgements that are owed wait while fewer are handled */
	WARM_NS = 60000,  /* how long the engine thread stays awake: as long as waking it takes */
};

static const char link_rules_broken[] = "its peer broke the rules of their link";

void engine_acknowledge(struct hca *hca)
{
	hca->unacknowledged = 0;
	local_flush_acks(hca);
}

void engine_leave(struct hca *hca)
{
	if (unlikely(!list_empty(&hca->acks)) && engine_asleep(hca))
		engine_acknowledge(hca);
	if (unlikely(!list_empty(&hca->tagged)))
		tagged_pass(hca);
	lock_give(&hca->engine);
}

static unsigned int link_drain(struct hca *hca, struct link *link) REQUIRES(hca->engine)
{
	unsigned int n = 0, most, taken;
	int error = 0;

	do {
		most = ACK_RECORDS - hca->unacknowledged;
		if (most > PASS_RECORDS - n)
			most = PASS_RECORDS - n;
		taken = local_take_records(hca, link, most, &error);
		n += taken;
		hca->unacknowledged += taken;
		if (hca->unacknowledged >= ACK_RECORDS)
			engine_acknowledge(hca);
	} while (taken == most && n < PASS_RECORDS);
	link->deep = n == PASS_RECORDS;
	if (unlikely(error)) {
		log_error("process %d wrote nonsense into its ring; link given up", link->pid);
		link_break(link, link_rules_broken);
	}
	if (n && ring_publish_lazily(&link->rx)) {
		hca->filled = true;
		link_notify(link); /* a peer that polls looks at its waiters in its passes */
	}
	return n;
}

void engine_drain(struct hca *hca, struct link *link)
{
	lock_take(&hca->engine);
	for (unsigned int n = 0; n < RING_SLOTS && link_is(link, LINK_UP) && ring_ready(&link->rx);)
		n += link_drain(hca, link);
	engine_leave(hca);
}

void engine_take_in(struct hca *hca)
{
	lock_take(&hca->engine);
	roce_take_in(hca->roce);
	engine_leave(hca);
}

static bool cq_overran(const struct qp *qp)
{
	const struct cq *tagged = qp->tagged ? tagged_cq(qp) : NULL;

	return (qp->send_cq && atomic_load(&qp->send_cq->overrun)) ||
	       (qp->recv_cq && atomic_load(&qp->recv_cq->overrun)) ||
	       (tagged && atomic_load_explicit(&tagged->overrun, memory_order_relaxed));
}

static void engine_fail_qp(struct qp *qp, const char *why) REQUIRES(qp->lock)
{
	log_warn("QP 0x%x fails: %s", qp->ibv.qp_num, why);
	qp_fail(qp, IBV_EVENT_QP_FATAL);
}

/* Of a link that this process has given up. */
static void fail_of_link(struct qp *qp) REQUIRES(qp->lock)
{
	const struct link *link = local_link_of(qp);

	if (qp->state != IBV_QPS_RESET)
		engine_fail_qp(qp, atomic_load(&link->broken));
}

/* Fails the QPs of CQs that overran. hca.engine is held. */
static void fail_overrun(struct hca *hca)
{
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++) {
		struct qp *qp = hca->qps[i];

		if (!qp)
			continue;
		lock_take(&qp->lock);
		/* A QP that spreads frames has no queues: its work queues fail. */
		if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR && !qp->spread &&
		    cq_overran(qp))
			engine_fail_qp(qp, "a CQ that it completes to has overrun");
		lock_give(&qp->lock);
	}
}

void engine_fail_removed(struct hca *hca)
{
	lock_take(&hca->engine);
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++) {
		struct qp *qp = hca->qps[i];

		if (!qp || !context_removed(qp->context))
			continue;
		lock_take(&qp->lock);
		if (qp->state != IBV_QPS_RESET)
			qp_fail(qp, -1); /* the device's event says it */
		lock_give(&qp->lock);
	}
	engine_leave(hca);
}

void engine_fail_overrun(struct hca *hca)
{
	if (!work_take(&hca->engine_work, ENGINE_OVERRUNS))
		return;
	lock_take(&hca->engine);
	fail_overrun(hca);
	lock_give(&hca->engine);
}

/* Resumes every QP that waited for the link. QPs that must wait again re-enter the list. */
static void wake_waiters(struct link *link)
{
	struct list batch, *node;

	atomic_store(&link->has_waiters, false);
	if (unlikely(atomic_load_explicit(&link->tx.broken, memory_order_relaxed) &&
		     link_is(link, LINK_UP))) {
		log_error("process %d claims to have read what wasn't written; link given up",
			  link->pid);
		link_break(link, link_rules_broken);
	}
	if (link_pending(link) || (link_is(link, LINK_UP) && !link_flush_backlog(link))) {
		atomic_store(&link->has_waiters, true);
		return;
	}
	list_init(&batch);
	lock_take(&link->tx_lock);
	if (link_is(link, LINK_UP)) /* its memory then stays while hca.engine is held */
		ring_retry(&link->tx);
	while ((node = list_pop(&link->waiters)))
		list_add_tail(&batch, node);
	node = list_pop(&batch);
	lock_give(&link->tx_lock);
	while (node) {
		struct qp *qp = container_of(node, struct qp, tx_wait);

		lock_take(&qp->lock);
		qp->carrier->resume(qp);
		lock_give(&qp->lock);
		lock_take(&link->tx_lock);
		node = list_pop(&batch);
		lock_give(&link->tx_lock);
	}
}

void engine_wake_unlisted(struct hca *hca)
{
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (!link || link_pending(link) || !atomic_load(&link->has_waiters))
			continue;
		lock_take(&hca->engine);
		wake_waiters(link);
		lock_give(&hca->engine);
	}
}

unsigned int engine_pass_links(struct hca *hca, unsigned int *looked)
{
	unsigned int n = 0;
	bool owes = !list_empty(&hca->acks); /* since an earlier pass */

	if (unlikely(!list_empty(&hca->tagged)))
		tagged_pass(hca);
	list_for_each(node, &hca->links) {
		struct link *link = container_of(node, struct link, node);

		++*looked;
		if (unlikely(atomic_load_explicit(&link->has_waiters, memory_order_relaxed)))
			wake_waiters(link);
		if (unlikely(!link_is(link, LINK_UP))) {
			list_del(&link->node);
			if (atomic_load(&link->broken))
				link_for_each_qp(hca, link, fail_of_link);
			continue;
		}
		if (ring_ready(&link->rx))
			n += link_drain(hca, link);
	}
	if (unlikely(owes && !n))
		engine_acknowledge(hca);
	if (unlikely(hca->roce && roce_busy(hca->roce))) {
		n += roce_pass(hca->roce);
		*looked += ROCE_LOOKS;
	}
	struct interface *interface = atomic_load_explicit(&hca->interface, memory_order_acquire);

	if (unlikely(interface && interface_ready(interface)))
		n += interface_pass(hca, interface);
	if (n)
		atomic_store_explicit(&hca->handled,
				      atomic_load_explicit(&hca->handled, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	return n;
}

/* Whether to stay awake after an empty pass. A peer had filled its ring, so its next records are
 * likely to come soon; if this thread slept, the peer would wait until it has fallen asleep and
 * woken. *since is when the empty passes began (ns; 0: with this one). */
static bool is_warm(const struct hca *hca, uint64_t *since) REQUIRES(hca->engine)
{
	if (likely(!hca->filled))
		return false;
	uint64_t now = now_ns();

	if (!*since)
		*since = now;
	return now - *since < WARM_NS;
}

bool engine_pass_until_idle(struct hca *hca, unsigned int most)
{
	unsigned int looked = 0;
	uint64_t since = 0;

	for (unsigned int passes = 0; passes < most; passes++) {
		lock_take(&hca->engine);
		hca->filled = hca->filled && passes;
		unsigned int n = engine_pass_links(hca, &looked);
		bool found_none = !n;

		n += !list_empty(&hca->acks) + !list_empty(&hca->tagged);
		n += hca->roce && (roce_warm(hca->roce) || roce_ready(hca->roce));
		if (!found_none)
			since = 0;
		n += found_none && is_warm(hca, &since);
		lock_give(&hca->engine);
		if (!n)
			return true;
		if (found_none)
			sched_yield();
	}
	return false;
}
