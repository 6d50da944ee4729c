/* SPDX-License-Identifier: BSD-2-Clause */
/* A device of the kernel, inside this folder; see kernel.h for what others may call. */
#ifndef VERBENA_KVERBS_DEVICE_H
#define VERBENA_KVERBS_DEVICE_H

#include "base/export.h"
#include "kverbs/kernel.h"
#include "kverbs/release.h"

struct kernel_device {
	struct provider_device *provided; /* the driver's */
	enum driver_release release;	  /* of the driver */
	struct found_device *found;
	struct list node;  /* on `known`; this and the rest under known_lock */
	unsigned int refs; /* lists, contexts, and one while the device is present */
	bool present;	   /* the last scan had it */
	bool seen;	   /* the present scan has it */
};

/* For drivers and for this folder: what libibverbs fills in a new completion queue. */
EXPORT void verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context,
			  struct ibv_comp_channel *channel, void *cq_context);

/* Looks for the device whose node has this number, among those that are there now and that the
 * program may have. The caller gets a reference. NULL: there is none, or there is no memory. */
struct kernel_device *kernel_device_find(dev_t number);

/* Opens the node: a descriptor or -errno. */
int kernel_node_open(const struct kernel_device *device);

#endif
