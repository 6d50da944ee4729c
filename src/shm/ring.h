/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A one-way ring of records between two processes (one producer, one consumer).
 *
 * The memory is an array of 64-byte slots; a record is a header and its payload in one or more
 * consecutive slots and never wraps (a PAD record fills the end of a lap). Positions are
 * free-running 32-bit counts of slots, which begin at RING_START; a position's slot is that of its
 * low bits, the others count the laps. A record exists when the word `seq` of its header has the
 * value that belongs to its position, ring_seq(); that store is the producer's last.
 *
 *   Producer writes: record bodies, then (where old payload lies there) the *following* header's
 *                    seq := 0, then this header's seq := ring_seq(position) (release) [R1]
 *   Consumer reads:  seq at its position (acquire), and only then the record        [R2]
 *   Consumer writes: ctl->consumed := its position (release), when it has read      [W1]
 *   Producer reads:  ctl->consumed (acquire) before it writes over old slots        [W5]
 *
 * The invariant of `seq`: at position p the consumer finds in it one of
 *   ring_seq(p)               the record is there;
 *   0                         the slot was never written, or held payload, and the producer has
 *                             cleared its word;
 *   ring_seq(p - RING_SLOTS)  the slot had a header in the lap before, too.
 * There is nothing else. Payload is cleared before the record in front of it exists, so that the
 * consumer never gets to it, whatever its bytes are. An older header can't be left: in each lap a
 * slot either gets a header or becomes payload, and then it is cleared before it is a header again.
 * The three values differ for each p, also where 32 bits come round: ring_seq() is p with the
 * lowest bit set, so it is never 0, and that bit belongs to the slot, not to the lap, so it differs
 * from the one of the lap before. A position of its own, or its successor, wouldn't do: 0 is one.
 *
 * A slot that is known to have had a header isn't cleared: the producer remembers which slots hold
 * payload, and a stream of small records touches one cache line each. A second line would have to
 * come from the consumer's cache before the record could be seen.
 *
 * A producer that finds no room requests a notification, and the request stands until it tries
 * again:
 *
 *   Producer: ctl->want_space := 1 [W3], then reads ctl->consumed once more [W4]
 *   Consumer: ctl->consumed := its position [W1], then reads ctl->want_space [W2]
 *
 * These four are seq_cst: the producer sees the room, or the consumer sees the request. Several
 * threads may produce, one after the other, and wait together; if one of them finds room for a
 * short record, another may still wait with a long one. So want_space is cleared only when all
 * waiting threads are about to try again (ring_retry).
 *
 * A link's memory begins as zeros, and both sides begin at RING_START: so ctl->consumed is the
 * consumer's position less RING_START (ring_consumed() adds it again). Positions are compared by
 * their differences only, which are at most RING_SLOTS between a position of the producer's and one
 * of the consumer's.
 *
 * Everything that the consumer reads may be written by a hostile peer: ring_peek() copies the
 * header once and checks that the record lies within the ring; the consumer copies payloads once,
 * then checks the copy when it decodes them. A peer can make its own messages nonsense, nothing
 * more: an impossible position is -EPROTO, and the link is given up.
 *
 * Either process may die at any instruction: a record whose seq wasn't stored doesn't exist.
 */
#ifndef VERBENA_SHM_RING_H
#define VERBENA_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/counter.h"
#include "base/cpu.h"

#define RING_SLOT 64u
#define RING_HEADER 32u
/* The simulator (tests/sim/local) has smaller ones, which are full more often. */
#ifndef RING_SLOTS
#define RING_SLOTS 1024u
#endif
_Static_assert(RING_SLOTS > 1 && !(RING_SLOTS & (RING_SLOTS - 1)),
	       "a power of two: ring_seq()'s lowest bit isn't one of the lap");
#define RING_BYTES (RING_SLOTS * RING_SLOT)
/* The largest payload of a record; an eighth of a ring, so that producer and consumer overlap. */
#ifndef RING_PAYLOAD_MAX
#define RING_PAYLOAD_MAX (8192u - RING_HEADER)
#endif

/* The first position: four laps before 32 bits come round. Both sides of a link have the same, so a
 * change of it is one of PUB_VERSION. */
#define RING_START COUNTER_START(4 * RING_SLOTS)

/* ring_tx.full_at at first. No position has this value, so a thread which waits beside a ring that
 * was never found full (its link just came up) sees that there is room. */
