/* SPDX-License-Identifier: BSD-2-Clause */
/* Links: a request that waits for a link which comes up meanwhile, and the first copy over a link.
 * Thread 1 is the engine thread of the process whose link it is. */
#include "scenarios.h"

#include "hca/local/link.c"
#include "hca/verbs/carrier.h"

enum { BELL };

static struct hca hca;
static struct qp *no_qps[LIMIT_QPS_PER_SLOT];
static struct pub pub, peer;
static struct link_memory memory;
static struct link ours;
static struct qp qp;
static bool woken;

void scenario_link_init(struct link *link, struct hca *of)
{
	static struct link *fresh;

	if (!fresh)
		fresh = link_new(of, 0);
	*link = *fresh;
	link->hca = of;
	list_init(&link->backlog);
	list_init(&link->waiters);
	list_init(&link->node);
}

static void wake(struct qp *which)
{
	(void)which;
	woken = true;
}
static const struct carrier carrier = {.resume = wake};

static void up_setup(void)
{
	memset(&hca, 0, sizeof(hca));
	scenario_link_init(&ours, &hca);
	memset(memory.ctl, 0, sizeof(memory.ctl));
	memset(&qp, 0, sizeof(qp));
	woken = false;
	hca.pub = &pub;
	hca.qps = no_qps;
	hca.doorbell = BELL;
	list_init(&hca.links);
	list_init(&hca.acks);
	atomic_store(&pub.header.asleep, 1);
	ours.memory = &memory;
	ours.peer = &peer;
	list_init(&qp.tx_wait);
	qp.hca = &hca;
	qp.carrier = &carrier;
	model_word(&pub.header.asleep, 4, "asleep");
	model_word(&ours.state, 4, "state");
	model_word(&ours.has_waiters, 1, "has_waiters");
	model_memory(&ours.tx, sizeof(ours.tx));
}

static void wait_for_link(void)
{
	model_lock(&qp.lock);
	if (link_is(&ours, LINK_UP))
		woken = true;
	else
		link_wait(&ours, &qp);
	bool up = woken;

	model_unlock(&qp.lock);
	if (up)
		model_event_set(BELL); /* only ends link_comes_up() */
}

static void link_comes_up(void)
{
	const struct proto_event event = {.side = 0};

	link_up(&hca, &ours, &event);
	for (;;) {
		engine_release(&hca);
		if (woken)
			return;
		model_event_wait(BELL);
	}
}

const struct model_scenario link_scenarios[] = {
	{"link.up", up_setup, {wait_for_link, link_comes_up}, NULL},
	{0},
};
