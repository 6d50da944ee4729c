/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations of `verbena fabric`, see docs/fabric.md. */
#ifndef VERBENA_FABRICD_CONTROL_H
#define VERBENA_FABRICD_CONTROL_H

#include "fabricd/server.h"

#include <jansson.h>

/* The answer to a request: an object, the caller's. NULL: no memory. */
json_t *operation_answer(struct server *server, const json_t *request);

/* {"ok": false, "error": ...} */
json_t *answer_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What is read only (show.c). */
json_t *status_show(struct server *server, const json_t *request);
json_t *show_topology(struct server *server, const json_t *request);
json_t *show_node(struct server *server, const json_t *request);
json_t *show_trace(struct server *server, const json_t *request);
json_t *show_table(struct server *server, const json_t *request);
json_t *show_counters(const struct fabric *fabric, uint32_t port);

/* Members of a request. The node or the port that it names; FABRIC_NONE with `refusal` set. */
const char *request_text(const json_t *request, const char *key);
uint32_t request_node(const struct server *server, const json_t *request, const char *key,
		      json_t **refusal);
uint32_t request_port(const struct server *server, const json_t *request, json_t **refusal);

#endif
