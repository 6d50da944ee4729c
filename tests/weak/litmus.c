/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The checker's own test: the classic litmus tests, whose outcomes under C11 are known. A scenario
 * whose name ends in "!" must fail: the outcome that it looks for is allowed.
 */
#include "scenarios.h"

static _Atomic uint32_t x, y;
static uint32_t data, seen[4];

static void setup(void)
{
	atomic_store(&x, 0);
	atomic_store(&y, 0);
	data = 0;
	for (unsigned int i = 0; i < 4; i++)
		seen[i] = 9;
	model_word(&x, sizeof(x), "x");
	model_word(&y, sizeof(y), "y");
	model_memory(&data, sizeof(data));
}

/* Store buffering: each thread stores to its own word, then reads the other's. */
#define SB(name, store, fence, load)                      \
	static void sb0_##name(void)                      \
	{                                                 \
		atomic_store_explicit(&x, 1, store);      \
		fence;                                    \
		seen[0] = atomic_load_explicit(&y, load); \
	}                                                 \
	static void sb1_##name(void)                      \
	{                                                 \
		atomic_store_explicit(&y, 1, store);      \
		fence;                                    \
		seen[1] = atomic_load_explicit(&x, load); \
	}
SB(relaxed, memory_order_relaxed, , memory_order_relaxed)
SB(acquire, memory_order_release, , memory_order_acquire)
SB(half, memory_order_seq_cst, , memory_order_acquire)
SB(ordered, memory_order_seq_cst, , memory_order_seq_cst)
SB(weak_fence, memory_order_relaxed, atomic_thread_fence(memory_order_acq_rel),
   memory_order_relaxed)
SB(fence, memory_order_relaxed, atomic_thread_fence(memory_order_seq_cst), memory_order_relaxed)

/* One side has a fence, the other seq_cst accesses. */
static void sb_check(void)
{
	if (!seen[0] && !seen[1])
		model_fail("neither saw the other");
}

/* Message passing. */
#define MP(name, before, store, load, after)         \
	static void mp0_##name(void)                 \
	{                                            \
		data = 1;                            \
		before;                              \
		atomic_store_explicit(&x, 1, store); \
	}                                            \
	static void mp1_##name(void)                 \
	{                                            \
		if (!atomic_load_explicit(&x, load)) \
			return;                      \
		after;                               \
		seen[0] = data;                      \
	}
MP(relaxed, , memory_order_relaxed, memory_order_relaxed, )
MP(no_acquire, , memory_order_release, memory_order_relaxed, )
MP(no_release, , memory_order_relaxed, memory_order_acquire, )
MP(ordered, , memory_order_release, memory_order_acquire, )
MP(fences, atomic_thread_fence(memory_order_release), memory_order_relaxed, memory_order_relaxed,
   atomic_thread_fence(memory_order_acquire))

/* Load buffering as a race: the read must happen before the other thread overwrites. */
static void lb0_relaxed(void)
{
	seen[0] = data;
	atomic_store_explicit(&x, 1, memory_order_relaxed);
}

static void lb0_release(void)
{
	seen[0] = data;
	atomic_store_explicit(&x, 1, memory_order_release);
}

static void lb1(void)
{
	if (atomic_load_explicit(&x, memory_order_acquire))
		data = 1;
}

/* Independent reads of independent writes. */
static void write_x(void)
{
	atomic_store(&x, 1);
}

static void write_y(void)
{
	atomic_store(&y, 1);
}

#define IRIW(name, load)                                  \
	static void iriw0_##name(void)                    \
	{                                                 \
		seen[0] = atomic_load_explicit(&x, load); \
		seen[1] = atomic_load_explicit(&y, load); \
	}                                                 \
	static void iriw1_##name(void)                    \
	{                                                 \
		seen[2] = atomic_load_explicit(&y, load); \
		seen[3] = atomic_load_explicit(&x, load); \
	}
IRIW(acquire, memory_order_acquire)
IRIW(ordered, memory_order_seq_cst)

static void iriw_check(void)
{
	if (seen[0] == 1 && seen[1] == 0 && seen[2] == 1 && seen[3] == 0)
		model_fail("the two stores were seen in both orders");
}

/* Coherence: a thread never reads an older value after a newer one. */
static void read_twice(void)
{
	seen[0] = atomic_load_explicit(&x, memory_order_relaxed);
	seen[1] = atomic_load_explicit(&x, memory_order_relaxed);
	if (seen[0] > seen[1])
		model_fail("a word went back");
}

static void write_twice(void)
{
	atomic_store_explicit(&x, 1, memory_order_relaxed);
	atomic_store_explicit(&x, 2, memory_order_relaxed);
}

/* No read-modify-write is lost, and a lock orders what is done under it. */
static void add(void)
{
	atomic_fetch_add_explicit(&x, 1, memory_order_relaxed);
}

static void add_check(void)
{
	if (atomic_load(&x) != 3)
		model_fail("an addition was lost");
}

static void add_locked(void)
{
	model_lock(&y);
	data++;
	model_unlock(&y);
}

static void wait_for_bell(void)
{
	model_event_wait(0);
}

static void spin(void)
{
	while (!atomic_load_explicit(&x, memory_order_relaxed))
		model_yield();
}

const struct model_scenario litmus_scenarios[] = {
	{"sb.relaxed!", setup, {sb0_relaxed, sb1_relaxed}, sb_check},
	{"sb.acquire!", setup, {sb0_acquire, sb1_acquire}, sb_check},
	{"sb.half!", setup, {sb0_half, sb1_ordered}, sb_check},
	{"sb.weak_fence!", setup, {sb0_weak_fence, sb1_weak_fence}, sb_check},
	{"sb.ordered", setup, {sb0_ordered, sb1_ordered}, sb_check},
	{"sb.fence", setup, {sb0_fence, sb1_fence}, sb_check},
	{"sb.mixed", setup, {sb0_fence, sb1_ordered}, sb_check},
	{"mp.relaxed!", setup, {mp0_relaxed, mp1_relaxed}, NULL},
	{"mp.no_acquire!", setup, {mp0_no_acquire, mp1_no_acquire}, NULL},
	{"mp.no_release!", setup, {mp0_no_release, mp1_no_release}, NULL},
	{"mp.ordered", setup, {mp0_ordered, mp1_ordered}, NULL},
	{"mp.fences", setup, {mp0_fences, mp1_fences}, NULL},
	{"lb.relaxed!", setup, {lb0_relaxed, lb1}, NULL},
	{"lb.release", setup, {lb0_release, lb1}, NULL},
	{"iriw.acquire!", setup, {write_x, write_y, iriw0_acquire, iriw1_acquire}, iriw_check},
	{"iriw.ordered", setup, {write_x, write_y, iriw0_ordered, iriw1_ordered}, iriw_check},
	{"coherence", setup, {write_twice, read_twice}, NULL},
	{"add", setup, {add, add, add}, add_check},
	{"locked", setup, {add_locked, add_locked, add_locked}, NULL},
	{"never_rung!", setup, {wait_for_bell, write_x}, NULL},
	{"spin", setup, {spin, write_x}, NULL},
	{"spin_for_ever!", setup, {spin, write_y}, NULL},
	{0},
};
