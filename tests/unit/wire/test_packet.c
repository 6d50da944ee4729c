/* SPDX-License-Identifier: BSD-2-Clause */
/* The packet codec: every opcode there and back, every truncation, every field, refusals. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/packet.h"

/* Each field another pattern that fills it. Those of headers that the opcode lacks are 0. */
static struct packet sample(uint8_t opcode, uint32_t length)
{
	uint16_t has = packet_layout(opcode);
	struct packet p = {.opcode = opcode,
			   .solicited = true,
			   .ack_request = true,
			   .becn = true,
			   .pkey = 0x8123,
			   .dest_qpn = 0xfedcba,
			   .psn = 0xabcdef};

	if (has & HAS_DETH) {
		p.qkey = 0x80010203;
		p.src_qpn = 0xc0ffee;
	}
	if (has & HAS_XRC)
		p.srqn = 0xfacade;
	if (has & (HAS_RETH | HAS_ATOMIC)) {
		p.addr = 0xf123456789abcdef;
		p.rkey = 0x89abcdef;
	}
	if (has & HAS_RETH)
		p.dma_length = 0xfedcba98;
	if (has & HAS_ATOMIC) {
		p.swap_add = 0x8877665544332211;
		p.compare = 0x99aabbccddeeff00;
	}
	if (has & HAS_FETH)
		p.feth = packet_feth(5, 2);
	if (has & HAS_AETH) {
		p.syndrome = AETH_NAK | NAK_REMOTE_OPERATION;
		p.msn = 0xdeface;
	}
	if (has & HAS_ATOMIC_ACK)
		p.original = 0xa5a6a7a8a9aaabac;
	if (has & HAS_IMM)
		p.imm = htonl(0xfeedf00d);
	if (has & HAS_IETH)
		p.rkey = 0xbadcab1e;
	p.length = has & HAS_PAYLOAD ? length : 0;
	if (packet_transport(opcode) == PACKET_CNP)
		p.length = WIRE_CNP_PAYLOAD;
	return p;
}

/* The whole packet, in memory of just its size. */
static uint8_t *build(const struct packet *p, size_t *size)
{
	uint8_t headers[WIRE_HEADERS_MAX];
	uint32_t n = packet_encode(p, headers);

	assert_int_equal(n, packet_headers_size(p->opcode));
	assert_true(n <= WIRE_HEADERS_MAX);
	*size = n + p->length + packet_padding(p->length) + WIRE_ICRC;

	uint8_t *bytes = malloc(*size);

	memset(bytes, 0x5a, *size);
	memcpy(bytes, headers, n);
	return bytes;
}

static void same_fields(const struct packet *a, const struct packet *b)
{
	struct packet x = *a, y = *b;

	x.payload = y.payload = NULL;
	assert_memory_equal(&x, &y, offsetof(struct packet, solicited));
	assert_int_equal(x.solicited, y.solicited);
	assert_int_equal(x.migreq, y.migreq);
	assert_int_equal(x.ack_request, y.ack_request);
	assert_int_equal(x.fecn, y.fecn);
	assert_int_equal(x.becn, y.becn);
	assert_int_equal(x.pkey, y.pkey);
	assert_int_equal(x.dest_qpn, y.dest_qpn);
	assert_int_equal(x.psn, y.psn);
	assert_int_equal(x.qkey, y.qkey);
	assert_int_equal(x.src_qpn, y.src_qpn);
	assert_int_equal(x.feth, y.feth);
	assert_int_equal(x.srqn, y.srqn);
	assert_true(x.addr == y.addr);
	assert_int_equal(x.rkey, y.rkey);
	assert_int_equal(x.dma_length, y.dma_length);
	assert_true(x.swap_add == y.swap_add && x.compare == y.compare);
	assert_int_equal(x.syndrome, y.syndrome);
	assert_int_equal(x.msn, y.msn);
	assert_true(x.original == y.original);
	assert_int_equal(x.imm, y.imm);
	assert_int_equal(x.length, y.length);
}

