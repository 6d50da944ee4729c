/* SPDX-License-Identifier: BSD-2-Clause */
/* Stretches of a payload. More than half of a run's time went into making and comparing these
 * bytes, so the loops have no branch in their bodies, and the compiler makes vectors of them,
 * twice: wide ones where the processor has them. No state. */
#include "sim.h"

/* Not under the thread sanitizer, whose run time starts too late, and not by an old clang (Debian
 * 12's is 14), whose function of two kinds has another name than its callers use. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && \
	(!defined(__clang__) || __clang_major__ >= 18)
#define WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_VECTORS
#endif

WIDE_VECTORS void payload_fill(uint8_t *to, uint32_t seed, uint32_t at, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = payload_byte(seed, at + i);
}

WIDE_VECTORS bool payload_is(const uint8_t *from, uint32_t seed, uint32_t at, uint32_t n)
{
	uint8_t differs = 0;

	for (uint32_t i = 0; i < n; i++)
		differs |= from[i] ^ payload_byte(seed, at + i);
	return !differs;
}
