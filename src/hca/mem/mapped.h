/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions that are in a memory file, mapped here: one-sided operations
 * on them are plain copies, without a system call.
 *
 * A process that registers a memory file (ibv_reg_dmabuf_mr) publishes the
 * descriptor's number and where in the file the region begins. An initiator
 * that may use process_vm_* on the owner may as well take that descriptor
 * (pidfd_getfd asks for the same permission) and map the region. The rkey is
 * looked up for each operation as before, and hazards hold deregistration up as
 * before: a mapping only replaces the system call. Where there is none,
 * process_vm_* goes on working.
 *
 * The first operations on a region find no mapping: they note a wish and go by
 * process_vm_*. The control thread maps what was wished for, with no lock held.
 * It populates only those pages that exist in the file already, so a sparse
 * region stays sparse; a page that is touched later comes with a fault.
 *
 * Bounds: MAPPED_PLACES mappings for each link, MAPPED_MAX and MAPPED_BYTES_MAX
 * for the process. A region that needs a place takes it from one that is not
 * registered any more; a region for which there is no room goes on by
 * process_vm_*. What an owner does to its file (holes) can only make copies
 * fault, which are guarded.
 */
#ifndef VERBENA_HCA_MEM_MAPPED_H
#define VERBENA_HCA_MEM_MAPPED_H

#include "hca/mem/mr.h"

struct link;

enum { MAPPED_PLACES = 256, MAPPED_MAX = 4096, MAPPED_WISHES = 8 };
#define MAPPED_BYTES_MAX (1ull << 40)

/* A place for a mapping. Looked up without a lock; changed by the control
 * thread. */
struct mapped {
	_Atomic uint64_t key; /* rkey << 32 | the region's file_serial; 0: nothing  [M1 with M2] */
	_Atomic uint32_t users; /* threads that copy now */
	uint8_t *base;		/* the region's first byte; NULL: it can't be mapped */
	uint64_t length;	/* of the region as it was mapped */
	void *pages;
	size_t size;
};

/* Regions that operations found unmapped, by key as above. A wish stays noted
 * when it has been looked at, so that it isn't noted again by each operation.
 */
struct mapped_wishes {
	_Atomic uint64_t key[MAPPED_WISHES];
	_Atomic bool fresh;
};

/*
 * The address here of what `at` (an address of the peer's) is within the region
 * `view`, which `rkey` names, for `length` bytes; NULL: not mapped (yet).
 * Otherwise *use is to be given back. The hazard is set. Never waits.
 */
uint8_t *mapped_begin(struct link *link, uint32_t rkey, const struct mr_view *view, uint64_t at,
		      uint64_t length, struct mapped **use);

static inline void mapped_end(struct mapped *use)
{
	atomic_fetch_sub_explicit(&use->users, 1, memory_order_release);
}

/* Maps what was wished for. Control thread only. */
void mapped_serve(struct hca *hca);

/* The link's memory goes; nobody uses it any more, and link.watchers is 0. */
void mapped_free(struct link *link);

#endif
