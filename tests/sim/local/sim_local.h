/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulator of the local carrier's core: two or three processes in one, a scheduler that may
 * switch from one of their threads to another at every shared access, and an oracle that knows what
 * may happen. One seed determines one run.
 *
 *   task.c      threads as coroutines; scheduling; the clock; processes that stop or die
 *   memory.c    address spaces, regions, deregistration, hazards, copies
 *   windows.c   memory windows
 *   flush.c     FLUSH
 *   link.c      links: real rings (src/shm/ring.c) on plain memory, waiting, the daemon's events
 *   verbs.c     queue pairs as in src/hca/verbs: states, posting, receives, ending
 *   engine.c    each process's engine thread: records, acknowledgements, timers
 *   world.c     the core's interface (src/hca/local/core/world.h)
 *   oracle.c    the rules: order, once, bytes, statuses
 *   program.c   the programs' actions
 *   fork.c      a copy of a process, which must not touch its parent's resources
 *   plan.c      the plan of a seed
 *   main.c      seeds and coverage
 *
 * Memory that processes share is sequentially consistent here; tests/weak checks weaker orders.
 */
#ifndef VERBENA_TESTS_SIM_LOCAL_H
#define VERBENA_TESTS_SIM_LOCAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hca/local/core/local_qp.h"
#include "hca/local/core/world.h"
#include "shm/link.h"
#include "shm/pub.h"
#include "shm/ring.h"

enum {
	PROCESSES = 3,
	PAIRS = 4,
	QPS = 2 * PAIRS, /* per process: pair, side */
	THREADS = 3,	 /* per process: the engine's, then the program's */
	BLOCK = 3072,	 /* bytes of a request's or a receive's memory */
	REGION_BLOCKS = 4,
	TARGETS = 6, /* regions for peers, then for requests, then for receives */
	SENDERS = 6,
	REGIONS = 20, /* per process at a time */
	BLOCKS = REGIONS * REGION_BLOCKS,
	WINDOWS = 4, /* per process */
	ENTRIES = REGIONS + WINDOWS,
	ARENA = BLOCKS * BLOCK,
	MESSAGE_MAX = 3000, /* more than a ring holds */
	SERIALS = 1024,	    /* regions, and bindings of windows, in a run */
	REQUESTS = 512,	    /* in a run */
	RECEIVES = 1024,
	LIVES = 96,	/* of QPs, per run */
	DEPTH = 8,	/* of a send queue */
	RECV_DEPTH = 4, /* of a receive queue: memory suffices for all of a process */
	INLINE_MAX = 64,
	HAZARDS = 16,
	OWN_HAZARDS = 32,
	CUTS = 6,   /* of links, per run */
	HALVES = 6, /* links that only one side has at first, per run */
};

/* ------------------------------------------------------------------ random numbers */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* A number from 0 to below - 1. */
uint32_t rng_below(struct rng *rng, uint32_t below);
/* True with a probability of `thousandths`. */
bool rng_chance(struct rng *rng, uint32_t thousandths);

/* ------------------------------------------------------------------ what a seed stands for */

enum walk { WALK_EVEN, WALK_STICKY, WALK_PRIORITIES };

struct pair_plan {
	uint8_t process[2];
	enum ibv_qp_type type;
	bool srq;      /* both sides' receives come from their process's SRQ */
	bool same_psn; /* a reconnected QP begins with its former PSN */
	bool starves;  /* gets no receive before all other pairs have finished */
	bool heads;    /* a SEND's first bytes are asked for before its receive is taken */
	bool tags;     /* with heads: some SENDs match no receive at first, though there are some */
	uint8_t rnr_retry, min_rnr_timer, timeout, retry_cnt, max_rd_atomic;
	uint32_t flush_rights; /* of both QPs: IBV_ACCESS_FLUSH_... */
};

