/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Driver libraries: reading /etc/libibverbs.d, loading them, and which have registered. Loading
 * happens once, when the first device of the kernel is seen.
 */
#ifndef VERBENA_KVERBS_DRIVERS_H
#define VERBENA_KVERBS_DRIVERS_H

#include "kverbs/release.h"

struct found_device;
struct provider;

/* Loads what the configuration names, if that hasn't happened. Call without locks: the libraries'
 * constructors call verbs_register_driver_34() or its like. */
void drivers_load(void);

/* The first registered driver that takes the device, and its release; NULL: none, or one whose
 * layouts aren't known. Sets found->match. */
const struct provider *drivers_match(struct found_device *found, enum driver_release *release);

/* Loads the drivers that the files of a directory name, from another directory. For
 * drivers_load() and tests. Returns how many were loaded. */
unsigned int drivers_load_from(const char *config_dir, const char *library_dir);

/* How many drivers have registered. */
unsigned int drivers_count(void);

#endif
