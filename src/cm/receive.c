/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a message does in each state, and what an expired deadline does: the two tables of the state
 * machine. See cm.h.
 */
#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "cm/state.h"

/* ------------------------------------------------------------------ answers without an endpoint */

static void mad_answer(struct cm *cm, const struct cm_path *path, const struct cm_mad *to,
		       struct cm_mad *mad)
{
	mad->transaction = to->transaction;
	mad->remote_id = to->local_id;
	endpoint_send(cm, path, mad);
}

static void mad_refuse(struct cm *cm, const struct cm_path *path, const struct cm_mad *to,
		       uint32_t reason)
{
	struct cm_mad mad = {
		.message = CM_REJ,
		.reason = reason,
		.about = to->message == CM_REQ ? CM_ABOUT_REQ : CM_ABOUT_REP,
		.local_id = to->remote_id, /* 0 for a REQ, which has none */
	};

	mad_answer(cm, path, to, &mad);
}

/* Answers messages for a connection that doesn't exist any more, so that the peer ends it too. */
static void answer_unknown(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	struct cm_mad reply = {.local_id = mad->remote_id};

	cm->counters.unexpected++;
	switch (mad->message) {
	case CM_REP:
	case CM_RTU:
		mad_refuse(cm, path, mad, CM_REJECT_INVALID_ID);
		break;
	case CM_DREQ:
		reply.message = CM_DREP;
		mad_answer(cm, path, mad, &reply);
		break;
	case CM_LAP:
		reply.message = CM_APR;
		reply.reason = CM_APR_INVALID_ID;
		mad_answer(cm, path, mad, &reply);
		break;
	default:
		break;
	}
}

/* ------------------------------------------------------------------ requests */

/* Takes the queue pairs' parameters out of the REQ, with local and remote seen from this side. */
static void endpoint_take_request(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad)
{
	e->service_id = mad->service_id;
	e->transaction = mad->transaction;
	e->qp.transport = (uint8_t)mad->transport;
	e->qp.remote_psn = mad->psn;
	e->qp.responder_resources = (uint8_t)mad->initiator_depth;
	e->qp.initiator_depth = (uint8_t)mad->responder_resources;
	e->qp.retry_count = (uint8_t)mad->retry_count;
	e->qp.rnr_retry = (uint8_t)mad->rnr_retry;
	e->qp.mtu = (uint8_t)mad->mtu;
	e->qp.flow_label = mad->primary.flow_label;
	e->qp.traffic_class = (uint8_t)mad->primary.traffic_class;
	e->qp.hop_limit = (uint8_t)mad->primary.hop_limit;
	e->qp.ack_timeout = cm_ack_timeout(
		cm->config.ack_delay, mad->primary.ack_timeout ? mad->primary.ack_timeout - 1 : 0);
	e->timeout_ms = (uint32_t)(2 * cm_ms(cm->config.life_time) + cm_ms(mad->local_timeout));
	e->max_retries = (uint8_t)mad->max_retries;
}

/* NULL: no memory; the peer sees that as a lost packet. */
static struct cm_endpoint *open_passive(struct cm *cm, const struct cm_path *path,
					enum cm_state state)
{
	struct cm_endpoint *e = cm_open(cm, NULL);

	if (!e)
		return NULL;
	e->passive = true;
	e->path = *path;
	e->state = state;
	return e;
}

/* No owner took the request: frees the endpoint. */
static void drop_passive(struct cm *cm, struct cm_endpoint *e)
{
	e->closed = true;
	cm->orphans++;
	endpoint_idle(cm, e);
}

/* Whether the REQ's numbers that queue pairs are set to are in their ranges. */
static bool request_is_sound(const struct cm_mad *mad)
{
	bool known = mad->transport == CM_TRANSPORT_XRC
			     ? mad->extended_transport == CM_EXTENDED_XRC
			     : mad->transport <= CM_TRANSPORT_UC && !mad->extended_transport;

	return known && mad->mtu >= 1 && mad->mtu <= 5;
}

