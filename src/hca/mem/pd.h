/* SPDX-License-Identifier: BSD-2-Clause */
/* Protection domains. */
#ifndef VERBENA_HCA_MEM_PD_H
#define VERBENA_HCA_MEM_PD_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
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
	/* The program gave the PD back (ibv_unimport_pd(); ibv_dealloc_pd() before its null
	 * regions), but objects still use it. Set by pd_end_later() without a lock, and again by
	 * share_end_released() if objects still use it; cleared by take_released(), under hca.lock:
	 * the thread that clears it ends the PD. So it is atomic, and independent of `imported`. */
	_Atomic bool released;
	struct pd *next_released; /* the list that take_released() returns; its caller's */

	/* ---- a parent domain's: set when it is made and never changed, so no lock guards them */
	struct pd *parent_of; /* the domain that it extends; NULL: it is no parent domain */
	struct td *td;	      /* or NULL */
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t size, size_t alignment,
		       uint64_t kind); /* NULL: none */
	void (*free)(struct ibv_pd *pd, void *context, void *at, uint64_t kind);
	void *pd_context;
	/* Of a parent domain: the objects that were made with it, since the daemon knows only the
	 * domain that it extends. Of another: its parent domains. Atomic: any thread makes and ends
	 * objects. */
	_Atomic uint32_t users;
};

/* A thread domain: which objects one thread only uses. */
struct td {
	struct ibv_td ibv;
	_Atomic uint32_t users; /* parent domains with it */
};

static inline struct td *td_of(struct ibv_td *ibv)
{
	return container_of(ibv, struct td, ibv);
}

static inline struct pd *pd_of(struct ibv_pd *ibv)
{
	return container_of(ibv, struct pd, ibv);
}

/* Counts an object that was made with the domain, or has ended. */
static inline void pd_use(struct ibv_pd *ibv, int change)
{
	struct pd *pd = ibv ? pd_of(ibv) : NULL;

	if (pd && unlikely(pd->parent_of != NULL))
		atomic_fetch_add(&pd->users, (uint32_t)change);
}

#endif
