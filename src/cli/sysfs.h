/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices in /sys/class, for programs that look for them there. */
#ifndef VERBENA_CLI_SYSFS_H
#define VERBENA_CLI_SYSFS_H

#include <jansson.h>
#include <stdbool.h>

/* Whether /sys/class/infiniband already has a device of the daemon's. */
bool sysfs_has_devices(const json_t *status);

/*
 * Covers /sys/class, in this mount namespace, with one that has the same entries and the daemon's
 * devices: infiniband/NAME and infiniband_verbs/uverbsN, read-only. The files show the state at the
 * time of the call, but counters, which a process in the background keeps current. `status` is the
 * daemon's answer. Returns 0, or -errno with everything unchanged.
 */
int sysfs_cover(const json_t *status);

/*
 * As sysfs_cover(), for a node of a fabric: infiniband/verbena0 and infiniband_mad are empty
 * directories, for mirror.h; a device of the daemon's with that name isn't shown.
 */
int sysfs_cover_fabric(const json_t *status);

/* Starts the process that keeps the counters current, in the mount namespace that the program will
 * have, and before anything looks at them. */
void sysfs_serve(void);

#endif
