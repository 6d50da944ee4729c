/* SPDX-License-Identifier: BSD-2-Clause */
/* The event loop: epoll over sources; a removed source is wiped from the round. */
#include "daemon/daemon.h"
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>
enum { BATCH = 64 };
static int epoll = -1;
static struct epoll_event round_events[BATCH];
static int round_count, round_at;
int loop_init(void)
{
	epoll = epoll_create1(EPOLL_CLOEXEC);
	return epoll < 0 ? -errno : 0;
}
int loop_add(struct source *source, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};
	return epoll_ctl(epoll, EPOLL_CTL_ADD, source->fd, &e) < 0 ? -errno : 0;
}
int loop_change(struct source *source, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};
	return epoll_ctl(epoll, EPOLL_CTL_MOD, source->fd, &e) < 0 ? -errno : 0;
}
void loop_remove(struct source *source)
{
	epoll_ctl(epoll, EPOLL_CTL_DEL, source->fd, NULL);
	for (int i = round_at; i < round_count; i++)
		if (round_events[i].data.ptr == source)
			round_events[i].data.ptr = NULL;
}
int loop_round(int timeout_ms)
{
	round_count = epoll_wait(epoll, round_events, BATCH, timeout_ms);
	if (round_count < 0) {
		round_count = 0;
		return errno == EINTR ? 0 : -errno;
	}
	int n = round_count;
	for (round_at = 0; round_at < round_count;) {
		struct epoll_event e = round_events[round_at++];
		struct source *source = e.data.ptr;
		if (source)
			source->ready(source, e.events);
	}
	round_count = 0;
	return n;
}
