/* SPDX-License-Identifier: BSD-2-Clause */
/* What a fabric has, as tables: nodes, cables, ports, counters. No state. One thread. */
#include "cli/fabric_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/format.h"
#include "cli/table.h"

#define COLUMNS(array) array, sizeof(array) / sizeof((array)[0])

static const char *const error_names[] = {
	"symbol",	   "link_recovery",	  "link_downed",
	"rcv_errors",	   "rcv_remote_physical", "rcv_switch_relay",
	"xmit_discards",   "xmit_constraint",	  "rcv_constraint",
	"local_integrity", "buffer_overrun",	  "qp1_dropped",
	"vl15_dropped",	   "xmit_wait",
};

static enum table_style state_style(const char *state)
{
	return !strcmp(state, "active") ? TABLE_GOOD
	       : !strcmp(state, "down") ? TABLE_BAD
					: TABLE_PLAIN;
}

static void cell_integer(struct table *table, const json_t *object, const char *key)
{
	table_add_cell(table, TABLE_PLAIN, "%" JSON_INTEGER_FORMAT, ctl_integer(object, key));
}

/* An end of a link in `topology`'s answer, as NODE/PORT. */
static void cell_end(struct table *table, const json_t *nodes, const json_t *end)
{
	const json_t *node =
		json_array_get(nodes, (size_t)json_integer_value(json_array_get(end, 0)));

	table_add_cell(table, TABLE_PLAIN, "%s/%" JSON_INTEGER_FORMAT, ctl_string(node, "name"),
		       json_integer_value(json_array_get(end, 1)));
}

static int topology_ask(bool counters, bool json, json_t **reply)
{
	return fabric_request(json_pack("{s:s, s:b}", "op", "topology", "counters", counters), json,
			      reply);
}

/* Prints and ends. */
static int table_finish(struct table *table, json_t *reply)
{
	table_print(table, stdout, table_colour_wanted(stdout));
	table_free(table);
	json_decref(reply);
	return cli_finish(CLI_OK);
}

static int reply_finish(json_t *reply)
{
	int code = ctl_print_json(reply);

	json_decref(reply);
	return code;
}

/* Nodes and links ------------------------------------------------------------------------------ */

int fabric_nodes_show(bool json)
{
	static const struct table_column columns[] = {
		{"NODE", false},  {"TYPE", false}, {"LID", true},	   {"PORTS", true},
		{"CABLES", true}, {"GUID", false}, {"DESCRIPTION", false},
	};
	const json_t *nodes, *node, *link;
	struct table table;
	json_t *reply;
	size_t i, k;
	int code = topology_ask(false, json, &reply);

	if (code != CLI_OK)
		return code;
	if (json)
		return reply_finish(reply);
	nodes = json_object_get(reply, "nodes");
	json_array_foreach(json_object_get(reply, "links"), i, link)
		for (k = 0; k < 2; k++) {
			const json_t *end = json_object_get(link, k ? "b" : "a");
			json_t *row = json_array_get(
				nodes, (size_t)json_integer_value(json_array_get(end, 0)));

			json_object_set_new(row, "cables",
					    json_integer(ctl_integer(row, "cables") + 1));
		}
	table_set_columns(&table, COLUMNS(columns));
	json_array_foreach(nodes, i, node) {
		bool is_off = json_is_true(json_object_get(node, "off"));
		bool is_mute = json_is_true(json_object_get(node, "mute"));

		table_add_cell(&table, is_off ? TABLE_BAD : TABLE_PLAIN, "%s%s",
			       ctl_string(node, "name"),
			       is_off	 ? " (off)"
			       : is_mute ? " (mute)"
					 : "");
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(node, "type"));
		if (ctl_integer(node, "lid"))
			cell_integer(&table, node, "lid");
		else
			table_add_cell(&table, TABLE_PLAIN, "%s", "");
		cell_integer(&table, node, "port_count");
		cell_integer(&table, node, "cables");
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(node, "guid"));
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(node, "description"));
	}
	return table_finish(&table, reply);
}

int fabric_links_show(bool json)
{
	static const struct table_column columns[] = {
		{"A", false}, {"B", false}, {"STATE", false}, {"LINK", false}, {"GBIT/S", true},
	};
	const json_t *nodes, *link;
	struct table table;
	json_t *reply;
	size_t i;
	int code = topology_ask(false, json, &reply);

	if (code != CLI_OK)
		return code;
	if (json)
		return reply_finish(reply);
	nodes = json_object_get(reply, "nodes");
	table_set_columns(&table, COLUMNS(columns));
	json_array_foreach(json_object_get(reply, "links"), i, link) {
		const char *a = ctl_string(link, "state"), *b = ctl_string(link, "state_b");

		cell_end(&table, nodes, json_object_get(link, "a"));
		cell_end(&table, nodes, json_object_get(link, "b"));
		if (json_is_true(json_object_get(link, "cut")))
			table_add_cell(&table, TABLE_BAD, "cut");
		else if (strcmp(a, b) != 0)
			table_add_cell(&table, TABLE_PLAIN, "%s/%s", a, b);
		else
			table_add_cell(&table, state_style(a), "%s", a);
		table_add_cell(&table, TABLE_PLAIN, "%s %s", ctl_string(link, "width"),
			       ctl_string(link, "speed"));
		table_add_cell(&table, TABLE_PLAIN, "%g",
			       json_number_value(json_object_get(link, "gbps")));
	}
	return table_finish(&table, reply);
}

