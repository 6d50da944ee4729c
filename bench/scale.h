/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the programs here need of verbs: one device, one CQ for everything, connected RC QPs.
 *
 * A call that fails prints what and why, and ends the process: a measurement has no way on.
 * Threads: one.
 */
#ifndef VERBENA_BENCH_SCALE_H
#define VERBENA_BENCH_SCALE_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct node {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf;
	union ibv_gid gid;
	uint8_t gid_index;
};

/* Opens the device; a CQ of `cqe` entries on a channel, `bytes` of memory registered. */
void node_open(struct node *node, int cqe, size_t bytes);
/* Gives everything back but the QPs, which must be gone. */
void node_close(struct node *node);

/* An RC QP in INIT with `depth` send and `depth` receive WQEs of one segment. */
struct ibv_qp *node_qp(struct node *node, uint32_t depth);
/* To RTS, connected to QP `qpn` of this host. */
void qp_connect(const struct node *node, struct ibv_qp *qp, uint32_t qpn);

/* Posts a receive, or a signaled request, of `length` bytes at `offset` of the node's buffer. */
void qp_recv(const struct node *node, struct ibv_qp *qp, uint64_t id, size_t offset,
	     uint32_t length);
void qp_send(const struct node *node, struct ibv_qp *qp, uint64_t id, size_t offset,
	     uint32_t length);
void qp_rdma(const struct node *node, struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id,
	     size_t offset, uint32_t length, uint64_t remote, uint32_t rkey);

/* The next completion, which must be a success. sleeping: by events; else by polling. */
struct ibv_wc node_wait(struct node *node, int sleeping);

_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

double now_seconds(void);

/* Sorts the values, and returns the middle one. */
double median(double *value, int n);

/* From now on the process (0: this one) runs on this core only; -1: where it likes. */
void run_on_core(int pid, int core);

/* Bytes of the process's memory, shared pages by their share (Pss); pid 0: this process. */
uint64_t process_bytes(int pid);

#endif