static int opcodes(uint8_t all[256])
{
	int n = 0;

	for (int opcode = 0; opcode < 256; opcode++)
		if (packet_layout(opcode))
			all[n++] = opcode;
	return n;
}

static void test_round_trip(void **state)
{
	static const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, 255, 256, 4094, 4096};
	uint8_t all[256];
	int n = opcodes(all);

	(void)state;
	assert_int_equal(n, 25 + 12 + 2 + 1 + 25); /* RC, UC, UD, CNP, XRC */
	for (int i = 0; i < n; i++)
		for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
			struct packet in = sample(all[i], lengths[l]), out;
			size_t size;
			uint8_t *bytes = build(&in, &size);

			assert_int_equal(packet_decode(bytes, size, &out), PACKET_OK);
			same_fields(&in, &out);
			assert_ptr_equal(out.payload, bytes + packet_headers_size(all[i]));
			free(bytes);
		}
}

/* The flags of BTH one by one: none is another's. */
static void test_flags(void **state)
{
	(void)state;
	for (int bits = 0; bits < 32; bits++) {
		struct packet in = {.opcode = PACKET_RC | OP_ACKNOWLEDGE,
				    .solicited = bits & 1,
				    .migreq = bits & 2,
				    .ack_request = bits & 4,
				    .fecn = bits & 8,
				    .becn = bits & 16},
			      out;
		size_t size;
		uint8_t *bytes = build(&in, &size);

		assert_int_equal(packet_decode(bytes, size, &out), PACKET_OK);
		same_fields(&in, &out);
		free(bytes);
	}
}

/* The bytes where the specification wants them, for a packet of each kind of header. */
static void test_bytes(void **state)
{
	static const uint8_t bth[] = {0,    0xa0, 0x81, 0x23, 0x40, 0xfe,
				      0xdc, 0xba, 0x80, 0xab, 0xcd, 0xef};
	static const uint8_t reth[] = {0xf1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
				       0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98};
	static const uint8_t atomic[] = {0xf1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x89, 0xab,
					 0xcd, 0xef, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
					 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00};
	static const uint8_t ack[] = {0x63, 0xde, 0xfa, 0xce, 0xa5, 0xa6,
				      0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac};
	static const uint8_t deth_imm[] = {0x80, 0x01, 0x02, 0x03, 0,	 0xc0,
					   0xff, 0xee, 0xfe, 0xed, 0xf0, 0x0d};
	static const uint8_t ieth[] = {0xba, 0xdc, 0xab, 0x1e};
	static const uint8_t feth_reth[] = {0,	  0,	0,    0x25, 0xf1, 0x23, 0x45,
					    0x67, 0x89, 0xab, 0xcd, 0xef, 0x89, 0xab,
					    0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98};
	static const uint8_t xrc_feth_reth[] = {0,    0xfa, 0xca, 0xde, 0,    0,    0,	  0x25,
						0xf1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
						0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98};
	static const uint8_t xrc_reth[] = {0,	 0xfa, 0xca, 0xde, 0xf1, 0x23, 0x45,
					   0x67, 0x89, 0xab, 0xcd, 0xef, 0x89, 0xab,
					   0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98};
	static const struct {
		uint8_t opcode;
		const uint8_t *bytes;
		uint32_t size;
	} cases[] = {
		{PACKET_RC | OP_SEND_MIDDLE, NULL, 0},
		{PACKET_RC | OP_READ_RESPONSE_MIDDLE, NULL, 0},
		{PACKET_RC | OP_READ_REQUEST, reth, sizeof(reth)},
		{PACKET_UC | OP_WRITE_FIRST, reth, sizeof(reth)},
		{PACKET_RC | OP_COMPARE_SWAP, atomic, sizeof(atomic)},
		{PACKET_RC | OP_ACKNOWLEDGE, ack, 4},
		{PACKET_RC | OP_ATOMIC_ACKNOWLEDGE, ack, sizeof(ack)},
		{PACKET_UD | OP_SEND_ONLY_IMM, deth_imm, sizeof(deth_imm)},
		{PACKET_RC | OP_SEND_LAST_INVALIDATE, ieth, sizeof(ieth)},
		{PACKET_RC | OP_FLUSH, feth_reth, sizeof(feth_reth)},
		{PACKET_RC | OP_ATOMIC_WRITE, reth, sizeof(reth)},
		{PACKET_XRC | OP_FLUSH, xrc_feth_reth, sizeof(xrc_feth_reth)},
		{PACKET_XRC | OP_ATOMIC_WRITE, xrc_reth, sizeof(xrc_reth)},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct packet p = sample(cases[i].opcode, 6);
		uint8_t to[WIRE_HEADERS_MAX];

		assert_int_equal(packet_encode(&p, to), WIRE_BTH + cases[i].size);
		assert_int_equal(to[0], cases[i].opcode);
		assert_int_equal(to[1], p.length ? bth[1] : bth[1] & 0x80);
		assert_memory_equal(to + 2, bth + 2, sizeof(bth) - 2);
		if (cases[i].size)
			assert_memory_equal(to + WIRE_BTH, cases[i].bytes, cases[i].size);
	}
}

