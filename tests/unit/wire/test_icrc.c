/* SPDX-License-Identifier: BSD-2-Clause */
/* The ICRC: what is covered and what isn't, and finding the identification. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/crc32.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static const struct icrc_path ipv4 = {
	.source = {[10] = 0xff, 0xff, 10, 77, 0, 2},
	.destination = {[10] = 0xff, 0xff, 10, 77, 0, 3},
	.source_port = 0xd872,
	.destination_port = WIRE_PORT,
};
static const struct icrc_path ipv6 = {
	.source = {0xfe, 0x80, [15] = 1},
	.destination = {0xfe, 0x80, [15] = 2},
	.source_port = 0xd872,
	.destination_port = WIRE_PORT,
};

static void fill(uint8_t *packet, size_t size)
{
	for (size_t i = 0; i < size; i++)
		packet[i] = i * 37 + (i >> 8);
}

/* Another computation: bit by bit, as the standard draws it. */
static uint32_t slow_crc(uint32_t crc, const uint8_t *bytes, size_t size)
{
	crc = ~crc;
	for (size_t i = 0; i < size; i++)
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (((bytes[i] >> bit ^ crc) & 1) ? 0xedb88320 : 0);
	return ~crc;
}

static void test_like_bit_by_bit(void **state)
{
	static const uint8_t head[] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,		      /* ones */
		0x45, 0xff, 0,	  60,	0x12, 0x34, 0x40, 0,		      /* IP */
		0xff, 17,   0xff, 0xff, 10,   77,   0,	  2,	10, 77, 0, 3, /* ... */
		0xd8, 0x72, 0x12, 0xb7, 0,    40,   0xff, 0xff,		      /* UDP */
	};
	uint8_t packet[32], masked[32];

	(void)state;
	fill(packet, sizeof(packet));
	memcpy(masked, packet, sizeof(packet));
	masked[4] = 0xff;

	uint32_t expected = slow_crc(slow_crc(0, head, sizeof(head)), masked, 28);

	assert_int_equal(icrc_packet(icrc_begin(&ipv4, 32, 0x1234), packet, 32), expected);
	icrc_write(icrc_begin(&ipv4, 32, 0x1234), packet, 32);
	assert_int_equal(packet[28] | packet[29] << 8 | packet[30] << 16 |
				 (uint32_t)packet[31] << 24,
			 expected);
	assert_int_equal(packet[4], 4 * 37); /* as it was */
}

/* BTH's byte 4 counts as ones, whatever it is. */
static void test_masked_byte(void **state)
{
	uint8_t packet[300], masked[300];

	(void)state;
	fill(packet, sizeof(packet));
	for (size_t size = WIRE_BTH + WIRE_ICRC; size <= sizeof(packet); size += 71)
		for (int byte = 0; byte < 256; byte++) {
			packet[4] = (uint8_t)byte;
			memcpy(masked, packet, sizeof(packet));
			masked[4] = 0xff;
			assert_int_equal(icrc_packet(0x12345678, packet, size),
					 slow_crc(0x12345678, masked, size - WIRE_ICRC));
		}
}

static void test_ipv6_like_bit_by_bit(void **state)
{
	uint8_t head[56], packet[16];

	(void)state;
	memset(head, 0xff, sizeof(head));
	head[8] = 0x6f;
	head[12] = 0, head[13] = 24;
	head[14] = 17;
	memcpy(head + 16, ipv6.source, 16);
	memcpy(head + 32, ipv6.destination, 16);
	memcpy(head + 48, "\xd8\x72\x12\xb7\0\x18", 6);
	fill(packet, sizeof(packet));
	packet[4] = 0xff;

	uint32_t expected = slow_crc(slow_crc(0, head, sizeof(head)), packet, 12);

	packet[4] = 0x40; /* BECN */
	assert_int_equal(icrc_packet(icrc_begin(&ipv6, 16, 0), packet, 16), expected);
}

