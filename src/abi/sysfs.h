/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading sysfs attributes: exported, but in no public header. */
#ifndef VERBENA_ABI_SYSFS_H
#define VERBENA_ABI_SYSFS_H

#include <stddef.h>

/*
 * Where sysfs is: $SYSFS_PATH without trailing slashes, unless the program is set-uid, else
 * "/sys". Evaluated at the first call; the string stays valid for the life of the process.
 */
const char *ibv_get_sysfs_path(void);

/*
 * Reads dir/file into value, cuts one trailing newline and terminates it. Returns the length
 * without terminator, or -1 with errno: that of open() or read(); ENAMETOOLONG if the path doesn't
 * fit, EOVERFLOW if the value with its terminator doesn't.
 */
int ibv_read_sysfs_file(const char *dir, const char *file, char *value, size_t size);

#endif
