/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pthread mutexes and read-write locks with a rank (lock_rank.h) and clang's annotations
 * (thread_safety.h), for locks off the fast path and those with a condition. pthread's errors are
 * ignored, because only an incorrect caller can cause them.
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

/* These functions implement the lock, so their bodies aren't analysed. */

/* Initialises the mutex of a new object. No other thread knows the object yet, so the analysis
 * counts the mutex as held for the rest of the calling function. */
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

/* For an object that no other thread knows (yet, or any more): the analysis counts its mutex as
 * held. There is no check at run time. */
static inline void mutex_assume_alone(struct mutex *mutex) ASSERT_HELD(*mutex);
static inline void mutex_assume_alone(struct mutex *mutex)
{
	(void)mutex;
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

/* Releases the mutex while waiting for the condition, and takes it again. */
static inline void mutex_wait(struct mutex *mutex, pthread_cond_t *condition) REQUIRES(*mutex);
static inline void mutex_wait(struct mutex *mutex, pthread_cond_t *condition)
{
	sys_cond_wait(condition,
		      &mutex->pthread); /* no cancellation, which would leave the mutex locked */
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
