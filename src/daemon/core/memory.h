/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory files that the daemon makes for processes to share, and checks of those that clients hand
 * in. No state. */
#ifndef VERBENA_DAEMON_CORE_MEMORY_H
#define VERBENA_DAEMON_CORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Makes a memory file of `size` bytes, all zero, sealed against any change of its size, so that no
 * mapping of it can fault. Returns a descriptor or -errno. */
int memory_make(const char *name, size_t size);

/*
 * Whether a client's descriptor is memory of exactly `size` bytes that only existing mappings can
 * write and that cannot be resized: an ordinary memory file with these seals. The kernel is asked,
 * not the client. Files of huge pages have seals as well but are refused: a hole in one can't be
 * filled when the pool is empty, and reading it raises SIGBUS.
 */
bool memory_is_sound(int fd, size_t size);

/* The same of a file that memory_make() made: new mappings may write it. */
bool memory_is_shared(int fd, size_t size);

#endif
