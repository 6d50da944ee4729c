/* SPDX-License-Identifier: BSD-2-Clause */
/* What `verbena fabric` changes: links, nodes, faults, counters, saved states. */
#include "fabricd/control.h"
#include "fabricd/describe.h"
#include "fabricd/state.h"
#include "fabricd/tap.h"
#include "topology/topology.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Requests and answers ------------------------------------------------------------------------- */

json_t *answer_refuse(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	return json_pack("{s:b, s:s}", "ok", 0, "error", text);
}

static json_t *answer_done(void)
{
	return json_pack("{s:b}", "ok", 1);
}

const char *request_text(const json_t *request, const char *key)
{
	const char *text = json_string_value(json_object_get(request, key));

	return text ? text : "";
}

uint32_t request_node(const struct server *server, const json_t *request, const char *key,
		      json_t **refusal)
{
	const char *name = request_text(request, key);
	uint32_t node = *name ? server_node_find(server, name) : FABRIC_NONE;

	if (node == FABRIC_NONE)
		*refusal = *name ? answer_refuse("there is no node \"%s\"", name)
				 : answer_refuse("the request has no \"%s\"", key);
	return node;
}

uint32_t request_port(const struct server *server, const json_t *request, json_t **refusal)
{
	json_int_t number = json_integer_value(json_object_get(request, "port"));
	uint32_t node = request_node(server, request, "node", refusal);
	uint32_t row = FABRIC_NONE;

	if (node == FABRIC_NONE)
		return FABRIC_NONE;
	if (json_is_integer(json_object_get(request, "port")) && number >= 0 &&
	    number <= (json_int_t)FABRIC_PORTS_MAX)
		row = fabric_port_row(&server->fabric, node, (unsigned int)number);
	if (row == FABRIC_NONE)
		*refusal = answer_refuse("\"%s\" has no port %lld: its ports are %d to %d",
					 fabric_node_name(&server->fabric, node), (long long)number,
					 server->fabric.nodes[node].type != FABRIC_SWITCH,
					 server->fabric.nodes[node].ports);
	return row;
}

/* Links and nodes ------------------------------------------------------------------------------ */

static json_t *link_operate(struct server *server, const json_t *request)
{
	const char *action = request_text(request, "action");
	json_t *refusal = NULL;
	uint32_t port = request_port(server, request, &refusal);
	uint64_t now = server_now_ms();
	int result = 0;

	if (refusal)
		return refusal;
	if (strcmp(action, "down") && strcmp(action, "up") && strcmp(action, "flap"))
		return answer_refuse("a link goes \"down\", \"up\", or both: \"flap\"");
	if (strcmp(action, "up"))
		result = fabric_cable_set(&server->fabric, port, true, now);
	if (strcmp(action, "down"))
		result = fabric_cable_set(&server->fabric, port, false, now);
	if (result)
		return answer_refuse("port %d of \"%s\" has no cable",
				     server->fabric.ports[port].number,
				     request_text(request, "node"));
	return answer_done();
}

static json_t *power_operate(struct server *server, const json_t *request)
{
	const char *action = request_text(request, "action");
	json_t *refusal = NULL;
	uint32_t node = request_node(server, request, "node", &refusal);
	uint64_t now = server_now_ms();

	if (refusal)
		return refusal;
	if (!strcmp(action, "mute") || !strcmp(action, "unmute")) {
		server->fabric.nodes[node].is_mute = *action == 'm';
		return answer_done();
	}
	if (strcmp(action, "off") && strcmp(action, "on") && strcmp(action, "reboot"))
		return answer_refuse("a node goes \"off\", \"on\", or both: \"reboot\"; or "
				     "\"mute\", \"unmute\"");
	if (strcmp(action, "on"))
		fabric_power_set(&server->fabric, node, false, now);
	if (strcmp(action, "off"))
		fabric_power_set(&server->fabric, node, true, now);
	return answer_done();
}

static json_t *system_guid_operate(struct server *server, const json_t *request)
{
	const char *text = request_text(request, "guid");
	json_t *refusal = NULL;
	uint32_t node = request_node(server, request, "node", &refusal);
	char *end = NULL;
	uint64_t guid;

	if (refusal)
		return refusal;
	guid = strtoull(text, &end, 16);
	if (strncmp(text, "0x", 2) || *end || !guid)
		return answer_refuse("\"%s\" is no GUID such as \"0x200000\"", text);
	fabric_system_guid_set(&server->fabric, node, guid, server_now_ms());
	return answer_done();
}

