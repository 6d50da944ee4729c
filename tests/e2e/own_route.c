/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks whether a queue pair can be connected to an address of this host. usage: own_route ADDRESS
 *
 * Tries it twice at first, and once whenever the GIDs change; prints the errno of each attempt, one
 * per line (0: success). Runs until it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "own_route: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	if (!context)
		give_up("no device");
	ibv_free_device_list(list);
	return context;
}

static union ibv_gid parse(const char *text)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	if (inet_pton(AF_INET, text, gid.raw + 12) != 1)
		give_up(text);
	return gid;
}

static int to_rtr(struct ibv_qp *qp, const union ibv_gid *gid)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}},
	};
	int err = ibv_modify_qp(
		qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (err)
		give_up("INIT");
	return ibv_modify_qp(qp, &rtr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static void try(struct ibv_pd *pd, struct ibv_cq *cq, const union ibv_gid *gid)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);

	if (!qp)
		give_up("ibv_create_qp");
	printf("%d\n", to_rtr(qp, gid));
	fflush(stdout);
	ibv_destroy_qp(qp);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		give_up("usage: own_route ADDRESS");
	union ibv_gid gid = parse(argv[1]);
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_async_event event;

	if (!pd || !cq)
		give_up("no PD, no CQ");
	try(pd, cq, &gid);
	try(pd, cq, &gid);
	while (!ibv_get_async_event(context, &event)) {
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_GID_CHANGE)
			try(pd, cq, &gid);
	}
	give_up("ibv_get_async_event");
}
