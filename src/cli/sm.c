/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `verbena sm`: a subnet manager. Becomes verbena-sm: with --node by `verbena run`, so that it is
 * on a node of the fabric; without, with the libibumad that the system has. All other options are
 * verbena-sm's. One thread.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/fabric.h"
#include "smd/help.h"

/* `verbena run --no-sysfs --node NODE -- PROGRAM ...` */
#define WORDS_BEFORE 6

/* Moves the words that aren't --node NODE behind those of `verbena run`. False: NODE is missing. */
static bool words_take(int argc, char **argv, char **words, int *count, char **node)
{
	static const char with_value[] = "--node=";

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], with_value, strlen(with_value))) {
			*node = argv[i] + strlen(with_value);
		} else if (!strcmp(argv[i], "--node")) {
			if (++i == argc)
				return false;
			*node = argv[i];
		} else {
			words[(*count)++] = argv[i];
		}
	}
	return true;
}

static int sm_exec(char *program, char **words)
{
	execv(program, words);
	cli_error("cannot run %s: %s", program, strerror(errno));
	return CLI_NOT_EXECUTABLE;
}

static int sm_run(const struct cli_command *self, int argc, char **argv)
{
	static char no_sysfs[] = "--no-sysfs", node_option[] = "--node", end[] = "--";
	char **words = calloc((size_t)argc + WORDS_BEFORE + 1, sizeof(*words));
	char program[PATH_MAX], *node = NULL;
	int count = WORDS_BEFORE, code;

	if (!words)
		return CLI_FAILURE;
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			free(words);
			return cli_help(self);
		}
	if (!words_take(argc, argv, words, &count, &node)) {
		free(words);
		cli_error("--node: which one?");
		return cli_usage(self);
	}
	if (!fabric_program_find("verbena-sm", program)) {
		free(words);
		cli_error("cannot find verbena-sm: is Verbena installed completely?");
		return CLI_FAILURE;
	}
	words[WORDS_BEFORE - 1] = program;
	if (node) {
		words[0] = argv[0];
		words[1] = no_sysfs;
		words[2] = node_option;
		words[3] = node;
		words[4] = end;
		optind = 1;
		code = command_run.run(&command_run, count, words);
	} else {
		code = sm_exec(program, words + WORDS_BEFORE - 1);
	}
	free(words);
	return code;
}

const struct cli_command command_sm = {
	.name = "sm",
	.summary = "a subnet manager for InfiniBand",
	.help = "usage: verbena sm [--node NODE] [OPTION...]\n\n"
		"A subnet manager with its administration: finds all nodes of an InfiniBand\n"
		"subnet, gives LIDs, writes forwarding tables, answers path and other queries.\n\n"
		"      --node NODE        on this node of `verbena fabric`; without, on an "
		"adapter\n"
		"                         of this machine\n" SMD_HELP
		"  -h, --help             show this\n\n"
		"More in verbena-sm(1). Example: verbena sm --node H-0 --routing updown\n",
	.run = sm_run,
};
