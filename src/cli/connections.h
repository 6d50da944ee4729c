/* SPDX-License-Identifier: BSD-2-Clause */
/* What the connection manager counted, in sentences. */
#ifndef VERBENA_CLI_CONNECTIONS_H
#define VERBENA_CLI_CONNECTIONS_H

#include <jansson.h>

/* Of the answer to "status". Nothing if nobody ever connected. */
void connections_print(const json_t *reply);

#endif
