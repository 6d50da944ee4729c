/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The QP of an id that has joined a multicast group is destroyed and made anew: the old one ends
 * (its CQ can be destroyed), the new one is attached to the group, and no longer after the group is
 * left.
 *
 * usage: cm_groups ADDRESS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s (%s)\n", what, strerrorname_np(errno));
	exit(1);
}

static struct sockaddr_in address_of(const char *text)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};

	require(inet_pton(AF_INET, text, &addr.sin_addr) == 1, text);
	return addr;
}

static struct ibv_cq *qp_make(struct rdma_cm_id *id)
{
	struct ibv_cq *cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);

	require(cq, "ibv_create_cq");
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	require(!rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	return cq;
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = address_of(argc == 2 ? argv[1] : ""),
			   group = address_of("239.1.2.3");
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	/* Without a channel each call returns when it is done, and its event is id->event. */
	require(!rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), "rdma_create_id");
	/* Not rdma_bind_addr(): an identifier that is bound to loopback has no device. */
	require(!rdma_resolve_addr(id, (struct sockaddr *)&own, (struct sockaddr *)&own, 2000),
		"rdma_resolve_addr");
	struct ibv_cq *cq = qp_make(id);

	require(!rdma_join_multicast(id, (struct sockaddr *)&group, NULL), "rdma_join_multicast");
	event = id->event;
	require(event && event->event == RDMA_CM_EVENT_MULTICAST_JOIN, "no join event");
	union ibv_gid gid = event->param.ud.ah_attr.grh.dgid;
	uint16_t lid = event->param.ud.ah_attr.dlid;

	rdma_destroy_qp(id);
	require(!ibv_destroy_cq(cq), "the destroyed QP's CQ");
	cq = qp_make(id);
	/* Ends the attachment, and says whether there was one. */
	require(!ibv_detach_mcast(id->qp, &gid, lid), "the new QP isn't attached to the group");
	require(!ibv_attach_mcast(id->qp, &gid, lid), "ibv_attach_mcast");
	require(!rdma_leave_multicast(id, (struct sockaddr *)&group), "rdma_leave_multicast");
	require(ibv_detach_mcast(id->qp, &gid, lid), "the QP is attached after it left");
	rdma_destroy_qp(id);
	require(!ibv_destroy_cq(cq), "the second QP's CQ");
	require(!rdma_destroy_id(id), "rdma_destroy_id");
	return 0;
}
