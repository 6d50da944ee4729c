/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The records of a link, which are the local carrier's packets. Headers are struct ring_header.
 *
 *   dst, src   QPN in the low 24 bits, the low 8 bits of that QP's epoch above: a record for (or
 *              from) a QP that has been reset since is dropped.
 *   msn        the request's number: a QP numbers its requests from RECORD_MSN after RESET, they
 *              are executed in order, and `ack` (with REC_ACKS) says that all below it are
 *              executed.
 *   length     bytes of the whole message; NAK, RNR: the code of the responder's RNR timer
 *   imm        immediate data, or what is said below for the kind
 *
 * Requests (requester to responder):
 *   SEND        payload follows; with REC_INVALIDATE (and in the next) imm is the key of a memory
 *               window that the receiver invalidates
 *   SEND_REF    payload is the list of the sender's segments (struct record_segment): the receiver
 *               looks their keys up and copies from there (mapped, process_vm_readv), or PULL
 *   SEND_DATA   a piece of a pulled message; imm is its offset
 *   WRITE_IMM   the data is in place already; consumes a receive
 *   WRITE_DATA  a piece of an RDMA WRITE: struct record_remote, then bytes; imm is the immediate
 *               data. Only the piece with REC_LAST is a request of its own.
 *   READ_REQ    struct record_remote
 *   ATOMIC_REQ  struct record_atomic; ATOMIC WRITE and FLUSH are answered by ACK
 *   UD          struct record_ud, then payload; no msn. To WIRE_MULTICAST_QPN: for each QP that is
 *               attached to the group `dgid`
 * To no single QP:
 *   FRAME       an Ethernet frame of a raw packet QP (exec/segment.h); imm is the device's index,
 *               and FRAME_BLOCKS_SELF
 * Responses (responder to requester):
 *   ACK         nothing but `ack`
 *   NAK         request msn failed; imm is enum ibv_wc_status for its completion
 *   RNR         request msn waits for a receive: the requester stops its timer
 *   AGAIN       requests from msn on were not taken for want of room: the requester sends them
 *               again
 *   PULL        the requester streams the payload of request msn
 *   READ_DATA   a piece; imm is its offset; REC_LAST completes request msn
 *   ATOMIC_RESP the value before
 * Both ways:
 *   KICK        the sender's QP became ready: the other side looks at its state again
 *   FATAL       the other side's QP refused a one-sided operation that the sender executed: imm is
 *               enum ibv_event_type to raise; the QP goes to the error state
 *   GONE        the answer to PULL, of UC: the sender has given request msn up
 * Any record of these may carry the acknowledgement of another QP of its sender to a QP of its
 * receiver: REC_CARRIES in `kind`, and struct record_ack in the last bytes of its last slot, which
 * the payload leaves free. It counts as an ACK that came right before the record.
 * An initiator of XRC sends its requests with REC_XRC in `kind` and the SRQ's number in `dst` (with
 * the epoch of the target QP); the responder finds the QP by `src`. Responses are as above, and
 * come from the target QP's number.
 * Packets for a target QP of XRC (exec/xrc_wire.h); `dst` is its number, msn its epoch:
 *   XRC_PACKET    payload is the packet, with room for the ICRC; imm is the place in the shared
 *                 memory file
 *   XRC_STRANGER  the answer of a process that doesn't know the QP
 * Of the link itself (link_idle.h), to no QP:
 *   LEAVE       the sender doesn't need the link any more; this is its last record
 *   STAY        the answer to LEAVE: the other side needs the link
 */
#ifndef VERBENA_HCA_LOCAL_RECORD_H
#define VERBENA_HCA_LOCAL_RECORD_H

#include <string.h>

#include "base/counter.h"
#include "hca/exec/arrival.h"
#include "shm/ring.h"

/* The number of a QP's first request, for both sides. A change of it is one of PUB_VERSION. */
#define RECORD_MSN COUNTER_START(1024)

enum record_kind {
	REC_SEND = RING_KIND_FIRST,
	REC_SEND_REF,
	REC_SEND_DATA,
	REC_WRITE_IMM,
	REC_WRITE_DATA,
	REC_READ_REQ,
	REC_ATOMIC_REQ,
	REC_UD,
	REC_ACK,
	REC_NAK,
	REC_RNR,
	REC_PULL,
	REC_READ_DATA,
	REC_ATOMIC_RESP,
	REC_KICK,
	REC_FATAL,
	REC_AGAIN,
	REC_GONE,
	REC_KINDS, /* the number of kinds of QPs' records; no record is of this kind */
	REC_LEAVE, /* of the link itself */
	REC_STAY,
	REC_FRAME, /* to no single QP */
};

