/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The codec of RoCEv2 packets. One table says of each opcode which extended headers it has and how
 * long they are together; decoder and encoder walk the same headers in the same order. Nothing is
 * kept, so any thread may call anything.
 *
 * BTH, byte by byte (IBTA volume 1, 9.2):
 *   0 opcode   1 SE, MigReq, pad count (2 bits), version (4 bits)   2-3 P_Key
 *   4 FECN, BECN, reserved   5-7 destination QPN   8 AckReq, reserved   9-11 PSN
 * Reserved bits are ignored when they arrive and 0 when they leave.
 */
#include "wire/packet.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

enum {
	DETH = 8,
	RETH = 16,
	ATOMIC = 28,
	AETH = 4,
	ATOMIC_ACK = 8,
	IMM = 4,
	IETH = 4,
	XRCETH = 4,
	FETH = 4,
};

/* ------------------------------------------------------------------ what an opcode has */

struct layout {
	uint16_t headers; /* enum packet_header */
	uint8_t size;	  /* of BTH and these headers */
};

#define SIZE(h)                                                                                  \
	(WIRE_BTH + ((h)&HAS_DETH ? DETH : 0) + ((h)&HAS_FETH ? FETH : 0) +                      \
	 ((h)&HAS_RETH ? RETH : 0) + ((h)&HAS_ATOMIC ? ATOMIC : 0) + ((h)&HAS_AETH ? AETH : 0) + \
	 ((h)&HAS_ATOMIC_ACK ? ATOMIC_ACK : 0) + ((h)&HAS_IMM ? IMM : 0) +                       \
	 ((h)&HAS_IETH ? IETH : 0) + ((h)&HAS_XRC ? XRCETH : 0))
/* clang-format off */
#define OPCODE(transport, operation, h) [(transport) | (operation)] = {(h), SIZE(h)}

/* Opcodes that RC, UC and XRC share. Each request has the headers `x` besides. */
#define SENDS_AND_WRITES(t, x)                                                                     \
	OPCODE(t, OP_SEND_FIRST, (x) | HAS_PAYLOAD),                                               \
	OPCODE(t, OP_SEND_MIDDLE, (x) | HAS_PAYLOAD),                                              \
	OPCODE(t, OP_SEND_LAST, (x) | HAS_PAYLOAD),                                                \
	OPCODE(t, OP_SEND_LAST_IMM, (x) | HAS_IMM | HAS_PAYLOAD),                                  \
	OPCODE(t, OP_SEND_ONLY, (x) | HAS_PAYLOAD),                                                \
	OPCODE(t, OP_SEND_ONLY_IMM, (x) | HAS_IMM | HAS_PAYLOAD),                                  \
	OPCODE(t, OP_WRITE_FIRST, (x) | HAS_RETH | HAS_PAYLOAD),                                   \
	OPCODE(t, OP_WRITE_MIDDLE, (x) | HAS_PAYLOAD),                                             \
	OPCODE(t, OP_WRITE_LAST, (x) | HAS_PAYLOAD),                                               \
	OPCODE(t, OP_WRITE_LAST_IMM, (x) | HAS_IMM | HAS_PAYLOAD),                                 \
	OPCODE(t, OP_WRITE_ONLY, (x) | HAS_RETH | HAS_PAYLOAD),                                    \
	OPCODE(t, OP_WRITE_ONLY_IMM, (x) | HAS_RETH | HAS_IMM | HAS_PAYLOAD)

