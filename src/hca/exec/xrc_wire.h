/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets for XRC target queue pairs: from the process whose socket they reach to the process that
 * executes them (docs/xrc.md, "Between hosts").
 *
 *   dispatcher  the process at the number's slot, or its heir: packets reach its socket
 *   holder      the process that has the responder (shm/xrc_shared.h): it executes requests for its
 *               SRQs, and answers them
 *
 * Each of them has a stand-in for the queue pair (exec/xrc_target.h). The dispatcher sends each
 * packet by its link to the holder (REC_XRC_PACKET), unless it is the holder itself. The holder
 * executes packets for its own SRQs. A packet that names another process's SRQ it hands on, and the
 * responder with it: from then on that process is the holder, and gets what the dispatcher gets. So
 * all packets of a queue pair pass through one responder, in the order of their PSNs.
 *
 * A packet waits in the stand-in (`kept`), and all that follow it,
 *   - while the link to the next process isn't up, or its ring is full;
 *   - while the holder owes answers that come before those of the next holder.
 * If too many wait, further ones are dropped, and the peer sends them again.
 *
 * If the holder has died, the dispatcher takes the responder. If the dispatcher has died, the
 * daemon gives its socket to an heir. Packets on their way are lost then, and the peer sends them
 * again.
 *
 * Everything here is under hca.engine, unless it is said otherwise.
 */
#ifndef VERBENA_HCA_EXEC_XRC_WIRE_H
#define VERBENA_HCA_EXEC_XRC_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/exec/xrc_target.h"
#include "hca/roce/roce.h"

/* Maps what the user's processes share, if the HCA has a socket; call it before a domain is opened.
 * 0 or a positive errno. Without locks. */
int xrc_wire_begin(struct hca *hca);
/* For a process that returns to another daemon: shows the memory file to it. 0 or -errno. */
int xrc_wire_again(struct hca *hca, struct daemon_conn *conn);
void xrc_wire_unmake(struct hca *hca);
/* In a forked child. */
void xrc_wire_leave(struct hca *hca);

/* The queue pair is in this state now: its stand-in follows. */
void xrc_wire_follow(struct hca *hca, uint32_t qpn, const struct proto_xrc_state *is);
/* The queue pair has ended. */
void xrc_wire_ended(struct hca *hca, uint32_t qpn);
/* Whether this process has a stand-in for its packets. */
bool xrc_wire_known(const struct hca *hca, uint32_t qpn);
/* The stand-in for packets to a number of another slot than this process's; NULL: none. */
struct qp *xrc_wire_qp(const struct hca *hca, uint32_t qpn);
/* The stand-in ends: what waits is dropped. */
void xrc_wire_drop(struct stand_in *si) REQUIRES(si->qp.lock);

/* Takes a packet from the queue pair's peer: executes it, or passes it on. */
enum roce_drop xrc_wire_packet(struct qp *qp, const struct packet *packet) REQUIRES(qp->lock);
/* Goes on with packets that waited. (roce.h has it again, for an inline function:
 * NOLINTNEXTLINE(readability-redundant-declaration)) */
void xrc_wire_go_on(struct qp *qp) REQUIRES(qp->lock);
/* Handles REC_XRC_PACKET and REC_XRC_STRANGER. */
void xrc_wire_record(struct hca *hca, struct link *link, const struct ring_header *h,
		     const uint8_t *payload, uint32_t room);

/* Whether another process executes for this SRQ, or that isn't known yet. */
bool xrc_wire_elsewhere(struct qp *qp, uint32_t srqn) REQUIRES(qp->lock);

#endif
