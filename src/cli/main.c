/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The `verbena` command: runs programs on Verbena and shows what the daemon knows.
 *
 * A table of subcommands, each in a file of its own; without arguments the help is printed. No
 * state. One thread.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct cli_command *const commands[] = {
	&command_run, &command_status, &command_resources, &command_capture,
	&command_cdi, &command_fabric, &command_sm,	   &command_stop,
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct cli_command *command_find(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static void help_print(FILE *out)
{
	fputs("usage: verbena COMMAND [OPTION...] [ARGUMENT...]\n\n"
	      "RDMA in user space: runs unmodified verbs programs without any RDMA hardware.\n\n",
	      out);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	fputs("  help       show this, or `verbena help COMMAND`\n"
	      "  version    show the version\n\n"
	      "`verbena COMMAND --help` explains one command. Exit codes: 0 done, 1 failed,\n"
	      "2 wrong usage, 3 no daemon runs. More in verbena(1) and verbena(7).\n",
	      out);
}

static int help_run(int argc, char **argv)
{
	const struct cli_command *command;

	if (argc < 2) {
		help_print(stdout);
		return cli_finish(CLI_OK);
	}
	command = command_find(argv[1]);
	if (command)
		return cli_help(command);
	cli_error("there is no command `%s`", argv[1]);
	return CLI_USAGE;
}

static int version_run(void)
{
	printf("verbena %s\n", VERBENA_VERSION);
	return cli_finish(CLI_OK);
}

int main(int argc, char **argv)
{
	const struct cli_command *command;
	const char *name;

	if (argc < 2) {
		help_print(stderr);
		return CLI_USAGE;
	}
	name = argv[1];
	if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		return help_run(argc - 1, argv + 1);
	if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0 ||
	    strcmp(name, "-V") == 0)
		return version_run();

	command = command_find(name);
	if (command) {
		static char full_name[32];

		/* getopt's messages start with this name */
		snprintf(full_name, sizeof(full_name), "verbena %s", command->name);
		argv[1] = full_name;
		return command->run(command, argc - 1, argv + 1);
	}
	cli_error("there is no %s `%s`; `verbena help` lists the commands",
		  name[0] == '-' ? "option" : "command", name);
	return CLI_USAGE;
}
