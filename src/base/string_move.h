/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast this processor's string instructions are. Processors execute `rep movsb` by whole cache
 * lines, so C libraries and kernels use it for long copies. An emulated processor (QEMU without
 * KVM) may report that feature and copy byte by byte, eight times slower than by vector
 * instructions.
 */
#ifndef VERBENA_BASE_STRING_MOVE_H
#define VERBENA_BASE_STRING_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Up to so many bytes a C library's memcpy() copies by vector instructions. A compiler that knows
 * the number makes a string instruction of a memcpy() of it: GCC 12 does, which took 230 ns instead
 * of 80 for the payload of a packet, 4096 bytes (Xeon Scalable of the fourth generation). */
#define STRING_MOVE_NEVER string_move_never()
static inline size_t string_move_never(void)
{
	size_t bytes = 2048;

	__asm__("" : "+r"(bytes));
	return bytes;
}

/* Whether string instructions are to be avoided. Measured at the first call, which takes some
 * microseconds. Any thread. */
bool string_move_is_slow(void);

/* memcpy() of at least 8 bytes, by string instructions where the processor has them. */
static inline void string_move(void *to, const void *from, size_t n)
{
#if defined(__x86_64__)
	size_t words = n / 8;
	uint64_t last;

	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	/* Both stand behind the last whole word: the last one overlaps it. */
	memcpy(&last, (const uint8_t *)from + n % 8 - 8, 8);
	memcpy((uint8_t *)to + n % 8 - 8, &last, 8);
#else
	memcpy(to, from, n);
#endif
}

#endif
