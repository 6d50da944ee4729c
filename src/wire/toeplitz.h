/* SPDX-License-Identifier: BSD-2-Clause */
/* The Toeplitz hash of a frame's addresses and ports, by which received frames are spread over work
 * queues. */
#ifndef VERBENA_WIRE_TOEPLITZ_H
#define VERBENA_WIRE_TOEPLITZ_H

#include "wire/ether.h"

enum { TOEPLITZ_KEY = 40 };

/* Hashes those of `fields` that the frame has: source address, destination address, source port,
 * destination port or, of ESP, the index of its parameters. 0: it has none. */
uint32_t toeplitz_frame(const uint8_t key[TOEPLITZ_KEY], uint64_t fields,
			const struct ether_frame *frame);

/* The hash of `size` bytes; at most TOEPLITZ_KEY - 4. */
uint32_t toeplitz_hash(const uint8_t key[TOEPLITZ_KEY], const uint8_t *bytes, size_t size);

#endif
