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
	"vl15_dropped",	   "xmit_wait",		  "flow_control",
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

static void cell_text(struct table *table, const char *text)
{
	table_add_cell(table, TABLE_PLAIN, "%s", text);
}

/* An end of a link in `topology`'s answer, as NODE/PORT. */
static void cell_end(struct table *table, const json_t *nodes, const json_t *end)
{
	const json_t *node =
		json_array_get(nodes, (size_t)json_integer_value(json_array_get(end, 0)));

	table_add_cell(table, TABLE_PLAIN, "%s/%" JSON_INTEGER_FORMAT, ctl_string(node, "name"),
		       json_integer_value(json_array_get(end, 1)));
}

/* A table of a list in an answer. */
struct view {
	const struct table_column *columns;
	size_t width;
	const char *list; /* the member of the answer */
	/* Completes the answer before its rows are shown; NULL: it is complete. */
	void (*prepare)(json_t *reply);
	/* Adds as many rows for an item of the list as it needs. */
	void (*row)(struct table *table, const json_t *reply, const json_t *item);
	const char *empty; /* what is said instead of a table without rows; NULL: the titles */
};

static void view_print(const struct view *view, const json_t *reply)
{
	const json_t *item;
	struct table table;
	size_t i;

	table_set_columns(&table, view->columns, view->width);
	json_array_foreach(json_object_get(reply, view->list), i, item)
		view->row(&table, reply, item);
	if (table.count || !view->empty)
		table_print(&table, stdout, table_colour_wanted(stdout));
	else
		puts(view->empty);
	table_free(&table);
}

/* Asks (`request` is stolen), and prints the table or, with `json`, the answer. */
static int view_show(const struct view *view, json_t *request, bool json)
{
	json_t *reply;
	int code = fabric_ask(request, json, &reply);

	if (code != FABRIC_GO_ON)
		return code;
	if (view->prepare)
		view->prepare(reply);
	view_print(view, reply);
	json_decref(reply);
	return cli_finish(CLI_OK);
}

static json_t *topology_request(bool counters)
{
	return json_pack("{s:s, s:b}", "op", "topology", "counters", counters);
}

/* Nodes and links ------------------------------------------------------------------------------ */

/* Gives each node the number of its cables. */
static void cables_count(json_t *reply)
{
	const json_t *nodes = json_object_get(reply, "nodes"), *link;
	size_t i;

	json_array_foreach(json_object_get(reply, "links"), i, link)
		for (int k = 0; k < 2; k++) {
			const json_t *end = json_object_get(link, k ? "b" : "a");
			json_t *row = json_array_get(
				nodes, (size_t)json_integer_value(json_array_get(end, 0)));

			json_object_set_new(row, "cables",
					    json_integer(ctl_integer(row, "cables") + 1));
		}
}

/* An empty cell for LID 0: there is none. */
static void cell_lid(struct table *table, const json_t *object)
{
	if (ctl_integer(object, "lid"))
		cell_integer(table, object, "lid");
	else
		cell_text(table, "");
}

static void view_node_row(struct table *table, const json_t *reply, const json_t *node)
{
	bool is_off = json_is_true(json_object_get(node, "off"));
	bool is_mute = json_is_true(json_object_get(node, "mute"));

	(void)reply;
	table_add_cell(table, is_off ? TABLE_BAD : TABLE_PLAIN, "%s%s", ctl_string(node, "name"),
		       is_off	 ? " (off)"
		       : is_mute ? " (mute)"
				 : "");
	cell_text(table, ctl_string(node, "type"));
	cell_lid(table, node);
	cell_integer(table, node, "port_count");
	cell_integer(table, node, "cables");
	cell_text(table, ctl_string(node, "guid"));
	cell_text(table, ctl_string(node, "description"));
}

int fabric_nodes_show(bool json)
{
	static const struct table_column columns[] = {
		{"NODE", false},  {"TYPE", false}, {"LID", true},	   {"PORTS", true},
		{"CABLES", true}, {"GUID", false}, {"DESCRIPTION", false},
	};
	static const struct view view = {COLUMNS(columns), .list = "nodes", .prepare = cables_count,
					 .row = view_node_row};

	return view_show(&view, topology_request(false), json);
}

