/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC domains, and handles of their target queue pairs: the program's calls (docs/xrc.md). The
 * daemon has the domains and the queue pairs; exec/xrc_target.h has what executes requests here.
 *
 * A handle of a target queue pair is a struct qp that is in no table and has no carrier: its
 * `state` stays RESET, it has no queues and no CQs. Its calls ask the daemon.
 */
#ifndef VERBENA_HCA_VERBS_XRCD_H
#define VERBENA_HCA_VERBS_XRCD_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "base/list.h"
#include "hca/verbs/qp.h"
#include "proto/proto.h"

struct xrcd {
	struct ibv_xrcd ibv;
	struct list held;
	uint32_t handle;
	/* The number by which tables name the domain. Another daemon may give another one: changed
	 * under hca.engine by xrcd_again(). Atomic, because it is read without that lock, too; it
	 * orders nothing. */
	_Atomic uint32_t domain;
	int fd;		   /* a copy of the program's, so that the inode stays; -1: anonymous */
	uint64_t dev, ino; /* 0, 0: anonymous */
};

static inline struct xrcd *hca_xrcd_of(struct ibv_xrcd *ibv)
{
	return container_of(ibv, struct xrcd, ibv);
}

static inline uint32_t xrcd_number(const struct xrcd *xrcd)
{
	return atomic_load_explicit(&xrcd->domain, memory_order_relaxed);
}

/* What proto_xrc_state.attr holds. */
struct xrc_attr {
	struct ibv_qp_attr attr;
	struct proto_route_resp at; /* the way to the initiator; since INIT to RTR */
	uint32_t roce;		    /* by packets */
};
_Static_assert(sizeof(struct xrc_attr) <= sizeof(uint64_t) * PROTO_XRC_ATTR, "it fits");

static inline struct xrc_attr xrc_attr_get(const struct proto_xrc_state *is)
{
	struct xrc_attr attr;

	memcpy(&attr, is->attr, sizeof(attr));
	return attr;
}

/* What a handle has beside its struct qp. */
struct xrc_handle {
	struct qp *qp;
	struct xrcd *xrcd;
	struct list node; /* on hca.xrc->handles; under hca.engine */
	/* As the daemon said last: for the return to another daemon. Under hca.engine. */
	struct proto_xrc_state is;
};

/* NULL with errno: EOPNOTSUPP, EINVAL: the attributes; EBADF: no such descriptor; EAGAIN: the file
 * has no domain, and O_CREAT isn't set; EINVAL: it has one, and O_EXCL is set. */
struct ibv_xrcd *xrcd_open(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
/* 0 or a positive errno; EBUSY: SRQs or queue pairs use it. */
int xrcd_close(struct ibv_xrcd *xrcd);
/* For a process that returns to another daemon: opens it again. 0 or -errno. */
int xrcd_again(struct daemon_conn *conn, struct xrcd *xrcd);

/* Makes a target queue pair and a handle of it, or a handle of the one with number `qpn`. */
struct ibv_qp *target_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *target_open(struct ibv_context *context, struct ibv_qp_open_attr *attr);
/* As qp_modify(), qp_query() and qp_destroy(), of a handle. */
int target_modify(struct qp *qp, struct ibv_qp_attr *attr, int mask);
int target_query(struct qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int target_destroy(struct qp *qp);
int target_again(struct daemon_conn *conn, struct qp *qp);

#endif
