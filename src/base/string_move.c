/* SPDX-License-Identifier: BSD-2-Clause */
/* How quickly this processor moves strings. See string_move.h. Owns the answer. */
#include "base/string_move.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"

#if defined(__x86_64__)

enum {
	TRIAL_BYTES = 4096,
	TRIALS = 4,
	/* Processors need between half and twice the time that vectors do, emulators eight times.
	 */
	SLOW = 4,
};

static bool slow;

static void as_string(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void by_vectors(void *to, const void *from, size_t n)
{
	for (size_t at = 0; at < n; at += STRING_MOVE_NEVER)
		memcpy((char *)to + at, (const char *)from + at, STRING_MOVE_NEVER);
	__asm__ volatile("" : : "r"(to) : "memory");
}

/* The shortest of some trials: chance only ever adds. */
static uint64_t time_of(void (*move)(void *, const void *, size_t))
{
	static uint8_t from[TRIAL_BYTES], to[TRIAL_BYTES];
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < TRIALS; i++) {
		uint64_t begin = clock_ns();

		move(to, from, sizeof(to));
		uint64_t took = clock_ns() - begin;

		least = took < least ? took : least;
	}
	return least;
}

static void measure(void)
{
	/* What reading the clock takes is part of both, and hides nothing of what matters. */
	slow = time_of(as_string) > SLOW * time_of(by_vectors);
}

bool string_move_is_slow(void)
{
	static pthread_once_t measured = PTHREAD_ONCE_INIT;

	pthread_once(&measured, measure);
	return slow;
}

#else

bool string_move_is_slow(void)
{
	return false;
}

#endif
