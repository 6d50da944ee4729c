/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. */
#ifndef VERBENA_HCA_MEM_PD_H
#define VERBENA_HCA_MEM_PD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

/*
 * A program may overwrite the public part of an object (`ibv`). So the numbers that lead to memory
 * or to the daemon are kept a second time (the handle; of regions also the rkey), and only these
 * copies are used.
 */
struct pd {
	struct ibv_pd ibv;
	struct list held;
	uint32_t handle; /* for the daemon */
	uint32_t shown;	 /* ibv.handle as it was made; of an imported one the original's */
	uint32_t id;	 /* process-wide number by which published MRs and QPs are compared */
	bool imported;
	_Atomic bool released; /* ibv_unimport_pd() was called, but objects still use it */
	struct pd *next_released;
};

static inline struct pd *pd_of(struct ibv_pd *ibv)
{
	return container_of(ibv, struct pd, ibv);
}

#endif
