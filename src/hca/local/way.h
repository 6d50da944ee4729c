/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which way data goes between two processes of a host: copied by the kernel from one to the other
 * (process_vm_*, one copy), or through the link's ring (two copies, one by each process). The
 * kernel's copy is the better one, unless it isn't permitted, or is much slower than a program's.
 *
 * VERBENA_LOCAL_COPY overrides the choice: `process_vm`, `ring`, or `split`: messages of WAY_LONG
 * bytes and more through the ring, the others by the kernel.
 */
#ifndef VERBENA_HCA_LOCAL_WAY_H
#define VERBENA_HCA_LOCAL_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "hca/process/hca.h"

/* Below this the kernel's copy is quicker in any case: no other thread has to be woken. */
enum { WAY_LONG = 16384 };

/* Whether process_vm_* is used where it is permitted. */
bool way_by_kernel(void);

/* Whether long messages go through the ring nevertheless: hca.long_by_ring. */
bool way_long_by_ring(void);

/* Whether a message of `length` bytes goes through the ring although the kernel may copy it. */
static inline bool way_by_ring(const struct hca *hca, uint32_t length)
{
	return unlikely(hca->long_by_ring) && length >= WAY_LONG;
}

#endif
