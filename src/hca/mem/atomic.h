/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomic operations on this process's memory: for every carrier, and atomic to the program's own.
 */
#ifndef VERBENA_HCA_MEM_ATOMIC_H
#define VERBENA_HCA_MEM_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#include "hca/local/record.h"

/* `op` on memory that is granted and aligned; *old is what was there. False: it isn't mapped. */
bool atomic_execute(uint64_t addr, const struct record_atomic *op, uint64_t *old);

#endif
