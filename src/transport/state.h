/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a struct tp is inside: the requester (our requests, until they are acknowledged), the
 * responder (the peer's requests, in order) and the path's window. Private to src/transport; the
 * tests of single rules may look. The caller of transport.h serialises everything.
 *
 * Counts of requests and of the requester's packets are free-running 32 bits; the responder counts
 * in the wire's 24.
 */
#ifndef VERBENA_TRANSPORT_STATE_H
#define VERBENA_TRANSPORT_STATE_H

#include "transport/congestion.h"
#include "transport/early.h"
#include "transport/events.h"
#include "transport/pacer.h"
#include "transport/psn.h"
#include "transport/transport.h"

enum {
	/* READs and atomics that the responder keeps for repetitions, at most. */
	TP_ANSWERS_MAX = 128,
	/* A READ is asked for in pieces of this size, so that an answer that got lost doesn't leave
	 * much behind it in vain. */
	TP_READ_PIECE = 1 << 20,
	/* What a packet costs the window beside its payload. */
	TP_PACKET_COST = 64,
	/* Bytes that the kernel sends at once, and so loses at once. A window that was full opens
	 * again when it has room for them; a hole may be as large. */
	TP_BURST = 1 << 16,
	/* Responses in a row while requests wait, too. */
	TP_TURN = 16,
	/* After a hole of a burst, so many are taken to be as large. */
	TP_WIDE_HOLES = 3,
	/* Tries to repeat only what is missing, until the peer is taken for one that keeps nothing.
	 */
	TP_REPAIRS_MAX = 4,
	/* Longest message (the device's max_msg_sz). */
	TP_MESSAGE_MAX = 1u << 31,
};

/* 2^22 packets of the smallest cost, or a window of READ pieces at MTU 256, are far fewer than the
 * 2^23 that PSNs can tell apart; so nothing counts packets under way. */
_Static_assert(TP_WINDOW_MAX / TP_PACKET_COST + TP_READ_PIECE / 256 < 1 << 22, "PSN window");

/* The requester's states; requester.h has the table. */
enum requester_state {
	REQUESTER_OFF,
	REQUESTER_SENDS,
	REQUESTER_DRAINS,
	REQUESTER_DRAINED,
	REQUESTER_BREAKS,
};
enum hole { HOLE_NONE, HOLE_NARROW, HOLE_WIDE };
enum repeat { REPEAT_NONE, REPEAT_DUE, REPEAT_SENT, REPEAT_GOES_ON };
enum credit { CREDIT_UNCOUNTED, CREDIT_COUNTED, CREDIT_LIMITED };

struct requester {
	struct tp_request *ring;
	uint32_t mask; /* of counts, to places */
	enum requester_state state;
	enum hole hole;
	enum repeat repeat;
	enum credit credit;
	/* Requests: first <= cursor <= begun <= posted. Those before `begun` have PSNs. */
	uint32_t first, cursor, begun, posted;
	/* Packets: una, the oldest that isn't acknowledged; next, to be sent (of request `cursor`,
	 * or the first of request `begun`); top, after the last ever sent; assigned, after the last
	 * of request begun - 1. */
	uint32_t una, next, top, assigned;
	uint32_t flight;       /* bytes sent since `una`, see bytes_between() */
	uint32_t asked;	       /* of them, since the last AckReq */
	bool closed;	       /* the window was full, and has no room for a burst yet */
	uint32_t answers_owed; /* READ pieces and atomics sent and not answered */
	uint32_t open;	       /* READs and atomics begun and not over: the fence waits for them */
	uint32_t broken_at;    /* BREAKS: the request that can't be sent */
	enum ibv_wc_status broken_status;
	/* End-to-end credits (IBTA 9.7.7.2). */
	uint32_t ssn, lsn, msn; /* 24 bits: messages begun; limit; the peer's newest MSN */
	uint32_t limited_psn;	/* LIMITED: the first packet of the message beyond the limit */
	/* What the program wants. */
	uint32_t max_answers; /* max_rd_atomic */
	uint8_t timeout, retry_cnt, rnr_retry;
	uint8_t retries, rnr_retries; /* left */
	/* Times, TP_NEVER when they don't run. */
	uint64_t timer_at, probe_at, rnr_until;
	uint32_t probes; /* in a row: each waits twice as long as the one before */
	/* DUE, GOES_ON: packets [again, again_end), from `una` on, are to be repeated without going
	 * back: one, or a hole's. The first of them is of request `again_of`. */
	uint32_t again, again_end, again_of;
	uint32_t repeated_end; /* SENT, GOES_ON: packets before it were repeated */
	uint64_t rewound_at;   /* when it last went back or repeated a hole; TP_NEVER: it hasn't */
	uint32_t rewound_psn;  /* ... to here */
	/* What the last holes let expect (expect_holes): little was between two; repeating the
	 * first packet of one wasn't enough. */
	bool was_near, widened;
	uint8_t wide_holes;	/* so many are expected */
	uint8_t repairs_failed; /* in a row: it hadn't */
	uint32_t arrived;	/* bytes that the peer is seen to keep after `una`, see
				   repair_kept() */
	uint32_t ask_span;	/* bytes from one AckReq to the next, smoothed */
	uint32_t timed_psn;	/* the answer to it, sent at timed_at, gives a round trip */
	uint64_t timed_at;	/* TP_NEVER: no packet is timed */
	uint64_t delivered, timed_delivered; /* bytes acknowledged: in all; when it was sent */
};

enum answer_state {
	ANSWER_GIVEN,
	ANSWER_FRESH, /* not yet given completely for the first time */
	ANSWER_AGAIN, /* asked for again */
};

/* A READ or an atomic that was executed: to be answered, or kept in case it is asked for again. */
struct answer {
	uint64_t addr, original;
	uint32_t rkey, length;
	uint32_t psn;		    /* of its first response */
	uint32_t packets, from, at; /* responses: all; where this turn began; the next one */
	uint8_t state;
	bool is_atomic;
};

enum message_kind { MESSAGE_NONE, MESSAGE_SEND, MESSAGE_WRITE, MESSAGE_DROPPED };

struct responder {
	bool active;
	bool established;
	bool faulted;  /* stopped by a request that was refused: its NAK is repeated */
	bool taken;    /* a receive */
	bool going_on; /* kept packets may have their turn (responder_go_on)... */
	bool went_on;  /* ... and one has been executed */
	bool nak_said; /* nothing more is said until packet `expected` comes */
	bool nak_owed, ack_owed;
	uint8_t nak;  /* syndrome */
	uint8_t kind; /* of the message under way: enum message_kind */
	uint8_t rnr_timer;
	uint8_t turn;	    /* responses given since a request went out */
	uint32_t too_early; /* the PSN that was dropped last, if a NAK is owed */
	uint32_t expected, msn;
	/* The message under way. */
	uint32_t offset; /* bytes that have come */
	uint32_t room;	 /* SEND: of the receive */
	uint32_t left;	 /* WRITE: bytes to come */
	uint32_t rkey;
	uint64_t addr;
	/* Answers: made is a count; `give` is the next one that may have to be given. */
	uint32_t answers_max, made, give;
	struct answer answers[TP_ANSWERS_MAX];
};

struct tp {
	const struct tp_world *world;
	void *owner;
	enum ibv_qp_type type;
	uint8_t transport; /* upper bits of opcodes */
	uint8_t mtu_shift;
	struct tp_path path;
	struct tp_counters counters;
	struct congestion congestion;
	struct pacer pacer;
	struct events events;
	struct requester requester;
	struct responder responder;
	struct early early;
};

/* requester.c */
void requester_init(struct tp *tp, struct tp_request *ring, uint32_t places);
void requester_limit_answers(struct tp *tp, const struct ibv_qp_attr *attr);
void requester_start(struct tp *tp, const struct ibv_qp_attr *attr);
void requester_stop(struct tp *tp);
void requester_drain(struct tp *tp);
void requester_expire(struct tp *tp, uint64_t now);

/* requester_responses.c: a response, whatever it claims to answer. */
void requester_packet(struct tp *tp, const struct packet *p, uint64_t now);

/* requester_send.c */
uint64_t requester_deadline(const struct tp *tp);
bool requester_may_send(const struct tp *tp, uint64_t now);
uint32_t requester_next(struct tp *tp, uint64_t now, uint8_t *to);
uint32_t requester_unsent(const struct tp *tp, uint32_t enough);

/* responder.c */
void responder_start(struct tp *tp, const struct ibv_qp_attr *attr);
void responder_stop(struct tp *tp, bool keep_answer);
/* A request. */
void responder_packet(struct tp *tp, const struct packet *p);
void responder_packet_uc(struct tp *tp, const struct packet *p);
/* Kept packets whose turn has come, until one has made an event. */
void responder_go_on(struct tp *tp);
bool responder_may_send(const struct responder *r);
uint32_t responder_next(struct tp *tp, uint8_t *to);

/* transport.c: the five-bit codes of receive counts (table 45's neighbour, 46). */
uint8_t credits_encode(uint32_t receives);
uint32_t credits_decode(uint8_t code);

static inline uint32_t tp_packets_of(const struct tp *tp, uint32_t length)
{
	return length ? (uint32_t)(((uint64_t)length + tp->path.mtu - 1) >> tp->mtu_shift) : 1;
}

#endif
