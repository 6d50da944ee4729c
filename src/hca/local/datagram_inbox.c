/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams that a UD QP keeps while it has no receives. See datagram_inbox.h. Owns struct kept. */
#include "hca/local/datagram_inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/process/counters.h"

/* The bound for one QP: a few rings full, which senders may have under way when the queue runs dry.
 * The link and the sender's user have bounds of their own (link_hold_bytes()). */
enum { INBOX_BYTES = 256 << 10 };

/* A datagram that waits for a receive. */
struct kept {
	struct list node;
	struct link *link; /* by which it came, and whose held_bytes it counts among */
	struct record_ud ud;
	struct arrival arrival;
	uint8_t payload[];
};

static uint32_t kept_size(const struct arrival *arrival)
{
	return sizeof(struct kept) + arrival->length;
}

void datagram_count_fate(struct hca *hca, enum datagram_fate fate)
{
	static const enum pub_counter places[] = {
		[DATAGRAM_STATE] = PUB_LOCAL_NO_QP,
		[DATAGRAM_QKEY] = PUB_LOCAL_QKEY,
		[DATAGRAM_PKEY] = PUB_LOCAL_PKEY,
		[DATAGRAM_NO_RECEIVE] = PUB_LOCAL_NO_RECEIVE,
		[DATAGRAM_TOO_LONG] = PUB_LOCAL_SHORT_RECEIVE,
	};

	if (fate != DATAGRAM_TAKEN)
		counters_rare(hca, places[fate]);
}

/* ------------------------------------------------------------------ states */

/* Rings the peers that have sent datagrams, so that waiting senders see the change. */
static void tell_senders(struct hca *hca) REQUIRES(hca->engine)
{
	list_for_each(node, &hca->links) {
		struct link *link = container_of(node, struct link, node);

		if (link->datagrams && link_is(link, LINK_UP))
			link_notify(link);
	}
}

static void inbox_enter(struct datagram_inbox *inbox, enum pub_qp_dry state)
{
	struct qp *qp = inbox->qp;
	_Atomic uint32_t *word = &qp->hca->pub->qp[qp->index].dry;
	uint32_t before = atomic_load_explicit(word, memory_order_relaxed);

	lock_assert_held(&qp->hca->engine);
	lock_assert_held(&qp->lock);
	inbox->state = state;
	/* The bits above the state differ each time, so a sender that gave this QP up sees a
	 * change. */
	atomic_store_explicit(word, ((before | PUB_QP_DRY_MASK) + 1) | state, memory_order_relaxed);
	receive_wait(qp, state != PUB_QP_OPEN);
	if (state == PUB_QP_DRY)
		list_add_tail(&qp->hca->dry, &inbox->node);
	else
		list_del(&inbox->node);
	if (before & PUB_QP_DRY_MASK)
		tell_senders(qp->hca);
}

/* Removes and frees the oldest kept datagram. */
static void inbox_release(struct datagram_inbox *inbox)
{
	struct kept *kept = container_of(list_pop(&inbox->kept), struct kept, node);
	uint32_t size = kept_size(&kept->arrival);

	inbox->bytes -= size;
	link_release_bytes(kept->link, size);
	free(kept);
}

static void drop_kept(struct datagram_inbox *inbox, enum datagram_fate fate)
{
	while (!list_empty(&inbox->kept)) {
		inbox_release(inbox);
		datagram_count_fate(inbox->qp->hca, fate);
	}
}

int datagram_inbox_make(struct qp *qp)
{
	struct datagram_inbox *inbox = calloc(1, sizeof(*inbox));

	if (!inbox)
		return ENOMEM;
	inbox->qp = qp;
	list_init(&inbox->node);
	list_init(&inbox->kept);
	qp->inbox = inbox;
	return 0;
}

void datagram_inbox_clear(struct qp *qp)
{
	struct datagram_inbox *inbox = qp->inbox;

	drop_kept(inbox, DATAGRAM_STATE);
	if (inbox->state != PUB_QP_OPEN)
		inbox_enter(inbox, PUB_QP_OPEN);
}

void datagram_inbox_free(struct qp *qp)
{
	if (!qp->inbox)
		return;
	datagram_inbox_clear(qp);
	free(qp->inbox);
	qp->inbox = NULL;
}

void datagram_inbox_leave(struct qp *qp)
{
	struct list *node;

	list_init(&qp->inbox->node);
	while ((node = list_pop(&qp->inbox->kept)))
		free(container_of(node, struct kept, node));
	qp->inbox->bytes = 0;
	qp->inbox->state = PUB_QP_OPEN;
}

/* ------------------------------------------------------------------ datagrams */

