/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multicast: queue pairs that are attached to groups, and datagrams to groups.
 *
 * A datagram to a group goes to each process of the host that has a queue pair attached, this one
 * among them, as a record of its link; which those are, the daemon's table says (shm/groups.h). It
 * goes to the wire as well, for other hosts, unless its source is a loopback address; what is sent
 * there doesn't come back (net_sender.echo). With VERBENA_CARRIER=wire it goes to the wire only,
 * and comes back for this host's members.
 *
 * Whatever arrives for a group, by a link or by the wire, is for each queue pair of this process
 * that is attached to it, also for the sender if it is (as with kernel Soft-RoCE): each checks its
 * Q_Key and takes a receive, or drops it.
 *
 * Owns who is attached here: changes under hca.engine, within an entry of the books (books.h), so
 * that the next daemon is told.
 */
#ifndef VERBENA_HCA_EXEC_MCAST_H
#define VERBENA_HCA_EXEC_MCAST_H

#include <sys/uio.h>

#include "hca/verbs/qp.h"
#include "shm/groups.h"

struct hca;

/* Makes hca.mcast. `table`: the daemon's, or -1; stays the caller's. 0 or -errno. */
int mcast_make(struct hca *hca, int table);
void mcast_unmake(struct hca *hca);
/* The next daemon's table. Under hca.lock. */
void mcast_take_table(struct hca *hca, int table);

/* Changes with the host's addresses (struct groups.addresses); 0: nobody says so. Within an entry.
 */
uint64_t mcast_addresses(const struct hca *hca);

/* Whether this host has the address; also true when nothing says so. `last`: the caller's memory of
 * its last question. hca.engine is held. */
bool mcast_is_own(const struct hca *hca, const uint8_t gid[16], struct groups_known *last);

/* ---- the program's calls: 0 or a positive errno */
/* 0 also when it is attached; EINVAL the QP isn't of type UD, the GID no group; ENOMEM as many as
 * there may be. The LID has no meaning here. */
int mcast_attach(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
/* EINVAL: it isn't attached. */
int mcast_detach(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* Tells the next daemon what the QP is attached to. 0 or -errno. */
int mcast_again(struct daemon_conn *conn, const struct qp *qp);

/* What came for a group: calls `visit` for each QP that is attached. hca.engine is held. */
void mcast_for_each(struct hca *hca, const uint8_t gid[16], void (*visit)(struct qp *qp, void *arg),
		    void *arg);

#endif