struct plan {
	uint64_t seed;
	uint32_t processes, pairs, programs; /* programs: threads of each process that post */
	enum walk walk;
	uint32_t switch_chance; /* thousandths, WALK_STICKY */
	uint32_t actions;	/* per program thread */
	uint32_t max_length;
	bool copies[PROCESSES][PROCESSES]; /* permitted from process to process */
	bool routed;			   /* the QPs are on a fabric */
	uint32_t lose;	  /* which loses so many thousandths of requests, and some after each */
	bool by_ring;	  /* long messages go through the ring even where copying is permitted */
	bool fast_copies; /* a copy is one step */
	/* thousandths of the programs' actions */
	uint32_t err, reset, destroy, dereg, unmap, bad_key, long_sends, reconnect, drain, fork;
	uint32_t long_receives; /* that reach beyond their region */
	uint32_t borrow;	/* thousandths of requests that lend their memory, if allowed */
	uint32_t windows;	/* thousandths of requests on windows */
	uint32_t reads;	  /* thousandths of RC's requests that are READs whatever the dice say */
	uint32_t flushes; /* thousandths of requests that are FLUSH, if no window's */
	uint32_t in_files, imported; /* thousandths of regions */
	uint32_t receives;	     /* thousandths of actions that post a receive */
	uint32_t no_hold;	     /* thousandths of world_hold() calls that fail */
	uint32_t hold_bytes;	     /* most bytes that a process holds */
	uint32_t copy_fails_at;	     /* step from which on copies are denied; 0: never */
	uint32_t kill_at, kill;	     /* step; process + 1 */
	uint32_t stop_at, stop;	     /* likewise */
	uint64_t stop_ns;
	uint32_t cut_at[CUTS]; /* steps at which a link between two living processes is lost */
	/* thousandths of links of which the daemon tells one side only, because it is killed; and,
	 * of those, of which the other side hears late, when the first one is about to leave */
	uint32_t halves, late;
	uint32_t hostile; /* process + 1 whose records are mutated; 0: none */
	bool calm;	  /* no faults: every request must succeed */
	struct pair_plan pair[PAIRS];
};

void plan_make(struct plan *plan, uint64_t seed);
void plan_print(const struct plan *plan);

/* ------------------------------------------------------------------ threads */

struct process;

struct task {
	void *place[5];
	struct process *process;
	uint32_t number; /* within its process */
	bool started, done, waiting;
	bool finishes;		  /* it posts no more requests */
	bool (*ready)(void *arg); /* what it waits for; it also goes on at `wake_at` */
	void *arg;
	uint64_t wake_at; /* ns; UINT64_MAX: no time limit */
	uint32_t priority;
	const char *where;
	void (*body)(struct task *);
};

struct mutex {
	struct task *holder;
};

/* Another thread may continue here. `where` is printed with -v. */
void task_yield(const char *where);
/* Waits until ready(arg), or until the clock reaches `wake_at`. */
void task_wait(bool (*ready)(void *arg), void *arg, uint64_t wake_at, const char *where);
void mutex_take(struct mutex *mutex);
bool mutex_try(struct mutex *mutex);
void mutex_give(struct mutex *mutex);
struct task *task_self(void);
/* Runs all threads until the programs are done; ends the process if they don't finish. */
void tasks_run(void);
void tasks_init(void);

/* ------------------------------------------------------------------ memory */

enum region_state { REGION_NONE, REGION_LIVE, REGION_ENDING, REGION_ENDED };

struct region {
	uint8_t process, place, state; /* enum region_state */
	bool imported;		       /* its memory belongs to a third process */
	bool hurt;		       /* it is being deregistered, or a block of it isn't mapped */
	uint32_t lkey, access;
	uint32_t first_block, blocks;
	/* A window's binding: */
	uint32_t of;	      /* serial number of its region; 0: it is a region */
	uint32_t uses;	      /* open requests */
	uint32_t closed_life; /* of the message that invalidates it; 0: none */
	uint32_t closed_seq;
};

enum block_use { BLOCK_FREE, BLOCK_SEND, BLOCK_RECEIVE, BLOCK_TARGET };

struct block {
	uint8_t use; /* enum block_use */
	bool unmapped;
	bool returned; /* the call that ended the QP has returned: no access is allowed */
	uint32_t request, receive;
};

/* A region as a process publishes it (pub_mr). */
struct entry {
	uint32_t rkey, access, pd, file_serial, window_qpn, window_region;
	uint64_t start, length, offset;
};

void memory_init(void);
/* Registers the memory at `place` again. Returns the region's serial number. */
uint32_t region_register(struct process *process, uint32_t place);
/* ibv_dereg_mr(): when it returns, no access to the memory may follow. False: windows are bound to
 * the region. */