/* Errors --------------------------------------------------------------------------------------- */

/* "symbol 12, xmit_discards 3"; empty: none. */
static void errors_text(char *text, size_t size, const json_t *counters)
{
	size_t used = 0;

	*text = '\0';
	for (size_t i = 0; i < sizeof(error_names) / sizeof(error_names[0]); i++) {
		json_int_t value = ctl_integer(counters, error_names[i]);

		if (value && used < size)
			used += (size_t)snprintf(text + used, size - used,
						 "%s%s %" JSON_INTEGER_FORMAT, used ? ", " : "",
						 error_names[i], value);
	}
}

int fabric_errors_show(bool json)
{
	static const struct table_column columns[] = {{"PORT", false}, {"ERRORS", false}};
	const json_t *nodes, *link;
	struct table table;
	char text[512];
	json_t *reply;
	size_t i;
	int code = topology_ask(true, json, &reply);

	if (code != CLI_OK)
		return code;
	if (json)
		return reply_finish(reply);
	nodes = json_object_get(reply, "nodes");
	table_set_columns(&table, COLUMNS(columns));
	json_array_foreach(json_object_get(reply, "links"), i, link)
		for (int end = 0; end < 2; end++) {
			errors_text(text, sizeof(text),
				    json_object_get(link, end ? "counters_b" : "counters_a"));
			if (!*text)
				continue;
			cell_end(&table, nodes, json_object_get(link, end ? "b" : "a"));
			table_add_cell(&table, TABLE_BAD, "%s", text);
		}
	if (table.count)
		return table_finish(&table, reply);
	table_free(&table);
	json_decref(reply);
	puts("no errors");
	return cli_finish(CLI_OK);
}

/* A node, a port ------------------------------------------------------------------------------- */

static void ports_print(const json_t *ports)
{
	static const struct table_column columns[] = {
		{"PORT", true},	 {"STATE", false}, {"PHYSICAL", false}, {"LID", true},
		{"LINK", false}, {"MTU", true},	   {"PEER", false},	{"ERRORS", false},
	};
	const json_t *port;
	struct table table;
	char text[512];
	size_t i;

	table_set_columns(&table, COLUMNS(columns));
	json_array_foreach(ports, i, port) {
		const char *state = ctl_string(port, "state");

		cell_integer(&table, port, "port");
		table_add_cell(&table, state_style(state), "%s", state);
		table_add_cell(&table, TABLE_PLAIN, "%s", ctl_string(port, "physical"));
		if (ctl_integer(port, "lid"))
			cell_integer(&table, port, "lid");
		else
			table_add_cell(&table, TABLE_PLAIN, "%s", "");
		table_add_cell(&table, TABLE_PLAIN, "%s %s", ctl_string(port, "width"),
			       ctl_string(port, "speed"));
		cell_integer(&table, port, "mtu");
		if (json_object_get(port, "peer"))
			table_add_cell(&table, TABLE_PLAIN, "%s/%" JSON_INTEGER_FORMAT "%s",
				       ctl_string(port, "peer"), ctl_integer(port, "peer_port"),
				       json_is_true(json_object_get(port, "cut")) ? " (cut)" : "");
		else
			table_add_cell(&table, TABLE_PLAIN, "%s", "");
		errors_text(text, sizeof(text), json_object_get(port, "counters"));
		table_add_cell(&table, *text ? TABLE_BAD : TABLE_PLAIN, "%s", text);
	}
	table_print(&table, stdout, table_colour_wanted(stdout));
	table_free(&table);
}

int fabric_node_show(const char *name, bool json)
{
	json_t *reply;
	const json_t *node;
	int code =
		fabric_request(json_pack("{s:s, s:s}", "op", "node", "node", name), json, &reply);

	if (code != CLI_OK)
		return code;
	if (json)
		return reply_finish(reply);
	node = json_object_get(reply, "node");
	printf("%s: %s, GUID %s, \"%s\"%s%s\n", ctl_string(node, "name"), ctl_string(node, "type"),
	       ctl_string(node, "guid"), ctl_string(node, "description"),
	       json_is_true(json_object_get(node, "off")) ? ", without power" : "",
	       json_is_true(json_object_get(node, "mute")) ? ", its agents don't answer" : "");
	ports_print(json_object_get(node, "ports"));
	json_decref(reply);
	return cli_finish(CLI_OK);
}

