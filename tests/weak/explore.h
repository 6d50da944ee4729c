/* SPDX-License-Identifier: BSD-2-Clause */
/* The interface between the two halves of the model checker: explore.c chooses the next step,
 * model.c executes it. */
#ifndef VERBENA_TESTS_WEAK_EXPLORE_H
#define VERBENA_TESTS_WEAK_EXPLORE_H

#include "model.h"

/* The next step of a thread; threads are switched only before a step. */
enum step_kind {
	STEP_LOAD,
	STEP_STORE, /* also read-modify-write */
	STEP_FENCE,
	STEP_BARRIER, /* of all threads */
	STEP_LOCK,
	STEP_EVENT_SET,
	STEP_EVENT_WAIT,
	STEP_YIELD,
	STEP_END,
};

struct step {
	enum step_kind kind;
	const volatile void *what; /* the word, lock or event */
	bool ordered;		   /* seq_cst */
};

/* Returns when it is this thread's turn. */
void explore_step(struct step step);
/* Returns one of `count` possibilities, each in some execution. */
unsigned int explore_choose(unsigned int count);
/* The coroutine that runs; -1: setup or check. */
extern int explore_thread;

/* Whether the next step of `thread` is possible now. */
bool model_enabled(int thread, const struct step *step);
void model_reset(void);
void model_trace_print(void);
extern const struct model_site *model_weakened;
extern enum model_weakening model_weakening;

#endif
