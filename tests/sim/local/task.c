/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the simulated processes, as coroutines with stacks of their own. task_yield() picks
 * the next one by the seed: any that can run (WALK_EVEN), mostly the same one (WALK_STICKY), or the
 * one with the highest priority, where priorities change at few random steps (WALK_PRIORITIES).
 * When none can run, the clock jumps to the next moment at which one can.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "sim_local.h"

enum {
	STACK = 64 * 1024,
	STEPS_MAX = 3000000,
	HOSTILE_STEPS = 20000,
	STEP_NS = 60,
};
#define TIME_MAX_NS 120000000000ull /* after the last fault */

static _Alignas(64) uint8_t stacks[PROCESSES * THREADS][STACK];
static void *home[5];
static struct task *current;

/* ------------------------------------------------------------------ switching */

/* The address sanitizer must know on which stack a thread runs. It doesn't while a stack is
 * switched, so the functions that switch aren't instrumented. */
#ifdef __clang__ /* clones nothing */
#define LEAVES_STACK __attribute__((noinline, no_sanitize("address")))
#else
#define LEAVES_STACK __attribute__((noinline, noclone, no_sanitize("address")))
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

static const void *home_stack;
static size_t home_size;

static void leave_stack(void **fake, const struct task *to)
{
	const void *stack = to ? stacks[to->process->number * THREADS + to->number] : home_stack;

	__sanitizer_start_switch_fiber(fake, stack, to ? STACK : home_size);
}

/* Clears what a thread of the last run left on its stack. */
static void clean_stack(const void *stack)
{
	__asan_unpoison_memory_region(stack, STACK);
}

static void enter_stack(void *fake)
{
	const void *stack;
	size_t size;

	__sanitizer_finish_switch_fiber(fake, &stack, &size);
	if (!home_stack)
		home_stack = stack, home_size = size;
}
#else
static void leave_stack(void **fake, const struct task *to)
{
	(void)fake;
	(void)to;
}

static void clean_stack(const void *stack)
{
	(void)stack;
}

static void enter_stack(void *fake)
{
	(void)fake;
}
#endif

static LEAVES_STACK void jump(void **place)
{
	__builtin_longjmp(place, 1);
}

static LEAVES_STACK void task_start(struct task *task)
{
	static ucontext_t fresh;

	task->started = true;
	clean_stack(stacks[task->process->number * THREADS + task->number]);
	getcontext(&fresh);
	fresh.uc_stack.ss_sp = stacks[task->process->number * THREADS + task->number];
	fresh.uc_stack.ss_size = STACK;
	fresh.uc_link = NULL;
	makecontext(&fresh, (void (*)(void))task->body, 1, task);
	setcontext(&fresh);
}

static LEAVES_STACK void switch_from(void **from, struct task *to)
{
	totals.switches++;
	current = to;
	void *volatile fake = NULL;

	leave_stack((void **)&fake, to);
	if (__builtin_setjmp(from)) {
		enter_stack(fake);
		return;
	}
	if (!to)
		jump(home);
	else if (to->started)
		jump(to->place);
	else
		task_start(to);
	/* So that task_start() isn't called with this frame given up already, as clang 19 does: the
	 * frame is where `from` leads to. */
	fake = NULL;
}

struct task *task_self(void)
{
	return current;
}

/* ------------------------------------------------------------------ choosing */

static bool can_run(struct task *task)
{
	const struct process *p = task->process;

	if (task->done || p->dead || p->stopped)
		return false;
	return !task->waiting || sim.now >= task->wake_at ||
	       (task->ready && task->ready(task->arg));
}

static struct task *choose(struct task **list, uint32_t n)
{
	struct task *best = list[0];

	switch (sim.plan.walk) {
	case WALK_STICKY:
		for (uint32_t i = 0; i < n; i++)
			if (list[i] == current && !rng_chance(&sim.rng, sim.plan.switch_chance))
				return current;
		break;
	case WALK_PRIORITIES:
		for (uint32_t i = 1; i < n; i++)
			if (list[i]->priority > best->priority)
				best = list[i];
		if (rng_chance(&sim.rng, sim.plan.switch_chance))
			best->priority = (uint32_t)rng_next(&sim.rng) & 0xffff;
		return best;
	case WALK_EVEN:
		break;
	}
	return list[n == 1 ? 0 : rng_below(&sim.rng, n)];
}

static void end_process(struct process *p)
{
	trace("process %u is killed", p->number);
	p->dead = true;
	totals.kills++;
	sim.last_fault = sim.now;
	sim.disturbed = ~0u;
	daemon_death(p);
}

/* Executes the plan's faults for this step. */
static void play_faults(void)
{
	const struct plan *plan = &sim.plan;

	if (plan->kill && sim.step == plan->kill_at)
		end_process(&sim.process[plan->kill - 1]);
	if (plan->stop && sim.step == plan->stop_at && !sim.process[plan->stop - 1].dead) {
		struct process *p = &sim.process[plan->stop - 1];

		trace("process %u is stopped", p->number);
		p->stopped = true;
		p->stopped_until = sim.now + plan->stop_ns;
		sim.last_fault = p->stopped_until;
		sim.disturbed = ~0u;
		totals.stops++;
	}
	for (uint32_t i = 0; i < CUTS; i++)
		if (plan->cut_at[i] && sim.step == plan->cut_at[i])
			daemon_cut(i % plan->processes, (i + 1) % plan->processes);
}

