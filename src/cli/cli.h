/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the files of the `verbena` command: the subcommand table's entry, exit codes and
 * messages. Each subcommand is a file of its own; main.c holds the table. One thread.
 */
#ifndef VERBENA_CLI_CLI_H
#define VERBENA_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

/* Exit codes. `verbena run` ends with its program's code, or with 126 or 127 as a shell would. */
enum cli_exit {
	CLI_OK = 0,
	CLI_FAILURE = 1,
	CLI_USAGE = 2,
	CLI_NO_DAEMON = 3,
	CLI_NOT_EXECUTABLE = 126,
	CLI_NOT_FOUND = 127,
};

struct cli_command {
	const char *name;
	const char *summary; /* one line, for `verbena help` */
	const char *help;    /* the text for --help */
	/* argv[0] is "verbena NAME". Returns an exit code. */
	int (*run)(const struct cli_command *self, int argc, char **argv);
};

extern const struct cli_command command_run;
extern const struct cli_command command_status;
extern const struct cli_command command_resources;
extern const struct cli_command command_capture;
extern const struct cli_command command_cdi;
extern const struct cli_command command_fabric;
extern const struct cli_command command_sm;
extern const struct cli_command command_stop;

/* Prints a message on standard error, as "verbena: ...". */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Each of these reads `optarg` as the value of `option` ("--jobs"). Returns whether it is one, from
 * `least` to `most`; else a message has been printed, and the result is as it was.
 */
bool cli_number(const char *option, uint64_t least, uint64_t most, uint64_t *number);
bool cli_number32(const char *option, uint32_t least, uint32_t most, uint32_t *number);
bool cli_size(const char *option, uint64_t least, uint64_t most, uint64_t *bytes);

/* A time above 0 in seconds or with a unit, in nanoseconds. */
bool cli_time(const char *option, uint64_t most_ns, uint64_t *ns);

/* Prints on standard error how to get help for `command`; returns CLI_USAGE. */
int cli_usage(const struct cli_command *command);

/* Prints the command's help; returns CLI_OK. */
int cli_help(const struct cli_command *command);

/* Flushes standard output. Returns `code`, or CLI_FAILURE when the output could not be written. */
int cli_finish(int code);

#endif
