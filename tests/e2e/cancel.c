/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that are cancelled. See rig.h.
 *
 * A thread with a pending cancellation request ends at the first cancellation point. So each call
 * is made by a thread that has a request pending: a call that returns contains no cancellation
 * point on that path, and so leaves no lock taken. Calls that wait on behalf of the program must be
 * cancellable, and leave no lock taken either. Rival threads make the same calls meanwhile, so that
 * the paths that wait for locks, naps and doorbells are covered, too.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

enum { ROUNDS = 300, RIVALS = 2, BATCH = 8 };

/*
 * Three places in each buffer: what is sent from, what receives fill, what the peer's WRITEs fill.
 * So no copy races with another one. A race would be reported by the thread sanitizer, or looked up
 * among its suppressions; both read files, which are cancellation points, under the locks of the
 * sanitizer and of the library, and the thread that has a request pending would leave them taken.
 */
enum { LENGTH = 64, SENT_FROM = 0, RECEIVED_AT = LENGTH, WRITTEN_AT = 2 * LENGTH };

struct scene {
	struct rig *rig;
	struct end *end;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	_Atomic bool over;
};

/* Calls -------------------------------------------------------------------------------------- */

static void send(struct scene *s)
{
	(void)end_send(s->end, IBV_WR_SEND, 1, SENT_FROM, LENGTH, 0); /* the queue may be full */
}

static void write_memory(struct scene *s)
{
	(void)end_send(s->end, IBV_WR_RDMA_WRITE, 1, SENT_FROM, LENGTH, WRITTEN_AT);
}

static void receive(struct scene *s)
{
	(void)end_recv(s->end, 1, RECEIVED_AT, LENGTH);
}

static void poll_both(struct scene *s)
{
	struct ibv_wc wc[BATCH];

	CHECK(s->rig, ibv_poll_cq(s->end->scq, BATCH, wc) >= 0);
	CHECK(s->rig, ibv_poll_cq(s->end->rcq, BATCH, wc) >= 0);
}

/* Polls until it yields the processor, and naps. */
static void poll_for_long(struct scene *s)
{
	for (int i = 0; i < 4000; i++)
		poll_both(s);
}

static void arm(struct scene *s)
{
	OK(s->rig, ibv_req_notify_cq(s->end->rcq, 0));
}

static void query(struct scene *s)
{
	CHECK_EQ(s->rig, end_state(s->end), IBV_QPS_RTS);
}

static void cq(struct scene *s)
{
	struct ibv_cq *cq = ibv_create_cq(s->rig->ctx, 16, NULL, s->end->channel, 0);

	CHECK(s->rig, cq);
	OK(s->rig, ibv_resize_cq(cq, 32));
	OK(s->rig, ibv_destroy_cq(cq));
}

static void channel(struct scene *s)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(s->rig->ctx);

	CHECK(s->rig, channel);
	OK(s->rig, ibv_destroy_comp_channel(channel));
}

static void region(struct scene *s)
{
	struct ibv_mr *mr = ibv_reg_mr(s->end->pd, s->end->buf, 4096, IBV_ACCESS_LOCAL_WRITE);

	CHECK(s->rig, mr);
	OK(s->rig, ibv_dereg_mr(mr));
}

static void domain(struct scene *s)
{
	struct ibv_pd *pd = ibv_alloc_pd(s->rig->ctx);

	CHECK(s->rig, pd);
	OK(s->rig, ibv_dealloc_pd(pd));
}

static void qp(struct scene *s)
{
	struct ibv_qp_init_attr init = {.send_cq = s->end->scq,
					.recv_cq = s->end->rcq,
					.cap = {4, 4, 1, 1, 0},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(s->end->pd, &init);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	CHECK(s->rig, qp);
	OK(s->rig, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	OK(s->rig, ibv_destroy_qp(qp));
}

static void srq(struct scene *s)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(s->end->pd, &init);

	CHECK(s->rig, srq);
	OK(s->rig, ibv_destroy_srq(srq));
}

static void address(struct scene *s)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = 1, .grh = {.dgid = s->end->gid, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(s->end->pd, &attr);

	if (ah)
		OK(s->rig, ibv_destroy_ah(ah));
}

static void ports(struct scene *s)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	union ibv_gid gid;

	OK(s->rig, ibv_query_device(s->rig->ctx, &device));
	OK(s->rig, ibv_query_port(s->rig->ctx, 1, &port));
	OK(s->rig, ibv_query_gid(s->rig->ctx, 1, 0, &gid));
}

static void context(struct scene *s)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(s->rig, list && count);
	struct ibv_context *context = ibv_open_device(list[0]);

	CHECK(s->rig, context);
	OK(s->rig, ibv_close_device(context));
	ibv_free_device_list(list);
}

