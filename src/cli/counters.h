/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of a daemon's reply. */
#ifndef VERBENA_CLI_COUNTERS_H
#define VERBENA_CLI_COUNTERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Prints a table of the processes that sent or received packets or had to wait, and a sentence for
 * each counter that indicates a problem. Prints nothing when all counters are zero or missing. */
void counters_print(const json_t *reply, bool colour);

/* One of a reply's "counters", by its group and name; 0 if it isn't there. */
uint64_t counters_value(const json_t *counters, const char *group, const char *name);

#endif
