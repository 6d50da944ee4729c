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
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"

enum { TAKERS = 4, TURNS = 20000, LOCKS = 3, BIASED = 1 };

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
	lock_bias(&guarded[BIASED].lock);
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

/* ------------------------------------------------------------------ bias */

enum { OWNED = 2000 * BIAS_AFTER };

static void begin_biased(void)
{
	lock_init(&guarded[BIASED].lock, RANK_QP);
	lock_bias(&guarded[BIASED].lock);
	guarded[BIASED].turns = 0;
}

static void take_often(unsigned int turns)
{
	for (unsigned int i = 0; i < turns; i++)
		take_a_turn(BIASED, false);
}

static bool i_am_owner(void)
{
	return lock_is_owner(&guarded[BIASED].lock);
}

static void *sleeper_biased(void *arg)
{
	(void)arg;
	take_a_turn(BIASED, false);
	return NULL;
}

static void *tries_once(void *arg)
{
	bool *taken = arg;

	*taken = lock_try(&guarded[BIASED].lock);
	if (*taken)
		lock_give(&guarded[BIASED].lock);
	return NULL;
}

static _Atomic bool over;
static _Atomic uint64_t taken, tried; /* turns of the two threads that disturb the owner */

/* Now and then, so that the owner gets it back in between. */
static void *takes_counted(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		take_a_turn(BIASED, taken % 4 == 0);
		atomic_fetch_add(&taken, 1);
		usleep(50);
	}
	return NULL;
}

static void *tries_counted(void *arg)
{
	(void)arg;
	for (; !atomic_load(&over); usleep(20)) {
		if (!lock_try(&guarded[BIASED].lock))
			continue;
		guarded[BIASED].turns++;
		lock_give(&guarded[BIASED].lock);
		atomic_fetch_add(&tried, 1);
	}
	return NULL;
}

/* A thread that takes the lock in succession owns it, until another one takes it; then again. */
static void the_owner_changes(void **state)
{
	pthread_t thread;

	(void)state;
	begin_biased();
	assert_false(i_am_owner());
	take_often(BIAS_AFTER + 1);
	assert_true(i_am_owner());
	take_often(BIAS_AFTER);
	assert_true(i_am_owner());
	assert_int_equal(pthread_create(&thread, NULL, sleeper_biased, NULL), 0);
	pthread_join(thread, NULL);
	assert_false(i_am_owner());
	take_often(BIAS_AFTER + 1);
	assert_true(i_am_owner());
}

/* A thread that has the lock can't have it twice, however it took it: as any thread, in the moment
 * in which it becomes the owner, or as the owner. */
static void a_try_fails_while_the_same_thread_has_it(void **state)
{
	struct lock *lock = &guarded[BIASED].lock;
	unsigned int as_owner = 0;

	(void)state;
	begin_biased();
	for (unsigned int i = 0; i < 3 * BIAS_AFTER; i++) {
		lock_take(lock);
		assert_false(lock_try(lock));
		as_owner += i_am_owner();
		lock_give(lock);
	}
	assert_true(as_owner > 0 && as_owner < 3 * BIAS_AFTER);
	assert_true(lock_try(lock)); /* its owner gets it when it is free */
	lock_give(lock);
}

static void *takes_in_succession(void *arg)
{
	bool *owner = arg;

	take_often(3 * BIAS_AFTER);
	*owner = i_am_owner();
	return NULL;
}

/* A lock has one owner in its life. */
static void there_is_no_second_owner(void **state)
{
	pthread_t thread;
	bool owner = true;

	(void)state;
	begin_biased();
	take_often(2 * BIAS_AFTER);
	assert_true(i_am_owner());
	assert_int_equal(pthread_create(&thread, NULL, takes_in_succession, &owner), 0);
	pthread_join(thread, NULL);
	assert_false(owner);
	assert_int_equal(guarded[BIASED].turns, 5 * BIAS_AFTER);
}

/* One that waits for the owner's turn is woken by its end; one that tries isn't let in, and the
 * owner stays what it is. */
static void the_owner_keeps_others_out(void **state)
{
	struct lock *lock = &guarded[BIASED].lock;
	pthread_t thread;
	bool tried = true;

	(void)state;
	for (unsigned int i = 0; i < 100; i++) {
		begin_biased();
		take_often(2 * BIAS_AFTER);
		lock_take(lock);
		assert_int_equal(pthread_create(&thread, NULL, tries_once, &tried), 0);
		pthread_join(thread, NULL);
		assert_false(tried);
		assert_true(i_am_owner());
		assert_int_equal(pthread_create(&thread, NULL, sleeper_biased, NULL), 0);
		while (!atomic_load(lock_sleepers_of(lock)))
			sched_yield();
		lock_give(lock);
		pthread_join(thread, NULL);
		assert_int_equal(atomic_load(lock_sleepers_of(lock)), 0);
		assert_int_equal(guarded[BIASED].turns, 2 * BIAS_AFTER + 1);
	}
}

/* No turn is lost while two threads take it from its owner, now and then. */
static void others_take_it_from_the_owner(void **state)
{
	enum { OTHERS = 300 };
	pthread_t taker_thread, trier_thread;
	uint64_t owned = 0, turns = 0;

	(void)state;
	begin_biased();
	atomic_store(&over, false);
	atomic_store(&taken, 0);
	atomic_store(&tried, 0);
	assert_int_equal(pthread_create(&taker_thread, NULL, takes_counted, NULL), 0);
	assert_int_equal(pthread_create(&trier_thread, NULL, tries_counted, NULL), 0);
	for (; turns < OWNED || atomic_load(&taken) < OTHERS || atomic_load(&tried) < OTHERS;
	     turns++) {
		take_a_turn(BIASED, false);
		owned += i_am_owner();
	}
	atomic_store(&over, true);
	pthread_join(taker_thread, NULL);
	pthread_join(trier_thread, NULL);
	assert_int_equal(guarded[BIASED].turns, turns + taken + tried);
	assert_true(owned > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_take_turns),
		cmocka_unit_test(a_sleeper_is_woken),
		cmocka_unit_test(the_owner_changes),
		cmocka_unit_test(a_try_fails_while_the_same_thread_has_it),
		cmocka_unit_test(there_is_no_second_owner),
		cmocka_unit_test(the_owner_keeps_others_out),
		cmocka_unit_test(others_take_it_from_the_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
