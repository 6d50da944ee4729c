/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Regions and hazards: a peer that copies, and an owner that registers, deregisters and then uses
 * the memory for something else. Thread 0 is the owner's, thread 1 the initiator's.
 */
#include "scenarios.h"

#include "hca/mem/hazard.c"
#include "hca/mem/mr.c"

enum { OWNER_SLOT = 2, PEER_SLOT = 3, INDEX = 5, RKEY = INDEX << LIMIT_KEY_TAG_BITS | 1 };

static struct hca owner, initiator;
static struct pub_regions owner_regions, initiator_regions;
static struct pub owner_pub;
static struct link link_to_peer, link_to_owner;
static struct pd domain;
static struct mr region;
static uint64_t bytes[4]; /* the region */

static void begin(void)
{
	memset(&owner_regions.mr[INDEX], 0, sizeof(owner_regions.mr[0]));
	memset(initiator_regions.hazard, 0, sizeof(initiator_regions.hazard));
	memset(&region, 0, sizeof(region));
	memset(bytes, 0, sizeof(bytes));
	hazard_fences = false;
	atomic_store(&owner.own_hazards_used, 0);
	owner.slot = OWNER_SLOT;
	owner.regions = &owner_regions;
	owner.pub = &owner_pub;
	initiator.slot = PEER_SLOT;
	initiator.regions = &initiator_regions;
	link_to_peer.slot = PEER_SLOT;
	link_to_peer.regions = &initiator_regions;
	link_to_owner.slot = OWNER_SLOT;
	link_to_owner.regions = &owner_regions;
	link_to_peer.hca = &owner;
	atomic_store(&link_to_peer.state, LINK_UP);
	atomic_store(&owner.link_by_slot[PEER_SLOT], &link_to_peer);
	domain.id = 7;
	region.ibv.addr = bytes;
	region.ibv.length = sizeof(bytes);
	region.ibv.lkey = region.ibv.rkey = region.key = RKEY;
	region.ibv.pd = &domain.ibv;
	region.base = region.iova = (uintptr_t)bytes;
	region.access = 4;
}

static void name_words(void)
{
	struct pub_mr *e = &owner_regions.mr[INDEX];

	model_word(&e->rkey_access, 8, "rkey_access");
	model_word(&e->start, 8, "start");
	model_word(&e->length, 8, "length");
	model_word(&initiator_regions.hazard[0].target, 8, "hazard");
	model_memory(bytes, sizeof(bytes));
}

static void registered_setup(void)
{
	begin();
	if (mr_publish(&owner, &region))
		model_fail("the region isn't published");
	name_words();
}

static void unregistered_setup(void)
{
	begin();
	name_words();
}

/* An initiator's copy, as onesided.c makes it. */
static void copy(uint32_t rkey)
{
	struct mr_view view;
	_Atomic uint64_t *hazard = hazard_set(&initiator, OWNER_SLOT, rkey);

	if (mr_read(link_to_owner.regions, rkey, &view)) {
		if (view.start != (uintptr_t)bytes || view.length != sizeof(bytes))
			model_fail("half of a region's entry was read");
		bytes[1]++;
	}
	hazard_clear(hazard);
}

static void copy_once(void)
{
	copy(RKEY);
}

static void revoke_and_use(void)
{
	if (mr_revoke(&owner, &region))
		model_fail("a region that nobody copies can't be ended");
	bytes[1] = 1;
}

static void publish(void)
{
	bytes[1] = 1;
	if (mr_publish(&owner, &region))
		model_fail("the region isn't published");
}

static void publish_and_revoke(void)
{
	publish();
	if (mr_revoke(&owner, &region))
		model_fail("a region that nobody copies can't be ended");
	bytes[1] = 2;
}

/* ------------------------------------------------------------------ a process's own copies */

static struct own_hazards own;

/* As where the kernel refuses membarrier(), because the model has fences only. */
static void own_setup(void)
{
	registered_setup();
	memset(&own, 0, sizeof(own));
	hazard_fences = true;
	owner.own_hazards = &own;
	atomic_store(&owner.own_hazards_used, 1);
	model_word(&own.count, 4, "own.count");
}

/* As sq.c and execute.h make it. */
static void own_copy(void)
{
	struct hazard_scope scope = hazard_scope_begin(&own);
	struct mr_view view;

	hazard_push(&scope, RKEY);
	hazard_publish();
	if (mr_read(owner.regions, RKEY, &view))
		bytes[1]++;
	hazard_scope_end(&scope);
}

/* ------------------------------------------------------------------ messages that are fetched */

enum { QPN = OWNER_SLOT << LIMIT_QP_BITS | 9 };

static struct pub_qp *sender(void)
{
	return &owner_pub.qp[QPN & (LIMIT_QPS_PER_SLOT - 1)];
}

static void pull_setup(void)
{
	begin();
	atomic_store(&sender()->state, IBV_QPS_RTS);
	model_word(&sender()->state, 8, "state");
	name_words();
}

/* The sender's QP ends, and its program reuses the message's memory. */
static void end_and_use(void)
{
	pub_qp_write_state(sender(), IBV_QPS_ERR);
	hazard_wait_qp(&owner, PEER_SLOT, QPN);
	bytes[1] = 1;
}

/* As responder.c fetches a message. */
static void pull(void)
{
	_Atomic uint64_t *hazard = hazard_set(&initiator, OWNER_SLOT, hazard_of_qp(QPN));
	static uint64_t copy;

	if (pub_qp_state(pub_qp_read_state(sender())) == IBV_QPS_RTS)
		copy += bytes[1];
	hazard_clear(hazard);
}

const struct model_scenario mr_scenarios[] = {
	{"mr.publish", unregistered_setup, {publish, copy_once}, NULL},
	{"mr.revoke", registered_setup, {revoke_and_use, copy_once}, NULL},
	{"mr.own", own_setup, {revoke_and_use, own_copy}, NULL},
	{"qp.pull", pull_setup, {end_and_use, pull}, NULL},
	{"mr.both", unregistered_setup, {publish_and_revoke, copy_once}, NULL},
	{0},
};
