/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire carrier: RoCEv2 to other hosts (or to this one, with VERBENA_CARRIER=wire).
 *
 * Between the QPs (qp.c, sq.c), the transport core (src/transport: what is sent when, and what
 * arrived means) and UDP (src/net). A QP that is connected to another host has a struct roce_qp,
 * from RTR to RESET; datagrams need none.
 *
 * Who does what:
 *   - posting (qp.lock held): enters the requests into the core and sends what it may at once, in
 *     the program's own thread
 *   - packets that arrive are taken in under hca.engine, by whoever drives the engine
 *   - what is to be sent as a consequence (acknowledgements, READ answers, requests that the window
 *     held back) is sent at the engine's next pass: by then the program has often posted its own
 *     answer, and an acknowledgement isn't what it waits for
 *   - timers: whoever polls, else the engine thread
 *
 * An acknowledgement by itself costs a system call at either end, and a program that is about to
 * post its answer has it travel along for nothing. So it waits a little (ack_delay()), as long as
 * that pays: `patience` counts up when an acknowledgement found a request to travel with, down when
 * it waited in vain. It also keeps programs that poll memory (for an RDMA WRITE's last byte) and
 * their own completions by turns in step: their peer's data comes while they still poll for the
 * completion of their own.
 *
 * Locks, after qp.lock: wire.list_lock (ready, parked, timed, waiters), then wire.tx_lock (the
 * sender).
 *
 * A full socket (net/sender.h: blocked). No thread waits for room with a lock held: the engine
 * thread's epoll reports it (engine_await_room()), and roce_writable() sends what the socket kept.
 * Meanwhile a connected QP that has something to send is on `parked` instead of `ready`, so that no
 * pass looks at it; a UD QP is on `waiters`. Whoever enters either list checks under list_lock that
 * the socket is still blocked; roce_writable() opens the socket first and then empties the lists
 * under list_lock: so no QP stays on them. QPs go on in the order in which they were parked, each
 * for its turn; an acknowledgement goes with its QP's turn.
 *
 * The socket's lease. `hot`: pollers look at the socket with each poll, a system call. After
 * COLD_AFTER looks in vain, and when the engine's lease ends, it is cold: the engine thread has the
 * socket in its epoll, armed once, and the first packet makes it hot again. So a program that only
 * talks to processes of its own host never pays for the wire.
 */
#ifndef VERBENA_HCA_ROCE_ROCE_H
#define VERBENA_HCA_ROCE_ROCE_H

#include "hca/exec/execute.h"
#include "hca/process/hca.h"
#include "net/receiver.h"
#include "net/sender.h"
#include "transport/transport.h"

/* Why a right packet was dropped. */
enum roce_drop {
	ROCE_TAKEN,
	ROCE_DROP_QPN,	/* for no QP */
	ROCE_DROP_HOST, /* not from the QP's peer */
	ROCE_DROP_PKEY,
	ROCE_DROP_QKEY,		 /* a datagram */
	ROCE_DROP_TRANSPORT,	 /* the QP is of another type */
	ROCE_DROP_STATE,	 /* the QP doesn't receive */
	ROCE_DROP_STALE,	 /* by the transport core; it counts them, too */
	ROCE_DROP_NO_RECEIVE,	 /* a datagram */
	ROCE_DROP_SHORT_RECEIVE, /* a datagram */
	ROCE_DROPS
};

struct roce {
	struct hca *hca;
	struct net_receiver rx; /* under hca.engine */
	struct lock tx_lock;
	struct net_sender tx;
	struct lock list_lock;
	struct list ready GUARDED_BY(list_lock);   /* struct roce_qp.ready: something to send */
	struct list parked GUARDED_BY(list_lock);  /* likewise, but the QP's socket is full */
	struct list waiters GUARDED_BY(list_lock); /* struct qp.room_wait: UD, its socket is full */
	struct list timed GUARDED_BY(list_lock); /* struct roce_qp.timed: a deadline, or had one */
	_Atomic uint32_t has_ready;
	_Atomic uint64_t deadline;  /* ns: no earlier one is due; TP_NEVER: none */
	_Atomic uint64_t scheduled; /* ns: when the engine thread looks by itself */
	_Atomic bool hot;
	bool left;	/* a forked child: nothing is sent, the QPs are its parent's */
	uint64_t now;	/* ns: when the packets that are being taken in came; under hca.engine */
	uint64_t heard; /* ns: when there was a packet last; under hca.engine */
	uint64_t bulk;	/* ns: when there were many at once; under hca.engine */
	_Atomic uint32_t vain; /* looks in vain since the last packet */
};

/* A QP's place in one of the lists. `in`: in that list, or in the batch of one who goes through it.
 * Changed under list_lock; read without, under qp.lock: whoever takes the QP off looks at it
 * afterwards, under that. */
struct roce_entry {
	struct list node;
	_Atomic bool in;
};

static inline bool roce_entered(const struct roce_entry *entry)
{
	return atomic_load_explicit(&entry->in, memory_order_relaxed);
}

struct roce_qp {
	struct qp *qp;
	struct roce_entry ready, timed;
	struct net_path path;
	uint64_t told_at;	     /* ns: the last CNP to the peer */
	uint8_t patience;	     /* 0 to ROCE_PATIENCE: whether acknowledgements wait */
	uint64_t ack_due;	     /* ns: one waits until then; 0: none does */
	uint64_t ack_sent_at;	     /* ns: one that didn't wait went out */
	void *early;		     /* TP_EARLY_BYTES, the beginning of a mapping; then: */
	struct tp_request *requests; /* sq.mask + 1 places */
	struct tp_counters counted;  /* of its transport's, what is published (counters.h) */
	uint64_t counted_sum;
	bool taken; /* `receive` is one that a message is coming into */
	struct receive receive;
	_Alignas(16) uint8_t tp[]; /* struct tp */
};

static inline struct tp *roce_tp(struct roce_qp *w)
{
	return (struct tp *)w->tp;
}

/* Makes the carrier when the daemon gave a socket. Without: hca.roce stays NULL. */
int roce_make(struct hca *hca);
/* Of an HCA that didn't come to be. */
void roce_unmake(struct hca *hca);
/* In a forked child: lets go of what is the parent's. */
void roce_leave(struct hca *hca);

/* ---- datagrams (roce_datagram.c); a connected QP's operations are in carrier_roce */
/* A datagram's headers, with the QP's next PSN. qp.lock held. */
struct packet roce_datagram_packet(const struct qp *qp, const struct send_wqe *wqe);
/* A datagram. STEP_WAIT: its socket is full, the QP is resumed when there is room; STEP_FAILED: its
 * memory isn't there. The request isn't completed. qp.lock held. */
enum step roce_datagram(struct qp *qp, const struct send_wqe *wqe, const struct iovec *local,
			int count) REQUIRES(qp->lock);

/* ---- the engine's part; engine held */
/* Takes in what has arrived, sends what is ready. Returns how much there was. */
unsigned int roce_pass(struct roce *roce);
/* What has arrived at this moment is taken in: before a QP begins or stops receiving. */
void roce_take_in(struct roce *roce);

/* A packet came a moment ago, so the next is likely to come at once: sleeping and waking take
 * longer than that. A sender of long messages pays for the waking, and comes again when it has
 * read its acknowledgements. Engine held. */
enum { ROCE_WARM_NS = 20000, ROCE_WARM_BULK_NS = 60000, ROCE_BULK = 8 /* packets at once */ };
static inline bool roce_warm(const struct roce *roce)
{
	return atomic_load_explicit(&roce->hot, memory_order_relaxed) &&
	       (roce->now - roce->heard < ROCE_WARM_NS ||
		roce->now - roce->bulk < ROCE_WARM_BULK_NS);
}

/* A QP has something to send. */
static inline bool roce_ready(const struct roce *roce)
{
	return atomic_load_explicit(&roce->has_ready, memory_order_relaxed);
}

static inline bool roce_busy(const struct roce *roce)
{
	return atomic_load_explicit(&roce->hot, memory_order_relaxed) || roce_ready(roce);
}

/* ---- without locks */
/* The socket goes to the engine thread's epoll: nobody polls. */
void roce_arm(struct roce *roce);
/* The engine thread was woken by it. */
void roce_woken(struct roce *roce);
/* There is room in the sender's socket of this index again. Engine thread. */
void roce_writable(struct roce *roce, unsigned int socket);
/* Deadlines that have passed. Returns the next one; 0: there is something to send now, and nobody
 * else is there to do it. Engine thread. */
uint64_t roce_scan(struct roce *roce, uint64_t now);

/* ---- between wire.c and its parts; qp.lock held */
extern const struct tp_world roce_world;
/* After each call of the transport core's inputs, and after a burst. */
void roce_pull_events(struct roce_qp *w) REQUIRES(w->qp->lock);
/* What a QP sends before others have their turn: bytes. */
enum { ROCE_QUOTA = 128 * 1024, ROCE_PATIENCE = 3 };
/* Requests are about to go: `acks`, with an acknowledgement. */
void roce_ack_travels(struct roce_qp *w, bool acks, uint64_t now);
/* The QP has something to send, or a deadline: enters the lists. */
void roce_note(struct roce_qp *w, uint64_t now);
/* Sends what may be sent, at most ROCE_QUOTA bytes. */
void roce_transmit(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock);
/* Tells the peer that its packets find a long queue on their way: now and then, not each time. */
void roce_notify(struct roce_qp *w, uint64_t now);
/* A UD QP that has found this path's socket full: is resumed when there is room. False: there is by
 * now. */
bool roce_wait_for_room(struct qp *qp, const struct net_path *path);
/* The UD QP ends; hca.engine is held, too. */
void roce_unwait(struct qp *qp);
/* A packet for a UD QP. */
enum roce_drop roce_receive_datagram(struct qp *qp, const struct packet *packet,
				     const struct net_from *from) REQUIRES(qp->lock);

#endif
