/* SPDX-License-Identifier: BSD-2-Clause */
/* The event loop. See loop.h. Owns the epoll descriptor. Timers are few, so a plain list keeps
 * them. */
#include "daemon/core/loop.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"

uint64_t now_ms(void)
{
	return clock_ns() / 1000000;
}

int loop_init(struct loop *loop)
{
	*loop = (struct loop){.epoll = epoll_create1(EPOLL_CLOEXEC), .turn = loop->turn};
	list_init(&loop->timers);
	return loop->epoll < 0 ? -errno : 0;
}

void loop_fini(struct loop *loop)
{
	if (loop->epoll >= 0)
		close(loop->epoll);
	loop->epoll = -1;
}

int loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = watch};

	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		return -errno;
	watch->fd = fd;
	return 0;
}

void loop_change(struct loop *loop, struct watch *watch, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = watch};

	if (watch->fd >= 0)
		epoll_ctl(loop->epoll, EPOLL_CTL_MOD, watch->fd, &e);
}

void loop_remove(struct loop *loop, struct watch *watch)
{
	if (watch->fd < 0)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->fd = -1;
	for (int i = 0; i < loop->batch_size; i++)
		if (loop->batch[i].data.ptr == watch)
			loop->batch[i].data.ptr = NULL;
}

void timer_init(struct timer *timer, void (*fire)(struct timer *timer))
{
	list_init(&timer->node);
	timer->fire = fire;
}

void timer_set(struct loop *loop, struct timer *timer, uint64_t delay_ms)
{
	list_del(&timer->node);
	timer->at_ms = now_ms() + delay_ms;
	list_add_tail(&loop->timers, &timer->node);
}

void timer_cancel(struct timer *timer)
{
	list_del(&timer->node);
}

/* The timer with the earliest deadline; NULL: none runs. */
static struct timer *first_timer(struct loop *loop)
{
	struct timer *first = NULL;

	list_for_each(node, &loop->timers) {
		struct timer *t = container_of(node, struct timer, node);

		if (!first || t->at_ms < first->at_ms)
			first = t;
	}
	return first;
}

/* Fires the timers that are due, each at most once; a callback may set or cancel any timer. */
static void fire_timers(struct loop *loop)
{
	uint64_t now = now_ms();
	struct timer *t;

	while ((t = first_timer(loop)) && t->at_ms <= now && !loop->stop) {
		timer_cancel(t);
		t->fire(t);
	}
}

static int time_left(struct loop *loop)
{
	struct timer *t = first_timer(loop);
	uint64_t now = now_ms();

	if (!t)
		return -1;
	if (t->at_ms <= now)
		return 0;
	return t->at_ms - now < 1000000 ? (int)(t->at_ms - now) : 1000000;
}

/* The time that this owner has used in this batch. */
static uint64_t *time_used(struct loop *loop, uint64_t owner)
{
	for (int i = 0; i < loop->owners; i++)
		if (loop->used[i].owner == owner)
			return &loop->used[i].ns;
	loop->used[loop->owners].owner = owner;
	loop->used[loop->owners].ns = 0;
	return &loop->used[loop->owners++].ns;
}

/* Handles an event, unless its owner has used its time. The callback may free the watch. */
static void loop_handle_one(struct loop *loop, struct watch *watch, uint32_t events)
{
	uint64_t *used = watch->owner ? time_used(loop, watch->owner) : NULL;
	uint64_t begin = used ? clock_ns() : 0;

	if (used && *used >= LOOP_OWNER_NS)
		return;
	watch->ready(watch, events);
	if (used)
		*used += clock_ns() - begin;
}

/* Handles at most `limit` watches of the batch. A watch that isn't handled is still ready in the
 * next round. */
static void loop_handle(struct loop *loop, bool strangers, int limit)
{
	for (int i = 0; i < loop->batch_size && limit && !loop->stop; i++) {
		struct watch *watch = loop->batch[i].data.ptr;

		if (!watch || watch->stranger != strangers)
			continue;
		loop->batch[i].data.ptr =
			NULL; /* each event once, also when `stranger` changes in between */
		loop_handle_one(loop, watch, loop->batch[i].events);
		limit--;
	}
}

int loop_round(struct loop *loop, int limit_ms)
{
	int n = epoll_wait(loop->epoll, loop->batch, LOOP_BATCH, loop->busy ? 0 : limit_ms);

	if (n < 0 && errno != EINTR)
		return -errno;
	loop->batch_size = n > 0 ? n : 0;
	loop->owners = 0;
	loop_handle(loop, false, LOOP_BATCH);
	loop_handle(loop, true, LOOP_STRANGERS);
	loop->batch_size = 0;
	fire_timers(loop);
	loop->busy = loop->turn && !loop->stop && loop->turn(loop);
	return n > 0 ? n : 0;
}

int loop_run(struct loop *loop)
{
	int n = 0;

	while (!loop->stop && n >= 0)
		n = loop_round(loop, time_left(loop));
	return n < 0 ? n : 0;
}
