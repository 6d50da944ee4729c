/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What could touch or hold this process's private memory besides the calling thread: for the
 * conversion of memory (convert.h; docs/memory.md has the list, and what can't be seen). The
 * functions look at /proc/self and take some system calls for each descriptor and mapping. What
 * they see holds as long as only the calling thread runs: so quiet_held_by() is called after
 * quiet_shared_with() has said so, with the library's threads parked and the program's other
 * threads stopped. They allocate no memory (warden.h).
 */
#ifndef VERBENA_HCA_MEM_QUIET_H
#define VERBENA_HCA_MEM_QUIET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Other threads of the program run. */
#define QUIET_THREADS "the process has several threads"

/* Why another thread or process may touch the memory, in words; NULL: none can. Threads that are
 * parked (process/park.h) or stopped (warden.h) can't. */
const char *quiet_shared_with(void);

/* A pipe that the process can write to isn't empty, and nothing else is in the way. */
#define QUIET_PIPE "a pipe has data, which may be pages of its memory (vmsplice())"

/* Why the kernel or a device may hold pages of the memory, in words; NULL: they don't. */
const char *quiet_held_by(void);

/* What a program may have asked for memory, and memory that is mapped anew is given again: by
 * madvise() (MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP) and mlock(). */
enum { QUIET_HUGE = 1, QUIET_SMALL = 2, QUIET_UNDUMPED = 4, QUIET_LOCKED = 8 };

/* Whether [start, end), whole pages, is plain memory: private, without a file, to be read and
 * written, and without any property that mapping it anew would lose. `marks`: those of madvise(),
 * which are the same all over it. */
bool quiet_is_plain(uintptr_t start, uintptr_t end, unsigned int *marks);

/* The marks of the mapping at the address. `any` false: none of madvise() is of interest, which
 * spares most processes the look at their mappings. */
unsigned int quiet_marks(uintptr_t at, bool any);

#endif
