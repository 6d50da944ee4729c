/* SPDX-License-Identifier: BSD-2-Clause */
/* The counters of a status reply, for people. */
#ifndef VERBENA_CLI_COUNTERS_H
#define VERBENA_CLI_COUNTERS_H

#include <jansson.h>
#include <stdbool.h>

/* A table of who sent and received packets or had to wait, and a sentence for each thing that isn't
 * as it should be. Nothing at all when there is nothing to say, or the daemon counts nothing. */
void counters_print(const json_t *reply, bool colour);

#endif
