/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets of FLUSH (opcode 1Ch: BTH, FETH, RETH) and ATOMIC WRITE (1Dh: BTH, RETH, 8 bytes), and
 * their answer, written by hand from IBTA volume 1, annex A19; golden/ has a kernel's, whose FLUSH
 * has another ICRC. The codec decodes each to the fields that were meant,
 * finds the ICRC correct, and encodes the fields to the same bytes. The ICRCs were computed with
 * Python's zlib.crc32(), by a function that also gives those of the captured packets.
 *
 * They go from UDP port C000h of 10.0.0.1 to port 4791 of 10.0.0.2, with identification 0.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/icrc.h"
#include "wire/packet.h"

/* clang-format off */
/* FLUSH of 1000h bytes (selectivity 0), to be globally visible (placement type bit 0). */
static const uint8_t flush_range[] = {
	0x1c, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x00, 0x00, 0x05, /* BTH */
	0x00, 0x00, 0x00, 0x01, /* FETH */
	0x00, 0x00, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x00, 0x00, 0x00, 0x1a, 0x2b, 0x00, 0x00, 0x10, 0x00, /* RETH */
	0xb1, 0xcc, 0xf4, 0xdf, /* ICRC */
};
/* FLUSH of a whole region (selectivity 1), to be persistent (placement type bit 1). */
static const uint8_t flush_region[] = {
	0x1c, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x00, 0x00, 0x06, /* BTH */
	0x00, 0x00, 0x00, 0x12, /* FETH */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1a, 0x2b, 0x00, 0x00, 0x00, 0x00, /* RETH */
	0xa8, 0x55, 0xf9, 0xa0, /* ICRC */
};
/* ATOMIC WRITE. */
static const uint8_t atomic_write[] = {
	0x1d, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x80, 0x00, 0x00, 0x07, /* BTH */
	0x00, 0x00, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x08, 0x00, 0x00, 0x1a, 0x2b, 0x00, 0x00, 0x00, 0x08, /* RETH */
	0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, /* payload */
	0x57, 0xb4, 0x30, 0x59, /* ICRC */
};
/* What answers both: RDMA READ response Only, without payload. */
static const uint8_t answer[] = {
	0x10, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x12, 0x00, 0x00, 0x00, 0x07, /* BTH */
	0x1f, 0x00, 0x00, 0x03, /* AETH */
	0x82, 0x67, 0x6e, 0x31, /* ICRC */
};
/* clang-format on */

static const struct icrc_path path = {
	.source = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1},
	.destination = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 2},
	.source_port = 0xc000,
	.destination_port = WIRE_PORT,
};

static const struct defined {
	const uint8_t *bytes;
	size_t size;
	struct packet means;
} all[] = {
	{flush_range,
	 sizeof(flush_range),
	 {.opcode = PACKET_RC | OP_FLUSH,
	  .migreq = true,
	  .ack_request = true,
	  .pkey = WIRE_PKEY,
	  .dest_qpn = 0x11,
	  .psn = 5,
	  .feth = 0x01,
	  .addr = 0x7f1234567800,
	  .rkey = 0x1a2b,
	  .dma_length = 0x1000}},
	{flush_region,
	 sizeof(flush_region),
	 {.opcode = PACKET_RC | OP_FLUSH,
	  .migreq = true,
	  .ack_request = true,
	  .pkey = WIRE_PKEY,
	  .dest_qpn = 0x11,
	  .psn = 6,
	  .feth = 0x12,
	  .rkey = 0x1a2b}},
	{atomic_write,
	 sizeof(atomic_write),
	 {.opcode = PACKET_RC | OP_ATOMIC_WRITE,
	  .migreq = true,
	  .ack_request = true,
	  .pkey = WIRE_PKEY,
	  .dest_qpn = 0x11,
	  .psn = 7,
	  .addr = 0x7f1234567808,
	  .rkey = 0x1a2b,
	  .dma_length = 8,
	  .length = 8}},
	{answer,
	 sizeof(answer),
	 {.opcode = PACKET_RC | OP_READ_RESPONSE_ONLY,
	  .migreq = true,
	  .pkey = WIRE_PKEY,
	  .dest_qpn = 0x12,
	  .psn = 7,
	  .syndrome = AETH_ACK | AETH_NO_CREDITS,
	  .msn = 3}},
};

static void decodes(const struct defined *defined)
{
	struct packet p, means = defined->means;
	uint16_t id;

	memset(&p, 0, sizeof(p));
	assert_int_equal(packet_decode(defined->bytes, defined->size, &p), PACKET_OK);
	assert_ptr_equal(p.payload, defined->bytes + packet_headers_size(p.opcode));
	assert_int_equal(p.opcode, means.opcode);
	assert_int_equal(p.migreq, means.migreq);
	assert_int_equal(p.ack_request, means.ack_request);
	assert_false(p.solicited || p.fecn || p.becn);
	assert_int_equal(p.pkey, means.pkey);
	assert_int_equal(p.dest_qpn, means.dest_qpn);
	assert_int_equal(p.psn, means.psn);
	assert_int_equal(p.feth, means.feth);
	assert_true(p.addr == means.addr);
	assert_int_equal(p.rkey, means.rkey);
	assert_int_equal(p.dma_length, means.dma_length);
	assert_int_equal(p.syndrome, means.syndrome);
	assert_int_equal(p.msn, means.msn);
	assert_int_equal(p.length, means.length);
	assert_true(icrc_matches(&path, defined->bytes, defined->size, &id));
	assert_int_equal(id, 0);
}

static void encodes(const struct defined *defined)
{
	uint8_t bytes[WIRE_PACKET_MAX];
	uint32_t n = packet_encode(&defined->means, bytes);

	assert_int_equal(n + defined->means.length + WIRE_ICRC, defined->size);
	memcpy(bytes + n, defined->bytes + n, defined->means.length);
	icrc_write(icrc_begin(&path, defined->size, 0), bytes, defined->size);
	assert_memory_equal(bytes, defined->bytes, defined->size);
}

static void test_defined(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		decodes(&all[i]);
		encodes(&all[i]);
	}
}

/* The FETH's fields by what they mean to programs, and its reserved bits, which don't count. */
static void test_feth(void **state)
{
	uint8_t bytes[sizeof(flush_region)];
	struct packet p;

	(void)state;
	assert_int_equal(packet_flush_type(0x01), 1);
	assert_int_equal(packet_flush_level(0x01), 0);
	assert_int_equal(packet_flush_type(0x12), 2);
	assert_int_equal(packet_flush_level(0x12), 1);
	memcpy(bytes, flush_region, sizeof(bytes));
	memset(bytes + WIRE_BTH, 0xff, 3);
	bytes[WIRE_BTH + 3] |= 0xc0;
	assert_int_equal(packet_decode(bytes, sizeof(bytes), &p), PACKET_OK);
	assert_int_equal(p.feth, 0x12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_defined),
					   cmocka_unit_test(test_feth)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