bool region_deregister(struct process *process, uint32_t place);
struct region *region_at(const struct process *process, uint32_t place);
/* Returns a free block of a live region for this use; NULL: none. */
struct block *block_take(struct process *process, enum block_use use);
bool block_take_this(struct process *process, struct block *block, enum block_use use);
uint32_t block_index(const struct process *process, const struct block *block);
uint8_t *block_bytes(struct process *process, const struct block *block);
uint64_t block_iova(const struct process *process, const struct block *block);
struct region *block_region(const struct process *process, const struct block *block);
/* The serial number of the block's registration; whether that has ended or has unmapped memory;
 * whether it is imported. */
uint32_t region_serial(const struct process *process, const struct block *block);
bool region_hurt(uint32_t serial);
bool region_imported(uint32_t serial);
/* Fills the block with garbage, so that a late read is detected. */
void block_spoil(struct process *process, struct block *block);
/* The region with this `rkey`, for its rights. NULL: none. */
const struct entry *entry_find(const struct process *owner, uint32_t rkey);
uint64_t entry_resolve(const struct process *owner, uint64_t addr, uint64_t length, uint32_t rkey,
		       uint32_t access);
/* As hazard_of_qp(): no rkey. */
static inline uint32_t qp_hazard(uint32_t qpn)
{
	return 0x80000000u | (qpn & (LIMIT_QPS_PER_SLOT - 1));
}

/* Whether a hazard of `by`, which lives, names the owner's key; and the wait until none does. */
bool hazard_names(const struct process *by, const struct process *owner, uint32_t rkey);
void hazards_wait(struct process *owner, uint32_t rkey);
/* Waits until none of `peer`'s hazards names the QP, whose published state says that it sends
 * nothing. */
void hazard_wait_qp(struct process *process, struct process *peer, uint32_t qpn);
/* Copies in steps. False: not mapped. The oracle checks each step. */
enum side_of_copy { COPY_READS, COPY_WRITES };
bool memory_copy(uint64_t address, void *flat, size_t length, enum side_of_copy side,
		 const char *where);
bool memory_mapped(uint64_t address, size_t length);
/* The parts of an address: its process, block, offset in the block. */
struct place {
	struct process *process;
	struct block *block;
	uint32_t offset, serial;
};
struct place memory_place(uint64_t address);

/* ---- bindings of windows, by serial number */
/* A binding that may be made, to blocks of a region. 0: there were too many. */
uint32_t binding_make(struct process *process, uint32_t place, uint32_t first, uint32_t blocks);
void binding_state(uint32_t serial, enum region_state state);
uint64_t binding_offset(uint32_t serial);
bool binding_is(uint32_t serial);
bool binding_covers(uint32_t serial, uint32_t block);
uint32_t binding_first(uint32_t serial);
bool binding_ended(uint32_t serial);
uint32_t binding_uses(uint32_t serial);
void binding_use(uint32_t serial, int change);
/* Its owner ends it: requests that need it may fail. */
void binding_hurt(uint32_t serial);
/* A message ends it: later requests of that life may fail. */
void binding_closes(uint32_t serial, uint32_t life, uint32_t seq);
bool binding_closed_to(uint32_t serial, uint32_t life, uint32_t seq);

/* ------------------------------------------------------------------ windows */

enum window_state { WINDOW_FREE, WINDOW_BOUND, WINDOW_ENDING };

struct window {
	uint8_t state; /* enum window_state */
	uint8_t tag;
	bool served;	    /* ENDING: the engine's thread looks */
	uint32_t rkey, qpn; /* of the last binding, like: */
	uint32_t serial, region;
	uint32_t waiter; /* index of the QP whose request waits, + 1; 0: none */
	/* What programs know: */
	bool pending;	/* a request that changes it is open */
	bool announced; /* its BIND has completed */
	bool closing;	/* a request that ends it was posted */
};

struct request;
struct qp;
bool windows_bound_to(const struct process *process, uint32_t place);
/* The engine's thread: whether copies that held a window's end up have ended; ends those. */
bool windows_due(const struct process *process);
void windows_serve(struct process *process);
void windows_leave_qp(struct qp *qp);
/* As entry_resolve(), for the peer's access to a window of this QP. */
uint64_t window_resolve(const struct qp *qp, uint64_t addr, uint64_t length, uint32_t rkey,
			uint32_t access);
