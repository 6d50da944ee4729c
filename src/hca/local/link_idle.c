/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Idle links. See link_idle.h. hca.link_idle_at is the time of the next scan, UINT64_MAX when no
 * link can become idle by itself. Each link_put() sets it after it has changed the count, and a
 * scan clears it before it reads the counts: either the scan sees that nothing needs the link, or
 * there is another scan.
 */
#include "hca/local/link_idle.h"

#include <stdlib.h>

#include "base/env.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/quantity.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/record.h"
#include "hca/process/hca.h"

#define PERIOD_MS 5000u
#define PERIOD_MAX_MS 86400000u
enum { UNANSWERED_PERIODS = 2 };

uint64_t link_idle_period(void)
{
	const char *text = env_get("VERBENA_LINK_IDLE_MS");
	uint64_t ms = PERIOD_MS;

	if (text && !quantity_number(text, 1, PERIOD_MAX_MS, &ms))
		log_warn("VERBENA_LINK_IDLE_MS=%s is no number of milliseconds; it is %u", text,
			 PERIOD_MS);
	return ms * QUANTITY_MS;
}

/* Sets the time of the next scan to one period from now, unless one is set already. */
static void link_idle_arm(struct hca *hca)
{
	uint64_t none = UINT64_MAX;

	if (atomic_compare_exchange_strong(&hca->link_idle_at, &none, now_ns() + hca->link_idle_ns))
		engine_kick(hca);
}

void link_idle_init(struct link *link)
{
	list_init(&link->idle.seal);
}

void link_idle_begin(struct link *link)
{
	link->idle.kept = false;
	link->idle.sent = link->tx.pos;
	link->idle.taken = link->rx.pos;
	if (!atomic_load(&link->idle.users))
		link_idle_arm(link->hca);
}

/* ------------------------------------------------------------------ needs */

bool link_hold(struct link *link)
{
	atomic_fetch_add(&link->idle.users, 1);
	lock_take(&link->tx_lock); /* both sides' decisions to end the link are made under it */
	bool stays = link->idle.leave == LEAVE_NONE && link_is(link, LINK_UP);

	lock_give(&link->tx_lock);
	if (!stays)
		link_put(link);
	return stays;
}

struct link *link_take(struct hca *hca, uint32_t slot)
{
	struct link *link = link_get(hca, slot);

	if (!link)
		return NULL;
	atomic_fetch_add(&link->idle.users, 1);
	/* The link may have ended before link_end_living() could see the count. */
	link_get(hca, slot);
	return link;
}

void link_put(struct link *link)
{
	if (atomic_fetch_sub(&link->idle.users, 1) == 1 && !link->self)
		link_idle_arm(link->hca);
}

/* ------------------------------------------------------------------ the end */

/* Ends the link from this side. The ring is sealed. */
static void link_idle_end(struct link *link)
{
	log_debug("idle link to process %d at slot %u ends", link->pid, link->slot);
	atomic_store(&link->untold, true);
	link_end_living(link);
}

static void link_idle_seal(struct link *link, enum link_leave leave) REQUIRES(link->tx_lock)
{
	if (link->idle.leave == LEAVE_NONE)
		list_add_tail(&link->backlog, &link->idle.seal);
	link->idle.leave = leave;
}

void link_idle_forget(struct link *link)
{
	list_del(&link->idle.seal);
	link->idle.leave = LEAVE_NONE;
}

static bool link_may_end(struct link *link) REQUIRES(link->tx_lock)
{
	return !atomic_load(&link->idle.users) && list_empty(&link->backlog) &&
	       list_empty(&link->waiters) && !atomic_load(&link->watchers);
}

/* ------------------------------------------------------------------ asking */

/* Sends LEAVE as the ring's last record and seals the ring. False: the link is needed, or the ring
 * is full. */
static bool link_idle_ask(struct link *link) REQUIRES(link->tx_lock)
{
	struct ring_header *h = link_may_end(link) ? ring_reserve(&link->tx, 0) : NULL;

	if (!h)
		return false;
	h->kind = REC_LEAVE;
	h->flags = 0;
	h->dst = h->src = h->msn = h->ack = h->imm = h->length = 0;
	ring_commit(&link->tx, h, 0);
	link_idle_seal(link, LEAVE_ASKED);
	link->idle.sent = link->tx.pos;
	return true;
}

