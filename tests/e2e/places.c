/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places of queues: taken from the post until the completion was polled, whatever has been executed
 * meanwhile. See rig.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "faults.h"

enum { DEPTH = 16, LIST_MAX = DEPTH + 1 };

/* A WRITE of 8 bytes. The verb's result. */
static int write_one(struct end *end, uint64_t id, bool signaled)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	end_request(end, IBV_WR_RDMA_WRITE, id, 0, 8, 0, &wr, &sge);
	wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
	return ibv_post_send(end->qp, &wr, &bad);
}

/* Posts as many WRITEs as are taken; returns their number. `every`: each such one is signaled; 0:
 * none. */
static unsigned int fill_queue(struct end *end, unsigned int every)
{
	unsigned int count = 0;
	int err;

	while (!(err = write_one(end, count, every && (count + 1) % every == 0)))
		CHECK(end->rig, ++count <= end->cap.max_send_wr);
	CHECK_EQ(end->rig, err, ENOMEM);
	return count;
}

/* Signaled requests, executed and not polled: the queue is full; each completion that is polled is
 * a place. */
static void send_places(struct rig *rig)
{
	struct end_options opt = {.send_depth = DEPTH};
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		unsigned int places = end.cap.max_send_wr;

		end_warm(&end);
		CHECK_EQ(rig, fill_queue(&end, 1), places);
		end_settle(&end);
		CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
		for (unsigned int i = 0; i < 3 * places; i++) {
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
			OK(rig, write_one(&end, i + places, true));
			CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
		}
		for (unsigned int i = 3 * places; i < 4 * places; i++)
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		CHECK_EQ(rig, fill_queue(&end, 1), places);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Without a signaled request the queue stays full for ever; a completion frees the places of all
 * requests before it. RESET frees all. */
static void unsignaled_places(struct rig *rig)
{
	struct end_options opt = {.send_depth = DEPTH};
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		end_warm(&end);
		CHECK_EQ(rig, fill_queue(&end, 0), end.cap.max_send_wr);
		end_settle(&end);
		CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
		wc_none(&end, end.scq);
	}
	rig_sync(rig);
	OK(rig, end_move(&end, IBV_QPS_RESET));
	end_connect(&end);
	for (int round = 0; rig->role == RIG_A && round < 5; round++) {
		unsigned int places = end.cap.max_send_wr;

		CHECK_EQ(rig, fill_queue(&end, places / 2), places);
		end_settle(&end);
		CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
		wc_expect(&end, end.scq, places / 2 - 1, IBV_WC_SUCCESS);
		for (unsigned int i = 0; i < places / 2; i++)
			OK(rig, write_one(&end, 200 + i, i + 1 == places / 2));
		CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
		wc_expect(&end, end.scq, places - 1, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, 200 + places / 2 - 1, IBV_WC_SUCCESS);
		wc_none(&end, end.scq);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Requests that were flushed take their places until that was polled, and what was polled before
 * RESET isn't counted after it. */
static void flushed_places(struct rig *rig)
{
	struct end_options opt = {.send_depth = DEPTH};
	struct end end;

	end_pair(&end, rig, &opt);
	for (int round = 0; round < 2; round++) {
		if (rig->role == RIG_A) {
			unsigned int places = end.cap.max_send_wr;

			OK(rig, end_move(&end, IBV_QPS_ERR));
			CHECK_EQ(rig, fill_queue(&end, 0), places);
			for (unsigned int i = 0; i < 5; i++)
				wc_expect(&end, end.scq, i, IBV_WC_WR_FLUSH_ERR);
			for (unsigned int i = 0; i < 5; i++)
				OK(rig, write_one(&end, places + i, false));
			CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
			for (unsigned int i = 5; round && i < places + 5; i++)
				wc_expect(&end, end.scq, i, IBV_WC_WR_FLUSH_ERR);
		}
		rig_sync(rig);
		OK(rig, end_move(&end, IBV_QPS_RESET));
		end_connect(&end);
		if (rig->role == RIG_A) {
			wc_none(&end, end.scq);
			CHECK_EQ(rig, fill_queue(&end, 0), end.cap.max_send_wr);
		}
		rig_sync(rig);
		OK(rig, end_move(&end, IBV_QPS_RESET));
		end_connect(&end);
	}
	end_close(&end);
}

/* A list that doesn't fit is posted up to where it does; with ibv_wr_*, not at all. */
static void places_of_lists(struct rig *rig)
{
	struct end_options opt = {.send_depth = DEPTH};
	struct ibv_send_wr wr[LIST_MAX], *bad = NULL;
	struct ibv_sge sge[LIST_MAX];
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		CHECK_EQ(rig, end.cap.max_send_wr, DEPTH);
		for (int i = 0; i < LIST_MAX; i++) {
			end_request(&end, IBV_WR_RDMA_WRITE, (uint64_t)i, 0, 8, 0, &wr[i], &sge[i]);
			wr[i].next = i < LIST_MAX - 1 ? &wr[i + 1] : NULL;
		}
		CHECK_EQ(rig, ibv_post_send(end.qp, wr, &bad), ENOMEM);
		CHECK(rig, bad == &wr[DEPTH]);
		for (unsigned int i = 0; i < DEPTH; i++)
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	}
	rig_sync(rig);
	end_close(&end);
}

static void build_writes(struct end *end, unsigned int count, int wanted)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->qp);

	ibv_wr_start(ex);
	ex->wr_flags = 0;
	for (unsigned int i = 0; i < count; i++) {
		ex->wr_id = i;
		if (i == count - 1)
			ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, end->peer.rkey, end->peer.addr);
		ibv_wr_set_sge(ex, end->mr->lkey, (uintptr_t)end->buf, 8);
	}
	CHECK_EQ(end->rig, ibv_wr_complete(ex), wanted);
}

