/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator of the local carrier's core: two or three processes in one, a scheduler that may
 * switch from one of their threads to another at every shared access, and an oracle that knows what
 * may happen. One seed makes one run, always the same.
 *
 *   task.c      threads as coroutines; which one goes on; the clock; processes that stop or die
 *   memory.c    address spaces, regions, deregistration, hazards, copies
 *   link.c      links: real rings (src/shm/ring.c) on plain memory, waiting, the daemon's events
 *   verbs.c     queue pairs as src/hca/verbs has them: states, posting, receives, ending
 *   engine.c    each process's engine thread: records, acknowledgements, timers
 *   world.c     what the core asks for (src/hca/local/core/world.h)
 *   oracle.c    what must hold: order, once, bytes, statuses
 *   program.c   what the programs do
 *   fork.c      a copy of a process, which must leave what is its parent's
 *   plan.c      what a seed stands for
 *   main.c      seeds, and what they met
 *
 * Memory that processes share is sequentially consistent here; weaker orders are checked elsewhere.
 */
#ifndef VERBENA_TESTS_SIM_LOCAL_H
#define VERBENA_TESTS_SIM_LOCAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hca/local/core/local_qp.h"
#include "hca/local/core/world.h"
#include "shm/pub.h"
#include "shm/ring.h"

enum {
	PROCESSES = 3,
	PAIRS = 4,
	QPS = 2 * PAIRS, /* of a process: pair, side */
	THREADS = 3,	 /* of a process: the engine's, then the program's */
	BLOCK = 1024,	 /* bytes: a request's or a receive's memory */
	REGION_BLOCKS = 4,
	TARGETS = 6, /* regions for peers, then those of requests, then those of receives */
	SENDERS = 6,
	REGIONS = 20, /* of a process at a time */
	BLOCKS = REGIONS * REGION_BLOCKS,
	ARENA = BLOCKS * BLOCK,
	MESSAGE_MAX = 900,
	SERIALS = 512,	/* regions in a run */
	REQUESTS = 512, /* in a run */
	RECEIVES = 1024,
	LIVES = 96,	/* of QPs in a run */
	DEPTH = 8,	/* of a send queue */
	RECV_DEPTH = 4, /* of a receive queue: all of a process find memory */
	INLINE_MAX = 64,
	HAZARDS = 16,
	OWN_HAZARDS = 32,
};

/* ------------------------------------------------------------------ random numbers */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* 0 to below - 1. */
uint32_t rng_below(struct rng *rng, uint32_t below);
/* With a probability of parts in a thousand. */
bool rng_chance(struct rng *rng, uint32_t thousandths);

/* ------------------------------------------------------------------ what a seed stands for */

enum walk { WALK_EVEN, WALK_STICKY, WALK_PRIORITIES };

struct pair_plan {
	uint8_t process[2];
	enum ibv_qp_type type;
	bool srq;      /* both sides' receives come from their process's SRQ */
	bool same_psn; /* a reconnected QP begins with the PSN of its life before */
	bool starves;  /* gets no receive before all other pairs are through */
	uint8_t rnr_retry, min_rnr_timer, timeout, retry_cnt, max_rd_atomic;
};

struct plan {
	uint64_t seed;
	uint32_t processes, pairs, programs; /* programs: threads of each process that post */
	enum walk walk;
	uint32_t switch_chance; /* thousandths, WALK_STICKY */
	uint32_t actions;	/* of each program thread */
	uint32_t max_length;
	bool copies[PROCESSES][PROCESSES]; /* process to process */
	bool by_ring;	  /* long messages go through the ring though they may be copied */
	bool fast_copies; /* a copy is one step */
	/* thousandths of the programs' actions */
	uint32_t err, reset, destroy, dereg, unmap, bad_key, long_sends, reconnect, drain, fork;
	uint32_t borrow; /* thousandths of requests that lend their memory, if they may */
	uint32_t in_files, imported; /* thousandths of regions that are so */
	uint32_t receives;	     /* thousandths of actions that post a receive */
	uint32_t no_hold;	     /* thousandths of world_hold() that fail */
	uint32_t hold_bytes;	     /* that a process holds at most */
	uint32_t copy_fails_at;	     /* step from which on no copy is permitted; 0: never */
	uint32_t kill_at, kill;	     /* step; process + 1 */
	uint32_t stop_at, stop;	     /* likewise */
	uint64_t stop_ns;
	uint32_t down_at; /* step at which a link between two living processes is lost */
	uint32_t hostile; /* process + 1 whose records are mutated; 0: none */
	bool calm;	  /* no faults at all: everything succeeds */
	struct pair_plan pair[PAIRS];
};

