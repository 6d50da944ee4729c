/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock itself: threads exclude one another, whichever of them is its owner, and none sleeps on
 * while it is free. The threads are coroutines of one thread of the system, so they are numbered
 * here, and futexes and membarrier() are the model's.
 */
#include <linux/futex.h>
#include <stdarg.h>

#include "scenarios.h"

#define VERBENA_BASE_THREAD_SELF_H
static inline uintptr_t thread_self(void)
{
	return 2 * ((uintptr_t)model_thread() + 1);
}

#define lock_sleepers weak_lock_sleepers
#define lock_wait weak_lock_wait
#define lock_wake weak_lock_wake
#define lock_shared weak_lock_shared
#define lock_shared_try weak_lock_shared_try
#define lock_mine_lost weak_lock_mine_lost
#define lock_never_own weak_lock_never_own
#define lock_forget_sleepers weak_lock_forget_sleepers
#define syscall weak_syscall
#define SPINS 0
#define BIAS_AFTER 1

static bool barriers_work;
static long weak_syscall(long number, ...);
/* Declared before it is replaced. */
#undef sys_nanosleep
#include "base/sys.h"
#define sys_nanosleep(time, left) ((void)(time), (void)(left))
#include "base/lock.c"

static _Alignas(64) struct lock lock;
static unsigned int turns; /* guarded by the lock: a race is reported */
static _Atomic uint32_t step;
/* A futex of the kernel, for each of the two words: a thread that sleeps, and the lock under which
 * the kernel compares the word. */
enum { WORDS = 2 };
static unsigned int asleep[WORDS];
static char kernel_lock[WORDS];

static void futex_wait(unsigned int which, _Atomic uint32_t *word)
{
	model_lock(&kernel_lock[which]);
	bool sleeps = atomic_fetch_add_explicit(word, 0, memory_order_relaxed) == 1;

	asleep[which] += sleeps;
	model_unlock(&kernel_lock[which]);
	if (sleeps)
		model_event_wait(which);
}

static void futex_wake(unsigned int which)
{
	model_lock(&kernel_lock[which]);
	bool wakes = asleep[which] > 0;

	asleep[which] -= wakes;
	if (wakes)
		model_event_set(which);
	model_unlock(&kernel_lock[which]);
}

static long weak_syscall(long number, ...)
{
	va_list more;

	if (number == SYS_membarrier) {
		if (barriers_work)
			model_barrier_everywhere();
		return 0;
	}
	va_start(more, number);
	_Atomic uint32_t *word = va_arg(more, _Atomic uint32_t *);
	int operation = va_arg(more, int);

	va_end(more);
	if (operation == FUTEX_WAIT_PRIVATE)
		futex_wait(word == &lock.mine, word);
	else
		futex_wake(word == &lock.mine);
	return 0;
}

/* ------------------------------------------------------------------ threads */

static void begin(uintptr_t owner)
{
	lock_init(&lock, RANK_QP);
	lock_bias(&lock);
	lock.owner = owner;
	lock.had_owner = owner != 0;
	lock_forget_sleepers();
	asleep[0] = asleep[1] = 0;
	turns = 0;
	barriers_work = true;
	model_word(&lock.word, sizeof(lock.word), "word");
	model_word(&lock.mine, sizeof(lock.mine), "mine");
	model_word(&lock.owner, sizeof(lock.owner), "owner");
	model_word(lock_sleepers_of(&lock), sizeof(uint32_t), "sleepers");
	model_word(&step, sizeof(step), "step");
	model_memory(&turns, sizeof(turns));
	model_memory(&lock.left, sizeof(lock.left));
	model_memory(&lock.had_owner, sizeof(lock.had_owner));
}

static void of_the_first(void)
{
	begin(2);
}

static void of_nobody(void)
{
	begin(0);
}

static void without_barriers(void)
{
	begin(2);
	barriers_work = false;
}

/* A step in which other threads may do something, before the plain access. */
static void work(void)
{
	(void)atomic_load_explicit(&step, memory_order_relaxed);
	turns++;
}

static void takes(void)
{
	lock_take(&lock);
	work();
	lock_give(&lock);
}

static void takes_twice(void)
{
	takes();
	takes();
}

static unsigned int tried; /* successful tries: by one thread */

static void tries(void)
{
	tried = 0;
	if (!lock_try(&lock))
		return;
	tried = 1;
	work();
	lock_give(&lock);
}

/* A signal handler of the thread that has the lock tries it, and then another time. */
static void takes_and_tries(void)
{
	lock_take(&lock);
	work();
	if (lock_try(&lock))
		model_fail("the thread has the lock twice");
	lock_give(&lock);
}

static void takes_and_tries_twice(void)
{
	takes_and_tries();
	takes_and_tries();
}

static void three_turns(void)
{
	if (turns != 3)
		model_fail("%u turns, not 3", turns);
}

static void two_turns(void)
{
	if (turns != 2)
		model_fail("%u turns, not 2", turns);
}

static void turns_and_tries(void)
{
	if (turns != 2 + tried)
		model_fail("%u turns, not 2 and %u", turns, tried);
}

const struct model_scenario lock_scenarios[] = {
	{"lock.unbarred!", without_barriers, {takes, takes}, two_turns},
	{"lock.owned", of_the_first, {takes, takes}, two_turns},
	{"lock.owned_tried", of_the_first, {takes_twice, tries}, turns_and_tries},
	{"lock.owned_twice", of_the_first, {takes_twice, takes}, three_turns},
	{"lock.gets_owner", of_nobody, {takes_twice, takes}, three_turns},
	{"lock.owned_again", of_the_first, {takes_and_tries_twice, takes}, three_turns},
	{"lock.gets_owner_again", of_nobody, {takes_and_tries_twice, takes}, three_turns},
	{0},
};
