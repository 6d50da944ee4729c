/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The internals of struct tp: the requester (the program's requests, until they are acknowledged),
 * the responder (the peer's requests, in order) and the congestion window. Private to src/transport
 * and to unit tests of single rules. The caller of transport.h serialises access.
 *
 * Counts of requests and of the requester's packets are free-running 32-bit numbers; the responder
 * counts PSNs in the packet format's 24 bits.
 *
 * No lock guards a field here: each struct tp belongs to a QP, whose lock the soft HCA holds around
 * each call.
 *
 * The requester's states are in requester.h. Its flags are predictions about the path, valid in
 * each of those states:
 *   closed     set and cleared by packets_sent(): whether the last packets filled the window. Until
 *              there is room for a burst, nothing is sent, unless the peer is seen to keep packets
 *   was_near   set and cleared by expect_holes(): whether the last hole was near the one before
 *   widened    set by repair_arrived(), when the first packet of a hole wasn't enough; cleared by
 *              the next repair_arrived()
 *
 * The responder's flags. `kind` is the state of the message under way, `active` and `faulted`
 * together the state of the responder:
 *
 *   active faulted   meaning                                        left by
 *     0       0      before RTR, or stopped: requests are dropped   responder_start(): active
 *     1       0      requests are executed                          tp_end(): faulted; stop, or
 *                                                                   UC's bad receive: 0 0
 *     0       1      a request was refused: requests are dropped,   responder_stop(), unless it is
 *                    but earlier answers and the NAK, if it has     to keep the answer: 0 0
 *                    one (`nak`), are sent
 *
 *   flag         set by                                   cleared by (all: responder_start())
 *   established  tp_packet(): the first packet            none
 *   taken        take_receive()                           the message is complete, fails, or is
 *                                                         given back; responder_stop()
 *   going_on     responder_packet(): a missing packet     responder_go_on(), at the next gap or
 *                came, and kept ones may follow it        failure; responder_stop()
 *   went_on      responder_go_on(): it executed one       responder_packet(), with `going_on` set
 *   nak_said     owe_nak()                                tp_take_packet(): `expected` came
 *   nak_owed     owe_nak(); the peer repeats the request  give_acknowledge(), which sends it;
 *                that was refused, or one before the      tp_packet_executed(), if the packet
 *                missing packet                           wasn't lost; responder_stop()
 *   ack_owed     owe_ack(): a request, or a duplicate of  give_acknowledge(); responder_stop()
 *                one, is to be acknowledged
 * They aren't states, since each changes alone: a NAK may be owed while a receive is taken, or not
 * owed any more but said, and going on is interrupted for each event.
 */
#ifndef VERBENA_TRANSPORT_STATE_H
#define VERBENA_TRANSPORT_STATE_H

#include "base/counter.h"
#include "transport/congestion.h"
#include "transport/early.h"
#include "transport/events.h"
#include "transport/pacer.h"
#include "transport/psn.h"
#include "transport/transport.h"

enum {
	/* At most so many executed READs and atomics are kept for duplicate requests. */
	TP_ANSWERS_MAX = 128,
	/* A READ is requested in pieces of this size, so that a lost response makes little of the
	 * answer useless. */
	TP_READ_PIECE = 1 << 20,
	/* Each packet counts for so many bytes of the window beside its payload. */
	TP_PACKET_COST = 64,
	/* Bytes that the kernel sends at once, and so may lose at once. A window that was full
	 * opens again when it has room for them; a hole may be as large. */
	TP_BURST = 1 << 16,
	/* So many responses are sent in a row while requests wait, too. */
	TP_TURN = 16,
	/* After a hole as large as a burst, so many of the next holes are expected to be as
	 * large. */
	TP_WIDE_HOLES = 3,
	/* After so many failed attempts to repeat only the missing packet, the peer is taken for
	 * one that keeps no out-of-order packets. */
	TP_REPAIRS_MAX = 4,
	/* So many messages in a row, at most, don't ask for an acknowledgement; and only those that
	 * follow the one before within so many ns. */
	TP_UNASKED_MAX = 32,
	TP_STREAM_NS = 100000,
	/* An acknowledgement's PSN is at most so far behind the newest request: further back, it
	 * could be taken for one that isn't sent yet. */
	TP_ANSWERED_MAX = 1 << 22,
};

/* Longest message (the device's max_msg_sz). Not one of the constants before: from gcc 13 on a
 * value beyond `int` makes all of an enum's constants unsigned, which are compared with signed
 * differences of PSNs. */
#define TP_MESSAGE_MAX (1u << 31)

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

/* Addresses [from, to) under a key to which the peer has executed WRITEs. */
struct accepted {
	uint64_t from, to; /* equal: none */
	uint32_t rkey;
};

struct requester {
	struct tp_request *ring;
	uint32_t mask; /* of counts, to places */
	enum requester_state state;
	enum hole hole;
	enum repeat repeat;
	enum credit credit;
	/* Requests: first <= cursor <= begun <= posted. Those before `begun` have PSNs. */
	uint32_t first, cursor, begun, posted;
	/* Packets: una, the oldest unacknowledged; next, the next to be sent (of request `cursor`,
	 * or the first of request `begun`); top, the one after the last that was ever sent;
	 * assigned, the one after the last of request begun - 1. */
	uint32_t una, next, top, assigned;
	uint32_t acked;	       /* what the peer's newest acknowledgement acknowledges up to: `una`,
				  or before it, if only answers came since */
	uint32_t flight;       /* bytes sent since `una`, see bytes_between() */
	uint32_t asked;	       /* of them, since the last AckReq */
	uint32_t unasked;      /* messages without AckReq since the last one that had it */
	uint32_t unasked_max;  /* so many of them at most */
	uint32_t ask_before;   /* tp_ask(): the last request before this count asks */
	bool closed;	       /* the window was full when packets were sent last */
	uint32_t answers_owed; /* READ pieces and atomics that were sent and not answered */
	uint32_t open;	       /* READs and atomics begun and not complete: a fence waits */
	uint32_t broken_at;    /* BREAKS: the request that can't be sent */
	enum ibv_wc_status broken_status;
	/* End-to-end credits (IBTA 9.7.7.2). */
	uint32_t ssn, lsn, msn; /* 24 bits: messages begun; limit; the peer's newest MSN */
	uint32_t limited_psn;	/* LIMITED: the first packet of the message beyond the limit */
	/* The QP's attributes. */
	uint32_t max_answers; /* max_rd_atomic */
	uint8_t timeout, retry_cnt, rnr_retry;
	uint8_t flush_probes;	      /* probes in a row that repeated a FLUSH */
	bool flush_doubled;	      /* see tp_flush_doubled() */
	uint8_t retries, rnr_retries; /* tries that are left */
	/* Deadlines; TP_NEVER: the timer doesn't run. */
	uint64_t timer_at, probe_at, rnr_until;
	uint64_t ask_from;   /* while packets are outstanding: each message asks from then on */
	uint64_t message_at; /* when the end of a message was sent last */
	uint32_t probes;     /* probes in a row: each waits twice as long as the one before */
	/* DUE, GOES_ON: packets [again, again_end), from `una` on, are to be repeated without going
	 * back: one packet, or a hole. The first of them belongs to request `again_of`. */
	uint32_t again, again_end, again_of;
	uint32_t repeated_end; /* SENT, GOES_ON: packets before it were repeated */
	uint64_t rewound_at;   /* when it last went back or repeated a hole; or TP_NEVER */
	uint32_t rewound_psn;  /* ... to this PSN */
	/* What the last holes predict (expect_holes): was_near: little was between two of them;
	 * widened: repeating the first packet of a hole wasn't enough. */
	bool was_near, widened;
	uint8_t wide_holes;	/* so many large holes are expected */
	uint8_t repairs_failed; /* repairs in a row that weren't enough */
	uint32_t arrived;	/* bytes that the peer is seen to keep after `una`, see
				   repair_kept() */
	uint32_t ask_span;	/* bytes from one AckReq to the next, smoothed */
	uint32_t timed_psn;	/* the answer to it, sent at timed_at, gives a round trip */
	uint64_t timed_at;	/* TP_NEVER: no packet is timed */
	uint64_t delivered, timed_delivered; /* bytes acknowledged: in all; when it was sent */
	struct accepted accepted;	     /* by the WRITEs that have completed */
};

enum answer_state {
	ANSWER_GIVEN,
	ANSWER_FRESH, /* not yet sent completely for the first time */
	ANSWER_AGAIN, /* requested again */
};

#define ANSWERS_START COUNTER_START(4) /* the first count of a responder's answers */

enum answer_kind {
	ANSWER_DATA,  /* a READ's */
	ANSWER_WORD,  /* an atomic's */
	ANSWER_EMPTY, /* ATOMIC WRITE's or FLUSH's: a READ's response without bytes */
};

/* A request of these that was executed: its answer is still to be sent, or is kept for a duplicate
 * request. */
struct answer {
	uint64_t addr, original;
	uint32_t rkey, length;
	uint32_t psn;		    /* of its first response */
	uint32_t srqn;		    /* XRC */
	uint32_t packets, from, at; /* responses: how many; where this round began; the next one */
	uint8_t state;		    /* enum answer_state */
	uint8_t kind;		    /* enum answer_kind */
};

enum message_kind { MESSAGE_NONE, MESSAGE_SEND, MESSAGE_WRITE, MESSAGE_DROPPED };

struct responder {
	bool active;
	bool established; /* a packet has come: IBV_EVENT_COMM_EST is for the first one only */
	bool faulted;	  /* stopped by a refused request, whose NAK may be repeated */
	bool taken;	  /* a receive is taken */
	bool going_on;	  /* kept packets may be executed now (responder_go_on)... */
	bool went_on;	  /* ... and one has been executed */
	bool nak_said;	  /* a NAK was sent; no further one until packet `expected` arrives */
	bool nak_owed, ack_owed;
	uint8_t nak;  /* syndrome */
	uint8_t kind; /* of the message under way: enum message_kind */
	uint8_t rnr_timer;
	uint8_t turn;	    /* responses sent in a row since the last request */
	uint32_t too_early; /* the PSN that was dropped last, while a NAK is owed */
	uint32_t expected, msn;
	/* What acknowledgements acknowledge up to: the PSN after the newest request that isn't a
	 * READ or an atomic. Only the answer to one of these acknowledges it: an acknowledgement
	 * with its PSN would make a kernel's Soft-RoCE complete it without its data. It is at most
	 * TP_ANSWERED_MAX before `expected`. */
	uint32_t acknowledged;
	uint32_t said; /* what the last acknowledgement that was sent acknowledged up to */
	/* The current message. */
	uint32_t offset; /* bytes that have arrived */
	uint32_t room;	 /* SEND: size of the receive */
	uint32_t left;	 /* WRITE: bytes still to arrive */
	uint32_t srqn;	 /* XRC: the SRQ that the message names */
	uint32_t rkey;
	uint64_t addr;
	/* Answers: `made` counts all; `give` is the next one that may have to be sent. */
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
	struct responder
		*responder; /* `own`, or in memory that processes share: tp_responder_at() */
	struct responder own;
	struct early early;
};

/* requester.c */
void requester_init(struct tp *tp, struct tp_request *ring, uint32_t places);
void requester_limit_answers(struct tp *tp, const struct ibv_qp_attr *attr);
void requester_start(struct tp *tp, const struct ibv_qp_attr *attr);
void requester_stop(struct tp *tp);
void requester_drain(struct tp *tp);
/* tp_ask() */
void requester_ask(struct tp *tp);
void requester_expire(struct tp *tp, uint64_t now);

/* requester_responses.c: takes a response, which may be duplicate, stale or forged. */
void requester_packet(struct tp *tp, const struct packet *p, uint64_t now);

/* requester_send.c */
uint64_t requester_deadline(const struct tp *tp);
bool requester_may_send(const struct tp *tp, uint64_t now);
uint32_t requester_next(struct tp *tp, uint64_t now, uint8_t *to);
uint32_t requester_unsent(const struct tp *tp, uint32_t enough);

/* responder.c */
void responder_start(struct tp *tp, const struct ibv_qp_attr *attr);
void responder_stop(struct tp *tp, bool keep_answer);
/* Takes a request. */
void responder_packet(struct tp *tp, const struct packet *p);
void responder_packet_uc(struct tp *tp, const struct packet *p);
/* Executes kept packets in their turn, until one has made an event. */
void responder_go_on(struct tp *tp);
bool responder_may_send(const struct responder *r);
/* tp_acknowledge_all() */
void responder_acknowledge_all(struct tp *tp);
/* tp_srq_of(), of a request. */
uint32_t responder_srq_of(const struct tp *tp, const struct packet *p);
uint32_t responder_next(struct tp *tp, uint8_t *to);

/* transport.c: the five-bit codes of the AETH's credit count (IBTA 9.7.7.2). */
uint8_t credits_encode(uint32_t receives);
uint32_t credits_decode(uint8_t code);

_Static_assert(sizeof(struct responder) <= TP_RESPONDER_BYTES, "tp_share()");

static inline uint32_t tp_packets_of(const struct tp *tp, uint32_t length)
{
	return length ? (uint32_t)(((uint64_t)length + tp->path.mtu - 1) >> tp->mtu_shift) : 1;
}

#endif
