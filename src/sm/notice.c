/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notices: traps that ports send, which are repressed and may start a sweep; what this manager
 * itself has to tell (ports that came and went, groups); and reports of both to the programs that
 * subscribed to them, which are repeated until they are acknowledged.
 */
#include "sm/sa.h"

#define NOTICE_BYTES 80u /* with the issuer's GID */
#define REPORT_MS 500u
#define REPORT_COPIES 3u

enum { NOTICE_LINK_STATE = 128, NOTICE_LOCAL_CHANGE = 144, NOTICE_BAD_M_KEY = 256 };
enum { TRAP_IN_SERVICE = 64, TRAP_OUT_OF_SERVICE = 65 };
enum { AT_TYPE = 0, AT_PRODUCER = 1, AT_TRAP = 4, AT_ISSUER = 6, AT_DETAILS = 10, AT_GID = 64 };

/* InformInfo. */
enum {
	INFORM_GID = 0,
	INFORM_LIDS = 16,
	INFORM_IS_GENERIC = 22,
	INFORM_SUBSCRIBES = 23,
	INFORM_TYPE = 24,
	INFORM_TRAP = 26,
	INFORM_QPN = 28,
	INFORM_PRODUCER = 33,
	INFORM_BYTES = 36,
};
#define ALL_PRODUCERS 0xffffffu
#define ANY 0xffff

/* Traps ---------------------------------------------------------------------------------------- */

static void trap_answer(struct sm *sm, const struct sm_peer *from, const uint8_t *mad)
{
	uint8_t answer[SM_MAD_BYTES];

	memcpy(answer, mad, sizeof answer);
	answer[3] = METHOD_TRAP_REPRESS;
	octets_put16(answer + OFFSET_STATUS, 0);
	octets_put64(answer + SMP_M_KEY, sm->options.m_key);
	sm->functions->send(sm->context, from, answer, sizeof answer, 0);
}

/* A name that changed is read again. */
static void local_change_note(struct sm *sm, const uint8_t *notice)
{
	uint32_t row = sm->subnet ? subnet_by_lid(sm->subnet, octets_get16(notice + 12)) : SM_NONE;

	if (row != SM_NONE && (notice[15] & 1) && (notice[21] & 1))
		sm->subnet->nodes[row].has_description = false;
}

void notice_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad)
{
	uint8_t notice[NOTICE_BYTES] = {0};
	uint16_t trap = octets_get16(mad + SMP_DATA + AT_TRAP);
	uint32_t row;

	sm->counts.traps++;
	/* A standby leaves traps to the master; one that is on the way to become it takes them. */
	if (sm->state == SM_STANDBY || sm->state == SM_NOT_ACTIVE)
		return;
	trap_answer(sm, from, mad);
	memcpy(notice, mad + SMP_DATA, 64);
	if (!(notice[AT_TYPE] & 0x80))
		return;
	if (trap == NOTICE_LOCAL_CHANGE)
		local_change_note(sm, notice);
	row = sm->subnet ? subnet_by_lid(sm->subnet, octets_get16(notice + AT_ISSUER)) : SM_NONE;
	/* A request with the right key ends a lease that a wrong one began. */
	if (trap == NOTICE_LINK_STATE || trap == NOTICE_LOCAL_CHANGE || trap == NOTICE_BAD_M_KEY)
		change_note(sm, row);
	if (row != SM_NONE)
		gid_make(notice + AT_GID, sm->subnet->nodes[row].port_guid);
	notices_forward(sm, notice);
}

/* Own notices ---------------------------------------------------------------------------------- */

void notice_own(struct sm *sm, uint16_t trap, const uint8_t gid[16])
{
	uint8_t notice[NOTICE_BYTES] = {0};

	notice[AT_TYPE] = 0x80 | 3;
	notice[AT_PRODUCER + 2] = 4; /* class manager */
	octets_put16(notice + AT_TRAP, trap);
	octets_put16(notice + AT_ISSUER, sm->own_lid);
	memcpy(notice + AT_DETAILS + 6, gid, 16);
	gid_make(notice + AT_GID, sm->own_guid);
	notices_forward(sm, notice);
}

