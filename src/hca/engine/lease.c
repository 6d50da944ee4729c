/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lease: which thread makes progress, and when.
 *
 * Any thread that holds hca.engine may drain the rings. A thread that polls an empty CQ does so
 * (engine_poll) and gets its message without a wake-up. While no thread polls, the engine thread
 * does it, asleep in epoll until a peer rings the doorbell.
 *
 * The lease. pub->header.asleep says whether peers have to ring:
 *   asleep = 1   No thread polls. Peers ring the doorbell after each batch [S1]; the engine thread
 *                sleeps until the doorbell or the next timer.
 *   asleep = 0   Some thread polls without pause and re-arms the watchdog (a timer) to WATCH_NS
 *                every PET_NS. The engine thread isn't woken meanwhile: a wake-up costs the program
 *                more than the re-arming. When the watchdog expires, the engine thread checks
 *                whether hca.polls has moved since its last expiry, and if it has, once more after
 *                SURE_NS; if it hasn't, the engine thread sets asleep = 1 and drains once more.
 * PET_NS is long because re-arming is expensive: it sets the processor's timer twice, which takes
 * 20 us in a virtual machine that traps it (0.4 us when the timer needn't be set). With the short
 * SURE_NS the engine thread takes over within 1 ms all the same.
 * After setting asleep, a thread executes a full fence and then looks at all rings; a peer stores
 * its record, fences, then reads asleep. One of the two sees the other's store, so no record waits
 * unseen. [S2]
 *
 * Armed CQs. A program that has armed a CQ may block in an epoll of its own, and the thread that
 * has the lease may stop polling at any moment; neither tells the engine. The invariant: a record
 * that completes to an armed CQ raises the event without a poller's help, after the wake-up of one
 * doorbell. The thread that arms counts the CQ in the published table before engine_release() [S2].
 * So it finds the record in the ring, or the peer finds the CQ armed, whatever `asleep` says then,
 * and rings (struct pub_header). The engine thread, once woken, passes beside the poller
 * (engine_attend()). Records to other QPs ring no doorbell under a lease. Polls of an armed CQ take
 * no lease, because their program is likely to block soon; unless it is armed for solicited events
 * only, as by programs that poll always, and want to be told of what can't wait (UCX's UD). Then
 * datagrams that aren't solicited ring no doorbell under a lease either.
 *
 * Packets may be for any QP, so their socket isn't left to a poller while a CQ is armed:
 * engine_attend() and engine_release() end with roce_arm(). The kernel orders that with the epoll's
 * reports: an engine thread that takes a report after the roce_arm() of the thread that arms finds
 * the CQ; if it took the report before, roce_arm() has the epoll report the packet again. Nor is
 * other work of this process (room in a ring, QPs that are ready to send) left to a poller then:
 * engine_wants_kicks().
 *
 * An exception is a thread that polls very often (CLOSE_NS): it takes packets as soon as the engine
 * thread would. So the socket is left to it (stays hot), since otherwise each packet would wake the
 * engine thread, which then competes with the poller for the packets that follow (seen with UCX,
 * which keeps a CQ armed: its messages took three times as long on average). The poller arms the
 * socket when it sees that its polls have become rare, watchdog_pet(). If it stops, the watchdog
 * expires, and an event is late by 1 ms once.
 *
 * Acknowledgements wait for a record to travel with only under a lease (the polling thread, or the
 * engine thread when it takes over, flushes them at its next pass). Without a lease they are sent
 * before the engine's lock is released (engine_leave).
 *
 * A poller that has the lease, polls fast and has found nothing for FAST_POLLS polls leaves out
 * every other pass: a pass takes several times as long as the rest of an empty poll, and a program
 * that waits for a WRITE into its memory polls its CQ in between. What is in a ring then is seen
 * one short poll later. A thread that polls more slowly, or has just found something, leaves out
 * none.
 *
 * A poller that has found YIELD_AFTER rings empty in a row yields the processor, so that two
 * processes on one core take turns quickly. It yields in its next poll, before that poll looks, so
 * that each poll finds what came while it had given the processor away. An adapter's poll answers
 * with what is true now; if a poll yielded after its look, its answer would be as old as the
 * others' turn, and a program that then looks elsewhere would see effects before their causes: a
 * disconnection before the acknowledgement of its last message (seen with libfabric).
 *
 * Among many processes yielding is not enough: a few yielding processes can keep one that has work
 * to do from its core for seconds (seen with verbenad, Linux 6.18). So a poller that has found
 * nothing for PATIENCE_NS, and isn't alone on its processor, gives the lease back and sleeps
 * between its polls; peers ring, and the engine thread takes what comes. What ends the waiting, the
 * signs of work, is in engine.h.
 *
 * The program may also wait for something that Verbena doesn't see, as MPI libraries do for
 * messages in shared memory of their own while they poll a CQ as well; then a nap delays the
 * program, and no sign of work ends the waiting. So a poller that is alone on its processor doesn't
 * nap: it would help no other thread. It isn't alone if its yields take 1/CROWD_PART of its time.
 * Then it naps NAPS times before it yields again to see whether it is alone now: where other
 * threads compute, a yield takes much longer than a nap. A nap lasts 1/NAP_PART of the time that
 * the poller has waited already, but no longer than NAP_YIELDS times what the yield took, and than
 * NAP_MAX_NS: two pollers that share a processor nap for a short time only.
 */
