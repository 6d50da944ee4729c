/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Doorbells, waiting for room, the lease and armed CQs: a process must not sleep while a record or
 * free room is unseen. One process ("ours") has its engine; a thread plays the peer.
 */
#include "scenarios.h"

#include "hca/engine/engine.c"
#include "hca/engine/lease.c"
#include "hca/engine/pass.c"
#include "hca/verbs/carrier.h"

enum { OURS, THEIRS }; /* doorbells, and the sides of the link */

static struct hca hca;
static struct qp *no_qps[LIMIT_QPS_PER_SLOT];
static struct pub our_pub_memory, their_pub;
static struct link_memory memory;
static struct link ours, back; /* ours to the peer; the peer's to us */
static struct qp big, small;
static struct roce roce;
static unsigned int packets; /* come from other hosts */
/* Called for a QP that may try again. */
static void wake(struct qp *qp);
static const struct carrier woken = {.resume = wake};
static unsigned int taken; /* by the peer */
static bool done;

/* ------------------------------------------------------------------ the two processes */

static void begin(void)
{
	memset(&hca, 0, sizeof(hca));
	scenario_link_init(&ours, &hca);
	scenario_link_init(&back, NULL);
	memset(memory.ctl, 0, sizeof(memory.ctl));
	memset(memory.ring[THEIRS], 0, 4 * RING_SLOT); /* the part that an execution writes */
	memset(&big, 0, sizeof(big));
	memset(&small, 0, sizeof(small));
	our_pub_memory.header.asleep = their_pub.header.asleep = 1;
	our_pub_memory.header.armed_cqs = our_pub_memory.header.armed[0] = 0;
	hca.qps = no_qps;
	hca.pub = &our_pub_memory;
	hca.doorbell = OURS;
	hca.watchdog = -1;
	list_init(&hca.links);
	list_init(&hca.acks);
	list_init(&hca.tagged);
	ours.memory = back.memory = &memory;
	ours.peer = &their_pub;
	ours.doorbell = THEIRS;
	back.peer = &our_pub_memory;
	back.doorbell = OURS;
	ring_tx_init(&ours.tx, memory.ring[OURS], &memory.ctl[OURS]);
	ring_rx_init(&ours.rx, memory.ring[THEIRS], &memory.ctl[THEIRS]);
	ring_tx_init(&back.tx, memory.ring[THEIRS], &memory.ctl[THEIRS]);
	ring_rx_init(&back.rx, memory.ring[OURS], &memory.ctl[OURS]);
	atomic_store(&ours.state, LINK_UP);
	atomic_store(&back.state, LINK_UP);
	list_add_tail(&hca.links, &ours.node);
	list_init(&big.tx_wait);
	list_init(&small.tx_wait);
	big.hca = small.hca = &hca;
	big.carrier = small.carrier = &woken;
	taken = 0;
	done = false;
}

static void name_words(void)
{
	model_word(&our_pub_memory.header.asleep, 4, "asleep");
	model_memory(&memory, sizeof(memory));
}

static bool send(struct link *by, uint32_t slots)
{
	uint32_t bytes = slots * RING_SLOT - RING_HEADER;
	struct ring_header *h = link_begin(by, bytes);

	if (!h)
		return false;
	h->kind = REC_KINDS; /* an unknown kind, which the engine drops */
	link_send(by, h, bytes);
	link_notify_qp(by, 0);
	return true;
}

/* ------------------------------------------------------------------ doorbells */

static struct ring_header *incoming(uint32_t pos)
{
	return (struct ring_header *)ring_at(memory.ring[THEIRS], pos);
}

static void doorbell_setup(void)
{
	begin();
	name_words();
	model_word(&incoming(RING_START)->seq, 4, "seq[0]");
	model_word(&incoming(RING_START + 1)->seq, 4, "seq[1]");
}

static void peer_sends_two(void)
{
	send(&back, 1);
	send(&back, 1);
}

/* The engine thread between two sleeps. */
static void engine_takes_two(void)
{
	for (;;) {
		engine_release(&hca);
		if (ours.rx.pos == RING_START + 2)
			return;
		model_event_wait(OURS);
		kick_heard(&hca);
	}
}

/* The peer is this process: either kick wakes the engine. */
static void self_setup(void)
{
	doorbell_setup();
	back.hca = &hca;
	back.self = true;
	model_word(&hca.kicked, 1, "kicked");
}

/* A lease is taken and released, and records that arrived meanwhile are found. */
static void lease_then_engine(void)
{
	struct poller p = {0};

	take_lease(&hca, &p);
	engine_takes_two();
}

/* Threads of this process that leave work for the engine thread, without other barriers. */
static _Atomic uint32_t left[2];

static void kick_setup(void)
{
	begin();
	memset(left, 0, sizeof(left));
	model_word(&left[0], 4, "left[0]");
	model_word(&left[1], 4, "left[1]");
	model_word(&hca.kicked, 1, "kicked");
}

