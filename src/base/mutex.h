/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pthread's mutexes and read-write locks with a rank (lock_rank.h) and with clang's annotations
 * (thread_safety.h): for what isn't on a fast path, or waits on a condition. Errors of pthread's
 * are those of a wrong program only, and not looked at.
 */
#ifndef VERBENA_BASE_MUTEX_H
#define VERBENA_BASE_MUTEX_H

#include <pthread.h>

#include <stdbool.h>

#include "base/lock_rank.h"
#include "base/sys.h"

struct CAPABILITY("mutex") mutex {
	pthread_mutex_t pthread;
	LOCK_RANK_MEMBER
};

struct CAPABILITY("rwlock") rwlock {
	pthread_rwlock_t pthread;
	LOCK_RANK_MEMBER
};

#define MUTEX_INITIALIZER(of)                                            \
	{                                                                \
		.pthread = PTHREAD_MUTEX_INITIALIZER, LOCK_RANK_INIT(of) \
	}

/* The bodies of these are the locks themselves: nothing is to be analysed in them. */

/* No other thread knows an object that is being made: the rest counts as holding its lock. */
static inline void mutex_init(struct mutex *mutex, enum lock_rank rank) ASSERT_HELD(*mutex);
static inline void mutex_init(struct mutex *mutex, enum lock_rank rank)
{
	pthread_mutex_init(&mutex->pthread, NULL);
	rank_forget(mutex);
#ifdef VERBENA_LOCK_RANKS
	mutex->rank = (uint8_t)rank;
#else
	(void)rank;
#endif
}

static inline void mutex_destroy(struct mutex *mutex)
{
	pthread_mutex_destroy(&mutex->pthread);
}

static inline void mutex_take(struct mutex *mutex) ACQUIRE(*mutex) NO_THREAD_SAFETY_ANALYSIS;
static inline void mutex_take(struct mutex *mutex)
{
	rank_check(mutex, (enum lock_rank)mutex->rank);
	pthread_mutex_lock(&mutex->pthread);
	rank_taken(mutex, (enum lock_rank)mutex->rank);
}

static inline bool mutex_try(struct mutex *mutex)
	TRY_ACQUIRE(true, *mutex) NO_THREAD_SAFETY_ANALYSIS;
static inline bool mutex_try(struct mutex *mutex)
{
	if (pthread_mutex_trylock(&mutex->pthread))
		return false;
	rank_taken(mutex, (enum lock_rank)mutex->rank);
	return true;
}

static inline void mutex_give(struct mutex *mutex) RELEASE(*mutex) NO_THREAD_SAFETY_ANALYSIS;
static inline void mutex_give(struct mutex *mutex)
{
	rank_given(mutex);
	pthread_mutex_unlock(&mutex->pthread);
}

/* Gives it back while the condition is waited for, and takes it again. */
static inline void mutex_wait(struct mutex *mutex, pthread_cond_t *condition) REQUIRES(*mutex);
static inline void mutex_wait(struct mutex *mutex, pthread_cond_t *condition)
{
	sys_cond_wait(condition,
		      &mutex->pthread); /* no cancellation: it would leave the mutex taken */
}

static inline void rwlock_init(struct rwlock *rwlock, enum lock_rank rank)
{
	pthread_rwlock_init(&rwlock->pthread, NULL);
	rank_forget(rwlock);
#ifdef VERBENA_LOCK_RANKS
	rwlock->rank = (uint8_t)rank;
#else
	(void)rank;
#endif
}

static inline void rwlock_read(struct rwlock *rwlock)
	ACQUIRE_SHARED(*rwlock) NO_THREAD_SAFETY_ANALYSIS;
static inline void rwlock_read(struct rwlock *rwlock)
{
	rank_check(rwlock, (enum lock_rank)rwlock->rank);
	pthread_rwlock_rdlock(&rwlock->pthread);
	rank_taken(rwlock, (enum lock_rank)rwlock->rank);
}

static inline void rwlock_write(struct rwlock *rwlock) ACQUIRE(*rwlock) NO_THREAD_SAFETY_ANALYSIS;
static inline void rwlock_write(struct rwlock *rwlock)
{
	rank_check(rwlock, (enum lock_rank)rwlock->rank);
	pthread_rwlock_wrlock(&rwlock->pthread);
	rank_taken(rwlock, (enum lock_rank)rwlock->rank);
}

static inline void rwlock_give(struct rwlock *rwlock)
	RELEASE_ANY(*rwlock) NO_THREAD_SAFETY_ANALYSIS;
static inline void rwlock_give(struct rwlock *rwlock)
{
	rank_given(rwlock);
	pthread_rwlock_unlock(&rwlock->pthread);
}

#endif