#include "hca/engine/lease.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/engine/pass.h"
#include "hca/local/link.h"
#include "hca/roce/roce.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/pace.h"

enum {
	ROUNDS = 1024, /* passes before the engine thread looks at the daemon and the timers */
	RING_PASSES =
		RING_SLOTS / PASS_RECORDS, /* these take every record that is in a ring before */
	LEASE_AFTER = 16, /* consecutive empty rings before a polling thread takes the lease */
	LEASE_FOUND = 8,  /* or polls that did what the engine thread would have been woken for */
	YIELD_AFTER =
		256,	 /* consecutive empty rings: some microseconds, longer than a round trip */
	PET_NS = 700000, /* the lease's holder re-arms the watchdog after this time */
	SPARE_NS = 100000, /* and before this time more */
	WATCH_NS = PET_NS + SPARE_NS,
	SURE_NS = 200000, /* a thread that polls has polled in this time */
	PET_POLLS = 8,	  /* polls between two looks at the clock, fewer if polls take long */
	FAST_POLLS = 64,  /* the same of a fast poller: a look takes as long as an empty poll */
	CLOSE_NS = 2000,  /* polls are close to each other if they take less, likewise */
	FAST_NS = 250,	  /* a fast poller's polls take less, on average between two looks */
	PATIENCE_NS = 1000000, /* of empty polls, before the poller naps */
	CROWD_PART = 3,
	NAPS = 4,
	NAP_PART = 16,
	NAP_YIELDS = 16,
	NAP_MAX_NS = 2000000,
};

/* Passes until the rings are empty, and for at most ROUNDS passes: the daemon's events and the
 * timers need their turn. */
static void pass_all(struct hca *hca)
{
	if (!engine_pass_until_idle(hca, ROUNDS))
		engine_kick(hca);
}

/* What a thread remembers from poll to poll. */
struct poller {
	unsigned int empty;	/* consecutive empty rings */
	unsigned int found;	/* polls that found something while no thread had the lease */
	unsigned int handled;	/* hca.handled when the waiting began */
	uint32_t taken;		/* cq_taken when the waiting began */
	uint32_t touches;	/* engine_touches() when the thread was last about to nap */
	uint64_t since;		/* ns, when the waiting began; 0: it has not */
	unsigned int unclocked; /* polls that are left until it looks at the clock again */
	unsigned int stride;	/* how many these were at first */
	bool found_none;	/* since it looked at the clock */
	bool fast;		/* it polls fast and finds nothing: every other pass is left out */
	bool left_out;		/* the last one was */
	uint64_t clocked;	/* ns, when it looked at the clock */
	uint64_t petted;	/* ns, when it re-armed the watchdog */
	bool napping;
	unsigned int naps;    /* to come, before it yields again */
	uint64_t longest;     /* that these may be, ns */
	uint64_t share_since; /* ns; the yields since then took `yielded` ns */
	uint64_t yielded;
};

/* initial-exec: one instruction instead of a call for each poll */
static _Thread_local struct poller poller __attribute__((tls_model("initial-exec")));

/* Ends the lease. True: its holder was to look at the timers of roce. */
static bool end_lease(struct hca *hca)
{
	poller.found = poller.empty = 0; /* this thread earns the next lease by polling anew */
	poller.fast = false;
	atomic_store_explicit(&hca->pub->header.asleep, 1, memory_order_relaxed);
	/* [S2], pairs with [S1] and [A1]: asleep, and the CQ that the caller has armed,
	 * before the look at the rings and at the waiting QPs */
	atomic_thread_fence(memory_order_seq_cst);
	pass_all(hca);
	return hca->roce && roce_arm(hca->roce);
}

void engine_release(struct hca *hca)
{
	/* The next poller doesn't look at them: the socket is cold. */
	if (end_lease(hca))
		engine_kick(hca);
}

/* The number of peers' writes straight into this process's memory. A link that comes or goes
 * changes it, too. */
static uint32_t engine_touches(struct hca *hca)
{
	uint32_t sum = 0;

	lock_take(&hca->engine);
	list_for_each(node, &hca->links) {
		const struct link *link = container_of(node, struct link, node);

		if (link_is(link, LINK_UP)) /* its memory then stays while hca.engine is held */
			sum += link_touches(link);
	}
	engine_leave(hca);
	return sum;
}

