/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport core: RC, UC and XRC on the wire as state machines (IBTA volume 1, chapter 9). No
 * I/O, no clock, no threads, no allocation per packet: packets and the time go in; packets, events
 * and the next deadline come out. So the same code runs in the soft HCA (src/hca/roce) and in the
 * simulator (tests/sim).
 *
 * Contract:
 *   inputs   tp_post, tp_packet, tp_expire, tp_drain, tp_change, tp_stop: change state and emit
 *            nothing
 *   outputs  tp_next_event: what the owner has to do: completions, receives, errors. The owner
 *            pulls events until there is none, after every input and after the packets that it
 *            took from tp_next, before its next input.
 *            tp_next: the next packet to send, until it returns 0. The owner calls it after an
 *            input, and also when the send path has room again
 *   time     `now` is monotonic ns, an argument everywhere. tp_deadline() is the earliest instant
 *            at which tp_expire (and tp_next, for pacing) is to be called; TP_NEVER: none
 *   world    struct tp_world: questions whose answer the core needs at once, and copies of payload.
 *            Asked from inside tp_packet, tp_next and tp_next_event. A question has no effect on
 *            the QP's state, and no function of the core is called from inside one
 *   storage  all that waits is inside struct tp: at most one event of each kind (events.h)
 * The caller serialises everything on one struct tp (qp.lock). What a question or an event means is
 * the same for every carrier; the core decides only when and in which order.
 *
 * Requests are numbered by free-running counts from 0 as they are posted; the ring of struct
 * tp_request is the caller's memory, max_requests (a power of two) places; it is touched only where
 * requests are outstanding. A request's payload isn't copied: it is fetched when its packets are
 * sent, and again when they are sent again.
 */
#ifndef VERBENA_TRANSPORT_TRANSPORT_H
#define VERBENA_TRANSPORT_TRANSPORT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/early.h"
#include "wire/packet.h"

#define TP_EARLY_BYTES EARLY_BYTES
#define TP_NEVER UINT64_MAX

/* An RDMA WRITE of RC, of at most so many packets, may reach the peer in pieces: as WRITEs of one
 * packet each (requester.h). Of a longer one, the longer header and the key that is looked up for
 * each packet would cost more than the call to send that they save. */
enum { TP_PIECES_MAX = 32 };

struct tp;

enum tp_flag {
	TP_SOLICITED = 1,
	TP_FENCE = 2, /* not before all READs and atomics before it are answered */
	/* The owner reports its completion to no program, and its payload can be fetched until it
	 * completes, whatever the program does: it needs no acknowledgement of its own
	 * (requester.h). */
	TP_UNAWAITED = 4,
};

/* A send request. The caller fills only the first part. */
struct tp_request {
	uint64_t remote_addr;
	uint64_t compare_add, swap; /* FLUSH: the range's length; packet_feth() */
	uint32_t rkey;		    /* or the key to invalidate */
	uint32_t length;	    /* bytes of payload; of the answer for READs (atomics: 8) */
	uint32_t imm;		    /* network order */
	uint32_t srqn;		    /* XRC: the peer's SRQ, whose process executes the request */
	uint8_t opcode;		    /* enum ibv_wr_opcode */
	uint8_t flags;		    /* enum tp_flag */
	/* private to the core */
	uint8_t state;
	bool in_pieces; /* a WRITE that is sent as WRITEs of one packet each (requester.h) */
	uint32_t first_psn, last_psn;
	uint32_t done; /* READ: bytes that have arrived */
};

/* A message whose last packet the responder executed. */
struct tp_message {
	uint32_t length;
	uint32_t imm; /* network order; or the invalidated key */
	bool has_imm, has_invalidate, solicited, is_write;
};

/* The first packet of a SEND. */
struct tp_head {
	const uint8_t *bytes;
	uint32_t length;
	bool whole; /* it is the only one */
};

enum tp_take {
	TP_TAKEN,
	TP_NO_RECEIVE, /* RC: RNR NAK; UC: the message is dropped */
	TP_BAD_RECEIVE /* a local error: its segments aren't writable memory */
};

/* The result of a request's memory access; it decides the NAK and the asynchronous event. */
enum tp_access {
	TP_ACCESS_OK,
	TP_ACCESS_REFUSED,   /* key, range, PD or right: NAK_REMOTE_ACCESS */
	TP_ACCESS_INVALID,   /* the QP isn't set up for the operation, or an atomic isn't aligned:
				NAK_INVALID_REQUEST */
	TP_ACCESS_ELSEWHERE, /* aim() only: another process has the SRQ, see tp_srq_of() */
};