static void leaves_first(void)
{
	atomic_store_explicit(&left[0], 1, memory_order_relaxed);
	engine_kick(&hca);
}

static void leaves_second(void)
{
	atomic_store_explicit(&left[1], 1, memory_order_relaxed);
	engine_kick(&hca);
}

static void finds_both(void)
{
	while (!atomic_load_explicit(&left[0], memory_order_relaxed) ||
	       !atomic_load_explicit(&left[1], memory_order_relaxed)) {
		model_event_wait(OURS);
		kick_heard(&hca);
	}
}

/* ------------------------------------------------------------------ armed CQs */

/* A record to a QP whose CQ, of group 0, is armed stands for its completion: once the record is
 * taken, the event is raised. The poller of another CQ has the lease, and stops polling at once; no
 * watchdog runs. */
static void armed_begin(uint32_t armed)
{
	struct pub_header *header = &our_pub_memory.header;

	doorbell_setup();
	atomic_store(&header->armed_cqs, armed);
	atomic_store(&header->armed[0], armed);
	model_word(&header->armed_cqs, 4, "armed_cqs");
	model_word(&header->armed[0], 4, "armed[0]");
}

static void armed_setup(void)
{
	armed_begin(0);
}

/* Another CQ of the group is armed at first. */
static void armed_two_setup(void)
{
	armed_begin(1);
}

static void peer_sends_one(void)
{
	send(&back, 1);
}

static bool is_taken(void)
{
	return ours.rx.pos != RING_START;
}

/* As ibv_req_notify_cq() does it. */
static void program_arms(void)
{
	pub_count_armed(&our_pub_memory.header, 0, PUB_ARMED_ANY, 1);
	engine_release(&hca);
	if (is_taken())
		model_event_set(OURS); /* only ends engine_serves_until() */
}

static void lease_is_taken(void)
{
	struct poller p = {0};

	take_lease(&hca, &p);
}

static void program_arms_then_polls(void)
{
	program_arms();
	lease_is_taken();
}

static void engine_serves_until(bool (*over)(void))
{
	uint32_t seen = 0;

	while (!over()) {
		model_event_wait(OURS);
		kick_heard(&hca);
		engine_serve(&hca, &seen);
	}
}

static void engine_serves_one(void)
{
	engine_serves_until(is_taken);
}

static void other_event_is_raised(void)
{
	pub_count_armed(&our_pub_memory.header, 0, PUB_ARMED_ANY, -1);
}

/* ------------------------------------------------------------------ packets */

/* The poller has the lease at first, has stopped, and no watchdog runs. The socket is in the epoll,
 * or hot: the engine thread has left it to the poller. */
static void roce_begin(bool hot)
{
	begin();
	scenario_roce_init(&roce, &hca, OURS, hot);
	hca.roce = &roce;
	packets = 1;
	our_pub_memory.header.asleep = 0;
	model_word(&our_pub_memory.header.asleep, 4, "asleep");
	model_word(&roce.socket, 4, "socket");
}

static void packet_setup(void)
{
	roce_begin(false);
	model_word(&our_pub_memory.header.armed_cqs, 4, "armed_cqs");
}

static void packet_hot_setup(void)
{
	roce_begin(true);
	model_word(&our_pub_memory.header.armed_cqs, 4, "armed_cqs");
}

/* No thread has polled yet, and the engine thread makes its first round. */
static void first_setup(void)
{
	packet_setup();
	our_pub_memory.header.asleep = 1;
	scenario_roce_begin(&roce);
}

/* A CQ is armed from the beginning. */
static void packets_setup(void)
{
	roce_begin(false);
	packets = 2;
	our_pub_memory.header.armed_cqs = our_pub_memory.header.armed[0] = 1;
}

static void timers_setup(void)
{
	roce_begin(true);
	roce.deadline = UINT32_MAX;
	model_word(&roce.scheduled, 8, "scheduled");
}

static void packets_come(void)
{
	for (unsigned int i = 0; i < packets; i++)
		scenario_packet_comes();
}

static bool packets_are_taken(void)
{
	return scenario_packets_taken() == packets;
}

/* A packet stands for the completion of a CQ that the program arms. */
static void program_arms_for_packets(void)
{
	pub_count_armed(&our_pub_memory.header, 0, PUB_ARMED_ANY, 1);
	engine_release(&hca);
	lease_is_taken();
	if (packets_are_taken())
		model_event_set(OURS); /* only ends engine_serves_packets() */
}

static void engine_serves_packets(void)
{
	uint32_t seen = 0;

	while (!packets_are_taken()) {
		model_event_wait(OURS);
		kick_heard(&hca);
		if (scenario_epoll_reports())
			roce_woken(&roce);
		engine_serve(&hca, &seen);
	}
}

/* The first round, beside a program that arms a CQ at once. */
static void engine_begins(void)
{
	uint32_t seen = 0;

	engine_serve(&hca, &seen);
	engine_serves_packets();
}

