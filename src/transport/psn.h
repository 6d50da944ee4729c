/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packet sequence numbers: 24 bits that wrap around. PSN a is before PSN b if it lies at most 2^23
 * behind b, so at most 2^23 packets may be in flight (IBTA 9.7.1).
 *
 * The requester counts its packets in 32 bits and sends the lower 24. A PSN that arrives is widened
 * to the nearest 32-bit count of a known one.
 */
#ifndef VERBENA_TRANSPORT_PSN_H
#define VERBENA_TRANSPORT_PSN_H

#include <stdint.h>

#define PSN_MASK 0xffffffu

/* a - b, from -2^23 to 2^23 - 1. */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & PSN_MASK;
}

/* The 32-bit count nearest to `near` whose lower 24 bits are `wire`. */
static inline uint32_t psn_widen(uint32_t wire, uint32_t near)
{
	return near + (uint32_t)psn_diff(wire, near);
}

/* For 32-bit counts: whether a is before b. */
static inline int psn_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

#endif
