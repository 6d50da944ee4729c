/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows: the owner (thread 0) ends a window's binding, and uses the memory for something
 * else or binds the window anew, with the same key and rights; a peer (thread 1) reaches for it.
 */
#include "scenarios.h"

#include "hca/verbs/window.c"

enum { OWNER_SLOT = 2, PEER_SLOT = 3, PD = 7 };
enum { REGION_KEY = 5 << LIMIT_KEY_TAG_BITS | 1, FIRST_KEY = 6 << LIMIT_KEY_TAG_BITS | 1 };
enum { KEY = FIRST_KEY + 1, QPN_A = OWNER_SLOT << LIMIT_QP_BITS | 9, QPN_B = QPN_A + 1 };

static struct hca owner, peer;
static struct pub_regions owner_regions, peer_regions;
static struct pub owner_pub;
static struct window_place places[LIMIT_MRS_PER_SLOT];
static struct link link_to_peer;
static struct process_life peers_life;
static struct local_conn conn;
static struct roce_qp *const some_roce = (struct roce_qp *)&conn; /* it is compared with NULL */
static struct qp a, b;
static struct mw window;
static uint64_t bytes[8];

static struct send_wqe bind_of(unsigned int first)
{
	return (struct send_wqe){.opcode = IBV_WR_BIND_MW,
				 .imm = FIRST_KEY,
				 .rkey = KEY,
				 .remote_addr = (uintptr_t)&bytes[first],
				 .bind = {.length = 4 * sizeof(bytes[0]),
					  .region = REGION_KEY,
					  .access = IBV_ACCESS_REMOTE_READ}};
}

static void qp_set(struct qp *qp, uint32_t qpn)
{
	memset(qp, 0, sizeof(*qp));
	qp->hca = &owner;
	qp->index = qpn & (LIMIT_QPS_PER_SLOT - 1);
	qp->pd_id = PD;
	list_init(&qp->windows);
	list_init(&qp->window_wait);
}

static void region_set(void)
{
	struct pub_mr *e = &owner_regions.mr[REGION_KEY >> LIMIT_KEY_TAG_BITS];

	e->start = (uintptr_t)bytes;
	e->length = sizeof(bytes);
	e->pd = PD;
	e->rkey_access = (uint64_t)(IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE) << 32 | REGION_KEY;
}

static void link_set(void)
{
	link_to_peer.slot = PEER_SLOT;
	link_to_peer.hca = &owner;
	link_to_peer.regions = &peer_regions;
	link_to_peer.process.life = &peers_life;
	atomic_store(&link_to_peer.state, LINK_UP);
	atomic_store(&owner.link_by_slot[PEER_SLOT], &link_to_peer);
	conn.link = &link_to_peer;
}

/* The window isn't bound. */
static void begin(enum ibv_mw_type type)
{
	memset(peer_regions.hazard, 0, sizeof(peer_regions.hazard));
	memset(&owner_regions.mr[FIRST_KEY >> LIMIT_KEY_TAG_BITS], 0, sizeof(owner_regions.mr[0]));
	memset(&window, 0, sizeof(window));
	memset(bytes, 0, sizeof(bytes));
	owner.slot = OWNER_SLOT;
	owner.regions = &owner_regions;
	owner.pub = &owner_pub;
	owner.windows = places;
	owner.bindings = 0;
	list_init(&owner.windows_ending);
	hazard_fences = true; /* the model has no membarrier() */
	peer.slot = PEER_SLOT;
	peer.regions = &peer_regions;
	link_set();
	region_set();
	qp_set(&a, QPN_A);
	qp_set(&b, QPN_B);
	window.hca = &owner;
	window.first_key = FIRST_KEY;
	window.pd_id = PD;
	window.type = type;
	window.state = type == IBV_MW_TYPE_1 ? WINDOW_INVALID : WINDOW_FREE;
	list_init(&window.by_qp);
	list_init(&window.ending);
	list_init(&window.waiters);
	places[FIRST_KEY >> LIMIT_KEY_TAG_BITS].mw = &window;
	places[REGION_KEY >> LIMIT_KEY_TAG_BITS].bound = 0;
}

