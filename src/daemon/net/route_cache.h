/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the kernel said of routes: whether packets from an address get to another. Asking costs a
 * socket, a bind and a connect; programs ask for the same few hosts again and again.
 *
 * An answer holds until the kernel tells of a change of interfaces, addresses, routes, rules or
 * next hops. It queues that news on the cache's netlink socket before the system call that made the
 * change returns, and the cache looks there before each answer: an answer is never older than the
 * last change. The socket isn't in the loop; news that found no room is a change, too. Without the
 * socket nothing is kept. The daemon's thread only.
 */
#ifndef VERBENA_DAEMON_NET_ROUTE_CACHE_H
#define VERBENA_DAEMON_NET_ROUTE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { ROUTE_CACHE_PLACES = 512 };

/* A question; all bytes count. */
struct route_question {
	uint8_t from[16], to[16];
	uint32_t ifindex; /* of the source */
	uint32_t bound;	  /* packets must leave by it */
};

struct route_answer {
	struct route_question question;
	uint32_t epoch; /* of the cache when it was given; 0: none */
	bool yes;
};

struct route_cache {
	int fd; /* netlink; -1: not to be had */
	uint32_t epoch;
	struct route_answer answer[ROUTE_CACHE_PLACES];
};

void route_cache_open(struct route_cache *cache);
void route_cache_close(struct route_cache *cache);

/* Whether the answer is known; then *yes is it. */
bool route_cache_find(struct route_cache *cache, const struct route_question *question, bool *yes);
/* What the kernel said; asked after route_cache_find(). */
void route_cache_keep(struct route_cache *cache, const struct route_question *question, bool yes);

#endif