/* Whether a record was handled, or this thread polled a completion, since the last call. */
static bool poller_progressed(const struct hca *hca, struct poller *p)
{
	unsigned int handled = atomic_load_explicit(&hca->handled, memory_order_relaxed);
	bool progressed = p->handled != handled || p->taken != cq_taken;

	p->handled = handled;
	p->taken = cq_taken;
	return progressed;
}

/* Whether peers have written straight into this process's memory since the last call. */
static bool poller_touched(struct hca *hca, struct poller *p)
{
	uint32_t touches = engine_touches(hca);
	bool touched = p->touches != touches;

	p->touches = touches;
	return touched;
}

/* From now on it is counted anew how long yields take. */
static void poller_share_begin(struct poller *p, uint64_t now)
{
	p->share_since = now;
	p->yielded = 0;
}

static void poller_wait_begin(struct poller *p, uint64_t now)
{
	p->since = now;
	p->naps = 0;
	poller_share_begin(p, now);
}

/* Yields the processor. Returns whether other threads want it. */
static bool poller_yield(struct poller *p, uint64_t now)
{
	sched_yield();
	uint64_t after = now_ns(), took = after - now;

	p->yielded += took;
	bool crowded = p->yielded * CROWD_PART >= after - p->share_since;

	if (now - p->since <= PATIENCE_NS)
		return false; /* what came during the yield hasn't been looked at */
	if (after - p->share_since > PATIENCE_NS)
		poller_share_begin(p, after);
	p->longest = took * NAP_YIELDS < NAP_MAX_NS ? took * NAP_YIELDS : NAP_MAX_NS;
	return crowded;
}

static void poller_nap(struct hca *hca, struct poller *p)
{
	uint64_t part = (now_ns() - p->since) / NAP_PART;

	if (!atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed))
		engine_release(hca);
	sys_nanosleep(&(struct timespec){.tv_nsec = part < p->longest ? part : p->longest}, NULL);
	poller_share_begin(p, now_ns());
}

/* Yields the processor. Or naps, if the thread has waited for longer than PATIENCE_NS and other
 * threads want its processor. */
static void give_way(struct hca *hca, struct poller *p)
{
	uint64_t now = now_ns();

	if (poller_progressed(hca, p) || !p->since)
		poller_wait_begin(p, now);
	if (p->naps)
		p->naps--;
	if (!p->naps && poller_yield(p, now))
		p->naps = NAPS;
	p->napping = p->naps;
	if (p->napping && poller_touched(hca, p)) {
		poller_wait_begin(p, now_ns());
		p->napping = false;
	}
	if (p->napping)
		poller_nap(hca, p);
}

/* For a thread that naps between polls: the engine thread may have handled what it waits for. If
 * that came soon, what follows is likely to come soon as well, so the thread polls without naps
 * again. */
static void look_up(const struct hca *hca, struct poller *p)
{
	if (!poller_progressed(hca, p))
		return;
	uint64_t now = now_ns();

	p->napping = now - p->since > PATIENCE_NS;
	poller_wait_begin(p, now);
}

/* Arms the watchdog: it expires in `ns` unless it is armed again before. */
static void watchdog_set(const struct hca *hca, uint64_t ns)
{
	const struct itimerspec in = {.it_value.tv_nsec = (long)ns};

	if (timerfd_settime(hca->watchdog, 0, &in, NULL) < 0)
		log_error("engine's watchdog: %s", strerror(errno));
}

/* How many polls take half of SPARE_NS, if `polls` took `ns`: between 1 and PET_POLLS. A poll of a
 * program that does much for each completion takes long. */
static unsigned int slow_stride(unsigned int polls, uint64_t ns)
{
	uint64_t in_time = polls * (uint64_t)(SPARE_NS / 2) / (ns + 1);

	if (in_time < 1)
		return 1;
	return in_time < PET_POLLS ? (unsigned int)in_time : PET_POLLS;
}

/* Whether some CQ is armed. */
static bool owes_events(const struct hca *hca)
{
	return atomic_load_explicit(&hca->pub->header.armed_cqs, memory_order_relaxed);
}

/* Called by the lease's holder as it polls: re-arms the watchdog every PET_NS. */
static void watchdog_pet(struct hca *hca, struct poller *p)
{
	uint64_t now = now_ns(), past = now - p->clocked;
	bool fast = past < (uint64_t)p->stride * FAST_NS;
	bool close = past < (uint64_t)p->stride * CLOSE_NS;

	p->fast = fast && p->found_none;
	p->found_none = true;
	p->stride = p->unclocked = fast ? FAST_POLLS : slow_stride(p->stride, past);
	p->clocked = now;
	if (unlikely(!close) && owes_events(hca) && hca->roce && roce_hot(hca->roce) &&
	    roce_arm(hca->roce))
		engine_kick(hca); /* which handles the timers from now on */
	if (now - p->petted < PET_NS)
		return;
	p->petted = now;
	watchdog_set(hca, WATCH_NS);
}