static bool link_has_moved(struct link *link) REQUIRES(link->tx_lock)
{
	bool moved = link->tx.pos != link->idle.sent || link->rx.pos != link->idle.taken ||
		     ring_ready(&link->rx);

	link->idle.sent = link->tx.pos;
	link->idle.taken = link->rx.pos;
	return moved;
}

/* Whether the peer, a process of another user, has not answered LEAVE in time. */
static bool link_is_unanswered(const struct link *link, uint64_t now)
{
	return link->hear >= 0 &&
	       now - link->idle.asked_at >= UNANSWERED_PERIODS * link->hca->link_idle_ns;
}

/* Returns whether to look again after another period. hca.engine is held. */
static bool link_idle_look(struct link *link, uint64_t now)
{
	bool again = true, asked = false, ended = false;

	if (link->self || !link_is(link, LINK_UP) || atomic_load(&link->idle.users))
		return false;
	lock_take(&link->tx_lock);
	if (!link_has_moved(link)) {
		if (link->idle.leave == LEAVE_ASKED) {
			ended = link_is_unanswered(link, now);
			again = link->hear >= 0;
		} else if (link->idle.kept) {
			again = false; /* until the peer asks */
		} else {
			asked = link_idle_ask(link);
			again = !asked || link->hear >= 0;
		}
		if (ended)
			link_idle_seal(link, LEAVE_ENDED);
	}
	lock_give(&link->tx_lock);
	if (asked) {
		link->idle.asked_at = now;
		link_notify(link);
	}
	if (ended)
		link_idle_end(link);
	return again;
}

uint64_t link_idle_scan(struct hca *hca)
{
	uint64_t at = atomic_load(&hca->link_idle_at), now;
	bool again;

	if (likely(at == UINT64_MAX) || (now = now_ns()) < at)
		return at;
	atomic_store(&hca->link_idle_at, UINT64_MAX);
	mutex_take(&hca->events_lock);
	again = hca->lost; /* without a daemon no link is asked to end */
	mutex_give(&hca->events_lock);
	if (!again) {
		lock_take(&hca->engine);
		list_for_each(node, &hca->links)
			again |= link_idle_look(container_of(node, struct link, node), now);
		engine_leave(hca);
	}
	at = UINT64_MAX;
	if (again)
		atomic_compare_exchange_strong(&hca->link_idle_at, &at, now + hca->link_idle_ns);
	return atomic_load(&hca->link_idle_at);
}

/* ------------------------------------------------------------------ answering */

static void link_take_leave(struct link *link)
{
	const struct ring_header stay = {.kind = REC_STAY};

	link->idle.kept = false;
	lock_take(&link->tx_lock);
	/* If this side has sent LEAVE as well it can't go back: the peer may have agreed
	 * already. */
	bool agreed = link->idle.leave == LEAVE_ASKED || link_may_end(link);

	if (agreed)
		link_idle_seal(link, LEAVE_ENDED);
	lock_give(&link->tx_lock);
	if (agreed)
		link_idle_end(link);
	else
		link_control(link, &stay, NULL, 0);
}

static void link_take_stay(struct link *link)
{
	lock_take(&link->tx_lock);
	bool asked = link->idle.leave == LEAVE_ASKED;

	if (asked)
		link_idle_forget(link);
	lock_give(&link->tx_lock);
	if (!asked)
		return;
	link->idle.kept = true;
	atomic_store(&link->has_waiters, true); /* QPs that waited for the sealed ring */
}

void link_idle_record(struct link *link, const struct ring_header *h)
{
	if (link->self || !link_is(link, LINK_UP))
		return;
	if (h->kind == REC_LEAVE)
		link_take_leave(link);
	else if (h->kind == REC_STAY)
		link_take_stay(link);
}

bool link_idle_asked(struct link *link)
{
	lock_take(&link->tx_lock);
	bool asked = link->idle.leave == LEAVE_ASKED;

	lock_give(&link->tx_lock);
	return asked;
}