/* The questions that the core asks its owner. `owner` is the argument of tp_init. */
struct tp_world {
	/* --- requester */
	/* Copies payload bytes [offset, offset + n) of request `count` to `to`. False: that
	 * memory isn't accessible (any more), so the request fails with IBV_WC_LOC_PROT_ERR in
	 * its turn. */
	bool (*fetch)(void *owner, uint32_t count, uint32_t offset, uint8_t *to, uint32_t n);
	/* Called before a request that is answered begins: whether an atomic, or ATOMIC WRITE, has
	 * eight bytes. Returns IBV_WC_SUCCESS, or the status with which it completes in its turn
	 * (IBV_WC_LOC_LEN_ERR); nothing after it is sent then. Whether the segments may take the
	 * answer shows when it comes (deliver). */
	enum ibv_wc_status (*check)(void *owner, uint32_t count);
	/* Copies a READ's or an atomic's answer (in host order for the program's memory) into the
	 * request's segments. `last`: its final byte is written last. False as above. */
	bool (*deliver)(void *owner, uint32_t count, uint32_t offset, const uint8_t *from,
			uint32_t n, bool last);

	/* --- responder */
	/* XRC: what follows is for this SRQ: receives are taken from it, and keys belong to its
	 * protection domain. A receive that is taken stays with the SRQ that it came from. Refused:
	 * there is no such SRQ in the QP's domain. NULL: no QP of the owner's is of XRC.
	 * Elsewhere: another process executes the request; the peer repeats it (a NAK for a
	 * missing packet). */
	enum tp_access (*aim)(void *owner, uint32_t srqn);
	/* Takes the next receive for an arriving message (`head` NULL: for an RDMA WRITE with
	 * immediate data); *room is its size in bytes. It stays
	 * taken until TP_RECEIVED, receive_back or tp_stop. A bad receive is taken, too:
	 * TP_RECEIVED follows. */
	enum tp_take (*receive_take)(void *owner, const struct tp_head *head, uint32_t *room);
	/* Copies payload into the taken receive. False: its memory isn't accessible. */
	bool (*receive_place)(void *owner, uint32_t offset, const uint8_t *from, uint32_t n,
			      bool last);
	/* The message won't be completed (UC lost its end): the next message may have the
	 * receive. */
	void (*receive_back)(void *owner);
	/* How many receives are posted, for end-to-end credits; UINT32_MAX: they aren't counted (an
	 * SRQ). */
	uint32_t (*receives_left)(void *owner);

	/* Whether the peer has `right` (IBV_ACCESS_REMOTE_*) on the range; length 0 asks for the
	 * QP's own rights only. Asked for every packet, because regions may be deregistered
	 * meanwhile. */
	enum tp_access (*access)(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				 uint32_t right);
	/* Writes the payload of an RDMA WRITE whose access was granted just before. `last`: end of
	 * the message, its final byte is written last. False: not mapped. */
	bool (*write)(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from, uint32_t n,
		      bool last);
	bool (*read)(void *owner, uint64_t addr, uint32_t rkey, uint8_t *to, uint32_t n);
	bool (*atomic)(void *owner, uint64_t addr, uint32_t rkey, bool is_swap,
		       uint64_t compare_add, uint64_t swap, uint64_t *old);
	/* Writes the eight bytes of an ATOMIC WRITE, whose access was granted just before, as one
	 * word. REFUSED: not mapped; INVALID: not aligned. */
	enum tp_access (*store)(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from);
	/* Executes FLUSH; `feth` as the packet has it: what has been written to the range is
	 * visible to all from now on. */
	enum tp_access (*flush)(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				uint8_t feth);
	/* A send with invalidate names this key: invalidates its memory window. False: the peer may
	 * not. */
	bool (*invalidate)(void *owner, uint32_t rkey);
};

