/* SPDX-License-Identifier: BSD-2-Clause */
/* See toeplitz.h. No state. */
#include "wire/toeplitz.h"

#include <infiniband/verbs.h>
#include <string.h>

uint32_t toeplitz_hash(const uint8_t key[TOEPLITZ_KEY], const uint8_t *bytes, size_t size)
{
	/* The 32 bits of the key that the next bit of the input selects. */
	uint32_t window =
		(uint32_t)key[0] << 24 | (uint32_t)key[1] << 16 | (uint32_t)key[2] << 8 | key[3];
	uint32_t hash = 0;

	for (size_t i = 0; i < size && i < TOEPLITZ_KEY - 4; i++)
		for (int bit = 7; bit >= 0; bit--) {
			if (bytes[i] >> bit & 1)
				hash ^= window;
			window = window << 1 | (key[i + 4] >> bit & 1);
		}
	return hash;
}

/* The bytes that are hashed: two IPv6 addresses and two ports at most. */
struct input {
	uint8_t bytes[36];
	size_t n;
};

static void input_add(struct input *in, bool wanted, const uint8_t *from, size_t n)
{
	if (!wanted || in->n + n > sizeof(in->bytes))
		return;
	memcpy(in->bytes + in->n, from, n);
	in->n += n;
}

static void add_ports(struct input *in, const struct ether_part *part, bool source,
		      bool destination)
{
	if (!part->l4 || part->l4_bytes < 4)
		return;
	input_add(in, source, part->l4, 2);
	input_add(in, destination, part->l4 + 2, 2);
}

uint32_t toeplitz_frame(const uint8_t key[TOEPLITZ_KEY], uint64_t fields,
			const struct ether_frame *frame)
{
	const struct ether_part *part = fields & IBV_RX_HASH_INNER ? &frame->inner : &frame->outer;
	struct input in = {.n = 0};

	if (part->version == 4) {
		input_add(&in, fields & IBV_RX_HASH_SRC_IPV4, part->ip + 12, 4);
		input_add(&in, fields & IBV_RX_HASH_DST_IPV4, part->ip + 16, 4);
	} else if (part->version == 6) {
		input_add(&in, fields & IBV_RX_HASH_SRC_IPV6, part->ip + 8, 16);
		input_add(&in, fields & IBV_RX_HASH_DST_IPV6, part->ip + 24, 16);
	}
	if (part->protocol == 6)
		add_ports(&in, part, fields & IBV_RX_HASH_SRC_PORT_TCP,
			  fields & IBV_RX_HASH_DST_PORT_TCP);
	else if (part->protocol == 17)
		add_ports(&in, part, fields & IBV_RX_HASH_SRC_PORT_UDP,
			  fields & IBV_RX_HASH_DST_PORT_UDP);
	else if (part->protocol == 50 && part->l4 && part->l4_bytes >= 4)
		input_add(&in, fields & IBV_RX_HASH_IPSEC_SPI, part->l4, 4);
	return toeplitz_hash(key, in.bytes, in.n);
}
