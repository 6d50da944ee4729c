/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Managers among one another: SMInfo. The manager with the highest priority, and of those the one
 * with the lowest GUID, is to be the master. One that comes later gives way to a master, even to a
 * worse one: that one finds it by its next sweep, and hands over.
 *
 *   Discovering -> Master        no master, and no better manager
 *               -> Standby       else
 *   Standby     -> Discovering   the master doesn't answer, isn't the master any more, or hands
 * over
 *               -> NotActive     Set(SMInfo), Disable
 *   Master      -> Standby       a better manager took over
 *   NotActive   -> Standby       Set(SMInfo), Standby
 */
#include "sm/internal.h"

/* The modifiers of Set(SMInfo). */
enum {
	CONTROL_HANDOVER = 1,
	CONTROL_ACKNOWLEDGE = 2,
	CONTROL_DISABLE = 3,
	CONTROL_STANDBY = 4,
	CONTROL_DISCOVER = 5,
};

/* Managers know one another by it; the one that OpenSM has by default. */
#define MANAGER_KEY 1u

enum { INFO_AT_GUID = 0, INFO_AT_KEY = 8, INFO_AT_ACTIVITY = 16, INFO_AT_STATE = 20 };

static void manager_info_write(const struct sm *sm, uint8_t *info)
{
	memset(info, 0, 64);
	octets_put64(info + INFO_AT_GUID, sm->own_guid);
	octets_put64(info + INFO_AT_KEY, MANAGER_KEY);
	octets_put32(info + INFO_AT_ACTIVITY, sm->activity);
	info[INFO_AT_STATE] = (uint8_t)(sm->options.priority << 4 | sm->state);
}

/* Whether the other manager is to be the master rather than this one. */
static bool other_is_better(const struct sm *sm, const struct sm_other *other)
{
	if (other->state == SM_NOT_ACTIVE)
		return false;
	if (other->priority != sm->options.priority)
		return other->priority > sm->options.priority;
	return other->guid < sm->own_guid;
}

/* Found by a sweep ----------------------------------------------------------------------------- */

void election_forget(struct sm *sm, uint32_t row)
{
	for (uint32_t i = sm->other_count; i-- > 0;)
		if (sm->others[i].node == row)
			sm->others[i] = sm->others[--sm->other_count];
}

void manager_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	const uint8_t *info = mad + SMP_DATA;

	election_forget(sm, job->node);
	/* The manager of that port has just ended, or hasn't quite begun. */
	if (status || sm->other_count == SM_OTHERS_MAX)
		return;
	sm->others[sm->other_count++] = (struct sm_other){
		.node = job->node,
		.guid = octets_get64(info + INFO_AT_GUID),
		.priority = octet_high(info[INFO_AT_STATE]),
		.state = octet_low(info[INFO_AT_STATE]),
	};
}

void manager_failed(struct sm *sm, const struct sm_job *job)
{
	(void)sm;
	(void)job;
}

static void master_follow(struct sm *sm, const struct sm_other *other)
{
	sm->master_guid = other->guid;
	sm->master_node = other->node;
	sm->failures = 0;
	sm->poll_ms = sm->now_ms + sm->options.poll_ms;
}

/* The best of the others that would be better than this one, or NULL. */
static const struct sm_other *best_other(const struct sm *sm)
{
	const struct sm_other *best = NULL;

	for (uint32_t i = 0; i < sm->other_count; i++) {
		const struct sm_other *other = &sm->others[i];

		if (!other_is_better(sm, other))
			continue;
		if (!best || other->priority > best->priority ||
		    (other->priority == best->priority && other->guid < best->guid))
			best = other;
	}
	return best;
}

bool election_is_open(const struct sm *sm)
{
	return best_other(sm) != NULL;
}

enum sm_verdict election_decide(struct sm *sm)
{
	const struct sm_other *best = best_other(sm);

	if (sm->state == SM_MASTER || sm->has_handover) {
		/* One that only discovers can't take over yet: it becomes a standby first. */
		if (best && best->state != SM_DISCOVERING && !sm->has_handover) {
			master_follow(sm, best);
			return VERDICT_HANDOVER;
		}
		return VERDICT_MASTER;
	}
	for (uint32_t i = 0; i < sm->other_count; i++)
		if (sm->others[i].state == SM_MASTER) {
			master_follow(sm, &sm->others[i]);
			return VERDICT_STANDBY;
		}
	if (!best)
		return VERDICT_MASTER;
	master_follow(sm, best);
	return VERDICT_STANDBY;
}

