/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The manager as a whole: creation, the phases of a sweep (enum sm_phase), and where datagrams and
 * times go. A sweep builds a new table of the subnet, of all that it finds or (change.c) from the
 * one before; that is replaced when discovery has ended. Traps during a sweep start another one
 * when it has ended, so that a link that goes up and down all the time can't keep a sweep from
 * ending.
 */
#include "sm/internal.h"
#include "sm/sa.h"

#define REPEAT_MS 250u /* until a sweep with faults is repeated; doubled each time */
#define REPEAT_MS_MAX 8000u

/* Life ----------------------------------------------------------------------------------------- */

static void options_complete(struct sm_options *options)
{
	if (!options->window)
		options->window = 64;
	if (options->window > SM_WINDOW_MAX)
		options->window = SM_WINDOW_MAX;
	if (!options->timeout_ms)
		options->timeout_ms = 200;
	if (!options->sweep_ms)
		options->sweep_ms = 10000;
	if (!options->poll_ms)
		options->poll_ms = 2000;
	if (!options->poll_failures)
		options->poll_failures = 3;
	options->priority &= 15;
}

struct sm *sm_create(const struct sm_functions *functions, void *context,
		     const struct sm_options *options)
{
	struct sm *sm = calloc(1, sizeof *sm);

	if (!sm)
		return NULL;
	sm->functions = functions;
	sm->context = context;
	sm->options = *options;
	options_complete(&sm->options);
	sm->state = SM_DISCOVERING;
	sm->sweep_ms = sm->poll_ms = UINT64_MAX;
	sm->work = subnet_create();
	sm->reports = calloc(SM_REPORTS_MAX, sizeof *sm->reports);
	qos_begin(sm);
	if (!sm->work || !sm->reports || requests_init(&sm->requests, sm->options.window) ||
	    groups_begin(sm)) {
		sm_free(sm);
		return NULL;
	}
	return sm;
}

void sm_free(struct sm *sm)
{
	if (!sm)
		return;
	if (sm->subnet != sm->work)
		subnet_free(sm->subnet);
	subnet_free(sm->work);
	requests_free(&sm->requests);
	groups_end(sm);
	free(sm->lids);
	free(sm->partitions);
	free(sm->qos_rules);
	free(sm->aliases);
	free(sm->services);
	free(sm->subscriptions);
	free(sm->reports);
	free(sm);
}

enum sm_state sm_state_get(const struct sm *sm)
{
	return sm->state;
}

bool sm_is_settled(const struct sm *sm)
{
	return sm->is_settled && !sm->wants_sweep && !sm->changed_count &&
	       sm->phase == PHASE_IDLE && jobs_idle(&sm->requests) && !sm->has_dirty_groups &&
	       !sm->has_dirty_guids;
}

const struct sm_counts *sm_counts_get(const struct sm *sm)
{
	return &sm->counts;
}

void sm_subnet_sizes(const struct sm *sm, uint32_t *ends, uint32_t *switches, uint32_t *links)
{
	const struct sm_subnet *subnet = sm->subnet;

	*switches = subnet ? subnet->switch_count : 0;
	*ends = subnet ? subnet->node_count - subnet->switch_count : 0;
	*links = subnet ? subnet->link_count : 0;
}

/* Phases --------------------------------------------------------------------------------------- */

/* A table that isn't in use any more; `work` is never NULL. */
static void work_drop(struct sm *sm)
{
	if (sm->work != sm->subnet)
		subnet_free(sm->work);
	sm->work = sm->subnet;
}

/* With a table that isn't empty, of what changed only. */
static void sweep_begin_with(struct sm *sm, struct sm_subnet *work)
{
	if (!work) {
		sm->sweep_ms = sm->now_ms + sm->options.sweep_ms;
		return;
	}
	jobs_drop(sm);
	work_drop(sm);
	sm->work = work;
	sm->is_partial = work->node_count != 0;
	sm->wants_sweep = false;
	sm->changed_count = 0;
	sm->is_settled = false;
	sm->began_ms = sm->now_ms;
	sm->sweep_ms = UINT64_MAX;
	sm->counts.sweeps++;
	sm->activity++;
	sm->counts.partial_sweeps += sm->is_partial;
	phase_enter(sm, PHASE_DISCOVER);
}

