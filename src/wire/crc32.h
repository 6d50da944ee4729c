/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CRC-32 as Ethernet has it (least significant bit first, complemented before and after), and thus
 * the ICRC. By ISA-L, or by tables where those are quicker: ISA-L multiplies without carries, which
 * a processor does in an instruction, and an emulated one in a loop over 64 bits. Which it is, is
 * measured at the first use.
 */
#ifndef VERBENA_WIRE_CRC32_H
#define VERBENA_WIRE_CRC32_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t crc32_fn(uint32_t crc, const uint8_t *bytes, size_t size);

/* Both give the same. What they return can be given to either again, with the bytes that follow. */
crc32_fn crc32_by_isal;
crc32_fn crc32_by_tables;

extern crc32_fn *_Atomic crc32_chosen;

/* Any thread, no locks. */
static inline uint32_t crc32_update(uint32_t crc, const uint8_t *bytes, size_t size)
{
	return atomic_load_explicit(&crc32_chosen, memory_order_acquire)(crc, bytes, size);
}

#endif
