/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the two halves of the model checker: explore.c decides what happens next, model.c what it
 * does to memory. */
#ifndef VERBENA_TESTS_WEAK_EXPLORE_H
#define VERBENA_TESTS_WEAK_EXPLORE_H

#include "model.h"

/* What a thread is about to do; threads change places only before such a step. */
enum step_kind {
	STEP_LOAD,
	STEP_STORE, /* also read-modify-write */
	STEP_FENCE,
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
/* One of `count` possibilities, each in some execution. */
unsigned int explore_choose(unsigned int count);
/* The coroutine that runs; -1: setup or check. */
extern int explore_thread;

/* Whether the step of `thread` can be done now. */
bool model_enabled(int thread, const struct step *step);
void model_reset(void);
void model_trace_print(void);
extern const struct model_site *model_weakened;
extern enum model_weakening model_weakening;

#endif
