/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena status`: the daemon, its devices and their clients. Asks once and prints; no state.
 */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/connections.h"
#include "cli/counters.h"
#include "cli/ctl.h"
#include "cli/format.h"
#include "cli/table.h"

static void daemon_print(const json_t *reply)
{
	char uptime[FORMAT_BYTES], user[FORMAT_BYTES];

	printf("verbenad %s, pid %" JSON_INTEGER_FORMAT ", user %s, up %s\n",
	       ctl_string(reply, "version"), ctl_integer(reply, "pid"),
	       format_user(user, (uint32_t)ctl_integer(reply, "uid")),
	       format_duration(uptime, (uint64_t)ctl_integer(reply, "uptime_ms")));
	printf("run-time directory %s, network namespace %" JSON_INTEGER_FORMAT "\n",
	       ctl_string(reply, "runtime_dir"), ctl_integer(reply, "netns"));
	if (*ctl_string(reply, "config"))
		printf("configuration %s\n", ctl_string(reply, "config"));
}

/* Whether other hosts can be reached, and over which protocols. */
static void wire_print(const json_t *wire)
{
	const char *state = ctl_string(wire, "state"), *why = ctl_string(wire, "why");

	if (!wire)
		return;
	if (!strcmp(state, "open"))
		printf("wire: UDP port %" JSON_INTEGER_FORMAT
		       " is open for %s, %" JSON_INTEGER_FORMAT " sockets%s%s\n",
		       ctl_integer(wire, "port"),
		       json_is_true(json_object_get(wire, "ipv6")) ? "IPv4 and IPv6" : "IPv4",
		       ctl_integer(wire, "sockets"), *why ? "; " : "", why);
	else
		printf("wire: %s: %s\n", state, *why ? why : "the first program opens it");
}

/* The device's interfaces, joined to one word. */
static void interfaces_join(const json_t *device, char *text, size_t size)
{
	const json_t *name;
	size_t i, length = 0;

	*text = 0;
	json_array_foreach(json_object_get(device, "interfaces"), i, name) {
		int n = snprintf(text + length, size - length, "%s%s", i ? "," : "",
				 json_string_value(name));

		if (n < 0 || (size_t)n >= size - length)
			return;
		length += (size_t)n;
	}
}

static void devices_print(const json_t *devices, bool colour)
{
	static const struct table_column columns[] = {
		{"DEVICE", false}, {"NODE", false}, {"PORT", true}, {"STATE", false},
		{"MTU", true},	   {"GUID", false}, {"GIDS", true}, {"INTERFACE", false},
	};
	char interfaces[256];
	struct table table;
	const json_t *device;
	size_t i;

	table_set_columns(&table, columns, sizeof(columns) / sizeof(columns[0]));
	json_array_foreach(devices, i, device) {
		const char *state = ctl_string(device, "state");
		bool active = strcmp(state, "ACTIVE") == 0;

		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(device, "name"));
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(device, "node"));
		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(device, "port"));
		table_add_cell(&table, active ? TABLE_GOOD : TABLE_BAD, "%s", state);
		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(device, "mtu"));
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(device, "guid"));
		table_add_cell(&table, TABLE_PLAIN, "%zu",
			       json_array_size(json_object_get(device, "gids")));
		interfaces_join(device, interfaces, sizeof(interfaces));
		table_add_cell(&table, TABLE_PLAIN, "%s", interfaces);
	}
	putchar('\n');
	table_print(&table, stdout, colour);
	table_free(&table);
}

/* The name of the interface of a GID; by its index if the reply has no name, because the daemon is
 * in this network namespace. */
static const char *gid_interface(const json_t *gid, char name[IF_NAMESIZE])
{
	const char *given = ctl_string(gid, "ifname");

	if (*given)
		return given;
	return if_indextoname((unsigned int)ctl_integer(gid, "ifindex"), name) ? name : "";
}

static void gids_print(const json_t *devices, bool colour)
{
	static const struct table_column columns[] = {
		{"DEVICE", false}, {"INDEX", true},	 {"GID", false},
		{"TYPE", false},   {"INTERFACE", false},
	};
	struct table table;
	const json_t *device, *gid;
	char name[IF_NAMESIZE];
	size_t i, j;

	table_set_columns(&table, columns, sizeof(columns) / sizeof(columns[0]));
	json_array_foreach(devices, i, device) {
		json_array_foreach(json_object_get(device, "gids"), j, gid) {
			table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(device, "name"));
			table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
				       ctl_integer(gid, "index"));
			table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(gid, "gid"));
			table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(gid, "type"));
			table_add_cell(&table, TABLE_PLAIN, "%s", gid_interface(gid, name));
		}
	}
	if (table.count) {
		putchar('\n');
		table_print(&table, stdout, colour);
	}
	table_free(&table);
}

static void clients_print(const json_t *clients, bool colour)
{
	static const char *const kinds[] = {"pd", "mr", "cq", "qp", "srq", "ah", "channel"};
	static const struct table_column columns[] = {
		{"PID", true}, {"PROGRAM", false}, {"USER", false}, {"SLOT", true},   {"CTX", true},
		{"PD", true},  {"MR", true},	   {"CQ", true},    {"QP", true},     {"SRQ", true},
		{"AH", true},  {"CHANNEL", true},  {"LINKS", true}, {"PINNED", true},
	};
	struct table table;
	const json_t *client;
	char text[FORMAT_BYTES];
	size_t i;

	putchar('\n');
	if (json_array_size(clients) == 0) {
		puts("no clients");
		return;
	}
	table_set_columns(&table, columns, sizeof(columns) / sizeof(columns[0]));
	json_array_foreach(clients, i, client) {
		const json_t *objects = json_object_get(client, "objects");

		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(client, "pid"));
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(client, "comm"));
		table_add_cell(&table, TABLE_PLAIN, "%s",
			       format_user(text, (uint32_t)ctl_integer(client, "uid")));
		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(client, "slot"));
		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(client, "contexts"));
		for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++)
			table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
				       ctl_integer(objects, kinds[kind]));
		table_add_cell(&table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT,
			       ctl_integer(client, "links"));
		table_add_cell(&table, TABLE_PLAIN, "%s",
			       format_size(text, (uint64_t)ctl_integer(client, "pinned_bytes")));
	}
	table_print(&table, stdout, colour);
	table_free(&table);
}

/* Deregistrations that are delayed, and the process whose copy delays them. */
static void held_up_print(const json_t *clients)
{
	const json_t *client;
	size_t i;

	json_array_foreach(clients, i, client) {
		const json_t *by = json_object_get(client, "held_up");

		if (!by)
			continue;
		printf("\nprocess %" JSON_INTEGER_FORMAT
		       ": ibv_dereg_mr is held up by a copy of process %" JSON_INTEGER_FORMAT
		       ", key %s",
		       ctl_integer(client, "pid"), ctl_integer(by, "pid"), ctl_string(by, "key"));
		if (ctl_integer(by, "thread"))
			printf(", thread %" JSON_INTEGER_FORMAT, ctl_integer(by, "thread"));
		putchar('\n');
	}
}

static int status_print(const json_t *reply)
{
	bool colour = table_colour_wanted(stdout);
	const json_t *devices = json_object_get(reply, "devices");

	daemon_print(reply);
	wire_print(json_object_get(reply, "wire"));
	if (json_array_size(devices) > 0) {
		devices_print(devices, colour);
		gids_print(devices, colour);
	} else {
		puts("\nno devices");
	}
	clients_print(json_object_get(reply, "clients"), colour);
	held_up_print(json_object_get(reply, "clients"));
	counters_print(reply, colour);
	connections_print(reply);
	return cli_finish(CLI_OK);
}

static int status_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool json = false;
	json_t *reply;
	int option, code;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (option != 'j')
			return cli_usage(self);
		json = true;
	}
	if (optind < argc) {
		cli_error("status takes no arguments");
		return cli_usage(self);
	}

	code = ctl_request(json_pack("{s:s}", "op", "status"), json, &reply);
	if (code != CLI_OK)
		return code;
	code = json ? ctl_print_json(reply) : status_print(reply);
	json_decref(reply);
	return code;
}

const struct cli_command command_status = {
	.name = "status",
	.summary = "show the daemon, its devices and its clients",
	.help = "usage: verbena status [--json]\n\n"
		"Shows the daemon of this user and network namespace, its devices with their "
		"GIDs,\n"
		"and each program that uses them with the number of its objects.\n\n"
		"  -j, --json   for scripts: the daemon's whole answer\n"
		"  -h, --help   show this\n",
	.run = status_run,
};
