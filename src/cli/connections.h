/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection manager's counters, in sentences. */
#ifndef VERBENA_CLI_CONNECTIONS_H
#define VERBENA_CLI_CONNECTIONS_H

#include <jansson.h>

/* Prints them from the answer to "status". Prints nothing if there never was a connection. */
void connections_print(const json_t *reply);

#endif
