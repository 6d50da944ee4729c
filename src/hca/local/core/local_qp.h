/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's core: RC, UC and XRC between two processes of a host (or within one) as state
 * machines, without I/O, clock, threads or allocation. Records of a link and times go in; records,
 * completions and deadlines come out. Everything that is shared or outside goes through world.h.
 * So the same code runs in the soft HCA (local_world.c) and in the simulator (tests/sim).
 *
 * Contract:
 *   serialisation  the owner holds the QP's lock around every call, and for those that are marked
 *                  "engine" its process's engine lock as well
 *   inputs         the functions below. Each does a bounded amount of work: it handles one record,
 *                  or the requests that are posted, or the messages that wait
 *   world          called from inside the inputs. world_fail() may call local_qp_stop() on the same
 *                  QP, and nothing else of the core
 *   time           `now` is monotonic ns, an argument
 *
 * States of the requester towards its peer (enum local_peer):
 *   UNTOLD  this QP has not announced to the peer that it is ready. The link may not be up
 *   TOLD    it has; the peer's published entry didn't say yet that it is ready for this QP. Nothing
 *           is sent
 *   READY   the peer's entry was seen ready: requests are sent to its life `peer_epoch`
 *   UNTOLD -> TOLD when the link is up; TOLD -> READY when the entry says so; READY -> TOLD when a
 *   one-sided request finds that life gone (the timer decides); any -> UNTOLD with a new link
 *
 * States of the requester's oldest requests (enum local_request_wait):
 *   RUNS    acknowledgements are awaited, the transport timer runs
 *   RNR     the peer answered that it has no receive for one: the peer's timer runs instead of this
 *           side's, as long as the peer's QP exists
 *   STREAMS the peer asked for the payload of request `pull_msn`; pieces are being put into the
 *           ring
 *   RUNS -> RNR by an RNR record; RUNS, RNR -> STREAMS by PULL; STREAMS -> RUNS when the last piece
 *   is in the ring; RNR -> RUNS when a request completes, or by AGAIN
 *
 * States of the responder (enum local_responder):
 *   OPEN          the next request is executed when it arrives
 *   WAIT_RECEIVE  RC: the oldest message has no receive. Its deadline runs (rnr_retry)
 *   WAIT_DATA     the oldest message's payload is being streamed into the receive `taken`
 *   WAIT_ROOM     the oldest is a READ whose answer waits for room in the ring
 *   HALTED        a request was refused, or (RC) is lost with its sender: nothing later is
 *                 executed
 *   OPEN -> WAIT_* when the oldest message can't be executed; WAIT_* -> OPEN when it has been;
 *   any -> HALTED, which only RESET ends
 *
 * States of messages that arrive behind one that waits (enum local_flow):
 *   TAKES    they are held, in arrival order
 *   REFUSES  RC: there was no room for one (LOCAL_HELD_BYTES, or the world's bounds): it stays at
 *            the sender, and so does all that follows it. AGAIN asks for it when there is room
 *   LOSES    UC: likewise, but it is lost; `lost` counts such messages, so that the sender still
 *            gets their acknowledgement
 *
 * States of an RDMA WRITE that comes in pieces (enum local_write):
 *   NONE, PLACING (`write_done` bytes are in place), VOID (UC: refused; its other pieces are
 *   ignored)
 *
 * A link that ends before the peer has come to it (shm/link.h: SHUT) loses nothing: requests of RC
 * that were sent by it (from `link_msn` on) are sent again by the next link, with their numbers.
 * Earlier ones were sent by an earlier link, and may be executed, so they aren't.
 * A link that is lost between two living processes loses what is in its rings. RC goes on by the
 * next link if nothing was lost; a request that was, or whose answer was, ends with RETRY_EXC_ERR.
 * UC always goes on: the responder drops what it holds of the peer's messages, and the next message
 * may skip numbers (`cut`); a WRITE of which pieces were sent is sent again from its beginning.
 *
 * XRC (docs/xrc.md). A struct local_qp of XRC_SEND is a requester only, and one of several of its
 * QP: the one for the process that has the SRQ which the next request names. world_current() says
 * whether that is so; if it isn't, the request isn't started, and the owner goes on with another
 * one when nothing is outstanding. Records name the SRQ as their destination, and have REC_XRC in
 * their kind. It announces itself to no peer: the peer never waits for it. One of XRC_RECV is a
 * responder only: it stands for the target QP in the process that has the SRQ. world_aim() finds
 * the SRQ that a record names; what follows, until the next one, is for that SRQ.
 *
 * Acknowledgements. All requests below `owed_msn` are executed, and their receives have completed;
 * an acknowledgement is owed while `told_msn` differs.
 *   owed_msn  written by local_owe_ack(), under the QP's lock
 *   told_msn  written, with the value of owed_msn, by the thread that is about to put that
 *             acknowledgement into the ring: under the QP's lock by local_fill_record(), for a
 *             record of this QP to the same life of the peer; or without it by
 *             local_qp_take_owed(), for a record of another QP to the same process, while the
 *             thread has the ring's producer lock, within which it commits that record.
 *             fail_unmapped() makes it differ again: the record isn't sent. local_qp_leave(),
 *             after fork(), sends nothing
 * The invariant: what an acknowledgement in the ring says has been executed; and if told_msn is
 * n, an acknowledgement up to n is in the ring, or a thread that holds the QP's lock, or the
 * ring's, is about to put it there. Two threads may tell the same number; then told_msn may go back
 * to a number that isn't owed_msn any more, and the last one is told once more. So an
 * acknowledgement may come twice, and after a larger one, and says nothing new then.
 *
 * Flags. Each may be set in any of the states above, so none is part of an enum. All are changed
 * under the QP's lock.
 *   flag         set by                              cleared by
 *   self         local_qp_init(): the peer belongs   never: a QP that is connected anew has a new
 *                to this process                     struct local_qp
 *   routed       the owner, before any input        never, likewise
 *   unrouted     start_lost(): the fabric has no     local_retry_lost(), before the request is
 *                way for the request                 tried again; local_qp_withdraw(); when
 *                                                    the timer ends; local_qp_stop()
 *   must_notify  fill_request(): a record goes into  local_qp_post(), at its end, which notifies
 *                the ring                            the peer once for all that it started
 *   cut          UC: local_qp_init(), because the    close_gap(): a message has skipped numbers
 *                peer may send by the former link
 *                when this side has the next one;
 *                local_lose_stream()
 *   met          local_lose_stream(): a WRITE    never, like `self`
 *                of the peer's was being placed
 */
#ifndef VERBENA_HCA_LOCAL_CORE_LOCAL_QP_H
#define VERBENA_HCA_LOCAL_CORE_LOCAL_QP_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "base/list.h"
#include "hca/local/record.h"
#include "hca/verbs/recv_queue.h"
#include "hca/verbs/send_queue.h"

enum local_peer { LOCAL_PEER_UNTOLD, LOCAL_PEER_TOLD, LOCAL_PEER_READY };
enum local_request_wait { LOCAL_RUNS, LOCAL_RNR, LOCAL_STREAMS };
enum local_responder {
	LOCAL_OPEN,
	LOCAL_WAIT_RECEIVE,
	LOCAL_WAIT_DATA,
	LOCAL_WAIT_ROOM,
	LOCAL_HALTED
};
enum local_flow { LOCAL_TAKES, LOCAL_REFUSES, LOCAL_LOSES };
enum local_write { LOCAL_WRITE_NONE, LOCAL_WRITE_PLACING, LOCAL_WRITE_VOID };

/* The bound of what may wait with one QP: bytes of records, headers included. At least one whole
 * record. The simulator sets a smaller one. */
#ifndef LOCAL_HELD_BYTES
#define LOCAL_HELD_BYTES 131072u
#endif

enum {
	/* Payload bytes of the oldest message that are kept without storage of the world's: enough
	 * for READ, ATOMIC, WRITE_IMM and a message that is streamed. */
	LOCAL_FIRST_BYTES = 64,
};

/* A message that arrived and can't be executed yet. */
struct local_held {
	struct list node;
	struct ring_header header; /* the checked private copy */
	uint32_t size;		   /* bytes of `payload` */
	uint8_t payload[];
};

/* Storage for the oldest message: part of each QP, so that it is always available. */
struct local_first {
	struct local_held held;
	uint8_t payload[LOCAL_FIRST_BYTES];
};

struct local_qp {
	/* ---- owned by the caller; the core only reads them, but for the counts of `sq` */
	struct send_queue *sq;
	const struct ibv_qp_attr *attr;
	uint32_t qpn;
	uint8_t type;  /* enum ibv_qp_type: RC, UC, XRC_SEND or XRC_RECV; see below */
	uint8_t state; /* enum ibv_qp_state: changed and published before the core is called */
	uint8_t epoch; /* of this life, as records name it */
	bool self;     /* the peer belongs to this process; set once */
	bool routed;   /* the QP is on a fabric (world_route_admits()); set once by the owner */
	bool unrouted; /* routed: the next request to start was lost on its way */

	/* ---- requester */
	uint8_t peer;		/* enum local_peer */
	uint8_t wait;		/* enum local_request_wait */
	uint8_t peer_rnr_timer; /* code of the RNR timer in the peer's last RNR or NAK */
	bool must_notify;      /* records were put into the ring since the peer was last notified */
	bool acted_here;       /* an operation of this QP was executed here */
	uint32_t peer_epoch;   /* READY, or since a request began: the peer's life, as published */
	uint32_t resend_until; /* SQD: requests below it had begun, and go on, or are sent again */
	/* Of the next record that needs an acknowledgement: the low 32 bits are its number. Of 64
	 * bits, since it also says whether there was one (has_met_peer()): so it equals RECORD_MSN
	 * at no other time. */
	uint64_t next_msn;
	uint32_t link_msn;  /* of the first one that is, or would be, sent by this link */
	uint32_t acked_msn; /* UC: all below are executed, or lost, though they completed before */
	uint32_t next_psn;  /* of the next request, had all been sent as packets */
	uint32_t pull_msn;  /* STREAMS: the request whose payload the peer asked for */
	uint32_t reads_out; /* READs and atomics among [acked, next): max_rd_atomic bounds them */
	uint32_t blocking_out; /* requests among them that may wait at the responder */
	/* The number of those in [acked, next) that only have to take a receive, which the peer
	 * has: later requests need not wait for their acknowledgement. */
	uint32_t settled_out;
	/* The peer's receives: taken by us; published. Both count from RECV_QUEUE_START. */
	uint32_t receives_used, receives_seen;
	uint32_t pieces;	/* of requests, sent and received: a piece is progress, too */
	uint32_t scan_progress; /* timer: requests completed, and pieces, at the last look */
	uint64_t stalled_since; /* timer: ns when progress stopped; 0: it didn't */
	uint64_t grace_until;	/* timer: ns; a starved peer is given this long */
	uint64_t looked_at;	/* timer: ns of the last look */
	uint64_t answers_since; /* timer: ns when time was up, and answers are still looked for */
	uint32_t answers_mark;	/* timer: where the ring was read to at that moment */
	uint64_t retry_at; /* timer: ns when a request that was lost is tried again; 0: not set */
	uint32_t retry_place;	 /* timer: which one that is, in `sq`, */
	uint32_t retry_progress; /* timer: and as scan_progress, then */
	uint32_t retries;	 /* timer: of that request */
	uint32_t srqn;		 /* XRC_SEND: of the request that is being started */

	/* ---- responder */
	uint8_t responder;    /* enum local_responder */
	uint8_t flow;	      /* enum local_flow */
	uint8_t write;	      /* enum local_write */
	uint8_t sender_epoch; /* the peer's life that sent request 0 */
	/* Of the next request to arrive; like next_msn, it also says whether there was one. */
	uint64_t arrived_msn;
	uint32_t done_msn;		     /* all requests below it are executed: what ACKs say */
	_Atomic uint32_t owed_msn, told_msn; /* see above */
	bool cut; /* UC: messages before the next one may be lost with a link */
	bool met; /* UC: pieces of a WRITE of `sender_epoch` came, though none was complete */
	uint32_t write_done; /* PLACING: bytes of the WRITE that are in place */
	uint32_t
		stream_done; /* WAIT_DATA: bytes that have arrived; WAIT_ROOM: that have gone out */
	uint32_t lost;	     /* LOSES: the number of messages lost, after those that are held */
	uint32_t held_bytes; /* of `held`, without `first` */
	uint64_t rnr_deadline; /* WAIT_RECEIVE: ns; 0: not set yet, the timer's next look sets it */
	uint64_t ask_at;       /* REFUSES: ns when AGAIN is sent at the latest; 0: likewise */
	struct list held;      /* struct local_held, in arrival order */
	struct local_first first;
	struct receive taken; /* WAIT_DATA: the receive that is being filled */
	/* WAIT_DATA: none is taken before the first piece is there, since its tag chooses the
	 * receive: set by ask_for_data(), cleared by the first piece and by the end of the wait. */
	bool untaken;

	/* ---- requester, one-sided */
	/* Within local_qp_post(): the hazard that names `hazard_rkey`, kept for the next request of
	 * a list (onesided.c); else NULL. */
	_Atomic uint64_t *hazard;
	uint32_t hazard_rkey;
	uint32_t hazard_bytes; /* that were copied under it */
};

/* ---- life */
/* Initialises a QP that goes to RTR. `attr` and `sq` must stay valid until the QP's end. */
void local_qp_init(struct local_qp *lq, enum ibv_qp_type type, uint32_t qpn, uint8_t epoch,
		   bool self, struct send_queue *sq, const struct ibv_qp_attr *attr);
/* ERR: drops all requests under way without completing them (the owner flushes `sq`); receives that
 * were taken are given back. An answer that is owed is still sent. Engine. */
void local_qp_stop(struct local_qp *lq);
/* RESET, or the end: as local_qp_stop(), after sending the acknowledgement that is owed. Engine. */
void local_qp_close(struct local_qp *lq);

/* In a forked child: drops the messages that wait and the acknowledgement that is owed, which are
 * the parent's. */
void local_qp_leave(struct local_qp *lq);

/* ---- inputs */
/* Starts what may start, in order. The state is RTS. */
void local_qp_post(struct local_qp *lq);
/* Takes back the request at sq.next, which was posted last and has not been started. */
void local_qp_withdraw(struct local_qp *lq, struct send_wqe *wqe);
/* On a fabric: the QP's state of migration has changed, of which the peer is told. Engine. */
void local_qp_migration(struct local_qp *lq);
/* Goes on with what waited: the link is up, or has room, or the state became RTR or RTS. Engine. */
void local_qp_resume(struct local_qp *lq);
/* The state became SQD: nothing more is started. Calls world_drained() when all has completed. */
void local_qp_drain(struct local_qp *lq);
/* The link will be another one than before, and isn't up yet: the QP must announce again to the
 * peer that it is ready. */
void local_qp_relink(struct local_qp *lq);
/* The same, and the peer has taken nothing that was sent by the link which ends: reliable requests
 * are sent again by the next one. */
void local_qp_untaken(struct local_qp *lq);
/* The peer's process has ended, and its published memory can still be read: completes what it had
 * taken (shm/pub.h: pub_taken()). Whether a request has completed. */
bool local_qp_peer_ended(struct local_qp *lq);
/* The link is up: sends the peer a KICK because it may copy by the link from now on. UC drops what
 * came by the link before. Engine. */
void local_qp_announce(struct local_qp *lq);
/* Handles a record of the QP's link. `payload` is shared memory, at most `room` bytes. Engine. */
void local_qp_record(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
		     uint32_t room);
/* Handles an acknowledgement that a record to another QP has carried. Engine. */
void local_qp_acknowledged(struct local_qp *lq, struct record_ack ack);
/* A receive was posted after world_receive_wait() had asked for this call. Engine. */
void local_qp_receive_posted(struct local_qp *lq);
/* Sends the acknowledgement that is owed, if no record has carried it. */
void local_qp_flush_ack(struct local_qp *lq);
static inline bool local_qp_owes(const struct local_qp *lq)
{
	return atomic_load_explicit(&lq->owed_msn, memory_order_relaxed) !=
	       atomic_load_explicit(&lq->told_msn, memory_order_relaxed);
}
/* Takes the acknowledgement that is owed, for a record of another QP; see above. Needs no lock of
 * this QP, which can't end meanwhile. */
struct record_ack local_qp_take_owed(struct local_qp *lq);

/* Whether a message waits here, or is coming into a receive. */
bool local_qp_waits(const struct local_qp *lq);
/* Refuses the oldest message that waits, with this status at the requester; the QP fails. Engine.
 */
void local_qp_refuse_waiting(struct local_qp *lq, enum ibv_wc_status status, int event);

/* ---- timers. False: none runs any more. Lower *next to when to look again (ns). Engine. */
/* The requester's, which world_watch() starts. */
bool local_qp_expire(struct local_qp *lq, uint64_t now, uint64_t *next);
/* The responder's, which world_watch_receive() starts. */
bool local_qp_expire_receive(struct local_qp *lq, uint64_t now, uint64_t *next);

/* ---- for the parts of the core, and for their users */
/* Whether requests of a life of the peer's QP have arrived: this life knows no other. */
static inline bool local_qp_has_begun(const struct local_qp *lq)
{
	return lq->arrived_msn != RECORD_MSN || lq->write != LOCAL_WRITE_NONE || lq->met;
}
/* The rights that this QP grants its peer. Without resources for READs and atomics it grants
 * neither. */
static inline uint32_t local_qp_rights(const struct local_qp *lq)
{
	uint32_t rights = lq->attr->qp_access_flags;

	return lq->attr->max_dest_rd_atomic ? rights : rights & (uint32_t)IBV_ACCESS_REMOTE_WRITE;
}

#endif