static void let_go_on(void)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++) {
		struct process *p = &sim.process[i];

		if (p->stopped && sim.now >= p->stopped_until) {
			trace("process %u goes on", i);
			p->stopped = false;
		}
	}
}

/* When something can happen next, if no thread can run now. */
static uint64_t next_moment(uint64_t next)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++) {
		struct process *p = &sim.process[i];

		if (p->dead)
			continue;
		if (p->stopped) {
			next = p->stopped_until < next ? p->stopped_until : next;
			continue;
		}
		for (uint32_t k = 0; k < THREADS; k++)
			if (p->task[k].waiting && !p->task[k].done && p->task[k].wake_at < next)
				next = p->task[k].wake_at;
	}
	return next;
}

static void no_progress(const char *why)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 0; k < THREADS; k++) {
			const struct task *t = &sim.process[i].task[k];

			if (t->body)
				printf("  process %u thread %u: %s%s%s%s\n", i, k,
				       sim.process[i].dead ? "dead, " : "", t->done ? "done" : "",
				       t->done	    ? ""
				       : t->waiting ? "waits: "
						    : "runs: ",
				       t->done ? "" : t->where);
		}
	oracle_print_open();
	fail("no progress: %s", why);
}

static struct task *next_task(void)
{
	struct task *list[PROCESSES * THREADS];

	for (;;) {
		uint32_t n = 0;
		uint64_t next;

		if (sim.over)
			return NULL;
		sim.now += STEP_NS;
		/* With a hostile process only safety is guaranteed, not progress. */
		if (++sim.step > HOSTILE_STEPS && sim.plan.hostile)
			return NULL;
		if (sim.step > STEPS_MAX)
			no_progress("too many steps");
		if (sim.now > sim.last_fault + TIME_MAX_NS && !sim.plan.hostile)
			no_progress("too much time");
		play_faults();
		next = daemon_run();
		let_go_on();
		for (uint32_t i = 0; i < sim.plan.processes; i++)
			for (uint32_t k = 0; k < THREADS; k++)
				if (sim.process[i].task[k].body && can_run(&sim.process[i].task[k]))
					list[n++] = &sim.process[i].task[k];
		if (n)
			return choose(list, n);
		next = next_moment(next);
		if (next == UINT64_MAX)
			return NULL;
		sim.now = next > sim.now ? next : sim.now;
	}
}

static void go_on(struct task *task)
{
	struct task *next = next_task();

	totals.steps++;
	if (next)
		next->waiting = false;
	if (next != task)
		switch_from(task->place, next);
}

void task_yield(const char *where)
{
	struct task *task = current;

	if (!task || sim.in_child)
		return;
	task->where = where;
	trace("  %s", where);
	go_on(task);
}

void task_wait(bool (*ready)(void *arg), void *arg, uint64_t wake_at, const char *where)
{
	struct task *task = current;

	if (sim.in_child && wake_at == UINT64_MAX)
		fail("a forked child waits for its parent (%s)", where);
	if (sim.in_child)
		return;
	task->where = where;
	task->ready = ready;
	task->arg = arg;
	task->wake_at = wake_at;
	task->waiting = true;
	go_on(task);
	task->ready = NULL;
	task->waiting = false;
}

/* ------------------------------------------------------------------ locks */

static bool is_free(void *arg)
{
	return !((struct mutex *)arg)->holder;
}

void mutex_take(struct mutex *mutex)
{
	task_yield("lock");
	if (mutex->holder == current)
		fail("a lock is taken twice");
	while (mutex->holder)
		task_wait(is_free, mutex, UINT64_MAX, "waits for a lock");
	mutex->holder = current;
}

bool mutex_try(struct mutex *mutex)
{
	if (mutex->holder)
		return false;
	mutex->holder = current;
	return true;
}

void mutex_give(struct mutex *mutex)
{
	if (mutex->holder != current)
		fail("a lock is given that isn't held");
	mutex->holder = NULL;
	task_yield("unlock");
}

/* ------------------------------------------------------------------ runs */

static void engine_main(struct task *task)
{
	enter_stack(NULL);
	engine_body(task);
}

static void program_main(struct task *task)
{
	enter_stack(NULL);
	program_body(task);
	task->done = true;
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 1; k < THREADS; k++)
			if (sim.process[i].task[k].body && !sim.process[i].task[k].done &&
			    !sim.process[i].dead)
				goto others;
	sim.over = true;
others:
	go_on(task);
	abort();
}

void tasks_init(void)
{
	current = NULL;
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 0; k <= sim.plan.programs; k++)
			sim.process[i].task[k] = (struct task){
				.process = &sim.process[i],
				.number = k,
				.priority = (uint32_t)rng_next(&sim.rng) & 0xffff,
				.body = k ? program_main : engine_main,
				.where = "begins",
			};
}

void tasks_run(void)
{
	struct task *first = next_task();

	if (first)
		switch_from(home, first);
	current = NULL;
}

/* ------------------------------------------------------------------ words */

static void say(const char *format, va_list args)
{
	printf("%7u %12llu ", sim.step, (unsigned long long)sim.now);
	if (current)
		printf("%u.%u ", current->process->number, current->number);
	else
		printf("-   ");
	vprintf(format, args);
	printf("\n");
}

void trace_print(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("seed %llu:\n", (unsigned long long)sim.plan.seed);
	say(format, args);
	va_end(args);
	plan_print(&sim.plan);
	fflush(stdout);
	exit(1);
}
