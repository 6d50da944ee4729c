/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How quickly this processor moves strings. Processors move what `rep movsb` names by whole cache
 * lines, so C libraries and kernels copy long pieces by it. An emulated processor (QEMU without
 * KVM) may call itself one of those and move byte after byte, eight times as slowly as vectors do.
 */
#ifndef VERBENA_BASE_STRING_MOVE_H
#define VERBENA_BASE_STRING_MOVE_H

#include <stdbool.h>

/* Bytes that a C library's memcpy() moves by vectors, not as a string. */
enum { STRING_MOVE_NEVER = 2048 };

/* Whether moving strings is to be avoided. Measured once, in some microseconds. Any thread. */
bool string_move_is_slow(void);

#endif
