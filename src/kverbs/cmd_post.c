/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands that post work requests, for drivers whose queues only the kernel writes (ipath, hfi1).
 * One command has the requests and behind them all their scatter/gather elements. A long list goes
 * as several commands of PORTION bytes at most, because an attribute has less than 64 KiB. Each
 * function returns 0 or a positive errno with *bad. No state; any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "kverbs/commands.h"

enum { PORTION = 32 * 1024 };

/* A command for a part of a list: the counts, and the memory that is filled. */
struct portion {
	uint32_t requests, elements;
	uint8_t *message; /* header_size bytes, then the requests, then the elements */
	size_t header_size, request_size;
	struct ib_uverbs_sge *next; /* where the next element goes */
};

/* The three responses have one layout: the number of the first request that failed, or 0. */
_Static_assert(sizeof(struct ib_uverbs_post_send_resp) == 4 &&
		       sizeof(struct ib_uverbs_post_recv_resp) == 4 &&
		       sizeof(struct ib_uverbs_post_srq_recv_resp) == 4,
	       "bad_wr alone");
/* So have the three headers: handle, number of requests and of elements, size of a request. */
_Static_assert(sizeof(struct ib_uverbs_post_send) == sizeof(struct ib_uverbs_post_recv) &&
		       sizeof(struct ib_uverbs_post_send) ==
			       sizeof(struct ib_uverbs_post_srq_recv) &&
		       offsetof(struct ib_uverbs_post_send, qp_handle) ==
			       offsetof(struct ib_uverbs_post_srq_recv, srq_handle),
	       "one header");
_Static_assert(sizeof(struct ibv_sge) == sizeof(struct ib_uverbs_sge), "elements are copied");

/* Counts one more request, if it fits; the first one always does. */
static bool portion_takes(struct portion *portion, int elements)
{
	uint32_t more = elements > 0 ? (uint32_t)elements : 0;
	size_t size = portion->header_size + (portion->requests + 1) * portion->request_size +
		      (portion->elements + (size_t)more) * sizeof(struct ib_uverbs_sge);

	if (portion->requests && size > PORTION)
		return false;
	portion->requests++;
	portion->elements += more;
	return true;
}

static size_t portion_size(const struct portion *portion)
{
	return portion->header_size + portion->requests * portion->request_size +
	       portion->elements * sizeof(struct ib_uverbs_sge);
}

/* Allocates the message and fills its header. False: there is no memory. */
static bool portion_begin(struct portion *portion, uint32_t handle)
{
	const struct ib_uverbs_post_send header = {
		.qp_handle = handle,
		.wr_count = portion->requests,
		.sge_count = portion->elements,
		.wqe_size = (uint32_t)portion->request_size,
	};

	portion->message = calloc(1, portion_size(portion));
	if (!portion->message)
		return false;
	memcpy(portion->message, &header, sizeof(header));
	portion->next = (void *)(portion->message + portion->header_size +
				 portion->requests * portion->request_size);
	return true;
}

static void portion_elements(struct portion *portion, const struct ibv_sge *list, int count)
{
	if (count <= 0)
		return;
	memcpy(portion->next, list, (size_t)count * sizeof(*list));
	portion->next += count;
}

static void *portion_request(const struct portion *portion, uint32_t index)
{
	return portion->message + portion->header_size + index * portion->request_size;
}

/* Sends the command and frees the message. *failed: the number of the first request that failed,
 * from 1 on; 0 with an error: none was posted. */
static int portion_send(struct portion *portion, struct ibv_context *context, uint32_t number,
			uint32_t *failed)
{
	int err = command_run(kernel_of(context), &(struct command){
							  .number = number,
							  .core = portion->message,
							  .core_size = portion_size(portion),
							  .answer = failed,
							  .answer_size = sizeof(*failed),
						  });

	free(portion->message);
	if (!err && *failed) /* the kernel says that a request failed, but not why */
		err = EINVAL;
	return err;
}

/* ------------------------------------------------------------------ sends */

