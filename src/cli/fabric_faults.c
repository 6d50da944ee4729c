/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric link`, `node`, `errors`, `drop`, `delay`, `rate` and `counters`: what is changed
 * in a fabric that runs. No state. One thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/fabric_view.h"

/* Links and nodes ------------------------------------------------------------------------------ */

static int link_act(const struct fabric_call *call)
{
	char *node, *action;

	if (!call->arguments)
		return fabric_links_show(call->json);
	if (call->arguments != 2) {
		cli_error("what to do with the link? down, up or flap");
		return cli_usage(call->self);
	}
	node = call->argument[0];
	action = call->argument[1];
	return fabric_change(json_pack("{s:s, s:s, s:i, s:s}", "op", "link", "node", node, "port",
				       (int)call->port, "action", action),
			     call->json, "%s/%u: link %s", node, call->port,
			     !strcmp(action, "flap") ? "went down and up" : action);
}

const struct fabric_command fabric_link = {
	.cli.name = "fabric link",
	.cli.summary = "list cables; cut or mend one",
	.cli.help =
		"usage: verbena fabric link [--json] [NODE/PORT down|up|flap]\n\n"
		"Without arguments: lists all cables with their states. Else cuts the cable\n"
		"at the port (both ends go Down, and switches send a trap), mends it, or both.\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric link S1/7 down\n",
	.cli.run = fabric_command_run,
	.most = 2,
	.port_use = FABRIC_PORT,
	.act = link_act,
};

static int node_act(const struct fabric_call *call)
{
	const char *node, *action;

	node = call->argument[0];
	if (call->arguments == 1)
		return fabric_node_show(node, call->json);
	action = call->argument[1];
	if (!strcmp(action, "describe") && call->arguments == 3)
		return fabric_change(json_pack("{s:s, s:s, s:s}", "op", "describe", "node", node,
					       "description", call->argument[2]),
				     call->json, "%s: described as \"%s\"", node,
				     call->argument[2]);
	if (call->arguments == 3 || !strcmp(action, "describe")) {
		cli_error("`describe` takes a text, other actions nothing");
		return cli_usage(call->self);
	}
	return fabric_change(
		json_pack("{s:s, s:s, s:s}", "op", "power", "node", node, "action", action),
		call->json, "%s: %s", node, action);
}

const struct fabric_command fabric_node = {
	.cli.name = "fabric node",
	.cli.summary = "show a node; take its power, reboot or mute it",
	.cli.help =
		"usage: verbena fabric node [--json] NODE [off|on|reboot|mute|unmute]\n"
		"       verbena fabric node [--json] NODE describe TEXT\n\n"
		"Shows a node with its ports, or changes it:\n\n"
		"  off, on        without power all its links are down; it comes back with empty "
		"tables\n"
		"  reboot         both\n"
		"  mute, unmute   its management agents don't answer; data still passes\n"
		"  describe TEXT  its NodeDescription\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.least = 1,
	.most = 3,
	.act = node_act,
};

static int port_act(const struct fabric_call *call)
{
	return fabric_port_show(call->argument[0], call->port, call->json);
}

const struct fabric_command fabric_port = {
	.cli.name = "fabric port",
	.cli.summary = "show a port with all that is known of it",
	.cli.help =
		"usage: verbena fabric port [--json] NODE/PORT\n\n"
		"Shows a port's state, addresses, partitions and counters. A switch's own port is\n"
		"number 0.\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.least = 1,
	.most = 1,
	.port_use = FABRIC_PORT,
	.act = port_act,
};

/* Faults --------------------------------------------------------------------------------------- */

/* Copies `text` without `suffix`. False: it doesn't end so, or is longer than `room`. */
static bool cut_suffix(const char *text, const char *suffix, char *rest, size_t room)
{
	size_t length = strlen(text), cut = strlen(suffix);

	if (length < cut || strcmp(text + length - cut, suffix) != 0 || length - cut >= room)
		return false;
	memcpy(rest, text, length - cut);
	rest[length - cut] = '\0';
	return true;
}

/* "symbol=12" counts now, "symbol=10/s" from now on. NULL, after a message: it is neither. */
static json_t *errors_parse(const char *text)
{
	const char *equals = strchr(text, '=');
	size_t length = equals ? (size_t)(equals - text) : 0;
	char rate[32];
	double per_second;
	uint32_t count;

	if (equals && quantity_number32(equals + 1, 0, UINT32_MAX, &count))
		return json_pack("{s:s, s:s%, s:I}", "op", "errors", "counter", text, length,
				 "count", (json_int_t)count);
	if (equals && cut_suffix(equals + 1, "/s", rate, sizeof(rate)) &&
	    quantity_fraction(rate, UINT32_MAX, &per_second))
		return json_pack("{s:s, s:s%, s:f}", "op", "errors", "counter", text, length,
				 "per_second", per_second);
	cli_error("`%s`: errors are written symbol=12 (now) or symbol=10/s (from now on)", text);
	return NULL;
}

static int errors_act(const struct fabric_call *call)
{
	json_t *request;

	if (!call->arguments)
		return fabric_errors_show(call->json);
	if (call->arguments != 2) {
		cli_error("which errors? For example symbol=12, or symbol=10/s");
		return cli_usage(call->self);
	}
	request = errors_parse(call->argument[1]);
	if (!request)
		return cli_usage(call->self);
	json_object_set_new(request, "node", json_string(call->argument[0]));
	json_object_set_new(request, "port", json_integer(call->port));
	return fabric_change(request, call->json, "%s/%u: %s", call->argument[0], call->port,
			     call->argument[1]);
}

const struct fabric_command fabric_errors = {
	.cli.name = "fabric errors",
	.cli.summary = "list ports with errors; let a port count some",
	.cli.help =
		"usage: verbena fabric errors [--json] [NODE/PORT COUNTER=N|COUNTER=N/s]\n\n"
		"Without arguments: lists the ports whose error counters aren't zero. Else adds N\n"
		"to a counter, or N each second from now on (0/s: no longer). Counters:\n\n"
		"  symbol link_recovery link_downed rcv_errors rcv_remote_physical\n"
		"  rcv_switch_relay xmit_discards xmit_constraint rcv_constraint local_integrity\n"
		"  buffer_overrun qp1_dropped vl15_dropped xmit_wait flow_control\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric errors S1/7 symbol=10/s\n",
	.cli.run = fabric_command_run,
	.most = 2,
	.port_use = FABRIC_PORT,
	.act = errors_act,
};

static int drop_act(const struct fabric_call *call)
{
	uint32_t attribute = 0;
	double percent;
	char number[32];

	if (!quantity_fraction(cut_suffix(call->argument[1], "%", number, sizeof(number))
				       ? number
				       : call->argument[1],
			       100, &percent)) {
		cli_error("`%s` is no percentage from 0 to 100", call->argument[1]);
		return cli_usage(call->self);
	}
	if (call->arguments == 3 && !quantity_number32(call->argument[2], 1, 0xffff, &attribute)) {
		cli_error("`%s` is no attribute of MADs, such as 0x11", call->argument[2]);
		return cli_usage(call->self);
	}
	return fabric_change(json_pack("{s:s, s:s, s:i, s:f, s:I}", "op", "drop", "node",
				       call->argument[0], "port", (int)call->port, "percent",
				       percent, "attribute", (json_int_t)attribute),
			     call->json, "%s/%u: %g %% are dropped", call->argument[0], call->port,
			     percent);
}

const struct fabric_command fabric_drop = {
	.cli.name = "fabric drop",
	.cli.summary = "let a port lose what arrives",
	.cli.help =
		"usage: verbena fabric drop [--json] NODE/PORT PERCENT [ATTRIBUTE]\n\n"
		"Drops so many per cent of the packets that arrive at the port, by chance (0: no\n"
		"longer); with ATTRIBUTE only management datagrams with that attribute.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric drop S1/7 0.5%\n",
	.cli.run = fabric_command_run,
	.least = 2,
	.most = 3,
	.port_use = FABRIC_PORT,
	.act = drop_act,
};

static int delay_act(const struct fabric_call *call)
{
	uint32_t ns = 0;

	if (strcmp(call->argument[1], "0") != 0 &&
	    !topology_delay_parse(&ns, call->argument[1], strlen(call->argument[1]))) {
		cli_error("`%s` is no time up to 1s, such as 200ns or 2us", call->argument[1]);
		return cli_usage(call->self);
	}
	return fabric_change(
		json_pack("{s:s, s:s, s:i, s:I}", "op", "delay", "node", call->argument[0], "port",
			  (int)call->port, "ns", (json_int_t)ns),
		call->json, "%s/%u: %" PRIu32 " ns of delay", call->argument[0], call->port, ns);
}

const struct fabric_command fabric_delay = {
	.cli.name = "fabric delay",
	.cli.summary = "delay what arrives at a port",
	.cli.help =
		"usage: verbena fabric delay [--json] NODE/PORT TIME\n\n"
		"Adds TIME (200ns, 2us, 1ms; 0: none) to the way of each packet that arrives at\n"
		"the port.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.least = 2,
	.most = 2,
	.port_use = FABRIC_PORT,
	.act = delay_act,
};

static int rate_act(const struct fabric_call *call)
{
	const char *node = call->argument[0], *width = call->argument[1];
	const char *speed = call->arguments == 3 ? call->argument[2] : NULL;

	if (!speed && !strcmp(width, "full"))
		return fabric_change(json_pack("{s:s, s:s, s:i}", "op", "rate", "node", node,
					       "port", (int)call->port),
				     call->json, "%s/%u: all that the ports can do", node,
				     call->port);
	if (!speed || !topology_width_find(width) || !topology_speed_find(speed)) {
		cli_error(
			"a rate is written 4X HDR: 1X, 2X, 4X, 8X or 12X, and SDR, DDR, QDR, FDR, "
			"EDR, HDR, NDR or XDR; or `full`");
		return cli_usage(call->self);
	}
	return fabric_change(json_pack("{s:s, s:s, s:i, s:s, s:s}", "op", "rate", "node", node,
				       "port", (int)call->port, "width", width, "speed", speed),
			     call->json, "%s/%u: %s %s", node, call->port, width, speed);
}

const struct fabric_command fabric_rate = {
	.cli.name = "fabric rate",
	.cli.summary = "let a cable carry less: lanes and speed",
	.cli.help =
		"usage: verbena fabric rate [--json] NODE/PORT WIDTH SPEED\n"
		"       verbena fabric rate [--json] NODE/PORT full\n\n"
		"The port's cable carries no more lanes and no higher speed from now on, as a bad\n"
		"one does; `full`: all that its ports can do. The link trains again, and so goes\n"
		"down for a moment: switches send traps.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric rate S1/7 1X EDR\n",
	.cli.run = fabric_command_run,
	.least = 2,
	.most = 3,
	.port_use = FABRIC_PORT,
	.act = rate_act,
};

/* Counters ------------------------------------------------------------------------------------- */

static int counters_act(const struct fabric_call *call)
{
	json_t *request = json_pack("{s:s, s:s, s:b}", "op", "counters", "node", call->argument[0],
				    "clear", call->flag);

	if (call->has_port)
		json_object_set_new(request, "port", json_integer(call->port));
	return fabric_counters_show(request, call->json);
}

const struct fabric_command fabric_counters = {
	.cli.name = "fabric counters",
	.cli.summary = "show or clear the counters of a port or a node",
	.cli.help = "usage: verbena fabric counters [--clear] [--json] NODE[/PORT]\n\n"
		    "Shows the counters of a port, or of all ports of a node; those of errors\n"
		    "when they aren't zero.\n\n"
		    "  -c, --clear  clear them, after they are shown\n"
		    "  -j, --json   for scripts: the answer\n"
		    "  -h, --help   show this\n",
	.cli.run = fabric_command_run,
	.least = 1,
	.most = 1,
	.port_use = FABRIC_MAYBE_PORT,
	.flag = "clear",
	.act = counters_act,
};