static void presence_report(struct sm *sm, const struct sm_subnet *of,
			    const struct sm_subnet *other, uint16_t trap)
{
	uint8_t gid[16];

	for (uint32_t i = 0; i < of->node_count; i++) {
		const struct sm_node *node = &of->nodes[i];
		uint32_t row = subnet_find(other, node->port_guid);

		if (node->is_lost || (row != SM_NONE && !other->nodes[row].is_lost))
			continue;
		gid_make(gid, node->port_guid);
		notice_own(sm, trap, gid);
	}
}

void notices_compare(struct sm *sm, const struct sm_subnet *before, const struct sm_subnet *after)
{
	if (!before || !sm->subscription_count)
		return;
	presence_report(sm, before, after, TRAP_OUT_OF_SERVICE);
	presence_report(sm, after, before, TRAP_IN_SERVICE);
}

/* Reports -------------------------------------------------------------------------------------- */

static bool subscription_takes(const struct sm_subscription *subscription, const uint8_t *notice)
{
	const uint8_t *inform = subscription->inform;
	uint16_t type = octets_get16(inform + INFORM_TYPE);
	uint16_t trap = octets_get16(inform + INFORM_TRAP);
	uint16_t first = octets_get16(inform + INFORM_LIDS);
	uint16_t last = octets_get16(inform + INFORM_LIDS + 2);
	uint16_t issuer = octets_get16(notice + AT_ISSUER);
	uint32_t producer = octets_get32(inform + INFORM_PRODUCER - 1) & ALL_PRODUCERS;
	static const uint8_t no_gid[16];

	if (!inform[INFORM_IS_GENERIC])
		return false;
	if (type != ANY && type != (notice[AT_TYPE] & 0x7f))
		return false;
	if (trap != ANY && trap != octets_get16(notice + AT_TRAP))
		return false;
	if (producer != ALL_PRODUCERS && producer && producer != notice[AT_PRODUCER + 2])
		return false;
	if (memcmp(inform + INFORM_GID, no_gid, 16) != 0)
		return !memcmp(inform + INFORM_GID, notice + AT_GID, 16);
	return first == ANY || !first || (issuer >= first && issuer <= last) ||
	       (!last && issuer == first);
}

static void report_free(struct sm *sm, struct sm_report *report)
{
	report->is_used = false;
	sm->report_count--;
}

static void report_copy(struct sm *sm, struct sm_report *report)
{
	report->copies++;
	report->deadline_ms = sm->now_ms + REPORT_MS;
	sm->functions->send(sm->context, &report->peer, report->mad, SM_MAD_BYTES, REPORT_MS);
}

static void report_send(struct sm *sm, const struct sm_subscription *subscription,
			const uint8_t *notice)
{
	struct sm_report *report = sm->reports;

	while (report < sm->reports + SM_REPORTS_MAX && report->is_used)
		report++;
	if (report == sm->reports + SM_REPORTS_MAX)
		return;
	*report = (struct sm_report){.peer = subscription->peer, .is_used = true};
	sm->report_count++;
	report->mad[0] = 1;
	report->mad[1] = CLASS_SA;
	report->mad[2] = 2;
	report->mad[3] = SA_REPORT;
	/* Apart from those of requests, by the agent's class. */
	header_set32(report->mad, OFFSET_TID + 4, ++sm->report_tid);
	octets_put16(report->mad + OFFSET_ATTRIBUTE, SA_NOTICE);
	octets_put16(report->mad + SA_RECORD_WORDS, NOTICE_BYTES / 8);
	memcpy(report->mad + SA_HEADER, notice, NOTICE_BYTES);
	report_copy(sm, report);
}

void notices_forward(struct sm *sm, const uint8_t notice[80])
{
	for (uint32_t i = 0; i < sm->subscription_count; i++)
		if (subscription_takes(&sm->subscriptions[i], notice))
			report_send(sm, &sm->subscriptions[i], notice);
}

