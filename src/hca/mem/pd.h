/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. */
#ifndef VERBENA_HCA_MEM_PD_H
#define VERBENA_HCA_MEM_PD_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

/*
 * A program may overwrite what it sees of an object (`ibv`). So the numbers that lead to memory or
 * to the daemon are kept a second time (handle; of regions rkey), and only these are used.
 */
struct pd {
	struct ibv_pd ibv;
	struct list held;
	uint32_t handle; /* for the daemon */
	uint32_t shown;	 /* ibv.handle as it was made: of an imported one it is the original's */
	uint32_t id;	 /* process-wide: published entries of MRs and QPs are compared by it */
	bool imported;
	_Atomic bool released; /* by ibv_unimport_pd(), though objects still use it */
	struct pd *next_released;
};

static inline struct pd *pd_of(struct ibv_pd *ibv)
{
	return container_of(ibv, struct pd, ibv);
}

#endif
