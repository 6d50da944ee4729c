/* SPDX-License-Identifier: BSD-2-Clause */
/* The texts of a node's files in sysfs, as Linux writes them. No state. */
#ifndef VERBENA_CLI_MIRROR_TEXTS_H
#define VERBENA_CLI_MIRROR_TEXTS_H

#include <stdbool.h>

#include "cli/node_facts.h"

/* Below these directories of a node its files are: in infiniband/DEVICE, and infiniband_mad. */
#define MIRROR_OF_DEVICE "device"
#define MIRROR_OF_MADS "mad"

/* Takes a file: its path, its text, and whether other files are likely to have the same text. */
typedef void mirror_take(void *context, const char *path, const char *text, bool is_common);

/* Gives all files but node_desc to `take`, always in the same order and number for a node. */
void mirror_texts_give(const struct node_facts *facts, mirror_take *take, void *context);

#endif
