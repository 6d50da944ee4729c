/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All executions of a scenario, depth first: a stack of choices, each of which is a thread to run
 * or a message for a load to return. Each execution starts anew and follows the stack as far as it
 * goes; then the last choice that has an untried possibility takes it.
 *
 * Sleep sets: after one thread's step has been tried at some point, it needn't be tried again after
 * steps of others that are independent of it (Godefroid).
 */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { CHOICES = 4000, STEPS = 2000, STACK_BYTES = 256 * 1024 };
#define EXECUTIONS_MAX 20000000ull

struct choice {
	bool is_thread;
	unsigned int taken, count; /* of a load: which, of how many. Of threads: which */
	unsigned int sleeping;	   /* threads, as bits: tried before this point */
	unsigned int tried;	   /* threads: tried here */
};

static struct {
	const struct model_scenario *scenario;
	struct choice stack[CHOICES];
	unsigned int depth, used; /* of this execution; of the stack */
	struct step step[MODEL_THREADS];
	unsigned int threads, sleeping;
	jmp_buf scheduler, coroutine[MODEL_THREADS];
	ucontext_t begin[MODEL_THREADS], back;
	bool failed, pruned;
	struct model_result result;
} e;

static char stacks[MODEL_THREADS][STACK_BYTES] __attribute__((aligned(64)));
int explore_thread = -1;
const struct model_site *model_weakened;
enum model_weakening model_weakening;

int model_thread(void)
{
	return explore_thread;
}

void model_fail(const char *format, ...)
{
	va_list args;

	if (!e.failed) {
		va_start(args, format);
		vsnprintf(e.result.message, sizeof(e.result.message), format, args);
		va_end(args);
	}
	e.failed = true;
	if (explore_thread >= 0)
		_longjmp(e.scheduler, 1);
}

static struct choice *next_choice(void)
{
	if (e.depth == CHOICES) {
		fprintf(stderr, "weak: %s: more than %d choices\n", e.scenario->name, CHOICES);
		abort();
	}
	return &e.stack[e.depth++];
}

unsigned int explore_choose(unsigned int count)
{
	if (count < 2)
		return 0;
	struct choice *c = next_choice();

	if (e.depth > e.used) {
		*c = (struct choice){.count = count};
		e.used = e.depth;
	}
	return c->taken;
}

void explore_step(struct step step)
{
	if (explore_thread < 0)
		return;
	e.step[explore_thread] = step;
	if (!_setjmp(e.coroutine[explore_thread]))
		_longjmp(e.scheduler, 1);
}

static void coroutine(void)
{
	e.scenario->thread[explore_thread]();
	explore_step((struct step){.kind = STEP_END});
	abort();
}

/* Runs a thread up to its next step. */
static void go_on(int thread, bool first)
{
	explore_thread = thread;
	if (!_setjmp(e.scheduler)) {
		if (!first)
			_longjmp(e.coroutine[thread], 1);
		getcontext(&e.begin[thread]);
		e.begin[thread].uc_stack.ss_sp = stacks[thread];
		e.begin[thread].uc_stack.ss_size = STACK_BYTES;
		e.begin[thread].uc_link = NULL;
		makecontext(&e.begin[thread], coroutine, 0);
		setcontext(&e.begin[thread]);
	}
	explore_thread = -1;
}

static bool is_memory(const struct step *s)
{
	return s->kind == STEP_LOAD || s->kind == STEP_STORE;
}

/* Whether the order of the two steps has no effect. */
static bool independent(const struct step *a, const struct step *b)
{
	if (a->kind == STEP_YIELD || b->kind == STEP_YIELD || a->kind == STEP_BARRIER ||
	    b->kind == STEP_BARRIER)
		return false;
	if (a->kind == STEP_FENCE || b->kind == STEP_FENCE)
		return !(a->ordered && b->ordered);
	if (is_memory(a) != is_memory(b))
		return true;
	if (a->what != b->what)
		return true;
	if (a->kind == STEP_LOAD && b->kind == STEP_LOAD)
		return !(a->ordered && b->ordered);
	return false;
}

static unsigned int enabled_threads(void)
{
	unsigned int enabled = 0;

	for (unsigned int t = 0; t < e.threads; t++)
		if (e.step[t].kind != STEP_END && model_enabled(t, &e.step[t]))
			enabled |= 1u << t;
	return enabled;
}

/* Chooses the thread to run; -1: no untried one is left. */
static int choose_thread(unsigned int enabled)
{
	if (!(enabled & ~e.sleeping)) {
		e.pruned = true;
		return -1;
	}
	struct choice *c = next_choice();

	if (e.depth > e.used) {
		*c = (struct choice){.is_thread = true,
				     .taken = (unsigned int)__builtin_ctz(enabled & ~e.sleeping),
				     .sleeping = e.sleeping};
		c->count = enabled;
		e.used = e.depth;
	}
	unsigned int asleep = 0;

	for (unsigned int t = 0; t < e.threads; t++)
		if ((c->sleeping | c->tried) & 1u << t &&
		    independent(&e.step[t], &e.step[c->taken]))
			asleep |= 1u << t;
	e.sleeping = asleep;
	return (int)c->taken;
}

static void check_end(void)
{
	for (unsigned int t = 0; t < e.threads; t++)
		if (e.step[t].kind != STEP_END) {
			model_fail("thread %u waits for ever", t);
			return;
		}
	if (e.scenario->check)
		e.scenario->check();
}

static void run_once(void)
{
	e.depth = 0;
	e.sleeping = 0;
	e.failed = e.pruned = false;
	model_reset();
	e.scenario->setup();
	for (unsigned int t = 0; t < e.threads && !e.failed; t++)
		go_on((int)t, true);
	for (unsigned int steps = 0; !e.failed; steps++) {
		unsigned int enabled = enabled_threads();
		int thread = enabled ? choose_thread(enabled) : -1;

		if (!enabled)
			check_end();
		if (thread < 0)
			return;
		if (steps == STEPS)
			model_fail("doesn't end");
		else
			go_on(thread, false);
	}
}

/* Advances the last choice that has an untried possibility. False: all have been tried. */
static bool next_execution(void)
{
	for (e.used = e.depth; e.used; e.used--) {
		struct choice *c = &e.stack[e.used - 1];

		if (!c->is_thread) {
			if (++c->taken < c->count)
				return true;
			continue;
		}
		c->tried |= 1u << c->taken;
		unsigned int left = c->count & ~c->tried & ~c->sleeping;

		if (left) {
			c->taken = (unsigned int)__builtin_ctz(left);
			return true;
		}
	}
	return false;
}

struct model_result model_explore(const struct model_scenario *scenario,
				  const struct model_site *weakened, enum model_weakening weakening,
				  bool verbose)
{
	memset(&e.result, 0, sizeof(e.result));
	e.scenario = scenario;
	e.used = 0;
	model_weakened = weakened;
	model_weakening = weakening;
	for (e.threads = 0; e.threads < MODEL_THREADS && scenario->thread[e.threads];)
		e.threads++;
	do {
		run_once();
		e.result.executions += !e.pruned;
		if (e.failed && verbose)
			model_trace_print();
		if (e.result.executions > EXECUTIONS_MAX && !e.failed)
			model_fail("more executions than this is made for");
	} while (!e.failed && next_execution());
	e.result.failed = e.failed;
	model_weakened = NULL;
	return e.result;
}