void report_acknowledge(struct sm *sm, const uint8_t *mad)
{
	uint32_t tid = header_get32(mad, OFFSET_TID + 4);

	for (uint32_t i = 0; i < SM_REPORTS_MAX; i++)
		if (sm->reports[i].is_used &&
		    header_get32(sm->reports[i].mad, OFFSET_TID + 4) == tid)
			report_free(sm, &sm->reports[i]);
}

void notices_expire(struct sm *sm)
{
	for (uint32_t i = 0; sm->report_count && i < SM_REPORTS_MAX; i++) {
		struct sm_report *report = &sm->reports[i];

		if (!report->is_used || report->deadline_ms > sm->now_ms)
			continue;
		if (report->copies == REPORT_COPIES) {
			report_free(sm, report);
			continue;
		}
		/* The transaction before has ended, so this is a new one. */
		header_set32(report->mad, OFFSET_TID + 4, ++sm->report_tid);
		report_copy(sm, report);
	}
}

uint64_t notices_deadline(const struct sm *sm)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t i = 0; sm->report_count && i < SM_REPORTS_MAX; i++)
		if (sm->reports[i].is_used && sm->reports[i].deadline_ms < first)
			first = sm->reports[i].deadline_ms;
	return first;
}

/* Subscriptions -------------------------------------------------------------------------------- */

/* The same subscriber and the same wish, whatever the rest says. */
static bool subscription_is(const struct sm_subscription *subscription, const struct sm_peer *peer,
			    const uint8_t *inform)
{
	return subscription->peer.lid == peer->lid && subscription->peer.qpn == peer->qpn &&
	       !memcmp(subscription->inform, inform, INFORM_IS_GENERIC + 1) &&
	       !memcmp(subscription->inform + INFORM_TYPE, inform + INFORM_TYPE, 4);
}

static int subscription_add(struct sa_query *query, const uint8_t *inform)
{
	struct sm *sm = query->sm;
	struct sm_subscription *larger;
	uint32_t row = subnet_by_lid(query->subnet, query->from->lid);

	if (sm->subscription_count == SM_SUBSCRIPTIONS_MAX)
		return -ENOSPC;
	larger = realloc(sm->subscriptions, (sm->subscription_count + 1) * sizeof *larger);
	if (!larger)
		return -ENOMEM;
	sm->subscriptions = larger;
	larger += sm->subscription_count++;
	*larger = (struct sm_subscription){
		.peer = *query->from,
		.number = ++sm->subscription_serial,
	};
	if (row != SM_NONE)
		gid_make(larger->subscriber, query->subnet->nodes[row].port_guid);
	memcpy(larger->inform, inform, INFORM_BYTES);
	return 0;
}

void sa_inform_set(struct sa_query *query)
{
	struct sm *sm = query->sm;
	const uint8_t *inform = query->record;
	uint32_t at = 0;

	if (inform[INFORM_SUBSCRIBES] > 1) {
		query->status = SA_INVALID;
		return;
	}
	while (at < sm->subscription_count &&
	       !subscription_is(&sm->subscriptions[at], query->from, inform))
		at++;
	if (inform[INFORM_SUBSCRIBES] && at == sm->subscription_count) {
		if (subscription_add(query, inform))
			query->status = SA_NO_RESOURCES;
	} else if (!inform[INFORM_SUBSCRIBES]) {
		if (at < sm->subscription_count)
			sm->subscriptions[at] = sm->subscriptions[--sm->subscription_count];
		else
			query->status = SA_INVALID;
	}
	if (!query->status)
		sa_add(query, inform);
}

void sa_informs(struct sa_query *query)
{
	for (uint32_t i = 0; i < query->sm->subscription_count; i++) {
		const struct sm_subscription *subscription = &query->sm->subscriptions[i];
		uint8_t record[64] = {0};

		memcpy(record, subscription->subscriber, 16);
		octets_put16(record + 16, subscription->number);
		memcpy(record + 24, subscription->inform, INFORM_BYTES);
		sa_offer(query, record, 0);
	}
}
