/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC in the process that has the SRQs: which SRQ a request names, and the stand-ins by which this
 * process executes requests of target queue pairs (docs/xrc.md).
 *
 * A stand-in is a struct qp of type XRC_RECV without a handle. There are two kinds:
 *   - within the host, one for each initiator that has sent to an SRQ of this process. Its first
 *     record makes it; carrier_self or carrier_local is its carrier, connected to the initiator.
 *   - between hosts, one for each target queue pair whose packets come to this process
 *     (xrc_wire.h). It has carrier_roce. That of a queue pair with a number of this process's is in
 *     hca.qps.
 * xrc_aim() sets the SRQ, the protection domain and the CQ for what a stand-in executes next.
 *
 * A stand-in ends when its target queue pair ends, is reset (its epoch changes), or is in ERR: the
 * daemon sends PROTO_EVENT_XRC then (verbs/xrc_follow.h). A stand-in whose event is still under way
 * is recognized by its epoch, and replaced.
 *
 * A request that is refused fails the stand-in, and is reported to the daemon by the control thread
 * (xrc_report()), which moves the queue pair to ERR for all.
 *
 * Everything here is under hca.engine, unless it is said otherwise. So are stand-ins within the
 * host: threads take their QP's lock while they hold hca.engine (lock_take_within()).
 */
#ifndef VERBENA_HCA_EXEC_XRC_TARGET_H
#define VERBENA_HCA_EXEC_XRC_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "hca/exec/mcast.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"
#include "shm/ring.h"
#include "wire/packet.h"

struct link;
struct srq;

enum { STAND_IN_BUCKETS = 256, XRC_PACKET_BYTES = WIRE_PACKET_MAX + WIRE_ICRC };

/* Part of struct hca; made with it. */
struct xrc_here {
	struct srq **srqs;   /* by index; NULL until there is one */
	struct list handles; /* struct xrc_handle.node */
	struct list
		stand_ins[STAND_IN_BUCKETS]; /* struct stand_in.node, by the initiator's number */
	struct list on_wire;		     /* struct stand_in.node, those with carrier_roce */
	uint32_t count;			     /* of stand-ins */
	struct xrc_shared *shared;	     /* XRC_SHARED_PLACES of them; NULL: not mapped */
	int shared_fd;
	uint8_t packet[XRC_PACKET_BYTES]; /* a copy of the one that came by a link */
	struct lock lock;
	struct list reports GUARDED_BY(lock); /* struct xrc_report.node */
};

struct stand_in {
	struct qp qp;
	struct list node;
	uint32_t target;    /* the target queue pair's number: qp.ibv.qp_num as it was made */
	uint32_t initiator; /* the initiator's number */
	uint32_t epoch;	    /* of the target queue pair */
	/* Within the host: */
	struct xrc_found found; /* the entry of the target queue pair */
	uint32_t srqn;		/* the number of qp.srq, if there is one */
	/* Between hosts; the rest under qp.lock: */
	struct xrc_shared *shared;
	bool holds;	  /* this process is the holder, and its core works with the responder */
	bool going_on;	  /* within xrc_wire_go_on() */
	struct link *to;  /* the last that packets were passed to; held */
	struct list kept; /* struct kept: packets that wait */
	uint32_t kept_count;
};

static inline struct stand_in *stand_in_of(struct qp *qp)
{
	return container_of(qp, struct stand_in, qp);
}

/* 0 or -ENOMEM. */
int xrc_here_make(struct hca *hca);
void xrc_here_unmake(struct hca *hca);
/* In a forked child: all of it is the parent's. */
void xrc_here_leave(struct hca *hca);

/* An XRC SRQ begins (0 or ENOMEM), or ends: messages that wait for a receive of it are refused.
 * Take hca.engine themselves. */
int xrc_srq_begins(struct srq *srq);
void xrc_srq_ends(struct srq *srq);
/* Writes the SRQ's published entry. */
void xrc_srq_publish(struct srq *srq);

/* The stand-in executes for this SRQ from now on, if it is HERE. NOWHERE: there is no such SRQ in
 * the domain of the stand-in's target queue pair. ELSEWHERE: another process executes for it. */
enum xrc_place { XRC_HERE, XRC_NOWHERE, XRC_ELSEWHERE };
enum xrc_place xrc_aim(struct qp *qp, uint32_t srqn) REQUIRES(qp->lock);

/* Moves a stand-in to ERR, and reports that; `event` as of qp_fail(). */
void xrc_stand_in_fail(struct qp *qp, int event) REQUIRES(qp->lock);
/* The first message has come. */
void xrc_established(struct qp *qp) REQUIRES(qp->lock);

/* ---- of stand-ins, for xrc_wire.c and local/xrc_records.c */
/* The list of the stand-ins within the host for initiators like this one. */
struct list *stand_in_bucket(const struct hca *hca, uint32_t initiator);
/* One in no list, not connected; NULL: no memory, or there are too many. */
struct stand_in *stand_in_new(struct hca *hca, uint32_t target, uint32_t initiator, uint32_t epoch);
void stand_in_free(struct stand_in *si);
/* Takes it off its list, disconnects and frees it. */
void stand_in_end(struct stand_in *si);
/* The target queue pair has failed: nothing is executed any more. */
void stand_in_stop(struct qp *qp) REQUIRES(qp->lock);
/* Whether a queue pair in this state executes requests. */
bool xrc_receives(uint32_t state);

#endif
