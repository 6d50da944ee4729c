/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to subnet management agents: a queue, and a window of those under way. A request is a
 * few bytes until it is sent; its datagram is made then, and made again for each copy. The
 * transaction id names the place in the window, so an answer is found at once, and a serial number
 * tells an answer to an older request of the same place.
 */
#include "sm/internal.h"

#define SLOT_BITS 10u
#define SLOT_MASK ((1u << SLOT_BITS) - 1)

_Static_assert(SM_WINDOW_MAX <= 1u << SLOT_BITS, "a place is part of the transaction id");

const struct sm_job_type sm_job_types[JOBS] = {
	[JOB_NODE] = {SMP_NODE_INFO, METHOD_GET, node_info_build, node_info_done, node_info_failed},
	[JOB_SWITCH] = {SMP_SWITCH_INFO, METHOD_GET, plain_build, switch_done, NULL},
	[JOB_SWITCH_CLEAR] = {SMP_SWITCH_INFO, METHOD_SET, switch_clear_build, switch_clear_done,
			      NULL},
	[JOB_PORT] = {SMP_PORT_INFO, METHOD_GET, port_build, port_done, NULL},
	[JOB_MANAGER] = {SMP_MANAGER, METHOD_GET, plain_build, manager_done, manager_failed},
	[JOB_PKEYS] = {SMP_PKEYS, METHOD_SET, pkeys_build, pkeys_done, NULL},
	[JOB_PORT_SET] = {SMP_PORT_INFO, METHOD_SET, port_set_build, port_set_done, NULL},
	[JOB_SWITCH_SET] = {SMP_SWITCH_INFO, METHOD_SET, switch_set_build, switch_set_done, NULL},
	[JOB_UNICAST] = {SMP_UNICAST, METHOD_SET, unicast_build, unicast_done, NULL},
	[JOB_MULTICAST] = {SMP_MULTICAST, METHOD_SET, multicast_build, multicast_done, NULL},
	[JOB_SL_TO_VL_SET] = {SMP_SL_TO_VL, METHOD_SET, lanes_build, lanes_done, reading_failed},
	[JOB_ARBITRATION_SET] = {SMP_ARBITRATION, METHOD_SET, arbitration_build, arbitration_done,
				 reading_failed},
	[JOB_ACTIVATE] = {SMP_PORT_INFO, METHOD_SET, activate_build, activate_done, NULL},
	[JOB_LIGHT] = {SMP_SWITCH_INFO, METHOD_GET, plain_build, light_done, light_failed},
	[JOB_POLL] = {SMP_MANAGER, METHOD_GET, poll_build, poll_done, poll_failed},
	[JOB_HANDOVER] = {SMP_MANAGER, METHOD_SET, handover_build, handover_done, handover_failed},
	[JOB_ACKNOWLEDGE] = {SMP_MANAGER, METHOD_SET, handover_build, acknowledge_done,
			     reading_failed},
	[JOB_GUIDS_SET] = {SMP_GUID_INFO, METHOD_SET, guids_build, guids_done, reading_failed},
	[JOB_DESCRIPTION] = {SMP_DESCRIPTION, METHOD_GET, plain_build, description_done,
			     reading_failed},
	[JOB_GUIDS] = {SMP_GUID_INFO, METHOD_GET, guids_build, guids_done, reading_failed},
	[JOB_SL_TO_VL] = {SMP_SL_TO_VL, METHOD_GET, lanes_build, lanes_done, reading_failed},
	[JOB_ARBITRATION] = {SMP_ARBITRATION, METHOD_GET, arbitration_build, arbitration_done,
			     reading_failed},
};

/* Slots ---------------------------------------------------------------------------------------- */

static void slots_clear(struct sm_requests *requests)
{
	for (uint32_t i = 0; i < requests->window; i++)
		requests->slots[i] = (struct sm_slot){
			.next = i + 1 < requests->window ? i + 1 : SM_NONE,
		};
	requests->first = requests->last = SM_NONE;
	requests->first_free = 0;
	requests->under_way = 0;
}