/* Whether the QP's owner shall now end a window that the peer is using. */
bool windows_race(const struct qp *qp);
/* Posts a BIND or LOCAL_INV, if there is a window for it. The QP's lock is held, here and below. */
void windows_post(struct qp *qp);
/* The request may name the target by a window's key. */
void windows_reach(struct qp *qp, struct request *r, struct send_wqe *wqe,
		   const struct block *target);
/* A block of the peer's for a request, perhaps within a window. NULL: none is free. */
struct block *windows_target(const struct qp *qp);
/* Whether the next message may invalidate a window of the peer's; lets it. */
bool windows_may_invalidate(const struct qp *qp);
void windows_invalidate(struct qp *qp, struct request *r, struct send_wqe *wqe);
void windows_request_over(const struct request *r, enum ibv_wc_status status);

/* ------------------------------------------------------------------ FLUSH */

/* Rights to FLUSH, chosen at random; none with a chance of `none` thousandths. */
uint32_t flush_some_rights(struct rng *rng, uint32_t none);
/* Posts a FLUSH, if the peer's region that is chosen grants one. The QP's lock is held. */
void flush_post(struct qp *qp);

/* ------------------------------------------------------------------ links */

enum sim_link_state { SIM_LINK_NONE, SIM_LINK_COMING, SIM_LINK_UP, SIM_LINK_DOWN };

struct backlog {
	struct list node;
	struct ring_header header;
	uint32_t size;
	uint8_t payload[64];
};

/* The memory that two processes share. */
struct link_shared {
	_Alignas(64) uint8_t ring[2][RING_BYTES];
	struct ring_ctl ctl[2];
	enum link_memory_part part[2];
	bool installed[2];
};

/* One process's half of a link. */
struct link {
	struct process *process, *peer;
	uint8_t state; /* enum sim_link_state */
	bool self, copies, has_waiters, broken;
	bool shut_out;		   /* this side has left before the peer came */
	uint32_t generation, left; /* generations: of the link, and that this side has left */
	struct link_shared *shared;
	uint32_t side;
	struct mutex tx_lock;
	struct ring_tx tx;
	struct ring_rx rx;
	struct list backlog;
	uint32_t backlog_count;
	bool waits[QPS];
	struct qp *owing; /* the queue pair whose acknowledgement another one's record may carry */
};

void links_init(void);
/* Frees what links that were lost still had to send. */
void links_end(void);
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
/* Whether the peer's threads don't use the link of this side's generation any more, or never will.
 */
bool link_peer_left(const struct link *link);
/* Whether the peer has come to the link, which is up. */
bool link_peer_came(const struct link *link);
/* Events from the daemon to a process; its engine thread handles them. */
void link_take_events(struct process *process);
bool link_has_events(const struct process *process);
/* Runs the daemon's actions that are due. Returns when the next one is. */
uint64_t daemon_run(void);
void daemon_death(struct process *process);
void daemon_cut(uint32_t a, uint32_t b);

/* ------------------------------------------------------------------ opcodes */

