/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The directories `counters` and `hw_counters` of a port in sysfs, with the daemon's values of the
 * moment. They count what goes over the wire (RoCEv2), for all of the daemon's programs, those that
 * have ended included.
 */
#ifndef VERBENA_CLI_PORT_COUNTERS_H
#define VERBENA_CLI_PORT_COUNTERS_H

#include "cli/cover.h"

/*
 * Mounts them in the directory of a port; once in a process. Where that can't be had (no FUSE), or
 * the program would get a child by it, the port has no such directories, and the log says why at
 * level info.
 */
void port_counters_mount(const struct place *port);

/*
 * Starts the process that answers for what port_counters_mount() has mounted, if anything: below
 * `path`, which is a mount point. It ends when no program has the mounts any more.
 */
void port_counters_start(const char *path);

#endif
