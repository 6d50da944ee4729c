/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena fabric`: the table of its subcommands, and what they share. No state. One thread.
 */
#include "cli/fabric.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/quantity.h"
#include "cli/ctl.h"
#include "cli/table.h"

static const struct cli_command *const commands[] = {
	&fabric_up,	  &fabric_down.cli,	&fabric_status.cli, &fabric_show,
	&fabric_exec,	  &fabric_gen,		&fabric_link.cli,   &fabric_node.cli,
	&fabric_port.cli, &fabric_errors.cli,	&fabric_drop.cli,   &fabric_delay.cli,
	&fabric_rate.cli, &fabric_counters.cli, &fabric_trace,	    &fabric_save.cli,
	&fabric_load.cli,
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* All counters of 10,000 nodes are some 30 MB. */
#define REPLY_LIMIT_S 60

static const struct ctl_server fabric_server = {
	.socket = "fabctl",
	.absent = "no fabric is up",
	.remedy = "`verbena fabric up TOPOLOGY` starts one",
	.limit_s = REPLY_LIMIT_S,
};

int fabric_request(json_t *request, bool json, json_t **reply)
{
	return ctl_request_at(&fabric_server, request, json, reply);
}

json_t *fabric_ask_silently(json_t *request)
{
	return ctl_ask_at(&fabric_server, request);
}

int fabric_ask(json_t *request, bool json, json_t **reply)
{
	int code = fabric_request(request, json, reply);

	if (code != CLI_OK)
		return code;
	if (!json)
		return FABRIC_GO_ON;
	code = ctl_print_json(*reply);
	json_decref(*reply);
	return code;
}

int fabric_request_fd(json_t *request, json_t **reply, int *fd)
{
	return ctl_request_fd_at(&fabric_server, request, reply, fd);
}

int fabric_change(json_t *request, bool json, const char *format, ...)
{
	json_t *reply;
	va_list args;
	int code = fabric_ask(request, json, &reply);

	if (code != FABRIC_GO_ON)
		return code;
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	json_decref(reply);
	return cli_finish(CLI_OK);
}

/* Splits "S1/7" at its last slash, in place. False, with `text` as it was: it is no port. */
static bool port_split(char *text, unsigned int *port)
{
	char *slash = strrchr(text, '/');

	if (!slash || slash == text || !quantity_number32(slash + 1, 0, TOPOLOGY_PORTS_MAX, port))
		return false;
	*slash = '\0';
	return true;
}

bool fabric_port_parse(char *text, unsigned int *port)
{
	if (port_split(text, port))
		return true;
	cli_error("`%s` is no port: it is written NODE/PORT, such as S1/7", text);
	return false;
}

/* The options. Returns FABRIC_GO_ON or an exit code. */
static int options_parse(const struct fabric_command *command, struct fabric_call *call, int argc,
			 char **argv)
{
	char flag = command->flag ? *command->flag : 0, letters[] = {'j', 'h', flag, '\0'};
	const struct option known[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{command->flag, no_argument, NULL, flag},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, letters, known, NULL)) != -1) {
		if (option == 'h')
			return cli_help(call->self);
		if (option == '?')
			return cli_usage(call->self);
		*(option == 'j' ? &call->json : &call->flag) = true;
	}
	return FABRIC_GO_ON;
}

/* The port, where the first argument may be one. False, after a message: it must be. */
static bool port_take(const struct fabric_command *command, struct fabric_call *call)
{
	if (command->port_use == FABRIC_NO_PORT || !call->arguments)
		return true;
	if (command->port_use == FABRIC_PORT)
		call->has_port = fabric_port_parse(call->argument[0], &call->port);
	else
		call->has_port = port_split(call->argument[0], &call->port);
	return call->has_port || command->port_use == FABRIC_MAYBE_PORT;
}

int fabric_command_run(const struct cli_command *self, int argc, char **argv)
{
	const struct fabric_command *command = (const struct fabric_command *)self;
	struct fabric_call call = {.self = self};
	int code = options_parse(command, &call, argc, argv);

	if (code != FABRIC_GO_ON)
		return code;
	call.arguments = argc - optind;
	call.argument = argv + optind;
	if (call.arguments < command->least)
		cli_error("%s: something is missing", self->name);
	else if (call.arguments > command->most)
		cli_error("%s: too much is given", self->name);
	else if (port_take(command, &call))
		return command->act(&call);
	return cli_usage(self);
}

void fabric_report_print(const char *path, const struct topology_report *report)
{
	bool colour = table_colour_wanted(stderr);

	for (uint32_t i = 0; i < report->count; i++) {
		const struct topology_remark *remark = &report->remarks[i];

		fprintf(stderr, "%s:", path);
		if (remark->line)
			fprintf(stderr, "%u:", remark->line);
		fprintf(stderr, " %s%s:%s %s\n",
			!colour		     ? ""
			: remark->is_warning ? "\033[33m"
					     : "\033[31m",
			remark->is_warning ? "warning" : "error", colour ? "\033[0m" : "",
			remark->text);
	}
	if (report->dropped)
		fprintf(stderr, "%s: %u more like these\n", path, report->dropped);
}

/* {"ok": false, "error": ..., "remarks": [...]} for scripts. */
static void report_print_json(const char *text, const struct topology_report *report)
{
	json_t *remarks = json_array();
	json_t *object;

	for (uint32_t i = 0; i < report->count; i++)
		json_array_append_new(remarks,
				      json_pack("{s:i, s:s, s:s}", "line",
						(int)report->remarks[i].line, "kind",
						report->remarks[i].is_warning ? "warning" : "error",
						"text", report->remarks[i].text));
	object = json_pack("{s:b, s:s, s:o}", "ok", 0, "error", text, "remarks", remarks);
	ctl_print_json(object);
	json_decref(object);
}

int fabric_topology_read(const char *path, bool json, struct topology *topology)
{
	struct topology_report report;
	char text[512];
	int err = topology_read(topology, path, &report);

	fabric_report_print(strcmp(path, "-") != 0 ? path : "standard input", &report);
	if (!err)
		return CLI_OK;
	if (report.errors)
		snprintf(text, sizeof(text), "%s has %u error%s", path, report.errors,
			 report.errors == 1 ? "" : "s");
	else
		snprintf(text, sizeof(text), "cannot read %s: %s", path, strerror(-err));
	cli_error("%s", text);
	if (json)
		report_print_json(text, &report);
	return CLI_FAILURE;
}

static int fabric_run(const struct cli_command *self, int argc, char **argv)
{
	if (argc < 2) {
		fputs(self->help, stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return cli_help(self);
	for (size_t i = 0; i < COMMANDS; i++) {
		static char full_name[48];

		if (strcmp(commands[i]->name + strlen("fabric "), argv[1]) != 0)
			continue;
		snprintf(full_name, sizeof(full_name), "verbena %s", commands[i]->name);
		argv[1] = full_name;
		return commands[i]->run(commands[i], argc - 1, argv + 1);
	}
	cli_error("there is no command `fabric %s`; `verbena fabric help` lists them", argv[1]);
	return CLI_USAGE;
}

const struct cli_command command_fabric = {
	.name = "fabric",
	.summary = "a virtual InfiniBand fabric of switches and adapters",
	.help = "usage: verbena fabric COMMAND [OPTION...] [ARGUMENT...]\n\n"
		"A virtual InfiniBand fabric: switches and adapters that subnet managers and\n"
		"diagnostic programs find, and that fail as you tell them to.\n\n"
		"  up        start a fabric from a topology file\n"
		"  down      end the fabric\n"
		"  status    show the fabric, its faults, and the programs that are on it\n"
		"  show      list nodes or cables, or draw the fabric\n"
		"  exec      run one program on many nodes at once\n"
		"  gen       generate a topology file\n"
		"  link      list cables; cut or mend one\n"
		"  node      show a node; take its power, reboot or mute it\n"
		"  port      show a port with all that is known of it\n"
		"  errors    list ports with errors; let a port count some\n"
		"  drop      let a port lose what arrives\n"
		"  delay     delay what arrives at a port\n"
		"  rate      let a cable carry less: lanes and speed\n"
		"  counters  show or clear the counters of a port or a node\n"
		"  trace     follow a packet through the forwarding tables\n"
		"  save      write the state of all tables into a file\n"
		"  load      bring back a state that was saved\n\n"
		"  -h, --help  show this\n\n"
		"`verbena fabric COMMAND --help` explains one command. More in "
		"verbena-fabric(1).\n",
	.run = fabric_run,
};