static void places_of_builders(struct rig *rig)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_send_sge = 1},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct end end;

	end_open(&end, rig, NULL);
	OK(rig, ibv_destroy_qp(end.qp));
	attr.pd = end.pd;
	attr.send_cq = attr.recv_cq = end.scq;
	CHECK(rig, (end.qp = ibv_create_qp_ex(end.pd->context, &attr)));
	end_connect(&end);
	if (rig->role == RIG_A) {
		unsigned int places = attr.cap.max_send_wr;

		build_writes(&end, places - 2, 0);
		end_settle(&end);
		build_writes(&end, 3, ENOMEM);
		build_writes(&end, 2, 0);
		build_writes(&end, 1, ENOMEM);
		wc_expect(&end, end.scq, places - 3, IBV_WC_SUCCESS);
		build_writes(&end, places - 2, 0);
		build_writes(&end, 1, ENOMEM);
		wc_expect(&end, end.scq, 1, IBV_WC_SUCCESS);
		wc_expect(&end, end.scq, places - 3, IBV_WC_SUCCESS);
		wc_none(&end, end.scq);
	}
	rig_sync(rig);
	end_close(&end);
}

/* Fills the receive queue; returns its number of places. */
static unsigned int fill_receives(struct end *end)
{
	unsigned int count = 0;
	int err;

	while (!(err = end_recv(end, count, 0, 8)))
		CHECK(end->rig, ++count <= 4 * DEPTH);
	CHECK_EQ(end->rig, err, ENOMEM);
	return count;
}

