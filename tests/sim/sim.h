/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator of the transport core: two ends, a network between them that loses, repeats,
 * reorders, delays, corrupts and forges packets, a simulated clock, and an oracle that knows what
 * may happen. One seed determines one run.
 *
 *   scenario.c  the plan of a seed: path, faults, depths, requests
 *   network.c   packets in flight
 *   side.c      one end's program and memory: struct tp_world
 *   processes.c XRC: the processes of a domain, which execute the requests for their SRQs
 *   oracle.c    the rules: order, bytes, exactly once
 *   run.c       the clock
 *   totals.c    coverage
 *   main.c      seeds
 */
#ifndef VERBENA_TESTS_SIM_H
#define VERBENA_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counter.h"
#include "transport/transport.h"
#include "wire/packet.h"

/* ------------------------------------------------------------------ random numbers */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* A number from 0 to below - 1. */
uint32_t rng_below(struct rng *rng, uint32_t below);
/* True with a probability of `millionths`. */
bool rng_chance(struct rng *rng, uint32_t millionths);

/* ------------------------------------------------------------------ what a seed stands for */

enum { WORKS_MAX = 256, RECEIVES_MAX = 64, DEPTH_MAX = 64, ASKED_MAX = 64, PROCESSES_MAX = 4 };

/* Areas of a side's memory that the other side accesses, by kind of access. */
enum {
	AREA_READ = 0, /* never changes */
	AREA_READ_SIZE = 5 << 19,
	AREA_WRITE = AREA_READ_SIZE, /* WRITEs, and READs of what they left */
	AREA_WRITE_SIZE = 1 << 18,
	AREA_ATOMIC = AREA_WRITE + AREA_WRITE_SIZE,
	AREA_ATOMIC_SIZE = 64,
	AREA_SIZE = AREA_ATOMIC + AREA_ATOMIC_SIZE,
};

struct network_faults { /* in millionths */
	uint32_t lose, lose_burst, duplicate, reorder, corrupt, truncate, mutate;
};

struct side_plan {
	uint32_t works, depth; /* how many requests in all; how many outstanding */
	uint32_t receives;     /* most receives that are posted at a time */
	uint32_t max_length;
	uint32_t errors;    /* millionths of requests that must fail */
	uint32_t unawaited; /* millionths of requests with TP_UNAWAITED */
	bool late_receives, srq, drains, keeps;
	struct ibv_qp_attr attr;
};

struct plan {
	uint64_t seed;
	enum ibv_qp_type type;
	uint32_t mtu;
	uint64_t latency_ns, jitter_ns;
	uint32_t ps_per_byte; /* of the link */
	uint32_t batch;	      /* packets that arrive before an answer is sent */
	struct network_faults faults;
	bool hostile;
	/* XRC: A is the initiator, B the target, of a domain with so many processes; the SRQ of
	 * process i has the number i + 1. 0: not XRC. `type` is RC then. */
	uint32_t processes;
	bool they_die;
	struct side_plan side[2];
};

void plan_make(struct plan *plan, uint64_t seed);
void plan_print(const struct plan *plan);

/* ------------------------------------------------------------------ requests */

/* A deliberate fault of a request. */
enum wrong {
	WRONG_NOTHING,
	WRONG_RKEY,
	WRONG_RANGE,
	WRONG_ALIGN,
	WRONG_FETCH,
	WRONG_DELIVER,
	WRONG_LENGTH,
	WRONG_PLACE,
	WRONG_RECEIVE,
	WRONG_INVALIDATE,
	WRONG_SRQ
};

struct work {
	uint8_t opcode, flags, wrong;
	bool done;
	bool executed;		 /* at the other side; then an atomic's `old` is valid */
	uint32_t length, offset; /* offset in the area */
	uint32_t imm, payload;	 /* the payload's seed */
	uint32_t srqn;		 /* XRC; else 0 */
	uint32_t delivered;
	uint64_t compare_add, swap, old;
	uint32_t generation; /* READ: how many requests were posted before it */
	uint8_t *answer;
};

struct receive {
	uint32_t room;
	uint8_t *bytes;
};

struct sim;
struct kept;

/* B, of XRC: one core for each process. side.tp is the holder's. */
struct processes {
	struct tp *tp[PROCESSES_MAX];
	void *early[PROCESSES_MAX];
	void *responder; /* what they share */
	uint32_t holder;
	bool died[PROCESSES_MAX];
	struct kept *first, **last; /* packets that wait */
};

/* The core's count of a side's first request; the oracle counts from 0. */
#define SIM_FIRST COUNTER_START(0)

