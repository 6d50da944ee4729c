/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices in /sys/class and /dev of the programs that this process becomes or starts. */
#ifndef VERBENA_CLI_DEVICES_H
#define VERBENA_CLI_DEVICES_H

#include <stdbool.h>

/*
 * Moves this process into a mount namespace that shows the daemon's devices in
 * /sys/class/infiniband and /dev/infiniband, or prints one warning that it can't. With `mirror`,
 * nodes of a fabric are shown there: *mirror is what mirror_mount() returned, or -1: they can't be,
 * or aren't wanted (VERBENA_SYSFS). NULL: no fabric.
 */
void devices_show(int *mirror);

#endif
