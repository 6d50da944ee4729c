/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places of queues. A program has taken a place of a send or receive queue from the moment when it
 * posts a request until it has polled the request's completion; of a request that isn't signalled,
 * until it has polled a later completion of the same send queue. That the peer has acknowledged
 * the request frees nothing. Adapters' drivers count so, and a program that posts more than it
 * polls must fail here as it fails there.
 *
 * So each completion names the count that polling it moves (struct cqe). The thread that posts
 * knows up to where there is room (send_queue.room, recv_queue.room), and reads that count only
 * when it is there: a thread that posts and one that polls don't share a cache line for each
 * request.
 *
 * The count may be old: then the queue seems full for a little longer. It orders nothing, because
 * a place is written and read under its queue's lock.
 */
#ifndef VERBENA_HCA_VERBS_PLACES_H
#define VERBENA_HCA_VERBS_PLACES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What polling has freed; free-running. Written under the lock of the one CQ whose completions name
 * it; read by threads that post. Of a send queue, the lower 16 bits: a completion says which count
 * it frees the places up to, and has no room for more. */
struct places {
	_Atomic uint32_t freed;
};

enum { CACHE_LINE = 64 };

static inline uint32_t places_freed(const struct places *places)
{
	return atomic_load_explicit(&places->freed, memory_order_relaxed);
}

static inline void places_set(struct places *places, uint32_t freed)
{
	atomic_store_explicit(&places->freed, freed, memory_order_relaxed);
}

/* A ring's places for `count` requests: 2^n. */
static inline uint32_t queue_places(uint32_t count)
{
	uint32_t places = 1;

	while (places < count)
		places <<= 1;
	return places;
}

/* How many places of a send queue are taken when requests up to `end` were posted. */
static inline uint32_t places_taken_by_sends(const struct places *places, uint32_t end)
{
	return (uint16_t)(end - places_freed(places));
}

/* Whether `count` more of `max` places are free when so many are taken. */
static inline bool places_suffice(uint32_t taken, uint32_t max, uint32_t count)
{
	return taken <= max && max - taken >= count;
}

#endif
