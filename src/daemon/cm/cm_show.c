/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_show.h. No state. */
#include "daemon/cm/cm_show.h"

#include <stdio.h>

#include "daemon/cm/cm_service.h"
#include "daemon/core/text.h"

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
	uint64_t sum = service->wire.counters.not_mads + service->wire.counters.bad_key;

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
