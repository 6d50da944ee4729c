/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to the daemon's control socket: one line of JSON there, one back.
 *
 * Only ctl_ask_starting() starts a daemon. Failures are printed on standard error before the call
 * returns, except by ctl_ask(), ctl_ask_at() and ctl_ask_starting().
 */
#ifndef VERBENA_CLI_CTL_H
#define VERBENA_CLI_CTL_H

#include <jansson.h>
#include <stdbool.h>

/*
 * Sends `request` (stolen) and reads the reply, which is the caller's to free (json_decref).
 *
 * Returns CLI_OK with *reply; CLI_NO_DAEMON when no daemon listens; CLI_FAILURE when the daemon
 * cannot be reached, does not answer within ten seconds, sends an invalid answer, or refuses ("ok"
 * is false). With `json`, a failure is also printed on standard output as {"ok": false, "error":
 * "..."}.
 */
int ctl_request(json_t *request, bool json, json_t **reply);

/* A process with a control socket, where it isn't the daemon. */
struct ctl_server {
	const char *socket; /* its name in the run-time directory */
	const char *absent; /* what is said, before the directory, when it doesn't listen */
	const char *remedy; /* and what to do */
	int limit_s;	    /* how long an answer may take */
};

/* As ctl_request(), to another process. `reply` NULL: the reply isn't wanted. */
int ctl_request_at(const struct ctl_server *server, json_t *request, bool json, json_t **reply);

/* As ctl_request(), but prints nothing. Returns NULL on any failure. */
json_t *ctl_ask(json_t *request);

/* As ctl_ask(), to another process. */
json_t *ctl_ask_at(const struct ctl_server *server, json_t *request);

/* As ctl_ask(), for the request without parameters `op`; starts a daemon if none runs. */
json_t *ctl_ask_starting(const char *op);

/* As ctl_request(), and takes the descriptor that comes with the reply (-1: none), the caller's to
 * close. */
int ctl_request_fd(json_t *request, json_t **reply, int *fd);

/* The same, to another process. */
int ctl_request_fd_at(const struct ctl_server *server, json_t *request, json_t **reply, int *fd);

/* Prints `value` for scripts: indented, keys in the daemon's order. Returns an exit code. */
int ctl_print_json(const json_t *value);

/* Read a member of a reply; 0 or "" if the key is missing or has another type. */
json_int_t ctl_integer(const json_t *object, const char *key);
const char *ctl_string(const json_t *object, const char *key);

#endif
