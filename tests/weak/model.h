/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A model checker for the shared-memory protocol under C11's memory model.
 *
 * The real source is compiled so that each atomic operation, each plain access, each lock and each
 * system call that blocks comes here (replace.h; GCC's instrumentation for its thread sanitizer).
 * A scenario has a setup and two to four threads of a few operations. model_explore() runs it again
 * and again as coroutines, depth first, until each interleaving of the operations and each value
 * that a load may return has been tried (sleep sets leave out interleavings that differ in the
 * order of independent operations only).
 *
 * The model: each store to an atomic word is a message that stays. A thread has a view: for each
 * word, the oldest message that it may still read. A load may return any message that isn't older;
 * an acquire load of a release store's message joins the storing thread's view. A sequentially
 * consistent (seq_cst) operation or fence also joins, and adds to, one view that all share. So
 * acquire, release and seq_cst are as weak as C11 allows, weaker than x86 and aarch64. A plain
 * access that isn't ordered after (happens-before) a conflicting one by another thread is a data
 * race, and fails the scenario; where there is none its value is the only possible one.
 *
 * Not in the model: a load that returns a value stored later in program order's dependent past
 * (load buffering; a race report stands in for it), and stores to one word that take effect in
 * another order than they were executed.
 *
 * Words that weren't named by model_word() are accessed as they are, without a choice: a scenario
 * names what its threads share.
 */
#ifndef VERBENA_TESTS_WEAK_MODEL_H
#define VERBENA_TESTS_WEAK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_THREADS = 4, MODEL_WORDS = 32, MODEL_EVENTS = 4 };

/* A place in the source with an atomic operation. `label` is the one in its comment, such as
 * "R1". */
struct model_site {
	const char *file;
	int line;
	bool resolved, is_seq_cst;
	char label[8];
	struct model_site *next; /* in the list of labelled sites */
};

struct model_scenario {
	const char *name;
	void (*setup)(void); /* sets the initial state; names words and memory */
	void (*thread[MODEL_THREADS])(void);
	void (*check)(void); /* at the end; may be NULL */
};

struct model_result {
	uint64_t executions;
	bool failed;
	char message[200];
};

enum model_weakening { MODEL_AS_IT_IS, MODEL_RELAXED, MODEL_ACQUIRE_RELEASE };

/* Explores all executions of the scenario, until one fails. The operations of the site `weakened`
 * (NULL: none) have that weaker order; a relaxed fence has no effect. `verbose`: prints the
 * execution that fails. */
struct model_result model_explore(const struct model_scenario *scenario,
				  const struct model_site *weakened, enum model_weakening weakening,
				  bool verbose);
/* The labelled sites that any scenario has reached. */
struct model_site *model_sites(void);

/* For scenarios: setup. */
void model_word(volatile void *word, size_t size, const char *name);
void model_memory(const volatile void *start, size_t bytes); /* races on it are reported */

/* For scenarios: threads and checks. */
int model_thread(void);
void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* An eventfd: a counter that a waiter takes. The system calls order memory as a lock does. */
void model_event_set(unsigned int event);
void model_event_wait(unsigned int event);
/* One pass of a loop that waits for another thread: continues after a store by another thread. */
void model_yield(void);
/* membarrier(): a full barrier in each thread, between two of its operations. */
void model_barrier_everywhere(void);

/* Called by replace.h. Orders are those of <stdatomic.h>. */
uint64_t model_load(struct model_site *site, const volatile void *word, size_t size, int order);
void model_store(struct model_site *site, volatile void *word, size_t size, uint64_t value,
		 int order);
enum model_operation { MODEL_EXCHANGE, MODEL_ADD, MODEL_SUB, MODEL_OR, MODEL_AND };
uint64_t model_rmw(struct model_site *site, volatile void *word, size_t size,
		   enum model_operation operation, uint64_t value, int order);
bool model_cas(struct model_site *site, volatile void *word, size_t size, void *expected,
	       uint64_t value, int order);
void model_fence(struct model_site *site, int order);
void *model_memcpy(void *to, const void *from, size_t bytes);
void *model_memset(void *to, int value, size_t bytes);
void model_lock(const volatile void *lock);
bool model_trylock(const volatile void *lock);
void model_unlock(const volatile void *lock);

#endif