#define RING_NEVER_FULL UINT64_MAX

enum ring_kind {
	RING_PAD, /* rest of the lap; the ring's own */
	RING_KIND_FIRST,
};

struct ring_header {
	_Atomic uint32_t seq; /* the ring's own */
	uint8_t kind;
	uint8_t flags;
	uint16_t slots; /* the ring's own: length of the record */
	uint32_t dst;
	uint32_t src;
	uint32_t msn;
	uint32_t ack;
	uint32_t imm;
	uint32_t length;
};
_Static_assert(sizeof(struct ring_header) == RING_HEADER, "payload starts at byte 32");

/* Shared words of a ring, each on its writer's line. */
struct ring_ctl {
	_Alignas(64) _Atomic uint32_t consumed; /* consumer's: its position less RING_START */
	_Alignas(64) _Atomic uint32_t
		want_space; /* producer's: ring its doorbell after consuming */
};

/* The producer's private state. */
struct ring_tx {
	uint8_t *slots;
	struct ring_ctl *ctl;
	uint32_t pos;	/* next free slot */
	uint32_t limit; /* pos may not pass this: consumed + RING_SLOTS, as last read */
	/* The consumer claims to have read more than was written. Renewed each time its position is
	 * read, under the producer's lock (link.tx_lock); atomic, because the engine, which then
	 * gives the link up, reads it without. */
	_Atomic bool broken;
	uint64_t full_at;	/* the consumer's position when the ring was found full */
	bool stale[RING_SLOTS]; /* by slot: its first bytes are payload of an earlier record */
};

/* The consumer's private state. */
struct ring_rx {
	uint8_t *slots;
	struct ring_ctl *ctl;
	uint32_t pos;	    /* next slot to read */
	uint32_t published; /* as ctl->consumed was last stored */
};

static inline uint8_t *ring_at(uint8_t *slots, uint32_t pos)
{
	return slots + (size_t)(pos & (RING_SLOTS - 1)) * RING_SLOT;
}

/* `seq` of the header of a record that begins at `pos`. */
static inline uint32_t ring_seq(uint32_t pos)
{
	return pos | 1;
}

static inline uint32_t ring_slots_for(uint32_t payload)
{
	return (RING_HEADER + payload + RING_SLOT - 1) / RING_SLOT;
}

/* Bytes of the record's last slot behind its payload. */
static inline uint32_t ring_spare(uint32_t payload)
{
	return -(RING_HEADER + payload) % RING_SLOT;
}

/* The consumer's position as it last published it. The load is relaxed: the caller has a fence of
 * its own. */
static inline uint32_t ring_consumed(const struct ring_tx *tx)
{
	return atomic_load_explicit(&tx->ctl->consumed, memory_order_relaxed) + RING_START;
}

/* Slow half of ring_reserve(): reads the consumer's position, pads the lap's end. */
struct ring_header *ring_reserve_slow(struct ring_tx *tx, uint32_t slots);

/*
 * Reserves room for a record with `payload` bytes (at most RING_PAYLOAD_MAX). NULL: the ring is
 * full; want_space is then set until ring_retry(), and the consumer rings. The caller fills
 * everything but seq and slots, then commits. One slot more than the record is kept free, for the
 * next header's zero.
 */
static inline struct ring_header *ring_reserve(struct ring_tx *tx, uint32_t payload)
{
	uint32_t n = ring_slots_for(payload);

	if (unlikely(tx->limit - tx->pos <= n || (tx->pos & (RING_SLOTS - 1)) + n > RING_SLOTS))
		return ring_reserve_slow(tx, n);
	return (struct ring_header *)ring_at(tx->slots, tx->pos);
}

/*
 * The consumer has read the slots that are written next, a lap ago, so each of their lines has to
 * come from its cache before it can be written. A producer of a stream asks for them RING_AHEAD
 * slots before: far enough from the one that the consumer polls, which would take it back.
 */
#define RING_AHEAD 8u
#define RING_FETCH 6u /* slots ahead, of the consumer of a stream */

static inline void ring_look_ahead(const struct ring_tx *tx, uint32_t slots)
{
	cpu_prefetch_write(ring_at(tx->slots, tx->pos + RING_AHEAD));
	if (slots > 1)
		cpu_prefetch_write(ring_at(tx->slots, tx->pos + RING_AHEAD + 1));
}

