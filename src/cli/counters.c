/* SPDX-License-Identifier: BSD-2-Clause */
/* See counters.h. The counters' names are those of shm/counters.h. */
#include "cli/counters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/ctl.h"
#include "cli/table.h"

uint64_t counters_value(const json_t *counters, const char *group, const char *name)
{
	json_int_t value = ctl_integer(json_object_get(counters, group), name);

	return value > 0 ? (uint64_t)value : 0;
}

static uint64_t counters_wire_value(const json_t *counters, const char *name)
{
	return counters_value(counters, "wire", name);
}

/* ------------------------------------------------------------------ the table */

/* The number of received packets that were dropped. */
static uint64_t dropped_of(const json_t *counters)
{
	static const char *const names[] = {
		"bad_icrc",	 "too_short",	"too_long",   "bad_version",
		"bad_opcode",	 "bad_payload", "no_such_qp", "other_host",
		"other_pkey",	 "other_qkey",	"forged",     "other_transport",
		"not_receiving", "stale",	"no_receive", "short_receive"};
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		sum += counters_wire_value(counters, names[i]);
	return sum;
}

static bool counters_are_zero(const json_t *counters)
{
	return !counters_wire_value(counters, "packets_out") &&
	       !counters_wire_value(counters, "packets_in") &&
	       !counters_value(counters, "local", "rnr_waits") &&
	       !counters_value(counters, "local", "rnr_naks") &&
	       !counters_value(counters, "requests", "retry_exceeded") &&
	       !counters_value(counters, "requests", "rnr_retry_exceeded");
}

static void counters_add_row(struct table *table, const char *pid, const char *program,
			     const json_t *counters)
{
	const uint64_t values[] = {
		counters_wire_value(counters, "packets_out"),
		counters_wire_value(counters, "packets_in"),
		counters_wire_value(counters, "refused") + counters_wire_value(counters, "no_room"),
		dropped_of(counters),
		counters_wire_value(counters, "resent"),
		counters_wire_value(counters, "timeouts"),
		counters_wire_value(counters, "sequence_naks"),
		counters_wire_value(counters, "rnr_naks_sent") +
			counters_value(counters, "local", "rnr_waits"),
		counters_wire_value(counters, "rnr_naks") +
			counters_value(counters, "local", "rnr_naks"),
		counters_value(counters, "requests", "retry_exceeded") +
			counters_value(counters, "requests", "rnr_retry_exceeded"),
	};

	table_add_cell(table, TABLE_PLAIN, "%s", pid);
	table_add_cell(table, TABLE_PLAIN, "%s", program);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		table_add_cell(table, TABLE_PLAIN, "%" PRIu64, values[i]);
}

static void counters_table(const json_t *reply, const json_t *sum, bool colour)
{
	static const struct table_column columns[] = {
		{"PID", true},	  {"PROGRAM", false}, {"OUT", true},	 {"IN", true},
		{"UNSENT", true}, {"DROPPED", true},  {"RESENT", true},	 {"TIMEOUTS", true},
		{"NAKS", true},	  {"RNR SENT", true}, {"RNR GOT", true}, {"GIVEN UP", true},
	};
	struct table table;
	const json_t *client;
	char pid[32];
	size_t i;

	table_set_columns(&table, columns, sizeof(columns) / sizeof(columns[0]));
	json_array_foreach(json_object_get(reply, "clients"), i, client) {
		const json_t *counters = json_object_get(client, "counters");

		if (counters_are_zero(counters))
			continue;
		snprintf(pid, sizeof(pid), "%" JSON_INTEGER_FORMAT, ctl_integer(client, "pid"));
		counters_add_row(&table, pid, ctl_string(client, "comm"), counters);
	}
	counters_add_row(&table, "all", "since the daemon began", sum);
	putchar('\n');
	table_print(&table, stdout, colour);
	table_free(&table);
}

/* ------------------------------------------------------------------ sentences */

struct sentence {
	const char *group, *name;
	const char *text; /* follows the number, and "packets" unless `one` and `many` differ */
	const char *one, *many;
};

#define PACKETS "packet", "packets"
#define REQUESTS "request", "requests"

