/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One end of a connection by itself: the test plays its peer, packet by packet, and its HCA.
 * Everything that the core tells its owner is recorded in one line of text, in order:
 *
 *   "done 0 0"      request 0 completed with status 0       "drained"
 *   "take", "place 0+256", "place 256+4 last", "receive 260 0" (bytes, status), "back"
 *   "write 1000+256", "read 1000+256", "atomic 1000", "invalidate 7", "refused 3", "established"
 *   "deliver 0 0+256", "deliver 0 256+4 last"
 *   "aim 5" (XRC: an SRQ's number)
 */
#ifndef VERBENA_TESTS_UNIT_TRANSPORT_STAGE_H
#define VERBENA_TESTS_UNIT_TRANSPORT_STAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "transport/state.h"
#include "transport/transport.h"

enum { MTU = 256, PLACES = 64, MEMORY = 1 << 16, SQ_PSN = 0x1000, RQ_PSN = 0x2000 };

struct stage {
	struct tp *tp;
	void *early;
	struct tp_request ring[PLACES];
	uint32_t posted;
	uint64_t now;
	char said[1 << 17];
	/* The answers of struct tp_world. */
	uint32_t receives, room;
	bool counts_receives; /* false: as with an SRQ */
	bool bad_receive, bad_segments, no_fetch, no_deliver, no_place, no_memory;
	enum tp_access access; /* for addresses beyond MEMORY: TP_ACCESS_REFUSED */
	uint64_t word;	       /* the target of atomics */
	uint32_t no_srq, elsewhere; /* XRC: the number of no SRQ, and of another process's */
	bool stops_at_receive; /* ... also when a receive completes */
	uint8_t sent[WIRE_PACKET_MAX + WIRE_ICRC];
	struct packet out; /* the last packet of tp_next */
};

/* RC with SQ_PSN, RQ_PSN, 4 READs, timeout 14, 7 retries, rnr_retry 7, rnr timer 12. */
struct stage *stage_begin(enum ibv_qp_type type);
struct stage *stage_with(enum ibv_qp_type type, const struct ibv_qp_attr *attr);
/* RC that keeps out-of-order packets; otherwise they are dropped. */
struct stage *stage_keeping(void);
struct stage *stage_keeping_as(enum ibv_qp_type type);
/* Makes the requester know that the peer drops out-of-order packets. */
void peer_drops(struct stage *s);
void stage_end(struct stage *s);
extern const struct ibv_qp_attr stage_attr;

void post(struct stage *s, enum ibv_wr_opcode opcode, uint32_t length, uint8_t flags);

/* A packet arrives from the peer. The payload's bytes don't matter. */
void arrives(struct stage *s, struct packet p);
#define ARRIVES(s, ...) arrives((s), (struct packet){__VA_ARGS__})
/* Payload bytes for any length. */
extern const uint8_t stage_payload[WIRE_MTU_MAX];
#define PAYLOAD(n) .payload = stage_payload, .length = (n)

/* Pulls events, which are recorded; needed after calls that no function here makes (tp_drain). */
void pull_events(struct stage *s);

void acknowledges(struct stage *s, uint32_t psn, uint8_t syndrome, uint32_t msn);

/* Expects that the next packet has this operation and PSN; it is in s->out. */
void sends(struct stage *s, uint8_t operation, uint32_t psn);
void sends_nothing(struct stage *s);
/* Expects this record since the last call, in order, separated by ", ". */
void says(struct stage *s, const char *what);
/* Advances the clock; each deadline expires at its time. */
void passes(struct stage *s, uint64_t ns);

#endif
