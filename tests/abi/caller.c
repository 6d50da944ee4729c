/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small verbs program in the common part of C99 and C++11, for programs.py: it is compiled with
 * our headers and with Debian's, and must import the same symbols and print the same lines.
 * Hence it prints nothing that changes from run to run, such as keys or numbers.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/opcode.h>
#include <infiniband/sa.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>

static char buffer[4096];

/* Prints one step's outcome; a wrong one ends the program. */
static void step(const char *what, int good)
{
	printf("%s: %s\n", what, good ? "yes" : "no");
	fflush(stdout);
	if (!good)
		exit(1);
}

static void names(void)
{
	for (int i = -1; i < 26; i++) {
		printf("%d: %s, %s, %s, %s,", i, ibv_node_type_str((enum ibv_node_type)i),
		       ibv_port_state_str((enum ibv_port_state)i),
		       ibv_event_type_str((enum ibv_event_type)i),
		       ibv_wc_status_str((enum ibv_wc_status)i));
		printf(" rate %d, %d\n", ibv_rate_to_mult((enum ibv_rate)i),
		       ibv_rate_to_mbps((enum ibv_rate)i));
	}
	for (int i = -1; i < 500; i++)
		if (mult_to_ibv_rate(i))
			printf("rate of %d: %d\n", i, mult_to_ibv_rate(i));
	for (int i = -1; i < 1300000; i++)
		if (mbps_to_ibv_rate(i))
			printf("rate of %d Mbit/s: %d\n", i, mbps_to_ibv_rate(i));
}

static void device(struct ibv_context *ctx)
{
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex attr_ex;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_gid_entry row;
	__be16 pkey;

	step("device queried", !ibv_query_device(ctx, &attr));
	step("extended query agrees",
	     !ibv_query_device_ex(ctx, NULL, &attr_ex) && attr_ex.orig_attr.max_qp == attr.max_qp);
	step("port queried", !ibv_query_port(ctx, 1, &port) && port.state == IBV_PORT_ACTIVE);
	step("GID queried", !ibv_query_gid(ctx, 1, 0, &gid));
	step("GID's row agrees",
	     !ibv_query_gid_ex(ctx, 1, 0, &row, 0) && !memcmp(&row.gid, &gid, sizeof(gid)));
	step("table has rows", ibv_query_gid_table(ctx, &row, 1, 0) != 0);
	step("P_Key queried", !ibv_query_pkey(ctx, 1, 0, &pkey));
	step("P_Key found", ibv_get_pkey_index(ctx, 1, pkey) == 0);
}

static void memory(struct ibv_pd *pd, int volatile access)
{
	struct ibv_mr *plain = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *computed = ibv_reg_mr(pd, buffer, sizeof(buffer), access);
	struct ibv_mr *shifted =
		/* both names of a byte lie at the same place of a page */
		ibv_reg_mr_iova(pd, buffer, sizeof(buffer), 0x10000 + ((uintptr_t)buffer & 4095),
				IBV_ACCESS_LOCAL_WRITE);

	step("memory registered", plain && plain->length == sizeof(buffer));
	step("memory registered with an optional bit", computed != NULL);
	step("memory registered elsewhere", shifted != NULL);
	step("memory deregistered",
	     !ibv_dereg_mr(plain) && !ibv_dereg_mr(computed) && !ibv_dereg_mr(shifted));
}

static void queues(struct ibv_context *ctx, struct ibv_pd *pd)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	memset(&init, 0, sizeof(init));
	memset(&attr, 0, sizeof(attr));
	init.send_cq = init.recv_cq = cq;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;

	step("CQ created", cq && cq->cqe >= 16);
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	step("QP created", qp && qp->state == IBV_QPS_RESET);
	step("QP initialised",
	     !ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	step("QP without builders", !ibv_qp_to_qp_ex(qp));
	step("CQ armed", !ibv_req_notify_cq(cq, 0));
	step("CQ empty", ibv_poll_cq(cq, 1, &wc) == 0);
	step("queues destroyed",
	     !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(channel));
}

static void extended_queues(struct ibv_context *ctx, struct ibv_pd *pd)
{
	struct ibv_cq_init_attr_ex cq_init;
	struct ibv_qp_init_attr_ex init;
	struct ibv_poll_cq_attr none;

	memset(&cq_init, 0, sizeof(cq_init));
	memset(&init, 0, sizeof(init));
	memset(&none, 0, sizeof(none));
	cq_init.cqe = 16;
	cq_init.wc_flags = IBV_WC_STANDARD_FLAGS;
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &cq_init);

	step("extended CQ created", cq != NULL);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = init.cap.max_recv_wr = 4;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.pd = pd;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND;
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);

	step("extended QP created", qp != NULL);
	step("QP with builders", ibv_qp_to_qp_ex(qp) != NULL);
	step("extended CQ empty", ibv_start_poll(cq, &none) == ENOENT);
	step("extended queues destroyed",
	     !ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

int main(void)
{
	int count = -1;

	names();
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || !count) {
		printf("no device (%d)\n", count);
		if (list)
			ibv_free_device_list(list);
		return 0;
	}
	printf("device %s, type %d\n", ibv_get_device_name(list[0]), list[0]->node_type);
	struct ibv_context *ctx = ibv_open_device(list[0]);

	ibv_free_device_list(list);
	step("device opened", ctx != NULL);
	device(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);

	step("PD allocated", pd != NULL);
	memory(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	queues(ctx, pd);
	extended_queues(ctx, pd);
	step("PD deallocated", !ibv_dealloc_pd(pd));
	step("device closed", !ibv_close_device(ctx));
	return 0;
}
