/* SPDX-License-Identifier: BSD-2-Clause */
/* See fakes.h. */
#include "fakes.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hca/engine/engine.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"

struct fakes fakes;

void engine_poll(struct hca *hca, const struct cq *cq)
{
	(void)hca;
	fakes.polls++;
	fakes.armed_polls += cq_owes_any(cq);
	if (fakes.on_poll)
		fakes.on_poll();
}

void engine_release(struct hca *hca)
{
	(void)hca;
	fakes.releases++;
}

void engine_kick(struct hca *hca)
{
	(void)hca;
}

uint64_t now_ns(void)
{
	return fakes.now;
}

int daemon_create_cq(struct daemon_conn *conn, uint32_t cqe, int64_t channel, uint32_t comp_vector,
		     uint32_t *handle)
{
	(void)conn, (void)cqe, (void)channel, (void)comp_vector;
	if (fakes.daemon_result)
		return fakes.daemon_result;
	*handle = ++fakes.daemon_cqs;
	return 0;
}

int daemon_resize_cq(struct daemon_conn *conn, uint32_t handle, uint32_t cqe)
{
	(void)conn, (void)handle;
	if (!fakes.daemon_result)
		fakes.resized_to = cqe;
	return fakes.daemon_result;
}

int daemon_create_channel_cq(struct daemon_conn *conn, uint32_t cqe, uint32_t comp_vector,
			     struct proto_create_channel_cq_resp *resp)
{
	(void)conn, (void)cqe, (void)comp_vector;
	if (fakes.daemon_result)
		return fakes.daemon_result;
	resp->channel = ++fakes.daemon_channels;
	resp->cq = ++fakes.daemon_cqs;
	return 0;
}

void daemon_destroy_cq(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	fakes.daemon_cqs--;
}

void daemon_destroy_channel(struct daemon_conn *conn, uint32_t handle)
{
	(void)conn, (void)handle;
	fakes.daemon_channels--;
}

struct ibv_context *fake_open(void)
{
	static struct pub pub;
	struct hca *hca = calloc(1, sizeof(*hca));
	struct context *context = calloc(1, sizeof(*context));

	assert_non_null(hca);
	assert_non_null(context);
	fakes = (struct fakes){0};
	memset(&pub.header, 0, sizeof(pub.header));
	hca->pub = &pub;
	hca_init_locks(hca);
	list_init(&hca->contexts);
	list_add_tail(&hca->contexts, &context->node);
	context->hca = hca;
	assert_int_equal(event_queue_init(&context->async), 0);
	context->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->verbs.context.num_comp_vectors = 4;
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	return &context->verbs.context;
}

void fake_close(struct ibv_context *ibv)
{
	struct context *context = context_of(ibv);

	assert_int_equal(fakes.daemon_cqs, 0);
	assert_int_equal(fakes.daemon_channels, 0);
	assert_int_equal(atomic_load(&context->hca->pub->header.armed_cqs), 0);
	event_queue_destroy(&context->async);
	free(context->hca);
	free(context);
}

struct cq *fake_cq(struct ibv_context *context, unsigned int cqe, struct ibv_comp_channel *channel)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = cqe, .channel = channel};
	struct ibv_cq *cq = cq_create(context, &attr);

	assert_non_null(cq);
	return cq_of(cq);
}

bool fake_push(struct cq *cq, uint64_t wr_id)
{
	return cq_push(cq, &(struct cqe){.wr_id = wr_id, .qp_num = wr_id % 10}, false);
}

bool fd_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}