/* The lease ends, and the next one begins: its holder doesn't look at a cold socket's timers. */
static void lease_after_lease(void)
{
	engine_release(&hca);
	lease_is_taken();
}

static void engine_finds_the_deadline(void)
{
	while (roce_scan(&roce, 0) == TP_NEVER) {
		model_event_wait(OURS);
		kick_heard(&hca);
	}
}

/* ------------------------------------------------------------------ room */

/* Seven records and some slots: 21 slots are free, one of which always stays free. */
static void room_fill(void)
{
	begin();
	for (unsigned int i = 0; i < 8; i++) {
		uint32_t bytes = (i < 7 ? 128 : 107) * RING_SLOT - RING_HEADER;
		struct ring_header *h = ring_reserve(&ours.tx, bytes);

		h->kind = REC_KINDS;
		ring_commit(&ours.tx, h, bytes);
	}
	atomic_store(&their_pub.header.asleep, 0);
	model_word(&memory.ctl[OURS].consumed, 4, "consumed");
	model_word(&memory.ctl[OURS].want_space, 4, "want_space");
}

static void room_begin(uint32_t asleep)
{
	room_fill();
	atomic_store(&our_pub_memory.header.asleep, asleep);
	model_word(&our_pub_memory.header.asleep, 4, "asleep");
	model_word(&ours.has_waiters, 1, "has_waiters");
}

static void room_setup(void)
{
	room_begin(1);
}

/* Takes as many records as the longest one needs, as pass.c's link_drain() does. */
static void peer_takes(void)
{
	struct ring_header h;
	uint32_t room;
	int error;

	while (taken < 2) {
		if (!ring_peek(&back.rx, &h, &room, &error))
			model_fail("what was there isn't seen");
		ring_pop(&back.rx, &h);
		taken++;
		if (ring_publish_lazily(&back.rx))
			link_notify(&back);
	}
}

static void big_tries(void)
{
	if (send(&ours, 128))
		done = true;
	else
		link_wait(&ours, &big);
}

static void big_sends(void)
{
	model_lock(&big.lock);
	big_tries();
	bool sent = done;

	model_unlock(&big.lock);
	if (sent)
		model_event_set(OURS); /* only ends engine_until_sent() */
}

static void small_sends(void)
{
	send(&ours, 1);
}

static void wake(struct qp *qp)
{
	if (qp == &big)
		big_tries();
}

static void engine_until_sent(void)
{
	for (;;) {
		engine_release(&hca);
		if (done)
			return;
		model_event_wait(OURS);
		kick_heard(&hca);
	}
}

/* A QP that waits for room, and whose completion an armed CQ is to report. */
static void room_armed_setup(void)
{
	room_begin(0);
	model_word(&our_pub_memory.header.armed_cqs, 4, "armed_cqs");
}

static bool is_sent(void)
{
	return done;
}

static void program_arms_for_room(void)
{
	pub_count_armed(&our_pub_memory.header, 0, PUB_ARMED_ANY, 1);
	engine_release(&hca);
	if (is_sent())
		model_event_set(OURS);
	lease_is_taken();
}

static void engine_serves_sent(void)
{
	engine_serves_until(is_sent);
}

const struct model_scenario engine_scenarios[] = {
	{"doorbell", doorbell_setup, {peer_sends_two, engine_takes_two}, NULL},
	{"doorbell.self", self_setup, {peer_sends_two, engine_takes_two}, NULL},
	{"kick.two", kick_setup, {leaves_first, leaves_second, finds_both}, NULL},
	{"lease", doorbell_setup, {peer_sends_two, lease_then_engine}, NULL},
	{"armed.event",
	 armed_setup,
	 {peer_sends_one, program_arms_then_polls, engine_serves_one},
	 NULL},
	{"armed.lease",
	 armed_setup,
	 {peer_sends_one, program_arms, lease_is_taken, engine_serves_one},
	 NULL},
	{"armed.two",
	 armed_two_setup,
	 {peer_sends_one, program_arms_then_polls, other_event_is_raised, engine_serves_one},
	 NULL},
	{"roce.packet",
	 packet_setup,
	 {packets_come, program_arms_for_packets, engine_serves_packets},
	 NULL},
	{"roce.hot",
	 packet_hot_setup,
	 {packets_come, program_arms_for_packets, engine_serves_packets},
	 NULL},
	{"roce.first", first_setup, {packets_come, program_arms_for_packets, engine_begins}, NULL},
	{"roce.packets", packets_setup, {packets_come, engine_serves_packets}, NULL},
	{"roce.timers", timers_setup, {lease_after_lease, engine_finds_the_deadline}, NULL},
	{"room.one", room_setup, {big_sends, peer_takes, engine_until_sent}, NULL},
	{"room.two", room_fill, {big_sends, peer_takes, engine_until_sent, small_sends}, NULL},
	{"room.armed",
	 room_armed_setup,
	 {big_sends, peer_takes, program_arms_for_room, engine_serves_sent},
	 NULL},
	{0},
};
