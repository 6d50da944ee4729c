/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking at the pages of a region that is registered. */
#ifndef VERBENA_ABI_POPULATE_H
#define VERBENA_ABI_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Checks that these bytes are mapped, so that they may be read (`write`: written). 0, or EFAULT.
 * The pages of a small region exist afterwards, before a peer needs them; those of a large one come
 * when they are touched. Kernels before 5.14 can do neither; there, access tells.
 */
int memory_populate(void *addr, size_t length, bool write);

#endif
