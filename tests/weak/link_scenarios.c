/* SPDX-License-Identifier: BSD-2-Clause */
/* Links: a request that waits for a link which comes up meanwhile, the first copy over a link, and
 * how the ends of a connection learn that the other is ready. */
#include "scenarios.h"

#include "hca/local/link.c"
#include "hca/local/link_idle.c"
#include "hca/local/link_part.c"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/verbs/carrier.h"

enum { BELL };

static struct hca hca;
static struct qp *no_qps[LIMIT_QPS_PER_SLOT];
static struct pub pub, peer;
static struct link_memory memory;
static struct link ours;
static struct qp qp;
static bool woken;
static struct xrc_here no_xrc;

void scenario_link_init(struct link *link, struct hca *of)
{
	static struct link *fresh;

	if (!fresh)
		fresh = link_new(of, 0);
	*link = *fresh;
	if (of)
		of->xrc = &no_xrc;
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

static void begin(void)
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
	list_init(&hca.tagged);
	atomic_store(&pub.header.asleep, 1);
	ours.memory = &memory;
	ours.peer = &peer;
	list_init(&qp.tx_wait);
	qp.hca = &hca;
	qp.carrier = &carrier;
}

static void up_setup(void)
{
	begin();
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

/* ------------------------------------------------------------------ from one link to another */

static struct link other;

/* A UD QP waits for `ours`, gives its datagram up and has to wait for another link, while the
 * engine wakes those that wait for `ours`. */
static void elsewhere_setup(void)
{
	up_setup();
	scenario_link_init(&other, &hca);
	list_add_tail(&ours.waiters, &qp.tx_wait);
	qp.wait_link = &ours;
	atomic_store(&ours.has_waiters, true);
	model_memory(&qp.tx_wait, sizeof(qp.tx_wait));
	model_memory(&ours.waiters, sizeof(ours.waiters));
	model_memory(&other.waiters, sizeof(other.waiters));
}

static void wait_elsewhere(void)
{
	model_lock(&qp.lock);
	link_wait(&other, &qp);
	model_unlock(&qp.lock);
}

static void wake_ours(void)
{
	const struct proto_event event = {.side = 0};

	link_up(&hca, &ours, &event);
	engine_release(&hca);
}

static void is_elsewhere(void)
{
	if (qp.wait_link != &other || other.waiters.next != &qp.tx_wait ||
	    !list_empty(&ours.waiters))
		model_fail("the QP doesn't wait for the other link");
}

/* ------------------------------------------------------------------ the first copy, and KICKs */

enum { KICK_A = 1, KICK_B, PEER_SLOT = 3, RKEY = 5 << LIMIT_KEY_TAG_BITS | 1 };

static struct hca peer_hca;
static struct pub_regions our_regions, peer_regions;
static struct link theirs; /* the peer's half */
static struct pd domain;
static struct mr region;
static uint64_t bytes[4];

static struct pub_qp *our_entry(void)
{
	return &pub.qp[1];
}

static struct pub_qp *their_entry(void)
{
	return &peer.qp[1];
}

/* This process's link is about to come up; the peer's is up. This process's region is registered.
 */
static void peers_begin(void)
{
	memset(&theirs, 0, sizeof(theirs));
	memset(peer_regions.hazard, 0, sizeof(peer_regions.hazard));
	memset(&region, 0, sizeof(region));
	atomic_store(&memory.left[0], 0);
	atomic_store(&memory.left[1], 0);
	atomic_store(&memory.installed[0], 0);
	atomic_store(&memory.part[0], LINK_PART_TAKEN);
	atomic_store(&memory.part[1], LINK_PART_TAKEN);
	atomic_store(&our_entry()->state, IBV_QPS_INIT);
	atomic_store(&their_entry()->state, IBV_QPS_INIT);
	hca.regions = &our_regions;
	peer_hca.regions = &peer_regions;
	ours.slot = PEER_SLOT;
	atomic_store(&hca.link_by_slot[PEER_SLOT], &ours);
	theirs.memory = &memory;
	theirs.regions = &our_regions;
	theirs.side = 1;
	atomic_store(&theirs.can_vm, true);
	region.ibv.addr = bytes;
	region.ibv.length = sizeof(bytes);
	region.ibv.lkey = region.ibv.rkey = region.key = RKEY;
	region.ibv.pd = &domain.ibv;
	if (mr_publish(&hca, &region))
		model_fail("the region isn't published");
}

static void installed_setup(void)
{
	up_setup();
	peers_begin();
	model_word(&memory.installed[0], 4, "installed");
	model_word(&our_entry()->state, 8, "our state");
	model_word(&their_entry()->state, 8, "their state");
}

static void copy_setup(void)
{
	installed_setup();
	model_word(&our_regions.mr[RKEY >> LIMIT_KEY_TAG_BITS].rkey_access, 8, "rkey_access");
	model_word(&peer_regions.hazard[0].target, 8, "hazard");
	model_memory(bytes, sizeof(bytes));
}

static void revoke_and_use(void)
{
	if (mr_revoke(&hca, &region))
		model_fail("a region that nobody copies can't be ended");
	bytes[1] = 1;
}

static void come_up(void)
{
	const struct proto_event event = {.side = 0};

	ours.regions = &peer_regions;
	link_up(&hca, &ours, &event);
}

static void copy_if_direct(void)
{
	struct mr_view view;
	static uint64_t copy;

	if (!link_direct(&theirs))
		return;
	_Atomic uint64_t *hazard = hazard_set(&peer_hca, 0, RKEY);

	if (mr_read(&our_regions, RKEY, &view))
		copy += bytes[1];
	hazard_clear(hazard);
}

/* The link has ended, and this process deregisters: it looks at the peer's hazards unless the peer
 * has left, or never comes. */
static void leave_and_use(void)
{
	link_shut_out(&ours);
	link_tell_left(&ours);
	if (link_peer_left(&ours))
		atomic_store(&ours.state, LINK_DOWN); /* and is unmapped */
	revoke_and_use();
}

static void left_begin(bool peer_is_up)
{
	begin();
	peers_begin();
	ours.regions = &peer_regions;
	atomic_store(&ours.state, LINK_ENDING);
	ours.doorbell = theirs.doorbell = BELL;
	theirs.hear = -1;
	atomic_store(&theirs.direct, true);
	atomic_store(&memory.installed[0], 1);
	atomic_store(&memory.installed[1], peer_is_up);
	atomic_store(&memory.part[1], peer_is_up ? LINK_PART_TAKEN : LINK_PART_OPEN);
	model_word(&memory.installed[1], 4, "their installed");
	model_word(&memory.part[1], 4, "their part");
	model_word(&memory.left[0], 4, "left");
	model_word(&memory.left[1], 4, "their left");
	model_word(&our_regions.mr[RKEY >> LIMIT_KEY_TAG_BITS].rkey_access, 8, "rkey_access");
	model_word(&peer_regions.hazard[0].target, 8, "hazard");
	model_memory(bytes, sizeof(bytes));
}

static void left_setup(void)
{
	left_begin(true);
}

/* The peer hears of the end later. */
static void copy_and_leave(void)
{
	copy_if_direct();
	link_tell_left(&theirs);
}

/* The link comes up at the peer only now. */
static void late_setup(void)
{
	left_begin(false);
	scenario_link_init(&theirs, &peer_hca);
	theirs.memory = &memory;
	theirs.regions = &our_regions;
	theirs.peer = &pub;
	peer_hca.qps = no_qps;
	peer_hca.kicked = true;
	list_init(&peer_hca.links);
}

static void come_up_late_and_copy(void)
{
	const struct proto_event event = {.side = 1};

	if (!link_take_part(&memory, 1))
		return;
	link_up(&peer_hca, &theirs, &event);
	atomic_store_explicit(&theirs.can_vm, true, memory_order_relaxed);
	copy_if_direct();
}

/* This side has sent a request by the link and leaves it; the peer comes to it late. The request
 * is taken by the peer or sent again, and never both. */
static bool taken, again;

static void shut_setup(void)
{
	left_begin(false);
	taken = again = false;
}

static void leave_and_send_again(void)
{
	again = link_shut_out(&ours);
	link_tell_left(&ours);
}

static void come_and_take(void)
{
	taken = link_take_part(&memory, 1);
}

static void is_executed_once(void)
{
	if (taken == again)
		model_fail(taken ? "a request is executed twice" : "a request is lost");
}

/* As requester.c's kick(): only a peer whose QP may be waiting is woken. */
static void kick_if_ready(const struct pub_qp *entry, unsigned int bell)
{
	if (pub_qp_state(pub_qp_read_state(entry)) >= IBV_QPS_RTR)
		model_event_set(bell);
}

static void come_up_and_kick(void)
{
	come_up();
	kick_if_ready(their_entry(), KICK_B);
}

static void wait_for_direct(void)
{
	pub_qp_write_state(their_entry(), IBV_QPS_RTR);
	while (!link_direct(&theirs))
		model_event_wait(KICK_B);
}

/* Both ends of a connection become ready to receive. */
static void become_ready(struct pub_qp *mine, const struct pub_qp *other, unsigned int my_bell,
			 unsigned int other_bell)
{
	atomic_store_explicit(&mine->peer, 1, memory_order_relaxed);
	pub_qp_write_state(mine, IBV_QPS_RTR);
	kick_if_ready(other, other_bell);
	while (pub_qp_state(pub_qp_read_state(other)) < IBV_QPS_RTR)
		model_event_wait(my_bell);
	if (atomic_load_explicit(&other->peer, memory_order_relaxed) != 1)
		model_fail("half of a QP's entry was read");
}

static void ready_a(void)
{
	become_ready(our_entry(), their_entry(), KICK_A, KICK_B);
}

static void ready_b(void)
{
	become_ready(their_entry(), our_entry(), KICK_B, KICK_A);
}

static void ready_setup(void)
{
	installed_setup();
	atomic_store(&our_entry()->peer, 0);
	atomic_store(&their_entry()->peer, 0);
	model_word(&our_entry()->peer, 8, "our peer");
	model_word(&their_entry()->peer, 8, "their peer");
}

/* ------------------------------------------------------------------ the next link */

/* The last link is ending, and its memory is still mapped, while a thread needs the next one. */
static void ending_setup(void)
{
	begin();
	hca.kicked = true; /* no thread waits for the doorbell */
	ours.memory = NULL;
	ours.peer = NULL;
	atomic_store(&ours.state, LINK_ENDING);
	work_leave(&hca.engine_work, ENGINE_DEATHS);
	atomic_store(&hca.link_by_slot[0], &ours);
	model_word(&ours.state, 4, "state");
}

static void need_next(void)
{
	link_get(&hca, 0);
}

static void reap(void)
{
	link_reap(&hca);
}

/* The need isn't lost, and ends when the daemon says that no process is there. */
static void is_wished_then_refused(void)
{
	if (!link_introducing(&ours))
		model_fail("the next link isn't asked for");
	link_refused(&ours);
	if (link_pending(&ours))
		model_fail("a link that was refused is still waited for");
}

/* There is no link yet: this thread's request finds that, while another one's makes the link, which
 * comes up and ends by consent with a QP that is connected. */
static void between_setup(void)
{
	begin();
	hca.kicked = true;
	atomic_store(&hca.link_by_slot[0], &ours);
	atomic_store(&ours.state, LINK_DOWN);
	atomic_store(&ours.idle.users, 1);
	model_word(&ours.state, 4, "state");
}

static void come_up_and_end(void)
{
	const struct proto_event event = {.side = 0};

	link_get(&hca, 0);
	link_up(&hca, &ours, &event);
	link_end_living(&ours);
}

static void is_needed_again(void)
{
	if (!link_pending(&ours))
		model_fail("a connected QP doesn't see that the next link comes");
}

/* A QP connects by a link that is up, while the link ends by consent. */
static void connect_setup(void)
{
	begin();
	hca.kicked = true;
	atomic_store(&hca.link_by_slot[0], &ours);
	atomic_store(&ours.state, LINK_UP);
	model_word(&ours.state, 4, "state");
	model_word(&ours.idle.users, 4, "users");
}

static void connect_by_link(void)
{
	link_take(&hca, 0);
}

static void end_by_consent(void)
{
	link_end_living(&ours);
}

/* This process hands its links to the next daemon, while the peer breaks the link's rules. */
static void name_setup(void)
{
	connect_setup();
	ours.memory = NULL;
	ours.peer = NULL;
	ours.id = 7;
	ours.side = 1;
	model_memory(&ours.id, sizeof(ours.id));
}

static void name_link(void)
{
	struct link_name name;

	if (link_name_up(&hca, 0, &name) && (name.id != 7 || name.side != 1))
		model_fail("a link without a number is handed over");
}

static void break_and_reap(void)
{
	link_break(&ours, "a test");
	link_reap(&hca);
}

const struct model_scenario link_scenarios[] = {
	{"link.up", up_setup, {wait_for_link, link_comes_up}, NULL},
	{"link.elsewhere", elsewhere_setup, {wait_elsewhere, wake_ours}, is_elsewhere},
	{"link.kick", installed_setup, {wait_for_direct, come_up_and_kick}, NULL},
	{"link.ready", ready_setup, {ready_a, ready_b}, NULL},
	{"link.copy", copy_setup, {revoke_and_use, come_up, copy_if_direct}, NULL},
	{"link.left", left_setup, {leave_and_use, copy_and_leave}, NULL},
	{"link.left_early", late_setup, {leave_and_use, come_up_late_and_copy}, NULL},
	{"link.shut", shut_setup, {leave_and_send_again, come_and_take}, is_executed_once},
	{"link.next", ending_setup, {need_next, reap}, is_wished_then_refused},
	{"link.next_kept", between_setup, {need_next, come_up_and_end}, is_needed_again},
	{"link.next_taken", connect_setup, {connect_by_link, end_by_consent}, is_needed_again},
	{"link.name", name_setup, {name_link, break_and_reap}, NULL},
	{0},
};
