/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the files of `verbena fabric`: its table of subcommands, requests to verbena-fabric
 * (docs/fabric.md has the protocol), names of ports. One thread.
 */
#ifndef VERBENA_CLI_FABRIC_H
#define VERBENA_CLI_FABRIC_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
#include "topology/topology.h"

/* As struct cli_command; argv[0] is "verbena fabric NAME". */
extern const struct cli_command fabric_up, fabric_down, fabric_status, fabric_save, fabric_load;
extern const struct cli_command fabric_gen, fabric_show, fabric_trace;
extern const struct cli_command fabric_link, fabric_node, fabric_port;
extern const struct cli_command fabric_errors, fabric_drop, fabric_delay, fabric_counters;

/* "verbena fabric", what most commands take: --json and --help. Other options are the command's. */
struct fabric_options {
	bool json;
	int arguments; /* how many follow the options */
	char **argument;
};

/*
 * Parses --json, --help and nothing else, and checks the number of arguments. Returns -1 to go on,
 * or an exit code, after a message.
 */
int fabric_options_parse(const struct cli_command *self, int argc, char **argv, int least, int most,
			 struct fabric_options *options);

/* Asks verbena-fabric; see ctl_request(). */
int fabric_request(json_t *request, bool json, json_t **reply);

/*
 * Asks for something that has no answer but "ok", and says what is so now (unless `json`, which
 * prints the answer). Returns an exit code.
 */
int fabric_change(json_t *request, bool json, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Splits "S1/7" at its last slash, in place. False, after a message: it is no port. */
bool fabric_port_parse(char *text, unsigned int *port);

/* Prints remarks on a file, as "FILE:LINE: ..."; `json`: standard output has no room for it. */
void fabric_report_print(const char *path, const struct topology_report *report);
/* Reads a topology, or says why it can't. Returns an exit code. */
int fabric_topology_read(const char *path, bool json, struct topology *topology);

/* A topology reply as a drawing with routes, into a file. Returns an exit code. */
struct fabric_picture {
	const char *svg, *html; /* files; "-": standard output; NULL: none */
	const json_t *reply;	/* of `topology` with counters; NULL: only `topology` is known */
	const json_t *trace;	/* of `trace`: its route is highlighted; NULL: none */
	const char *title;
	struct topology *topology; /* without reply */
};
int fabric_picture_write(const struct fabric_picture *picture);

#endif
