/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Annotations for clang's -Wthread-safety (tools/check-thread-safety): they state on a field or a
 * function's declaration which lock guards it. Other compilers ignore them. On structure fields
 * they need clang 20 with -fexperimental-late-parse-attributes; VERBENA_THREAD_SAFETY is defined
 * there.
 *
 *   struct queue {
 *           struct lock lock;
 *           struct list events GUARDED_BY(lock);
 *   };
 *   static void forget(struct queue *queue) REQUIRES(queue->lock);
 *
 * Where the analysis can't see that a lock is held (another function took it through a pointer that
 * can't be followed), the code calls an ASSERT_HELD function, which checks it in the build with
 * lock ranks.
 */
#ifndef VERBENA_BASE_THREAD_SAFETY_H
#define VERBENA_BASE_THREAD_SAFETY_H

#ifdef VERBENA_THREAD_SAFETY
#define THREAD_SAFETY(x) __attribute__((x))
#else
#define THREAD_SAFETY(x)
#endif

/* A type that is a lock. */
#define CAPABILITY(name) THREAD_SAFETY(capability(name))
/* A field or variable that is read and written with the lock held. */
#define GUARDED_BY(lock) THREAD_SAFETY(guarded_by(&lock))
/* A pointer whose target is accessed with the lock held. */
#define PT_GUARDED_BY(lock) THREAD_SAFETY(pt_guarded_by(&lock))
/* A function whose caller holds the lock; whose caller doesn't hold it. */
#define REQUIRES(...) THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) THREAD_SAFETY(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/* A function that takes the lock; releases it; takes it if it returns `result`. */
#define ACQUIRE(...) THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) THREAD_SAFETY(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
#define RELEASE_ANY(...) THREAD_SAFETY(release_generic_capability(__VA_ARGS__))
#define TRY_ACQUIRE(result, ...) THREAD_SAFETY(try_acquire_capability(result, __VA_ARGS__))
/* A function after which the lock counts as held. */
#define ASSERT_HELD(...) THREAD_SAFETY(assert_capability(__VA_ARGS__))
/* The function's body isn't analysed. Each use states its reason. */
#define NO_THREAD_SAFETY_ANALYSIS THREAD_SAFETY(no_thread_safety_analysis)

#endif
