/* SPDX-License-Identifier: BSD-2-Clause */
/* The tables of functions that drivers of rdma-core's releases have; facts for the tests of
 * src/kverbs. See tables.c. */
#ifndef VERBENA_TESTS_KVERBS_TABLES_H
#define VERBENA_TESTS_KVERBS_TABLES_H

#include "kverbs/provider.h"
#include "kverbs/release.h"

/* Where the function `name` stands in a table; -1: the release doesn't have it. */
int table_at(enum driver_release release, const char *name);
unsigned int table_count(enum driver_release release);

/* The release's table with the functions of `ops`, allocated. */
void **table_make(enum driver_release release, const struct provider_ops *ops);

/* How many bytes of a driver's context precede `struct ibv_context`, and how many it has. */
size_t table_context_at(enum driver_release release);
size_t table_context_size(enum driver_release release);

/* Calls `visit` for each function of struct provider_ops. */
void table_visit(void (*visit)(const char *name, size_t at, void *argument), void *argument);

#endif
