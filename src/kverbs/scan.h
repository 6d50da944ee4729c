/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding the kernel's devices: sysfs, and netlink for what sysfs doesn't say. Keeps no state; any
 * thread.
 */
#ifndef VERBENA_KVERBS_SCAN_H
#define VERBENA_KVERBS_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"

struct found_device;
struct provider;

/* Where the scan looks. */
struct scan_roots {
	const char *sysfs;  /* /sys */
	const char *nodes;  /* /dev/infiniband */
	const char *config; /* /etc/libibverbs.d, for drivers.h */
};

/* Whether there may be any device: one access(). */
bool scan_worthwhile(const struct scan_roots *roots);

/*
 * Appends a `struct found_device` (malloc) for each device whose node this program may open and
 * whose number is the one that sysfs names; the ABI's version is known. -errno when the directory
 * can't be read, else 0.
 */
int scan_devices(const struct scan_roots *roots, struct list *found);

/* Adds index, number of ports and driver's id, which only netlink has; leaves what it can't learn.
 */
void scan_add_netlink(struct list *found);

/* Whether the driver says that it serves the device; sets found->match. */
bool scan_match(struct found_device *found, const struct provider *provider);

/* Reads dir/file into `value`, without a newline at the end: its length, or -1 with errno. */
int scan_read(const char *dir, const char *file, char *value, size_t size);

/* The root of sysfs: $SYSFS_PATH, or /sys. Constant after the first call. */
const struct scan_roots *scan_default_roots(void);
/* Replaces the roots, whose strings must stay valid: for tests, before anything is listed. */
void scan_use_roots(const struct scan_roots *roots);

#endif