static inline bool is_atomic(uint8_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Of eight bytes, aligned, at memory that only its own process's instructions reach. */
static inline bool is_on_word(uint8_t opcode)
{
	return is_atomic(opcode) || opcode == IBV_WR_ATOMIC_WRITE;
}

static inline bool is_send(uint8_t opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV;
}

/* ------------------------------------------------------------------ queue pairs */

struct receive_queue {
	struct mutex lock; /* an SRQ's */
	bool shared;
	/* Free-running: posted, taken; completed; polled, which frees the place. */
	uint32_t head, tail, done, freed;
	struct receive at[RECV_DEPTH];
	bool waiters[QPS]; /* for an SRQ */
	uint32_t limit;
};

struct life;

struct qp {
	struct process *process;
	uint32_t index, qpn, pair, side;
	bool exists, connected;
	bool starved; /* a message once found no receive */
	struct mutex lock;
	uint8_t state; /* enum ibv_qp_state */
	uint8_t type;
	uint32_t epoch;
	struct ibv_qp_attr attr;
	struct local_qp lq;
	struct send_queue sq;
	uint8_t *sq_space;
	uint32_t freed; /* requests whose completions were polled */
	struct receive_queue own_rq, *rq;
	bool receive_waits; /* world_receive_wait() */
	/* By which bytes the last receive was taken; UINT32_MAX: not by a SEND's */
	uint8_t head[LOCAL_HEAD_BYTES];
	uint64_t looked_at; /* first bytes of the message that a receive was last looked for, */
	uint32_t looks;	    /* and how often; see matches_nothing() */
	uint32_t head_length;
	struct link *link;
	bool watched, watched_receive;
	uint32_t own_hazards[OWN_HAZARDS], own_count;
	uint32_t held_bytes, held_count;
	uint32_t losses;     /* requests that the fabric still loses in a row */
	uint32_t generation; /* of the connection: decides the PSNs */
	struct life *life;
	/* published */
	uint64_t word;
	uint32_t partner, pd, rq_psn, receives, told;
	uint64_t taken;
	bool completing; /* it has published that a message is taken, and not yet completed it */
};

/* Whether all places of the send queue, or of the receive queue, are taken. */
bool qp_is_full(const struct qp *qp);
bool receives_are_full(const struct receive_queue *rq);
/* Polls some of the completions of the QP and of its receive queue. */
void qp_poll(struct qp *qp);

void qp_create(struct qp *qp);
/* RESET to RTS with a peer of the same generation. */
void qp_connect(struct qp *qp, bool rts);
void qp_rts(struct qp *qp);
/* RTS to SQD, and back by qp_rts(). */
void qp_drain(struct qp *qp);
void qp_to_error(struct qp *qp);
void qp_to_reset(struct qp *qp);
void qp_destroy(struct qp *qp);
/* For internal use; engine's and QP's lock held (posting: the QP's). */
void qp_fail(struct qp *qp);
void qp_flush_requests(struct qp *qp);
void qp_complete(struct qp *qp, struct send_wqe *wqe, enum ibv_wc_status status);
/* Whether inline data may exceed the queue's room; and whether it was taken. */
bool qp_may_borrow(const struct qp *qp);
bool qp_post(struct qp *qp, const struct send_wqe *wqe);
bool qp_post_receive(struct qp *qp, const struct ibv_sge *sge, uint32_t number);
/* A tag is posted: a message that waits looks for a receive again, though none was posted. */
void qp_tag_posted(struct qp *qp);
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
	struct entry entry[ENTRIES];
	struct mutex windows;
	struct window window[WINDOWS];
	uint8_t tag[REGIONS];
	uint16_t serial[REGIONS];
	struct block block[BLOCKS];
	uint32_t next_block[BLOCK_TARGET + 1];
	uint32_t regions_hurt; /* own regions that have ended or have unmapped blocks */
	_Atomic uint64_t hazard[HAZARDS];
	uint32_t held_bytes;
	_Alignas(64) uint8_t arena[ARENA];
};

void engine_body(struct task *task);
void engine_kick(struct process *process);
/* One round over all links and QPs; the caller holds the engine's lock. */
void engine_pass(struct process *process);
void engine_leave(struct process *process);
/* Handles the records that have arrived on a link. The caller holds no lock. */
void engine_drain(struct process *process, struct link *link);
/* fork(): returns when the child has ended. */
void process_fork(struct process *parent);
/* Fails if it is called in a child, where `what` isn't allowed. */
void only_parent(const char *what);
void program_body(struct task *task);

/* ------------------------------------------------------------------ oracle */

struct request {
	uint32_t number, life, seq;
	uint8_t opcode, process, pair, side;
	uint16_t length;
	bool inlined, bad; /* it must fail */
	bool placed, executed, completed;
	bool sent;    /* a record of it is in the ring: */
	uint32_t msn; /* the number that the record names */
	uint8_t status;
	uint32_t region; /* serial number of its own memory's region; 0: inline */
	uint8_t peer;	 /* process */
	uint32_t
		target; /* serial number of the peer's region or binding, or of a BIND's; 0: none */
	uint32_t key;	/* SEND_WITH_INV */
	uint8_t wrong;	/* FLUSH: with what it must fail; 0: it must not */
	struct record_atomic flush; /* what its record says, but for the operation */
	uint32_t window;	    /* BIND, LOCAL_INV: the window, + 1; 0: none */
	uint32_t block, target_block;
	uint64_t old; /* atomic: the value before */
};

/* The state of SQD for a QP's life; DONE: the event "drained" has been reported. */
enum life_drain { DRAIN_NOT, DRAIN_UNDER_WAY, DRAIN_DONE };

