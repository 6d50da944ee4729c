/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-32. See crc32.h. Owns the tables and the chosen function; the first thread that needs them
 * makes both, and threads that come meanwhile wait for it.
 *
 * The table method takes eight bytes at a time. A CRC is linear, so each of the eight contributes
 * by itself: table[n][b] is what byte b does to the register when n more bytes follow.
 */
#include "wire/crc32.h"

#include <endian.h>
#include <isa-l/crc.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"

enum {
	POLYNOMIAL = (int)0xedb88320,
	TRIAL_BYTES = 4096, /* a packet */
};

static uint32_t table[8][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t crc = b;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ ((uint32_t)POLYNOMIAL & -(crc & 1));
		table[0][b] = crc;
	}
	for (int n = 1; n < 8; n++)
		for (uint32_t b = 0; b < 256; b++)
			table[n][b] = table[n - 1][b] >> 8 ^ table[0][table[n - 1][b] & 0xff];
}

static uint32_t add_eight(uint32_t crc, const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	word = le64toh(word) ^ crc;
	return table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^ table[5][word >> 16 & 0xff] ^
	       table[4][word >> 24 & 0xff] ^ table[3][word >> 32 & 0xff] ^
	       table[2][word >> 40 & 0xff] ^ table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
}

static uint32_t crc32_add_bytes(uint32_t crc, const uint8_t *bytes, size_t size)
{
	crc = ~crc;
	for (; size >= 8; size -= 8, bytes += 8)
		crc = add_eight(crc, bytes);
	for (; size; size--)
		crc = crc >> 8 ^ table[0][(crc ^ *bytes++) & 0xff];
	return ~crc;
}

uint32_t crc32_by_tables(uint32_t crc, const uint8_t *bytes, size_t size)
{
	pthread_once(&tables_made, make_tables);
	return crc32_add_bytes(crc, bytes, size);
}

/*
 * ISA-L's crc32_gzip_refl() is the right one; its crc32_ieee() has the same polynomial, but most
 * significant bit first.
 *
 * On processors with AVX-512 it returns with the upper halves of vector registers in use, and then
 * the next SSE instruction (of this library, of the C library's or of the program's) waits for 75
 * ns, measured on Xeon Scalable of the fourth generation: more than the CRC of a packet takes. So
 * the upper halves are declared unused, where the processor has them.
 */
uint32_t crc32_by_isal(uint32_t crc, const uint8_t *bytes, size_t size)
{
	crc = crc32_gzip_refl(crc, bytes, size);
#if defined(__x86_64__)
	if (likely(__builtin_cpu_supports("avx")))
		__asm__ volatile("vzeroupper" ::: "memory");
#endif
	return crc;
}

/* ------------------------------------------------------------------ the choice */

struct trial {
	crc32_fn *function;
	uint8_t packet[TRIAL_BYTES];
};

static void crc32_tables_compute(void *arg)
{
	struct trial *trial = arg;

	trial->packet[0] += (uint8_t)trial->function(0, trial->packet, TRIAL_BYTES);
}

static uint64_t time_of(crc32_fn *function)
{
	struct trial trial = {.function = function};

	return clock_shortest(crc32_tables_compute, &trial);
}

/* Natively ISA-L is ten times as fast, so measuring noise doesn't decide. */
static void crc32_choose(void)
{
	crc32_fn *best = time_of(crc32_by_isal) <= time_of(crc32_by_tables) ? crc32_by_isal
									    : crc32_add_bytes;

	atomic_store_explicit(&crc32_chosen, best, memory_order_release);
}

static uint32_t first_use(uint32_t crc, const uint8_t *bytes, size_t size)
{
	static pthread_once_t chosen = PTHREAD_ONCE_INIT;

	pthread_once(&chosen, crc32_choose);
	return crc32_update(crc, bytes, size);
}

crc32_fn *_Atomic crc32_chosen = first_use;
