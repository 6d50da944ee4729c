/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_show.h. No state. */
#include "daemon/cm/cm_show.h"

#include <stdio.h>

#include "daemon/cm/cm_client.h"
#include "daemon/cm/cm_id.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/conn.h"
#include "daemon/core/server.h"
#include "daemon/core/show.h"
#include "daemon/core/text.h"
#include "daemon/core/user.h"
#include "daemon/net/device.h"

static void show_messages(const char *key, const uint64_t count[CM_MESSAGES], struct text *out)
{
	json_open(out, key, '{');
	for (unsigned int i = 0; i < CM_MESSAGES; i++)
		json_number(out, cm_message_name((enum cm_message)i), count[i]);
	json_close(out, '}');
}

/* Shows the reasons that occurred. */
static void show_reasons(const char *key, const uint64_t count[CM_REASONS], struct text *out)
{
	char reason[8];

	json_open(out, key, '{');
	for (unsigned int i = 0; i < CM_REASONS; i++) {
		snprintf(reason, sizeof(reason), "%u", i);
		if (count[i])
			json_number(out, reason, count[i]);
	}
	json_close(out, '}');
}

static uint64_t cm_service_malformed(const struct cm_service *service)
{
	uint64_t sum = service->wire.counters.not_mads + service->wire.counters.bad_key +
		       service->wire.counters.forged;

	for (unsigned int i = 0; i < CM_MAD_ERRORS; i++)
		sum += service->cm.counters.malformed[i];
	return sum;
}

void cm_show(const struct cm_service *service, struct text *out)
{
	const struct cm_counters *c = &service->cm.counters;

	json_open(out, "connections", '{');
	json_number(out, "endpoints", service->cm.endpoints);
	show_messages("sent", c->sent, out);
	show_messages("received", c->received, out);
	json_number(out, "repeated", c->repeated);
	json_number(out, "duplicates", c->duplicates);
	json_number(out, "stale", c->stale);
	json_number(out, "given_up", c->given_up);
	json_number(out, "unexpected", c->unexpected);
	json_number(out, "malformed", cm_service_malformed(service));
	json_number(out, "lost", service->lost + service->wire.counters.unsent);
	json_number(out, "no_listener", service->no_listener);
	json_number(out, "backlog_full", service->backlog_full);
	show_reasons("rejects_sent", c->rejects_sent, out);
	show_reasons("rejects_received", c->rejects_received, out);
	json_close(out, '}');
}

static void cm_show_id(const struct conn *conn, const struct cm_id *id, struct text *out)
{
	static const char *const states[] = {
		[ID_IDLE] = "IDLE",
		[ID_BOUND] = "ADDR_BOUND",
		[ID_ADDR_QUERY] = "ADDR_QUERY",
		[ID_ADDR_RESOLVED] = "ADDR_RESOLVED",
		[ID_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
		[ID_CONNECT] = "CONNECT",
		[ID_LISTEN] = "LISTEN",
		[ID_REMOVED] = "DEVICE_REMOVAL",
	};

	json_open(out, NULL, '{');
	json_number(out, "pid", (uint64_t)conn->pid);
	json_number(out, "handle", id->object.handle);
	/* A listener on all addresses belongs to no device. */
	if (id->device)
		json_words(out, "device", id->device->name);
	json_words(out, "state", states[id->state]);
	if (id->qpn)
		json_number(out, "qpn", id->qpn);
	json_number(out, "port", cm_address_port(&id->source));
	json_close(out, '}');
}

void cm_show_place(const struct conn *conn, uint32_t index, struct text *out)
{
	const struct cm_object *object = table_at(&conn->cm->table, index);

	if (object && object->kind == CM_KIND_ID)
		cm_show_id(conn, container_of(object, struct cm_id, object), out);
}