/* Opcodes that RC and XRC share. Responses have no header of XRC. */
#define RELIABLE(t, x)                                                                             \
	SENDS_AND_WRITES(t, x),                                                                    \
	OPCODE(t, OP_READ_REQUEST, (x) | HAS_RETH),                                                \
	OPCODE(t, OP_READ_RESPONSE_FIRST, HAS_AETH | HAS_PAYLOAD),                                 \
	OPCODE(t, OP_READ_RESPONSE_MIDDLE, HAS_PAYLOAD),                                           \
	OPCODE(t, OP_READ_RESPONSE_LAST, HAS_AETH | HAS_PAYLOAD),                                  \
	OPCODE(t, OP_READ_RESPONSE_ONLY, HAS_AETH | HAS_PAYLOAD),                                  \
	OPCODE(t, OP_ACKNOWLEDGE, HAS_AETH),                                                       \
	OPCODE(t, OP_ATOMIC_ACKNOWLEDGE, HAS_AETH | HAS_ATOMIC_ACK),                               \
	OPCODE(t, OP_COMPARE_SWAP, (x) | HAS_ATOMIC),                                              \
	OPCODE(t, OP_FETCH_ADD, (x) | HAS_ATOMIC),                                                 \
	OPCODE(t, OP_SEND_LAST_INVALIDATE, (x) | HAS_IETH | HAS_PAYLOAD),                          \
	OPCODE(t, OP_SEND_ONLY_INVALIDATE, (x) | HAS_IETH | HAS_PAYLOAD),                          \
	OPCODE(t, OP_FLUSH, (x) | HAS_FETH | HAS_RETH),                                            \
	OPCODE(t, OP_ATOMIC_WRITE, (x) | HAS_RETH | HAS_PAYLOAD)

static const struct layout layouts[256] = {
	RELIABLE(PACKET_RC, 0),
	SENDS_AND_WRITES(PACKET_UC, 0),
	OPCODE(PACKET_UD, OP_SEND_ONLY, HAS_DETH | HAS_PAYLOAD),
	OPCODE(PACKET_UD, OP_SEND_ONLY_IMM, HAS_DETH | HAS_IMM | HAS_PAYLOAD),
	OPCODE(PACKET_CNP, OP_CNP, HAS_PAYLOAD),
	RELIABLE(PACKET_XRC, HAS_XRC),
};
/* clang-format on */

uint16_t packet_layout(uint8_t opcode)
{
	return layouts[opcode].headers;
}

uint32_t packet_headers_size(uint8_t opcode)
{
	return layouts[opcode].size;
}

/* ------------------------------------------------------------------ big-endian fields */

static uint16_t packet_get16(const uint8_t *from)
{
	uint16_t value;

	memcpy(&value, from, sizeof(value));
	return be16toh(value);
}

static uint32_t packet_get32(const uint8_t *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof(value));
	return be32toh(value);
}

