/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A verbs program that does what lines on its standard input say, one answer for each, so that a
 * script can play several nodes of a fabric. Numbers are decimal or 0x...; GIDs are as inet_pton()
 * reads them.
 *
 *   port [N]                             lid= lmc= sm_lid= state= mtu= pkey_violations=
 * qkey_violations= gid [INDEX], pkey INDEX              the entry qp rc|uc|ud [QKEY] [PKEY-INDEX]
 * makes a QP (one at a time), to INIT: qpn= connect QPN LID [SL] [BITS] [MTU] [TIMEOUT] [RETRIES]
 * [GID]   RC, UC: to RTS ready                                UD: to RTS send COUNT BYTES one after
 * the other: status= done= longest_us= write COUNT BYTES ADDRESS RKEY, read ...         the same
 *   memory                               address= rkey=
 *   stream SECONDS BYTES ADDRESS RKEY    WRITEs until the time is over, or one fails
 *   datagram LID QPN QKEY BYTES [SL] [BITS] [GID]    UD: status=
 *   receive COUNT MILLISECONDS           so many lines, or fewer when the time is over; then "end"
 *   alternate LID [BITS]                 RC, UC in RTS: sets that path, REARM: error=
 *   migrate                              has the QP migrate: error=
 *   migration                            its state, and where its path leads: state= dlid=
 *   event MILLISECONDS                   its name, and port=; or "none"
 *   attach GID LID, detach GID LID       UD
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lines.h"

enum { RECEIVES = 512, RECEIVE_BYTES = 8192, MEMORY = 8 << 20 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static uint8_t *memory;
static uint32_t pkey_index, qkey;

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t number(char **words, int at, uint64_t otherwise)
{
	return words[at] ? strtoull(words[at], NULL, 0) : otherwise;
}

static bool gid_read(const char *text, union ibv_gid *gid)
{
	return text && inet_pton(AF_INET6, text, gid->raw) == 1;
}

static void gid_print(const union ibv_gid *gid)
{
	char text[INET6_ADDRSTRLEN];

	printf("%s", inet_ntop(AF_INET6, gid->raw, text, sizeof text));
}

/* ------------------------------------------------------------------ attributes */

static void do_port(char **words)
{
	struct ibv_port_attr attr;
	int error = ibv_query_port(context, (uint8_t)number(words, 1, 1), &attr);

	if (error) {
		printf("error=%d\n", error);
		return;
	}
	printf("lid=%u lmc=%u sm_lid=%u sm_sl=%u state=%u mtu=%u pkey_violations=%u "
	       "qkey_violations=%u\n",
	       attr.lid, attr.lmc, attr.sm_lid, attr.sm_sl, attr.state, attr.active_mtu,
	       attr.bad_pkey_cntr, attr.qkey_viol_cntr);
}

static void do_gid(char **words)
{
	union ibv_gid gid;

	if (ibv_query_gid(context, 1, (int)number(words, 1, 0), &gid))
		printf("error=%d", errno);
	else
		gid_print(&gid);
	puts("");
}

static void do_pkey(char **words)
{
	uint16_t pkey;

	if (ibv_query_pkey(context, 1, (int)number(words, 1, 0), &pkey))
		printf("error=%d\n", errno);
	else
		printf("0x%04x\n", be16toh(pkey));
}

/* ------------------------------------------------------------------ queue pairs */

static void receive_post(uint64_t index)
{
	struct ibv_sge sge = {(uintptr_t)memory + index * RECEIVE_BYTES, RECEIVE_BYTES, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1}, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		fprintf(stderr, "cannot post a receive\n");
}

static void do_qp(char **words)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = {64, RECEIVES, 1, 1, 0},
		.qp_type = !strcmp(words[1], "rc")   ? IBV_QPT_RC
			   : !strcmp(words[1], "uc") ? IBV_QPT_UC
						     : IBV_QPT_UD,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, error;

