/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RoCEv2 packets: the bytes between the UDP header and the end of the datagram (IBTA volume 1,
 * chapters 5 and 9, annex A17). Pure codecs, bytes to struct packet and back: nothing is applied,
 * nothing is kept. Every byte string either decodes, or the reason why not is returned.
 *
 *   BTH (12)  [DETH (8) | XRCETH (4)] [FETH (4)] [RETH (16) | AtomicETH (28)] [AETH (4)]
 *   [AtomicAckETH (8)]
 *   [ImmDt (4)] [IETH (4)]  payload  padding (0 to 3)  ICRC (4)
 *
 * Which extended headers follow is a function of the opcode alone: packet_layout().
 */
#ifndef VERBENA_WIRE_PACKET_H
#define VERBENA_WIRE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_PORT 4791
#define WIRE_BTH 12
#define WIRE_ICRC 4
#define WIRE_PKEY 0xffffu
#define WIRE_MULTICAST_QPN 0xffffffu /* destination of datagrams to a group; no QP has it */
#define WIRE_MTU_MAX 4096
/* The longest headers of any opcode, and the longest packet without IP and UDP. */
#define WIRE_HEADERS_MAX 48
#define WIRE_PACKET_MAX (WIRE_HEADERS_MAX + WIRE_MTU_MAX + 3 + WIRE_ICRC)

/* BTH opcodes: the transport in the upper three bits, the operation in the lower five. */
enum packet_transport {
	PACKET_RC = 0x00,
	PACKET_UC = 0x20,
	PACKET_UD = 0x60,
	PACKET_CNP = 0x80,
	PACKET_XRC = 0xa0
};

enum packet_operation {
	OP_SEND_FIRST = 0,
	OP_SEND_MIDDLE = 1,
	OP_SEND_LAST = 2,
	OP_SEND_LAST_IMM = 3,
	OP_SEND_ONLY = 4,
	OP_SEND_ONLY_IMM = 5,
	OP_WRITE_FIRST = 6,
	OP_WRITE_MIDDLE = 7,
	OP_WRITE_LAST = 8,
	OP_WRITE_LAST_IMM = 9,
	OP_WRITE_ONLY = 10,
	OP_WRITE_ONLY_IMM = 11,
	OP_READ_REQUEST = 12,
	OP_READ_RESPONSE_FIRST = 13,
	OP_READ_RESPONSE_MIDDLE = 14,
	OP_READ_RESPONSE_LAST = 15,
	OP_READ_RESPONSE_ONLY = 16,
	OP_ACKNOWLEDGE = 17,
	OP_ATOMIC_ACKNOWLEDGE = 18,
	OP_COMPARE_SWAP = 19,
	OP_FETCH_ADD = 20,
	OP_SEND_LAST_INVALIDATE = 22,
	OP_SEND_ONLY_INVALIDATE = 23,
	OP_FLUSH = 28,
	OP_ATOMIC_WRITE = 29,
	OP_CNP = 1, /* the only operation of PACKET_CNP */
};

/* A congestion notification packet (annex A17.9.3): its sender received packets with a congestion
 * mark. BECN is set, the PSN is 0, and the payload is 16 reserved bytes. */
#define WIRE_CNP_PAYLOAD 16
#define WIRE_FLUSH 36 /* FLUSH of RC: BTH, FETH, RETH, ICRC */

enum packet_header {
	HAS_DETH = 1,
	HAS_RETH = 2,
	HAS_ATOMIC = 4,
	HAS_AETH = 8,
	HAS_ATOMIC_ACK = 16,
	HAS_IMM = 32,
	HAS_IETH = 64,
	HAS_PAYLOAD = 128, /* the opcode may have a payload */
	HAS_FETH = 256,
	HAS_XRC = 512, /* requests of PACKET_XRC */
};

/* AETH syndromes: the kind in the upper three bits (the topmost is 0), a value in the lower five.
 */
enum packet_syndrome {
	AETH_ACK = 0x00,     /* value: credits, 31 means that they aren't counted */
	AETH_RNR_NAK = 0x20, /* value: timer code */
	AETH_NAK = 0x60,     /* value: enum packet_nak */
	AETH_KIND = 0x60,
	AETH_VALUE = 0x1f,
	AETH_NO_CREDITS = 0x1f,
};

