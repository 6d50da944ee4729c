/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints and their owners' commands. See cm.h. */
#include "cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cm/state.h"

enum { HOP_LIMIT = 64, RATE = 0, LID = 0xffff, PKEY = 0xffff };

uint64_t cm_ms(uint32_t exponent)
{
	return (uint64_t)1 << (exponent > 8 ? exponent - 8 : 0);
}

/* Twice the life time plus the peer's delay; the addition of powers of two is rounded up. */
uint8_t cm_ack_timeout(uint32_t delay, uint32_t life_time)
{
	uint32_t way = life_time + 1;
	uint32_t sum = way >= delay ? way + (delay >= way - 1) : delay + (way >= delay - 1);

	return sum < 31 ? (uint8_t)sum : 31;
}

const char *cm_state_name(enum cm_state state)
{
	static const char *const names[] = {
		[CM_IDLE] = "idle",
		[CM_REQ_SENT] = "REQ sent",
		[CM_MRA_REQ_RCVD] = "MRA(REQ) received",
		[CM_REQ_RCVD] = "REQ received",
		[CM_MRA_REQ_SENT] = "MRA(REQ) sent",
		[CM_REP_SENT] = "REP sent",
		[CM_MRA_REP_RCVD] = "MRA(REP) received",
		[CM_REP_RCVD] = "REP received",
		[CM_MRA_REP_SENT] = "MRA(REP) sent",
		[CM_ESTABLISHED] = "established",
		[CM_DREQ_SENT] = "DREQ sent",
		[CM_DREQ_RCVD] = "DREQ received",
		[CM_TIMEWAIT] = "timewait",
		[CM_SIDR_REQ_SENT] = "SIDR_REQ sent",
		[CM_SIDR_REQ_RCVD] = "SIDR_REQ received",
		[CM_SIDR_REP_SENT] = "SIDR_REP sent",
	};

	_Static_assert(sizeof(names) / sizeof(names[0]) == CM_STATES, "every state has a name");
	return names[state];
}

bool state_is_sidr(enum cm_state state)
{
	return state == CM_SIDR_REQ_SENT || state == CM_SIDR_REQ_RCVD || state == CM_SIDR_REP_SENT;
}

/* ------------------------------------------------------------------ indices */

static uint64_t peer_key(uint64_t number, uint64_t guid, bool sidr)
{
	return index_mix(guid + sidr) ^ number;
}

struct cm_endpoint *endpoint_by_id(const struct cm *cm, uint32_t local_id)
{
	struct index_node *node = index_first(&cm->by_id, local_id);

	return node ? container_of(node, struct cm_endpoint, by_id) : NULL;
}

bool endpoint_is_at(const struct cm_endpoint *e, const struct cm_path *path)
{
	if (e->has_alternate && !memcmp(e->alternate.remote, path->remote, 16))
		return true;
	return e->path.on_host == path->on_host && !memcmp(e->path.remote, path->remote, 16);
}

struct cm_endpoint *endpoint_by_peer(const struct cm *cm, const struct cm_path *path,
				     uint32_t remote_id, uint64_t guid, bool sidr)
{
	struct index_node *node = index_first(&cm->by_peer, peer_key(remote_id, guid, sidr));

	for (; node; node = index_next(node)) {
		struct cm_endpoint *e = container_of(node, struct cm_endpoint, by_peer);

		if (e->remote_id == remote_id && e->remote_guid == guid &&
		    state_is_sidr(e->state) == sidr && endpoint_is_at(e, path))
			return e;
	}
	return NULL;
}

struct cm_endpoint *endpoint_by_qpn(const struct cm *cm, const struct cm_path *path, uint32_t qpn,
				    uint64_t guid)
{
	struct index_node *node = index_first(&cm->by_qpn, peer_key(qpn, guid, false));

	for (; node; node = index_next(node)) {
		struct cm_endpoint *e = container_of(node, struct cm_endpoint, by_qpn);

		if (e->qp.remote_qpn == qpn && e->remote_guid == guid && endpoint_is_at(e, path))
			return e;
	}
	return NULL;
}

