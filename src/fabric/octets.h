/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers in network order at any address, and nibbles. */
#ifndef VERBENA_FABRIC_OCTETS_H
#define VERBENA_FABRIC_OCTETS_H

#include <stdint.h>

static inline uint16_t octets_get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t octets_get32(const uint8_t *at)
{
	return (uint32_t)octets_get16(at) << 16 | octets_get16(at + 2);
}

static inline uint64_t octets_get64(const uint8_t *at)
{
	return (uint64_t)octets_get32(at) << 32 | octets_get32(at + 4);
}

static inline void octets_put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void octets_put32(uint8_t *at, uint32_t value)
{
	octets_put16(at, (uint16_t)(value >> 16));
	octets_put16(at + 2, (uint16_t)value);
}

static inline void octets_put64(uint8_t *at, uint64_t value)
{
	octets_put32(at, (uint32_t)(value >> 32));
	octets_put32(at + 4, (uint32_t)value);
}

static inline uint8_t octet_high(uint8_t octet)
{
	return octet >> 4;
}

static inline uint8_t octet_low(uint8_t octet)
{
	return octet & 0xf;
}

static inline void octet_set_high(uint8_t *octet, uint8_t value)
{
	*octet = (uint8_t)((*octet & 0x0f) | value << 4);
}

static inline void octet_set_low(uint8_t *octet, uint8_t value)
{
	*octet = (uint8_t)((*octet & 0xf0) | (value & 0x0f));
}

#endif
