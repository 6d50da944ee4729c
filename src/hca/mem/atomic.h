/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomic operations on this process's memory, for every carrier; atomic with regard to the
 * program's own as well. */
#ifndef VERBENA_HCA_MEM_ATOMIC_H
#define VERBENA_HCA_MEM_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hca/local/record.h"

/* Executes `op`, other than FLUSH, at an address that is granted and aligned; *old becomes the
 * former value (ATOMIC WRITE: 0). False: the address isn't mapped. */
bool atomic_execute(uint64_t addr, const struct record_atomic *op, uint64_t *old);

/* What this process has written is visible to all before anything that follows is done. */
static inline void flush_fence(void)
{
	/* [X2], pairs with the program's reads */
	atomic_thread_fence(memory_order_seq_cst);
}

#endif
