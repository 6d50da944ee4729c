/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tap sees each packet as the sender sends it or the receiver receives it (for captures). It is a
 * layer that the sender and the receiver call when there is one, and that may call another. Without
 * a tap it costs one load and branch.
 */
#ifndef VERBENA_NET_TAP_H
#define VERBENA_NET_TAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/cpu.h"
#include "wire/frame.h"

struct net_seen {
	const struct icrc_path *path; /* in the packet's direction: from its source */
	struct frame_ip ip;
	const uint8_t *bytes; /* BTH to ICRC */
	uint32_t size;
	uint64_t time_ns; /* when it was sent or received, since 1970 */
	bool out;
	const char *dropped; /* why it was dropped; NULL: it wasn't */
};

/* Called with the caller's locks held: must not block, nor call the sender or the receiver. */
struct net_tap {
	void (*seen)(const struct net_tap *tap, const struct net_seen *seen);
	const struct net_tap *next;
};

/* A tap is never freed while a sender or receiver could still use it. */
typedef const struct net_tap *_Atomic net_tap_place;

static inline const struct net_tap *net_tap_at(const net_tap_place *place)
{
	return atomic_load_explicit(place, memory_order_acquire);
}

/* The time to show for a packet, taken before it is sent, so that its answer can't have an earlier
 * one. 0: there is no tap. */
static inline uint64_t net_tap_time(const struct net_tap *tap)
{
	struct timespec t;

	if (likely(!tap))
		return 0;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void net_tap_call(const struct net_tap *tap, const struct net_seen *seen)
{
	for (; tap; tap = tap->next)
		tap->seen(tap, seen);
}

#endif
