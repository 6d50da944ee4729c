/* SPDX-License-Identifier: BSD-2-Clause */
/* The process's mappings, by which tests see whether a peer's memory is mapped, and whether their
 * own is converted (docs/memory.md). */
#ifndef VERBENA_E2E_MAPS_H
#define VERBENA_E2E_MAPS_H

#include <stdbool.h>
#include <stdint.h>

/* A mapping, as /proc/self/maps shows it. */
struct line {
	uint64_t inode; /* 0: none */
	char name[64], rights[5];
};

/* The mapping that contains `at` or, for NULL, one of the same file as `like`. */
struct line maps_find(const void *at, const struct line *like);

/* Memory that was private: whether it is shared, in the library's memory file; or private still, or
 * again. */
bool is_converted(const void *at);
bool is_private(const void *at);

#endif
