/* SPDX-License-Identifier: BSD-2-Clause */
/* See connections.h. daemon/cm/cm_show.c defines the names of numbers and reasons. */
#include "cli/connections.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/ctl.h"

static uint64_t json_number_of(const json_t *object, const char *name)
{
	json_int_t value = ctl_integer(object, name);

	return value > 0 ? (uint64_t)value : 0;
}

static uint64_t json_message_count(const json_t *connections, const char *way, const char *name)
{
	return json_number_of(json_object_get(connections, way), name);
}

/* ------------------------------------------------------------------ reasons */

/* IBTA volume 1, 12.6.7.2, in words for people; `ours`: for a REJ that this host sent; `peers`: one
 * that it received. */
static const struct {
	const char *reason, *ours, *peers;
} reasons[] = {
	{"3", "this host had no more room for them", "the peer had no more room for them"},
	{"4", "this host gave up waiting", "the peer gave up waiting"},
	{"5", "they asked for what isn't supported here", "they asked for what the peer can't"},
	{"6", "they were about a connection that isn't known here",
	 "they were about a connection that the peer doesn't know"},
	{"8", "no program listened at that port", "no program listened at that port"},
	{"10", "the last connection of their QP wasn't over here",
	 "the last connection of their QP wasn't over at the peer"},
	{"28", "the program didn't want them, or had too many waiting",
	 "the peer's program didn't want them, or had too many waiting"},
	{"35", "the program couldn't use the vendor's options",
	 "the peer's program couldn't use the vendor's options"},
};

static void say_rejects(const json_t *rejects, const char *one, const char *many, bool ours)
{
	const char *reason;
	const json_t *value;

	json_object_foreach((json_t *)rejects, reason, value) {
		const char *why = "of another reason";
		uint64_t count = json_number_of(rejects, reason);

		(void)value;
		for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
			if (!strcmp(reasons[i].reason, reason))
				why = ours ? reasons[i].ours : reasons[i].peers;
		if (count)
			printf("%" PRIu64 " %s: %s (REJ %s)\n", count, count == 1 ? one : many, why,
			       reason);
	}
}

/* ------------------------------------------------------------------ sentences */

static const struct {
	const char *name, *one, *many, *text;
} sentences[] = {
	{"repeated", "message", "messages",
	 "had to be sent again: no answer came in time, so something was lost, or a host is slow"},
	{"duplicates", "message", "messages", "came again: the peer hadn't heard the answer"},
	{"stale", "request", "requests",
	 "came from a QP whose last connection wasn't over here: its program ended without a word"},
	{"given_up", "connection", "connections", "ended because the peer never answered"},
	{"backlog_full", "request", "requests",
	 "found the listener's backlog full and must be repeated: its program is slow to take its "
	 "events"},
	{"unexpected", "message", "messages",
	 "fitted no connection, or not its state: late, repeated or forged"},
	{"malformed", "datagram", "datagrams", "for QP 1 weren't messages of a connection manager"},
	{"lost", "message", "messages", "couldn't be sent: no way out, or no memory"},
};

void connections_print(const json_t *reply)
{
	const json_t *all = json_object_get(reply, "connections");
	static const char *const asked[] = {"REQ", "SIDR_REQ"};
	uint64_t out = 0, in = 0;

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		out += json_message_count(all, "sent", asked[i]);
		in += json_message_count(all, "received", asked[i]);
	}
	if (!out && !in && !json_number_of(all, "malformed") && !json_number_of(all, "unexpected"))
		return;
	printf("\nconnections: %" PRIu64 " requests sent, %" PRIu64 " received; %" PRIu64
	       " ends are there now\n",
	       out, in, json_number_of(all, "endpoints"));
	for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++) {
		uint64_t count = json_number_of(all, sentences[i].name);

		if (count)
			printf("%" PRIu64 " %s %s\n", count,
			       count == 1 ? sentences[i].one : sentences[i].many,
			       sentences[i].text);
	}
	say_rejects(json_object_get(all, "rejects_sent"), "refusal went out", "refusals went out",
		    true);
	say_rejects(json_object_get(all, "rejects_received"), "refusal came in", "refusals came in",
		    false);
}
