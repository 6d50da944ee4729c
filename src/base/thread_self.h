/* SPDX-License-Identifier: BSD-2-Clause */
/* A number for the calling thread, read by one instruction: its thread pointer. Another thread may
 * have it after this one's end. Even, and not 0. */
#ifndef VERBENA_BASE_THREAD_SELF_H
#define VERBENA_BASE_THREAD_SELF_H

#include <stdint.h>

static inline uintptr_t thread_self(void)
{
#ifdef __x86_64__
	uintptr_t self;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	return self;
#else
	return (uintptr_t)__builtin_thread_pointer();
#endif
}

#endif