int requests_init(struct sm_requests *requests, uint32_t window)
{
	*requests = (struct sm_requests){.window = window, .serial = 1};
	requests->slots = calloc(window, sizeof *requests->slots);
	if (!requests->slots)
		return -ENOMEM;
	slots_clear(requests);
	return 0;
}

void requests_free(struct sm_requests *requests)
{
	free(requests->slots);
	free(requests->queue);
}

/* All wait the same time, so the last one sent is the last one due. */
static void slot_append(struct sm_requests *requests, uint32_t index)
{
	struct sm_slot *slot = &requests->slots[index];

	slot->next = SM_NONE;
	slot->previous = requests->last;
	if (requests->last != SM_NONE)
		requests->slots[requests->last].next = index;
	else
		requests->first = index;
	requests->last = index;
}

static void slot_remove(struct sm_requests *requests, uint32_t index)
{
	struct sm_slot *slot = &requests->slots[index];

	if (slot->previous != SM_NONE)
		requests->slots[slot->previous].next = slot->next;
	else
		requests->first = slot->next;
	if (slot->next != SM_NONE)
		requests->slots[slot->next].previous = slot->previous;
	else
		requests->last = slot->previous;
}

static void slot_release(struct sm_requests *requests, uint32_t index)
{
	requests->slots[index].tid = 0;
	requests->slots[index].next = requests->first_free;
	requests->first_free = index;
	requests->under_way--;
}

/* The queue ------------------------------------------------------------------------------------ */

static bool queue_grow(struct sm_requests *requests)
{
	size_t room = requests->room ? requests->room * 2 : 1024;
	struct sm_job *queue;

	if (requests->count < requests->room)
		return true;
	queue = malloc(room * sizeof *queue);
	if (!queue)
		return false;
	for (size_t i = 0, at = requests->head; i < requests->count; i++) {
		queue[i] = requests->queue[at];
		at = at + 1 == requests->room ? 0 : at + 1;
	}
	free(requests->queue);
	requests->queue = queue;
	requests->head = 0;
	requests->room = room;
	return true;
}

void job_add(struct sm *sm, enum sm_job_kind kind, uint32_t node, unsigned int port,
	     unsigned int block)
{
	struct sm_requests *requests = &sm->requests;

	if (!queue_grow(requests)) {
		sm->work->faults++;
		return;
	}
	requests->queue[(requests->head + requests->count++) % requests->room] = (struct sm_job){
		.node = node,
		.block = (uint16_t)block,
		.port = (uint8_t)port,
		.kind = (uint8_t)kind,
	};
}

void jobs_drop(struct sm *sm)
{
	slots_clear(&sm->requests);
	sm->requests.count = 0;
}

void job_lost(struct sm *sm, const struct sm_job *job)
{
	struct sm_node *node = &sm->work->nodes[job->node];

	sm->work->faults++;
	if (!node->is_lost)
		sm_say(sm, "0x%016llx doesn't answer", (unsigned long long)node->guid);
	node->is_lost = true;
}

/* Sending -------------------------------------------------------------------------------------- */

static void smp_header(const struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	const struct sm_job_type *type = &sm_job_types[job->kind];

	memset(mad, 0, SM_MAD_BYTES);
	mad[0] = mad[2] = 1;
	mad[1] = CLASS_SMI_DIRECTED;
	mad[3] = type->method;
	octets_put16(mad + OFFSET_ATTRIBUTE, type->attribute);
	octets_put64(mad + SMP_M_KEY, sm->options.m_key);
	octets_put16(mad + SMP_SOURCE_LID, LID_PERMISSIVE);
	octets_put16(mad + SMP_DESTINATION_LID, LID_PERMISSIVE);
	if (job->node != SM_NONE) {
		const struct sm_node *node = &sm->work->nodes[job->node];

		mad[SMP_HOP_COUNT] = node->hops;
		memcpy(mad + SMP_INITIAL_PATH, node->path, node->hops + 1u);
	}
}

