/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which way data goes between two processes of a host: copied by the kernel from one to the other
 * (process_vm_*, one copy), or through the link's ring (two copies, both here). The kernel's way is
 * the better one, unless the kernel may not, or copies much more slowly than a program does.
 *
 * VERBENA_LOCAL_COPY says otherwise: `process_vm`, `ring`, or `split`: messages of WAY_LONG bytes
 * and more through the ring, the others by the kernel.
 */
#ifndef VERBENA_HCA_LOCAL_WAY_H
#define VERBENA_HCA_LOCAL_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "hca/process/hca.h"

/* Below, a system call's copy is the quicker one in any case: nobody has to wake. */
enum { WAY_LONG = 16384 };

/* Whether process_vm_* is used where it is permitted. */
bool way_by_kernel(void);

/* Whether long messages go through the ring nevertheless: hca.long_by_ring. */
bool way_long_by_ring(void);

/* Whether a message of `length` bytes is such a one. */
static inline bool way_by_ring(const struct hca *hca, uint32_t length)
{
	return unlikely(hca->long_by_ring) && length >= WAY_LONG;
}

#endif