static void cm_on_request(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad,
			  uint64_t now)
{
	struct cm_endpoint *old = endpoint_by_qpn(cm, path, mad->qpn, mad->ca_guid);

	if (!request_is_sound(mad)) {
		mad_refuse(cm, path, mad, CM_REJECT_UNSUPPORTED);
		return;
	}
	/* The peer's queue pair begins a new connection: the one that still exists here is
	 * stale. */
	if (mad->qpn && old) {
		cm->counters.stale++;
		mad_refuse(cm, path, mad, CM_REJECT_STALE);
		cm_disconnect(cm, old, now);
		return;
	}
	struct cm_endpoint *e = open_passive(cm, path, CM_REQ_RCVD);

	if (!e)
		return;
	endpoint_take_request(cm, e, mad);
	endpoint_set_peer(cm, e, mad->local_id, mad->ca_guid, mad->qpn);
	int reason = cm->ops->request(cm->arg, e, mad);

	if (reason > 0)
		mad_refuse(cm, path, mad, (uint32_t)reason);
	if (reason)
		drop_passive(cm, e);
}

/* A SIDR_REQ has no GUID, so its sender is identified by its address. */
static uint64_t address_number(const struct cm_path *path)
{
	uint64_t halves[2];

	memcpy(halves, path->remote, sizeof(halves));
	return index_mix(halves[0]) + halves[1];
}

static void on_sidr_request(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad,
			    uint64_t now)
{
	struct cm_endpoint *e = open_passive(cm, path, CM_SIDR_REQ_RCVD);

	if (!e)
		return;
	e->service_id = mad->service_id;
	e->transaction = mad->transaction;
	endpoint_set_peer(cm, e, mad->local_id, address_number(path), 0);
	int status = cm->ops->request(cm->arg, e, mad);

	if (!status)
		return;
	if (status > 0) {
		cm_sidr_answer(cm, e, status, 0, 0, NULL, now);
		e->state = CM_SIDR_REQ_RCVD; /* not kept: a repeat is decided anew */
	}
	drop_passive(cm, e);
}

/* ------------------------------------------------------------------ the table of messages */

typedef void act(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now);

static void answer_again(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			 uint64_t now)
{
	(void)mad, (void)now;
	cm->counters.duplicates++;
	cm->ops->send(cm->arg, &e->path, e->sent);
}

static void ask_for_time(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			 uint64_t now)
{
	(void)mad, (void)now;
	cm->counters.duplicates++;
	e->state = e->passive ? CM_MRA_REQ_SENT : CM_MRA_REP_SENT;
	endpoint_send_mra(cm, e, e->passive ? CM_ABOUT_REQ : CM_ABOUT_REP);
}

static void say_stale(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	(void)now;
	cm->counters.stale++;
	mad_refuse(cm, &e->path, mad, CM_REJECT_STALE);
}

/* The peer still has a connection that doesn't exist here any more. */
static void say_gone(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	(void)now;
	mad_refuse(cm, &e->path, mad, CM_REJECT_INVALID_ID);
}

/*
 * Sets the deadline while the peer takes more time (MRA). The active side waits for the REP, which
 * the peer repeats by itself. The passive side waits for an RTU, which the peer doesn't repeat by
 * itself: so it goes on repeating the REP, to which the peer answers with an MRA or again with its
 * RTU.
 */
static void endpoint_wait_for_peer(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	uint64_t next = now + e->timeout_ms / 4;

	if (!e->passive || next > e->excused_until)
		next = e->excused_until;
	endpoint_linger(cm, e, next);
}

/* An MRA: the peer asks for more time. */
static void give_time(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	bool passive = e->passive;

	if (mad->about != (passive ? CM_ABOUT_REP : CM_ABOUT_REQ))
		return;
	bool again = e->state == CM_MRA_REP_RCVD && now < e->excused_until;

	endpoint_enter(cm, e, passive ? CM_MRA_REP_RCVD : CM_MRA_REQ_RCVD);
	if (!again) /* only the first MRA extends the time */
		e->excused_until = now + cm_ms(mad->service_timeout) + cm_ms(cm->config.life_time);
	endpoint_wait_for_peer(cm, e, now);
}

