/* SPDX-License-Identifier: BSD-2-Clause */
/* What the compiler doesn't name: branch hints and the pause of a spin loop. */
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