/* Receives whose messages are here, and weren't polled: the queue is full. */
static void receive_places(struct rig *rig)
{
	struct end_options opt = {.recv_depth = DEPTH};
	uint32_t places, theirs;
	struct end end;

	for (unsigned int srq = 0; srq <= DEPTH; srq += DEPTH) {
		opt.srq_depth = srq;
		end_pair(&end, rig, &opt);
		places = fill_receives(&end);
		CHECK(rig, places >= DEPTH);
		rig_swap(rig, &places, &theirs, sizeof(places));
		for (unsigned int i = 0; rig->role == RIG_A && i < theirs; i++) {
			OK(rig, end_send(&end, IBV_WR_SEND, i, 0, 8, 0));
			wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		for (unsigned int i = 0; rig->role == RIG_B && i < places; i++) {
			if (i < 3)
				CHECK_EQ(rig, end_recv(&end, 99, 0, 8), ENOMEM);
			wc_expect(&end, end.rcq, i, IBV_WC_SUCCESS);
			OK(rig, end_recv(&end, i, 0, 8));
		}
		if (rig->role == RIG_B)
			CHECK_EQ(rig, end_recv(&end, 99, 0, 8), ENOMEM);
		rig_sync(rig);
		end_close(&end);
	}
}

/* Two QPs and two CQs on one SRQ. Its places are free when either CQ was polled, and when a QP has
 * gone with completions that nobody polled. */
static void srq_places(struct rig *rig)
{
	struct end_options opt = {.srq_depth = DEPTH};
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = DEPTH, .max_send_sge = 1}};
	struct end first, second;

	end_open(&first, rig, &opt);
	end_open(&second, rig, &opt);
	attr.send_cq = second.scq;
	attr.recv_cq = second.rcq;
	attr.srq = first.srq;
	if (rig->role == RIG_B) {
		OK(rig, ibv_destroy_qp(second.qp));
		CHECK(rig, (second.qp = ibv_create_qp(first.pd, &attr)));
	}
	end_connect(&first);
	end_connect(&second);
	for (int round = 0; round < 3; round++) {
		if (rig->role == RIG_B)
			CHECK_EQ(rig, fill_receives(&first), round ? 0 : DEPTH);
		rig_sync(rig);
		for (unsigned int i = 0; rig->role == RIG_A && i < 2; i++) {
			struct end *end = i ? &first : &second;

			OK(rig, end_send(end, IBV_WR_SEND, i, 0, 8, 0));
			wc_expect(end, end->scq, i, IBV_WC_SUCCESS);
		}
		rig_sync(rig);
		if (rig->role == RIG_B) {
			CHECK_EQ(rig, fill_receives(&first), 0);
			CHECK_EQ(rig, wc_wait(&first, first.rcq).status, IBV_WC_SUCCESS);
			CHECK_EQ(rig, fill_receives(&first), 1);
			if (round < 2)
				CHECK_EQ(rig, wc_wait(&second, second.rcq).status, IBV_WC_SUCCESS);
			else
				OK(rig, end_move(&second, IBV_QPS_RESET));
			CHECK_EQ(rig, fill_receives(&first), 1);
		}
		rig_sync(rig);
	}
	end_close(&second);
	end_close(&first);
}

struct poller {
	struct end *end;
	_Atomic unsigned int polled;
	_Atomic bool over;
};

static void *poll_always(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc[4];

	while (!atomic_load(&p->over)) {
		int n = ibv_poll_cq(p->end->scq, 4, wc);

		CHECK(p->end->rig, n >= 0);
		for (int i = 0; i < n; i++)
			CHECK_EQ(p->end->rig, wc[i].status, IBV_WC_SUCCESS);
		atomic_fetch_add(&p->polled, (unsigned int)n);
	}
	return NULL;
}

/* One thread posts as much as is taken, two poll: every request is taken at last, and never more
 * than the queue has places for. */
