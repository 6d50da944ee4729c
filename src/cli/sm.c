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
		"                         of this machine\n"
		"      --device NAME      the device that libibumad names; else the first that is "
		"up\n"
		"      --port N           its port\n"
		"      --priority N       0 to 15: the manager with the highest one is the master\n"
		"      --routing KIND     minhop (the default) or updown\n"
		"      --lmc N            0 to 7: each port of an adapter gets 2^N LIDs, else 0\n"
		"      --window N         requests under way at once: 1 to 1024, else 64\n"
		"      --timeout MS       until a request is repeated, else 200\n"
		"      --retries N        copies of a request, else 3\n"
		"      --sweep MS         between looks at all switches, else 10000\n"
		"      --poll MS          between a standby's questions to the master, else 2000\n"
		"      --qos              write SL to VL tables and VL arbitration\n"
		"      --policy FILE      service levels: their lanes, and which paths get which\n"
		"      --partitions FILE  partitions, as in OpenSM's partitions.conf\n"
		"      --enforce WHERE    both, in, out or off: partitions, on switch ports\n"
		"      --m-key KEY        that ports get: a number, or `random'\n"
		"      --m-key-lease S    seconds until a port's protection ends, else 0: never\n"
		"      --m-key-protect N  0 to 3: what ports refuse without the key, else 1\n"
		"      --once             end when the subnet is up\n"
		"      --detach           return when the subnet is up; go on in the background\n"
		"      --quiet            no line for each sweep\n"
		"  -h, --help             show this\n\n"
		"More in verbena-sm(1). Example: verbena sm --node H-0 --routing updown\n",
	.run = sm_run,
};
