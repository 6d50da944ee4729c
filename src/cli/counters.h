/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of a status reply, for people. */
#ifndef VERBENA_CLI_COUNTERS_H
#define VERBENA_CLI_COUNTERS_H

#include <jansson.h>
#include <stdbool.h>

/* Prints a table of the processes that sent or received packets or had to wait, and a sentence for
 * each counter that indicates a problem. Prints nothing when all counters are zero or missing. */
void counters_print(const json_t *reply, bool colour);

#endif
