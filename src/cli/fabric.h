/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the files of `verbena fabric`: its table of subcommands, requests to verbena-fabric
 * (docs/fabric.md has the protocol), names of ports. One thread.
 */
#ifndef VERBENA_CLI_FABRIC_H
#define VERBENA_CLI_FABRIC_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/cli.h"
#include "topology/topology.h"

/* Whether a command's first argument is a port, as S1/7. */
enum fabric_port_use {
	FABRIC_NO_PORT,
	FABRIC_PORT,	   /* it must be, if there is one */
	FABRIC_MAYBE_PORT, /* it may be; else it is a node's name */
};

/* What a command was called with. */
struct fabric_call {
	const struct cli_command *self;
	bool json, flag;
	int arguments; /* how many follow the options */
	char **argument;
	bool has_port; /* then argument[0] is the node's name */
	unsigned int port;
};

/* A command that takes --json, --help, and at most one more option, which has no value. */
struct fabric_command {
	struct cli_command cli; /* first; its run is fabric_command_run() */
	int least, most;	/* arguments */
	enum fabric_port_use port_use;
	const char *flag; /* the further option's long name, whose first letter is the short one */
	int (*act)(const struct fabric_call *call); /* returns an exit code */
};

/* Parses what the command was called with, and calls act(); or says what is wrong. */
int fabric_command_run(const struct cli_command *self, int argc, char **argv);

/* argv[0] is "verbena fabric NAME". */
extern const struct cli_command fabric_up, fabric_gen, fabric_show, fabric_trace, fabric_exec;
extern const struct fabric_command fabric_down, fabric_status, fabric_save, fabric_load;
extern const struct fabric_command fabric_link, fabric_node, fabric_port;
extern const struct fabric_command fabric_errors, fabric_drop, fabric_delay, fabric_rate;
extern const struct fabric_command fabric_counters;

/* Asks verbena-fabric; see ctl_request(). */
int fabric_request(json_t *request, bool json, json_t **reply);

/* As fabric_request(), but prints nothing. Returns NULL on any failure. */
json_t *fabric_ask_silently(json_t *request);

/*
 * As fabric_request(), for what is shown: with `json` the answer is printed, and that was all.
 * Returns FABRIC_GO_ON with *reply, which is the caller's to free, or an exit code.
 */
#define FABRIC_GO_ON (-1)
int fabric_ask(json_t *request, bool json, json_t **reply);
/* The same, and takes the descriptor that comes with the answer (-1: none). */
int fabric_request_fd(json_t *request, json_t **reply, int *fd);

/*
 * Asks for something that has no answer but "ok", and says what is so now (unless `json`, which
 * prints the answer). Returns an exit code.
 */
int fabric_change(json_t *request, bool json, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* What is to be captured at a port of the fabric (`verbena capture --port`). */
struct fabric_capture {
	const char *path; /* "-": standard output */
	char *port;	  /* "S1/7"; changed */
	uint64_t count;	  /* packets; 0: no limit */
	uint64_t seconds; /* 0: no limit */
};
/* Captures until the limit or a signal. Returns an exit code. */
int fabric_capture_run(const struct fabric_capture *wish);

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
	/* Of a picture that is followed: the reply before this one (NULL: none) and the time
	 * between them, from which traffic is computed; the nonce of the page's script. */
	bool is_live;
	const json_t *before;
	double seconds;
	const char *nonce;
};
int fabric_picture_write(const struct fabric_picture *picture);
/* Draws it, or the page with it, into `out`. 0 or a negative errno. */
int fabric_picture_draw(const struct fabric_picture *picture, FILE *out, bool is_page);
/* Serves the page that follows the fabric, at a port or socket. Returns an exit code. */
int fabric_serve(const char *where);

/* The path of a program of Verbena's, such as verbena-sm. False: it isn't there. */
bool fabric_program_find(const char *name, char path[PATH_MAX]);

#endif