void plan_make(struct plan *plan, uint64_t seed);
void plan_print(const struct plan *plan);

/* ------------------------------------------------------------------ threads */

struct process;

struct task {
	void *place[5];
	struct process *process;
	uint32_t number; /* in its process */
	bool started, done, waiting;
	bool finishes;		  /* it posts no more requests */
	bool (*ready)(void *arg); /* waiting: goes on when true, or at `wake_at` */
	void *arg;
	uint64_t wake_at; /* ns; UINT64_MAX: never by itself */
	uint32_t priority;
	const char *where;
	void (*body)(struct task *);
};

struct mutex {
	struct task *holder;
};

/* Another thread may go on here. `where` is for -v. */
void task_yield(const char *where);
/* Until ready(arg), or the clock is at `wake_at`. */
void task_wait(bool (*ready)(void *arg), void *arg, uint64_t wake_at, const char *where);
void mutex_take(struct mutex *mutex);
bool mutex_try(struct mutex *mutex);
void mutex_give(struct mutex *mutex);
struct task *task_self(void);
/* Runs all threads until the programs are done, or fails. */
void tasks_run(void);
void tasks_init(void);

/* ------------------------------------------------------------------ memory */

enum region_state { REGION_NONE, REGION_LIVE, REGION_ENDING, REGION_ENDED };

struct region {
	uint8_t process, place, state; /* enum region_state */
	bool imported;		       /* its memory is a third process's */
	bool hurt;		       /* it is ending, or a block of it isn't mapped */
	uint32_t lkey, access;
	uint32_t first_block;
};

enum block_use { BLOCK_FREE, BLOCK_SEND, BLOCK_RECEIVE, BLOCK_TARGET };

struct block {
	uint8_t use; /* enum block_use */
	bool unmapped;
	bool returned; /* QP's end has returned: nothing may read it any more */
	uint32_t request, receive;
};

/* What a process publishes of a region, as pub_mr. */
struct entry {
	uint32_t rkey, access, pd, file_serial;
	uint64_t start, length, offset;
};

void memory_init(void);
/* Registers the memory at `place` anew; the region's serial number. */
uint32_t region_register(struct process *process, uint32_t place);
/* ibv_dereg_mr(): when it returns, nothing touches the memory. */
void region_deregister(struct process *process, uint32_t place);
struct region *region_at(const struct process *process, uint32_t place);
/* A free block of a live region for this use; NULL: none. */
struct block *block_take(struct process *process, enum block_use use);
uint32_t block_index(const struct process *process, const struct block *block);
uint8_t *block_bytes(struct process *process, const struct block *block);
uint64_t block_iova(const struct process *process, const struct block *block);
struct region *block_region(const struct process *process, const struct block *block);
/* Its registration, which has ended, or whose memory isn't all mapped any more. */
uint32_t region_serial(const struct process *process, const struct block *block);
bool region_hurt(uint32_t serial);
bool region_imported(uint32_t serial);
/* Garbage into it: whoever still reads it shows. */
void block_spoil(struct process *process, struct block *block);
/* The region that `rkey` names, for its rights. NULL: none. */
const struct entry *entry_find(const struct process *owner, uint32_t rkey);
uint64_t entry_resolve(const struct process *owner, uint64_t addr, uint64_t length, uint32_t rkey,
		       uint32_t access);
/* Waits until `peer`'s hazards name nothing of the QP (its state says that it sends nothing). */
void hazard_wait_qp(struct process *process, struct process *peer, uint32_t qpn);
/* Copies in steps. False: not mapped. The checks of the oracle are made for each step. */
enum side_of_copy { COPY_READS, COPY_WRITES };
bool memory_copy(uint64_t address, void *flat, size_t length, enum side_of_copy side,
		 const char *where);
bool memory_mapped(uint64_t address, size_t length);
/* What an address is: its process, block, offset in the block. */
struct place {
	struct process *process;
	struct block *block;
	uint32_t offset, serial;
};
struct place memory_place(uint64_t address);

/* ------------------------------------------------------------------ links */

enum sim_link_state { SIM_LINK_NONE, SIM_LINK_COMING, SIM_LINK_UP, SIM_LINK_DOWN };

struct backlog {
	struct list node;
	struct ring_header header;
	uint32_t size;
	uint8_t payload[64];
};

/* What two processes share. */
struct link_shared {
	_Alignas(64) uint8_t ring[2][RING_BYTES];
	struct ring_ctl ctl[2];
	bool installed[2];
};

