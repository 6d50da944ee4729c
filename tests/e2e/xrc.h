/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ends of XRC connections: an initiator, a target queue pair, SRQs of a domain. Both ends of a test
 * have all of them, and connect each other's initiator to their target. See rig.h.
 */
#ifndef VERBENA_E2E_XRC_H
#define VERBENA_E2E_XRC_H

#include "rig.h"

enum { XRC_SRQS = 2, XRC_BYTES = 1 << 20 };

struct xrc_end {
	struct rig *rig;
	int file; /* of the domain; -1: anonymous */
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq[XRC_SRQS];
	uint32_t srqn[XRC_SRQS];
	struct ibv_qp *target, *initiator;
	struct ibv_mr *mr;
	uint8_t *buf;
	union ibv_gid gid;
	struct xrc_peer {
		uint32_t target, initiator, srqn[XRC_SRQS], rkey, psn;
		uint64_t addr;
		union ibv_gid gid;
	} peer;
};

struct xrc_options {
	const char *file;    /* of the domain; NULL: anonymous */
	unsigned int depth;  /* of SRQs; default 64 */
	int access;	     /* of the target; default: all; QP_NONE: none */
	int rnr_retry;	     /* default 7; RNR_NONE: 0 */
	bool builder;	     /* the initiator is for ibv_wr_* */
	bool target_unready; /* the target stays in INIT */
};

/* Makes all objects; the queue pairs are in RESET. NULL: all defaults. */
void xrc_open(struct xrc_end *end, struct rig *rig, const struct xrc_options *opt);
void xrc_close(struct xrc_end *end);
/* Exchanges the numbers. */
void xrc_meet(struct xrc_end *end);
/* The name of a file for a domain of both ends. */
const char *xrc_domain_file(struct rig *rig, char path[128]);
/* What leads from INIT to RTR, with the mask XRC_PATH (a target has two attributes more): connected
 * to the other end's queue pair with this number. */
enum { XRC_PATH = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN };
struct ibv_qp_attr xrc_path_to(struct xrc_end *end, uint32_t qpn, uint32_t rq_psn);
/* Moves a target queue pair to INIT and RTR, for the initiator with this number of the other end.
 */
void xrc_target_init(struct xrc_end *end, struct ibv_qp *target, const struct xrc_options *opt);
void xrc_target_rtr(struct xrc_end *end, struct ibv_qp *target);
/* Moves the initiator to RTS, connected to the target with this number. */
void xrc_initiator_rts(struct xrc_end *end, uint32_t target, const struct xrc_options *opt);
/* All of it. */
void xrc_pair(struct xrc_end *end, struct rig *rig, const struct xrc_options *opt);

/* Fills a request to an SRQ; `wr` points to `sge`. */
void xrc_request(struct xrc_end *end, enum ibv_wr_opcode opcode, uint64_t id, uint32_t srqn,
		 size_t offset, uint32_t length, size_t remote, struct ibv_send_wr *wr,
		 struct ibv_sge *sge);
/* Posts one. The verb's result. */
int xrc_send(struct xrc_end *end, enum ibv_wr_opcode opcode, uint64_t id, uint32_t srqn,
	     size_t offset, uint32_t length, size_t remote);
int xrc_recv(struct xrc_end *end, struct ibv_srq *srq, uint64_t id, size_t offset, uint32_t length);
/* Waits for a completion of the CQ, and requires its id and status. */
struct ibv_wc xrc_wc_at(struct xrc_end *end, struct ibv_cq *cq, uint64_t id,
			enum ibv_wc_status status, const char *file, int line);
#define xrc_wc(end, cq, id, status) xrc_wc_at(end, cq, id, status, __FILE__, __LINE__)
enum ibv_qp_state xrc_state(struct xrc_end *end, struct ibv_qp *qp);

#endif