void endpoint_set_peer(struct cm *cm, struct cm_endpoint *e, uint32_t remote_id, uint64_t guid,
		       uint32_t qpn)
{
	e->remote_id = remote_id;
	e->remote_guid = guid;
	e->qp.remote_qpn = qpn;
	index_add(&cm->by_peer, &e->by_peer, peer_key(remote_id, guid, state_is_sidr(e->state)));
	if (qpn)
		index_add(&cm->by_qpn, &e->by_qpn, peer_key(qpn, guid, false));
}

/* ------------------------------------------------------------------ life */

int cm_init(struct cm *cm, const struct cm_config *config, const struct cm_ops *ops, void *arg)
{
	*cm = (struct cm){.config = *config, .ops = ops, .arg = arg, .last_id = CM_IDS_START};
	int err = index_init(&cm->by_id);

	if (!err)
		err = index_init(&cm->by_peer);
	if (!err)
		err = index_init(&cm->by_qpn);
	if (err)
		cm_fini(cm);
	return err;
}

static void endpoint_free(struct cm *cm, struct cm_endpoint *e)
{
	deadline_clear(&cm->deadlines, &e->deadline);
	index_remove(&cm->by_id, &e->by_id);
	index_remove(&cm->by_peer, &e->by_peer);
	index_remove(&cm->by_qpn, &e->by_qpn);
	cm->endpoints--;
	cm->orphans -= e->closed;
	free(e);
}

void cm_fini(struct cm *cm)
{
	for (uint32_t i = 0; cm->by_id.buckets && i < cm->by_id.size; i++)
		while (cm->by_id.buckets[i])
			endpoint_free(
				cm, container_of(cm->by_id.buckets[i], struct cm_endpoint, by_id));
	index_fini(&cm->by_id);
	index_fini(&cm->by_peer);
	index_fini(&cm->by_qpn);
	deadlines_fini(&cm->deadlines);
}

/* Ids: each number once in 2^32, in an order that can't be guessed without the seed. */
static uint32_t next_id(struct cm *cm)
{
	uint32_t id;

	do {
		uint32_t x = ++cm->last_id ^ (uint32_t)cm->config.seed;

		x = (x ^ x >> 16) * 0x7feb352du;
		x = (x ^ (uint32_t)(cm->config.seed >> 32) ^ x >> 15) * 0x846ca68bu;
		id = x ^ x >> 16;
	} while (!id || endpoint_by_id(cm, id));
	return id;
}

struct cm_endpoint *cm_open(struct cm *cm, void *owner)
{
	struct cm_endpoint *e = calloc(1, sizeof(*e));

	if (!e || deadlines_reserve(&cm->deadlines, cm->endpoints + 1)) {
		free(e);
		return NULL;
	}
	e->owner = owner;
	e->loads = CM_LOADS_START;
	e->local_id = next_id(cm);
	e->transaction = e->local_id;
	index_add(&cm->by_id, &e->by_id, e->local_id);
	cm->endpoints++;
	return e;
}

void endpoint_enter(struct cm *cm, struct cm_endpoint *e, enum cm_state state)
{
	deadline_clear(&cm->deadlines, &e->deadline);
	e->state = state;
	e->lap = CM_LAP_NONE;
	e->early = 0;
}

bool endpoint_idle(struct cm *cm, struct cm_endpoint *e)
{
	endpoint_enter(cm, e, CM_IDLE);
	index_remove(&cm->by_peer, &e->by_peer);
	index_remove(&cm->by_qpn, &e->by_qpn);
	if (e->closed)
		endpoint_free(cm, e);
	else
		return true;
	return false;
}

void endpoint_linger(struct cm *cm, struct cm_endpoint *e, uint64_t at_ms)
{
	deadline_set(&cm->deadlines, &e->deadline, at_ms);
}

void endpoint_timewait(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	endpoint_enter(cm, e, CM_TIMEWAIT);
	endpoint_linger(cm, e, now + cm_ms(e->qp.ack_timeout));
}

void endpoint_event(struct cm *cm, struct cm_endpoint *e, enum cm_event_type type, int status,
		    const struct cm_mad *mad)
{
	const struct cm_event event = {type, status, mad};

	if (!e->closed)
		cm->ops->event(cm->arg, e, &event);
}

