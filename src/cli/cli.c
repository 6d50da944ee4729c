/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages and help, the same for every subcommand. Owns nothing. One thread.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void cli_error(const char *format, ...)
{
	va_list args;

	fputs("verbena: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

int cli_usage(const struct cli_command *command)
{
	fprintf(stderr, "Try `verbena %s --help`.\n", command->name);
	return CLI_USAGE;
}

int cli_help(const struct cli_command *command)
{
	fputs(command->help, stdout);
	return cli_finish(CLI_OK);
}

int cli_finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	cli_error("cannot write the output: %s", strerror(errno));
	return CLI_FAILURE;
}
