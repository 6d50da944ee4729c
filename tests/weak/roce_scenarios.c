/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lease of the socket of other hosts' packets (roce.h), with the engine's: a packet isn't left
 * to a poller that has stopped while a CQ is armed, and the timers aren't left to one that doesn't
 * look at them. Here are roce.c and its socket; the threads are in engine_scenarios.c.
 *
 * The socket and the engine thread's epoll are the kernel's, under a lock of its own. The epoll is
 * armed once (EPOLLONESHOT) and level-triggered: what it has noted is reported, and disarms it,
 * only if there is still a packet when the engine thread looks. Like the kernel's, it refuses a
 * descriptor that it has already, and a change of one that it doesn't have; the error that roce.c
 * would log of that fails the scenario.
 */
#include "scenarios.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "net/receiver.h"

static int socket_epoll(int epoll, int what, int fd, struct epoll_event *event);
static unsigned int socket_receive(struct net_receiver *from, net_handler *handler, void *arg);
static uint64_t late(void);

#define epoll_ctl socket_epoll
#define net_receive socket_receive
#define now_ns late
#undef log_error
#define log_error(...) model_fail(__VA_ARGS__)
#include "hca/roce/roce.c"

static struct {
	struct lock lock;
	bool joined, armed, noted;
	unsigned int packets, taken, bell;
} kernel;
static uint64_t looks;

void scenario_roce_init(struct roce *roce, struct hca *hca, unsigned int bell, bool hot)
{
	memset(roce, 0, sizeof(*roce));
	memset(&kernel, 0, sizeof(kernel));
	looks = 0;
	roce->now = late(); /* long after the last packet */
	roce->hca = hca;
	list_init(&roce->ready);
	list_init(&roce->parked);
	list_init(&roce->waiters);
	list_init(&roce->timed);
	roce->deadline = roce->scheduled = TP_NEVER;
	roce->socket = hot ? ROCE_HOT : ROCE_COLD;
	kernel.joined = true;
	kernel.armed = !hot;
	kernel.bell = bell;
}

void scenario_roce_begin(struct roce *roce)
{
	kernel.joined = kernel.armed = false;
	roce->socket = ROCE_APART;
	roce_join(roce, 0);
}

/* Each look at the clock is a second after the last one, so that no thread stays awake for the next
 * packet. */
static uint64_t late(void)
{
	return ++looks * 1000000000;
}

static void note(void)
{
	if (!kernel.armed || !kernel.packets)
		return;
	kernel.noted = true;
	model_event_set(kernel.bell);
}

static int socket_epoll(int epoll, int what, int fd, struct epoll_event *event)
{
	(void)epoll, (void)fd, (void)event;
	lock_take(&kernel.lock);
	bool fits = kernel.joined == (what == EPOLL_CTL_MOD);

	if (fits) {
		kernel.joined = kernel.armed = true;
		note();
	}
	lock_give(&kernel.lock);
	errno = fits ? 0 : kernel.joined ? EEXIST : ENOENT;
	return fits ? 0 : -1;
}

static unsigned int socket_receive(struct net_receiver *from, net_handler *handler, void *arg)
{
	(void)from, (void)handler, (void)arg;
	lock_take(&kernel.lock);
	unsigned int n = kernel.packets;

	kernel.packets = 0;
	kernel.taken += n;
	lock_give(&kernel.lock);
	return n;
}

void scenario_packet_comes(void)
{
	lock_take(&kernel.lock);
	kernel.packets++;
	note();
	lock_give(&kernel.lock);
}

unsigned int scenario_packets_taken(void)
{
	lock_take(&kernel.lock);
	unsigned int taken = kernel.taken;

	lock_give(&kernel.lock);
	return taken;
}

bool scenario_epoll_reports(void)
{
	lock_take(&kernel.lock);
	bool reports = kernel.noted && kernel.packets;

	kernel.noted = false;
	kernel.armed = kernel.armed && !reports;
	lock_give(&kernel.lock);
	return reports;
}
