/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the daemon makes for others to share. No state. */
#ifndef VERBENA_DAEMON_CORE_MEMORY_H
#define VERBENA_DAEMON_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* A memory file of `size` bytes, all zero, sealed: nobody changes its size, so that who maps it
 * can't be made to fault. A descriptor or -errno. */
int memory_make(const char *name, size_t size);

/*
 * Whether a stranger's descriptor is memory of exactly `size` bytes that only mappings which exist
 * already can write and nobody can resize: an ordinary memory file with these seals. The kernel's
 * answer, not the stranger's. Files of huge pages have seals as well, but not these pages: a hole
 * can't be filled when the pool is empty, and reading it is a SIGBUS.
 */
bool memory_is_sound(int fd, size_t size);

#endif