void endpoint_disconnected(struct cm *cm, struct cm_endpoint *e, int status)
{
	bool said = e->disconnected;

	e->disconnected = true;
	if (!said)
		endpoint_event(cm, e, CM_EVENT_DISCONNECTED, status, NULL);
}

/* ------------------------------------------------------------------ sending */

void endpoint_send(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad)
{
	uint8_t bytes[MAD_SIZE];

	cm_mad_encode(mad, bytes);
	cm->counters.sent[mad->message]++;
	if (mad->message == CM_REJ)
		cm->counters.rejects_sent[mad->reason < CM_REASONS ? mad->reason : 0]++;
	cm->ops->send(cm->arg, path, bytes);
}

void endpoint_ask(struct cm *cm, struct cm_endpoint *e, enum cm_state state,
		  const struct cm_mad *mad, uint64_t now)
{
	endpoint_enter(cm, e, state);
	cm_mad_encode(mad, e->sent);
	e->retries_left = e->max_retries;
	e->early = e->timeout_ms < EARLY_MS_MIN ? 0 : EARLY_REPEATS;
	endpoint_linger(cm, e, now + (e->early ? e->timeout_ms / 16 : e->timeout_ms));
	cm->counters.sent[mad->message]++;
	cm->ops->send(cm->arg, &e->path, e->sent);
}

struct cm_mad endpoint_mad(const struct cm_endpoint *e, enum cm_message message)
{
	return (struct cm_mad){
		.message = message,
		.transaction = e->transaction,
		.local_id = e->local_id,
		.remote_id = e->remote_id,
	};
}

static int mad_put_private(struct cm_mad *mad, uint32_t at, const struct cm_private *p)
{
	if (!p || !p->size)
		return 0;
	if (at + p->size > cm_private_size(mad->message))
		return -EINVAL;
	memcpy(mad->private_data + at, p->data, p->size);
	return 0;
}

/* A REJ for a timeout also carries this side's identity, because the peer may not know our id
 * yet. */
void endpoint_send_reject(struct cm *cm, struct cm_endpoint *e, enum cm_reject reason,
			  enum cm_about about, const struct cm_private *private_data)
{
	struct cm_mad mad = endpoint_mad(e, CM_REJ);

	mad.reason = reason;
	mad.about = about;
	mad_put_private(&mad, 0, private_data);
	if (reason == CM_REJECT_TIMEOUT) {
		mad.info_length = 8;
		for (int i = 0; i < 8; i++)
			mad.ari[i] = (uint8_t)(cm->config.guid >> (56 - 8 * i));
	}
	endpoint_send(cm, &e->path, &mad);
}

void endpoint_send_mra(struct cm *cm, struct cm_endpoint *e, enum cm_about about)
{
	struct cm_mad mad = endpoint_mad(e, CM_MRA);

	mad.about = about;
	mad.service_timeout = MRA_SERVICE_TIMEOUT;
	endpoint_send(cm, &e->path, &mad);
}

void endpoint_send_short(struct cm *cm, const struct cm_endpoint *e, enum cm_message message)
{
	const struct cm_mad mad = endpoint_mad(e, message);

	endpoint_send(cm, &e->path, &mad);
}

void endpoint_send_apr(struct cm *cm, const struct cm_endpoint *e, uint64_t transaction,
		       enum cm_apr_status status)
{
	struct cm_mad mad = endpoint_mad(e, CM_APR);

	mad.transaction = transaction;
	mad.reason = status;
	endpoint_send(cm, &e->path, &mad);
}

/* The timeout: the way there and back, and the time that the peer may take to answer. */
static uint32_t cm_timeout_ms(const struct cm_config *config)
{
	return (uint32_t)(2 * cm_ms(config->life_time) + cm_ms(config->response_timeout));
}

/* An answer that the peer doesn't answer in turn is sent: the peer repeats its message if the
 * answer is lost. The half timeout is for the way there and for late timers. */
static void endpoint_note_answer(struct cm *cm, const struct cm_endpoint *e, uint64_t now)
{
	const uint64_t until = now + 5 * (uint64_t)cm_timeout_ms(&cm->config) / 2;

	if (!e->path.on_host && until > cm->answered_until)
		cm->answered_until = until;
}

