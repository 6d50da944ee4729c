/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions that are mapped here: one-sided operations on them are plain loads, stores and
 * processor atomics, without a system call, and without the peer, which may be stopped.
 *
 * A region can be mapped if its memory is shared already (shared.h): its entry then has a serial
 * number and the print of its files. An initiator that may use process_vm_* on the owner may map
 * these files as well (peer_map.h requires the same permission). The rkey is looked up for each
 * operation as without a mapping, and hazards hold deregistration up as without one: a mapping only
 * replaces the system call. Where there is none, process_vm_* is used, and the owner's engine for
 * atomics.
 *
 * The first operations on a region find no mapping: they queue a request (a wish) and go the other
 * way. The control thread maps the regions of queued wishes, with no lock held. It populates only
 * those pages that exist in the file already, so a sparse region stays sparse; a page that is
 * touched later is mapped by a fault. A region that grants its peers no writes is mapped read-only.
 *
 * What holds:
 *
 *   - A copy goes through a mapping only while a hazard names its rkey, and after the key was
 *     looked up under that hazard. So when ibv_dereg_mr() has returned, none does.
 *   - A mapping is removed only when no hazard of this process names its rkey     [M1 with M2].
 *   - A mapping shows the files that were registered, as the kernel vouches (peer_map.h), whatever
 *     the owner does to its own mappings: it never leads to other memory at the same addresses. An
 *     owner that had replaced its memory when the mapping was to be made has its region refused.
 *   - Changes that an owner makes to its file (holes, truncation) can only make copies fault, which
 *     are guarded (guard.h), or read zeros.
 *   - The mapping of a region that isn't registered any more is removed soon: the owner asks for
 *     that (mapped_owner_ends()), because it would keep the file's memory.
 *
 * Bounds: MAPPED_PLACES mappings for each link, MAPPED_MAX and MAPPED_BYTES_MAX for the process. If
 * there is no room, operations on the region go the other way.
 */
#ifndef VERBENA_HCA_MEM_MAPPED_H
#define VERBENA_HCA_MEM_MAPPED_H

#include "hca/mem/mr.h"
#include "hca/mem/peer_map.h"

struct link;

enum { MAPPED_PLACES = 256, MAPPED_MAX = 4096, MAPPED_WISHES = 8 };
#define MAPPED_BYTES_MAX (1ull << 40)

/* The place of a mapping. Threads that copy look it up without a lock, under the hazard that names
 * its rkey; the control thread changes it while its key is 0. */
struct mapped {
	_Atomic uint64_t key; /* rkey << 32 | the region's file_serial; 0: empty  [M1 with M2] */
	uint8_t *base;	      /* the region's first byte; NULL: it can't be mapped */
	/* Of the region when it was mapped, bytes; 0 without a mapping. Atomic for mapped_is(). */
	_Atomic uint64_t length;
	bool gone; /* the owner had replaced its memory: operations are refused */
	struct peer_map map;
};

/* Regions that operations found unmapped, by key as above. A wish stays here after the control
 * thread has handled it, so that later operations don't queue it again. Any thread that copies
 * writes a key, and then sets `fresh`; the engine thread sets `fresh` without a key when regions of
 * the peer's have ended (mapped_hear()). The control thread clears `fresh` (mapped_serve()) before
 * it reads the keys, so it misses none. mapped_free() clears the keys when the link's memory is
 * given back. No lock guards them, because copying threads hold only their QP's. `fresh` isn't
 * derived from the keys, since a key that was handled stays. */
struct mapped_wishes {
	_Atomic uint64_t key[MAPPED_WISHES];
	_Atomic bool fresh; /* something changed since the control thread looked */
};

/* In place of an address: the memory that was registered isn't the owner's any more. */
#define MAPPED_GONE ((uint8_t *)1)

/*
 * The address in this process of the peer's address `at`, within the region `view`, which `rkey`
 * names, for `length` bytes, at least 1. NULL: not mapped (yet). MAPPED_GONE: refuse the operation.
 * The address is valid until the caller clears the hazard for the rkey, which it has set before.
 * Never waits.
 */
uint8_t *mapped_at(struct link *link, uint32_t rkey, const struct mr_view *view, uint64_t at,
		   uint64_t length);

/* Whether mapped_at() is likely to give an address; a guess, without a hazard. Queues the wish. */
bool mapped_is(struct link *link, uint32_t rkey, const struct mr_view *view);

/* Maps the regions of queued wishes, and removes mappings of regions that have ended. True: a copy
 * holds one up, and the caller is to call again soon. Control thread only. */
bool mapped_serve(struct hca *hca);

/* Unmaps the regions of a link whose memory is given back: no thread uses it any more, and
 * link.watchers is 0. */
void mapped_free(struct link *link);

/* In a forked child, to which the mappings weren't inherited. */
void mapped_leave(struct link *link);

/*
 * The end of mappings. link_memory.maps[s] is the number of the other side's regions that side s
 * has mapped or is about to; link_memory.ended[s] asks side s to look which of them have ended.
 *
 *   Initiator: maps += 1 [M3], then reads the region's entry [H2] and maps it
 *   Owner:     clears the entry [H3], then reads maps [M4]; if it isn't 0: ended := 1, and rings
 *
 * All four are seq_cst: the initiator finds that the region has ended, or the owner finds that it
 * may be mapped.
 */

/* Asks peers to remove their mappings of a region of this process, whose entry has been cleared.
 * Takes hca.lock. */
void mapped_owner_ends(struct hca *hca);

/* Has the control thread look at mappings that peers have asked to be removed. Engine thread. */
void mapped_hear(struct hca *hca);

#endif
