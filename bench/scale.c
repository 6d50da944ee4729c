/* SPDX-License-Identifier: BSD-2-Clause */
/* See scale.h. */
#include "scale.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void give_up(const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "%s[%d]: %s\n", program_invocation_short_name, getpid(), text);
	exit(1);
}

double now_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *value, int n)
{
	qsort(value, n, sizeof(*value), compare);
	return value[n / 2];
}

void run_on_core(int pid, int core)
{
	cpu_set_t set;

	if (core < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(pid, sizeof(set), &set) < 0)
		give_up("can't run process %d on core %d: %s", pid, core, strerror(errno));
}

/* Its resident pages, which every process may know. */
static uint64_t resident_bytes(int pid)
{
	unsigned long long pages = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	FILE *f = fopen(path, "re");

	if (!f)
		give_up("%s: %s", path, strerror(errno));
	if (fscanf(f, "%*u %llu", &pages) != 1)
		give_up("%s: not as expected", path);
	fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t process_bytes(int pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid ? pid : getpid());
	FILE *f = fopen(path, "re");

	if (!f && errno == EACCES) /* of another user namespace */
		return resident_bytes(pid);
	if (!f)
		give_up("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %llu kB", &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

/* 127.0.0.1, by which the wire leads back here as well; else the first. */
static void choose_gid(struct node *node)
{
	static const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};

	for (int i = 0; i < 64; i++)
		if (ibv_query_gid(node->ctx, 1, i, &node->gid) == 0 &&
		    !memcmp(node->gid.raw, loopback, sizeof(loopback))) {
			node->gid_index = (uint8_t)i;
			return;
		}
	node->gid_index = 0;
	if (ibv_query_gid(node->ctx, 1, 0, &node->gid))
		give_up("ibv_query_gid: %s", strerror(errno));
}

void node_open(struct node *node, int cqe, size_t bytes)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		give_up("no RDMA device: is verbenad there?");
	node->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!node->ctx)
		give_up("ibv_open_device: %s", strerror(errno));
	node->pd = ibv_alloc_pd(node->ctx);
	node->channel = ibv_create_comp_channel(node->ctx);
	node->cq = ibv_create_cq(node->ctx, cqe, NULL, node->channel, 0);
	node->buf = calloc(1, bytes);
	if (!node->pd || !node->channel || !node->cq || !node->buf)
		give_up("PD, channel, CQ or memory: %s", strerror(errno));
	node->mr = ibv_reg_mr(node->pd, node->buf, bytes,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ);
	if (!node->mr)
		give_up("ibv_reg_mr of %zu bytes: %s", bytes, strerror(errno));
	choose_gid(node);
}

void node_close(struct node *node)
{
	int err = ibv_dereg_mr(node->mr);

	err = err ? err : ibv_destroy_cq(node->cq);
	err = err ? err : ibv_destroy_comp_channel(node->channel);
	err = err ? err : ibv_dealloc_pd(node->pd);
	if (err || ibv_close_device(node->ctx))
		give_up("giving the objects back: %s", strerror(err ? err : errno));
	free(node->buf);
}

struct ibv_qp *node_qp(struct node *node, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = depth,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp *qp = ibv_create_qp(node->pd, &init);

	if (!qp)
		give_up("ibv_create_qp: %s", strerror(errno));
	int err = ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (err)
		give_up("ibv_modify_qp to INIT: %s", strerror(err));
	return qp;
}

void qp_connect(const struct node *node, struct ibv_qp *qp, uint32_t qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = node->gid,
				    .sgid_index = node->gid_index,
				    .hop_limit = 1}},
	};
	int err = ibv_modify_qp(qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER);

	if (err)
		give_up("ibv_modify_qp to RTR: %s", strerror(err));
	/* Hundreds of processes on few cores: patient timers. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 20,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	err = ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (err)
		give_up("ibv_modify_qp to RTS: %s", strerror(err));
}

static struct ibv_sge segment(const struct node *node, size_t offset, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)node->buf + offset, length, node->mr->lkey};
}

void qp_recv(const struct node *node, struct ibv_qp *qp, uint64_t id, size_t offset,
	     uint32_t length)
{
	struct ibv_sge sge = segment(node, offset, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	int err = ibv_post_recv(qp, &wr, &bad);

	if (err)
		give_up("ibv_post_recv: %s", strerror(err));
}

static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(qp, wr, &bad);

	if (err)
		give_up("ibv_post_send: %s", strerror(err));
}

void qp_send(const struct node *node, struct ibv_qp *qp, uint64_t id, size_t offset,
	     uint32_t length)
{
	struct ibv_sge sge = segment(node, offset, length);

	post(qp, &(struct ibv_send_wr){.wr_id = id,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED});
}

void qp_rdma(const struct node *node, struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t id,
	     size_t offset, uint32_t length, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = segment(node, offset, length);

	post(qp, &(struct ibv_send_wr){.wr_id = id,
				       .sg_list = &sge,
				       .num_sge = 1,
				       .opcode = opcode,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {.remote_addr = remote, .rkey = rkey}});
}

/* Arms, looks once more, and blocks for the event; a completion that came meanwhile is returned. */
static int block_for_event(struct node *node, struct ibv_wc *wc)
{
	struct ibv_cq *cq;
	void *context;
	int n;

	if (ibv_req_notify_cq(node->cq, 0))
		give_up("ibv_req_notify_cq: %s", strerror(errno));
	n = ibv_poll_cq(node->cq, 1, wc);
	if (n)
		return n;
	if (ibv_get_cq_event(node->channel, &cq, &context))
		give_up("ibv_get_cq_event: %s", strerror(errno));
	ibv_ack_cq_events(cq, 1);
	return 0;
}

struct ibv_wc node_wait(struct node *node, int sleeping)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(node->cq, 1, &wc)))
		if (sleeping && (n = block_for_event(node, &wc)))
			break;
	if (n < 0)
		give_up("ibv_poll_cq failed");
	if (wc.status != IBV_WC_SUCCESS)
		give_up("request %llu of QP 0x%x: %s", (unsigned long long)wc.wr_id, wc.qp_num,
			ibv_wc_status_str(wc.status));
	return wc;
}
