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

#endif