static void on_reply(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	(void)now;
	if (mad->qpn && endpoint_by_qpn(cm, &e->path, mad->qpn, mad->ca_guid)) {
		mad_refuse(cm, &e->path, mad, CM_REJECT_STALE);
		if (endpoint_idle(cm, e))
			endpoint_event(cm, e, CM_EVENT_UNREACHABLE, -ECONNRESET, NULL);
		return;
	}
	endpoint_enter(cm, e, CM_REP_RCVD);
	endpoint_set_peer(cm, e, mad->local_id, mad->ca_guid, mad->qpn);
	e->qp.remote_psn = mad->psn;
	e->qp.initiator_depth = (uint8_t)mad->responder_resources;
	e->qp.responder_resources = (uint8_t)mad->initiator_depth;
	e->qp.rnr_retry = (uint8_t)mad->rnr_retry;
	e->qp.ack_timeout = cm_ack_timeout(mad->target_ack_delay, e->qp.ack_timeout - 1u);
	endpoint_event(cm, e, CM_EVENT_REP, 0, mad);
}

/* The REP came again: the RTU was lost. */
static void confirm_again(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			  uint64_t now)
{
	(void)mad, (void)now;
	cm->counters.duplicates++;
	if (!e->passive)
		endpoint_send_short(cm, e, CM_RTU);
}

static void endpoint_on_ready(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			      uint64_t now)
{
	(void)mad, (void)now;
	endpoint_enter(cm, e, CM_ESTABLISHED);
	endpoint_event(cm, e, CM_EVENT_ESTABLISHED, 0, NULL);
}

static void on_reject(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	if (mad->reason == CM_REJECT_STALE)
		endpoint_timewait(cm, e, now);
	else if (!endpoint_idle(cm, e))
		return;
	endpoint_event(cm, e, CM_EVENT_REJECTED, (int)mad->reason, mad);
}

/* The peer doesn't have the connection any more. */
static void on_reject_late(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			   uint64_t now)
{
	(void)mad;
	endpoint_timewait(cm, e, now);
	endpoint_disconnected(cm, e, 0);
}

static void on_disconnect(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			  uint64_t now)
{
	if (mad->qpn != e->qp.local_qpn) {
		cm->counters.unexpected++;
		return;
	}
	e->transaction = mad->transaction;
	endpoint_enter(cm, e, CM_DREQ_RCVD);
	(void)now;
	endpoint_disconnected(cm, e, 0);
}

/* Both sides began to disconnect: each answers the other. */
static void on_disconnect_both(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			       uint64_t now)
{
	if (mad->qpn != e->qp.local_qpn)
		return;
	e->transaction = mad->transaction;
	endpoint_answer_disconnect(cm, e, now);
	endpoint_timewait(cm, e, now);
	endpoint_disconnected(cm, e, 0);
}

static void answer_disconnect(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			      uint64_t now)
{
	(void)mad;
	endpoint_answer_disconnect(cm, e, now);
}

static void on_disconnected(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			    uint64_t now)
{
	(void)mad;
	endpoint_timewait(cm, e, now);
	endpoint_disconnected(cm, e, 0);
}

static void endpoint_on_sidr_reply(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
				   uint64_t now)
{
	(void)now;
	if (mad->service_id != e->service_id && mad->reason == CM_SIDR_SUCCESS) {
		cm->counters.unexpected++;
		return;
	}
	if (endpoint_idle(cm, e))
		endpoint_event(cm, e, CM_EVENT_SIDR_REP, 0, mad);
}

/*
 * Whether the LAP is older than the last one: the network has delayed a copy of it, and its sender
 * waits for no answer any more. The transactions of a connection's LAPs count up
 * (cm_load_alternate()), or are all the same (Linux). The upper half is the agent's on the way.
 */
static bool is_old_load(const struct cm_endpoint *e, const struct cm_mad *mad)
{
	enum { OLD_LOADS = 256 }; /* a peer that draws its transactions hardly meets one of these */
	uint32_t behind = (uint32_t)e->load_transaction - (uint32_t)mad->transaction;

	return e->has_loaded && behind && behind <= OLD_LOADS;
}

