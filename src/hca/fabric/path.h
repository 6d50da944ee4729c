/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way of a connected queue pair's packets through the fabric: to its peer, and back.
 *
 * Data between nodes moves by the carriers self and local, as between processes of one host. A path
 * decides whether a request may start: it may if the forwarding tables lead to the port that the
 * peer's process is attached to, and if the peer's own address vector leads back, so that the
 * request would be answered. A request that may not start is a packet that was lost: it is tried
 * again each timeout of the QP, and fails with the QP's last retry (local/core/local_qp.h).
 *
 * Invariants:
 *   - No request starts by a way that the tables didn't have at some moment after the post of the
 *     request before it. The fabric's epoch grows after each change of the tables; a request loads
 *     it once, and if it isn't the one of the last walk the tables are walked again. So a request
 *     that is posted after a change has been answered (a SubnSet's answer, `verbena fabric link`)
 *     goes as the new tables say.
 *   - The peer is the process that has the QPN *and* is on the node at which the walk ended, in the
 *     same fabric. A QPN of another node's process isn't there, as an adapter hasn't got another
 *     adapter's QPs.
 *   - Each packet that a request would be is counted, once, in the flow (flows.h) of the way that
 *     was current when it started: requests in `there`, their acknowledgements and answers in
 *     `back`. The requester counts both, since many requests are executed without the peer's help.
 *   - Nothing of this is looked at without a fabric (qp.local's `routed` is false).
 *
 * A path belongs to its QP, and is used under qp.lock. This room uses no other room of the HCA.
 */
#ifndef VERBENA_HCA_FABRIC_PATH_H
#define VERBENA_HCA_FABRIC_PATH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "hca/fabric/flows.h"
#include "hca/fabric/membership.h"
#include "shm/pub.h"

/* Why a path isn't open. */
enum path_fault {
	PATH_OPEN,
	PATH_NO_WAY, /* the tables don't lead to the destination (route_result_text()) */
	PATH_NO_WAY_BACK /* ... nor from there to the source */,
	PATH_NOT_THERE, /* the QP belongs to a process on another node */
	PATH_PKEY,	/* the ends' P_Keys don't match */
};

/* The packets of a message, and the words of 4 bytes that they are with their headers. */
struct tally {
	uint64_t packets, words;
};

struct path {
	const uint64_t *epoch; /* the fabric's */
	uint64_t seen;	       /* its value before the last walk */
	uint32_t room_fast;    /* as room; 0 if a fault is on the path */
	uint32_t room;	       /* bytes that a packet may carry, + 1; 0: the path isn't open */
	struct proto_flow *there, *back; /* NULL: not walked yet */
	uint64_t tallied; /* path_tally_key() for which `request` and `answer` are; 0: none */
	struct tally request, answer;
	uint32_t mtu_shift;	      /* of the QP's path MTU */
	uint32_t header, header_back; /* bytes of headers that all packets of a way have */

	/* ---- not of the fast path */
	struct membership *membership;
	uint32_t port; /* row of the own port */
	uint32_t qpn, peer_qpn;
	uint16_t destination; /* LID */
	uint16_t pkey_index;
	uint8_t sl;
	enum ibv_mig_state mig_state; /* this QP's */
	bool is_slow;		      /* a fault on one of both ways takes time */
	bool is_xrc;		      /* to the process of an XRC SRQ: see path_new_xrc() */
	bool has_refused; /* the peer's migration, to another path than the alternate one */
	bool is_ahead;	  /* this QP has migrated; the peer will when it learns of that */
	enum path_fault fault;
	enum route_result result; /* NO_WAY, NO_WAY_BACK */
	uint32_t at;		  /* the port where it ends */
	uint64_t dice;
	uint32_t drop_ppm;  /* of packets, by faults on both ways */
	uint32_t drop_back; /* ... on the way back */
	bool is_dropped;    /* the last request was refused by drop_ppm */
	/* Of packets that faults dropped lately, there and back; NULL: none yet. */
	struct proto_flow *dropped, *dropped_back;
};

/* The part of struct pub_qp that the peer's path needs: which way this QP's answers go, and the
 * state of migration. The same of the alternate path, which stays when the QP has migrated to it;
 * 0: it has none. */
uint64_t path_word(const struct ibv_qp_attr *attr);
uint64_t path_word_alternate(const struct ibv_qp_attr *attr);

/* A new path of a QP whose attributes are those for RTR. NULL: no memory. */
struct path *path_new(struct membership *membership, uint32_t qpn, const struct ibv_qp_attr *attr);
/*
 * The same of an XRC initiator, to a process with SRQs of its peer's domain. The target QP may be
 * another process's, and its address vector isn't known: the answers are taken to go the way back
 * to this QP's port by its service level.
 */
struct path *path_new_xrc(struct membership *membership, uint32_t qpn,
			  const struct ibv_qp_attr *attr);
/* The QP's attributes have changed. */
void path_change(struct path *path, const struct ibv_qp_attr *attr);
/* Whether the path to which the peer has migrated is this QP's alternate one: between its port and
 * that port. */
bool path_meets_alternate(const struct path *path, const struct pub *peer,
			  const struct ibv_qp_attr *attr);
/* The peer's state of migration. */
enum ibv_mig_state path_peer_state(struct path *path, const struct pub *peer);
/*
 * The way of the QP's packets, or (`is_back`) of the answers to them, as the query that finds it,
 * and the source's LID. `own_bits`: of the QP's address vector. *is_global: they have a GRH. False:
 * the peer isn't on this fabric.
 */
bool path_query_of(struct path *path, const struct pub *peer, bool is_back, uint8_t own_bits,
		   struct route_query *query, uint16_t *source, bool *is_global);
/* Frees it; NULL is allowed. */
void path_free(struct path *path);

/* Walks the tables if they have changed. `peer`: the table of the process at the link's other end.
 */
void path_renew(struct path *path, const struct pub *peer);

/* The bytes of the longest packet of a message. */
static inline uint32_t path_packet(const struct path *path, uint32_t length)
{
	return length >> path->mtu_shift ? 1u << path->mtu_shift : length;
}

/* Whether a request of `length` bytes may start, if no fault is on the path; else, or if the tables
 * have changed, false. */
static inline bool path_admits(const struct path *path, uint32_t length)
{
	/* [P1], pairs with [P2] */
	return likely(__atomic_load_n(path->epoch, __ATOMIC_ACQUIRE) == path->seen &&
		      path_packet(path, length) < path->room_fast);
}
/* Whether a request may start when path_admits() doesn't say so, by the path as it is since
 * path_renew(). With a fault `drop` on the way: perhaps. */
bool path_admits_slow(struct path *path, uint32_t length);

/* Computes what a request with `length` bytes and its answer are. Most requests are like the one
 * before. */
void path_tally_slow(struct path *path, enum ibv_wr_opcode opcode, uint32_t length);
static inline uint64_t path_tally_key(enum ibv_wr_opcode opcode, uint32_t length)
{
	return (uint64_t)(opcode + 1) << 32 | length;
}
static inline void path_tally(struct path *path, enum ibv_wr_opcode opcode, uint32_t length)
{
	if (unlikely(path->tallied != path_tally_key(opcode, length)))
		path_tally_slow(path, opcode, length);
}

/* Counting a request: it starts; it is taken back; it was lost; it was answered, `ok` or by a
 * refusal. */
static inline void path_count_request(struct path *path, enum ibv_wr_opcode opcode, uint32_t length)
{
	path_tally(path, opcode, length);
	flow_count(path->there, path->request.packets, path->request.words);
}
static inline void path_uncount_request(struct path *path, enum ibv_wr_opcode opcode,
					uint32_t length)
{
	path_tally(path, opcode, length);
	flow_count(path->there, -path->request.packets, -path->request.words);
}
void path_count_lost(struct path *path, enum ibv_wr_opcode opcode, uint32_t length);
static inline void path_count_answer(struct path *path, enum ibv_wr_opcode opcode, uint32_t length,
				     bool ok)
{
	enum { PATH_AETH = 4 };

	path_tally(path, opcode, length);
	if (likely(ok))
		flow_count(path->back, path->answer.packets, path->answer.words);
	else
		flow_count(path->back, 1, (path->header_back + PATH_AETH) / 4);
}

/* Why it isn't open, for the log: written to `text`. */
void path_explain(const struct path *path, char *text, size_t size);

#endif
