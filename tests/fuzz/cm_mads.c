/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: MADs of third parties and peers, to the connection manager's state machine, while
 * its owner acts as an input says. Any bytes decode or are refused; a decoded message encodes to
 * the same bytes; a message causes two others at most; an endpoint gets each event once, and when
 * all endpoints are closed and time has passed, no state is left.
 *
 * Input: actions, a byte each, then their parameters.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/list.h"
#include "cm/cm.h"
#include "counters.h"
#include "input.h"

enum { ENDPOINTS = 8, ANSWERS_MAX = 2 };

struct owner {
	struct cm_endpoint *e; /* NULL: none */
	uint32_t events;       /* a bit each */
	uint32_t loads;	       /* LAPs that have no outcome yet */
};

static struct cm cm;
static struct owner owners[ENDPOINTS];
static struct cm_path last_path;
static unsigned int sent;
static uint64_t now;
static bool refuses; /* requests */

static void on_send(void *arg, const struct cm_path *path, const uint8_t bytes[MAD_SIZE])
{
	struct cm_mad mad;

	(void)arg;
	MUST(cm_mad_decode(bytes, &mad) == CM_MAD_OK);
	last_path = *path;
	sent++;
}

static void on_event(void *arg, struct cm_endpoint *e, const struct cm_event *event)
{
	struct owner *owner = e->owner;

	(void)arg;
	MUST(owner && owner->e == e && !e->closed);
	if (event->type == CM_EVENT_LOAD) {
		MUST(e->state == CM_ESTABLISHED && e->lap == CM_LAP_RCVD && event->mad);
		return;
	}
	if (event->type == CM_EVENT_LOADED) {
		MUST(e->state == CM_ESTABLISHED && owner->loads-- == 1);
		return;
	}
	MUST(!(owner->events & 1u << event->type));
	owner->events |= 1u << event->type;
}

static struct owner *place(void)
{
	for (int i = 0; i < ENDPOINTS; i++)
		if (!owners[i].e)
			return &owners[i];
	return NULL;
}

static int on_request(void *arg, struct cm_endpoint *e, const struct cm_mad *mad)
{
	struct owner *owner = refuses ? NULL : place();

	(void)arg;
	if (!owner)
		return mad->message == CM_REQ ? CM_REJECT_SERVICE_ID : CM_SIDR_UNSUPPORTED;
	*owner = (struct owner){.e = e};
	e->owner = owner;
	return 0;
}

static const struct cm_ops ops = {.send = on_send, .event = on_event, .request = on_request};

/* From one of two hosts, to this one. */
static struct cm_path path_from(uint8_t which)
{
	return (struct cm_path){.local = {[15] = 1}, .remote = {[15] = 2 + (which & 1)}, .node = 1};
}

static void check_codec(const uint8_t bytes[MAD_SIZE])
{
	uint8_t again[MAD_SIZE];
	struct cm_mad mad, twice;
	enum cm_mad_error error = cm_mad_decode(bytes, &mad);

	MUST(error < CM_MAD_ERRORS && cm_mad_error_name(error));
	if (error != CM_MAD_OK)
		return;
	cm_mad_encode(&mad, again);
	MUST(cm_mad_decode(again, &twice) == CM_MAD_OK && !memcmp(&mad, &twice, sizeof(mad)));
}

static void deliver(const uint8_t bytes[MAD_SIZE], uint8_t from)
{
	const struct cm_path path = path_from(from);

	sent = 0;
	cm_receive(&cm, &path, bytes, now);
	MUST(sent <= ANSWERS_MAX);
}

static void act_any(struct input *in)
{
	uint8_t how = input_u8(in), bytes[MAD_SIZE];

	input_bytes(in, bytes, sizeof(bytes));
	check_codec(bytes);
	if (how & 2) /* mended */
		memcpy(bytes, (const uint8_t[]){1, 7, 2, 3}, 4);
	deliver(bytes, how);
}