	if (qp)
		ibv_destroy_qp(qp);
	qkey = (uint32_t)number(words, 2, 0x11111111);
	pkey_index = (uint32_t)number(words, 3, 0);
	attr.qkey = qkey;
	attr.pkey_index = (uint16_t)pkey_index;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (init.qp_type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	mask |= init.qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	qp = ibv_create_qp(pd, &init);
	error = qp ? ibv_modify_qp(qp, &attr, mask) : errno;
	if (error) {
		printf("error=%d\n", error);
		return;
	}
	for (uint64_t i = 0; i < RECEIVES; i++)
		receive_post(i);
	printf("qpn=0x%x\n", qp->qp_num);
}

static int to_rts(char **words)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)number(words, 6, 14),
		.retry_cnt = (uint8_t)number(words, 7, 7),
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static void do_connect(char **words)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = (uint32_t)number(words, 1, 0),
		.path_mtu = number(words, 5, IBV_MTU_4096),
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = (uint16_t)number(words, 2, 0),
			    .sl = (uint8_t)number(words, 3, 0),
			    .src_path_bits = (uint8_t)number(words, 4, 0),
			    .port_num = 1},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int error;

	attr.ah_attr.is_global = words[6] && words[7] && gid_read(words[8], &attr.ah_attr.grh.dgid);
	attr.ah_attr.grh.hop_limit = 1;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	error = ibv_modify_qp(qp, &attr, mask);
	if (!error)
		error = to_rts(words);
	printf("error=%d\n", error);
}

static void do_ready(char **words)
{
	static char *none[WORDS];
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);

	(void)words;
	if (!error)
		error = to_rts(none);
	printf("error=%d\n", error);
}

/* ------------------------------------------------------------------ requests */

/* Executes one request; its status, or -errno. */
static int request(struct ibv_send_wr *wr, uint32_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)memory + RECEIVES * RECEIVE_BYTES, bytes, mr->lkey};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int error, count;

	wr->sg_list = &sge;
	wr->num_sge = bytes != 0;
	wr->send_flags = IBV_SEND_SIGNALED;
	error = ibv_post_send(qp, wr, &bad);
	if (error)
		return -error;
	do
		count = ibv_poll_cq(send_cq, 1, &wc);
	while (!count);
	return count < 0 ? -EIO : (int)wc.status;
}

static void requests(struct ibv_send_wr *wr, uint64_t count, uint64_t until_us, uint32_t bytes)
{
	uint64_t done = 0, longest = 0, before = now_us();
	int status = 0;

	while (!status && (until_us ? before < until_us : done < count)) {
		status = request(wr, bytes);

		uint64_t now = now_us();

		if (now - before > longest)
			longest = now - before;
		before = now;
		done += !status;
	}
	printf("status=%d done=%lu longest_us=%lu\n", status, done, longest);
}

static void do_send(char **words)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	requests(&wr, number(words, 1, 1), 0, (uint32_t)number(words, 2, 64));
}

static void do_stream(char **words)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

	wr.wr.rdma.remote_addr = number(words, 3, 0);
	wr.wr.rdma.rkey = (uint32_t)number(words, 4, 0);
	requests(&wr, 0, now_us() + number(words, 1, 1) * 1000000, (uint32_t)number(words, 2, 64));
}

