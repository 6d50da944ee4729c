/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local carrier's core: RC and UC between two processes of a host (or within one) as state
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
 *   UNTOLD  the peer hasn't been told that this QP is ready. The link may not be up
 *   TOLD    it has; its published entry didn't say yet that it is ready for us. Nothing is sent
 *   READY   its entry was seen ready: requests are sent to its life `peer_epoch`
 *   UNTOLD -> TOLD when the link is up; TOLD -> READY when the entry says so; READY -> TOLD when a
 *   one-sided request finds that life gone (the timer decides); any -> UNTOLD with a new link
 *
 * States of the requester's oldest requests (enum local_request_wait):
 *   RUNS    acknowledgements are awaited, the transport timer runs
 *   RNR     the peer said that it has no receive for one: its timer runs, not ours, as long as the
 *           peer's QP is there
 *   STREAMS the peer asked for the payload of request `pull_msn`; pieces are being put into the
 * ring RUNS -> RNR by an RNR record; RUNS, RNR -> STREAMS by PULL; STREAMS -> RUNS when the last
 * piece is out; RNR -> RUNS when a request completes, or by AGAIN
 *
 * States of the responder (enum local_responder):
 *   OPEN          the next request is executed when it arrives
 *   WAIT_RECEIVE  RC: the oldest message has no receive. Its deadline runs (rnr_retry)
 *   WAIT_DATA     the oldest message's payload is being streamed into the receive `taken`
 *   WAIT_ROOM     the oldest is a READ whose answer waits for room in the ring
 *   HALTED        a request was refused, or is lost with its sender: nothing later is executed
 *   OPEN -> WAIT_* when the oldest message can't be executed; WAIT_* -> OPEN when it has been;
 *   any -> HALTED, which only RESET ends
 *
 * States of what arrives behind a message that waits (enum local_flow):
 *   TAKES    it is held, in arrival order
 *   REFUSES  RC: there was no room for one (LOCAL_HELD_BYTES, or the world's bounds): it stays at
 * the sender, and so does all that follows it. It is asked for by AGAIN when there is room LOSES
 * UC: likewise, but it is lost; `lost` counts, so that the sender still hears that it is over
 *
 * States of an RDMA WRITE that comes in pieces (enum local_write):
 *   NONE, PLACING (`write_done` bytes are in place), VOID (UC: refused; its other pieces are
 * ignored)
 */
#ifndef VERBENA_HCA_LOCAL_CORE_LOCAL_QP_H
#define VERBENA_HCA_LOCAL_CORE_LOCAL_QP_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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

/* What may wait with one QP: bytes of records, headers included. At least one whole record. The
 * simulator has fewer. */
#ifndef LOCAL_HELD_BYTES
#define LOCAL_HELD_BYTES 131072u
#endif

enum {
	/* Payload that the oldest message may keep without storage of the world's: all that READ,
	 * ATOMIC, WRITE_IMM and a message that is streamed need. */
	LOCAL_FIRST_BYTES = 64,
};

/* A message that arrived and can't be executed yet. */
struct local_held {
	struct list node;
	struct ring_header header; /* the checked private copy */
	uint32_t size;		   /* bytes of `payload` */
	uint8_t payload[];
};

/* Storage for the oldest one: of each QP's own, so that it is always there. */
struct local_first {
	struct local_held held;
	uint8_t payload[LOCAL_FIRST_BYTES];
};

struct local_qp {
	/* ---- the owner's; the core only reads them, but for the counts of `sq` */
	struct send_queue *sq;
	const struct ibv_qp_attr *attr;
	uint32_t qpn;
	uint8_t type;  /* IBV_QPT_RC or IBV_QPT_UC */
	uint8_t state; /* enum ibv_qp_state: changed and published before the core is called */
	uint8_t epoch; /* of this life, as records name it */
	bool self;     /* the peer belongs to this process */

	/* ---- requester */
	uint8_t peer; /* enum local_peer */
	uint8_t wait; /* enum local_request_wait */
	uint8_t peer_epoch;
	uint8_t peer_rnr_timer; /* code that the peer named with its last RNR or NAK */
	bool must_notify;      /* records were put into the ring since the peer was last notified */
	uint32_t resend_until; /* SQD: requests before it had begun, and go on, or are sent again */
	uint32_t next_msn;     /* of the next record that wants an acknowledgement */
	uint32_t acked_msn; /* UC: all below are executed, or lost, though they completed before */
	uint32_t next_psn;  /* of the next request, had all gone over a wire */
	uint32_t pull_msn;  /* STREAMS: the request whose payload is asked for */
	uint32_t reads_out; /* READs and atomics among [acked, next): max_rd_atomic bounds them */
	uint32_t blocking_out; /* requests among them that may wait at the responder */
	/* Those of [acked, next) that are executed but for taking a receive, and there is one for
	 * them: nothing that comes later needs to wait for their acknowledgement. */
	uint32_t settled_out;
	uint32_t receives_used, receives_seen; /* of the peer's: taken by us; it told us of */
	uint32_t scan_acked;		       /* timer: sq.acked at the last look */
	uint64_t stalled_since;		       /* timer: ns when progress stopped; 0: it didn't */
	uint64_t grace_until;		       /* timer: a starved peer is given this long */
	uint64_t answers_since; /* timer: ns when time was up, and answers are still looked for */
	uint32_t answers_mark;	/* timer: where the ring was read to at that moment */

	/* ---- responder */
	uint8_t responder;    /* enum local_responder */
	uint8_t flow;	      /* enum local_flow */
	uint8_t write;	      /* enum local_write */
	uint8_t sender_epoch; /* the peer's life that sent request 0 */
	uint32_t arrived_msn; /* of the next request to arrive */
	uint32_t done_msn;    /* all requests below it are executed: what ACKs say */
	/* Written under the QP's lock; looked at without by who flushes acknowledgements. */
	_Atomic bool ack_pending;
	uint32_t write_done; /* PLACING: bytes of the WRITE that are in place */
	uint32_t
		stream_done; /* WAIT_DATA: bytes that have arrived; WAIT_ROOM: that have gone out */
	uint32_t lost;	     /* LOSES: how many messages, after those that are held */
	uint32_t held_bytes; /* of `held`, without `first` */
	uint64_t rnr_deadline; /* WAIT_RECEIVE: ns; 0: the timer hasn't looked yet */
	uint64_t ask_at;       /* REFUSES: ns when AGAIN is sent at the latest; 0: as above */
	struct list held;      /* struct local_held, in arrival order */
	struct local_first first;
	struct receive taken; /* WAIT_DATA: the receive that is being filled */
};

/* ---- life */
/* A QP that goes to RTR: `attr` and `sq` stay where they are until the end. */
void local_qp_init(struct local_qp *lq, enum ibv_qp_type type, uint32_t qpn, uint8_t epoch,
		   bool self, struct send_queue *sq, const struct ibv_qp_attr *attr);
/* ERR: forgets what is under way without completing it (the owner flushes `sq`); receives that were
 * taken are given back. An answer that is owed still goes. Engine. */
void local_qp_stop(struct local_qp *lq);
/* RESET, or the end: as local_qp_stop(), after the acknowledgement that is owed. Engine. */
void local_qp_close(struct local_qp *lq);

/* In a forked child: the messages that wait, and the acknowledgement that is owed, are the
 * parent's. */
void local_qp_leave(struct local_qp *lq);

/* ---- inputs */
/* Starts what may start, in order. The state is RTS. */
void local_qp_post(struct local_qp *lq);
/* The request at sq.next, the last one, has been posted, waits, and is taken back. */
void local_qp_withdraw(struct local_qp *lq, struct send_wqe *wqe);
/* The link is up, or has room, or the state became RTR or RTS: goes on with what waited. Engine. */
void local_qp_resume(struct local_qp *lq);
/* The state became SQD: nothing more is started. Tells world_drained() when all is over. */
void local_qp_drain(struct local_qp *lq);
/* The link will be another one than before, and isn't up yet: the peer must be told again that this
 * QP is ready. */
void local_qp_relink(struct local_qp *lq);
/* From now on the peer may copy by the link: it looks again. The link is up. Engine. */
void local_qp_announce(struct local_qp *lq);
/* A record by the QP's link. `payload` is shared memory, at most `room` bytes. Engine. */
void local_qp_record(struct local_qp *lq, const struct ring_header *h, const uint8_t *payload,
		     uint32_t room);
/* A receive was posted, and world_receive_wait() asked to be told. Engine. */
void local_qp_receive_posted(struct local_qp *lq);
/* Sends the acknowledgement that is owed, if it has found no record to travel with. */
void local_qp_flush_ack(struct local_qp *lq);

/* ---- timers. False: nothing runs any more. Lower *next to when to look again (ns). Engine. */
/* The requester's, which world_watch() starts. */
bool local_qp_expire(struct local_qp *lq, uint64_t now, uint64_t *next);
/* The responder's, which world_watch_receive() starts. */
bool local_qp_expire_receive(struct local_qp *lq, uint64_t now, uint64_t *next);

/* ---- for the parts of the core, and for those who look at it */
/* What the peer may do by this QP. Without resources for READs and atomics it may do none. */
static inline uint32_t local_qp_rights(const struct local_qp *lq)
{
	uint32_t rights = lq->attr->qp_access_flags;

	return lq->attr->max_dest_rd_atomic ? rights : rights & (uint32_t)IBV_ACCESS_REMOTE_WRITE;
}

#endif