/* Publishes the reserved record of `payload` bytes. */
static inline void ring_commit(struct ring_tx *tx, struct ring_header *h, uint32_t payload)
{
	uint32_t n = ring_slots_for(payload), at = tx->pos & (RING_SLOTS - 1);
	uint32_t following = (at + n) & (RING_SLOTS - 1);

	h->slots = n;
	tx->stale[at] = false;
	if (n > 1) {
		tx->stale[at + 1] = true;
		if (unlikely(n > 2))
			memset(&tx->stale[at + 2], true, n - 2);
	}
	if (unlikely(tx->stale[following])) {
		struct ring_header *next = (struct ring_header *)ring_at(tx->slots, following);

		atomic_store_explicit(&next->seq, 0, memory_order_relaxed);
		tx->stale[following] = false;
	}
	atomic_store_explicit(&h->seq, ring_seq(tx->pos),
			      memory_order_release); /* [R1], pairs with [R2] */
	tx->pos += n;
	ring_look_ahead(tx, n);
}

/* All threads that found the ring full are about to try again; one that fails again sets want_space
 * again. */
static inline void ring_retry(struct ring_tx *tx)
{
	atomic_store_explicit(&tx->ctl->want_space, 0, memory_order_relaxed);
}

/* Gives up the reserved record: payload that was written already must not pass for a header
 * later. */
static inline void ring_abandon(struct ring_tx *tx, uint32_t payload)
{
	uint32_t n = ring_slots_for(payload), at = tx->pos & (RING_SLOTS - 1);

	memset(&tx->stale[at + 1], true, n - 1);
}

static inline bool ring_ready(const struct ring_rx *rx)
{
	struct ring_header *h = (struct ring_header *)ring_at(rx->slots, rx->pos);

	/* [R2], pairs with [R1] */
	return atomic_load_explicit(&h->seq, memory_order_acquire) == ring_seq(rx->pos);
}

/* The consumer of a stream knows that the ring holds many records: their lines come from the
 * producer's cache while those before them are handled. Not for lines that the producer may be
 * about to write: it would have to take them back. */
static inline void ring_fetch_ahead(const struct ring_rx *rx)
{
	cpu_prefetch(ring_at(rx->slots, rx->pos + RING_FETCH));
	cpu_prefetch(ring_at(rx->slots, rx->pos + RING_FETCH + 1));
}

/* Whether records that were in the ring when the consumer was at `mark` may still be unread. */
static inline bool ring_unread_since(const struct ring_rx *rx, uint32_t mark)
{
	return rx->pos - mark < RING_SLOTS && ring_ready(rx);
}

/*
 * The next record's payload, or NULL if there is none. `out` becomes a private copy of the header
 * with `slots` checked; the payload (at most *room bytes) stays shared memory. *error becomes
 * -EPROTO if the peer's header is invalid.
 */
const uint8_t *ring_peek(struct ring_rx *rx, struct ring_header *out, uint32_t *room, int *error);

/* Frees the slots of the record that ring_peek() returned, at the next publishing. */
static inline void ring_pop(struct ring_rx *rx, const struct ring_header *h)
{
	rx->pos += h->slots;
}

/* Publishes the consumer's position. True: the producer waits for space and is to be rung. */
static inline bool ring_publish(struct ring_rx *rx)
{
	if (rx->published == rx->pos)
		return false;
	rx->published = rx->pos;
	/* [W1], pairs with [W4], [W5] and link_wait()'s [A1] */
	atomic_store_explicit(&rx->ctl->consumed, rx->pos - RING_START, memory_order_seq_cst);
	/* [W2], pairs with [W3] */
	return atomic_load_explicit(&rx->ctl->want_space, memory_order_seq_cst) != 0;
}

/* The same once per quarter ring: each publishing costs the producer a cache line. */
static inline bool ring_publish_lazily(struct ring_rx *rx)
{
	return rx->pos - rx->published >= RING_SLOTS / 4 && ring_publish(rx);
}

/* The private state of either side of an empty ring. `slots`: RING_BYTES of shared memory. */
void ring_tx_init(struct ring_tx *tx, uint8_t *slots, struct ring_ctl *ctl);
void ring_rx_init(struct ring_rx *rx, uint8_t *slots, struct ring_ctl *ctl);

#endif
