/* SPDX-License-Identifier: BSD-2-Clause */
/* The devices as programs look for them in /sys/class. */
#ifndef VERBENA_CLI_SYSFS_H
#define VERBENA_CLI_SYSFS_H

#include <jansson.h>
#include <stdbool.h>

/* Whether a device of the daemon's is in /sys/class/infiniband already. */
bool sysfs_has_devices(const json_t *status);

/*
 * Covers /sys/class, in this mount namespace, with one that is the same and has the daemon's
 * devices besides: infiniband/NAME and infiniband_verbs/uverbsN, read-only. What stands in the
 * files is so at this moment. `status` is the daemon's answer. Returns 0, or -errno and everything
 * is as it was.
 */
int sysfs_cover(const json_t *status);

#endif