enum packet_nak {
	NAK_SEQUENCE = 0,
	NAK_INVALID_REQUEST = 1,
	NAK_REMOTE_ACCESS = 2,
	NAK_REMOTE_OPERATION = 3,
};

/* FETH (annex A19): the placement type in bits 0-3, the selectivity level in bits 4-5; the
 * rest is reserved. */
#define WIRE_FETH_BITS 0x3fu
static inline uint8_t packet_feth(uint32_t type, uint32_t level)
{
	return (uint8_t)((level & 3) << 4 | (type & 0xf));
}

static inline uint32_t packet_flush_type(uint8_t feth)
{
	return feth & 0xf;
}

static inline uint32_t packet_flush_level(uint8_t feth)
{
	return feth >> 4 & 3;
}

/* A decoded packet: integers in host order except `imm`, which this stack doesn't interpret. Only
 * fields of headers that the opcode has are meaningful. */
struct packet {
	uint8_t opcode; /* transport | operation */
	bool solicited;
	bool migreq;
	bool ack_request;
	bool fecn, becn;
	uint16_t pkey;
	uint32_t dest_qpn;
	uint32_t psn;
	uint32_t qkey, src_qpn;	    /* DETH */
	uint8_t feth;		    /* FETH: packet_feth() */
	uint32_t srqn;		    /* XRCETH */
	uint64_t addr;		    /* RETH, AtomicETH */
	uint32_t rkey;		    /* RETH, AtomicETH; IETH: the key to invalidate */
	uint32_t dma_length;	    /* RETH */
	uint64_t swap_add, compare; /* AtomicETH */
	uint8_t syndrome;	    /* AETH */
	uint32_t msn;		    /* AETH */
	uint64_t original;	    /* AtomicAckETH */
	uint32_t imm;		    /* ImmDt, network order */
	const uint8_t *payload;	    /* decoded: inside the given bytes; encoding: unused */
	uint32_t length;	    /* bytes of payload, without padding */
	bool icrc_doubled;	    /* received: FLUSH with Soft-RoCE's ICRC, see wire/icrc.h */
};

/* Why bytes aren't a valid packet. */
enum packet_error {
	PACKET_OK,
	PACKET_TOO_SHORT,   /* for BTH and ICRC, or for the opcode's headers, or for its padding */
	PACKET_TOO_LONG,    /* more payload than the largest MTU */
	PACKET_BAD_VERSION, /* BTH's transport header version isn't 0 */
	PACKET_BAD_OPCODE,  /* reserved, or of an unsupported transport */
	PACKET_BAD_PAYLOAD, /* payload or padding on an opcode that has none; or a pad count that
			       doesn't round the payload up to four bytes */
	PACKET_ERRORS
};

static inline uint8_t packet_operation(uint8_t opcode)
{
	return opcode & 0x1f;
}

static inline uint8_t packet_transport(uint8_t opcode)
{
	return opcode & 0xe0;
}

/* enum packet_header bits of an opcode; 0: no such opcode. */
uint16_t packet_layout(uint8_t opcode);

/* Bytes of BTH and extended headers. 0: no such opcode. */
uint32_t packet_headers_size(uint8_t opcode);

/* Decodes a datagram of `size` bytes, ICRC included (which isn't verified). */
enum packet_error packet_decode(const uint8_t *bytes, size_t size, struct packet *out);

/*
 * Writes the headers (BTH and extended ones; the pad count follows from p->length) to `to`, which
 * has WIRE_HEADERS_MAX bytes. Returns their size. The caller adds the payload, its padding (zeros,
 * packet_padding()) and the ICRC. The opcode must exist.
 */
uint32_t packet_encode(const struct packet *p, uint8_t *to);

static inline uint32_t packet_padding(uint32_t length)
{
	return -length & 3;
}

/* A readable name: "RC SEND_ONLY_IMM"; "RC 0x1f?" for an opcode that doesn't exist. */
const char *packet_opcode_name(uint8_t opcode, char room[32]);
const char *packet_error_name(enum packet_error error);

#endif