void endpoint_answer_disconnect(struct cm *cm, const struct cm_endpoint *e, uint64_t now)
{
	endpoint_note_answer(cm, e, now);
	endpoint_send_short(cm, e, CM_DREP);
}

/* ------------------------------------------------------------------ connecting */

static void set_patience(struct cm_endpoint *e, const struct cm_config *config)
{
	e->timeout_ms = cm_timeout_ms(config);
	e->max_retries = config->max_retries;
}

static uint16_t path_pkey(const struct cm_path *path)
{
	return path->node ? path->pkey : PKEY;
}

static void fill_path(struct cm_mad_path *to, const struct cm_endpoint *e)
{
	*to = (struct cm_mad_path){
		.local_lid = LID,
		.remote_lid = LID,
		.flow_label = e->qp.flow_label,
		.traffic_class = e->qp.traffic_class,
		.hop_limit = e->qp.hop_limit,
		.rate = RATE,
		.ack_timeout = e->qp.ack_timeout,
	};
	if (e->path.node) {
		to->local_lid = e->path.local_lid;
		to->remote_lid = e->path.remote_lid;
		to->sl = e->path.sl;
		to->rate = e->path.rate;
		to->subnet_local = 1;
	}
	memcpy(to->local_gid, e->path.local, 16);
	memcpy(to->remote_gid, e->path.remote, 16);
}

int cm_connect(struct cm *cm, struct cm_endpoint *e, const struct cm_connect *c, uint64_t now)
{
	const struct cm_config *config = &cm->config;
	struct cm_mad mad = endpoint_mad(e, CM_REQ);

	if (e->state != CM_IDLE || mad_put_private(&mad, 0, &c->private_data))
		return -EINVAL;
	e->path = c->path;
	e->qp = c->qp;
	e->qp.hop_limit = HOP_LIMIT;
	if (!e->qp.ack_timeout)
		e->qp.ack_timeout = cm_ack_timeout(config->ack_delay, config->life_time);
	e->service_id = c->service_id;
	e->disconnected = e->has_alternate = false;
	set_patience(e, config);
	mad.service_id = c->service_id;
	mad.ca_guid = config->guid;
	mad.qpn = c->qp.local_qpn;
	mad.psn = c->qp.local_psn;
	mad.transport = c->qp.transport;
	mad.extended_transport =
		c->qp.transport == CM_TRANSPORT_XRC ? CM_EXTENDED_XRC : CM_EXTENDED_NONE;
	mad.responder_resources = c->qp.responder_resources;
	mad.initiator_depth = c->qp.initiator_depth;
	mad.remote_timeout = mad.local_timeout = config->response_timeout;
	mad.max_retries = config->max_retries;
	mad.flow_control = c->flow_control;
	mad.srq = c->srq;
	mad.retry_count = c->qp.retry_count;
	mad.rnr_retry = c->qp.rnr_retry;
	mad.pkey = path_pkey(&c->path);
	mad.mtu = c->qp.mtu;
	mad.vendor_id = c->vendor_id;
	mad.attribute_modifier = c->vendor_option;
	fill_path(&mad.primary, e);
	endpoint_ask(cm, e, CM_REQ_SENT, &mad, now);
	return 0;
}

int cm_accept(struct cm *cm, struct cm_endpoint *e, const struct cm_accept *a, uint64_t now)
{
	struct cm_mad mad = endpoint_mad(e, CM_REP);

	if ((e->state != CM_REQ_RCVD && e->state != CM_MRA_REQ_SENT) ||
	    mad_put_private(&mad, 0, &a->private_data))
		return -EINVAL;
	e->qp.local_qpn = a->qpn;
	e->qp.local_psn = a->psn;
	e->qp.responder_resources = a->responder_resources;
	e->qp.initiator_depth = a->initiator_depth;
	mad.qpn = a->qpn;
	mad.psn = a->psn;
	mad.responder_resources = a->responder_resources;
	mad.initiator_depth = a->initiator_depth;
	mad.target_ack_delay = cm->config.ack_delay;
	mad.flow_control = a->flow_control;
	mad.rnr_retry = a->rnr_retry;
	mad.srq = a->srq;
	mad.ca_guid = cm->config.guid;
	mad.vendor_id_h = a->vendor_id >> 16;
	mad.vendor_id_m = a->vendor_id >> 8;
	mad.vendor_id_l = a->vendor_id;
	mad.attribute_modifier = a->vendor_option;
	endpoint_ask(cm, e, CM_REP_SENT, &mad, now);
	return 0;
}

