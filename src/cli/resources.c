/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena resources`: which process holds which protection domains, regions, queues.
 *
 * The daemon sends everything it knows; the filters are applied here, to the tables and to --json
 * alike. The lists of fields below describe each kind's table, so that a new field is one line. No
 * state beyond a call. One thread.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ctl.h"
#include "cli/format.h"
#include "cli/table.h"

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_FIELDS 16

/* How a number is shown. A text is shown unchanged, whatever the field's kind. */
enum field_kind {
	FIELD_TEXT,
	FIELD_NUMBER,
	FIELD_HEX,
	FIELD_QPN,
	FIELD_SIZE,
	FIELD_ACCESS,
	FIELD_STATE,
	FIELD_CULPRIT
};

struct field {
	const char *key;
	const char *title;
	enum field_kind kind;
};

struct resource {
	const char *name; /* the key in the reply and the word on the command line */
	const char *title;
	struct field fields[MAX_FIELDS];
};

#define FIELDS_OWNER                                                   \
	{"pid", "PID", FIELD_NUMBER}, {"comm", "PROGRAM", FIELD_TEXT}, \
	{                                                              \
		"handle", "HANDLE", FIELD_NUMBER                       \
	}

static const struct resource resources[] = {
	{"process",
	 "processes",
	 {{"pid", "PID", FIELD_NUMBER},
	  {"comm", "PROGRAM", FIELD_TEXT},
	  {"uid", "USER", FIELD_NUMBER},
	  {"pinned_bytes", "PINNED", FIELD_SIZE},
	  {"memlock_bytes", "RLIMIT_MEMLOCK", FIELD_SIZE}}},
	{"user",
	 "users",
	 {{"uid", "USER", FIELD_NUMBER},
	  {"processes", "PROCESSES", FIELD_NUMBER},
	  {"pinned_bytes", "PINNED", FIELD_SIZE}}},
	{"context",
	 "open devices",
	 {{"pid", "PID", FIELD_NUMBER},
	  {"comm", "PROGRAM", FIELD_TEXT},
	  {"device", "DEVICE", FIELD_TEXT}}},
	{"pd", "protection domains", {FIELDS_OWNER}},
	{"mr",
	 "memory regions",
	 {FIELDS_OWNER,
	  {"pd", "PD", FIELD_NUMBER},
	  {"addr", "ADDRESS", FIELD_HEX},
	  {"length", "LENGTH", FIELD_SIZE},
	  {"access", "ACCESS", FIELD_ACCESS},
	  {"dm", "DEVICE MEMORY", FIELD_NUMBER},
	  {"rkey", "RKEY", FIELD_HEX},
	  {"reach", "REACHED BY PEERS", FIELD_TEXT},
	  {"held_up", "DEREGISTRATION WAITS FOR", FIELD_CULPRIT}}},
	{"mw",
	 "memory windows",
	 {FIELDS_OWNER,
	  {"pd", "PD", FIELD_NUMBER},
	  {"type", "TYPE", FIELD_NUMBER},
	  {"rkey", "FIRST RKEY", FIELD_HEX}}},
	{"dm",
	 "device memory",
	 {FIELDS_OWNER, {"length", "LENGTH", FIELD_SIZE}, {"users", "REGIONS", FIELD_NUMBER}}},
	{"cq",
	 "completion queues",
	 {FIELDS_OWNER, {"cqe", "CQE", FIELD_NUMBER}, {"channel", "CHANNEL", FIELD_NUMBER}}},
	{"qp",
	 "queue pairs",
	 {FIELDS_OWNER,
	  {"qpn", "QPN", FIELD_QPN},
	  {"type", "TYPE", FIELD_TEXT},
	  {"state", "STATE", FIELD_STATE},
	  {"pd", "PD", FIELD_NUMBER},
	  {"send_cq", "SEND CQ", FIELD_NUMBER},
	  {"recv_cq", "RECV CQ", FIELD_NUMBER},
	  {"srq", "SRQ", FIELD_NUMBER},
	  {"xrcd", "XRCD", FIELD_NUMBER},
	  {"remote_qpn", "REMOTE QPN", FIELD_QPN}}},
	{"flow",
	 "flow rules",
	 {FIELDS_OWNER,
	  {"qpn", "QPN", FIELD_QPN},
	  {"type", "TYPE", FIELD_TEXT},
	  {"priority", "PRIORITY", FIELD_NUMBER},
	  {"tag", "TAG", FIELD_NUMBER},
	  {"drops", "DROPS", FIELD_TEXT},
	  {"counts", "COUNTS", FIELD_TEXT}}},
	{"srq",
	 "shared receive queues",
	 {FIELDS_OWNER,
	  {"pd", "PD", FIELD_NUMBER},
	  {"max_wr", "MAX WR", FIELD_NUMBER},
	  {"cq", "CQ", FIELD_NUMBER},
	  {"max_tags", "MAX TAGS", FIELD_NUMBER},
	  {"srqn", "NUMBER", FIELD_QPN},
	  {"xrcd", "XRCD", FIELD_NUMBER}}},
	{"xrcd",
	 "XRC domains",
	 {FIELDS_OWNER,
	  {"domain", "DOMAIN", FIELD_NUMBER},
	  {"ino", "INODE", FIELD_NUMBER},
	  {"targets", "TARGET QPS", FIELD_NUMBER},
	  {"users", "USERS", FIELD_NUMBER}}},
	{"ah",
	 "address handles",
	 {FIELDS_OWNER, {"pd", "PD", FIELD_NUMBER}, {"dgid", "DESTINATION", FIELD_TEXT}}},
	{"channel", "completion channels", {FIELDS_OWNER}},
	{"mcast",
	 "queue pairs in multicast groups",
	 {{"pid", "PID", FIELD_NUMBER},
	  {"comm", "PROGRAM", FIELD_TEXT},
	  {"qpn", "QPN", FIELD_QPN},
	  {"gid", "GROUP", FIELD_TEXT},
	  {"interfaces", "INTERFACES", FIELD_TEXT}}},
	{"cm_id",
	 "identifiers of the connection manager",
	 {{"pid", "PID", FIELD_NUMBER},
	  {"handle", "HANDLE", FIELD_NUMBER},
	  {"device", "DEVICE", FIELD_TEXT},
	  {"state", "STATE", FIELD_TEXT},
	  {"port", "PORT", FIELD_NUMBER},
	  {"qpn", "QPN", FIELD_QPN}}},
};

struct filter {
	bool wanted[ARRAY_LENGTH(resources)];
	json_int_t pid; /* 0: any */
	json_int_t qpn; /* -1: any */
};

static bool filter_matches(const struct filter *filter, const json_t *entry)
{
	if (filter->pid && ctl_integer(entry, "pid") != filter->pid)
		return false;
	if (filter->qpn < 0)
		return true;
	return json_object_get(entry, "qpn") && ctl_integer(entry, "qpn") == filter->qpn;
}

/* Shows the process and thread whose copy an ibv_dereg_mr() waits for. */
static void culprit_add(struct table *table, const json_t *by)
{
	char thread[32] = "";

	if (ctl_integer(by, "thread"))
		snprintf(thread, sizeof(thread), ", thread %" JSON_INTEGER_FORMAT,
			 ctl_integer(by, "thread"));
	table_add_cell(table, TABLE_BAD, "process %" JSON_INTEGER_FORMAT "%s",
		       ctl_integer(by, "pid"), thread);
}

static void cell_add(struct table *table, const struct field *field, const json_t *value)
{
	uint64_t number = (uint64_t)json_integer_value(value);
	char text[FORMAT_BYTES];

	if (json_is_string(value)) {
		enum table_style style = TABLE_PLAIN;
		const char *word = json_string_value(value);

		if (field->kind == FIELD_STATE && strcmp(word, "RTS") == 0)
			style = TABLE_GOOD;
		else if (field->kind == FIELD_STATE &&
			 (strcmp(word, "ERR") == 0 || strcmp(word, "SQE") == 0))
			style = TABLE_BAD;
		table_add_cell(table, style, "%s", word);
		return;
	}
	if (field->kind == FIELD_CULPRIT && json_is_object(value)) {
		culprit_add(table, value);
		return;
	}
	if (!json_is_integer(value)) {
		table_add_cell(table, TABLE_PLAIN, "-");
		return;
	}
	switch (field->kind) {
	case FIELD_HEX:
		table_add_cell(table, TABLE_PLAIN, "0x%" PRIx64, number);
		break;
	case FIELD_QPN:
		/* 0 means none: QP 0 is the management QP. */
		if (number)
			table_add_cell(table, TABLE_PLAIN, "0x%06" PRIx64, number);
		else
			table_add_cell(table, TABLE_PLAIN, "-");
		break;
	case FIELD_SIZE:
		table_add_cell(table, TABLE_PLAIN, "%s", format_size(text, number));
		break;
	case FIELD_ACCESS:
		table_add_cell(table, TABLE_PLAIN, "%s", format_access(text, number));
		break;
	default:
		table_add_cell(table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       json_integer_value(value));
		break;
	}
}

static bool field_is_right(enum field_kind kind)
{
	return kind == FIELD_NUMBER || kind == FIELD_SIZE || kind == FIELD_HEX;
}

/* Prints the table of one kind, if it has entries. Returns whether it printed. */
static bool resource_print(const struct resource *resource, const json_t *entries, bool colour)
{
	struct table_column columns[MAX_FIELDS];
	struct table table;
	const json_t *entry;
	size_t width = 0, i;
	char title[64];

	if (json_array_size(entries) == 0)
		return false;
	for (; width < MAX_FIELDS && resource->fields[width].key; width++)
		columns[width] = (struct table_column){
			.title = resource->fields[width].title,
			.right = field_is_right(resource->fields[width].kind),
		};
	table_set_columns(&table, columns, width);
	json_array_foreach(entries, i, entry) {
		for (size_t f = 0; f < width; f++)
			cell_add(&table, &resource->fields[f],
				 json_object_get(entry, resource->fields[f].key));
	}
	snprintf(title, sizeof(title), "%s (%zu)", resource->title, json_array_size(entries));
	table_heading(stdout, colour, title);
	table_print(&table, stdout, colour);
	table_free(&table);
	return true;
}

/* A copy of the reply with the entries that match the filter; NULL: no memory. */
static json_t *reply_filter(const json_t *reply, const struct filter *filter)
{
	json_t *result = json_pack("{s:b}", "ok", 1);

	for (size_t r = 0; result && r < ARRAY_LENGTH(resources); r++) {
		json_t *entry, *kept;
		size_t i;

		if (!filter->wanted[r])
			continue;
		kept = json_array();
		json_array_foreach(json_object_get(reply, resources[r].name), i, entry) {
			if (filter_matches(filter, entry))
				json_array_append(kept, entry);
		}
		if (json_object_set_new(result, resources[r].name, kept) < 0) {
			json_decref(result);
			result = NULL;
		}
	}
	return result;
}

static int resources_print(const json_t *reply)
{
	bool colour = table_colour_wanted(stdout);
	bool printed = false;

	for (size_t r = 0; r < ARRAY_LENGTH(resources); r++) {
		const json_t *entries = json_object_get(reply, resources[r].name);

		if (printed && json_array_size(entries) > 0)
			putchar('\n');
		printed |= resource_print(&resources[r], entries, colour);
	}
	if (!printed)
		puts("none");
	return cli_finish(CLI_OK);
}

static bool filter_add_kind(struct filter *filter, const char *name)
{
	for (size_t r = 0; r < ARRAY_LENGTH(resources); r++) {
		if (strcmp(resources[r].name, name) == 0) {
			filter->wanted[r] = true;
			return true;
		}
	}
	return false;
}

/* Reads the kinds that remain in argv; none means all. */
static bool filter_parse_kinds(struct filter *filter, int argc, char **argv)
{
	bool all = optind == argc;

	for (size_t r = 0; r < ARRAY_LENGTH(resources); r++)
		filter->wanted[r] =
			all && (filter->qpn < 0 || strcmp(resources[r].name, "qp") == 0);
	for (int i = optind; i < argc; i++) {
		if (!filter_add_kind(filter, argv[i])) {
			cli_error("there is no kind of resource `%s`; there are process, user, "
				  "context, pd, mr, mw, dm, cq, qp, flow, srq, xrcd, ah, channel, "
				  "mcast and cm_id",
				  argv[i]);
			return false;
		}
	}
	return true;
}

/* Returns CLI_OK to go on, CLI_USAGE after a message, or -1 when help was asked for. */
static int resources_parse_options(int argc, char **argv, struct filter *filter, bool *json)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{"pid", required_argument, NULL, 'p'},
		{"qpn", required_argument, NULL, 'q'},
		{NULL, 0, NULL, 0},
	};
	uint32_t number;
	int option;

	while ((option = getopt_long(argc, argv, "jhp:q:", options, NULL)) != -1) {
		switch (option) {
		case 'j':
			*json = true;
			break;
		case 'p':
			if (!cli_number32("--pid", 1, INT32_MAX, &number))
				return CLI_USAGE;
			filter->pid = number;
			break;
		case 'q':
			if (!cli_number32("--qpn", 0, 0xffffff, &number))
				return CLI_USAGE;
			filter->qpn = number;
			break;
		case 'h':
			return -1;
		default:
			return CLI_USAGE;
		}
	}
	return filter_parse_kinds(filter, argc, argv) ? CLI_OK : CLI_USAGE;
}

static int resources_run(const struct cli_command *self, int argc, char **argv)
{
	struct filter filter = {.qpn = -1};
	bool json = false;
	json_t *reply, *kept;
	int code = resources_parse_options(argc, argv, &filter, &json);

	if (code == -1)
		return cli_help(self);
	if (code != CLI_OK)
		return cli_usage(self);

	code = ctl_request(json_pack("{s:s}", "op", "resources"), json, &reply);
	if (code != CLI_OK)
		return code;
	kept = reply_filter(reply, &filter);
	json_decref(reply);
	if (!kept) {
		cli_error("out of memory");
		return CLI_FAILURE;
	}
	code = json ? ctl_print_json(kept) : resources_print(kept);
	json_decref(kept);
	return code;
}

const struct cli_command command_resources = {
	.name = "resources",
	.summary = "show which process holds which objects",
	.help = "usage: verbena resources [OPTION...] [KIND...]\n\n"
		"Lists the objects that programs hold at the daemon. KIND is one or more of\n"
		"process, user (what each has pinned), context (open devices), pd, mr, mw, dm\n"
		"(device memory), cq, qp, flow (rules for raw packets), srq, xrcd (XRC domains),\n"
		"ah, channel, mcast (queue pairs attached to multicast groups, and the interfaces\n"
		"that listen for these), cm_id (identifiers of the connection manager); without\n"
		"one, all are listed.\n\n"
		"  -p, --pid PID   only what process PID holds\n"
		"  -q, --qpn QPN   only the queue pair with this number (0x... allowed)\n"
		"  -j, --json      for scripts: all that the daemon says of them\n"
		"  -h, --help      show this\n\n"
		"ACCESS: LW local write, RW remote write, RR remote read, RA remote atomic,\n"
		"MW window binding, ZB zero based, OD on demand, HUGE huge pages,\n"
		"FG flush to visibility.\n",
	.run = resources_run,
};