/*
 * A LAP. One that comes again after its answer is the owner's again: Linux begins all its LAPs with
 * the same transaction, so that a repeat can't be told from another wish for the same path. On
 * Ethernet there are none, and Linux doesn't answer one either.
 */
static void on_load(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	(void)now;
	if (!e->path.node) {
		cm->counters.unexpected++;
		return;
	}
	if (is_old_load(e, mad)) {
		cm->counters.duplicates++;
		return;
	}
	switch (e->lap) {
	case CM_LAP_SENT: /* each side waits for the other's answer: the peer may not ask now */
	case CM_LAP_MRA_RCVD:
		cm->counters.unexpected++;
		return;
	case CM_LAP_RCVD:
	case CM_LAP_MRA_SENT:
		cm->counters.duplicates++;
		e->lap = CM_LAP_MRA_SENT;
		endpoint_send_mra(cm, e, CM_ABOUT_LAP);
		return;
	case CM_LAP_NONE:
		break;
	}
	if (mad->qpn != e->qp.local_qpn) {
		endpoint_send_apr(cm, e, mad->transaction, CM_APR_INVALID_QPN);
		return;
	}
	e->load_transaction = mad->transaction;
	e->has_loaded = true;
	e->lap = CM_LAP_RCVD;
	endpoint_event(cm, e, CM_EVENT_LOAD, 0, mad);
}

/* The LAP isn't repeated any more. */
static void endpoint_end_load(struct cm *cm, struct cm_endpoint *e)
{
	deadline_clear(&cm->deadlines, &e->deadline);
	e->early = 0;
	e->lap = CM_LAP_NONE;
}

/* The upper half of a transaction is the agent's on the way, as with umad. */
static void on_loaded(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad, uint64_t now)
{
	(void)now;
	if ((e->lap != CM_LAP_SENT && e->lap != CM_LAP_MRA_RCVD) ||
	    (uint32_t)mad->transaction != (uint32_t)e->load_transaction) {
		cm->counters.unexpected++;
		return;
	}
	endpoint_end_load(cm, e);
	endpoint_event(cm, e, CM_EVENT_LOADED, 0, mad);
}

/* An MRA: the peer asks for more time to answer a LAP. */
static void give_time_to_load(struct cm *cm, struct cm_endpoint *e, const struct cm_mad *mad,
			      uint64_t now)
{
	if (mad->about != CM_ABOUT_LAP || e->lap != CM_LAP_SENT)
		return;
	endpoint_end_load(cm, e);
	e->lap = CM_LAP_MRA_RCVD;
	endpoint_linger(cm, e, now + cm_ms(mad->service_timeout) + cm_ms(cm->config.life_time));
}

/* A message that isn't in the table is counted as unexpected and ignored. */
static act *const acts[CM_STATES][CM_MESSAGES] = {
	[CM_REQ_SENT] = {[CM_MRA] = give_time, [CM_REP] = on_reply, [CM_REJ] = on_reject},
	[CM_MRA_REQ_RCVD] = {[CM_MRA] = give_time, [CM_REP] = on_reply, [CM_REJ] = on_reject},
	[CM_REQ_RCVD] = {[CM_REQ] = ask_for_time, [CM_REJ] = on_reject},
	[CM_MRA_REQ_SENT] = {[CM_REQ] = ask_for_time, [CM_REJ] = on_reject},
	[CM_REP_SENT] = {[CM_REQ] = answer_again,
			 [CM_MRA] = give_time,
			 [CM_RTU] = endpoint_on_ready,
			 [CM_REJ] = on_reject,
			 [CM_DREQ] = on_disconnect},
	[CM_MRA_REP_RCVD] = {[CM_REQ] = answer_again,
			     [CM_MRA] = give_time,
			     [CM_RTU] = endpoint_on_ready,
			     [CM_REJ] = on_reject,
			     [CM_DREQ] = on_disconnect},
	[CM_REP_RCVD] = {[CM_REP] = ask_for_time, [CM_REJ] = on_reject},
	[CM_MRA_REP_SENT] = {[CM_REP] = ask_for_time, [CM_REJ] = on_reject},
	[CM_ESTABLISHED] = {[CM_MRA] = give_time_to_load,
			    [CM_REP] = confirm_again,
			    [CM_REJ] = on_reject_late,
			    [CM_DREQ] = on_disconnect,
			    [CM_LAP] = on_load,
			    [CM_APR] = on_loaded},
	[CM_DREQ_SENT] = {[CM_REJ] = on_reject_late,
			  [CM_DREQ] = on_disconnect_both,
			  [CM_DREP] = on_disconnected},
	[CM_DREQ_RCVD] = {[CM_DREP] = on_disconnected},
	[CM_IDLE] = {[CM_REP] = say_gone, [CM_RTU] = say_gone, [CM_DREQ] = answer_disconnect},
	[CM_TIMEWAIT] = {[CM_REQ] = say_stale, [CM_RTU] = say_gone, [CM_DREQ] = answer_disconnect},
	[CM_SIDR_REQ_SENT] = {[CM_SIDR_REP] = endpoint_on_sidr_reply},
	[CM_SIDR_REP_SENT] = {[CM_SIDR_REQ] = answer_again},
};