static uint32_t packet_get24(const uint8_t *from)
{
	return (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
}

static uint64_t packet_get64(const uint8_t *from)
{
	uint64_t value;

	memcpy(&value, from, sizeof(value));
	return be64toh(value);
}

static void packet_put16(uint8_t *to, uint16_t value)
{
	value = htobe16(value);
	memcpy(to, &value, sizeof(value));
}

static void packet_put32(uint8_t *to, uint32_t value)
{
	value = htobe32(value);
	memcpy(to, &value, sizeof(value));
}

/* A byte and the 24 bits after it. */
static void put8_24(uint8_t *to, uint8_t byte, uint32_t value)
{
	packet_put32(to, (uint32_t)byte << 24 | (value & 0xffffff));
}

static void packet_put64(uint8_t *to, uint64_t value)
{
	value = htobe64(value);
	memcpy(to, &value, sizeof(value));
}

/* ------------------------------------------------------------------ decoding */

static void decode_bth(const uint8_t *at, struct packet *p)
{
	p->opcode = at[0];
	p->solicited = at[1] & 0x80;
	p->migreq = at[1] & 0x40;
	p->pkey = packet_get16(at + 2);
	p->fecn = at[4] & 0x80;
	p->becn = at[4] & 0x40;
	p->dest_qpn = packet_get24(at + 5);
	p->ack_request = at[8] & 0x80;
	p->psn = packet_get24(at + 9);
}

/* Decodes the extended headers; the caller has checked that the bytes are there. */
static void decode_extended(uint16_t headers, const uint8_t *at, struct packet *p)
{
	if (headers & HAS_DETH) {
		p->qkey = packet_get32(at);
		p->src_qpn = packet_get24(at + 5);
		at += DETH;
	}
	if (headers & HAS_XRC) {
		p->srqn = packet_get24(at + 1);
		at += XRCETH;
	}
	if (headers & HAS_FETH) {
		p->feth = at[3] & WIRE_FETH_BITS;
		at += FETH;
	}
	if (headers & (HAS_RETH | HAS_ATOMIC)) {
		p->addr = packet_get64(at);
		p->rkey = packet_get32(at + 8);
	}
	if (headers & HAS_RETH) {
		p->dma_length = packet_get32(at + 12);
		at += RETH;
	}
	if (headers & HAS_ATOMIC) {
		p->swap_add = packet_get64(at + 12);
		p->compare = packet_get64(at + 20);
		at += ATOMIC;
	}
	if (headers & HAS_AETH) {
		p->syndrome = at[0];
		p->msn = packet_get24(at + 1);
		at += AETH;
	}
	if (headers & HAS_ATOMIC_ACK) {
		p->original = packet_get64(at);
		at += ATOMIC_ACK;
	}
	if (headers & HAS_IMM) {
		memcpy(&p->imm, at, sizeof(p->imm));
		at += IMM;
	}
	if (headers & HAS_IETH)
		p->rkey = packet_get32(at);
}

enum packet_error packet_decode(const uint8_t *bytes, size_t size, struct packet *out)
{
	if (size < WIRE_BTH + WIRE_ICRC)
		return PACKET_TOO_SHORT;
	if (bytes[1] & 0x0f)
		return PACKET_BAD_VERSION;

	const struct layout *layout = &layouts[bytes[0]];
	uint32_t padding = bytes[1] >> 4 & 3;

	if (!layout->headers)
		return PACKET_BAD_OPCODE;
	if (size < (size_t)layout->size + padding + WIRE_ICRC)
		return PACKET_TOO_SHORT;

	size_t length = size - layout->size - padding - WIRE_ICRC;

	if (length > WIRE_MTU_MAX)
		return PACKET_TOO_LONG;
	if (padding != packet_padding(length) || (length && !(layout->headers & HAS_PAYLOAD)))
		return PACKET_BAD_PAYLOAD;
	if (bytes[0] == (PACKET_CNP | OP_CNP) && length != WIRE_CNP_PAYLOAD)
		return PACKET_BAD_PAYLOAD;
	*out = (struct packet){.payload = bytes + layout->size, .length = length};
	decode_bth(bytes, out);
	decode_extended(layout->headers, bytes + WIRE_BTH, out);
	return PACKET_OK;
}

/* ------------------------------------------------------------------ encoding */

static void encode_bth(const struct packet *p, uint8_t *to, uint32_t padding)
{
	to[0] = p->opcode;
	to[1] = p->solicited << 7 | p->migreq << 6 | padding << 4;
	packet_put16(to + 2, p->pkey);
	put8_24(to + 4, p->fecn << 7 | p->becn << 6, p->dest_qpn);
	put8_24(to + 8, p->ack_request << 7, p->psn);
}

static void encode_extended(uint16_t headers, const struct packet *p, uint8_t *to)
{
	if (headers & HAS_DETH) {
		packet_put32(to, p->qkey);
		put8_24(to + 4, 0, p->src_qpn);
		to += DETH;
	}
	if (headers & HAS_XRC) {
		put8_24(to, 0, p->srqn);
		to += XRCETH;
	}
	if (headers & HAS_FETH) {
		packet_put32(to, p->feth & WIRE_FETH_BITS);
		to += FETH;
	}
	if (headers & (HAS_RETH | HAS_ATOMIC)) {
		packet_put64(to, p->addr);
		packet_put32(to + 8, p->rkey);
	}
	if (headers & HAS_RETH) {
		packet_put32(to + 12, p->dma_length);
		to += RETH;
	}
	if (headers & HAS_ATOMIC) {
		packet_put64(to + 12, p->swap_add);
		packet_put64(to + 20, p->compare);
		to += ATOMIC;
	}
	if (headers & HAS_AETH) {
		put8_24(to, p->syndrome, p->msn);
		to += AETH;
	}
	if (headers & HAS_ATOMIC_ACK) {
		packet_put64(to, p->original);
		to += ATOMIC_ACK;
	}
	if (headers & HAS_IMM) {
		memcpy(to, &p->imm, sizeof(p->imm));
		to += IMM;
	}
	if (headers & HAS_IETH)
		packet_put32(to, p->rkey);
}

uint32_t packet_encode(const struct packet *p, uint8_t *to)
{
	const struct layout *layout = &layouts[p->opcode];
	uint32_t length = layout->headers & HAS_PAYLOAD ? p->length : 0;

	encode_bth(p, to, packet_padding(length));
	encode_extended(layout->headers, p, to + WIRE_BTH);
	return layout->size;
}

/* ------------------------------------------------------------------ for people */

static const char *const transport_names[8] = {
	[PACKET_RC >> 5] = "RC",
	[PACKET_UC >> 5] = "UC",
	[PACKET_UD >> 5] = "UD",
	[PACKET_XRC >> 5] = "XRC",
};

static const char *const operation_names[32] = {
	[OP_SEND_FIRST] = "SEND_FIRST",
	[OP_SEND_MIDDLE] = "SEND_MIDDLE",
	[OP_SEND_LAST] = "SEND_LAST",
	[OP_SEND_LAST_IMM] = "SEND_LAST_IMM",
	[OP_SEND_ONLY] = "SEND_ONLY",
	[OP_SEND_ONLY_IMM] = "SEND_ONLY_IMM",
	[OP_WRITE_FIRST] = "WRITE_FIRST",
	[OP_WRITE_MIDDLE] = "WRITE_MIDDLE",
	[OP_WRITE_LAST] = "WRITE_LAST",
	[OP_WRITE_LAST_IMM] = "WRITE_LAST_IMM",
	[OP_WRITE_ONLY] = "WRITE_ONLY",
	[OP_WRITE_ONLY_IMM] = "WRITE_ONLY_IMM",
	[OP_READ_REQUEST] = "READ_REQUEST",
	[OP_READ_RESPONSE_FIRST] = "READ_RESPONSE_FIRST",
	[OP_READ_RESPONSE_MIDDLE] = "READ_RESPONSE_MIDDLE",
	[OP_READ_RESPONSE_LAST] = "READ_RESPONSE_LAST",
	[OP_READ_RESPONSE_ONLY] = "READ_RESPONSE_ONLY",
	[OP_ACKNOWLEDGE] = "ACKNOWLEDGE",
	[OP_ATOMIC_ACKNOWLEDGE] = "ATOMIC_ACKNOWLEDGE",
	[OP_COMPARE_SWAP] = "COMPARE_SWAP",
	[OP_FETCH_ADD] = "FETCH_ADD",
	[OP_SEND_LAST_INVALIDATE] = "SEND_LAST_INVALIDATE",
	[OP_SEND_ONLY_INVALIDATE] = "SEND_ONLY_INVALIDATE",
	[OP_FLUSH] = "FLUSH",
	[OP_ATOMIC_WRITE] = "ATOMIC_WRITE",
};

const char *packet_opcode_name(uint8_t opcode, char room[32])
{
	const char *transport = transport_names[packet_transport(opcode) >> 5];

	if (opcode == (PACKET_CNP | OP_CNP))
		snprintf(room, 32, "CNP");
	else if (layouts[opcode].headers)
		snprintf(room, 32, "%s %s", transport, operation_names[packet_operation(opcode)]);
	else if (transport)
		snprintf(room, 32, "%s 0x%02x?", transport, packet_operation(opcode));
	else
		snprintf(room, 32, "0x%02x?", opcode);
	return room;
}

const char *packet_error_name(enum packet_error error)
{
	static const char *const names[] = {
		[PACKET_OK] = "a packet",
		[PACKET_TOO_SHORT] = "too short for its headers",
		[PACKET_TOO_LONG] = "more payload than the largest MTU",
		[PACKET_BAD_VERSION] = "another version of the transport header",
		[PACKET_BAD_OPCODE] = "an unknown opcode",
		[PACKET_BAD_PAYLOAD] = "payload or padding that doesn't fit the opcode",
	};

	_Static_assert(sizeof(names) / sizeof(names[0]) == PACKET_ERRORS, "a name is missing");
	return (unsigned int)error < PACKET_ERRORS ? names[error] : "an unknown error";
}
