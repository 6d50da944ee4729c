/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Carriers: what moves a queue pair's requests to its peer.
 *
 * A QP has exactly one carrier at any time (qp->carrier), chosen when it goes to RTR:
 *   carrier_none       RESET and INIT: nothing is sent or received
 *   carrier_self       RC and UC whose peer belongs to this process     (local/local_carrier.c)
 *   carrier_local      RC and UC whose peer belongs to another process  (local/local_carrier.c)
 *   carrier_roce       RC, UC and XRC whose peer is on another host     (roce/roce_qp.c)
 *   carrier_xrc        XRC_SEND whose peer is on this host               (local/xrc_carrier.c)
 *   carrier_datagram   UD, raw packets: each request goes the way that its address handle names,
 *                      frames to the device's segment
 *                      (struct datagram_carrier below)                  (exec/datagram_send.c)
 * What a carrier remembers about a QP is a structure of its own (struct local_qp, struct roce_qp),
 * which `connect` makes and `disconnect` frees. A further carrier (raw packets, another fabric)
 * adds an instance and a case in carrier_choose(), and touches no other carrier. XRC target queue
 * pairs have stand-ins, with carrier_self, carrier_local or carrier_roce (exec/xrc_target.h).
 *
 * For each operation the locks are named that the caller holds. "State" is qp->state, which has
 * changed and has been published before the operation is called.
 */
#ifndef VERBENA_HCA_VERBS_CARRIER_H
#define VERBENA_HCA_VERBS_CARRIER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "hca/verbs/send_queue.h"

struct hca;
struct qp;
struct route;
struct send_wqe;

struct carrier {
	const char *name;
	/* A request that can start at once is executed before `post` returns, so `post` may be
	 * given the program's own memory instead of a copy (sq_post()). */
	bool executes_at_post;

	/* ---- hca.engine is held, qp.lock isn't */
	/* A QP is about to connect: handles what has arrived until now, which was meant for the
	 * former QP of its number. */
	void (*take_in_former)(struct hca *hca);

	/* ---- hca.engine and qp.lock are held */
	/* INIT to RTR, before the state changes: makes the carrier's structure for the QP. 0, or a
	 * positive errno; the QP then stays as it was. */
	int (*connect)(struct qp *qp, const struct route *route);
	void (*receive_ready)(struct qp *qp);			   /* the state became RTR */
	void (*send_ready)(struct qp *qp, enum ibv_qp_state from); /* the state became RTS */
	void (*drain)(struct qp *qp);				   /* the state became SQD */
	/* Attributes of `mask` (enum ibv_qp_attr_mask) changed, while connected. */
	void (*change)(struct qp *qp, int mask);
	/* The state became ERR: nothing is executed any more in either direction; receives that
	 * were taken for messages which won't come are given back. An answer that is owed may still
	 * be sent. */
	void (*stop)(struct qp *qp);
	/* RESET, or the QP's end: sends the acknowledgement that is owed, leaves all lists, and
	 * frees what `connect` made. */
	void (*disconnect)(struct qp *qp);
	/* A receive was posted while qp->starved was set: a message waits for it. */
	void (*receive_posted)(struct qp *qp);
	/* The link that the QP waited for is up, or the ring or socket has room. */
	void (*resume)(struct qp *qp);
	/* The timer of a QP that was handed to engine_watch_qp(). `now` in ns; lowers *next to when
	 * it must be called again (ns). False: the QP needs no timer any more. */
	bool (*expire)(struct qp *qp, uint64_t now, uint64_t *next);

	/* ---- qp.lock is held */
	/* Starts what was posted, in order, as far as it may be started. The state is RTS. */
	void (*post)(struct qp *qp);

	/* If executes_at_post: takes back the request posted last, which is the next to start but
	 * can't be executed now. */
	void (*withdraw)(struct qp *qp, struct send_wqe *wqe);

	/* ---- in a forked child, which has no other thread */
	/* The connection belongs to the parent: empties the lists here, sends nothing. */
	void (*leave)(struct qp *qp);

	/* ---- no lock is held */
	/* The QP is about to stop receiving: takes in what has arrived until now. */
	void (*take_in)(struct qp *qp);
	/* The program ends the QP: waits, for a bounded time, until what was posted has been
	 * sent. */
	void (*linger)(struct qp *qp);
	/* The QP with number `qpn`, connected to `peer_qpn`, has been disconnected or stopped:
	 * waits until the peer reads no memory of its requests any more and, if `ends`, until its
	 * last answers have been sent (bounded). */
	void (*settle)(struct hca *hca, uint32_t qpn, uint32_t peer_qpn, bool ends);
};

extern const struct carrier carrier_none, carrier_self, carrier_local, carrier_xrc, carrier_roce,
	carrier_datagram;

/* The carrier of a QP of this type on this route. `route` is used for RC and UC only. */
const struct carrier *carrier_choose(const struct hca *hca, enum ibv_qp_type type,
				     uint32_t peer_qpn, const struct route *route);

/* No-ops, for carriers that have nothing to do in an operation. */
void carrier_ignores(struct qp *qp);
void carrier_ignores_former(struct hca *hca);
void carrier_ignores_request(struct qp *qp, struct send_wqe *wqe);
void carrier_ignores_change(struct qp *qp, int mask);
void carrier_ignores_settling(struct hca *hca, uint32_t qpn, uint32_t peer_qpn, bool ends);

/*
 * The way of one datagram; its address handle names it. `send` starts the UD request at sq.next,
 * whose memory is `local`: it completes the request, or has the QP resumed later. `skip`: the
 * destination has not taken the datagram for too long, so it is dropped. qp.lock is held.
 */
struct datagram_carrier {
	const char *name;
	enum step (*send)(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			  int count);
	void (*skip)(struct qp *qp, struct send_wqe *wqe);
};

extern const struct datagram_carrier datagram_local, datagram_roce, datagram_group, datagram_fabric,
	datagram_segment;

#endif
