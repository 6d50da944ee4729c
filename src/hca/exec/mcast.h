/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast: queue pairs that are attached to groups, and datagrams to groups.
 *
 * A datagram to a group goes to each process of the host that has a queue pair attached, this one
 * included, as a record of its link; the daemon's table names these processes (shm/groups.h). It
 * also goes out by RoCE, for other hosts, unless its source is a loopback address; packets sent so
 * don't come back (net_sender.echo). With VERBENA_CARRIER=wire it goes out by RoCE only, and comes
 * back for this host's members.
 *
 * A datagram that arrives for a group, by a link or by RoCE, is for each queue pair of this process
 * that is attached to it, including the sender's (as with kernel Soft-RoCE): each QP checks its
 * Q_Key and takes a receive, or drops the datagram.
 *
 * Owns the list of attached queue pairs: it changes under hca.engine, within an entry of the books
 * (books.h), so that a return hands it to the next daemon.
 */
#ifndef VERBENA_HCA_EXEC_MCAST_H
#define VERBENA_HCA_EXEC_MCAST_H

#include <sys/uio.h>

#include "hca/verbs/qp.h"
#include "shm/groups.h"

struct audience;
struct hca;
struct link;

/* Makes hca.mcast. `table`: the descriptor of the daemon's table, or -1; the caller closes it. 0 or
 * -errno. */
int mcast_make(struct hca *hca, int table);
void mcast_unmake(struct hca *hca);
/* Replaces the table by the next daemon's. Under hca.lock. */
void mcast_take_table(struct hca *hca, int table);

/* The entry of the XRC target queue pair with this number, which the process has from the same
 * file; NULL: there is none. A QP's lock or hca.engine is held. */
const struct xrc_target *mcast_xrc_find(const struct hca *hca, uint32_t qpn);
/* Where a caller has found the entry of a target queue pair, for the next time; zeroed at first. */
struct xrc_found {
	const struct groups *table;
	const struct xrc_target *target;
};
/* The state word of the entry; 0: there is none. hca.engine is held. */
uint64_t mcast_xrc_state(const struct hca *hca, uint32_t qpn, struct xrc_found *found);
/* Reads it; false: there is none. */
bool mcast_xrc_read(const struct hca *hca, uint32_t qpn, struct xrc_view *view);

/* The number that changes with the host's addresses (struct groups.addresses); 0: there is no
 * table. Within an entry. */
uint64_t mcast_addresses(const struct hca *hca);

/* The daemon's table and, while processes of the last daemon haven't returned, that one's; NULL:
 * there is none. They stay while the caller holds hca.engine or a QP's lock. */
struct mcast_tables {
	const struct groups *table, *old;
};
struct mcast_tables mcast_tables(const struct hca *hca);

/* The longest datagram, bytes, that a device's port sends: its active MTU. */
uint32_t mcast_datagram_bytes(const struct hca *hca, uint32_t device);

/* Whether this host has the address; also true if there is no table. `last`: the caller's cache of
 * the last answer. hca.engine is held. */
bool mcast_is_own(const struct hca *hca, const uint8_t gid[16], struct groups_known *last);

/* ---- the program's calls: 0 or a positive errno */
/* 0 also if it is attached already; EINVAL: the QP isn't of type UD, or the GID is no group;
 * ENOMEM: the limit of attachments is reached. The LID isn't used. */
int mcast_attach(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
/* EINVAL: it isn't attached. */
int mcast_detach(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* Tells the next daemon which groups the QP is attached to. 0 or -errno. */
int mcast_again(struct daemon_conn *conn, const struct qp *qp);

/*
 * Starts the datagram at sq.next: it goes to each process that has a member, one after the other,
 * and is in the audience (NULL: all are). As datagram_carrier.send; fanout_skip() is its .skip.
 */
enum step mcast_fan_out(struct qp *qp, struct send_wqe *wqe, const struct iovec *local, int count,
			const struct audience *audience) REQUIRES(qp->lock);

/* For a datagram to a group: calls `visit` for each QP that is attached. hca.engine is held. */
void mcast_for_each(struct hca *hca, const uint8_t gid[16], void (*visit)(struct qp *qp, void *arg),
		    void *arg);

#endif
