/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the daemon makes for others to share. No state. */
#ifndef VERBENA_DAEMON_CORE_MEMORY_H
#define VERBENA_DAEMON_CORE_MEMORY_H

#include <stddef.h>

/* A memory file of `size` bytes, all zero, sealed: nobody changes its size, so that who maps it
 * can't be made to fault. A descriptor or -errno. */
int memory_make(const char *name, size_t size);

#endif