/* A truncated packet is refused, or has less payload. */
static void test_truncated(void **state)
{
	uint8_t all[256];
	int n = opcodes(all);

	(void)state;
	for (int i = 0; i < n; i++)
		for (uint32_t length = 0; length < 12; length++) {
			struct packet in = sample(all[i], length), out;
			size_t whole;
			uint8_t *bytes = build(&in, &whole);

			for (size_t size = 0; size < whole; size++) {
				uint8_t *cut = malloc(size ? size : 1);
				size_t least = packet_headers_size(all[i]) + WIRE_ICRC +
					       packet_padding(in.length);

				memcpy(cut, bytes, size);
				if (packet_decode(cut, size, &out) == PACKET_OK) {
					assert_int_equal((whole - size) % 4, 0);
					assert_int_equal(out.length, in.length - (whole - size));
					in.length = out.length;
					same_fields(&in, &out);
					in.length += whole - size;
				} else if (size < least) {
					assert_int_equal(packet_decode(cut, size, &out),
							 PACKET_TOO_SHORT);
				} else {
					assert_int_equal(packet_decode(cut, size, &out),
							 PACKET_BAD_PAYLOAD);
				}
				free(cut);
			}
			free(bytes);
		}
}

static enum packet_error decode_with(uint8_t opcode, uint8_t second, size_t size)
{
	uint8_t *bytes = calloc(1, size);
	struct packet out;

	bytes[0] = opcode;
	bytes[1] = second;

	enum packet_error error = packet_decode(bytes, size, &out);

	free(bytes);
	return error;
}