int cm_confirm(struct cm *cm, struct cm_endpoint *e)
{
	if (e->state != CM_REP_RCVD && e->state != CM_MRA_REP_SENT)
		return -EINVAL;
	endpoint_enter(cm, e, CM_ESTABLISHED);
	endpoint_send_short(cm, e, CM_RTU);
	return 0;
}

int cm_establish(struct cm *cm, struct cm_endpoint *e)
{
	if (e->state == CM_ESTABLISHED)
		return -EISCONN;
	if (e->state != CM_REP_SENT && e->state != CM_MRA_REP_RCVD)
		return -EINVAL;
	endpoint_enter(cm, e, CM_ESTABLISHED);
	endpoint_event(cm, e, CM_EVENT_ESTABLISHED, 0, NULL);
	return 0;
}

int cm_reject(struct cm *cm, struct cm_endpoint *e, enum cm_reject reason,
	      const struct cm_private *private_data, uint64_t now)
{
	if (private_data && private_data->size > cm_private_size(CM_REJ))
		return -EINVAL;
	endpoint_note_answer(cm, e, now);
	switch (e->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
		endpoint_send_reject(cm, e, reason, e->passive ? CM_ABOUT_REQ : CM_ABOUT_OTHER,
				     private_data);
		endpoint_idle(cm, e);
		return 0;
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		endpoint_send_reject(cm, e, reason, CM_ABOUT_REP, private_data);
		endpoint_idle(cm, e);
		return 0;
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		endpoint_send_reject(cm, e, reason, CM_ABOUT_OTHER, private_data);
		endpoint_timewait(cm, e, now);
		return 0;
	default:
		return -EINVAL;
	}
}

int cm_disconnect(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	struct cm_mad mad = endpoint_mad(e, CM_DREQ);

	if (e->state == CM_DREQ_RCVD) {
		endpoint_answer_disconnect(cm, e, now);
		endpoint_timewait(cm, e, now);
		return 0;
	}
	if (e->state != CM_ESTABLISHED)
		return -EINVAL;
	mad.qpn = e->qp.remote_qpn;
	set_patience(e, &cm->config);
	endpoint_ask(cm, e, CM_DREQ_SENT, &mad, now);
	return 0;
}

/* ------------------------------------------------------------------ alternate paths */

int cm_load_alternate(struct cm *cm, struct cm_endpoint *e, const struct cm_mad_path *path,
		      uint64_t now)
{
	struct cm_mad mad = endpoint_mad(e, CM_LAP);

	if (e->state != CM_ESTABLISHED || e->passive || e->lap != CM_LAP_NONE || !e->path.node)
		return -EINVAL;
	e->has_loaded = true;
	/* Not that of the last one, to which an answer may still come. */
	mad.transaction = e->load_transaction = e->local_id + ++e->loads;
	mad.qpn = e->qp.remote_qpn;
	mad.remote_timeout = cm->config.response_timeout;
	mad.alternate = *path;
	set_patience(e, &cm->config);
	endpoint_ask(cm, e, CM_ESTABLISHED, &mad, now);
	e->lap = CM_LAP_SENT;
	return 0;
}

int cm_answer_alternate(struct cm *cm, struct cm_endpoint *e, enum cm_apr_status status)
{
	if (e->lap != CM_LAP_RCVD && e->lap != CM_LAP_MRA_SENT)
		return -EINVAL;
	e->lap = CM_LAP_NONE;
	endpoint_send_apr(cm, e, e->load_transaction, status);
	return 0;
}

void cm_set_alternate(struct cm_endpoint *e, const struct cm_path *path)
{
	e->alternate = *path;
	e->has_alternate = true;
}

void cm_migrate(struct cm_endpoint *e)
{
	const struct cm_path former = e->path;

	if (!e->has_alternate)
		return;
	e->path = e->alternate;
	e->alternate = former;
}

/* ------------------------------------------------------------------ service ids */

