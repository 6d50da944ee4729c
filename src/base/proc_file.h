/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says of a process, in files of /proc/PID. No state; any thread. */
#ifndef VERBENA_BASE_PROC_FILE_H
#define VERBENA_BASE_PROC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The beginning of /proc/PID/NAME in text[size], always a string. False, and empty: it can't be
 * read. */
bool proc_file_read(pid_t pid, const char *name, char *text, size_t size);

#endif