static void places_and_threads(struct rig *rig)
{
	enum { POLLERS = 2, REQUESTS = 20000 };
	struct end_options opt = {.send_depth = DEPTH};
	struct poller poller[POLLERS] = {0};
	pthread_t thread[POLLERS];
	struct end end;

	end_pair(&end, rig, &opt);
	if (rig->role == RIG_A) {
		unsigned int done = 0;

		for (int i = 0; i < POLLERS; i++) {
			poller[i].end = &end;
			OK(rig, pthread_create(&thread[i], NULL, poll_always, &poller[i]));
		}
		for (unsigned int i = 0; i < REQUESTS; i++) {
			int err;

			while ((err = write_one(&end, i, true)) == ENOMEM)
				;
			OK(rig, err);
			done = atomic_load(&poller[0].polled) + atomic_load(&poller[1].polled);
			CHECK(rig, i + 1 <= done + end.cap.max_send_wr + POLLERS * 4);
		}
		while (done < REQUESTS)
			done = atomic_load(&poller[0].polled) + atomic_load(&poller[1].polled);
		CHECK_EQ(rig, done, REQUESTS);
		for (int i = 0; i < POLLERS; i++) {
			atomic_store(&poller[i].over, true);
			OK(rig, pthread_join(thread[i], NULL));
		}
	}
	rig_sync(rig);
	end_close(&end);
}

/* ibv_start_poll() and ibv_next_poll() free the place of the completion that they show. */
static void places_of_extended_polls(struct rig *rig)
{
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 2 * DEPTH};
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = DEPTH, .max_send_sge = 1}};
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_cq_ex *cq;
	struct end end;

	end_open(&end, rig, NULL);
	CHECK(rig, (cq = ibv_create_cq_ex(end.pd->context, &cq_attr)));
	OK(rig, ibv_destroy_qp(end.qp));
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	CHECK(rig, (end.qp = ibv_create_qp(end.pd, &attr)));
	end.cap = attr.cap;
	end_connect(&end);
	if (rig->role == RIG_A) {
		struct patience patience = patience_of(RIG_SOON_MS);

		OK(rig, write_one(&end, 99, true));
		while (ibv_start_poll(cq, &poll))
			CHECK(rig, !patience_over(&patience));
		ibv_end_poll(cq);
		CHECK_EQ(rig, fill_queue(&end, 1), attr.cap.max_send_wr);
		end_settle(&end);
		OK(rig, ibv_start_poll(cq, &poll));
		CHECK_EQ(rig, cq->wr_id, 0);
		OK(rig, write_one(&end, 0, true));
		CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
		OK(rig, ibv_next_poll(cq));
		OK(rig, ibv_next_poll(cq));
		ibv_end_poll(cq);
		OK(rig, write_one(&end, 1, true));
		OK(rig, write_one(&end, 2, true));
		CHECK_EQ(rig, write_one(&end, 99, true), ENOMEM);
	}
	rig_sync(rig);
	end_close(&end);
	OK(rig, ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

/* What the caps say that a QP holds, a CQ as large as they are holds. */
static void cq_as_large_as_its_queues(struct rig *rig)
{
	struct end_options opt = {
		.send_depth = DEPTH, .recv_depth = DEPTH, .cqe = 2 * DEPTH, .one_cq = true};
	struct end end;

	end_pair(&end, rig, &opt);
	CHECK(rig, end.scq->cqe == 4 * DEPTH - 1 && fill_receives(&end) == DEPTH);
	rig_sync(rig);
	CHECK_EQ(rig, fill_queue(&end, 1), DEPTH);
	end_settle(&end);
	rig_sync(rig);
	for (unsigned int i = 0; i < DEPTH; i++)
		wc_expect(&end, end.scq, i, IBV_WC_SUCCESS);
	wc_none(&end, end.scq);
	rig_sync(rig);
	end_close(&end);
}

const struct rig_test places_tests[] = {
	{"send_places", send_places},
	{"unsignaled_places", unsignaled_places},
	{"flushed_places", flushed_places},
	{"places_of_lists", places_of_lists},
	{"places_of_builders", places_of_builders},
	{"receive_places", receive_places},
	{"srq_places", srq_places},
	{"places_and_threads", places_and_threads},
	{"places_of_extended_polls", places_of_extended_polls},
	{"cq_as_large_as_its_queues", cq_as_large_as_its_queues},
	{NULL, NULL},
};
