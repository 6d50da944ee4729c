/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages and help, the same for every subcommand. Owns nothing. One thread.
 */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"

void cli_error(const char *format, ...)
{
	va_list args;

	fputs("verbena: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

bool cli_number(const char *option, uint64_t least, uint64_t most, uint64_t *number)
{
	if (quantity_number(optarg, least, most, number))
		return true;
	cli_error("%s is a number from %" PRIu64 " to %" PRIu64 ", not `%s`", option, least, most,
		  optarg);
	return false;
}

bool cli_number32(const char *option, uint32_t least, uint32_t most, uint32_t *number)
{
	uint64_t value;

	if (!cli_number(option, least, most, &value))
		return false;
	*number = (uint32_t)value;
	return true;
}

bool cli_size(const char *option, uint64_t least, uint64_t most, uint64_t *bytes)
{
	if (quantity_size(optarg, least, most, bytes))
		return true;
	cli_error("%s is a size in bytes from %" PRIu64 " to %" PRIu64 ", such as 128 or 64K, not "
		  "`%s`",
		  option, least, most, optarg);
	return false;
}

bool cli_time(const char *option, uint64_t most_ns, uint64_t *ns)
{
	uint64_t value;

	if (quantity_time(optarg, strlen(optarg), QUANTITY_S, most_ns, &value) && value) {
		*ns = value;
		return true;
	}
	cli_error("%s is a time above 0 and up to %" PRIu64 " s, such as 30, 0.5 or 2min, not `%s`",
		  option, most_ns / QUANTITY_S, optarg);
	return false;
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