/* One process's half. */
struct link {
	struct process *process, *peer;
	uint8_t state; /* enum sim_link_state */
	bool self, copies, has_waiters, broken;
	uint32_t generation;
	struct link_shared *shared;
	uint32_t side;
	struct mutex tx_lock;
	struct ring_tx tx;
	struct ring_rx rx;
	struct list backlog;
	uint32_t backlog_count;
	bool waits[QPS];
};

void links_init(void);
struct link *link_get(struct process *process, struct process *peer);
struct ring_header *link_begin(struct link *link, uint32_t payload);
void link_send(struct link *link, struct ring_header *h, uint32_t payload);
void link_abandon(struct link *link, uint32_t payload);
void link_control(struct link *link, const struct ring_header *h, const void *payload,
		  uint32_t size);
void link_notify(struct link *link);
void link_wait(struct link *link, uint32_t qp);
bool link_flush_backlog(struct link *link);
void link_break(struct link *link);
/* What the daemon tells a process: its engine thread takes it in. */
void link_take_events(struct process *process);
bool link_has_events(const struct process *process);
/* The daemon: what is due at this moment. Returns when the next is due. */
uint64_t daemon_run(void);
void daemon_death(struct process *process);
void daemon_cut(void);

/* ------------------------------------------------------------------ queue pairs */

struct receive_queue {
	struct mutex lock; /* an SRQ's */
	bool shared;
	uint32_t head, tail, held;
	struct receive at[2 * RECV_DEPTH];
	uint32_t back_count; /* SRQ: given back, before the others */
	struct receive back[RECV_DEPTH];
	bool waiters[QPS]; /* SRQ */
	uint32_t limit;
};

struct life;

struct qp {
	struct process *process;
	uint32_t index, qpn, pair, side;
	bool exists, connected;
	bool starved; /* it had no receive for a message once */
	struct mutex lock;
	uint8_t state; /* enum ibv_qp_state */
	uint8_t type;
	uint32_t epoch;
	struct ibv_qp_attr attr;
	struct local_qp lq;
	struct send_queue sq;
	uint8_t *sq_space;
	struct receive_queue own_rq, *rq;
	bool receive_waits; /* world_receive_wait() */
	struct link *link;
	bool watched, watched_receive, owes_ack;
	uint32_t own_hazards[OWN_HAZARDS], own_count;
	uint32_t held_bytes, held_count;
	uint32_t generation; /* of the connection: which PSNs */
	struct life *life;
	/* published */
	uint64_t word;
	uint32_t partner, pd, rq_psn, receives, told;
};

void qp_create(struct qp *qp);
/* RESET to RTS with a peer of the same generation. */
void qp_connect(struct qp *qp, bool rts);
void qp_rts(struct qp *qp);
/* RTS to SQD, and back by qp_rts(). */
void qp_drain(struct qp *qp);
void qp_to_error(struct qp *qp);
void qp_to_reset(struct qp *qp);
void qp_destroy(struct qp *qp);
/* From inside; engine's and QP's lock held (posting: the QP's). */
void qp_fail(struct qp *qp);
void qp_flush_requests(struct qp *qp);
void qp_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);
/* Whether inline data may be more than the queue has room for; and whether it was taken. */
bool qp_may_borrow(const struct qp *qp);
bool qp_post(struct qp *qp, const struct send_wqe *wqe);
bool qp_post_receive(struct qp *qp, const struct ibv_sge *sge, uint32_t number);
void qp_publish(struct qp *qp);
struct qp *qp_peer(const struct qp *qp);
static inline struct qp *qp_of(const struct local_qp *lq)
{
	return container_of((struct local_qp *)(uintptr_t)lq, struct qp, lq);
}

/* ------------------------------------------------------------------ processes */

struct process {
	uint32_t number, slot;
	bool dead, stopped, doorbell;
	bool sleeps; /* the engine's thread */
	uint64_t stopped_until, timer_at;
	struct mutex engine;
	struct task task[THREADS];
	struct qp qp[QPS];
	struct receive_queue srq;
	struct link link[PROCESSES];
	bool acks[QPS];
	struct entry entry[REGIONS];
	uint8_t tag[REGIONS];
	uint16_t serial[REGIONS];
	struct block block[BLOCKS];
	uint32_t next_block[BLOCK_TARGET + 1];
	uint32_t regions_hurt; /* how many regions for its own use have ended, or blocks gone */
	_Atomic uint64_t hazard[HAZARDS];
	uint32_t held_bytes;
	_Alignas(64) uint8_t arena[ARENA];
};

void engine_body(struct task *task);
void engine_kick(struct process *process);
/* One round over everything; the engine's lock is held. */
void engine_pass(struct process *process);
void engine_leave(struct process *process);
/* Takes in what has arrived on a link. No lock is held. */
void engine_drain(struct process *process, struct link *link);
/* fork(): returns when the child has ended. */
void process_fork(struct process *parent);
/* What a child mustn't do. */
void only_parent(const char *what);
void program_body(struct task *task);