#define REC_CARRIES 0x20 /* bits of ring_header.kind */
#define REC_XRC 0x80
_Static_assert(REC_FRAME < REC_CARRIES, "the bits are apart from the kinds");
#define REC_XRC_PACKET (REC_XRC | 0x40)
#define REC_XRC_STRANGER (REC_XRC | 0x41)
/* REC_FRAME's imm. */
enum { FRAME_DEVICE = 0xffff, FRAME_BLOCKS_SELF = 0x10000 };

enum record_flag {
	REC_ACKS = 1,
	REC_SOLICITED = 2,
	REC_IMM = 4,
	REC_LAST = 8,
	REC_INVALIDATE = 16,
	REC_RNR_SHIFT = 5, /* the requester's rnr_retry in bits 5 to 7 */
};

/* The acknowledgement that a record carries: as in the header of an ACK. */
struct record_ack {
	uint32_t dst;
	uint32_t src;
	uint32_t ack;
};

/* A segment as the sender's program posted it: the receiver looks the key up in the sender's
 * regions. */
struct record_segment {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct record_remote {
	uint64_t addr;
	uint32_t rkey;
	uint32_t reserved;
};

enum record_operation {
	RECORD_ADD,
	RECORD_SWAP,
	RECORD_STORE, /* ATOMIC WRITE: `swap` is the word */
	RECORD_FLUSH, /* compare_add: the range's length; swap: packet_feth() */
	/* The requester has found out that the responder would refuse the request: compare_add is
	 * the status. */
	RECORD_REFUSED,
};

struct record_atomic {
	uint64_t addr;
	uint32_t rkey;
	uint32_t operation; /* enum record_operation */
	uint64_t compare_add;
	uint64_t swap;
};

struct record_ud {
	uint8_t sgid[16];
	uint8_t dgid[16];
	uint32_t qkey;
	uint32_t flow_label;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint8_t sl;
	/* On a fabric, else 0: */
	uint8_t lid_flags; /* RECORD_UD_GRH, and the low bits of the destination LID */
	uint16_t slid;
	uint16_t pkey;
};

#define RECORD_UD_GRH \
	0x80u /* the packet has a GRH: the GIDs and what follows them mean something */
_Static_assert(sizeof(struct record_ud) == 48, "payload is aligned");

static inline uint32_t record_qpn(uint32_t address)
{
	return address & 0xffffff;
}

static inline uint8_t record_epoch(uint32_t address)
{
	return address >> 24;
}

static inline uint32_t record_address(uint32_t qpn, uint32_t epoch)
{
	return (qpn & 0xffffff) | epoch << 24;
}

/*
 * Puts the acknowledgement into the record `h` with `payload` bytes, which leave room for it. Field
 * by field: a copy in wider pieces would have to wait until its source has left the store buffer,
 * behind the record's other stores, for as long as a cache line takes from the peer.
 */
static inline void record_carry(struct ring_header *h, uint32_t payload, struct record_ack ack)
{
	uint32_t end = RING_HEADER + payload + ring_spare(payload);
	struct record_ack *to = (struct record_ack *)((uint8_t *)h + end) - 1;

	to->dst = ack.dst;
	to->src = ack.src;
	to->ack = ack.ack;
	h->kind |= REC_CARRIES;
}

/* The acknowledgement that a record carried whose payload has `room` bytes. `payload` is shared
 * memory, which is copied. */
static inline struct record_ack record_carried(const uint8_t *payload, uint32_t room)
{
	struct record_ack ack;

	memcpy(&ack, payload + room - sizeof(ack), sizeof(ack));
	return ack;
}

/* What the completion of the receive that a message took reports of the message. */
static inline struct arrival record_arrival(const struct ring_header *h)
{
	return (struct arrival){
		.length = h->length,
		.imm = h->imm,
		.src_qpn = record_qpn(h->src),
		.has_imm = h->flags & REC_IMM,
		.invalidates = h->flags & REC_INVALIDATE,
		.solicited = h->flags & REC_SOLICITED,
		.is_write = h->kind == REC_WRITE_IMM || h->kind == REC_WRITE_DATA,
	};
}

#endif