struct life {
	uint32_t number, process, qp, pair, side, epoch;
	bool over, failed, refused;
	bool met; /* requester: it has met its peer's QP, in this life: */
	uint8_t peer_epoch;
	uint32_t failed_seq, posted, completed, polled, executed;
	uint64_t moved_at;     /* ns: when a piece of a request was last sent or received */
	uint32_t unreliable;   /* UC: the number after the last request that took effect */
	uint8_t drain;	       /* enum life_drain */
	uint32_t drain_posted; /* number of requests posted before SQD */
	uint32_t sender; /* responder: the life whose requests it executes, + 1; 0: none yet */
	uint32_t request[128];
};

struct receive_state {
	bool posted, done;
	uint8_t process;
	uint32_t block, length, order, region;
};

struct totals {
	uint64_t steps, switches, requests, success, dropped_runs, receives, long_receives;
	uint64_t status[32];
	uint64_t kinds[REC_KINDS + 2];
	uint64_t deregistrations, dereg_waits, kills, taken_of_dead, stops, cuts, halves, shut,
		losses, resets, errors, destroys, hostile, ring_full, rnr, holds, hold_refused,
		refused_reads, calm, drains, drained_late, lent, not_lent, forks, child_requests,
		mapped, imported, refused_in_part, binds, windows_later, invalidated_by_peer,
		through_windows, mapped_windows, wrong_windows, unmatched, short_ways, carried,
		flushed_here, gathered, together, flushed_by_peer, flushes_refused, rings_round;
};
extern struct totals totals;

void oracle_init(void);
struct life *oracle_life(struct qp *qp);
struct request *oracle_request(struct qp *qp);
void oracle_fill(uint32_t request, uint32_t from, uint8_t *to, uint32_t length);
void oracle_completed(struct qp *qp, uint32_t request, enum ibv_wc_status status);
/* The program has polled that many completions of requests. */
void oracle_polled(struct qp *qp, uint32_t count);
void oracle_received(struct qp *qp, uint32_t receive, const struct arrival *arrival,
		     enum ibv_wc_status status);
/* The request is sent to, or executed at, this life of the peer's QP. */
void oracle_meets(const struct request *request, uint8_t peer_epoch);
/* A record of the request, perhaps not the last one, is about to be in the ring. */
void oracle_sent(struct request *request, const struct ring_header *h);
/* The open request that the record, which `qp` is about to handle, refuses. NULL: it refuses
 * none. */
const struct request *oracle_refusal(const struct qp *qp, const struct ring_header *h);
/* A piece of a request of `qp` is about to be sent, or received. */
void oracle_moves(struct qp *qp);
/* `qp` is about to fail a request of its peer for want of a receive. */
void oracle_no_receive(const struct qp *qp);
/* UC: `qp` has handled the record of a request. */
void oracle_handled(const struct qp *qp, const struct ring_header *h);
/* `qp` has handled the record that refuses the request with this status. */
void oracle_answered(const struct request *request, uint32_t status);
/* Bytes of a one-sided operation are placed at the target. */
void oracle_placing(struct request *request, uint32_t offset, const uint8_t *from, uint32_t length);
void oracle_reading(struct request *request, uint32_t offset, uint32_t length);
/* The bytes before `end` have been copied. */
void oracle_moved(struct request *request, uint32_t end);
void oracle_atomic(struct request *request, uint64_t old);
/* `qp` executes the FLUSH of its peer whose record this is; or the requester does. */
void oracle_flushes(struct qp *qp, const struct record_atomic *op);
void oracle_flushed(struct request *request);
/* A BIND or LOCAL_INV is executed. */
void oracle_executed_here(struct request *request);
/* Returns the request whose target address this is, as the responder `qp` executes it. NULL: only
 * in a hostile run. */
struct request *oracle_at(struct qp *qp, uint64_t address, uint32_t *offset);
struct request *oracle_get(uint32_t number);
/* Whether all requests of living processes are complete. */
bool oracle_quiet(void);
void oracle_print_open(void);
bool oracle_others_quiet(uint32_t pair);
/* SQD: from now on no request begins; and the event that all that had begun are complete. */
void oracle_drains(struct qp *qp);
void oracle_drained(struct qp *qp);
/* The call that posted the last request refused it. */
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
	bool in_child; /* process_fork() is running */
	struct process process[PROCESSES];
	uint32_t disturbed; /* bits: pairs of which a QP ended, or a process stopped or died */
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