static void do_alternate(char **words)
{
	struct ibv_qp_attr attr = {
		.alt_ah_attr = {.dlid = (uint16_t)number(words, 1, 0),
				.src_path_bits = (uint8_t)number(words, 2, 0),
				.port_num = 1},
		.alt_port_num = 1,
		.alt_timeout = 14,
		.path_mig_state = IBV_MIG_REARM,
	};

	printf("error=%d\n", ibv_modify_qp(qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
}

static void do_migrate(char **words)
{
	struct ibv_qp_attr attr = {.path_mig_state = IBV_MIG_MIGRATED};

	(void)words;
	printf("error=%d\n", ibv_modify_qp(qp, &attr, IBV_QP_PATH_MIG_STATE));
}

static void do_migration(char **words)
{
	static const char *const names[] = {"MIGRATED", "REARM", "ARMED"};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	(void)words;
	ibv_query_qp(qp, &attr, IBV_QP_PATH_MIG_STATE | IBV_QP_AV, &init);
	printf("state=%s dlid=%u\n", names[attr.path_mig_state], attr.ah_attr.dlid);
}

static void remote(char **words, enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {.opcode = opcode};

	wr.wr.rdma.remote_addr = number(words, 3, 0);
	wr.wr.rdma.rkey = (uint32_t)number(words, 4, 0);
	requests(&wr, number(words, 1, 1), 0, (uint32_t)number(words, 2, 64));
}

static void do_write(char **words)
{
	remote(words, IBV_WR_RDMA_WRITE);
}

static void do_read(char **words)
{
	remote(words, IBV_WR_RDMA_READ);
}

static void do_memory(char **words)
{
	(void)words;
	printf("address=0x%lx rkey=0x%x\n", (uintptr_t)memory + RECEIVES * RECEIVE_BYTES, mr->rkey);
}

static void do_datagram(char **words)
{
	struct ibv_ah_attr attr = {
		.dlid = (uint16_t)number(words, 1, 0),
		.sl = (uint8_t)number(words, 5, 0),
		.src_path_bits = words[5] ? (uint8_t)number(words, 6, 0) : 0,
		.port_num = 1,
	};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	attr.is_global = words[5] && words[6] && gid_read(words[7], &attr.grh.dgid);
	attr.grh.hop_limit = 1;
	wr.wr.ud.ah = ibv_create_ah(pd, &attr);
	if (!wr.wr.ud.ah) {
		printf("error=%d\n", errno);
		return;
	}
	wr.wr.ud.remote_qpn = (uint32_t)number(words, 2, 0);
	wr.wr.ud.remote_qkey = (uint32_t)number(words, 3, 0);
	int status = request(&wr, (uint32_t)number(words, 4, 64));

	printf("status=%d\n", status);
	ibv_destroy_ah(wr.wr.ud.ah);
}

/* ------------------------------------------------------------------ what comes */

static void received(const struct ibv_wc *wc)
{
	const uint8_t *at = memory + wc->wr_id * RECEIVE_BYTES;
	union ibv_gid gid;

	printf("status=%d bytes=%u from=0x%x slid=%u sl=%u bits=%u grh=%d", wc->status,
	       wc->byte_len, wc->src_qp, wc->slid, wc->sl, wc->dlid_path_bits,
	       (wc->wc_flags & IBV_WC_GRH) != 0);
	if (qp->qp_type == IBV_QPT_UD && wc->wc_flags & IBV_WC_GRH) {
		memcpy(gid.raw, at + 8, 16);
		printf(" sgid=");
		gid_print(&gid);
		memcpy(gid.raw, at + 24, 16);
		printf(" dgid=");
		gid_print(&gid);
	}
	puts("");
	if (wc->status == IBV_WC_SUCCESS)
		receive_post(wc->wr_id);
}

static void do_receive(char **words)
{
	uint64_t count = number(words, 1, 1), until = now_us() + number(words, 2, 1000) * 1000;
	struct ibv_wc wc;

	while (count && now_us() < until) {
		if (ibv_poll_cq(recv_cq, 1, &wc) != 1)
			continue;
		received(&wc);
		count--;
	}
	puts("end");
}

static void do_event(char **words)
{
	struct pollfd wait = {.fd = context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	if (poll(&wait, 1, (int)number(words, 1, 1000)) != 1 ||
	    ibv_get_async_event(context, &event)) {
		puts("none");
		return;
	}
	printf("%s port=%d\n", ibv_event_type_str(event.event_type), event.element.port_num);
	ibv_ack_async_event(&event);
}

static void do_attach(char **words)
{
	union ibv_gid gid;
	int error = gid_read(words[1], &gid)
			    ? ibv_attach_mcast(qp, &gid, (uint16_t)number(words, 2, 0))
			    : EINVAL;

	printf("error=%d\n", error);
}

static void do_detach(char **words)
{
	union ibv_gid gid;
	int error = gid_read(words[1], &gid)
			    ? ibv_detach_mcast(qp, &gid, (uint16_t)number(words, 2, 0))
			    : EINVAL;

	printf("error=%d\n", error);
}

/* ------------------------------------------------------------------ lines */

static const struct command commands[] = {
	{"port", do_port},	     {"gid", do_gid},
	{"pkey", do_pkey},	     {"qp", do_qp},
	{"connect", do_connect},     {"ready", do_ready},
	{"send", do_send},	     {"write", do_write},
	{"read", do_read},	     {"memory", do_memory},
	{"stream", do_stream},	     {"datagram", do_datagram},
	{"receive", do_receive},     {"event", do_event},
	{"attach", do_attach},	     {"detach", do_detach},
	{"alternate", do_alternate}, {"migrate", do_migrate},
	{"migration", do_migration},
};

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	memory = aligned_alloc(4096, MEMORY);
	if (!list || !list[0] || !memory) {
		fprintf(stderr, "no device\n");
		return 1;
	}
	memset(memory, 0, MEMORY);
	context = ibv_open_device(list[0]);
	pd = context ? ibv_alloc_pd(context) : NULL;
	mr = pd ? ibv_reg_mr(pd, memory, MEMORY,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ)
		: NULL;
	send_cq = mr ? ibv_create_cq(context, 64, NULL, NULL, 0) : NULL;
	recv_cq = send_cq ? ibv_create_cq(context, RECEIVES, NULL, NULL, 0) : NULL;
	if (!recv_cq) {
		perror("cannot open the device");
		return 1;
	}
	lines_run(commands, sizeof commands / sizeof commands[0]);
	return 0;
}