/* ------------------------------------------------------------------ receiving */

/* Finds the endpoint that a message is for. A REJ for a timeout may carry only its sender's id. */
static struct cm_endpoint *endpoint_find_for(const struct cm *cm, const struct cm_path *path,
					     const struct cm_mad *mad)
{
	uint64_t guid = 0;

	switch (mad->message) {
	case CM_REQ:
		return endpoint_by_peer(cm, path, mad->local_id, mad->ca_guid, false);
	case CM_SIDR_REQ:
		return endpoint_by_peer(cm, path, mad->local_id, address_number(path), true);
	case CM_SIDR_REP:
		return endpoint_by_id(cm, mad->local_id);
	case CM_REJ:
		if (mad->remote_id || mad->reason != CM_REJECT_TIMEOUT || mad->info_length < 8)
			break;
		for (int i = 0; i < 8; i++)
			guid = guid << 8 | mad->ari[i];
		return endpoint_by_peer(cm, path, mad->local_id, guid, false);
	default:
		break;
	}
	return endpoint_by_id(cm, mad->remote_id);
}

/* Whether the message can come from this endpoint's peer. */
static bool endpoint_is_from_peer(const struct cm_endpoint *e, const struct cm_path *path,
				  const struct cm_mad *mad)
{
	bool request = mad->message == CM_REQ || mad->message == CM_SIDR_REQ;
	bool knows_peer = e->by_peer.in && mad->message != CM_SIDR_REP;

	return endpoint_is_at(e, path) && (!request || e->passive) &&
	       (!knows_peer || !mad->local_id || mad->local_id == e->remote_id);
}

void cm_receive(struct cm *cm, const struct cm_path *path, const uint8_t bytes[MAD_SIZE],
		uint64_t now)
{
	struct cm_mad mad;
	enum cm_mad_error error = cm_mad_decode(bytes, &mad);

	if (error != CM_MAD_OK) {
		cm->counters.malformed[error]++;
		return;
	}
	cm->counters.received[mad.message]++;
	if (mad.message == CM_REJ)
		cm->counters.rejects_received[mad.reason < CM_REASONS ? mad.reason : 0]++;
	struct cm_endpoint *e = endpoint_find_for(cm, path, &mad);

	if (e && !endpoint_is_from_peer(e, path, &mad)) {
		cm->counters.unexpected++;
		return;
	}
	if (e && acts[e->state][mad.message])
		acts[e->state][mad.message](cm, e, &mad, now);
	else if (e)
		cm->counters.unexpected++;
	else if (mad.message == CM_REQ)
		cm_on_request(cm, path, &mad, now);
	else if (mad.message == CM_SIDR_REQ)
		on_sidr_request(cm, path, &mad, now);
	else
		answer_unknown(cm, path, &mad);
}

/* ------------------------------------------------------------------ the table of deadlines */

typedef void late(struct cm *cm, struct cm_endpoint *e, uint64_t now);

