/* SPDX-License-Identifier: BSD-2-Clause */
/* Which device and port a program means. */
#ifndef VERBENA_UMAD_DEVICE_H
#define VERBENA_UMAD_DEVICE_H

#include <infiniband/umad.h>

#include <stdbool.h>

/*
 * Finds the port: `name` NULL is any device, `*number` 0 any port. Among several, the first that
 * is Active; else the first with its link up; else the first that isn't disabled; only ports of
 * link layer InfiniBand. A device that is named with a port isn't looked at, unless `smi`.
 * With `smi`, ports whose subnet management is disabled (the capability mask says so) aren't found.
 * Returns 0 with both known, or -ENODEV.
 */
int device_resolve(const char *name, int *number, bool smi, char found[UMAD_CA_NAME_LEN]);

/* True if the port answers no subnet management (IsSMDisabled of its capability mask). */
bool port_smi_is_disabled(const struct umad_port *port);

#endif
