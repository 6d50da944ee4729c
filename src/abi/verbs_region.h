/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions, as the calls that register memory of different kinds make them (verbs_mr.c). */
#ifndef VERBENA_ABI_VERBS_REGION_H
#define VERBENA_ABI_VERBS_REGION_H

#include <stdint.h>

#include "hca/mem/mr.h"

/* Registers the region that is described (pd, base, length, iova, access, where it comes from), and
 * makes the program's object of it. NULL with errno. */
struct ibv_mr *region_add(const struct mr *wanted);

/* Maps `length` bytes of a memory file, from `offset` on; takes a descriptor of its own. NULL with
 * errno. */
struct mr_file *file_open(int fd, uint64_t offset, size_t length, int prot);
void file_free(struct mr_file *file);

static inline uint8_t *file_first_byte(const struct mr_file *file, size_t length)
{
	return (uint8_t *)file->pages + (file->size - length);
}

#endif
