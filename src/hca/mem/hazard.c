/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hazards. See hazard.h. Owns the own hazards of all QPs (hca.own_hazards) and the places in this
 * process's regions' file.
 */
#include "hca/mem/hazard.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/peer.h"
#include "hca/process/hca.h"

/* The places from here on are for hazard_set_inner(): a thread that holds one of the first places
 * never waits for another thread that does. */
enum { OUTER_HAZARDS = PUB_HAZARDS - 8 };

enum { SPINS = 64, NAP_NS = 100000, NAPS_A_LOOK = 16 };

bool hazard_fences;
static struct pub_regions *own_regions; /* of the process's HCA; for hazard_takes_several() */

/* ------------------------------------------------------------------ own hazards */

static bool barrier_register(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
	       syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

int hazard_make(struct hca *hca)
{
	void *at = mmap(NULL, HAZARD_OWN_MAX * sizeof(*hca->own_hazards), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	hca->own_hazards = at;
	own_regions = hca->regions;
	hazard_fences = !barrier_register();
	if (hazard_fences)
		log_info("membarrier() can't be used: each copy has a fence of its own");
	return 0;
}

void hazard_unmake(struct hca *hca)
{
	if (hca->own_hazards)
		munmap(hca->own_hazards, HAZARD_OWN_MAX * sizeof(*hca->own_hazards));
	hca->own_hazards = NULL;
	own_regions = NULL;
}

/* A free place's key[0] is the number of the next free place, as hca.own_hazards_free is of the
 * first. The wait reads no key of it, because its count is 0. */
struct own_hazards *hazard_own(struct hca *hca)
{
	uint32_t number = hca->own_hazards_free;

	if (!number) {
		number = atomic_load(&hca->own_hazards_used) + 1;
		atomic_store(&hca->own_hazards_used, number);
		return &hca->own_hazards[number - 1];
	}
	struct own_hazards *own = &hca->own_hazards[number - 1];

	hca->own_hazards_free = atomic_load_explicit(&own->key[0], memory_order_relaxed);
	return own;
}

void hazard_disown(struct hca *hca, struct own_hazards *own)
{
	atomic_store_explicit(&own->key[0], hca->own_hazards_free, memory_order_relaxed);
	hca->own_hazards_free = (uint32_t)(own - hca->own_hazards) + 1;
}

void hazard_leave(struct hca *hca)
{
	for (uint32_t i = 0; i < atomic_load(&hca->own_hazards_used); i++)
		atomic_store(&hca->own_hazards[i].count, 0);
}

/* After this, every thread of this process either is past the stores before its lookup of a key, or
 * its lookup will see what the calling thread has stored. */
static void barrier_all(void)
{
	if (hazard_fences)
		atomic_thread_fence(memory_order_seq_cst); /* [O2], pairs with [O1] */
	else
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Whether a hazard names `key`, in the bits of `mask`. */
static bool own_names(const struct own_hazards *own, uint32_t key, uint32_t mask)
{
	uint32_t count =
		atomic_load_explicit(&own->count, memory_order_acquire); /* [O4], pairs with [O3] */

	for (uint32_t i = 0; i < count && i < OWN_HAZARDS_MAX; i++)
		if (!((atomic_load_explicit(&own->key[i], memory_order_relaxed) ^ key) & mask))
			return true;
	return false;
}

/* ------------------------------------------------------------------ peers' hazards */

/* What a thread remembers of its hazards. initial-exec: an instruction instead of a call. */
static _Thread_local struct {
	int32_t id;	    /* the thread's; 0: not asked for yet */
	unsigned int place; /* the outer place that it took last */
} hazard_thread __attribute__((tls_model("initial-exec")));

static inline bool hazard_take_place(struct pub_hazard *hazard, uint64_t value)
{
	uint64_t none = 0;

	if (unlikely(!atomic_compare_exchange_strong(&hazard->target, &none,
						     value))) /* [H1], pairs with [H4] */
		return false;
	atomic_store_explicit(&hazard->thread, hazard_thread.id, memory_order_relaxed);
	return true;
}

/* Takes a free place among the `count` from `first` on, beginning with `from`. Returns its index
 * among them. */
static __attribute__((noinline)) unsigned int hazard_seek_place(struct hca *hca, uint64_t value,
								unsigned int first,
								unsigned int count,
								unsigned int from)
{
	if (unlikely(!hazard_thread.id))
		hazard_thread.id = (int32_t)gettid();
	for (unsigned int i = from;; i = i + 1 < count ? i + 1 : 0) {
		if (hazard_take_place(&hca->regions->hazard[first + i], value))
			return i;
		if (i == count - 1)
			sched_yield(); /* more copying threads than places */
	}
}

inline _Atomic uint64_t *hazard_set(struct hca *hca, uint32_t slot, uint32_t rkey)
{
	uint64_t value = (uint64_t)slot << 32 | rkey;
	unsigned int place = hazard_thread.place;

	if (unlikely(!hazard_thread.id ||
		     !hazard_take_place(&hca->regions->hazard[place], value))) {
		place = hazard_seek_place(hca, value, 0, OUTER_HAZARDS, place);
		hazard_thread.place = place;
	}
	return &hca->regions->hazard[place].target;
}

_Atomic uint64_t *hazard_set_inner(struct hca *hca, uint32_t slot, uint32_t rkey)
{
	unsigned int place = hazard_seek_place(hca, (uint64_t)slot << 32 | rkey, OUTER_HAZARDS,
					       PUB_HAZARDS - OUTER_HAZARDS, 0);

	return &hca->regions->hazard[OUTER_HAZARDS + place].target;
}

/* Relaxed, since the owner counts a copy as finished only after the kernel has said that the thread
 * is stopped at the end of a call, before which this is. */
void hazard_takes_several(void)
{
	for (unsigned int i = 0; own_regions && i < PUB_HAZARDS; i++) {
		_Atomic uint32_t *thread = &own_regions->hazard[i].thread;
		uint32_t mine = (uint32_t)hazard_thread.id;

		/* A place of this thread's may have gone to another one meanwhile: then the change
		 * fails, or marks a hazard without need, whose copy is waited for a bit longer. */
		if (mine)
			atomic_compare_exchange_strong_explicit(
				thread, &mine, mine | PUB_HAZARD_SEVERAL, memory_order_relaxed,
				memory_order_relaxed);
	}
}

#define WHOLE UINT64_MAX

/* Returns the first hazard from the place `from` on that names the region or QP, in the bits of
 * `mask`; NULL: none does. */
static const struct pub_hazard *hazard_find_from(const struct pub_regions *regions,
						 unsigned int from, uint64_t value, uint64_t mask)
{
	for (unsigned int i = from; i < PUB_HAZARDS; i++) {
		/* [H4], pairs with [H1], [H5] */
		uint64_t target = atomic_load(&regions->hazard[i].target);

		if (!((target ^ value) & mask))
			return &regions->hazard[i];
	}
	return NULL;
}

static const struct pub_hazard *hazard_find(const struct pub_regions *regions, uint64_t value,
					    uint64_t mask)
{
	return hazard_find_from(regions, 0, value, mask);
}

bool hazards_pass(const struct hca *hca, uint32_t slot, uint64_t *passed)
{
	_Static_assert(PUB_HAZARDS == 64, "*passed has a bit for each hazard");

	for (unsigned int i = 0; i < PUB_HAZARDS; i++)
		/* [H4], pairs with [H1], [H5] */
		if (!(*passed >> i & 1) &&
		    atomic_load(&hca->regions->hazard[i].target) >> 32 != slot)
			*passed |= 1ull << i;
	return *passed == UINT64_MAX;
}

/* Whether the link's process may copy to or from this one. A process that hasn't mapped our
 * regions' file, nor we its own, doesn't touch our regions and can't make us wait. */
static bool may_copy(const struct link *link)
{
	return link->self || (link_is_mapped(link) && link->regions);
}

bool hazard_from_peer(const struct link *link)
{
	if (!link->regions)
		return false;
	for (unsigned int i = 0; i < PUB_HAZARDS; i++)
		/* [H4], pairs with [H5] */
		if (atomic_load(&link->regions->hazard[i].target) >> 32 == link->hca->slot)
			return !peer_ended(&link->process);
	return false;
}

/* ------------------------------------------------------------------ waiting */

/* What a wait is for, and how far it has come. */
struct wait {
	struct hca *hca;
	uint64_t value;			      /* slot << 32 | key, as hazards name it */
	uint64_t mask;			      /* the bits of it that count */
	uint64_t begun, until, until_stopped; /* ns */
	unsigned int looks;
};

static struct wait wait_for(struct hca *hca, uint32_t key)
{
	uint64_t now = now_ns();

	return (struct wait){.hca = hca,
			     .value = (uint64_t)hca->slot << 32 | key,
			     .mask = WHOLE,
			     .begun = now,
			     .until = now + HAZARD_PATIENCE_NS,
			     .until_stopped = now + HAZARD_STOPPED_NS};
}

/* Spins first, then naps. Returns true periodically, when the caller should make the expensive
 * checks. */
static bool pause_between_looks(struct wait *wait)
{
	unsigned int i = wait->looks++;

	if (i < SPINS) {
		sched_yield();
		return false;
	}
	sys_nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return i % NAPS_A_LOOK == 0;
}

/* Shows in `verbena status` which process holds the wait up; pid 0: none does any more. */
static void show_culprit(const struct wait *wait, int32_t pid, uint32_t thread)
{
	struct pub_held_up *shown = &wait->hca->pub->held_up;

	atomic_store_explicit(&shown->pid, 0, memory_order_relaxed);
	if (!pid)
		return;
	atomic_store_explicit(&shown->thread, thread, memory_order_relaxed);
	atomic_store_explicit(&shown->key, (uint32_t)wait->value, memory_order_relaxed);
	atomic_store_explicit(&shown->pid, (uint32_t)pid, memory_order_relaxed);
}

/* A thread of this process copies without end: its memory is on a file system that doesn't answer,
 * or a debugger has stopped the thread. */
static int own_stuck(const struct wait *wait)
{
	log_error("deregistration: a thread of this process has been copying to or from region "
		  "0x%x for %llu s; the memory must not be reused",
		  (uint32_t)wait->value, HAZARD_PATIENCE_NS / 1000000000ull);
	show_culprit(wait, getpid(), 0);
	return -EBUSY;
}

static int wait_for_own(struct wait *wait)
{
	uint32_t count = atomic_load(&wait->hca->own_hazards_used);

	barrier_all();
	for (uint32_t i = 0; i < count; i++) {
		const struct own_hazards *own = &wait->hca->own_hazards[i];

		while (unlikely(own_names(own, (uint32_t)wait->value, (uint32_t)wait->mask)))
			if (pause_between_looks(wait) && now_ns() > wait->until)
				return own_stuck(wait);
	}
	return 0;
}

/* The bound is reached: the peer lives, and its hazard stays set. */
static int peer_stuck(const struct wait *wait, struct link *link, uint32_t thread, uint64_t now)
{
	log_error("deregistration: process %d (thread %u) has been copying to or from %s 0x%x of "
		  "this process for %llu s%s; the link to it is given up, and the memory must not "
		  "be reused while that process lives",
		  link->pid, thread, wait->value & HAZARD_OF_QP ? "the QP with key" : "region",
		  (uint32_t)wait->value, (unsigned long long)(now - wait->begun) / 1000000000ull,
		  peer_state(&link->process) == 'T' ? " and is stopped" : "");
	show_culprit(wait, link->pid, thread);
	if (link_is(link, LINK_UP))
		link_break(link, "its peer held up a deregistration, so their link was given up");
	return -EBUSY;
}

/* Whether the peer's thread has made its copy, and is stopped before it can clear its hazard. */
static bool has_copied(const struct link *link, const struct pub_hazard *hazard)
{
	uint32_t thread = atomic_load_explicit(&hazard->thread, memory_order_relaxed);

	/* Read again: the thread may have taken the place, or announced several calls, since. */
	return !(thread & PUB_HAZARD_SEVERAL) && peer_stopped_after_copy(&link->process, thread) &&
	       atomic_load_explicit(&hazard->thread, memory_order_relaxed) == thread;
}

/* Whether a thread of the living peer may still copy; *thread is its number. A system call or more
 * for each hazard. */
static bool may_still_copy(const struct wait *wait, const struct link *link, uint32_t *thread)
{
	const struct pub_hazard *hazard;
	unsigned int from = 0;

	if (peer_ended(&link->process))
		return false;
	while ((hazard = hazard_find_from(link->regions, from, wait->value, wait->mask))) {
		if (!has_copied(link, hazard)) {
			*thread = atomic_load_explicit(&hazard->thread, memory_order_relaxed) &
				  ~PUB_HAZARD_SEVERAL;
			return true;
		}
		from = (unsigned int)(hazard - link->regions->hazard) + 1;
	}
	return false;
}

/*
 * Waits until the link's process no longer copies. The copy is one system call of that process or a
 * few instructions more, so the wait is short. The waiting thread polls with naps, because an event
 * for the end would cost every copy a system call.
 *
 * A thread that is stopped meanwhile has finished the system call (the kernel doesn't stop a thread
 * within it), but can't clear its hazard. A process that was stopped in the few instructions around
 * the system call, or in a signal handler there, is waited for until `until_stopped` only.
 */
static int hazard_wait_for_peer(struct wait *wait, struct link *link)
{
	uint32_t thread = 0;

	while (hazard_find(link->regions, wait->value, wait->mask)) {
		if (!pause_between_looks(wait))
			continue;
		if (link->self) {
			if (now_ns() > wait->until)
				return own_stuck(wait);
			continue;
		}
		if (!may_still_copy(wait, link, &thread))
			return 0;
		uint64_t now = now_ns();

		if (now > wait->until ||
		    (now > wait->until_stopped && peer_state(&link->process) == 'T'))
			return peer_stuck(wait, link, thread, now);
	}
	return 0;
}

/* The link to `slot` if a hazard of its process names what is waited for, else NULL. Its tables
 * stay mapped until link.watchers is lowered again. */
static struct link *watch_culprit(const struct wait *wait, uint32_t slot)
{
	struct link *link = atomic_load(&wait->hca->link_by_slot[slot]);
	bool named = false;

	if (likely(!link))
		return NULL;
	mutex_take(&wait->hca->lock); /* link_reap() unmaps tables under it */
	named = may_copy(link) && hazard_find(link->regions, wait->value, wait->mask);
	if (named)
		atomic_fetch_add(&link->watchers, 1);
	mutex_give(&wait->hca->lock);
	return named ? link : NULL;
}

static int wait_for_slot(struct wait *wait, uint32_t slot)
{
	struct link *link = watch_culprit(wait, slot);

	if (likely(!link))
		return 0;
	int err = hazard_wait_for_peer(wait, link);

	atomic_fetch_sub(&link->watchers, 1);
	return err;
}

static int wait_for_all(struct wait *wait)
{
	struct hca *hca = wait->hca;
	int err = wait_for_own(wait);

	/* A SEND by reference within this process is copied by address, under the engine's lock:
	 * once the lock has been free, no copy that began before uses the region. */
	lock_take(&hca->engine);
	lock_give(&hca->engine);
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		int held = wait_for_slot(wait, slot);

		err = err ? err : held;
	}
	uint32_t shown = atomic_load_explicit(&hca->pub->held_up.key, memory_order_relaxed);

	if (!err && atomic_load_explicit(&hca->pub->held_up.pid, memory_order_relaxed) &&
	    !((shown ^ wait->value) & (uint32_t)wait->mask))
		show_culprit(wait, 0, 0);
	return err;
}

int hazard_wait_region(struct hca *hca, uint32_t rkey)
{
	struct wait wait = wait_for(hca, rkey);

	return wait_for_all(&wait);
}

int hazard_wait_index(struct hca *hca, uint32_t rkey)
{
	struct wait wait = wait_for(hca, rkey);

	wait.mask = ~(uint64_t)((1u << LIMIT_KEY_TAG_BITS) - 1);
	return wait_for_all(&wait);
}

/* ------------------------------------------------------------------ looking without waiting */

static enum hazard_look look_at_own(const struct wait *wait)
{
	uint32_t count = atomic_load(&wait->hca->own_hazards_used);

	barrier_all();
	for (uint32_t i = 0; i < count; i++)
		if (own_names(&wait->hca->own_hazards[i], (uint32_t)wait->value,
			      (uint32_t)wait->mask))
			return now_ns() <= wait->until ? HAZARD_SET
			       : own_stuck(wait)       ? HAZARD_STUCK
						       : HAZARD_NONE;
	return HAZARD_NONE;
}

/* What hazard_wait_for_peer() does between its naps. */
static enum hazard_look look_at_peer(const struct wait *wait, struct link *link)
{
	uint64_t now = now_ns();
	uint32_t thread = 0;

	if (!hazard_find(link->regions, wait->value, wait->mask))
		return HAZARD_NONE;
	if (link->self)
		return now <= wait->until ? HAZARD_SET
		       : own_stuck(wait)  ? HAZARD_STUCK
					  : HAZARD_NONE;
	if (!may_still_copy(wait, link, &thread))
		return HAZARD_NONE;
	if (now <= wait->until_stopped || (now <= wait->until && peer_state(&link->process) != 'T'))
		return HAZARD_SET;
	return peer_stuck(wait, link, thread, now) ? HAZARD_STUCK : HAZARD_NONE;
}

enum hazard_look hazard_look_region(struct hca *hca, uint32_t rkey, uint64_t since)
{
	const struct wait wait = {.hca = hca,
				  .value = (uint64_t)hca->slot << 32 | rkey,
				  .mask = WHOLE,
				  .begun = since,
				  .until = since + HAZARD_PATIENCE_NS,
				  .until_stopped = since + HAZARD_STOPPED_NS};
	enum hazard_look worst = look_at_own(&wait);

	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = watch_culprit(&wait, slot);

		if (likely(!link))
			continue;
		enum hazard_look look = look_at_peer(&wait, link);

		atomic_fetch_sub(&link->watchers, 1);
		worst = look > worst ? look : worst;
	}
	return worst;
}

bool hazard_link_idle(const struct link *link, uint32_t rkey)
{
	return !may_copy(link) ||
	       !hazard_find(link->regions, (uint64_t)link->hca->slot << 32 | rkey, WHOLE);
}

void hazard_wait_qp(struct hca *hca, uint32_t slot, uint32_t qpn)
{
	struct wait wait = wait_for(hca, hazard_of_qp(qpn));

	if (slot != hca->slot)
		wait_for_slot(&wait, slot);
}