/* Every identification is found, for every size that a packet may have and for larger ones. */
static void test_finds_identification(void **state)
{
	static const size_t sizes[] = {
		16, 20, 24, 280, 1048, 4112, WIRE_PACKET_MAX, WIRE_PACKET_MAX + 1, 65507};
	uint8_t *packet = malloc(65507);
	uint16_t found;

	(void)state;
	fill(packet, 65507);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t id = 0; id<65536; id += sizes[i]> 300 ? 257 : 1) {
			icrc_write(icrc_begin(&ipv4, sizes[i], id), packet, sizes[i]);
			assert_true(icrc_matches(&ipv4, packet, sizes[i], &found));
			assert_int_equal(found, id);
		}
	for (size_t size = 16; size <= WIRE_PACKET_MAX; size++) {
		icrc_write(icrc_begin(&ipv4, size, 0x9a5c), packet, size);
		assert_true(icrc_matches(&ipv4, packet, size, &found));
		assert_int_equal(found, 0x9a5c);
	}
	free(packet);
}

static void test_ipv6_has_no_identification(void **state)
{
	uint8_t packet[64];
	uint16_t id = 1;

	(void)state;
	fill(packet, sizeof(packet));
	icrc_write(icrc_begin(&ipv6, sizeof(packet), 0), packet, sizeof(packet));
	assert_true(icrc_matches(&ipv6, packet, sizeof(packet), &id));
	assert_int_equal(id, 0);
	for (int bit = 0; bit < 32; bit++) {
		packet[60 + bit / 8] ^= 1 << bit % 8;
		assert_false(icrc_matches(&ipv6, packet, sizeof(packet), &id));
		packet[60 + bit / 8] ^= 1 << bit % 8;
	}
}

/* A flipped bit anywhere is seen, but in BTH's byte 4. (For IPv4 a damage may look like another
 * identification: one in 65,536 does. No single bit of these packets does.) */
static void test_damage(void **state)
{
	static const struct icrc_path *const paths[] = {&ipv4, &ipv6};
	uint8_t packet[280];
	uint16_t id;

	(void)state;
	for (int p = 0; p < 2; p++) {
		fill(packet, sizeof(packet));
		icrc_write(icrc_begin(paths[p], sizeof(packet), 0), packet, sizeof(packet));
		for (size_t bit = 0; bit < sizeof(packet) * 8; bit++) {
			packet[bit / 8] ^= 1 << bit % 8;
			assert_int_equal(icrc_matches(paths[p], packet, sizeof(packet), &id),
					 bit / 8 == 4);
			packet[bit / 8] ^= 1 << bit % 8;
		}
	}
}

/* Addresses, ports and the size are covered. */
static void test_other_path(void **state)
{
	uint8_t packet[64];
	struct icrc_path other[4] = {ipv4, ipv4, ipv4, ipv4};
	uint16_t id;

	(void)state;
	fill(packet, sizeof(packet));
	icrc_write(icrc_begin(&ipv4, 60, 0), packet, 60);
	assert_true(icrc_matches(&ipv4, packet, 60, &id));
	other[0].source[15]++;
	other[1].destination[15]++;
	other[2].source_port++;
	other[3].destination_port++;
	for (int i = 0; i < 4; i++)
		assert_false(icrc_matches(&other[i], packet, 60, &id));
	assert_false(icrc_matches(&ipv6, packet, 60, &id));
	assert_false(icrc_matches(&ipv4, packet, 56, &id));
	assert_false(icrc_matches(&ipv4, packet, 64, &id));
}

/* Whichever is chosen here, both are right: at each length and place, whole and in two pieces. */
static void both_ways(crc32_fn *function)
{
	uint8_t bytes[320];

	fill(bytes, sizeof(bytes));
	for (size_t size = 0; size < 300; size++) {
		const uint8_t *at = bytes + size % 16;
		uint32_t whole = slow_crc(0, at, size);

		assert_int_equal(function(0, at, size), whole);
		assert_int_equal(
			function(function(0, at, size / 3), at + size / 3, size - size / 3), whole);
	}
}