static enum datagram_fate inbox_keep(struct datagram_inbox *inbox, struct link *link,
				     const struct record_ud *ud, const struct arrival *arrival,
				     const uint8_t *payload)
{
	uint32_t size = kept_size(arrival);

	if (inbox->bytes + size > INBOX_BYTES || !link_hold_bytes(link, size))
		return DATAGRAM_NO_RECEIVE;
	struct kept *kept = malloc(size);

	if (!kept) {
		link_release_bytes(link, size);
		return DATAGRAM_NO_RECEIVE;
	}
	kept->link = link;
	kept->ud = *ud;
	kept->arrival = *arrival;
	memcpy(kept->payload, payload, arrival->length);
	list_add_tail(&inbox->kept, &kept->node);
	inbox->bytes += size;
	counters_rare(inbox->qp->hca, PUB_LOCAL_KEPT);
	return DATAGRAM_TAKEN;
}

static void inbox_run_dry(struct datagram_inbox *inbox)
{
	struct hca *hca = inbox->qp->hca;

	inbox->since = now_ns();
	inbox_enter(inbox, PUB_QP_DRY);
	atomic_store(&hca->has_rnr, true);
	engine_kick(hca); /* sets the inbox's timer */
}

enum datagram_fate datagram_inbox_take(struct qp *qp, struct link *link, const struct record_ud *ud,
				       const struct arrival *arrival, const uint8_t *payload)
{
	struct datagram_inbox *inbox = qp->inbox;

	if (unlikely(!inbox))
		return DATAGRAM_STATE;
	link->datagrams = true;
	bool runs_dry = inbox->state != PUB_QP_DRY;

	if (likely(runs_dry)) {
		enum datagram_fate fate = datagram_execute(qp, ud, arrival, payload);

		if (likely(fate != DATAGRAM_NO_RECEIVE) || inbox->state == PUB_QP_LEFT ||
		    !receive_ever_posted(qp))
			return fate;
		inbox_run_dry(inbox);
	}
	enum datagram_fate fate = datagram_admit(qp, ud, arrival);

	fate = fate == DATAGRAM_TAKEN ? inbox_keep(inbox, link, ud, arrival, payload) : fate;
	/* A receive may have been posted to the SRQ after it was found empty, and before this QP
	 * was among those that wait for it. Those that are posted later find it there. */
	if (runs_dry && qp->srq)
		datagram_inbox_receive_posted(qp);
	return fate;
}

/* Whether the oldest kept datagram was removed: placed, or dropped for another reason than the want
 * of a receive. */
static bool inbox_place_oldest(struct datagram_inbox *inbox)
{
	struct qp *qp = inbox->qp;
	const struct kept *kept = container_of(inbox->kept.next, struct kept, node);

	lock_assert_held(&qp->lock);
	enum datagram_fate fate = datagram_execute(qp, &kept->ud, &kept->arrival, kept->payload);

	if (fate == DATAGRAM_NO_RECEIVE)
		return false;
	datagram_count_fate(qp->hca, fate);
	/* An error of the receive's own memory may have failed the QP, which cleared the inbox. */
	if (!list_empty(&inbox->kept))
		inbox_release(inbox);
	return true;
}

/* Places kept datagrams until there are no more of them, or no more receives. Whether there was
 * one of each. */
static bool inbox_place(struct datagram_inbox *inbox)
{
	bool progress = false;

	while (!list_empty(&inbox->kept) && inbox_place_oldest(inbox))
		progress = true;
	return progress;
}

void datagram_inbox_receive_posted(struct qp *qp)
{
	struct datagram_inbox *inbox = qp->inbox;

	if (!inbox || inbox->state == PUB_QP_OPEN)
		return;
	bool progress = inbox_place(inbox);

	if (!list_empty(&inbox->kept)) {
		/* Posting to an SRQ has emptied its list of waiting QPs. From now on it finds this
		 * QP there, and what was posted before is found here. */
		receive_wait(qp, true);
		if (qp->srq)
			progress |= inbox_place(inbox);
	}
	if (!list_empty(&inbox->kept)) {
		if (progress)
			inbox->since = now_ns();
	} else if (inbox->state != PUB_QP_OPEN) {
		inbox_enter(inbox, PUB_QP_OPEN);
	}
}

uint64_t datagram_inbox_scan(struct hca *hca, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	list_for_each(node, &hca->dry) {
		struct datagram_inbox *inbox = container_of(node, struct datagram_inbox, node);
		struct qp *qp = inbox->qp;

		lock_take(&qp->lock);
		uint64_t end = inbox->since + DATAGRAM_PATIENCE_NS;

		if (now >= end) {
			log_info("QP 0x%x posts no receives: datagrams of this host to it are "
				 "dropped",
				 qp->ibv.qp_num);
			drop_kept(inbox, DATAGRAM_NO_RECEIVE);
			inbox_enter(inbox, PUB_QP_LEFT);
		} else if (end < next) {
			next = end;
		}
		lock_give(&qp->lock);
	}
	return next;
}
