/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks the order of locks, see lock_rank.h. Each thread records which locks it holds; no data is
 * shared or allocated.
 */
#include "base/lock_rank.h"

#ifdef VERBENA_LOCK_RANKS

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { HELD_MAX = 32 };

struct held {
	const void *lock;
	enum lock_rank rank;
};

static _Thread_local struct held held[HELD_MAX];
static _Thread_local unsigned int count;

#define LOCK_RANK_NAME(rank, name) [rank] = (name),
static const char *const names[] = {[RANK_NONE] = "(a lock without a rank)",
				    LOCK_RANKS(LOCK_RANK_NAME)};

static _Noreturn void lock_rank_abort(const char *what, enum lock_rank wanted, const char *behind)
{
	fprintf(stderr, "verbena: lock ranks: %s %s%s%s\n", what, names[wanted],
		behind ? " while holding " : "", behind ? behind : "");
	abort();
}

/* The program may hold the turns of several CQs and QPs at once, in the order that it likes. */
static bool is_turn(enum lock_rank rank)
{
	return rank == RANK_CQ_TURN || rank == RANK_QP_TURN;
}

void rank_check(const void *lock, enum lock_rank rank)
{
	if (rank == RANK_NONE)
		lock_rank_abort("takes", rank, NULL);
	for (unsigned int i = 0; i < count; i++) {
		if (held[i].lock == lock)
			lock_rank_abort("takes again", rank, NULL);
		if (held[i].rank > rank && !(is_turn(held[i].rank) && is_turn(rank)))
			lock_rank_abort("takes", rank, names[held[i].rank]);
		if (held[i].rank == rank && !is_turn(rank))
			lock_rank_abort("takes", rank, names[held[i].rank]);
	}
}

void rank_taken(const void *lock, enum lock_rank rank)
{
	if (count == HELD_MAX)
		lock_rank_abort("has too many locks to take", rank, NULL);
	held[count++] = (struct held){lock, rank};
}

void rank_forget(const void *lock)
{
	for (unsigned int i = count; i-- > 0;)
		if (held[i].lock == lock) {
			held[i] = held[--count];
			return;
		}
}

void rank_given(const void *lock)
{
	unsigned int before = count;

	rank_forget(lock);
	if (count != before)
		return;
	fprintf(stderr, "verbena: lock ranks: gives back a lock that it doesn't hold\n");
	abort();
}

static bool rank_forbids_blocking(enum lock_rank rank)
{
	return rank == RANK_HCA || rank == RANK_EVENTS ||
	       (rank >= RANK_ENGINE && rank < RANK_DAEMON_CONN);
}

void rank_check_blocking(const char *what)
{
	for (unsigned int i = 0; i < count; i++) {
		if (!rank_forbids_blocking(held[i].rank))
			continue;
		fprintf(stderr, "verbena: lock ranks: %s may block while holding %s\n", what,
			names[held[i].rank]);
		abort();
	}
}

void rank_must_hold(const void *lock, enum lock_rank rank)
{
	for (unsigned int i = 0; i < count; i++)
		if (held[i].lock == lock)
			return;
	lock_rank_abort("doesn't hold", rank, NULL);
}

void rank_must_be_free(const _Atomic uint32_t *word, enum lock_rank rank)
{
	if (atomic_load_explicit(word, memory_order_relaxed))
		lock_rank_abort("takes within another, though a thread holds it,", rank, NULL);
}

#else
typedef int iso_c_wants_something;
#endif
