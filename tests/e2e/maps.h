/* SPDX-License-Identifier: BSD-2-Clause */
/* The process's mappings, by which tests see whether a peer's memory is mapped. Defined in found.c.
 */
#ifndef VERBENA_E2E_MAPS_H
#define VERBENA_E2E_MAPS_H

#include <stdint.h>

/* A mapping, as /proc/self/maps shows it. */
struct line {
	uint64_t inode; /* 0: none */
	char name[64], rights[5];
};

/* The mapping that contains `at` or, for NULL, one of the same file as `like`. */
struct line maps_find(const void *at, const struct line *like);

#endif
