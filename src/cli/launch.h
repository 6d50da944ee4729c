/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program needs so that it runs on Verbena: shared by `verbena run` and `verbena fabric
 * exec`. One thread.
 */
#ifndef VERBENA_CLI_LAUNCH_H
#define VERBENA_CLI_LAUNCH_H

#include <limits.h>

/* The node of a fabric (verbena-fabric) on which a program is. */
#define NODE_VARIABLE "VERBENA_NODE"

/* VERBENA_SYSFS=off has the effect of --no-sysfs. */
#define SYSFS_VARIABLE "VERBENA_SYSFS"
#define SYSFS_OFF "off"

/* Sets this process's environment as a program needs it. Returns 0, or -errno after a message. */
int launch_environment(void);

/* Finds the program and warns of what keeps it from using Verbena. Returns CLI_OK with its path, or
 * an exit code after a message. */
int launch_program(const char *name, char path[PATH_MAX]);

/* Says why exec failed; returns the exit code that shells have for it. */
int launch_failed(const char *name, int error);

#endif
