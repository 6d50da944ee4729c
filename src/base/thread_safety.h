/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which lock guards what, for clang's -Wthread-safety (tools/check-thread-safety): words behind a
 * field or a function's declaration. For other compilers they are nothing. On fields of structures
 * they need clang 20 with -fexperimental-late-parse-attributes; VERBENA_THREAD_SAFETY says that it
 * is that.
 *
 *   struct queue {
 *           struct lock lock;
 *           struct list events GUARDED_BY(lock);
 *   };
 *   static void forget(struct queue *queue) REQUIRES(queue->lock);
 *
 * What the analysis can't see (a lock that another function took through a pointer that it can't
 * follow) is said by ASSERT_HELD functions, which check it in the build with lock ranks.
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
/* A field, or a variable: read and written with the lock held. */
#define GUARDED_BY(lock) THREAD_SAFETY(guarded_by(&lock))
/* What a pointer points to. */
#define PT_GUARDED_BY(lock) THREAD_SAFETY(pt_guarded_by(&lock))
/* A function: its caller holds the lock; doesn't hold it. */
#define REQUIRES(...) THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) THREAD_SAFETY(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...) THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/* A function takes it; gives it back; takes it if it returns `result`. */
#define ACQUIRE(...) THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) THREAD_SAFETY(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...) THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
#define RELEASE_ANY(...) THREAD_SAFETY(release_generic_capability(__VA_ARGS__))
#define TRY_ACQUIRE(result, ...) THREAD_SAFETY(try_acquire_capability(result, __VA_ARGS__))
/* A function: from here on the lock counts as held. */
#define ASSERT_HELD(...) THREAD_SAFETY(assert_capability(__VA_ARGS__))
/* The body is not looked at. Each has its reason beside it. */
#define NO_THREAD_SAFETY_ANALYSIS THREAD_SAFETY(no_thread_safety_analysis)

#endif