static void view_link_row(struct table *table, const json_t *reply, const json_t *link)
{
	const json_t *nodes = json_object_get(reply, "nodes");
	const char *a = ctl_string(link, "state"), *b = ctl_string(link, "state_b");

	cell_end(table, nodes, json_object_get(link, "a"));
	cell_end(table, nodes, json_object_get(link, "b"));
	if (json_is_true(json_object_get(link, "cut")))
		table_add_cell(table, TABLE_BAD, "cut");
	else if (strcmp(a, b) != 0)
		table_add_cell(table, TABLE_PLAIN, "%s/%s", a, b);
	else
		table_add_cell(table, state_style(a), "%s", a);
	table_add_cell(table, TABLE_PLAIN, "%s %s", ctl_string(link, "width"),
		       ctl_string(link, "speed"));
	table_add_cell(table, TABLE_PLAIN, "%g", json_number_value(json_object_get(link, "gbps")));
}

int fabric_links_show(bool json)
{
	static const struct table_column columns[] = {
		{"A", false}, {"B", false}, {"STATE", false}, {"LINK", false}, {"GBIT/S", true},
	};
	static const struct view view = {COLUMNS(columns), .list = "links", .row = view_link_row};

	return view_show(&view, topology_request(false), json);
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

static void view_errors_rows(struct table *table, const json_t *reply, const json_t *link)
{
	char text[512];

	for (int end = 0; end < 2; end++) {
		errors_text(text, sizeof(text),
			    json_object_get(link, end ? "counters_b" : "counters_a"));
		if (!*text)
			continue;
		cell_end(table, json_object_get(reply, "nodes"),
			 json_object_get(link, end ? "b" : "a"));
		table_add_cell(table, TABLE_BAD, "%s", text);
	}
}

int fabric_errors_show(bool json)
{
	static const struct table_column columns[] = {{"PORT", false}, {"ERRORS", false}};
	static const struct view view = {COLUMNS(columns), .list = "links", .row = view_errors_rows,
					 .empty = "no errors"};

	return view_show(&view, topology_request(true), json);
}

/* A node, a port ------------------------------------------------------------------------------- */

static void view_port_row(struct table *table, const json_t *node, const json_t *port)
{
	const char *state = ctl_string(port, "state");
	char text[512];

	(void)node;
	cell_integer(table, port, "port");
	table_add_cell(table, state_style(state), "%s", state);
	cell_text(table, ctl_string(port, "physical"));
	cell_lid(table, port);
	table_add_cell(table, TABLE_PLAIN, "%s %s", ctl_string(port, "width"),
		       ctl_string(port, "speed"));
	cell_integer(table, port, "mtu");
	if (json_object_get(port, "peer"))
		table_add_cell(table, TABLE_PLAIN, "%s/%" JSON_INTEGER_FORMAT "%s",
			       ctl_string(port, "peer"), ctl_integer(port, "peer_port"),
			       json_is_true(json_object_get(port, "cut")) ? " (cut)" : "");
	else
		cell_text(table, "");
	errors_text(text, sizeof(text), json_object_get(port, "counters"));
	table_add_cell(table, *text ? TABLE_BAD : TABLE_PLAIN, "%s", text);
}

static int view_node_ask(const char *name, bool json, json_t **reply)
{
	return fabric_ask(json_pack("{s:s, s:s}", "op", "node", "node", name), json, reply);
}

int fabric_node_show(const char *name, bool json)
{
	static const struct table_column columns[] = {
		{"PORT", true},	 {"STATE", false}, {"PHYSICAL", false}, {"LID", true},
		{"LINK", false}, {"MTU", true},	   {"PEER", false},	{"ERRORS", false},
	};
	static const struct view view = {COLUMNS(columns), .list = "ports", .row = view_port_row};
	json_t *reply;
	const json_t *node;
	int code = view_node_ask(name, json, &reply);

	if (code != FABRIC_GO_ON)
		return code;
	node = json_object_get(reply, "node");
	printf("%s: %s, GUID %s, \"%s\"%s%s\n", ctl_string(node, "name"), ctl_string(node, "type"),
	       ctl_string(node, "guid"), ctl_string(node, "description"),
	       json_is_true(json_object_get(node, "off")) ? ", without power" : "",
	       json_is_true(json_object_get(node, "mute")) ? ", its agents don't answer" : "");
	view_print(&view, node);
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
	int code = fabric_ask(request, json, &reply);

	if (code != FABRIC_GO_ON)
		return code;
	json_array_foreach(json_object_get(reply, "ports"), i, port) {
		printf("%sport %" JSON_INTEGER_FORMAT "\n", i ? "\n" : "",
		       ctl_integer(port, "port"));
		counters_lines(json_object_get(port, "counters"));
	}
	json_decref(reply);
	return cli_finish(CLI_OK);
}
