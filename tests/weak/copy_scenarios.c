/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the target's program sees of a copy and of an atomic operation, when it waits with atomic
 * operations of its own. Thread 0 is the initiator's, thread 1 the program's; of two atomic
 * operations each thread executes one.
 */
#include "scenarios.h"

#include "hca/mem/atomic.c"
#include "hca/mem/copy.c"
#include "hca/mem/streaming.c"

/* ------------------------------------------------------------------ the last byte last */

/* Races are detected per word, so the last byte has a word of its own. */
enum { BYTES = 17, LAST = BYTES - 1, SENT = 1 };

static uint8_t source[BYTES];
static _Alignas(64) uint8_t line[64];
/* Not aligned to a cache line: streaming stores aren't modelled. */
static uint8_t *const target = line + 16;

static void copy_setup(void)
{
	memset(source, SENT, sizeof(source));
	memset(target, 0, BYTES);
	model_memory(target, LAST);
	model_word(&target[LAST], 1, "last byte");
}

static void write_ordered_here(void)
{
	struct iovec from = {source, BYTES};

	if (!copy_gather_ordered(target, &from, 1, BYTES))
		model_fail("a copy between mapped pages fails");
}

static void write_far(void)
{
	struct iovec from = {source, BYTES};

	if (!gather_far(target, &from, 1, BYTES))
		model_fail("a copy between mapped pages fails");
}

static void look_at_last(void)
{
	if (atomic_load_explicit((_Atomic uint8_t *)&target[LAST], memory_order_acquire) == SENT &&
	    target[0] != SENT)
		model_fail("the last byte is there, and the first one isn't");
}

/* ------------------------------------------------------------------ atomic operations */

static _Atomic uint64_t words[2];
static uint64_t seen[2];
static bool swaps;

static void atomic_setup(void)
{
	for (int i = 0; i < 2; i++) {
		atomic_store(&words[i], 0);
		model_word(&words[i], 8, i ? "word 1" : "word 0");
		seen[i] = 0;
	}
}

static void add_setup(void)
{
	swaps = false;
	atomic_setup();
}

static void swap_setup(void)
{
	swaps = true;
	atomic_setup();
}

/* Changes its own word from 0 to 1, then reads the other's. */
static void change_and_look(int mine)
{
	const struct record_atomic op = {.operation = swaps ? RECORD_SWAP : RECORD_ADD,
					 .compare_add = swaps ? 0 : 1,
					 .swap = 1};
	uint64_t old;

	if (!atomic_execute((uintptr_t)&words[mine], &op, &old) || old)
		model_fail("an atomic operation on a word that is 0 gives %llu",
			   (unsigned long long)old);
	seen[mine] = atomic_load(&words[!mine]);
}

static void change_first(void)
{
	change_and_look(0);
}

static void change_second(void)
{
	change_and_look(1);
}

static void one_saw_the_other(void)
{
	if (!seen[0] && !seen[1])
		model_fail("neither atomic operation was before the other");
}

const struct model_scenario copy_scenarios[] = {
	{"copy.last", copy_setup, {write_ordered_here, look_at_last}, NULL},
	{"copy.far", copy_setup, {write_far, look_at_last}, NULL},
	{"atomic.add", add_setup, {change_first, change_second}, one_saw_the_other},
	{"atomic.swap", swap_setup, {change_first, change_second}, one_saw_the_other},
	{0},
};
