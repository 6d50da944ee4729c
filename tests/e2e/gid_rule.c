/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One message over RC, from a GID that is chosen by its position, as programs do that connect by
 * themselves. usage: gid_rule DEVICE RULE PORT [HOST]; without a host it is the server, which gets
 * the message. DEVICE: the position in ibv_get_device_list(), from 0, or -1: the last. RULE:
 *
 *   first   entry 0 (Ceph, gloo, uDAPL)
 *   last    the last one that isn't empty (brpc)
 *   v4      the first IPv4 one, or else the first (NCCL)
 *   ranked  the first IPv4 one that isn't of a private network, else the first IPv4 one, else the
 *           first that isn't link-local, else the first (Mooncake)
 *
 * The two exchange what they need by TCP at the given port. Succeeds when the data has arrived.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "must.h"

enum { BYTES = 4096, PATIENCE_S = 10, PSN = 77 };

/* What the two tell each other. */
struct end {
	union ibv_gid gid;
	uint32_t qpn;
};

/* ------------------------------------------------------------------ the rules */

static bool is_empty(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return !memcmp(gid, &none, sizeof(none));
}

static bool is_v4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

static bool is_private(const union ibv_gid *gid)
{
	const uint8_t *a = gid->raw + 12;

	return a[0] == 10 || (a[0] == 172 && (a[1] & 0xf0) == 16) || (a[0] == 192 && a[1] == 168) ||
	       (a[0] == 100 && (a[1] & 0xc0) == 64);
}

/* How well the rule likes an entry; of the best the first one is taken, or with `last` the last. */
static int liking(const char *rule, const union ibv_gid *gid)
{
	if (is_empty(gid))
		return -1;
	if (!strcmp(rule, "v4"))
		return is_v4(gid);
	if (strcmp(rule, "ranked") != 0)
		return 0;
	if (is_v4(gid))
		return is_private(gid) ? 2 : 3;
	return !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)gid->raw);
}

static int choose(struct ibv_context *context, const char *rule, union ibv_gid *chosen)
{
	struct ibv_port_attr port;
	int index = -1, best = -1;

	MUST(!ibv_query_port(context, 1, &port));
	MUST(port.state == IBV_PORT_ACTIVE);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid gid;

		if (ibv_query_gid(context, 1, i, &gid))
			continue;
		int this = liking(rule, &gid);

		if (this < 0 || this < best || (this == best && strcmp(rule, "last") != 0))
			continue;
		best = this;
		index = i;
		*chosen = gid;
	}
	MUST(index >= 0);
	return index;
}

/* ------------------------------------------------------------------ the other end */

static int connection(const char *host, const char *port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_family = host ? AF_UNSPEC : AF_INET6,
				       .ai_flags = host ? 0 : AI_PASSIVE};
	struct addrinfo *at;
	const int yes = 1;

	MUST(!getaddrinfo(host, port, &hints, &at));
	int fd = socket(at->ai_family, SOCK_STREAM, 0);

	MUST(fd >= 0);
	if (host) {
		MUST(!connect(fd, at->ai_addr, at->ai_addrlen));
		return fd;
	}
	MUST(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)));
	MUST(!bind(fd, at->ai_addr, at->ai_addrlen) && !listen(fd, 1));
	int taken = accept(fd, NULL, NULL);

	MUST(taken >= 0);
	return taken;
}

static void exchange(int fd, const void *own, void *other, size_t size)
{
	MUST(write(fd, own, size) == (ssize_t)size);
	MUST(recv(fd, other, size, MSG_WAITALL) == (ssize_t)size);
}

/* ------------------------------------------------------------------ the queue pair */

static void to_rts(struct ibv_qp *qp, int index, const struct end *other)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = other->qpn,
		.rq_psn = PSN,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = other->gid,
				    .sgid_index = (uint8_t)index,
				    .hop_limit = 64}},
	};

	MUST(!(errno = ibv_modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER)));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .sq_psn = PSN};
	MUST(!(errno = ibv_modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC)));
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	MUST(qp);
	MUST(!(errno = ibv_modify_qp(qp, &attr,
				     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS)));
	return qp;
}

static void await_completion(struct ibv_cq *cq)
{
	time_t end = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)) && time(NULL) < end)
		;
	if (n == 1 && wc.status)
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
	errno = n ? 0 : ETIMEDOUT;
	MUST(n == 1 && wc.status == IBV_WC_SUCCESS);
}

static struct ibv_context *open_device(const char *position)
{
	int count, wanted = atoi(position);
	struct ibv_device **list = ibv_get_device_list(&count);

	MUST(list && count > 0 && wanted < count);
	struct ibv_device *device = list[wanted < 0 ? count - 1 : wanted];
	struct ibv_context *context = ibv_open_device(device);

	MUST(context);
	printf("%s ", ibv_get_device_name(device));
	ibv_free_device_list(list);
	return context;
}

int main(int argc, char **argv)
{
	static uint8_t bytes[BYTES];
	char text[INET6_ADDRSTRLEN], ready;

	MUST(argc == 4 || argc == 5);
	bool server = argc == 4;
	struct ibv_context *context = open_device(argv[1]);
	struct end own, other;
	int index = choose(context, argv[2], &own.gid);

	printf("GID %d %s\n", index, inet_ntop(AF_INET6, own.gid.raw, text, sizeof(text)));
	fflush(stdout);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2, NULL, NULL, 0);

	MUST(pd && cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = make_qp(pd, cq);

	MUST(mr);
	struct ibv_sge sge = {(uintptr_t)bytes, sizeof(bytes), mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	int fd = connection(server ? NULL : argv[4], argv[3]);

	own.qpn = qp->qp_num;
	exchange(fd, &own, &other, sizeof(own));
	if (server)
		MUST(!ibv_post_recv(qp, &receive, &bad_receive));
	to_rts(qp, index, &other);
	exchange(fd, "r", &ready, 1);
	for (int i = 0; !server && i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 7);
	if (!server)
		MUST(!ibv_post_send(qp, &send, &bad_send));
	await_completion(cq);
	for (int i = 0; i < BYTES; i++)
		MUST(bytes[i] == (uint8_t)(i * 7));
	exchange(fd, "d", &ready, 1);
	printf("arrived\n");
	return 0;
}