/* Whether the request still makes sense; then its datagram. */
static bool job_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	if (job->node != SM_NONE &&
	    (sm->work->nodes[job->node].is_lost ||
	     (job->kind >= JOB_DESCRIPTION && sm->work->nodes[job->node].is_silent)))
		return false;
	smp_header(sm, job, mad);
	return sm_job_types[job->kind].build(sm, job, mad);
}

static void slot_send(struct sm *sm, uint32_t index, uint8_t *mad)
{
	static const struct sm_peer directed = {.lid = LID_PERMISSIVE};
	struct sm_requests *requests = &sm->requests;
	struct sm_slot *slot = &requests->slots[index];

	requests->serial = (requests->serial + 1) & (UINT32_MAX >> SLOT_BITS);
	slot->tid = (requests->serial | 1) << SLOT_BITS | index;
	slot->deadline_ms = sm->now_ms + sm->options.timeout_ms;
	header_set32(mad, OFFSET_TID + 4, slot->tid);
	slot_append(requests, index);
	sm->counts.requests++;
	sm->functions->send(sm->context, &directed, mad, SM_MAD_BYTES, sm->options.timeout_ms);
}

void jobs_send(struct sm *sm)
{
	struct sm_requests *requests = &sm->requests;
	uint8_t mad[SM_MAD_BYTES];

	while (requests->under_way < requests->window && requests->count) {
		struct sm_job job = requests->queue[requests->head];
		uint32_t index = requests->first_free;

		requests->head = (requests->head + 1) % requests->room;
		requests->count--;
		if (!job_build(sm, &job, mad))
			continue;
		requests->first_free = requests->slots[index].next;
		requests->under_way++;
		requests->slots[index].job = job;
		requests->slots[index].copies = 0;
		slot_send(sm, index, mad);
	}
}

/* Answers and timeouts ------------------------------------------------------------------------- */

bool jobs_answer(struct sm *sm, const uint8_t *mad)
{
	struct sm_requests *requests = &sm->requests;
	uint32_t tid = header_get32(mad, OFFSET_TID + 4);
	uint32_t index = tid & SLOT_MASK;
	const struct sm_job_type *type;
	struct sm_job job;

	if (index >= requests->window || !tid || requests->slots[index].tid != tid)
		return false;
	job = requests->slots[index].job;
	type = &sm_job_types[job.kind];
	if (octets_get16(mad + OFFSET_ATTRIBUTE) != type->attribute)
		return false;
	slot_remove(requests, index);
	slot_release(requests, index);
	type->done(sm, &job, mad, octets_get16(mad + OFFSET_STATUS) & 0x7fff);
	return true;
}

static void slot_expire(struct sm *sm, uint32_t index)
{
	struct sm_requests *requests = &sm->requests;
	struct sm_slot *slot = &requests->slots[index];
	struct sm_job job = slot->job;
	uint8_t mad[SM_MAD_BYTES];

	slot_remove(requests, index);
	if (slot->copies < sm->options.retries && job_build(sm, &job, mad)) {
		slot->copies++;
		sm->counts.repeats++;
		slot_send(sm, index, mad);
		return;
	}
	slot_release(requests, index);
	sm->counts.timeouts++;
	if (sm_job_types[job.kind].failed)
		sm_job_types[job.kind].failed(sm, &job);
	else
		job_lost(sm, &job);
}

void jobs_expire(struct sm *sm)
{
	struct sm_requests *requests = &sm->requests;

	while (requests->first != SM_NONE &&
	       requests->slots[requests->first].deadline_ms <= sm->now_ms)
		slot_expire(sm, requests->first);
}

uint64_t jobs_deadline(const struct sm *sm)
{
	const struct sm_requests *requests = &sm->requests;

	return requests->first == SM_NONE ? UINT64_MAX
					  : requests->slots[requests->first].deadline_ms;
}
