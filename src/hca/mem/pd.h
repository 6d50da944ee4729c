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
	/* By ibv_import_pd(). Set before the PD is in the books and never changed, so no lock
	 * guards it. */
	bool imported;
	/* ibv_unimport_pd() was called, but objects still use the PD. Set by ibv_unimport_pd()
	 * without a lock, and again by share_end_released() if objects still use it; cleared by
	 * take_released(), under hca.lock: the thread that clears it ends the PD. So it is atomic,
	 * and independent of `imported`, which it presumes. */
	_Atomic bool released;
	struct pd *next_released; /* the list that take_released() returns; its caller's */
};

static inline struct pd *pd_of(struct ibv_pd *ibv)
{
	return container_of(ibv, struct pd, ibv);
}

#endif
