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

/* Up to so many bytes a C library's memcpy() copies by vector instructions. */
enum { STRING_MOVE_NEVER = 2048 };

/* Whether string instructions are to be avoided. Measured at the first call, which takes some
 * microseconds. Any thread. */
bool string_move_is_slow(void);

#endif