static json_t *describe_operate(struct server *server, const json_t *request)
{
	json_t *refusal = NULL;
	uint32_t node = request_node(server, request, "node", &refusal);

	if (refusal)
		return refusal;
	fabric_description_set(&server->fabric, node, request_text(request, "description"),
			       server_now_ms());
	return answer_done();
}

/* Faults --------------------------------------------------------------------------------------- */

/* Sets, changes or (0) ends the errors that a port makes by itself. 0 or -ENOMEM. */
static int rate_set(struct server *server, uint32_t port, enum fabric_error error,
		    double per_second)
{
	struct error_rate *grown;
	unsigned int at = 0;

	while (at < server->rate_count &&
	       (server->rates[at].port != port || server->rates[at].error != error))
		at++;
	if (at == server->rate_count) {
		if (per_second <= 0)
			return 0;
		grown = realloc(server->rates, (at + 1) * sizeof *grown);
		if (!grown)
			return -ENOMEM;
		server->rates = grown;
		if (!server->rate_count++)
			server->rates_ms = server_now_ms();
		server->rates[at] = (struct error_rate){.port = port, .error = error};
	}
	if (per_second > 0)
		server->rates[at].per_second = per_second;
	else
		server->rates[at] = server->rates[--server->rate_count];
	return 0;
}

static json_t *errors_operate(struct server *server, const json_t *request)
{
	enum fabric_error error = error_find(request_text(request, "counter"));
	const json_t *per_second = json_object_get(request, "per_second");
	json_int_t count = json_integer_value(json_object_get(request, "count"));
	json_t *refusal = NULL;
	uint32_t port = request_port(server, request, &refusal);

	if (refusal)
		return refusal;
	if (error == ERRORS)
		return answer_refuse("there is no error counter \"%s\"",
				     request_text(request, "counter"));
	if (json_is_number(per_second)) {
		if (rate_set(server, port, error, json_number_value(per_second)))
			return answer_refuse("no memory");
		return answer_done();
	}
	if (count < 0 || count > UINT32_MAX)
		return answer_refuse("\"count\" must be 0 to %u", UINT32_MAX);
	server->fabric.now_ms = server_now_ms();
	fabric_error_add(&server->fabric, port, error, (uint32_t)count);
	return answer_done();
}

static json_t *drop_operate(struct server *server, const json_t *request)
{
	double percent = json_number_value(json_object_get(request, "percent"));
	json_int_t attribute = json_integer_value(json_object_get(request, "attribute"));
	json_t *refusal = NULL;
	uint32_t port = request_port(server, request, &refusal);

	if (refusal)
		return refusal;
	if (!(percent >= 0 && percent <= 100) || attribute < 0 || attribute > 0xffff)
		return answer_refuse("\"percent\" must be 0 to 100, \"attribute\" 0 to 65535");
	server->fabric.ports[port].drop_ppm = (uint32_t)(percent * 10000 + 0.5);
	server->fabric.ports[port].drop_attribute = (uint16_t)attribute;
	fabric_routes_changed(&server->fabric);
	return answer_done();
}

static json_t *delay_operate(struct server *server, const json_t *request)
{
	json_int_t ns = json_integer_value(json_object_get(request, "ns"));
	json_t *refusal = NULL;
	uint32_t port = request_port(server, request, &refusal);

	if (refusal)
		return refusal;
	if (ns < 0 || ns > 1000000000)
		return answer_refuse("\"ns\" must be 0 to 1000000000");
	server->fabric.ports[port].delay_ns = (uint32_t)ns;
	fabric_routes_changed(&server->fabric);
	return answer_done();
}

/* What is written: "width": "4X", "speed": "HDR"; without a width: what the cable had at first. */
static json_t *rate_operate(struct server *server, const json_t *request)
{
	const char *width_text = request_text(request, "width");
	const char *speed_text = request_text(request, "speed");
	enum topology_speed speed = topology_speed_find(speed_text);
	unsigned int width = topology_width_find(width_text);
	const struct fabric_speed wanted = {
		.basic = (uint8_t)topology_speed_basic(speed),
		.ext = (uint8_t)topology_speed_extended(speed),
		.ext2 = (uint8_t)topology_speed_extended2(speed),
	};
	json_t *refusal = NULL;
	uint32_t port = request_port(server, request, &refusal);
	int result;

	if (refusal)
		return refusal;
	if (*width_text && (!width || !speed))
		return answer_refuse("\"%s %s\" is no width and speed such as \"4X HDR\"",
				     width_text, speed_text);
	result = fabric_rate_set(&server->fabric, port, (uint8_t)width, wanted, server_now_ms());
	if (result == -EINVAL)
		return answer_refuse("the ports of this cable can't do %s %s", width_text,
				     speed_text);
	if (result)
		return answer_refuse("port %d of \"%s\" has no cable",
				     server->fabric.ports[port].number,
				     request_text(request, "node"));
	return answer_done();
}

