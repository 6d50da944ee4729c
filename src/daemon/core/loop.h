/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's event loop: watched descriptors and timers. One thread.
 *
 * A watch or timer lives inside the object that it belongs to; the object's owner removes it from
 * the loop before freeing it. Removing is allowed inside any callback, also of a watch that has an
 * event in the batch under way: loop_remove() drops that event.
 */
#ifndef VERBENA_DAEMON_CORE_LOOP_H
#define VERBENA_DAEMON_CORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/list.h"

#define LOOP_BATCH 256

/* The time after which a batch's further events of one owner (a user's connections) are left for
 * the next batch, so that a user with many connections and expensive requests delays the others'
 * requests by little more than this. */
#define LOOP_OWNER_NS 2000000ull

/* The number of events of clients not yet admitted (struct watch, `stranger`) that are handled in a
 * batch, because such clients may come in floods. Then the loop polls again, so that admitted
 * clients are served first. */
#define LOOP_STRANGERS 4

struct watch {
	int fd;		/* -1: not watched */
	bool stranger;	/* not admitted yet: admitted clients are served first */
	uint64_t owner; /* its user, any number but 0; 0: the daemon, whose time isn't limited */
	void (*ready)(struct watch *watch, uint32_t events);
};

struct timer {
	struct list node; /* on loop.timers while it runs */
	uint64_t at_ms;
	void (*fire)(struct timer *timer);
};

struct loop {
	int epoll;
	bool stop;
	/* Called at the end of each turn; NULL: nothing to do. Returns whether the next turn is to
	 * begin at once, because work is left. */
	bool (*turn)(struct loop *loop);
	bool busy; /* what it returned */
	struct list timers;
	struct epoll_event batch[LOOP_BATCH];
	int batch_size;
	/* What each owner has used of this batch's time. */
	struct {
		uint64_t owner, ns;
	} used[LOOP_BATCH];
	int owners;
};

int loop_init(struct loop *loop);
void loop_fini(struct loop *loop);

/* Runs until loop->stop. Returns 0, or -errno when epoll fails. */
int loop_run(struct loop *loop);
/* Waits for events, `limit_ms` at most, and handles one batch. Returns their number or -errno. */
int loop_round(struct loop *loop, int limit_ms);

/* Watches `fd` for `events` (EPOLLIN, ...; level-triggered). The caller closes `fd`. */
int loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events);
/* Changes the events of a watch; 0: none but EPOLLHUP and EPOLLERR. */
void loop_change(struct loop *loop, struct watch *watch, uint32_t events);
/* Ends the watch: no callback follows. Does nothing for a watch that isn't watched. */
void loop_remove(struct loop *loop, struct watch *watch);

/* Fires once, `delay_ms` from now; a running timer is re-armed. */
void timer_set(struct loop *loop, struct timer *timer, uint64_t delay_ms);
void timer_cancel(struct timer *timer);
void timer_init(struct timer *timer, void (*fire)(struct timer *timer));

/* CLOCK_MONOTONIC in milliseconds. */
uint64_t now_ms(void);

#endif
