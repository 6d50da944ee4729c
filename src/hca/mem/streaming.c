/* SPDX-License-Identifier: BSD-2-Clause */
/* Copying that bypasses the caches. See streaming.h. Each thread remembers how its last tries by
 * ordinary stores went; otherwise there is no state. Whole lines are streamed, since the
 * processor combines a line's stores before it writes it; memcpy() copies the rest at either end.
 */
#include "hca/mem/streaming.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { LINE = 64 };

/* Whether to stream so many bytes to a program on another core. */
static bool streaming_pays(size_t length)
{
	return length >= STREAMING_LEAST && !__builtin_cpu_is("intel");
}

__attribute__((target("avx"))) static void lines_avx(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += LINE) {
		__m256i low = _mm256_loadu_si256((const __m256i *)(from + at));
		__m256i high = _mm256_loadu_si256((const __m256i *)(from + at + LINE / 2));

		_mm256_stream_si256((__m256i *)(to + at), low);
		_mm256_stream_si256((__m256i *)(to + at + LINE / 2), high);
	}
}

static void lines_sse2(uint8_t *to, const uint8_t *from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(to + at),
				 _mm_loadu_si128((const __m128i *)(from + at)));
}

void streaming_copy(void *to, const void *from, size_t length)
{
	size_t head = -(uintptr_t)to % LINE;

	if (head >= length) {
		memcpy(to, from, length);
		return;
	}
	uint8_t *out = (uint8_t *)to + head;
	const uint8_t *in = (const uint8_t *)from + head;
	size_t bytes = (length - head) / LINE * LINE;

	memcpy(to, from, head);
	if (__builtin_cpu_supports("avx"))
		lines_avx(out, in, bytes);
	else
		lines_sse2(out, in, bytes);
	memcpy(out + bytes, in + bytes, length - head - bytes);
}

void streaming_end(void)
{
	_mm_sfence();
}

#else

static bool streaming_pays(size_t length)
{
	(void)length;
	return false;
}

void streaming_copy(void *to, const void *from, size_t length)
{
	memcpy(to, from, length);
}

void streaming_end(void)
{
}

#endif

enum {
	STREAMED = 15,	    /* so many WRITEs are streamed after one that was slow */
	SLOW_BYTES_NS = 16, /* so many bytes in a ns, or fewer, are slow by ordinary stores */
};

static _Thread_local unsigned int streamed_left __attribute__((tls_model("initial-exec")));

enum streaming_way streaming_choose(size_t length)
{
	if (!streaming_pays(length))
		return STREAMING_NOT;
	if (!streamed_left)
		return STREAMING_TRY;
	streamed_left--;
	return STREAMING_DO;
}

void streaming_tried(size_t length, uint64_t ns)
{
	if (ns * SLOW_BYTES_NS > length)
		streamed_left = STREAMED;
}