static json_t *counters_operate(struct server *server, const json_t *request)
{
	bool has_port = json_object_get(request, "port") != NULL;
	json_t *refusal = NULL, *ports = json_array();
	uint32_t node = request_node(server, request, "node", &refusal);
	uint32_t only =
		has_port && !refusal ? request_port(server, request, &refusal) : FABRIC_NONE;

	if (refusal) {
		json_decref(ports);
		return refusal;
	}
	for (unsigned int number = 0; number <= server->fabric.nodes[node].ports; number++) {
		uint32_t row = fabric_port_row(&server->fabric, node, number);

		if (row == FABRIC_NONE || (has_port && row != only))
			continue;
		json_array_append_new(ports,
				      json_pack("{s:i, s:o}", "port", (int)number, "counters",
						show_counters(&server->fabric, row)));
		if (json_is_true(json_object_get(request, "clear")))
			fabric_counters_clear(&server->fabric, row);
	}
	return json_pack("{s:b, s:o}", "ok", 1, "ports", ports);
}

/* Saved states --------------------------------------------------------------------------------- */

static json_t *save_operate(struct server *server, const json_t *request)
{
	const char *path = request_text(request, "path");
	int result = *path == '/' ? state_save(server, path) : -EINVAL;

	if (result == -EINVAL)
		return answer_refuse("\"path\" must be absolute");
	if (result)
		return answer_refuse("cannot write %s: %s", path, strerror(-result));
	return json_pack("{s:b, s:I}", "ok", 1, "bytes", (json_int_t)server->bytes);
}

static json_t *load_operate(struct server *server, const json_t *request)
{
	const char *path = request_text(request, "path");
	int result = *path == '/' ? state_load(server, path) : -ENOENT;

	if (result == -EINVAL)
		return answer_refuse("%s isn't a saved state of this topology; `verbena-fabric "
				     "--restore` begins with it",
				     path);
	if (result)
		return answer_refuse("cannot read %s: %s", path, strerror(-result));
	return answer_done();
}

/* What crosses the port's cable comes on a stream that is passed with the answer (control.c). */
static json_t *capture_operate(struct server *server, const json_t *request)
{
	json_t *refusal = NULL;
	uint32_t port = request_port(server, request, &refusal);

	if (refusal)
		return refusal;
	if (server->fabric.ports[port].cable == FABRIC_NONE)
		return answer_refuse("port %d of \"%s\" has no cable",
				     server->fabric.ports[port].number,
				     request_text(request, "node"));
	if (!taps_have_room(server))
		return answer_refuse("there are %u captures already", TAPS_AT_ONCE);
	return json_pack("{s:b, s:I}", "ok", 1, "row", (json_int_t)port);
}

static json_t *down_operate(struct server *server, const json_t *request)
{
	(void)server;
	(void)request;
	return answer_done();
}

/* Dispatch ------------------------------------------------------------------------------------- */

struct operation {
	const char *name;
	json_t *(*answer)(struct server *server, const json_t *request);
};

static const struct operation operations[] = {
	{"status", status_show},
	{"topology", show_topology},
	{"node", show_node},
	{"trace", show_trace},
	{"table", show_table},
	{"link", link_operate},
	{"power", power_operate},
	{"describe", describe_operate},
	{"errors", errors_operate},
	{"drop", drop_operate},
	{"delay", delay_operate},
	{"rate", rate_operate},
	{"system-guid", system_guid_operate},
	{"counters", counters_operate},
	{"save", save_operate},
	{"load", load_operate},
	{"down", down_operate},
	{"capture", capture_operate},
};

json_t *operation_answer(struct server *server, const json_t *request)
{
	const char *name = request_text(request, "op");

	for (unsigned int i = 0; i < sizeof operations / sizeof operations[0]; i++)
		if (!strcmp(operations[i].name, name))
			return operations[i].answer(server, request);
	return answer_refuse("there is no operation \"%s\"", name);
}