static void test_isal_and_tables(void **state)
{
	(void)state;
	both_ways(crc32_by_isal);
	both_ways(crc32_by_tables);
	both_ways(crc32_update);
}

/* FLUSH as a kernel's Soft-RoCE (Linux 6.12) sent it: its ICRC covers the headers twice. */
static const struct icrc_path from_kernel = {
	.source = {[10] = 0xff, 0xff, 10, 77, 0, 2},
	.destination = {[10] = 0xff, 0xff, 10, 77, 0, 1},
	.source_port = 0xc005,
	.destination_port = WIRE_PORT,
};
enum { KERNEL_ID = 0x557c };
static const uint8_t kernel_flush[WIRE_FLUSH] = {
	0x1c, 0x00, 0xff, 0xff, 0x00, 0x00, 0xc0, 0x01, 0x80, 0x00, 0x00, 0x02, /* BTH */
	0x00, 0x00, 0x00, 0x01,							/* FETH */
	0x00, 0x00, 0x55, 0xf8, 0x39, 0x23, 0xc0, 0x00, 0x00, 0x00, 0x02, 0x8b, /* RETH */
	0x00, 0x00, 0x00, 0x40,							/* ... */
	0xdf, 0xac, 0xd9, 0x3e,							/* ICRC */
};

static void test_flush_of_the_kernel(void **state)
{
	uint8_t packet[WIRE_FLUSH];
	uint16_t id;

	(void)state;
	assert_false(icrc_matches(&from_kernel, kernel_flush, WIRE_FLUSH, &id));
	assert_true(icrc_matches_doubled(&from_kernel, kernel_flush, WIRE_FLUSH, &id));
	assert_int_equal(id, KERNEL_ID);
	memcpy(packet, kernel_flush, sizeof(packet));
	icrc_write(icrc_begin(&from_kernel, WIRE_FLUSH, KERNEL_ID), packet, WIRE_FLUSH);
	assert_memory_not_equal(packet, kernel_flush, WIRE_FLUSH);
	icrc_double(packet, WIRE_FLUSH);
	assert_memory_equal(packet, kernel_flush, WIRE_FLUSH);
}

/* Each damaged bit is found, also where routers may change the byte: the kernel covers it. */
static void test_damaged_flush_of_the_kernel(void **state)
{
	uint8_t packet[WIRE_FLUSH];
	uint16_t id;

	(void)state;
	memcpy(packet, kernel_flush, sizeof(packet));
	for (int bit = 0; bit < 8 * WIRE_FLUSH; bit++) {
		packet[bit / 8] ^= 1 << bit % 8;
		assert_false(icrc_matches_doubled(&from_kernel, packet, WIRE_FLUSH, &id));
		packet[bit / 8] ^= 1 << bit % 8;
	}
	assert_false(icrc_matches_doubled(&ipv6, packet, WIRE_FLUSH, &id));
	assert_false(icrc_matches_doubled(&from_kernel, packet, WIRE_FLUSH - 4, &id));
	icrc_write(icrc_begin(&from_kernel, WIRE_FLUSH, 0), packet, WIRE_FLUSH);
	assert_false(icrc_matches_doubled(&from_kernel, packet, WIRE_FLUSH, &id));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_isal_and_tables),
		cmocka_unit_test(test_like_bit_by_bit),
		cmocka_unit_test(test_masked_byte),
		cmocka_unit_test(test_ipv6_like_bit_by_bit),
		cmocka_unit_test(test_finds_identification),
		cmocka_unit_test(test_ipv6_has_no_identification),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_other_path),
		cmocka_unit_test(test_flush_of_the_kernel),
		cmocka_unit_test(test_damaged_flush_of_the_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