/* ------------------------------------------------------------------ oracle */

struct request {
	uint32_t number, life, seq;
	uint8_t opcode, process, pair, side;
	uint16_t length;
	bool inlined, bad; /* must fail */
	bool placed, executed, completed;
	uint8_t status;
	uint32_t region; /* serial of its own memory's; 0: inline */
	uint8_t peer;	 /* process */
	uint32_t target; /* serial of the peer's region; 0: none */
	uint32_t block, target_block;
	uint64_t old; /* atomic: what was there */
};

/* A QP's SQD: DRAINED once the program has been told so. */
enum life_drain { DRAIN_NOT, DRAIN_UNDER_WAY, DRAIN_DONE };

struct life {
	uint32_t number, process, qp, pair, side, epoch;
	bool over, failed, refused;
	bool met; /* requester: its peer's QP, in this life: */
	uint8_t peer_epoch;
	uint32_t failed_seq, posted, completed, executed;
	uint32_t unreliable;   /* UC: the place behind the last that took effect */
	uint8_t drain;	       /* enum life_drain */
	uint32_t drain_posted; /* how many were posted before SQD */
	uint32_t sender; /* responder: the life whose requests it executes, + 1; 0: none yet */
	uint32_t request[128];
};

struct receive_state {
	bool posted, done;
	uint8_t process;
	uint32_t block, length, order, region;
};

struct totals {
	uint64_t steps, switches, requests, success, dropped_runs, receives;
	uint64_t status[32];
	uint64_t kinds[REC_KINDS + 2];
	uint64_t deregistrations, dereg_waits, kills, stops, cuts, resets, errors, destroys,
		hostile, ring_full, rnr, holds, hold_refused, refused_reads, calm, drains,
		drained_late, lent, not_lent, forks, child_requests, mapped, imported;
};
extern struct totals totals;

void oracle_init(void);
struct life *oracle_life(struct qp *qp);
struct request *oracle_request(struct qp *qp);
void oracle_fill(uint32_t request, uint32_t from, uint8_t *to, uint32_t length);
void oracle_completed(struct qp *qp, uint32_t request, enum ibv_wc_status status);
void oracle_received(struct qp *qp, uint32_t receive, const struct arrival *arrival,
		     enum ibv_wc_status status);
/* It is sent to, or executed at, this life of the peer's QP. */
void oracle_meets(const struct request *request, uint8_t peer_epoch);
/* Bytes of a one-sided operation at the target. */
void oracle_placing(struct request *request, uint32_t offset, const uint8_t *from, uint32_t length);
void oracle_reading(struct request *request, uint32_t offset, uint32_t length);
/* The copy of the bytes before `end` has been made. */
void oracle_moved(struct request *request, uint32_t end);
void oracle_atomic(struct request *request, uint64_t old);
/* The request at a target's address, as the responder `qp` executes it. NULL: a hostile run. */
struct request *oracle_at(struct qp *qp, uint64_t address, uint32_t *offset);
struct request *oracle_get(uint32_t number);
/* All that the living posted is completed. */
bool oracle_quiet(void);
void oracle_print_open(void);
bool oracle_others_quiet(uint32_t pair);
/* SQD: from when on nothing more begins; and the program is told that all that began is over. */
void oracle_drains(struct qp *qp);
void oracle_drained(struct qp *qp);
/* The last request was refused by the call that posted it. */
void oracle_refused(struct qp *qp, uint32_t request);
void oracle_end(void);
uint32_t oracle_receive(struct qp *qp, struct block *block, uint32_t length);
void oracle_receive_gone(uint32_t receive);

/* ------------------------------------------------------------------ all of it */

struct sim {
	struct plan plan;
	struct rng rng;
	bool verbose;
	uint64_t now, last_fault; /* ns */
	uint32_t step;
	bool over;
	bool in_child; /* process_fork() runs */
	struct process process[PROCESSES];
	uint32_t disturbed; /* pairs of which a QP ended, a process stopped or died: bits */
};
extern struct sim sim;

void sim_run(uint64_t seed, bool verbose);
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define trace(...)                                    \
	do {                                          \
		if (__builtin_expect(sim.verbose, 0)) \
			trace_print(__VA_ARGS__);     \
	} while (0)
void trace_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline struct process *process_by_slot(uint32_t slot)
{
	return slot >= 1 && slot <= sim.plan.processes ? &sim.process[slot - 1] : NULL;
}

#endif