/* A message that fits an endpoint, as its peer would send it, or nearly so. */
static void act_message(struct input *in)
{
	struct cm_mad mad = {.message = input_u8(in) % CM_MESSAGES};
	uint8_t which = input_u8(in), change = input_u8(in), bytes[MAD_SIZE];
	const struct cm_endpoint *e = owners[which % ENDPOINTS].e;

	if (e) {
		mad.local_id = e->remote_id ? e->remote_id : 77u + which;
		mad.remote_id = e->local_id;
		mad.qpn = e->qp.local_qpn;
		mad.ca_guid = e->remote_guid;
		mad.service_id = e->service_id;
	}
	if (mad.message == CM_SIDR_REP)
		mad.local_id = mad.remote_id;
	if (mad.message == CM_REQ || mad.message == CM_REP) {
		mad.mtu = 3;
		mad.psn = input_u32(in);
	}
	if (mad.message == CM_APR && e)
		mad.transaction = e->load_transaction, mad.reason = change;
	if (mad.message == CM_LAP)
		mad.alternate.remote_lid = change;
	if (mad.message == CM_REP)
		mad.qpn = change;
	if (mad.message == CM_REJ)
		mad.reason = change;
	if (mad.message == CM_MRA)
		mad.about = change, mad.service_timeout = change >> 2;
	cm_mad_encode(&mad, bytes);
	if (change >= 240)
		bytes[input_u8(in)] ^= input_u8(in);
	deliver(bytes, e ? e->path.remote[15] & 1 : which);
}

static void act_connect(struct input *in)
{
	bool sidr = input_u8(in) & 1;
	uint8_t to = input_u8(in);
	struct owner *owner = place();
	const struct cm_connect connect = {
		.path = path_from(to),
		.service_id = to,
		.qp = {.local_qpn = 1u + (to & 3), .mtu = 3, .transport = to >> 7}};

	if (!owner)
		return;
	*owner = (struct owner){.e = cm_open(&cm, owner)};
	MUST(owner->e);
	MUST(!(sidr ? cm_sidr_request(&cm, owner->e, &connect.path, to, NULL, now)
		    : cm_connect(&cm, owner->e, &connect, now)));
}

/* Answers a LAP, or sends one. */
static void act_on_path(struct owner *owner, uint8_t how)
{
	const struct cm_mad_path path = {.local_lid = how, .remote_lid = 3};

	if (cm_answer_alternate(&cm, owner->e, how % CM_APR_STATUSES))
		owner->loads += !cm_load_alternate(&cm, owner->e, &path, now);
}

static void act_command(struct input *in)
{
	struct owner *owner = &owners[input_u8(in) % ENDPOINTS];
	const struct cm_accept accept = {.qpn = 5, .psn = 6};
	struct cm_endpoint *e = owner->e;

	refuses = !refuses && !e;
	if (!e)
		return;
	switch (input_u8(in) % 8) {
	case 0:
		owner->e = NULL;
		cm_close(&cm, e, now);
		break;
	case 1:
		cm_accept(&cm, e, &accept, now);
		break;
	case 2:
		cm_confirm(&cm, e);
		break;
	case 3:
		cm_reject(&cm, e, input_u8(in), NULL, now);
		break;
	case 4:
		cm_disconnect(&cm, e, now);
		break;
	case 5:
		cm_establish(&cm, e);
		break;
	case 7:
		act_on_path(owner, input_u8(in));
		break;
	default:
		cm_sidr_answer(&cm, e, input_u8(in) % 3, 1, 2, NULL, now);
	}
}

static void act_time(struct input *in)
{
	now += 1ull << input_u8(in) % 18;
	cm_tick(&cm, now);
}

/* Ends everything that is still active. */
static void finish(void)
{
	for (int i = 0; i < ENDPOINTS; i++) {
		struct cm_endpoint *e = owners[i].e;

		owners[i].e = NULL;
		if (e)
			cm_close(&cm, e, now);
	}
	uint64_t at;

	for (int i = 0; cm_deadline(&cm, &at); i++) {
		MUST(i < 10000);
		now = at > now ? at : now;
		cm_tick(&cm, now);
	}
	MUST(!cm.endpoints && !cm.orphans && !cm.by_id.count && !cm.by_peer.count &&
	     !cm.by_qpn.count && !cm.deadlines.count);
	cm_fini(&cm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	typedef void action_fn(struct input * in);
	static action_fn *const actions[] = {act_any, act_message, act_connect, act_command,
					     act_time};
	const struct cm_config config = {CM_CONFIG_DEFAULT, .guid = 1, .seed = 2};
	struct input in = {data, data + size};

	counters_draw(data, size);
	now = 1000;
	refuses = false;
	memset(owners, 0, sizeof(owners));
	MUST(cm_init(&cm, &config, &ops, NULL) == 0);
	while (input_left(&in))
		actions[input_u8(&in) % (sizeof(actions) / sizeof(actions[0]))](&in);
	finish();
	return 0;
}