static void execute(struct qp *qp, const struct send_wqe *wqe, enum ibv_wc_status wanted)
{
	if (window_execute(qp, wqe) != wanted)
		model_fail("the request isn't executed");
}

static void name_words(void)
{
	struct pub_mr *e = &owner_regions.mr[FIRST_KEY >> LIMIT_KEY_TAG_BITS];

	model_word(&e->rkey_access, 8, "rkey_access");
	model_word(&e->start, 8, "start");
	model_word(&e->length, 8, "length");
	model_word(&e->window_qpn, 4, "window_qpn");
	model_word(&peer_regions.hazard[0].target, 8, "hazard");
	model_memory(bytes, sizeof(bytes));
}

/* The window is bound to the first half, by A. */
static void bound_setup(enum ibv_mw_type type)
{
	struct send_wqe bind = bind_of(0);

	begin(type);
	execute(&a, &bind, IBV_WC_SUCCESS);
	name_words();
}

static void bound_to_far_setup(void)
{
	bound_setup(IBV_MW_TYPE_2);
	a.roce = some_roce; /* its peer, on another host, copies nothing */
}

static void bound_to_near_setup(void)
{
	bound_setup(IBV_MW_TYPE_2);
	a.local = &conn;
}

static void type_1_setup(void)
{
	bound_setup(IBV_MW_TYPE_1);
	a.local = &conn;
}

/* ------------------------------------------------------------------ the owner */

static const struct send_wqe invalidation = {.opcode = IBV_WR_LOCAL_INV, .rkey = KEY};

static void invalidate_and_bind(void)
{
	struct send_wqe bind = bind_of(4);

	execute(&a, &invalidation, IBV_WC_SUCCESS);
	execute(&b, &bind, IBV_WC_SUCCESS);
}

/* LATER is allowed: then the memory isn't free yet. */
static void invalidate_and_use(void)
{
	if (window_execute(&a, &invalidation) == IBV_WC_SUCCESS)
		bytes[1] = 1;
}

static void invalidated_by_peer_and_use(void)
{
	if (window_invalidate(&a, KEY))
		bytes[1] = 1;
}

/* A type 1 window is unbound; the control thread looks once. */
static void unbind_and_use(void)
{
	struct send_wqe unbind = {.opcode = IBV_WR_BIND_MW, .imm = FIRST_KEY, .rkey = KEY + 1};

	execute(&a, &unbind, WQE_LATER);
	list_del(&a.window_wait); /* the model has no engine that would run it again */
	windows_serve(&owner);
	if (window.state == WINDOW_INVALID)
		bytes[1] = 1;
}

/* ------------------------------------------------------------------ the peer */

static bool reach(uint32_t qpn, struct mr_view *view)
{
	return mr_read(&owner_regions, KEY, view) &&
	       mr_window_region(&owner_regions, KEY, view, PD, qpn);
}

/* Through B, to which the window wasn't bound at first. */
static void reach_through_b(void)
{
	_Atomic uint64_t *hazard = hazard_set(&peer, OWNER_SLOT, KEY);
	struct mr_view view;

	if (reach(QPN_B, &view) && view.start != (uintptr_t)&bytes[4])
		model_fail("the peer of B is granted what the window had for A's");
	hazard_clear(hazard);
}

static void copy_through_a(void)
{
	_Atomic uint64_t *hazard = hazard_set(&peer, OWNER_SLOT, KEY);
	struct mr_view view;

	if (reach(QPN_A, &view)) {
		if (view.start != (uintptr_t)bytes)
			model_fail("the window isn't where it was bound");
		bytes[1]++;
	}
	hazard_clear(hazard);
}

const struct model_scenario window_scenarios[] = {
	{"mw.rebind", bound_to_far_setup, {invalidate_and_bind, reach_through_b}, NULL},
	{"mw.invalidate", bound_to_near_setup, {invalidate_and_use, copy_through_a}, NULL},
	{"mw.by_peer", bound_to_near_setup, {invalidated_by_peer_and_use, copy_through_a}, NULL},
	{"mw.type_1", type_1_setup, {unbind_and_use, copy_through_a}, NULL},
	{0},
};