/* Events for the owner, in this order when several wait. */
enum tp_event_kind {
	/* The first packet arrived in RTR. */
	TP_ESTABLISHED,
	/* Request `count` is complete. Reported once for each request, in order. With an error:
	 * nothing after it was or will be executed, but behind a READ or an atomic whose segments
	 * can't take the answer; RC has stopped (tp_stop with keep_answer), UC
	 * sends nothing until tp_resume. The owner flushes the requests that follow. */
	TP_COMPLETED,
	/* In SQD the last request that had begun is complete (tp_drain). */
	TP_DRAINED,
	/* The taken receive is completed: `message` with success, or an error here. */
	TP_RECEIVED,
	/* The peer's request was refused, or can't be served, in a way that ends this QP. `async`
	 * is IBV_EVENT_QP_REQ_ERR, _ACCESS_ERR or _FATAL; negative: no event of its own, because
	 * the receive's error, reported before, stands for it. The core has stopped; its NAK is
	 * still sent (there is none for a key that the peer may not invalidate). */
	TP_REFUSED,
};

struct tp_event {
	enum tp_event_kind kind;
	enum ibv_wc_status status; /* COMPLETED, RECEIVED */
	uint32_t count;		   /* COMPLETED */
	int async;		   /* REFUSED */
	struct tp_message message; /* RECEIVED */
};

/* Counters of one QP (`verbena status`, ibv_query counters). */
struct tp_counters {
	uint64_t packets_out, packets_in;
	uint64_t resent;	/* packets retransmitted */
	uint64_t timeouts;	/* expiries of the transport timer */
	uint64_t sequence_naks; /* received */
	uint64_t rnr_naks;	/* received */
	uint64_t rnr_naks_sent;
	uint64_t out_of_sequence; /* packets that arrived before a missing one... */
	uint64_t kept;		  /* ... and were kept and executed in their turn */
	uint64_t duplicates;	  /* requests that arrived again */
	uint64_t dropped; /* packets that fit no state: stale, forged, malformed for the QP */
	uint64_t credit_waits;
	uint64_t congested; /* CNPs received */
};

struct tp_path {
	uint32_t mtu; /* bytes: 256 to 4096 */
	uint32_t local_qpn, remote_qpn;
	uint16_t pkey;
};

/* The window's upper limit; the congestion window stays below it (congestion.h). */
enum { TP_WINDOW_MAX = 1 << 22 /* bytes in flight */ };

/* The states are private to src/transport; the caller provides tp_size() bytes. */
size_t tp_size(void);

/* Prepares `tp` (tp_size() bytes) as after RESET: call tp_receive_ready (RTR), then tp_send_ready
 * (RTS; never for IBV_QPT_XRC_RECV). `type` is IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND (requester
 * only) or IBV_QPT_XRC_RECV (responder only). `requests` has `max_requests` places (a power of two,
 * or 0); it stays the caller's. */
void tp_init(struct tp *tp, enum ibv_qp_type type, const struct tp_world *world, void *owner,
	     struct tp_request *requests, uint32_t max_requests);
/*
 * XRC_RECV: the requests of one peer may be executed by several processes, one after the other. The
 * responder's state then is in memory that they share (TP_RESPONDER_BYTES, aligned to 64), and one
 * of their cores at a time works with it. The owners see to that; they hand the state on between
 * two packets, when the core owes no answer (tp_owes()).
 */
enum { TP_RESPONDER_BYTES = 7168 };
/* After tp_receive_ready(): the state moves to `memory`. */
void tp_share(struct tp *tp, void *memory);
/* The state is what is in `memory` now. NULL: another core has it; this one executes nothing and
 * answers nothing. Packets that this core kept are forgotten, the peer sends them again. */
void tp_responder_at(struct tp *tp, void *memory);
/* The number of the SRQ whose process must take the packet, since it would be executed for that SRQ
 * now, or answered from its memory; 0: any process may take it. */
uint32_t tp_srq_of(const struct tp *tp, const struct packet *packet);
/* Whether there are answers, a NAK or events that this core must give before another may have the
 * state. */
bool tp_owes(const struct tp *tp);

/* RC: memory for out-of-order packets (early.h), TP_EARLY_BYTES, untouched until a packet is lost.
 * Without it such packets are dropped, and the peer repeats them. Call before tp_receive_ready. */
void tp_keep_early(struct tp *tp, void *memory);

/* INIT to RTR. `path` has the dest_qp_num and path_mtu of ibv_modify_qp; of `attr` the core uses
 * rq_psn, max_dest_rd_atomic, min_rnr_timer. */