static const struct sentence sentences[] = {
	{"wire", "no_room", "didn't go out: the socket's buffer stayed full", PACKETS},
	{"wire", "bad_icrc", "came with a wrong ICRC: damaged, or not from a RoCEv2 sender",
	 PACKETS},
	{"wire", "too_short", "came too short to be one", PACKETS},
	{"wire", "too_long", "came with more payload than the largest MTU has", PACKETS},
	{"wire", "bad_version", "came with an unknown header version", PACKETS},
	{"wire", "bad_opcode", "came with an opcode that isn't supported", PACKETS},
	{"wire", "bad_payload",
	 "came with a payload that their opcode has none of, or wrong padding", PACKETS},
	{"wire", "no_such_qp", "came for a QP that doesn't exist (any more)", PACKETS},
	{"wire", "other_host", "came for a QP that is connected to another address", PACKETS},
	{"wire", "forged", "came with an address of this host, but not from the process they named",
	 PACKETS},
	{"wire", "other_pkey", "came with another P_Key", PACKETS},
	{"wire", "other_qkey", "came with another Q_Key than their QP's", PACKETS},
	{"wire", "other_transport", "came for a QP of another type", PACKETS},
	{"wire", "not_receiving", "came for a QP that isn't connected, or failed", PACKETS},
	{"wire", "stale", "fitted no state of their QP: late, forged or malformed", PACKETS},
	{"wire", "no_receive", "found no receive posted, and were lost (datagrams)", PACKETS},
	{"wire", "short_receive", "were longer than the next receive, and were lost (datagrams)",
	 PACKETS},
	{"wire", "congestion_marks",
	 "came with a mark: a queue on their way was long (their senders were asked to slow down "
	 "by CNPs)",
	 PACKETS},
	{"wire", "cnps_in",
	 "asked this host's senders to slow down, because of long queues on the way",
	 "congestion notification", "congestion notifications"},
	{"local", "other_qkey", "within this host had another Q_Key than their QP's, and were lost",
	 "datagram", "datagrams"},
	{"local", "no_receive", "within this host found no receive posted, and were lost",
	 "datagram", "datagrams"},
	{"local", "short_receive",
	 "within this host were longer than the next receive, and were lost", "datagram",
	 "datagrams"},
	{"local", "not_taken",
	 "within this host got no receive within 200 ms, and were dropped by their sender",
	 "datagram", "datagrams"},
	{"requests", "retry_exceeded", "got no answer and ended with IBV_WC_RETRY_EXC_ERR",
	 REQUESTS},
	{"requests", "rnr_retry_exceeded",
	 "found no receive posted in time and ended with IBV_WC_RNR_RETRY_EXC_ERR", REQUESTS},
};

/* Prints a sentence; an empty line precedes the first. */
static void sentence_print(bool *said, uint64_t count, const char *one, const char *many,
			   const char *text)
{
	printf("%s%" PRIu64 " %s %s\n", *said ? "" : "\n", count, count == 1 ? one : many, text);
	*said = true;
}

static void counters_explain(const json_t *sum)
{
	uint64_t refused = counters_wire_value(sum, "refused"),
		 out = counters_wire_value(sum, "packets_out");
	uint64_t resent = counters_wire_value(sum, "resent");
	char text[160];
	bool said = false;

	snprintf(text, sizeof(text), "refused by the host: %s",
		 strerror((int)counters_wire_value(sum, "last_error")));
	if (refused)
		sentence_print(&said, refused, "packet was", "packets were", text);
	for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++) {
		const struct sentence *s = &sentences[i];
		uint64_t count = counters_value(sum, s->group, s->name);

		if (count)
			sentence_print(&said, count, s->one, s->many, s->text);
	}
	/* Only from one in a hundred on: then the network loses packets, or is slower than
	 * estimated. */
	snprintf(text, sizeof(text),
		 "of %" PRIu64 " had to be sent again: the network loses them, or a host is "
		 "overloaded",
		 out);
	if (resent && resent > out / 100)
		sentence_print(&said, resent, PACKETS, text);
}

void counters_print(const json_t *reply, bool colour)
{
	const json_t *sum = json_object_get(reply, "counters");

	if (!sum || (counters_are_zero(sum) && !counters_value(sum, "local", "other_qkey") &&
		     !counters_value(sum, "local", "no_receive") &&
		     !counters_value(sum, "local", "not_taken") &&
		     !counters_value(sum, "local", "short_receive")))
		return;
	counters_table(reply, sum, colour);
	counters_explain(sum);
}
