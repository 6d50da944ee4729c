/* SPDX-License-Identifier: BSD-2-Clause */
/* Branch hints, and instructions which the compiler has no portable names for: the pause of spin
 * loops, and fetching a cache line to write it. */
#ifndef VERBENA_BASE_CPU_H
#define VERBENA_BASE_CPU_H

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* The caller is about to read the cache line: fetches it. A hint, which may be ignored. Not the
 * compiler's builtin: GCC 12 takes a function that only prefetches for one without effects, and
 * drops the calls. */
static inline void cpu_prefetch(const void *at)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)at));
#elif defined(__aarch64__)
	__asm__ volatile("prfm pldl1keep, %a0" : : "p"(at));
#else
	__builtin_prefetch(at);
#endif
}

/* The caller is about to write the cache line: fetches it for that. A hint, which may be ignored.
 */
static inline void cpu_prefetch_write(void *at)
{
#if defined(__x86_64__) || defined(__i386__)
	__asm__ volatile("prefetchw %0" : : "m"(*(char *)at));
#elif defined(__aarch64__)
	__asm__ volatile("prfm pstl1keep, %a0" : : "p"(at));
#else
	__builtin_prefetch(at, 1);
#endif
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

#endif
