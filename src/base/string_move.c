/* SPDX-License-Identifier: BSD-2-Clause */
/* How fast this processor's string instructions are. See string_move.h. Owns the answer. */
#include "base/string_move.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"

#if defined(__x86_64__)

enum {
	TRIAL_BYTES = 4096,
	/* Processors take between half and twice the time of vector instructions, emulators eight
	 * times. */
	SLOW = 4,
};

static bool slow;

struct trial {
	uint8_t from[TRIAL_BYTES], to[TRIAL_BYTES];
};

static void as_string(void *arg)
{
	struct trial *trial = arg;
	void *to = trial->to;
	const void *from = trial->from;
	size_t n = TRIAL_BYTES;

	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void by_vectors(void *arg)
{
	struct trial *trial = arg;

	for (size_t at = 0; at < TRIAL_BYTES; at += STRING_MOVE_NEVER)
		memcpy(trial->to + at, trial->from + at, STRING_MOVE_NEVER);
	__asm__ volatile("" : : "r"(trial) : "memory");
}

static void string_move_measure(void)
{
	static struct trial trial;

	/* Reading the clock adds the same to both, too little to change the result. */
	slow = clock_shortest(as_string, &trial) > SLOW * clock_shortest(by_vectors, &trial);
}

bool string_move_is_slow(void)
{
	static pthread_once_t measured = PTHREAD_ONCE_INIT;

	pthread_once(&measured, string_move_measure);
	return slow;
}

#else

bool string_move_is_slow(void)
{
	return false;
}

#endif