void sweep_begin(struct sm *sm)
{
	sweep_begin_with(sm, subnet_create());
}

/* Of what changed, if that can be. */
static void changes_sweep(struct sm *sm)
{
	struct sm_subnet *work = changes_take(sm);

	if (work)
		sweep_begin_with(sm, work);
	else
		sweep_begin(sm);
}

/* The new table is the one that queries are answered from. */
static int subnet_take(struct sm *sm)
{
	int result = sm_lids_assign(sm, sm->work);

	if (!result)
		result = subnet_close(sm->work);
	if (!result)
		result = trees_prepare(sm->work);
	if (result)
		return result;
	if (sm->is_first) {
		/* What another master wrote since isn't known. */
		subnet_free(sm->subnet);
		sm->subnet = NULL;
	}
	discover_inherit(sm);
	notices_compare(sm, sm->subnet, sm->work);
	subnet_free(sm->subnet);
	sm->subnet = sm->work;
	groups_follow(sm);
	return routes_make(sm, sm->work);
}

/* When the next sweep is due: soon after faults. */
static void sweep_plan(struct sm *sm)
{
	uint64_t wait = sm->options.sweep_ms;

	if (sm->work->faults) {
		wait = REPEAT_MS << (sm->repeated < 5 ? sm->repeated : 5);
		if (wait > REPEAT_MS_MAX)
			wait = REPEAT_MS_MAX;
		sm->repeated++;
	} else {
		sm->repeated = 0;
	}
	sm->sweep_ms = sm->now_ms + wait;
}

static void master_begin(struct sm *sm)
{
	int result;

	if (sm->state != SM_MASTER) {
		sm->is_first = true;
		sm_say(sm, "this manager is the master");
	}
	sm->state = SM_MASTER;
	sm->has_handover = false;
	result = subnet_take(sm);
	if (result) {
		sm_say(sm, "the sweep is given up: %s",
		       result == -ENOSPC ? "no LID is left" : "no memory");
		sm->work->faults++;
		sweep_plan(sm);
	}
	phase_enter(sm, result ? PHASE_IDLE : PHASE_CONFIGURE);
}

static void standby_begin(struct sm *sm)
{
	if (sm->state != SM_STANDBY)
		sm_say(sm, "0x%016llx is the master; standing by",
		       (unsigned long long)sm->master_guid);
	sm->state = SM_STANDBY;
	sm->is_settled = true;
	phase_enter(sm, PHASE_IDLE);
}

static void discover_end(struct sm *sm)
{
	if (sm->is_partial && changes_step(sm))
		return;
	if (sm->is_partial && sm->work->faults) {
		sweep_begin(sm);
		return;
	}
	if (!sm->work->node_count) {
		/* Not even the own port answers. */
		sm->wants_sweep = false;
		sm->sweep_ms = sm->now_ms + REPEAT_MS;
		phase_enter(sm, PHASE_IDLE);
		return;
	}
	if (sm->state == SM_NOT_ACTIVE) {
		phase_enter(sm, PHASE_IDLE);
		return;
	}
	switch (election_decide(sm)) {
	case VERDICT_MASTER:
		master_begin(sm);
		break;
	case VERDICT_STANDBY:
		standby_begin(sm);
		break;
	case VERDICT_HANDOVER:
		phase_enter(sm, PHASE_HANDOVER);
		break;
	}
}

