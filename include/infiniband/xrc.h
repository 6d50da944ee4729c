/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * XRC by the calls that OFED 1.3 to 1.5 had for it. rdma-core's libibverbs has none of them; in
 * this one they have the version VERBENA_1.0. They stand on ibv_open_xrcd(), ibv_create_srq_ex(),
 * ibv_create_qp_ex() and ibv_open_qp(), so both kinds of calls work on the same objects, in one
 * process and in several.
 *
 * OFED had fields for them in three structures of verbs.h, which can't change:
 *
 *   in OFED                           here
 *   ibv_qp_init_attr.xrc_domain       struct ibv_xrc_rcv_init_attr, with the same layout
 *   ibv_srq.xrc_srq_num               ibv_get_srq_num()
 *   ibv_send_wr.xrc_remote_srq_num    ibv_send_wr.qp_type.xrc.remote_srqn
 *   a QP of type IBV_QPT_XRC          a QP of type IBV_QPT_XRC_SEND, for requests
 *   event.element.xrc_qp_num          event.element.qp->qp_num
 *
 * Calls that return int return 0 or a positive errno, which is also in errno; those that return a
 * pointer return NULL with errno.
 */
#ifndef INFINIBAND_XRC_H
#define INFINIBAND_XRC_H

#include <stdint.h>

#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_xrc_domain {
	struct ibv_context *context;
	uint32_t handle;
};

/* struct ibv_qp_init_attr with a domain. ibv_create_xrc_rcv_qp() reads xrc_domain and nothing
 * else. */
struct ibv_xrc_rcv_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	struct ibv_xrc_domain *xrc_domain;
};

/* Opens the domain of a file, as ibv_open_xrcd(). `oflag`: 0, O_CREAT, or both O_CREAT and O_EXCL.
 * fd -1: a domain without a file, for this process; `oflag` then is O_CREAT. */
struct ibv_xrc_domain *ibv_open_xrc_domain(struct ibv_context *context, int fd, int oflag);
/* EBUSY: this process has an SRQ in the domain, or is registered with a receive queue pair. */
int ibv_close_xrc_domain(struct ibv_xrc_domain *d);

/* Makes an SRQ of the domain; `xrc_cq` gets its completions. ibv_destroy_srq() ends it. The actual
 * sizes are in `srq_init_attr` afterwards. */
struct ibv_srq *ibv_create_xrc_srq(struct ibv_pd *pd, struct ibv_xrc_domain *xrc_domain,
				   struct ibv_cq *xrc_cq, struct ibv_srq_init_attr *srq_init_attr);

/* Makes a receive queue pair in RESET, and registers this process with it. It lives until no
 * process is registered any more. A process that ends is no longer registered. */
int ibv_create_xrc_rcv_qp(struct ibv_xrc_rcv_init_attr *init_attr, uint32_t *xrc_rcv_qpn);
/* As ibv_modify_qp() and ibv_query_qp(), of the domain's receive queue pair with this number; this
 * process needn't be registered. EINVAL: the domain has none. */
int ibv_modify_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num,
			  struct ibv_qp_attr *attr, int attr_mask);
int ibv_query_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num,
			 struct ibv_qp_attr *attr, int attr_mask,
			 struct ibv_xrc_rcv_init_attr *init_attr);
/* Registers this process; 0 also if it was registered before. EINVAL: the domain has no such
 * receive queue pair. */
int ibv_reg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num);
/* The last process that does this ends the queue pair. EINVAL: this process isn't registered. Waits
 * for events of the queue pair that ibv_ack_async_event() hasn't got yet. */
int ibv_unreg_xrc_rcv_qp(struct ibv_xrc_domain *xrc_domain, uint32_t xrc_qp_num);

#ifdef __cplusplus
}
#endif

#endif
