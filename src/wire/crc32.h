/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-32 as in Ethernet (least significant bit first, complemented before and after), and thus as
 * in the ICRC. Computed by ISA-L, or by tables where those are faster: ISA-L uses carry-less
 * multiplication, which is one instruction on a processor, but a loop over 64 bits under an
 * emulator. The faster one is determined by measuring at the first use.
 */
#ifndef VERBENA_WIRE_CRC32_H
#define VERBENA_WIRE_CRC32_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t crc32_fn(uint32_t crc, const uint8_t *bytes, size_t size);

/* Both give the same result. It can be passed to either again, with the bytes that follow. */
crc32_fn crc32_by_isal;
crc32_fn crc32_by_tables;

extern crc32_fn *_Atomic crc32_chosen;

/* `crc`: 0, or the result for the bytes before. Callable from any thread; takes no locks. */
static inline uint32_t crc32_update(uint32_t crc, const uint8_t *bytes, size_t size)
{
	return atomic_load_explicit(&crc32_chosen, memory_order_acquire)(crc, bytes, size);
}

#endif
