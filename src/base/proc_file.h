/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading the kernel's files about a process, /proc/PID. No state; any thread. */
#ifndef VERBENA_BASE_PROC_FILE_H
#define VERBENA_BASE_PROC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Reads the beginning of /proc/PID/NAME into text[size], always terminated. False: it can't be
 * read, and text is empty. */
bool proc_file_read(pid_t pid, const char *name, char *text, size_t size);

#endif