static void send_request_fill(struct ib_uverbs_send_wr *to, const struct ibv_send_wr *from,
			      bool datagram)
{
	to->wr_id = from->wr_id;
	to->num_sge = (uint32_t)from->num_sge;
	to->opcode = from->opcode;
	to->send_flags = from->send_flags;
	to->ex.imm_data = from->imm_data; /* or the key to invalidate */
	if (datagram) {
		to->wr.ud.ah = from->wr.ud.ah->handle;
		to->wr.ud.remote_qpn = from->wr.ud.remote_qpn;
		to->wr.ud.remote_qkey = from->wr.ud.remote_qkey;
		return;
	}
	switch (from->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		to->wr.rdma.remote_addr = from->wr.rdma.remote_addr;
		to->wr.rdma.rkey = from->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->wr.atomic.remote_addr = from->wr.atomic.remote_addr;
		to->wr.atomic.compare_add = from->wr.atomic.compare_add;
		to->wr.atomic.swap = from->wr.atomic.swap;
		to->wr.atomic.rkey = from->wr.atomic.rkey;
		break;
	default:
		break;
	}
}

/* Posts the beginning of the list; *list is then the rest of it, or the request that failed. */
static int send_portion(struct ibv_qp *qp, struct ibv_send_wr **list)
{
	struct portion portion = {.header_size = sizeof(struct ib_uverbs_post_send),
				  .request_size = sizeof(struct ib_uverbs_send_wr)};
	struct ibv_send_wr *wr = *list;
	uint32_t failed = 0;

	for (; wr && portion_takes(&portion, wr->num_sge); wr = wr->next)
		;
	if (!portion_begin(&portion, qp->handle))
		return ENOMEM;
	wr = *list;
	for (uint32_t i = 0; i < portion.requests; i++, wr = wr->next) {
		send_request_fill(portion_request(&portion, i), wr, qp->qp_type == IBV_QPT_UD);
		portion_elements(&portion, wr->sg_list, wr->num_sge);
	}
	int err = portion_send(&portion, qp->context, IB_USER_VERBS_CMD_POST_SEND, &failed);

	if (err)
		for (wr = *list; failed > 1 && wr->next; failed--)
			wr = wr->next;
	*list = wr;
	return err;
}

EXPORT int ibv_cmd_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int err = 0;

	while (wr && !err)
		err = send_portion(qp, &wr);
	if (err)
		*bad = wr;
	return err;
}
EXPORT_SINCE_34(ibv_cmd_post_send, ibv_cmd_post_send);

/* ------------------------------------------------------------------ receives */

/* As send_portion(), for both kinds of queue. */
static int receive_portion(struct ibv_context *context, uint32_t number, uint32_t handle,
			   struct ibv_recv_wr **list)
{
	struct portion portion = {.header_size = sizeof(struct ib_uverbs_post_recv),
				  .request_size = sizeof(struct ib_uverbs_recv_wr)};
	struct ibv_recv_wr *wr = *list;
	uint32_t failed = 0;

	for (; wr && portion_takes(&portion, wr->num_sge); wr = wr->next)
		;
	if (!portion_begin(&portion, handle))
		return ENOMEM;
	wr = *list;
	for (uint32_t i = 0; i < portion.requests; i++, wr = wr->next) {
		struct ib_uverbs_recv_wr *to = portion_request(&portion, i);

		to->wr_id = wr->wr_id;
		to->num_sge = (uint32_t)wr->num_sge;
		portion_elements(&portion, wr->sg_list, wr->num_sge);
	}
	int err = portion_send(&portion, context, number, &failed);

	if (err)
		for (wr = *list; failed > 1 && wr->next; failed--)
			wr = wr->next;
	*list = wr;
	return err;
}

static int receives_post(struct ibv_context *context, uint32_t number, uint32_t handle,
			 struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	while (wr && !err)
		err = receive_portion(context, number, handle, &wr);
	if (err)
		*bad = wr;
	return err;
}

EXPORT int ibv_cmd_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return receives_post(qp->context, IB_USER_VERBS_CMD_POST_RECV, qp->handle, wr, bad);
}
EXPORT_SINCE_34(ibv_cmd_post_recv, ibv_cmd_post_recv);

EXPORT int ibv_cmd_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				 struct ibv_recv_wr **bad)
{
	return receives_post(srq->context, IB_USER_VERBS_CMD_POST_SRQ_RECV, srq->handle, wr, bad);
}
EXPORT_SINCE_34(ibv_cmd_post_srq_recv, ibv_cmd_post_srq_recv);