void tp_receive_ready(struct tp *tp, const struct tp_path *path, const struct ibv_qp_attr *attr);
/* RTR to RTS. Of `attr` the core uses sq_psn, max_rd_atomic, timeout, retry_cnt, rnr_retry. */
void tp_send_ready(struct tp *tp, const struct ibv_qp_attr *attr);
/* Changes attributes later: the RNR timer, in SQD also timeouts and depths. */
void tp_change(struct tp *tp, const struct ibv_qp_attr *attr, int mask);
/* The owner waits until all requests that are posted are complete: asks the peer to acknowledge
 * those that didn't ask. What tp_deadline() and tp_need() say may change. */
void tp_ask(struct tp *tp);
/* This QP is about to end or to stop: acknowledges what the peer didn't ask about, so that the
 * peer need not ask when this QP answers no more. tp_next_response() follows. */
void tp_acknowledge_all(struct tp *tp);
/* Enters SQD: requests that haven't begun wait until tp_resume. TP_DRAINED follows when those that
 * had begun are complete, which may be at once. */
void tp_drain(struct tp *tp);
void tp_resume(struct tp *tp);
/* Enters RESET or ERR: discards everything outstanding without completing it, and the waiting
 * events; no requests are sent any more. `keep_answer` (ERR): a NAK that is owed is still sent. */
void tp_stop(struct tp *tp, bool keep_answer);

/* Posts a request, which the caller has filled in before at requests[count & (max_requests - 1)].
 * The caller keeps no more than max_requests outstanding. */
void tp_post(struct tp *tp);

/* Takes a packet for this QP whose ICRC, addresses, P_Key and destination QPN the caller has
 * checked. A response with BECN shrinks the window as a CNP does. */
void tp_packet(struct tp *tp, const struct packet *packet, uint64_t now);

/* Pulls the next event. False: none waits. Out-of-order packets whose turn has come are executed
 * inside this call, one after the other, as the event of the one before is pulled. */
bool tp_next_event(struct tp *tp, struct tp_event *event);

/* A CNP arrived: this QP's packets meet a long queue on their path. */
void tp_congested(struct tp *tp, uint64_t now);
/* Handles the deadlines that have passed. */
void tp_expire(struct tp *tp, uint64_t now);
uint64_t tp_deadline(const struct tp *tp);

/*
 * Writes the next packet, BTH to padding, without ICRC, to `to` (WIRE_PACKET_MAX bytes). Returns
 * its size; 0: nothing may be sent now. Responses go before requests. Acknowledgements are merged,
 * so call it after a batch of packets, not after each. It makes events: for requests whose memory
 * isn't accessible, for READs that can't be answered any more, and for UC requests that were sent.
 */
uint32_t tp_next(struct tp *tp, uint64_t now, uint8_t *to);
/* As tp_next, but only this side's requests: for a caller that has just posted some, because the
 * peer waits for them more than for an acknowledgement. */
uint32_t tp_next_request(struct tp *tp, uint64_t now, uint8_t *to);
/* As tp_next, but only responses: for a QP that is about to end. */
uint32_t tp_next_response(struct tp *tp, uint8_t *to);
/* What is to be sent: nothing; only an acknowledgement that may wait a little to travel with this
 * side's next request; or something that shouldn't wait. */
enum tp_need { TP_NOTHING, TP_ACKNOWLEDGE, TP_SEND };
enum tp_need tp_need(const struct tp *tp, uint64_t now);

/* Whether FLUSH is to be sent with Soft-RoCE's ICRC (wire/icrc.h) for now: the peer sends its own
 * so, or was silent about a FLUSH with the other one. To be asked before each burst. */
bool tp_flush_doubled(const struct tp *tp);
/* Whether tp_next may have something to send. */
static inline bool tp_ready(const struct tp *tp, uint64_t now)
{
	return tp_need(tp, now) != TP_NOTHING;
}

/* Bytes of this side's requests in flight: sent and not acknowledged. */
uint32_t tp_under_way(const struct tp *tp);
/* Packets of this side's requests that are posted and not sent; counting ends above `enough`. */
uint32_t tp_unsent(const struct tp *tp, uint32_t enough);

/* Whether an acknowledgement is owed, and no other response. */
bool tp_acknowledges(const struct tp *tp);

/* The owner has completed requests before `count` itself, and none is outstanding: UC after SQE, or
 * requests that need no peer. */
void tp_realign(struct tp *tp, uint32_t count);

const struct tp_counters *tp_counters(const struct tp *tp);

/* The time that a code of min_rnr_timer stands for, ns (IBTA table 45). */
uint64_t tp_rnr_ns(uint8_t code);

#endif
