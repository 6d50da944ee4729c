/* SPDX-License-Identifier: BSD-2-Clause */
/* Bringing in the pages of a region that is registered. */
#ifndef VERBENA_ABI_POPULATE_H
#define VERBENA_ABI_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Makes the pages of these bytes exist (`write`: where they may be written), before a peer needs
 * them. 0, or EFAULT when they aren't all mapped so. Kernels before 5.14 can't; there, pages come
 * when they are touched.
 */
int populate(void *addr, size_t length, bool write);

#endif
