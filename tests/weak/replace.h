/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Included before everything else in each source file that the model checker runs: replaces atomic
 * operations, locks, and calls that wait by those of model.h. The system's declarations and lock.h
 * are included first, so that only uses in our source are renamed.
 */
#ifndef VERBENA_TESTS_WEAK_REPLACE_H
#define VERBENA_TESTS_WEAK_REPLACE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* MODEL_LOCKS: the source is the lock itself. */
#ifndef MODEL_LOCKS
#include "base/lock.h"
#endif
#include "model.h"

#define MODEL_SITE()                                                                        \
	({                                                                                  \
		static struct model_site model_here = {.file = __FILE__, .line = __LINE__}; \
		&model_here;                                                                \
	})
#define MODEL_TYPE(p) __typeof__((void)0, *(p))
#define MODEL_BITS(p, value)                                                      \
	({                                                                        \
		MODEL_TYPE(p) model_value = (value);                              \
		uint64_t model_bits = 0;                                          \
		__builtin_memcpy(&model_bits, &model_value, sizeof(model_value)); \
		model_bits;                                                       \
	})
#define MODEL_VALUE(p, bits)                                                      \
	({                                                                        \
		MODEL_TYPE(p) model_value;                                        \
		uint64_t model_bits = (bits);                                     \
		__builtin_memcpy(&model_value, &model_bits, sizeof(model_value)); \
		model_value;                                                      \
	})
#define MODEL_RMW(p, operation, value, order)                                  \
	MODEL_VALUE(p, model_rmw(MODEL_SITE(), (p), sizeof(*(p)), (operation), \
				 MODEL_BITS(p, value), (order)))

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit
#undef atomic_fetch_add
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_and
#undef atomic_thread_fence
#undef atomic_signal_fence

#define atomic_load_explicit(p, order) \
	MODEL_VALUE(p, model_load(MODEL_SITE(), (p), sizeof(*(p)), (order)))
#define atomic_load(p) atomic_load_explicit(p, memory_order_seq_cst)
#define atomic_store_explicit(p, value, order) \
	model_store(MODEL_SITE(), (p), sizeof(*(p)), MODEL_BITS(p, value), (order))
#define atomic_store(p, value) atomic_store_explicit(p, value, memory_order_seq_cst)
#define atomic_exchange_explicit(p, value, order) MODEL_RMW(p, MODEL_EXCHANGE, value, order)
#define atomic_exchange(p, value) MODEL_RMW(p, MODEL_EXCHANGE, value, memory_order_seq_cst)
#define atomic_fetch_add_explicit(p, value, order) MODEL_RMW(p, MODEL_ADD, value, order)
#define atomic_fetch_add(p, value) MODEL_RMW(p, MODEL_ADD, value, memory_order_seq_cst)
#define atomic_fetch_sub_explicit(p, value, order) MODEL_RMW(p, MODEL_SUB, value, order)
#define atomic_fetch_sub(p, value) MODEL_RMW(p, MODEL_SUB, value, memory_order_seq_cst)
#define atomic_fetch_or_explicit(p, value, order) MODEL_RMW(p, MODEL_OR, value, order)
#define atomic_fetch_and_explicit(p, value, order) MODEL_RMW(p, MODEL_AND, value, order)
#define atomic_fetch_or(p, value) MODEL_RMW(p, MODEL_OR, value, memory_order_seq_cst)
#define atomic_fetch_and(p, value) MODEL_RMW(p, MODEL_AND, value, memory_order_seq_cst)
#define atomic_compare_exchange_strong_explicit(p, expected, value, order, otherwise) \
	model_cas(MODEL_SITE(), (p), sizeof(*(p)), (expected), MODEL_BITS(p, value), (order))
#define atomic_compare_exchange_strong(p, expected, value)                                \
	atomic_compare_exchange_strong_explicit(p, expected, value, memory_order_seq_cst, \
						memory_order_seq_cst)
/* It may fail without a reason; the loops around it try again. */
#define atomic_compare_exchange_weak atomic_compare_exchange_strong
#define __atomic_store_n(p, value, order) atomic_store_explicit(p, value, order)
#define atomic_thread_fence(order) model_fence(MODEL_SITE(), (order))
#define atomic_signal_fence(order) ((void)(order)) /* coroutines run one step at a time */

#define memcpy model_memcpy
#define memset model_memset

#ifndef MODEL_LOCKS
#define lock_take model_lock
#define lock_try model_trylock
#define lock_give model_unlock
#endif
#define pthread_mutex_lock model_mutex_lock
#define pthread_mutex_trylock model_mutex_trylock
#define pthread_mutex_unlock model_mutex_unlock
#define sched_yield model_sched_yield
#define sys_nanosleep model_nanosleep
#define sys_write(fd, bytes, size) model_write(fd, bytes, size)

static inline int model_mutex_lock(pthread_mutex_t *mutex)
{
	model_lock(mutex);
	return 0;
}

static inline int model_mutex_trylock(pthread_mutex_t *mutex)
{
	model_lock(mutex);
	return 0;
}

static inline int model_mutex_unlock(pthread_mutex_t *mutex)
{
	model_unlock(mutex);
	return 0;
}

static inline int model_sched_yield(void)
{
	model_yield();
	return 0;
}

static inline int model_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)wanted, (void)left;
	model_yield();
	return 0;
}

/* Doorbells: the descriptor is the number of an event. */
static inline ssize_t model_write(int fd, const void *bytes, size_t size)
{
	(void)bytes;
	model_event_set((unsigned int)fd);
	return (ssize_t)size;
}

#endif
