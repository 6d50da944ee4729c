/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's event loop: descriptors to watch, timers, and nothing else. One thread.
 *
 * A watch or timer lives inside the object that it belongs to; its owner takes it off the loop
 * before it is freed. That is allowed inside any callback, also for a watch that has an event
 * waiting in the batch under way: loop_remove() forgets it.
 */
#ifndef VERBENA_DAEMON_CORE_LOOP_H
#define VERBENA_DAEMON_CORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/list.h"

#define LOOP_BATCH 64

/* Of strangers, who may come in floods, so many are heard before the others are asked again. */
#define LOOP_STRANGERS 4

struct watch {
	int fd;	       /* -1: not watched */
	bool stranger; /* one whom nobody has let in yet: those who are in go first */
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
	struct list timers;
	struct epoll_event batch[LOOP_BATCH];
	int batch_size;
};

int loop_init(struct loop *loop);
void loop_fini(struct loop *loop);

/* Runs until loop->stop. 0 or the -errno of a broken epoll. */
int loop_run(struct loop *loop);
/* Waits for events, `limit_ms` at most, and handles a batch of them. Their number or -errno. */
int loop_round(struct loop *loop, int limit_ms);

/* Watches `fd` (the watch's owner closes it) for `events` (EPOLLIN, ...; level-triggered). */
int loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events);
void loop_change(struct loop *loop, struct watch *watch, uint32_t events);
/* No more callbacks for this watch. Does nothing when it isn't watched. */
void loop_remove(struct loop *loop, struct watch *watch);

/* Fires once, `delay_ms` from now; a running timer is set anew. */
void timer_set(struct loop *loop, struct timer *timer, uint64_t delay_ms);
void timer_cancel(struct timer *timer);
void timer_init(struct timer *timer, void (*fire)(struct timer *timer));

/* CLOCK_MONOTONIC in milliseconds. */
uint64_t now_ms(void);

#endif