static void activate_end(struct sm *sm)
{
	struct sm_subnet *subnet = sm->work;

	sm->is_first = false;
	sweep_plan(sm);
	sm->is_settled = !subnet->faults;
	sm_say(sm, "subnet up: %u ports, %u switches, %u links, %u faults, %llu ms",
	       subnet->node_count - subnet->switch_count, subnet->switch_count, subnet->link_count,
	       subnet->faults, (unsigned long long)(sm->now_ms - sm->began_ms));
	phase_enter(sm, PHASE_READ);
}

static void handover_end(struct sm *sm)
{
	if (sm->state == SM_MASTER) {
		/* The other one doesn't want to: this one goes on. */
		sm->has_handover = true;
		discover_end(sm);
		return;
	}
	sm->is_settled = true;
	phase_enter(sm, PHASE_IDLE);
}

static void acknowledge_send(struct sm *sm)
{
	for (uint32_t i = 0; i < sm->other_count; i++)
		if (sm->previous_master && sm->others[i].guid == sm->previous_master)
			job_add(sm, JOB_ACKNOWLEDGE, sm->others[i].node, 0, 0);
	sm->previous_master = 0;
}

static void light_begin(struct sm *sm)
{
	sm->counts.light_sweeps++;
	sm->activity++;
	for (uint32_t i = 0; i < sm->work->switch_count; i++)
		job_add(sm, JOB_LIGHT, sm->work->switches[i], 0, 0);
	sm->sweep_ms = sm->now_ms + sm->options.sweep_ms;
}

/* Whether the switch has other settings than it answered last. Another manager that was still
 * discovering may have written what it had read before this one became the master, when it took the
 * notice of a change. */
static bool switch_differs(const struct sm_node *node, const uint8_t *info)
{
	uint8_t is[sizeof node->switch_info], was[sizeof node->switch_info];

	memcpy(is, info, sizeof is);
	memcpy(was, node->switch_info, sizeof was);
	is[11] &= (uint8_t)~4u;
	was[11] &= (uint8_t)~4u;
	return node->has_switch_info && memcmp(is, was, sizeof is) != 0;
}

void light_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	const uint8_t *info = mad + SMP_DATA;

	if (status)
		sm->wants_sweep = true;
	else if ((info[11] & 4) || switch_differs(&sm->work->nodes[job->node], info))
		change_note(sm, job->node);
}

void light_failed(struct sm *sm, const struct sm_job *job)
{
	(void)job;
	sm->wants_sweep = true;
}

void phase_enter(struct sm *sm, enum sm_phase phase)
{
	sm->phase = phase;
	switch (phase) {
	case PHASE_DISCOVER:
		discover_begin(sm);
		break;
	case PHASE_CONFIGURE:
		acknowledge_send(sm);
		configure_ports(sm);
		aliases_configure(sm);
		forward_unicast(sm);
		forward_multicast(sm);
		break;
	case PHASE_ACTIVATE:
		activate_ports(sm);
		break;
	case PHASE_READ:
		read_begin(sm);
		break;
	case PHASE_LIGHT:
		light_begin(sm);
		break;
	case PHASE_POLL:
		job_add(sm, JOB_POLL, sm->master_node, 0, 0);
		sm->poll_ms = sm->now_ms + sm->options.poll_ms;
		break;
	case PHASE_HANDOVER:
		job_add(sm, JOB_HANDOVER, sm->master_node, 0, 0);
		break;
	case PHASE_IDLE:
	case PHASES:
		break;
	}
}

static void phase_end(struct sm *sm)
{
	switch (sm->phase) {
	case PHASE_DISCOVER:
		discover_end(sm);
		break;
	case PHASE_CONFIGURE:
		phase_enter(sm, PHASE_ACTIVATE);
		break;
	case PHASE_ACTIVATE:
		activate_end(sm);
		break;
	case PHASE_HANDOVER:
		handover_end(sm);
		break;
	case PHASE_READ:
	case PHASE_LIGHT:
	case PHASE_POLL:
		phase_enter(sm, PHASE_IDLE);
		break;
	case PHASE_IDLE:
	case PHASES:
		break;
	}
}