static void words_print(const char *what, const json_t *list)
{
	const json_t *item;
	size_t i;

	if (!json_array_size(list))
		return;
	printf("%-14s", what);
	json_array_foreach(list, i, item)
		if (json_is_string(item))
			printf(" %s", json_string_value(item));
		else
			printf(" 0x%04" PRIx64, (uint64_t)json_integer_value(item));
	putchar('\n');
}

static void counters_lines(const json_t *counters)
{
	char text[FORMAT_BYTES];
	json_int_t sent = ctl_integer(counters, "xmit_words");
	json_int_t received = ctl_integer(counters, "rcv_words");
	const char *name;
	json_t *value;

	printf("%-20s %16" JSON_INTEGER_FORMAT " words (%s), %" JSON_INTEGER_FORMAT " packets\n",
	       "sent", sent, format_size(text, (uint64_t)sent * 4),
	       ctl_integer(counters, "xmit_packets"));
	printf("%-20s %16" JSON_INTEGER_FORMAT " words (%s), %" JSON_INTEGER_FORMAT " packets\n",
	       "received", received, format_size(text, (uint64_t)received * 4),
	       ctl_integer(counters, "rcv_packets"));
	json_object_foreach((json_t *)counters, name, value)
		if (json_integer_value(value) && !strstr(name, "_words") &&
		    strcmp(name, "xmit_packets") != 0 && strcmp(name, "rcv_packets") != 0)
			printf("%-20s %16" JSON_INTEGER_FORMAT "\n", name,
			       json_integer_value(value));
}

/* The port of that number; NULL, after a message: the node hasn't got it. */
static const json_t *port_find(const json_t *reply, const char *node, unsigned int number)
{
	const json_t *port;
	size_t i;

	json_array_foreach(json_object_get(json_object_get(reply, "node"), "ports"), i, port)
		if (ctl_integer(port, "port") == (json_int_t)number)
			return port;
	cli_error("%s has no port %u; `verbena fabric node %s` lists them", node, number, node);
	return NULL;
}

static void port_print(const char *node, const json_t *port)
{
	printf("%s/%" JSON_INTEGER_FORMAT ": %s (%s)%s%s\n", node, ctl_integer(port, "port"),
	       ctl_string(port, "state"), ctl_string(port, "physical"),
	       json_is_true(json_object_get(port, "cut")) ? ", its cable is cut" : "",
	       json_is_true(json_object_get(port, "issm")) ? ", a subnet manager is here" : "");
	printf("%-14s %s %s, %g Gbit/s, MTU %" JSON_INTEGER_FORMAT "\n", "link",
	       ctl_string(port, "width"), ctl_string(port, "speed"),
	       json_number_value(json_object_get(port, "gbps")), ctl_integer(port, "mtu"));
	if (json_object_get(port, "peer"))
		printf("%-14s %s/%" JSON_INTEGER_FORMAT "\n", "peer", ctl_string(port, "peer"),
		       ctl_integer(port, "peer_port"));
	if (*ctl_string(port, "guid"))
		printf("%-14s %s\n", "GUID", ctl_string(port, "guid"));
	printf("%-14s %" JSON_INTEGER_FORMAT " (LMC %" JSON_INTEGER_FORMAT
	       "), subnet manager's %" JSON_INTEGER_FORMAT "\n",
	       "LID", ctl_integer(port, "lid"), ctl_integer(port, "lmc"),
	       ctl_integer(port, "sm_lid"));
	words_print("GIDs", json_object_get(port, "gids"));
	words_print("P_Keys", json_object_get(port, "pkeys"));
	printf("%-14s 0x%08" PRIx64 "\n", "capabilities",
	       (uint64_t)ctl_integer(port, "capabilities"));
	counters_lines(json_object_get(port, "counters"));
}

int fabric_port_show(const char *node, unsigned int number, bool json)
{
	const json_t *port;
	json_t *reply;
	int code =
		fabric_request(json_pack("{s:s, s:s}", "op", "node", "node", node), json, &reply);

	if (code != CLI_OK)
		return code;
	port = port_find(reply, node, number);
	if (!port)
		code = CLI_FAILURE;
	else if (json)
		code = ctl_print_json(port);
	else
		port_print(node, port);
	json_decref(reply);
	return cli_finish(code);
}

int fabric_counters_show(json_t *request, bool json)
{
	const json_t *port;
	json_t *reply;
	size_t i;
	int code = fabric_request(request, json, &reply);

	if (code != CLI_OK)
		return code;
	if (json)
		return reply_finish(reply);
	json_array_foreach(json_object_get(reply, "ports"), i, port) {
		printf("%sport %" JSON_INTEGER_FORMAT "\n", i ? "\n" : "",
		       ctl_integer(port, "port"));
		counters_lines(json_object_get(port, "counters"));
	}
	json_decref(reply);
	return cli_finish(CLI_OK);
}
