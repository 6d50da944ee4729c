/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The RoCE carrier: RoCEv2 to other hosts (or to this one, with VERBENA_CARRIER=wire).
 *
 * It stands between the QPs (qp.c, sq.c), the transport core (src/transport: what is sent when, and
 * what an arriving packet means) and UDP (src/net). A QP that is connected to another host has a
 * struct roce_qp, from RTR to RESET; datagrams need none.
 *
 * Which thread does what:
 *   - The posting thread (qp.lock held) enters the requests into the core and sends at once what
 *     the core permits.
 *   - The thread that drives the engine (hca.engine held) takes in packets that arrive.
 *   - What is to be sent as a consequence (acknowledgements, READ answers, requests that the window
 *     held back) is sent at the engine's next pass: by then the program has often posted its own
 *     answer, and no program waits for an acknowledgement alone.
 *   - A polling thread handles the timers, or else the engine thread.
 *
 * An acknowledgement that goes alone costs a system call at either end; one that travels with the
 * program's own answer costs nothing. So it waits a little (ack_delay()), as long as that pays:
 * `patience` counts up when an acknowledgement found a request to travel with, and down when its
 * wait expired. The wait also keeps a program that polls memory (for an RDMA WRITE's last byte) and
 * its own completions by turns in step with its peer: the peer's data comes while the program still
 * polls for its own completion.
 *
 * Locks, after qp.lock: roce.list_lock (ready, parked, timed, waiters, held), then roce.tx_lock
 * (the sender).
 *
 * A full socket (net/sender.h: blocked). No thread waits for room with a lock held: the engine
 * thread's epoll reports it (engine_await_room()), and roce_writable() sends what the socket kept.
 * Meanwhile a connected QP that has something to send is on `parked` instead of `ready`, so that no
 * pass looks at it; a UD QP is on `waiters`. A thread that enters a QP into either list checks
 * under list_lock that the socket is still blocked; roce_writable() opens the socket first and then
 * empties the lists under list_lock: so no QP stays on them. QPs go on in the order in which they
 * were parked, each for its turn; an acknowledgement goes with its QP's turn.
 *
 * The socket's lease. While it is hot, pollers look at the socket with each poll, which is a system
 * call. After COLD_AFTER consecutive empty receives, and when the engine's lease ends, the socket
 * is cold: it is in the engine thread's epoll, armed once, and the first packet makes it hot again.
 * So a program that only talks to processes of its own host never pays for the socket.
 *
 * roce.socket, the state of the socket:
 *   state        the socket is                            left by
 *   ROCE_APART   in no epoll: there is no engine thread   roce_join(), by engine_start(), or by a
 *                yet, or the daemon gave no socket        thread that returns to a daemon that
 * gives one: to COLD ROCE_COLD    in the engine thread's epoll, armed      roce_woken(), by the
 * engine thread, after the epoll's report: to HOT ROCE_HOT     in that epoll, disarmed by its
 * report;   roce_arm(), by roce_pass() (hca.engine is pollers look at it held), engine_release()
 * (any thread, no lock), the engine thread: to COLD ROCE_LEFT    the parent's; this is a forked
 * child     nothing roce_leave(), by the only thread of a forked child, makes any of them LEFT.
 * COLD and HOT change without a lock: roce_arm() stores COLD before it arms the epoll, also if the
 * socket is cold already, and roce_woken() stores HOT after the epoll has reported and disarmed
 * itself; so the socket doesn't stay cold and unarmed, in whatever order two threads arm it. The
 * socket enters the epoll, by one thread, before any thread may arm it; roce_join() leaves APART
 * afterwards, and only if the engine thread's first report hasn't.
 *
 * A process whose daemon has no wire (another program has port 4791) has this carrier too, without
 * a socket: it sends nothing by UDP, but may hold the responder of an XRC target whose packets come
 * from another process's socket. If it returns to a daemon that has the wire, roce_open() gives it
 * the socket. So "the process has the wire" is hca_has_wire(), and hca.roce is NULL on a fabric's
 * node only.
 *
 * A process may get the packets of another slot as well, whose process has ended and left XRC
 * target queue pairs (exec/xrc_wire.h): `heirs`. Such a socket is read whenever the own one is, and
 * armed when the own one becomes cold.
 *
 * Flags:
 *   flag               set by                           cleared by
 *   roce_entry.in      roce_entry_enter()               roce_batch_next()
 *   roce_qp.taken      roce_take(): the core took a     roce_give_back(), drop_receive(), and the
 *                      receive into `receive`           core's event that the message is complete
 * Their locks: see below. Neither is a state of the QP, whose states are the transport core's
 * (src/transport/state.h): `in` is about a list, and `taken` says whether roce_stop() has to give
 * the receive back, since the core forgets it then without a call.
 */
#ifndef VERBENA_HCA_ROCE_ROCE_H
#define VERBENA_HCA_ROCE_ROCE_H

#include "hca/exec/execute.h"
#include "hca/process/hca.h"
#include "net/receiver.h"
#include "net/sender.h"
#include "shm/groups.h"
#include "transport/transport.h"

/* Why an intact packet was dropped. */
enum roce_drop {
	ROCE_TAKEN,
	ROCE_DROP_QPN,	  /* for no QP */
	ROCE_DROP_HOST,	  /* not from the QP's peer */
	ROCE_DROP_ORIGIN, /* with an address of this host, but not from the process that it names */
	ROCE_DROP_PKEY,
	ROCE_DROP_QKEY,		 /* a datagram */
	ROCE_DROP_TRANSPORT,	 /* the QP is of another type */
	ROCE_DROP_STATE,	 /* the QP doesn't receive */
	ROCE_DROP_STALE,	 /* by the transport core; it counts them, too */
	ROCE_DROP_NO_RECEIVE,	 /* a datagram */
	ROCE_DROP_SHORT_RECEIVE, /* a datagram */
	ROCE_DROPS
};

/* The UDP socket's states; see above. */
enum roce_socket { ROCE_APART, ROCE_COLD, ROCE_HOT, ROCE_LEFT };

/* The socket of another slot. */
struct roce_heir {
	uint32_t slot;
	int fd;
};

enum { ROCE_HEIRS = 64 };

struct roce {
	struct hca *hca;
	/* Used under hca.engine; the socket's lease reads its descriptor without it. */
	struct net_receiver rx;
	struct lock tx_lock;
	/* Used under tx_lock, from net_begin() to net_end(). Not annotated: which sockets are
	 * blocked, and what a call costs, are atomic and read without the lock. */
	struct net_sender tx;
	struct lock list_lock;
	struct list ready GUARDED_BY(list_lock);   /* struct roce_qp.ready: something to send */
	struct list parked GUARDED_BY(list_lock);  /* likewise, but the QP's socket is full */
	struct list waiters GUARDED_BY(list_lock); /* struct qp.room_wait: UD, its socket is full */
	struct list held GUARDED_BY(list_lock);	   /* likewise: datagrams wait for more */
	struct list timed GUARDED_BY(list_lock); /* struct roce_qp.timed: a deadline, or had one */
	_Atomic uint32_t has_ready;
	/* The QP whose acknowledgement waits for a message to travel with; NULL: there is none, or
	 * it is on `ready` as others are. One program that answers another one has it with each
	 * message, so it takes no list. Stored under hca.engine, while which is held no QP ends. */
	_Atomic(struct qp *) ack_waits;
	_Atomic bool hears_class;   /* roce_hear_class() was called; changed under list_lock */
	_Atomic uint64_t deadline;  /* ns: no QP's deadline is earlier; TP_NEVER: there is none */
	_Atomic uint64_t scheduled; /* ns: when the engine thread looks by itself; 0: pollers do */
	_Atomic enum roce_socket socket;
	uint64_t now;	/* ns: when the current batch of packets came; under hca.engine */
	uint64_t heard; /* ns: when the last packet came; under hca.engine */
	uint64_t bulk;	/* ns: when at least ROCE_BULK packets came at once; under hca.engine */
	_Atomic uint32_t empty_receives; /* consecutive empty receives */
	/* A socket at the port that packets to this host leave by (roce_origin.c); -1: none. */
	int source_fd;
	/* Under hca.engine: the last source of a datagram that is an address of this host, and the
	 * last one that isn't. */
	struct groups_known own, stranger;
	struct groups_known sent_to; /* likewise of destinations; under tx_lock */
	/* Changed under hca.engine and list_lock. `heir_count` is atomic, because a thread that has
	 * neither reads whether there are any. */
	struct roce_heir heirs[ROCE_HEIRS];
	_Atomic uint32_t heir_count;
};

/* Whether pollers look at the socket. */
static inline bool roce_hot(const struct roce *roce)
{
	return atomic_load_explicit(&roce->socket, memory_order_relaxed) == ROCE_HOT;
}

/* Whether this is a forked child: nothing is sent, the QPs are its parent's. */
static inline bool roce_has_left(const struct roce *roce)
{
	return atomic_load_explicit(&roce->socket, memory_order_relaxed) == ROCE_LEFT;
}

/* A QP's place in one of the lists. `in`: the QP is in that list, or in the batch that a thread has
 * taken off it. Changed under list_lock, and read without it under qp.lock: the thread that takes
 * the QP off the list reads it afterwards, under qp.lock. */
struct roce_entry {
	struct list node;
	_Atomic bool in;
};

static inline bool roce_entered(const struct roce_entry *entry)
{
	return atomic_load_explicit(&entry->in, memory_order_relaxed);
}

/* The segments of the request whose packets are being sent. They are resolved once for those of a
 * burst: `holds` has their hazards until the burst is sent, so the memory stays registered. */
struct roce_source {
	struct hazard_scope *holds;
	uint32_t request;
	int segments; /* -1: not resolved */
	struct iovec local[LIMIT_SGE];
};

/* What the carrier remembers of a connected QP. Under qp.lock, but for the places in lists. */
struct roce_qp {
	struct qp *qp;
	struct roce_entry ready, timed;
	struct net_path path;	     /* path.near: the peer is on this host */
	struct roce_source *source;  /* while packets are sent (send_from()); else NULL */
	uint64_t told_at;	     /* ns: when the last CNP was sent to the peer */
	uint8_t patience;	     /* 0 to ROCE_PATIENCE: whether acknowledgements wait */
	uint64_t ack_due;	     /* ns: until when an acknowledgement waits; 0: none does */
	uint64_t ack_sent_at;	     /* ns: when one was sent alone; 0: none since */
	void *early;		     /* TP_EARLY_BYTES, the beginning of a mapping; then: */
	struct tp_request *requests; /* sq.mask + 1 places */
	struct tp_counters counted;  /* what is published of its transport's (counters.h) */
	uint64_t counted_sum;
	bool taken;		/* a message is coming into `receive`; under qp.lock */
	struct srq *taken_from; /* XRC: the SRQ that it came from */
	struct receive receive;
	_Alignas(16) uint8_t tp[]; /* struct tp */
};

static inline struct tp *roce_tp(struct roce_qp *w)
{
	return (struct tp *)w->tp;
}

/* Makes the carrier; `fd` is the UDP socket that the daemon gave, which is the HCA's from now on,
 * or -1. 0 or -errno. */
int roce_make(struct hca *hca, int fd);
/* Gives the carrier, which has none yet, its socket, which is the HCA's from now on; roce_join()
 * comes next, unless the engine isn't started yet. One thread: the one that makes the HCA, or that
 * returns to a daemon. */
void roce_open(struct roce *roce, int fd);
/* Frees it, for an HCA that couldn't be made. */
void roce_unmake(struct hca *hca);
/* In a forked child: closes what belongs to the parent. */
void roce_leave(struct hca *hca);

/* Whether VERBENA_CARRIER=wire asks for this carrier for peers of this host, too. */
bool roce_is_forced(void);

/* ---- origin (roce_origin.c) */
/* Takes a port for packets to this host, if roce_forced, and names it to the daemon. */
void roce_origin_make(struct roce *roce);
void roce_origin_unmake(struct roce *roce);
/* Names the port to the next daemon. 0 or -errno (logged). */
int roce_origin_name(struct roce *roce, struct daemon_conn *conn);
/* Whether this host has the address, as far as it is known. hca.engine is held. */
bool roce_is_near(struct roce *roce, const uint8_t gid[16]);
/* Whether packets to this host from the process that has this QPN leave by `port`. A QP's lock or
 * hca.engine is held. */
bool roce_is_slots_port(const struct roce *roce, uint32_t qpn, uint16_t port);
/* Whether packets from some process of this host leave by `port`. Likewise. */
bool roce_is_some_slots_port(const struct roce *roce, uint16_t port);
/* Whether a datagram was sent by the process that has its source QPN, as far as this host can tell.
 * hca.engine is held. */
static inline bool roce_is_honest(struct roce *roce, const struct packet *packet,
				  const struct net_from *from)
{
	return likely(!roce_is_near(roce, from->ip.source)) ||
	       roce_is_slots_port(roce, packet->src_qpn, from->ip.source_port);
}

/* ---- datagrams (roce_datagram.c); a connected QP's operations are in carrier_roce */
/* The headers of a datagram, with the QP's next PSN. The caller holds qp.lock. */
struct packet roce_datagram_packet(const struct qp *qp, const struct send_wqe *wqe)
	REQUIRES(qp->lock);
/* Sends a datagram; the request isn't completed. STEP_WAIT: its socket is full, and the QP is
 * resumed when there is room; STEP_FAILED: its memory can't be read. The caller holds qp.lock. */
enum step roce_datagram(struct qp *qp, const struct send_wqe *wqe, const struct iovec *local,
			int count) REQUIRES(qp->lock);

/* ---- called by the engine; hca.engine is held */
/* Takes in what has arrived and sends what is ready. Returns the number of packets and turns. */
unsigned int roce_pass(struct roce *roce);
/* Takes in what has arrived until now, before a QP begins or stops receiving. */
void roce_take_in(struct roce *roce);

/* Hands an intact packet from the QP's peer to the transport core. ROCE_TAKEN or ROCE_DROP_STALE.
 */
enum roce_drop roce_take_packet(struct roce_qp *w, const struct packet *packet)
	REQUIRES(w->qp->lock);
/* This process gets the packets of that slot no longer: closes the socket, if there is one. */
void roce_disinherit(struct roce *roce, uint32_t slot);

/* Whether the engine thread should stay awake: a packet came a moment ago, so the next one is
 * likely to come sooner than this thread could sleep and be woken. After a burst it stays awake for
 * longer, because a sender of long messages sends again only after it has read its
 * acknowledgements. hca.engine is held. */
enum { ROCE_WARM_NS = 20000, ROCE_WARM_BULK_NS = 60000, ROCE_BULK = 8 /* packets at once */ };
static inline bool roce_warm(const struct roce *roce)
{
	return roce_hot(roce) && (roce->now - roce->heard < ROCE_WARM_NS ||
				  roce->now - roce->bulk < ROCE_WARM_BULK_NS);
}

/* Whether some QP has something to send. */
static inline bool roce_ready(const struct roce *roce)
{
	return atomic_load_explicit(&roce->has_ready, memory_order_relaxed) ||
	       atomic_load_explicit(&roce->ack_waits, memory_order_relaxed);
}

static inline bool roce_busy(const struct roce *roce)
{
	return roce_hot(roce) || roce_ready(roce);
}

/* ---- without locks */
/* From now on packets come with their traffic class. It is needed where a router may have marked
 * them (ECN), by datagrams, whose receivers are told it, and by captures. Programs that talk to
 * their own host by connected QPs do without. */
void roce_hear_class(struct roce *roce);
/* Whether this process has the socket of that slot. */
bool roce_inherits(struct roce *roce, uint32_t slot);
/* Takes over the socket of that slot, whose process has ended. 0 or -errno; `fd` is closed then. */
int roce_inherit(struct roce *roce, uint32_t slot, int fd);
/* Enters the socket, if there is one, into the engine thread's epoll: cold. 0 or -errno. */
int roce_join(struct roce *roce, int epoll);
/* No thread polls, or a CQ is armed: the socket goes to the engine thread's epoll. True: the timers
 * were left to pollers, and the engine thread must look at them now (roce_scan()). */
bool roce_arm(struct roce *roce);
/* The engine thread was woken by the socket. */
void roce_woken(struct roce *roce);
/* The sender's socket of this index has room again. Engine thread. */
void roce_writable(struct roce *roce, unsigned int socket);
/* Handles deadlines that have passed. `now` and the result are ns; returns the next deadline,
 * TP_NEVER if there is none or a polling thread handles it, 0 if there is something to send now and
 * no thread polls. Engine thread. */
uint64_t roce_scan(struct roce *roce, uint64_t now);

/* ---- between roce.c and its parts; qp.lock is held */
extern const struct tp_world roce_world;
/* The message that was coming into a receive won't be complete: it is given back. */
void roce_give_back(void *owner);
/* Handles the core's events. Called after each input to the transport core, and after a burst. */
void roce_pull_events(struct roce_qp *w) REQUIRES(w->qp->lock);
void xrc_wire_go_on(struct qp *qp) REQUIRES(qp->lock); /* exec/xrc_wire.h */
/* Goes on with requests that waited behind one on memory windows, or packets that waited for
 * answers, after events were pulled. */
static inline void roce_continue(struct roce_qp *w) REQUIRES(w->qp->lock)
{
	if (unlikely(w->qp->sq.next != w->qp->sq.head))
		sq_run(w->qp);
	else if (unlikely(w->qp->type == IBV_QPT_XRC_RECV))
		xrc_wire_go_on(w->qp);
}
/* Bytes that a QP sends before other QPs have their turn; the highest `patience`. */
enum { ROCE_QUOTA = 128 * 1024, ROCE_PATIENCE = 3 };
/* Requests are about to be sent; `acks`: an acknowledgement travels with them. `now` in ns. */
void roce_ack_travels(struct roce_qp *w, bool acks, uint64_t now) REQUIRES(w->qp->lock);
/* Enters the QP into the lists if it has something to send, or a deadline. */
void roce_note(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock);
/* Sends what is owed to the peer of a QP that ends, and what an adapter would have acknowledged
 * long before. The core's events are dropped with the QP. hca.engine is held. */
void roce_answer(struct roce_qp *w) REQUIRES(w->qp->lock);
/* Sends what the core permits, at most ROCE_QUOTA bytes. */
void roce_transmit(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock);
/* Sends a CNP: the peer's packets carried ECN's mark. Rate-limited, not for each packet. */
void roce_notify(struct roce_qp *w, uint64_t now) REQUIRES(w->qp->lock);
/* Lets each UD QP of `held`, or of `waiters`, send what it has; hca.engine is held, so that none
 * ends meanwhile. Returns their number. */
unsigned int roce_resume_datagrams(struct roce *roce, bool held);
/* Takes a UD QP that ends off these lists; hca.engine is held, too. */
void roce_unwait(struct qp *qp);
/* Delivers a packet to a UD QP. ROCE_TAKEN, or why the packet was dropped. */
enum roce_drop roce_receive_datagram(struct qp *qp, const struct packet *packet,
				     const struct net_from *from) REQUIRES(qp->lock);

#endif