static void take_lease(struct hca *hca, struct poller *p)
{
	atomic_store_explicit(&hca->pub->header.asleep, 0, memory_order_relaxed);
	if (unlikely(hca->watchdog < 0))
		return; /* there is no watchdog: a forked child, or no engine thread */
	p->petted = now_ns();
	watchdog_set(hca, WATCH_NS);
}

/* Whether a poll of the CQ may take the lease. */
static inline bool may_lease(const struct cq *cq)
{
	return !cq || !cq_owes_any(cq);
}

void engine_poll(struct hca *hca, const struct cq *cq)
{
	struct poller *p = &poller;
	unsigned int n = 0, looked = 1;

	cq_unanswered = 0;
	if (p->fast && (p->left_out = !p->left_out))
		return;
	if (unlikely(p->empty >= YIELD_AFTER)) {
		p->empty = LEASE_AFTER + 1;
		give_way(hca, p);
	}
	if (likely(lock_try(&hca->engine))) {
		n = engine_pass_links(hca, &looked);
		engine_leave(hca);
	}
	atomic_store_explicit(&hca->polls,
			      atomic_load_explicit(&hca->polls, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	bool asleep = atomic_load_explicit(&hca->pub->header.asleep, memory_order_relaxed);

	p->fast = p->fast && !asleep;
	p->unclocked -= p->unclocked > 0;
	if (unlikely(!p->unclocked) && !asleep && likely(hca->watchdog >= 0))
		watchdog_pet(hca, p);
	pace_poll(hca);
	if (n) {
		p->empty = 0;
		p->fast = p->found_none = false;
		p->since = 0;
		p->napping = false;
		/* The engine thread may be past its last look at what is to be sent. */
		if (unlikely(asleep) && hca->roce && roce_ready(hca->roce))
			engine_kick(hca);
		if (unlikely(asleep) && may_lease(cq) && ++p->found > LEASE_FOUND) {
			p->found = 0;
			take_lease(hca, p);
		}
		return;
	}
	p->empty += looked;
	if (unlikely(p->napping))
		look_up(hca, p);

	if (unlikely(asleep && p->empty > LEASE_AFTER && !p->napping) && may_lease(cq))
		take_lease(hca, p);
}

/* ------------------------------------------------------------------ the engine thread */

/* After which time to look again whether some thread polls. A thread that polled before the
 * watchdog was due may have stopped since; one that polled in the last SURE_NS goes on, as it
 * seems, but doesn't re-arm the watchdog: it only sends packets, or it polls rarely. */
static uint64_t next_look(struct hca *hca)
{
	uint64_t now = now_ns(), since = now - hca->watched;

	hca->watched = now;
	return since < WATCH_NS ? WATCH_NS : SURE_NS;
}

/* The watchdog has expired. False: no thread has polled since its last expiry, and the lease has
 * been ended. */
static bool still_polled(struct hca *hca, uint32_t *seen)
{
	uint32_t polls = atomic_load_explicit(&hca->polls, memory_order_relaxed);
	bool moved = polls != *seen;

	*seen = polls;
	if (!moved)
		end_lease(hca);
	bool polled = !engine_asleep(hca);

	if (hca->watchdog >= 0) {
		hca->watch_due = false;
		if (polled)
			watchdog_set(hca, next_look(hca));
	}
	return polled;
}

/* Whether the threads that poll have done so every CLOSE_NS on average since the last call, which
 * was lately. */
static bool polls_are_close(struct hca *hca)
{
	uint64_t now = now_ns(), past = now - hca->attended;
	uint32_t polls = atomic_load_explicit(&hca->polls, memory_order_relaxed);
	uint32_t since = polls - hca->attended_polls;

	hca->attended = now;
	hca->attended_polls = polls;
	return past < WATCH_NS && since * (uint64_t)CLOSE_NS > past;
}

/* A thread polls, but a CQ is armed: what this thread was woken for may be a record that completes
 * to it. What comes into the rings meanwhile is the poller's, or rings again. */
static void engine_attend(struct hca *hca)
{
	bool packets = hca->roce && roce_hot(hca->roce);

	if (packets && !polls_are_close(hca)) {
		pass_all(hca);
		roce_arm(hca->roce);
	} else {
		engine_pass_until_idle(hca, RING_PASSES);
	}
}

bool engine_serve(struct hca *hca, uint32_t *seen)
{
	if (engine_asleep(hca)) {
		end_lease(hca);
		return false;
	}
	bool polled = !hca->watch_due || still_polled(hca, seen);

	if (polled && owes_events(hca))
		engine_attend(hca);
	return polled;
}