int cm_sidr_request(struct cm *cm, struct cm_endpoint *e, const struct cm_path *path,
		    uint64_t service_id, const struct cm_private *private_data, uint64_t now)
{
	struct cm_mad mad = endpoint_mad(e, CM_SIDR_REQ);

	if (e->state != CM_IDLE || mad_put_private(&mad, 0, private_data))
		return -EINVAL;
	e->path = *path;
	e->service_id = service_id;
	set_patience(e, &cm->config);
	mad.pkey = path_pkey(path);
	mad.service_id = service_id;
	endpoint_ask(cm, e, CM_SIDR_REQ_SENT, &mad, now);
	return 0;
}

int cm_sidr_answer(struct cm *cm, struct cm_endpoint *e, enum cm_sidr_status status, uint32_t qpn,
		   uint32_t qkey, const struct cm_private *private_data, uint64_t now)
{
	struct cm_mad mad = endpoint_mad(e, CM_SIDR_REP);

	if (e->state != CM_SIDR_REQ_RCVD || mad_put_private(&mad, 0, private_data))
		return -EINVAL;
	mad.local_id = e->remote_id;
	mad.reason = status;
	mad.service_id = e->service_id;
	if (status == CM_SIDR_SUCCESS) {
		mad.qpn = qpn;
		mad.qkey = qkey;
	}
	set_patience(e, &cm->config);
	endpoint_enter(cm, e, CM_SIDR_REP_SENT);
	cm_mad_encode(&mad, e->sent);
	endpoint_linger(cm, e, now + 2 * (uint64_t)e->timeout_ms);
	cm->counters.sent[CM_SIDR_REP]++;
	cm->ops->send(cm->arg, &e->path, e->sent);
	return 0;
}

/* ------------------------------------------------------------------ closing */

/* Ends the endpoint's exchange with the peer by the message that its state demands: REJ while a
 * request is open, DREQ (or DREP) once there is a connection, SIDR_REP for a datagram service. In
 * the other states nothing is sent. Afterwards the endpoint is in CM_IDLE, or in a state that ends
 * by a deadline. */
static void endpoint_end_exchange(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	switch (e->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
		endpoint_note_answer(cm, e, now);
		endpoint_send_reject(cm, e, CM_REJECT_TIMEOUT, CM_ABOUT_OTHER, NULL);
		endpoint_enter(cm, e, CM_IDLE);
		break;
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		cm_reject(cm, e, CM_REJECT_CONSUMER, NULL, now);
		break;
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		/* The peer may consider itself established: if its RTU and this REJ were lost, no
		 * other message would end that. */
		endpoint_send_reject(cm, e, CM_REJECT_CONSUMER, CM_ABOUT_OTHER, NULL);
		e->state = CM_ESTABLISHED;
		cm_disconnect(cm, e, now);
		break;
	case CM_ESTABLISHED:
	case CM_DREQ_RCVD:
		cm_disconnect(cm, e, now);
		break;
	case CM_SIDR_REQ_SENT:
		endpoint_enter(cm, e, CM_IDLE);
		break;
	case CM_SIDR_REQ_RCVD:
		cm_sidr_answer(cm, e, CM_SIDR_REJECT, 0, 0, NULL, now);
		break;
	case CM_IDLE:
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
	case CM_SIDR_REP_SENT:
	case CM_STATES:
		break;
	}
}

void cm_close(struct cm *cm, struct cm_endpoint *e, uint64_t now)
{
	endpoint_end_exchange(cm, e, now);
	e->closed = true;
	e->owner = NULL;
	cm->orphans++;
	if (e->state == CM_IDLE || cm->orphans > CM_ORPHANS)
		endpoint_free(cm, e);
}

uint64_t cm_needed_until(const struct cm *cm)
{
	uint64_t until = cm->answered_until;

	for (uint32_t i = 1; i <= cm->deadlines.count; i++) {
		const struct cm_endpoint *e =
			container_of(cm->deadlines.heap[i], struct cm_endpoint, deadline);

		if (e->closed && !e->path.on_host && e->state != CM_TIMEWAIT &&
		    e->deadline.at_ms >= until)
			until = e->deadline.at_ms + 1;
	}
	return until;
}
