/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cache of the kernel's answers about routes: whether packets from one address reach another.
 * Asking costs a socket, a bind and a connect; programs ask for the same few hosts again and again.
 *
 * An answer is valid until the kernel reports a change of interfaces, addresses, routes, rules or
 * next hops. The kernel queues that message on the cache's netlink socket before the system call
 * that made the change returns, and the cache reads the socket before each answer: an answer is
 * never older than the last change. The socket isn't in the loop; a lost message counts as a
 * change. Without the socket nothing is cached. Only the daemon's thread uses it.
 */
#ifndef VERBENA_DAEMON_NET_ROUTE_CACHE_H
#define VERBENA_DAEMON_NET_ROUTE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum { ROUTE_CACHE_PLACES = 512 };

/* A question; all bytes are compared. */
struct route_question {
	uint8_t from[16], to[16];
	uint32_t ifindex; /* of the source */
	uint32_t bound;	  /* 1: packets must leave by that interface */
};

struct route_answer {
	struct route_question question;
	uint32_t epoch; /* the cache's epoch when the answer was given; 0: none */
	bool yes;
};

struct route_cache {
	int fd; /* netlink; -1: not available */
	uint32_t epoch;
	struct route_answer answer[ROUTE_CACHE_PLACES];
};

/* Opens the netlink socket; without one, route_cache_find() knows no answer. */
void route_cache_open(struct route_cache *cache);
void route_cache_close(struct route_cache *cache);

/* Returns whether the answer is known; then *yes is it. */
bool route_cache_find(struct route_cache *cache, const struct route_question *question, bool *yes);
/* Stores the kernel's answer; the caller asked the kernel after route_cache_find(). */
void route_cache_keep(struct route_cache *cache, const struct route_question *question, bool yes);

#endif
