/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h: threads that take a lock by turns, asleep and awake, exclude one another, and none sleeps
 * on while the lock is free. A holder that gives the processor up within its turn makes the others
 * sleep. A wake-up that was lost would end the test by its time limit.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/lock.h"

enum { TAKERS = 4, TURNS = 20000, LOCKS = 3 };

static struct {
	_Alignas(64) struct lock lock;
	uint64_t turns GUARDED_BY(lock);
} guarded[LOCKS];

static void take_a_turn(unsigned int which, bool slow)
{
	lock_take(&guarded[which].lock);
	uint64_t before = guarded[which].turns;

	if (slow)
		sched_yield();
	guarded[which].turns = before + 1;
	lock_give(&guarded[which].lock);
}

static void *taker(void *arg)
{
	uintptr_t self = (uintptr_t)arg;

	for (unsigned int i = 0; i < TURNS; i++)
		take_a_turn(i % LOCKS, (i + self) % 16 == 0);
	return NULL;
}

static void threads_take_turns(void **state)
{
	pthread_t threads[TAKERS];
	uint64_t sum = 0;

	(void)state;
	for (unsigned int i = 0; i < LOCKS; i++)
		lock_init(&guarded[i].lock, RANK_QP);
	for (uintptr_t i = 0; i < TAKERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, taker, (void *)i), 0);
	for (unsigned int i = 0; i < TAKERS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned int i = 0; i < LOCKS; i++) {
		lock_assume_alone(&guarded[i].lock);
		sum += guarded[i].turns;
	}
	assert_int_equal(sum, TAKERS * TURNS);
}

static void *sleeper(void *arg)
{
	(void)arg;
	take_a_turn(0, false);
	return NULL;
}

/* A thread that sleeps already is woken by the release. */
static void a_sleeper_is_woken(void **state)
{
	pthread_t thread;

	(void)state;
	for (unsigned int i = 0; i < 100; i++) {
		lock_init(&guarded[0].lock, RANK_QP);
		lock_take(&guarded[0].lock);
		assert_int_equal(pthread_create(&thread, NULL, sleeper, NULL), 0);
		while (!atomic_load(lock_sleepers_of(&guarded[0].lock)))
			sched_yield();
		lock_give(&guarded[0].lock);
		pthread_join(thread, NULL);
		assert_int_equal(atomic_load(lock_sleepers_of(&guarded[0].lock)), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_take_turns),
		cmocka_unit_test(a_sleeper_is_woken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
