/* SPDX-License-Identifier: BSD-2-Clause */
/* The uncommon half of ring.h: full rings, ends of laps, and the check of what a peer wrote. */
#include "shm/ring.h"

#include <errno.h>
#include <string.h>

/* Whether the consumer has read so far that `slots` and one more are free. */
static bool ring_fits(struct ring_tx *tx, uint32_t consumed, uint32_t slots)
{
	tx->limit = consumed + RING_SLOTS;
	return tx->limit - tx->pos > slots && tx->limit - tx->pos <= RING_SLOTS;
}

static bool ring_has_room(struct ring_tx *tx, uint32_t slots)
{
	if (tx->limit - tx->pos > slots)
		return true;
	/* [W5], pairs with [W1]. A consumer that publishes a false position only has its own unread
	 * records overwritten. */
	uint32_t consumed =
		atomic_load_explicit(&tx->ctl->consumed, memory_order_acquire) + RING_START;

	if (ring_fits(tx, consumed, slots))
		return true;
	/* [W3], pairs with [W2] */
	atomic_store_explicit(&tx->ctl->want_space, 1, memory_order_seq_cst);
	/* [W4], pairs with [W1] */
	consumed = atomic_load_explicit(&tx->ctl->consumed, memory_order_seq_cst) + RING_START;
	if (ring_fits(tx, consumed, slots))
		return true;
	/* Atomic, since any thread may read it, under other locks than the producing thread
	 * holds. */
	atomic_store_explicit(&tx->broken, tx->limit - tx->pos > RING_SLOTS, memory_order_relaxed);
	tx->limit = tx->pos; /* full, whatever the consumer claims */
	tx->full_at = consumed;
	return false;
}

struct ring_header *ring_reserve_slow(struct ring_tx *tx, uint32_t slots)
{
	uint32_t left = RING_SLOTS - (tx->pos & (RING_SLOTS - 1));

	if (slots > left) {
		/* The pad and the record after it need room together, or the pad alone would
		 * be published again and again. */
		if (!ring_has_room(tx, left + slots))
			return NULL;
		struct ring_header *pad = (struct ring_header *)ring_at(tx->slots, tx->pos);
		uint32_t payload = left * RING_SLOT - RING_HEADER;

		pad->kind = RING_PAD;
		pad->flags = 0;
		ring_commit(tx, pad, payload);
	} else if (!ring_has_room(tx, slots)) {
		return NULL;
	}
	return (struct ring_header *)ring_at(tx->slots, tx->pos);
}

/* Checks a header. Pads fill the rest of a lap, and no lap begins with one, so a peer can't keep
 * the consumer in the loop with pads. */
static bool header_sane(const struct ring_rx *rx, const struct ring_header *h)
{
	uint32_t place = rx->pos & (RING_SLOTS - 1);

	if (h->kind == RING_PAD)
		return place && place + h->slots == RING_SLOTS;
	return h->slots >= 1 && place + h->slots <= RING_SLOTS;
}

/* The record's second line, and the next record, which may be there already, come from the
 * producer's cache while the record's header is looked at. */
static inline void ring_fetch(const struct ring_rx *rx, uint32_t slots)
{
	if (slots > 1)
		cpu_prefetch(ring_at(rx->slots, rx->pos + 1));
	cpu_prefetch(ring_at(rx->slots, rx->pos + slots));
}

const uint8_t *ring_peek(struct ring_rx *rx, struct ring_header *out, uint32_t *room, int *error)
{
	while (ring_ready(rx)) {
		const uint8_t *slot = ring_at(rx->slots, rx->pos);

		memcpy(out, slot, RING_HEADER);
		if (unlikely(!header_sane(rx, out))) {
			*error = -EPROTO;
			return NULL;
		}
		if (unlikely(out->kind == RING_PAD)) {
			ring_pop(rx, out);
			continue;
		}
		*room = out->slots * RING_SLOT - RING_HEADER;
		ring_fetch(rx, out->slots);
		return slot + RING_HEADER;
	}
	return NULL;
}

void ring_tx_init(struct ring_tx *tx, uint8_t *slots, struct ring_ctl *ctl)
{
	*tx = (struct ring_tx){.slots = slots,
			       .ctl = ctl,
			       .pos = RING_START,
			       .limit = RING_START + RING_SLOTS,
			       .full_at = RING_NEVER_FULL};
}

void ring_rx_init(struct ring_rx *rx, uint8_t *slots, struct ring_ctl *ctl)
{
	*rx = (struct ring_rx){
		.slots = slots, .ctl = ctl, .pos = RING_START, .published = RING_START};
}
