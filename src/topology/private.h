/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of this folder only. No state. */
#ifndef VERBENA_TOPOLOGY_PRIVATE_H
#define VERBENA_TOPOLOGY_PRIVATE_H

#include "topology/topology.h"

/* A piece of text that isn't terminated: of a line of the file. */
struct topology_slice {
	const char *text;
	size_t bytes;
};

/* The row of the node of exactly this name, or TOPOLOGY_NONE. */
uint32_t topology_find_slice(const struct topology *topology, const char *name, size_t bytes);

/* Gives a node another name (the topology's memory; unique), without the table of names, which
 * topology_index_names() builds anew. 0 or -ENOMEM. */
int topology_index_names(struct topology *topology);

/* Adds a remark on a line. */
void topology_remark_error(struct topology_report *report, uint32_t line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void topology_remark_warning(struct topology_report *report, uint32_t line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Makes room for one more row: doubles `*rows` when `count` reaches `*room`. 0 or -ENOMEM. */
int topology_rows_grow(void **rows, uint32_t *room, uint32_t count, size_t row_bytes);

/* Parses "10.0.0.3/8" or "fd00::3/64" (without a prefix: 32, 128). False: it is no address. */
bool topology_address_parse(struct topology_address *address, const char *text, size_t bytes);

#endif