static const struct call {
	const char *name;
	void (*make)(struct scene *s);
	unsigned int every; /* rounds: slow calls are made less often */
} calls[] = {
	{"ibv_post_send of a SEND", send, 1},
	{"ibv_post_recv", receive, 1},
	{"ibv_poll_cq", poll_both, 1},
	{"ibv_post_send of a WRITE", write_memory, 1},
	{"ibv_req_notify_cq", arm, 1},
	{"ibv_query_qp", query, 1},
	{"ibv_poll_cq, long in vain", poll_for_long, 50},
	{"CQ", cq, 20},
	{"channel", channel, 20},
	{"region", region, 20},
	{"protection domain", domain, 20},
	{"QP", qp, 20},
	{"SRQ", srq, 20},
	{"address handle", address, 20},
	{"queries", ports, 20},
	{"context", context, 50},
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* Threads ------------------------------------------------------------------------------------ */

struct attempt {
	struct scene *scene;
	const struct call *call;
	bool came_back;
};

static void *cancelled(void *arg)
{
	struct attempt *attempt = arg;

	pthread_cancel(pthread_self()); /* takes effect at the next cancellation point */
	attempt->call->make(attempt->scene);
	attempt->came_back = true;
	pthread_testcancel();
	return NULL;
}

static void attempt(struct scene *scene, const struct call *call)
{
	struct attempt attempt = {.scene = scene, .call = call};
	struct patience patience = patience_of(RIG_SOON_MS);
	pthread_t thread;
	void *result;

	OK(scene->rig, pthread_create(&thread, NULL, cancelled, &attempt));
	while (pthread_tryjoin_np(thread, &result)) {
		if (patience_over(&patience))
			rig_fail(scene->rig, __FILE__, __LINE__, "%s: hangs", call->name);
		usleep(100);
	}
	if (!attempt.came_back)
		rig_fail(scene->rig, __FILE__, __LINE__, "%s: cancelled in it", call->name);
	CHECK(scene->rig, result == PTHREAD_CANCELED);
}

/* Makes the same calls meanwhile. */
static void *rival(void *arg)
{
	struct scene *scene = arg;

	for (unsigned int i = 0; !scene->over; i++)
		calls[i % 6].make(scene);
	return NULL;
}

static void no_call_is_cut_short(struct rig *rig)
{
	struct end_options opt = {.cqe = 4096, .timeout = 18, .retry_cnt = 7};
	struct scene scene = {.rig = rig};
	pthread_t rivals[RIVALS];
	struct end end;

	end_pair(&end, rig, &opt);
	scene.end = &end;
	rig_sync(rig);
	for (int i = 0; i < RIVALS; i++)
		OK(rig, pthread_create(&rivals[i], NULL, rival, &scene));
	for (unsigned int round = 0; round < ROUNDS; round++)
		for (unsigned int i = 0; i < CALLS; i++)
			if (round % calls[i].every == 0)
				attempt(&scene, &calls[i]);
	scene.over = true;
	for (int i = 0; i < RIVALS; i++)
		OK(rig, pthread_join(rivals[i], NULL));
	rig_sync(rig);
	_exit(0); /* with messages in flight, and unacknowledged events */
}

static void *wait_for_completion(void *arg)
{
	struct scene *s = arg;
	struct ibv_cq *cq;
	void *context;

	for (;;)
		if (!ibv_get_cq_event(s->end->channel, &cq, &context))
			ibv_ack_cq_events(cq, 1);
	return NULL;
}

static void *wait_for_async(void *arg)
{
	struct scene *s = arg;
	struct ibv_async_event event;

	for (;;)
		if (!ibv_get_async_event(s->rig->ctx, &event))
			ibv_ack_async_event(&event);
	return NULL;
}

/* A waiting thread ends when it is cancelled, and other threads continue. */
static void waits_are_cut_short(struct rig *rig)
{
	static void *(*const waits[])(void *) = {wait_for_completion, wait_for_async};
	struct end_options opt = {.cqe = 4096, .timeout = 18, .retry_cnt = 7};
	struct scene scene = {.rig = rig};
	struct end end;

	end_pair(&end, rig, &opt);
	scene.end = &end;
	for (unsigned int i = 0; i < 40; i++) {
		struct patience patience = patience_of(RIG_SOON_MS);
		pthread_t thread;
		void *result;

		OK(rig, pthread_create(&thread, NULL, waits[i % 2], &scene));
		usleep(i * 50);
		OK(rig, pthread_cancel(thread));
		while (pthread_tryjoin_np(thread, &result)) {
			CHECK(rig, !patience_over(&patience));
			usleep(100);
		}
		CHECK(rig, result == PTHREAD_CANCELED);
		for (unsigned int c = 3; c < CALLS; c++)
			if (i % calls[c].every == 0)
				calls[c].make(&scene);
	}
	rig_sync(rig);
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct rig_test tests[] = {
		{"no_call_is_cut_short", no_call_is_cut_short},
		{"waits_are_cut_short", waits_are_cut_short},
		{NULL, NULL},
	};

	rig_main(argc, argv, tests);
}
