/* SPDX-License-Identifier: BSD-2-Clause */
/* Populating the pages of a region that is registered. */
#ifndef VERBENA_ABI_POPULATE_H
#define VERBENA_ABI_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Checks that the bytes are mapped and readable (`write`: writable). Returns 0 or EFAULT.
 * Afterwards the pages of a small region are present, before a peer needs them; those of a large
 * one are brought in at their first access. Kernels before 5.14 support neither; there an invalid
 * region fails at its first access.
 */
int memory_populate(void *addr, size_t length, bool write);

/* The size of the pages of the mapping that contains `addr`, bytes; 0: there is none. */
size_t memory_page_size(const void *addr);

#endif
