/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who wants to see each packet as it goes to the socket or came from it: a layer that the sender
 * and the receiver call when there is one, and that may call another. One load and branch when
 * there is none.
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
	const struct icrc_path *path; /* as the packet says it: from its source */
	struct frame_ip ip;
	const uint8_t *bytes; /* BTH to ICRC */
	uint32_t size;
	uint64_t time_ns; /* since 1970: when it went, or came */
	bool out;
	const char *dropped; /* why it was; NULL: it wasn't */
};

/* Called under its caller's locks: must not block, nor call the sender or the receiver. */
struct net_tap {
	void (*seen)(const struct net_tap *tap, const struct net_seen *seen);
	const struct net_tap *next;
};

/* Taps are never freed while a sender or receiver could still look at them. */
typedef const struct net_tap *_Atomic net_tap_place;

static inline const struct net_tap *net_tap_at(const net_tap_place *place)
{
	return atomic_load_explicit(place, memory_order_acquire);
}

/* Before a packet is sent: what answers it must not seem to have come earlier. 0: nobody asks. */
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
