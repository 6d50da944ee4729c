/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What could touch or hold this process's private memory besides the calling thread: for the
 * conversion of memory (convert.h; docs/memory.md has the list, and what can't be seen). The
 * functions look at /proc/self and take some system calls for each descriptor and mapping. What
 * they see holds as long as only the calling thread runs: so quiet_held_by() is called after
 * quiet_shared_with() has said so, with the library's threads parked.
 */
#ifndef VERBENA_HCA_MEM_QUIET_H
#define VERBENA_HCA_MEM_QUIET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why another thread or process may touch the memory, in words; NULL: none can. `own` is the number
 * of the library's threads. */
const char *quiet_shared_with(unsigned int own);

/* Why the kernel or a device may hold pages of the memory, in words; NULL: they don't. */
const char *quiet_held_by(void);

/* Whether [start, end), whole pages, is plain memory: private, without a file, to be read and
 * written, and without any property that mapping it anew would lose. */
bool quiet_is_plain(uintptr_t start, uintptr_t end);

/* Whether the mapping at the address is locked (mlock()). */
bool quiet_is_locked(uintptr_t at);

#endif