struct side {
	struct sim *sim;
	struct side *peer;
	const struct side_plan *plan;
	uint8_t index;
	struct tp *tp;
	struct tp_request ring[DEPTH_MAX];
	void *early;	 /* store of out-of-order packets, or NULL */
	uint8_t *memory; /* AREA_SIZE - AREA_READ bytes; for AREA_READ see initial_byte() */
	/* Requests. */
	struct work works[WORKS_MAX];
	uint32_t posted, completed;
	uint32_t answering; /* the request that was answered last */
	bool failed;	    /* the requester has stopped with an error completion */
	bool dead;	    /* the responder has stopped */
	bool over;	    /* stopped because of either */
	bool draining;
	uint64_t resume_at;
	/* Effects of the peer's requests here: the next request, and how many of its bytes. */
	uint32_t executing, executed_bytes;
	uint32_t arriving; /* UC: the request that the packet belongs to */
	/* Receives that are posted, in order; `taken`: the core has taken the first. */
	struct receive receives[RECEIVES_MAX];
	uint32_t receive_head, receive_tail;
	uint32_t receives_done;
	bool taken;
	/* The range that was granted last. */
	uint64_t granted_addr;
	uint32_t aimed; /* XRC: the SRQ that is executed for; else 0 */
	struct processes processes;
	uint32_t granted_length, granted_right;
	uint64_t app_at, link_free_at;
	uint64_t deadline_seen;
	/* PSNs of the READs and atomics that were sent last (network.c). */
	struct {
		uint32_t psn, packets;
	} asked[ASKED_MAX];
	uint32_t asked_count;
};

/* ------------------------------------------------------------------ the network */

struct flight {
	uint64_t at, serial;
	uint8_t to;
	uint32_t size, request;
	uint8_t *bytes;
};

struct network {
	struct flight *heap;
	uint32_t count, room;
	uint64_t serial;
	uint32_t burst_left[2];
};

struct sim {
	struct plan plan;
	struct rng rng;
	bool verbose;
	uint64_t now;
	uint64_t quiet_at; /* from this time on no packet is lost */
	struct network network;
	struct side side[2];
	uint64_t packets;
};

void network_send(struct sim *sim, struct side *from, const uint8_t *bytes, uint32_t size,
		  uint32_t request);
/* When the next packet arrives; TP_NEVER: none is in flight. */
uint64_t network_next(const struct sim *sim);
/* Takes that packet out. The caller frees its bytes. */
struct flight network_take(struct sim *sim);
/* Whether the packet arrived as it was sent. */
bool network_whole(const struct flight *flight);
void network_end(struct sim *sim);

/* ------------------------------------------------------------------ sides and oracle */

/* The bytes of a payload: any two requests differ almost everywhere. */
static inline uint8_t payload_byte(uint32_t seed, uint32_t at)
{
	return (uint8_t)((seed + at * 0x9e3779b1u + (at >> 8) * 0x85ebca6bu) >> 13);
}

/* Makes `n` bytes of a payload from its byte `at` on; returns whether `from` is that stretch. */
void payload_fill(uint8_t *to, uint32_t seed, uint32_t at, uint32_t n);
bool payload_is(const uint8_t *from, uint32_t seed, uint32_t at, uint32_t n);

/* The initial contents of a side's memory are a payload, too. */
static inline uint32_t initial_seed(const struct side *side)
{
	return 0x5eed1234u * (side->index + 1u);
}

static inline uint8_t initial_byte(const struct side *side, uint32_t at)
{
	return payload_byte(initial_seed(side), at);
}

extern const struct tp_world sim_world;
void side_begin(struct sim *sim, struct side *side, const struct side_plan *plan);
void side_end(struct side *side);
/* Lets the program act: posts, drains, resumes. */
void side_app(struct side *side);
/* Pulls the core's events; call after each of its inputs and outputs. */
void side_pull_events(struct side *side);
bool side_finished(const struct side *side);

/* XRC, of B. */
void processes_begin(struct side *side, const struct tp_path *path);
void processes_end(struct side *side);
/* A packet has come; `bytes` are copied if it waits. */
void processes_packet(struct side *side, const struct packet *p, uint32_t request);
/* Goes on with packets that waited for answers. */
void processes_go_on(struct side *side);
/* Perhaps one of them dies. */
void processes_die(struct side *side);
enum tp_access processes_aim(struct side *side, uint32_t srqn);

bool work_wants_receive(const struct work *w);
bool work_wants_answer(const struct work *w);
enum ibv_wc_status work_status(const struct work *w);
/* Returns the peer's request that takes effect at `side` now. */
struct work *oracle_executing(struct side *side, bool (*fits)(const struct work *w));
uint64_t area_address(const struct side *side);
void oracle_executed(struct side *side, struct work *w, bool is_end);
/* The first packet of request `count` is sent for the first time. */
void oracle_begins(struct side *side, uint32_t count);
void oracle_read_answer(struct side *side, struct work *w);
void oracle_completion(struct side *side, uint32_t count, enum ibv_wc_status status);
_Noreturn void sim_fail(const struct sim *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void sim_trace(const struct sim *sim, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Coverage of the runs, so that uneventful seeds don't count as a test. */
struct sim_totals {
	uint64_t packets, errors[32]; /* by completion status */
	uint64_t hostile, uc, drained;
	uint64_t unasked; /* messages of one packet without AckReq */
	uint64_t xrc, handed_on, waited, died;
	struct tp_counters counters;
};
extern struct sim_totals sim_totals;
/* Prints them. False: a required situation never occurred. */
bool sim_totals_print(void);

void sim_run(uint64_t seed, bool verbose);

#define SIM_MUST(sim, condition, ...)                 \
	do {                                          \
		if (!(condition))                     \
			sim_fail((sim), __VA_ARGS__); \
	} while (0)

#endif
