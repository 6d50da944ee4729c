/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions that are in a memory file, mapped here: one-sided operations on them are plain
 * copies, without a system call.
 *
 * Who registers a memory file (ibv_reg_dmabuf_mr) publishes the descriptor's number and where in
 * the file the region begins. An initiator that may use process_vm_* on the owner may as well take
 * that descriptor (pidfd_getfd asks for the same permission), and maps the region at its first use.
 * The rkey is looked up for each operation as before, and hazards hold deregistration up as before:
 * a mapping only replaces the system call. Where there is none, process_vm_* goes on working.
 *
 * A link keeps a fixed number of mappings; a region that needs a place takes it from another that
 * isn't in use. What an owner does to its file (holes) can only make copies fault, which are
 * guarded.
 */
#ifndef VERBENA_HCA_MEM_MAPPED_H
#define VERBENA_HCA_MEM_MAPPED_H

#include "hca/mem/mr.h"

/* A place for a mapping. Looked up without a lock; changed under link.places_lock. */
struct mapped {
	_Atomic uint64_t key; /* rkey << 32 | the region's file_serial; 0: nothing  [M1 with M2] */
	_Atomic uint32_t users; /* threads that copy now */
	uint8_t *base;		/* the region's first byte; NULL: it can't be mapped */
	uint64_t length;	/* of the region as it was mapped */
	void *pages;
	size_t size;
};

/*
 * The address here of what `at` (an address of the peer's) is within the region `view`, which
 * `rkey` names, for `length` bytes; NULL: not mapped. Otherwise *use is to be given back. The
 * hazard is set.
 */
uint8_t *mapped_begin(struct link *link, uint32_t rkey, const struct mr_view *view, uint64_t at,
		      uint64_t length, struct mapped **use);

static inline void mapped_end(struct mapped *use)
{
	atomic_fetch_sub_explicit(&use->users, 1, memory_order_release);
}

/* The link's memory goes; nobody uses it any more. */
void mapped_free(struct link *link);

#endif
