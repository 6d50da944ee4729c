/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions that are in a memory file, mapped here: one-sided operations on them are plain
 * copies, without a system call.
 *
 * A process that registers a memory file (ibv_reg_dmabuf_mr) publishes the descriptor's number and
 * the offset in the file at which the region begins. An initiator that may use process_vm_* on the
 * owner may as well duplicate that descriptor (pidfd_getfd requires the same permission) and map
 * the region. The rkey is looked up for each operation as without a mapping, and hazards hold
 * deregistration up as without one: a mapping only replaces the system call. Where there is none,
 * process_vm_* is used.
 *
 * The first operations on a region find no mapping: they queue a request (a wish) and use
 * process_vm_*. The control thread maps the regions of queued wishes, with no lock held. It
 * populates only those pages that exist in the file already, so a sparse region stays sparse; a
 * page that is touched later is mapped by a fault.
 *
 * Bounds: MAPPED_PLACES mappings for each link, MAPPED_MAX and MAPPED_BYTES_MAX for the process. A
 * region that needs a place takes it from one that is not registered any more; if there is no room,
 * operations on the region use process_vm_*. Changes that an owner makes to its file (holes) can
 * only make copies fault, which are guarded.
 */
#ifndef VERBENA_HCA_MEM_MAPPED_H
#define VERBENA_HCA_MEM_MAPPED_H

#include "hca/mem/mr.h"

struct link;

enum { MAPPED_PLACES = 256, MAPPED_MAX = 4096, MAPPED_WISHES = 8 };
#define MAPPED_BYTES_MAX (1ull << 40)

/* A place for a mapping. Threads that copy look it up without a lock; the control thread changes
 * it. */
struct mapped {
	_Atomic uint64_t key;	/* rkey << 32 | the region's file_serial; 0: empty  [M1 with M2] */
	_Atomic uint32_t users; /* threads that are copying */
	uint8_t *base;		/* the region's first byte; NULL: it can't be mapped */
	uint64_t length;	/* of the region when it was mapped, bytes */
	void *pages;
	size_t size;
};

/* Regions that operations found unmapped, by key as above. A wish stays here after the control
 * thread has handled it, so that later operations don't queue it again. Any thread that copies
 * writes a key, and then sets `fresh`; the control thread clears `fresh` (mapped_serve()) before it
 * reads the keys, so it misses none. mapped_free() clears the keys when the link's memory is given
 * back. No lock guards them, because copying threads hold only their QP's. `fresh` isn't derived
 * from the keys, since a key that was handled stays. */
struct mapped_wishes {
	_Atomic uint64_t key[MAPPED_WISHES];
	_Atomic bool fresh; /* a key was written since the control thread looked */
};

/*
 * The address in this process of the peer's address `at`, within the region `view`, which `rkey`
 * names, for `length` bytes. The caller gives *use back with mapped_end(). NULL: not mapped (yet).
 * The caller has set the hazard. Never waits.
 */
uint8_t *mapped_begin(struct link *link, uint32_t rkey, const struct mr_view *view, uint64_t at,
		      uint64_t length, struct mapped **use);

static inline void mapped_end(struct mapped *use)
{
	atomic_fetch_sub_explicit(&use->users, 1, memory_order_release);
}

/* Maps the regions of queued wishes. Control thread only. */
void mapped_serve(struct hca *hca);

/* Unmaps the regions of a link whose memory is given back: no thread uses it any more, and
 * link.watchers is 0. */
void mapped_free(struct link *link);

#endif
