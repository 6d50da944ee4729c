/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to the daemon's control socket: one line of JSON there, one back.
 *
 * Never starts a daemon. Whatever goes wrong is said on standard error before the call returns.
 */
#ifndef VERBENA_CLI_CTL_H
#define VERBENA_CLI_CTL_H

#include <jansson.h>
#include <stdbool.h>

/*
 * Sends `request` (stolen) and reads the reply, which is the caller's to free (json_decref).
 *
 * Returns CLI_OK with *reply; CLI_NO_DAEMON when nobody listens; CLI_FAILURE when the daemon
 * cannot be reached, does not answer within ten seconds, answers nonsense, or refuses ("ok" is
 * false). With `json`, a failure is also printed on standard output as {"ok": false, "error":
 * "..."}.
 */
int ctl_request(json_t *request, bool json, json_t **reply);

/* The same, but what goes wrong isn't said: NULL. */
json_t *ctl_ask(json_t *request);

/* As ctl_request(), with the descriptor that comes beside the reply (-1: none), the caller's to
 * close. */
int ctl_request_fd(json_t *request, json_t **reply, int *fd);

/* Prints `value` for scripts: indented, keys in the daemon's order. Returns an exit code. */
int ctl_print_json(const json_t *value);

/* Reads of a reply that may lack a key or have another type there: 0 or "" then. */
json_int_t ctl_integer(const json_t *object, const char *key);
const char *ctl_string(const json_t *object, const char *key);

#endif
