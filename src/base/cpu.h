/* SPDX-License-Identifier: BSD-2-Clause */
/* Branch hints and the pause instruction for spin loops, which the compiler has no portable names
 * for. */
#ifndef VERBENA_BASE_CPU_H
#define VERBENA_BASE_CPU_H

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