/* What an idle manager has to do; false: nothing. */
static bool idle_act(struct sm *sm)
{
	if (sm->state == SM_NOT_ACTIVE)
		return false;
	if (sm->state == SM_STANDBY) {
		sm->wants_sweep = false;
		sm->changed_count = 0;
		if (sm->poll_ms > sm->now_ms)
			return false;
		phase_enter(sm, PHASE_POLL);
		return true;
	}
	if (sm->wants_sweep || (sm->sweep_ms <= sm->now_ms &&
				(sm->state != SM_MASTER || !sm->subnet || election_is_open(sm) ||
				 sm->work->faults || !sm->subnet->switch_count))) {
		sweep_begin(sm);
		return true;
	}
	if (sm->changed_count) {
		changes_sweep(sm);
		return true;
	}
	if (sm->sweep_ms <= sm->now_ms) {
		phase_enter(sm, PHASE_LIGHT);
		return true;
	}
	if (sm->has_dirty_groups) {
		forward_multicast(sm);
		return !jobs_idle(&sm->requests);
	}
	if (sm->has_dirty_guids) {
		aliases_configure(sm);
		return !jobs_idle(&sm->requests);
	}
	return false;
}

/* Goes on until there is something to wait for. */
static void sm_advance(struct sm *sm)
{
	for (;;) {
		/* Readings don't delay a sweep or a tree. */
		if (sm->phase == PHASE_READ && (sm->wants_sweep || sm->changed_count ||
						sm->has_dirty_groups || sm->has_dirty_guids)) {
			jobs_drop(sm);
			sm->phase = PHASE_IDLE;
		}
		jobs_send(sm);
		if (!jobs_idle(&sm->requests))
			return;
		if (sm->phase != PHASE_IDLE)
			phase_end(sm);
		else if (!idle_act(sm))
			return;
	}
}

/* From outside --------------------------------------------------------------------------------- */

void sm_start(struct sm *sm, uint64_t now_ms)
{
	sm->now_ms = now_ms;
	sm->is_started = true;
	sm->wants_sweep = true;
	sm_advance(sm);
}

void sm_sweep_request(struct sm *sm, uint64_t now_ms)
{
	sm->now_ms = now_ms;
	sm->wants_sweep = true;
	sm_advance(sm);
}

static void smp_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad)
{
	uint8_t method = header_method(mad);
	uint16_t attribute = octets_get16(mad + OFFSET_ATTRIBUTE);

	if (method == METHOD_GET_RESPONSE) {
		jobs_answer(sm, mad);
		return;
	}
	if (attribute == SMP_MANAGER && (method == METHOD_GET || method == METHOD_SET))
		election_receive(sm, from, mad);
	else if (attribute == SMP_NOTICE && method == 0x05)
		notice_receive(sm, from, mad);
}

void sm_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad, size_t bytes,
		uint64_t now_ms)
{
	sm->now_ms = now_ms;
	if (!sm->is_started || bytes < SM_MAD_BYTES || mad[0] != 1)
		return;
	if (mad[1] == CLASS_SMI || mad[1] == CLASS_SMI_DIRECTED)
		smp_receive(sm, from, mad);
	else if (mad[1] == CLASS_SA)
		sa_receive(sm, from, mad, bytes);
	sm_advance(sm);
}

void sm_expire(struct sm *sm, uint64_t now_ms)
{
	sm->now_ms = now_ms;
	if (!sm->is_started)
		return;
	jobs_expire(sm);
	notices_expire(sm);
	services_expire(sm);
	sm_advance(sm);
}

static uint64_t deadline_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t sm_deadline(const struct sm *sm)
{
	uint64_t due = deadline_earlier(jobs_deadline(sm), notices_deadline(sm));

	due = deadline_earlier(due, services_deadline(sm));
	if (sm->phase != PHASE_IDLE || sm->state == SM_NOT_ACTIVE)
		return due;
	return deadline_earlier(due, sm->state == SM_STANDBY ? sm->poll_ms : sm->sweep_ms);
}