static void test_refused(void **state)
{
	(void)state;
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0, 16), PACKET_OK);
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 1, 16), PACKET_BAD_VERSION);
	assert_int_equal(decode_with(PACKET_RC | 21, 0, 60), PACKET_BAD_OPCODE);
	assert_int_equal(decode_with(PACKET_RC | 31, 0, 60), PACKET_BAD_OPCODE);
	assert_int_equal(decode_with(PACKET_UC | OP_READ_REQUEST, 0, 60), PACKET_BAD_OPCODE);
	assert_int_equal(decode_with(PACKET_UD | OP_SEND_FIRST, 0, 60), PACKET_BAD_OPCODE);
	assert_int_equal(decode_with(0x40 | OP_SEND_ONLY, 0, 60), PACKET_BAD_OPCODE);
	assert_int_equal(decode_with(0x80, 0, 60), PACKET_BAD_OPCODE);
	assert_int_equal(decode_with(PACKET_XRC | 21, 0, 60), PACKET_BAD_OPCODE);
	/* a request of XRC without its header */
	assert_int_equal(decode_with(PACKET_XRC | OP_SEND_ONLY, 0, 16), PACKET_TOO_SHORT);
	assert_int_equal(decode_with(PACKET_XRC | OP_SEND_ONLY, 0, 20), PACKET_OK);
	assert_int_equal(decode_with(PACKET_XRC | OP_ACKNOWLEDGE, 0, 20), PACKET_OK);
	assert_int_equal(decode_with(PACKET_XRC | OP_FLUSH, 0, 36), PACKET_TOO_SHORT);
	assert_int_equal(decode_with(PACKET_XRC | OP_FLUSH, 0, 40), PACKET_OK);
	assert_int_equal(decode_with(PACKET_UC | OP_FLUSH, 0, 40), PACKET_BAD_OPCODE);
	/* a congestion notification has 16 bytes, and no other operation exists beside it */
	assert_int_equal(decode_with(PACKET_CNP | OP_CNP, 0, WIRE_BTH + 16 + WIRE_ICRC), PACKET_OK);
	assert_int_equal(decode_with(PACKET_CNP | OP_CNP, 0, WIRE_BTH + WIRE_ICRC),
			 PACKET_BAD_PAYLOAD);
	assert_int_equal(decode_with(PACKET_CNP | OP_CNP, 0, WIRE_BTH + 20 + WIRE_ICRC),
			 PACKET_BAD_PAYLOAD);
	assert_int_equal(decode_with(PACKET_CNP | 2, 0, WIRE_BTH + 16 + WIRE_ICRC),
			 PACKET_BAD_OPCODE);
	/* payload on what has none */
	assert_int_equal(decode_with(PACKET_RC | OP_ACKNOWLEDGE, 0, 20), PACKET_OK);
	assert_int_equal(decode_with(PACKET_RC | OP_ACKNOWLEDGE, 0, 24), PACKET_BAD_PAYLOAD);
	assert_int_equal(decode_with(PACKET_RC | OP_ACKNOWLEDGE, 0x30, 24), PACKET_BAD_PAYLOAD);
	assert_int_equal(decode_with(PACKET_RC | OP_READ_REQUEST, 0, 36), PACKET_BAD_PAYLOAD);
	/* padding that isn't there, or doesn't fit */
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0x30, 18), PACKET_TOO_SHORT);
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0x30, 19), PACKET_BAD_PAYLOAD);
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0x30, 20), PACKET_OK);
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0, 19), PACKET_BAD_PAYLOAD);
	/* more than fits */
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0, 16 + 4096), PACKET_OK);
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0, 16 + 4100), PACKET_TOO_LONG);
	assert_int_equal(decode_with(PACKET_RC | OP_SEND_ONLY, 0, 65507), PACKET_TOO_LONG);
}

static void test_names(void **state)
{
	char room[32];

	(void)state;
	assert_string_equal(packet_opcode_name(PACKET_RC | OP_SEND_ONLY_IMM, room),
			    "RC SEND_ONLY_IMM");
	assert_string_equal(packet_opcode_name(PACKET_UD | OP_SEND_ONLY, room), "UD SEND_ONLY");
	assert_string_equal(packet_opcode_name(PACKET_RC | 0x1f, room), "RC 0x1f?");
	assert_string_equal(packet_opcode_name(PACKET_CNP | OP_CNP, room), "CNP");
	assert_string_equal(packet_opcode_name(0x4a, room), "0x4a?");
	for (int opcode = 0; opcode < 256; opcode++) {
		assert_true(strlen(packet_opcode_name(opcode, room)) < 32);
		assert_null(strstr(room, "null"));
		if (packet_layout(opcode))
			assert_null(strchr(room, '?'));
	}
	for (int error = 0; error < PACKET_ERRORS; error++)
		assert_non_null(packet_error_name(error));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_flags),
		cmocka_unit_test(test_bytes),	   cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