static void late_answer(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	(void)now;
	cm->counters.given_up++;
	if (!state_is_sidr(e->state))
		endpoint_send_reject(cm, e, CM_REJECT_TIMEOUT,
				     e->passive ? CM_ABOUT_OTHER : CM_ABOUT_REQ, NULL);
	if (endpoint_idle(cm, e))
		endpoint_event(cm, e, CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
}

/* The peer doesn't answer a LAP. The connection goes on. */
static void late_load(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	(void)now;
	cm->counters.given_up++;
	endpoint_end_load(cm, e);
	endpoint_event(cm, e, CM_EVENT_LOADED, -ETIMEDOUT, NULL);
}

static void late_disconnect(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	cm->counters.given_up++;
	endpoint_timewait(cm, e, now);
	endpoint_disconnected(cm, e, -ETIMEDOUT);
}

static void end_timewait(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	(void)now;
	if (endpoint_idle(cm, e))
		endpoint_event(cm, e, CM_EVENT_TIMEWAIT_EXIT, 0, NULL);
}

static void endpoint_forget(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	(void)now;
	endpoint_idle(cm, e);
}

/* At a deadline the message of state `as` is repeated while repeats are left; then `end` is
 * called. */
static const struct {
	late *end;
	enum cm_state as;
} lates[CM_STATES] = {
	[CM_REQ_SENT] = {late_answer, CM_REQ_SENT},
	[CM_MRA_REQ_RCVD] = {late_answer, CM_REQ_SENT},
	[CM_REP_SENT] = {late_answer, CM_REP_SENT},
	[CM_MRA_REP_RCVD] = {late_answer, CM_REP_SENT},
	[CM_ESTABLISHED] = {late_load, CM_ESTABLISHED},
	[CM_DREQ_SENT] = {late_disconnect, CM_DREQ_SENT},
	[CM_TIMEWAIT] = {end_timewait, CM_IDLE},
	[CM_SIDR_REQ_SENT] = {late_answer, CM_SIDR_REQ_SENT},
	[CM_SIDR_REP_SENT] = {endpoint_forget, CM_IDLE},
};

static void endpoint_repeat(struct cm *cm, const struct cm_endpoint *e)
{
	cm->counters.repeated++;
	cm->ops->send(cm->arg, &e->path, e->sent);
}

/* Sends an early repeat and sets the next deadline; the first timeout stays where it was. */
static void repeat_early(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	uint32_t quarter = e->timeout_ms / 4;

	e->early--;
	endpoint_linger(cm, e,
			now + (e->early ? quarter - e->timeout_ms / 16 : e->timeout_ms - quarter));
	endpoint_repeat(cm, e);
}

static void endpoint_on_deadline(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	enum cm_state as = lates[e->state].as;

	if (e->state == CM_MRA_REP_RCVD && now < e->excused_until) {
		endpoint_wait_for_peer(cm, e, now);
		endpoint_repeat(cm, e);
		return;
	}
	if (e->early) {
		repeat_early(cm, e, now);
		return;
	}
	if (as == CM_IDLE || !e->retries_left) {
		lates[e->state].end(cm, e, now);
		return;
	}
	e->retries_left--;
	e->state = as;
	if (e->lap == CM_LAP_MRA_RCVD)
		e->lap = CM_LAP_SENT;
	endpoint_linger(cm, e, now + e->timeout_ms);
	endpoint_repeat(cm, e);
}

bool cm_deadline(const struct cm *cm, uint64_t *at_ms)
{
	const struct deadline *first = deadlines_first(&cm->deadlines);

	if (first)
		*at_ms = first->at_ms;
	return first;
}

/* More than these wait for the next call, so that other users' requests come in between. */
enum { CM_TICK_MAX = 64 };

void cm_tick(struct cm *cm, uint64_t now)
{
	struct deadline *first;

	for (int i = 0;
	     i < CM_TICK_MAX && (first = deadlines_first(&cm->deadlines)) && first->at_ms <= now;
	     i++) {
		struct cm_endpoint *e = container_of(first, struct cm_endpoint, deadline);

		deadline_clear(&cm->deadlines, first);
		endpoint_on_deadline(cm, e, now);
	}
}