/* Asking the master ---------------------------------------------------------------------------- */

bool poll_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	(void)sm;
	(void)job;
	(void)mad;
	return true;
}

/* A manager that won't become the master by itself is as bad as one that doesn't answer. */
static void poll_missed(struct sm *sm)
{
	if (++sm->failures < sm->options.poll_failures)
		return;
	sm_say(sm, "the master 0x%016llx is gone", (unsigned long long)sm->master_guid);
	sm->state = SM_DISCOVERING;
	sm->wants_sweep = true;
}

void poll_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	const uint8_t *info = mad + SMP_DATA;
	uint8_t state = octet_low(info[INFO_AT_STATE]);

	(void)job;
	if (sm->state != SM_STANDBY)
		return;
	if (status || octets_get64(info + INFO_AT_GUID) != sm->master_guid || state != SM_MASTER)
		poll_missed(sm);
	else
		sm->failures = 0;
}

void poll_failed(struct sm *sm, const struct sm_job *job)
{
	(void)job;
	if (sm->state == SM_STANDBY)
		poll_missed(sm);
}

/* Handing over --------------------------------------------------------------------------------- */

bool handover_build(struct sm *sm, const struct sm_job *job, uint8_t *mad)
{
	manager_info_write(sm, mad + SMP_DATA);
	octets_put32(mad + OFFSET_MODIFIER,
		     job->kind == JOB_HANDOVER ? CONTROL_HANDOVER : CONTROL_ACKNOWLEDGE);
	return true;
}

void handover_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	(void)mad;
	if (status) {
		handover_failed(sm, job);
		return;
	}
	sm_say(sm, "handed over to 0x%016llx", (unsigned long long)sm->master_guid);
	sm->state = SM_STANDBY;
	sm->poll_ms = sm->now_ms + sm->options.poll_ms;
}

/* It stays the master, and the next sweep tries again. */
void handover_failed(struct sm *sm, const struct sm_job *job)
{
	(void)job;
	sm_say(sm, "0x%016llx doesn't take over", (unsigned long long)sm->master_guid);
}

void acknowledge_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status)
{
	(void)sm;
	(void)job;
	(void)mad;
	(void)status;
}

/* What others ask ------------------------------------------------------------------------------ */

/* The status of the answer; the state afterwards is in sm->state. */
static uint16_t control_obey(struct sm *sm, uint32_t control, const uint8_t *info)
{
	if (octets_get64(info + INFO_AT_KEY) != MANAGER_KEY)
		return 0x1c;
	switch (control) {
	case CONTROL_HANDOVER:
		if (sm->state == SM_MASTER)
			return 0;
		if (sm->state != SM_STANDBY && sm->state != SM_DISCOVERING)
			return 0x1c;
		sm->previous_master = octets_get64(info + INFO_AT_GUID);
		sm->has_handover = true;
		sm->state = SM_DISCOVERING;
		sm->wants_sweep = true;
		return 0;
	case CONTROL_ACKNOWLEDGE:
		return sm->state == SM_MASTER || sm->state == SM_STANDBY ? 0 : 0x1c;
	case CONTROL_DISABLE:
		if (sm->state != SM_STANDBY && sm->state != SM_NOT_ACTIVE)
			return 0x1c;
		sm->state = SM_NOT_ACTIVE;
		return 0;
	case CONTROL_STANDBY:
		if (sm->state != SM_NOT_ACTIVE)
			return 0x1c;
		sm->state = SM_STANDBY;
		sm->poll_ms = sm->now_ms + sm->options.poll_ms;
		return 0;
	case CONTROL_DISCOVER:
		if (sm->state != SM_STANDBY)
			return 0x1c;
		sm->state = SM_DISCOVERING;
		sm->wants_sweep = true;
		return 0;
	default:
		return 0x1c;
	}
}

void election_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad)
{
	uint8_t answer[SM_MAD_BYTES];
	uint16_t status = 0;

	memcpy(answer, mad, sizeof answer);
	if (header_method(mad) == METHOD_SET)
		status = control_obey(sm, octets_get32(mad + OFFSET_MODIFIER), mad + SMP_DATA);
	if (header_class(mad) == CLASS_SMI_DIRECTED)
		status |= STATUS_DIRECTION;
	answer[3] = METHOD_GET_RESPONSE;
	octets_put16(answer + OFFSET_STATUS, status);
	manager_info_write(sm, answer + SMP_DATA);
	sm->functions->send(sm->context, from, answer, sizeof answer, 0);
}
