/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric link`, `node`, `errors`, `drop`, `delay` and `counters`: what is changed in a
 * fabric that runs. No state. One thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ctl.h"
#include "cli/fabric.h"
#include "cli/fabric_view.h"

/* Links and nodes ------------------------------------------------------------------------------ */

static int link_run(const struct cli_command *self, int argc, char **argv)
{
	struct fabric_options options;
	int code = fabric_options_parse(self, argc, argv, 0, 2, &options);
	unsigned int port;
	char *node, *action;

	if (code >= 0)
		return code;
	if (!options.arguments)
		return fabric_links_show(options.json);
	if (options.arguments != 2) {
		cli_error("what to do with the link? down, up or flap");
		return cli_usage(self);
	}
	node = options.argument[0];
	action = options.argument[1];
	if (!fabric_port_parse(node, &port))
		return cli_usage(self);
	return fabric_change(json_pack("{s:s, s:s, s:i, s:s}", "op", "link", "node", node, "port",
				       (int)port, "action", action),
			     options.json, "%s/%u: link %s", node, port,
			     !strcmp(action, "flap") ? "went down and up" : action);
}

const struct cli_command fabric_link = {
	.name = "fabric link",
	.summary = "list cables; cut or mend one",
	.help = "usage: verbena fabric link [--json] [NODE/PORT down|up|flap]\n\n"
		"Without arguments: lists all cables with their states. Else cuts the cable at "
		"the\n"
		"port (both ends go Down, and switches send a trap), mends it, or both.\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric link S1/7 down\n",
	.run = link_run,
};

static int node_run(const struct cli_command *self, int argc, char **argv)
{
	struct fabric_options options;
	int code = fabric_options_parse(self, argc, argv, 1, 3, &options);
	const char *node, *action;

	if (code >= 0)
		return code;
	node = options.argument[0];
	if (options.arguments == 1)
		return fabric_node_show(node, options.json);
	action = options.argument[1];
	if (!strcmp(action, "describe") && options.arguments == 3)
		return fabric_change(json_pack("{s:s, s:s, s:s}", "op", "describe", "node", node,
					       "description", options.argument[2]),
				     options.json, "%s: described as \"%s\"", node,
				     options.argument[2]);
	if (options.arguments == 3 || !strcmp(action, "describe")) {
		cli_error("`describe` takes a text, other actions nothing");
		return cli_usage(self);
	}
	return fabric_change(
		json_pack("{s:s, s:s, s:s}", "op", "power", "node", node, "action", action),
		options.json, "%s: %s", node, action);
}

const struct cli_command fabric_node = {
	.name = "fabric node",
	.summary = "show a node; take its power, reboot or mute it",
	.help = "usage: verbena fabric node [--json] NODE [off|on|reboot|mute|unmute]\n"
		"       verbena fabric node [--json] NODE describe TEXT\n\n"
		"Shows a node with its ports, or changes it:\n\n"
		"  off, on        without power all its links are down; it comes back with empty "
		"tables\n"
		"  reboot         both\n"
		"  mute, unmute   its management agents don't answer; data still passes\n"
		"  describe TEXT  its NodeDescription\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n",
	.run = node_run,
};

static int port_run(const struct cli_command *self, int argc, char **argv)
{
	struct fabric_options options;
	int code = fabric_options_parse(self, argc, argv, 1, 1, &options);
	unsigned int port;

	if (code >= 0)
		return code;
	if (!fabric_port_parse(options.argument[0], &port))
		return cli_usage(self);
	return fabric_port_show(options.argument[0], port, options.json);
}

const struct cli_command fabric_port = {
	.name = "fabric port",
	.summary = "show a port with all that is known of it",
	.help = "usage: verbena fabric port [--json] NODE/PORT\n\n"
		"Shows a port's state, addresses, partitions and counters. A switch's own port is\n"
		"number 0.\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n",
	.run = port_run,
};

/* Faults --------------------------------------------------------------------------------------- */

/* "symbol=12" counts now, "symbol=10/s" from now on. NULL, after a message: it is neither. */
static json_t *errors_parse(const char *text)
{
	const char *equals = strchr(text, '=');
	double number;
	char *end;

	if (equals && equals[1] >= '0' && equals[1] <= '9') {
		size_t length = (size_t)(equals - text);

		number = strtod(equals + 1, &end);
		if (!strcmp(end, "/s"))
			return json_pack("{s:s, s:s%, s:f}", "op", "errors", "counter", text,
					 length, "per_second", number);
		if (!*end && number <= UINT32_MAX && number == (double)(uint32_t)number)
			return json_pack("{s:s, s:s%, s:I}", "op", "errors", "counter", text,
					 length, "count", (json_int_t)number);
	}
	cli_error("`%s`: errors are written symbol=12 (now) or symbol=10/s (from now on)", text);
	return NULL;
}

static int errors_run(const struct cli_command *self, int argc, char **argv)
{
	struct fabric_options options;
	int code = fabric_options_parse(self, argc, argv, 0, 2, &options);
	unsigned int port;
	json_t *request;

	if (code >= 0)
		return code;
	if (!options.arguments)
		return fabric_errors_show(options.json);
	if (options.arguments != 2) {
		cli_error("which errors? For example symbol=12, or symbol=10/s");
		return cli_usage(self);
	}
	if (!fabric_port_parse(options.argument[0], &port))
		return cli_usage(self);
	request = errors_parse(options.argument[1]);
	if (!request)
		return cli_usage(self);
	json_object_set_new(request, "node", json_string(options.argument[0]));
	json_object_set_new(request, "port", json_integer(port));
	return fabric_change(request, options.json, "%s/%u: %s", options.argument[0], port,
			     options.argument[1]);
}

const struct cli_command fabric_errors = {
	.name = "fabric errors",
	.summary = "list ports with errors; let a port count some",
	.help = "usage: verbena fabric errors [--json] [NODE/PORT COUNTER=N|COUNTER=N/s]\n\n"
		"Without arguments: lists the ports whose error counters aren't zero. Else adds N\n"
		"to a counter, or N each second from now on (0/s: no longer). Counters:\n\n"
		"  symbol link_recovery link_downed rcv_errors rcv_remote_physical\n"
		"  rcv_switch_relay xmit_discards xmit_constraint rcv_constraint local_integrity\n"
		"  buffer_overrun qp1_dropped vl15_dropped xmit_wait\n\n"
		"  -j, --json   for scripts\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric errors S1/7 symbol=10/s\n",
	.run = errors_run,
};

static int drop_run(const struct cli_command *self, int argc, char **argv)
{
	struct fabric_options options;
	int code = fabric_options_parse(self, argc, argv, 2, 3, &options);
	unsigned long attribute = 0;
	unsigned int port;
	double percent;
	char *end;

	if (code >= 0)
		return code;
	if (!fabric_port_parse(options.argument[0], &port))
		return cli_usage(self);
	percent = strtod(options.argument[1], &end);
	if (end == options.argument[1] || (*end && strcmp(end, "%") != 0) ||
	    !(percent >= 0 && percent <= 100)) {
		cli_error("`%s` is no percentage from 0 to 100", options.argument[1]);
		return cli_usage(self);
	}
	if (options.arguments == 3) {
		attribute = strtoul(options.argument[2], &end, 0);
		if (*end || !attribute || attribute > 0xffff) {
			cli_error("`%s` is no attribute of MADs, such as 0x11",
				  options.argument[2]);
			return cli_usage(self);
		}
	}
	return fabric_change(json_pack("{s:s, s:s, s:i, s:f, s:I}", "op", "drop", "node",
				       options.argument[0], "port", (int)port, "percent", percent,
				       "attribute", (json_int_t)attribute),
			     options.json, "%s/%u: %g %% are dropped", options.argument[0], port,
			     percent);
}

const struct cli_command fabric_drop = {
	.name = "fabric drop",
	.summary = "let a port lose what arrives",
	.help = "usage: verbena fabric drop [--json] NODE/PORT PERCENT [ATTRIBUTE]\n\n"
		"Drops so many per cent of the packets that arrive at the port, by chance (0: no\n"
		"longer); with ATTRIBUTE only management datagrams with that attribute.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n\n"
		"Example: verbena fabric drop S1/7 0.5%\n",
	.run = drop_run,
};

static int delay_run(const struct cli_command *self, int argc, char **argv)
{
	struct fabric_options options;
	int code = fabric_options_parse(self, argc, argv, 2, 2, &options);
	uint32_t ns = 0;
	unsigned int port;

	if (code >= 0)
		return code;
	if (!fabric_port_parse(options.argument[0], &port))
		return cli_usage(self);
	if (strcmp(options.argument[1], "0") != 0 &&
	    !topology_delay_parse(&ns, options.argument[1], strlen(options.argument[1]))) {
		cli_error("`%s` is no time up to 1s, such as 200ns or 2us", options.argument[1]);
		return cli_usage(self);
	}
	return fabric_change(
		json_pack("{s:s, s:s, s:i, s:I}", "op", "delay", "node", options.argument[0],
			  "port", (int)port, "ns", (json_int_t)ns),
		options.json, "%s/%u: %" PRIu32 " ns of delay", options.argument[0], port, ns);
}

const struct cli_command fabric_delay = {
	.name = "fabric delay",
	.summary = "delay what arrives at a port",
	.help = "usage: verbena fabric delay [--json] NODE/PORT TIME\n\n"
		"Adds TIME (200ns, 2us, 1ms; 0: none) to the way of each packet that arrives at\n"
		"the port.\n\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n",
	.run = delay_run,
};

/* Counters ------------------------------------------------------------------------------------- */

static int counters_run(const struct cli_command *self, int argc, char **argv)
{
	static const struct option known[] = {
		{"clear", no_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool clear = false, json = false;
	unsigned int port = 0;
	json_t *request;
	int option;
	char *node;

	while ((option = getopt_long(argc, argv, "cjh", known, NULL)) != -1) {
		if (option == 'h')
			return cli_help(self);
		if (option != 'c' && option != 'j')
			return cli_usage(self);
		clear |= option == 'c';
		json |= option == 'j';
	}
	if (argc - optind != 1) {
		cli_error("whose counters? Give a node or a port: S1, S1/7");
		return cli_usage(self);
	}
	node = argv[optind];
	request = json_pack("{s:s, s:b}", "op", "counters", "clear", clear);
	if (strchr(node, '/') && fabric_port_parse(node, &port))
		json_object_set_new(request, "port", json_integer(port));
	json_object_set_new(request, "node", json_string(node));
	return fabric_counters_show(request, json);
}

const struct cli_command fabric_counters = {
	.name = "fabric counters",
	.summary = "show or clear the counters of a port or a node",
	.help = "usage: verbena fabric counters [--clear] [--json] NODE[/PORT]\n\n"
		"Shows the counters of a port, or of all ports of a node; those of errors when "
		"they\n"
		"aren't zero.\n\n"
		"  -c, --clear  clear them, after they are shown\n"
		"  -j, --json   for scripts: the answer\n"
		"  -h, --help   show this\n",
	.run = counters_run,
};
