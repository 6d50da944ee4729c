/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers' regions that are mapped here: one-sided operations on them, by a region's key or by that
 * of a memory window on it, are plain loads, stores and processor atomics, without a system call,
 * and without the peer, which may be stopped. Long SENDs from them are copied by loads, too.
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
 * touched later is mapped by a fault. A region that grants its peers no writes, and on which no
 * window can be bound that grants them, is mapped read-only.
 *
 * Windows (verbs/window.h). A window has no mapping of its own. Its entry in the owner's table
 * names the region that it is bound to (window_region) and has the region's file_serial, so an
 * operation by the window's key finds the region's mapping as soon as the window is bound, however
 * short its life. The window's entry alone decides about rights, range and queue pair.
 *
 * Who writes what:
 *
 *   - The owner writes a region's entry and a window's (pub_mr). A window is bound to a registered
 *     region only, and while it is bound the region isn't ended or changed, nor moved to other
 *     pages: mem/convert.h takes no region with IBV_ACCESS_MW_BIND.
 *   - A copying thread of the initiator writes a hazard. It names the key that the request has: the
 *     region's, or the window's and not the region's, since the thread learns the region from the
 *     entry that it reads under the hazard.
 *   - The initiator's control thread writes the places below, in the initiator's private memory.
 *
 * What holds:
 *
 *   - A copy goes through a mapping only while a hazard names its request's key, and after that key
 *     was looked up under the hazard [H1, H2 with H3, H4 in hazard.h]. So when ibv_dereg_mr() has
 *     returned, none by the region's key does; and none by a window's key does when its
 *     IBV_WR_LOCAL_INV, the IBV_WR_SEND_WITH_INV that names it, another bind of a type 1 window or
 *     ibv_dealloc_mw() has completed, since each of these clears the window's entry and waits for
 *     hazards that name its key. ibv_dereg_mr() refuses a region with bound windows.
 *   - A mapping is removed only when no copy of this process that may have found it is under way.
 *     The control thread takes the place's key away [M1], and from then on no copy finds the
 *     mapping [M2]. A copy that found it before has a hazard set that names the owner's slot, and
 *     the region's key or any other, which may be a window's. So the control thread waits until it
 *     has seen each of the process's hazards once without that slot; it relies on nothing that the
 *     owner's table says, since the owner may write that as it likes.
 *   - A mapping shows the files that were registered, as the kernel vouches (peer_map.h), whatever
 *     the owner does to its own mappings: it never leads to other memory at the same addresses. An
 *     owner that had replaced its memory when the mapping was to be made has its region refused.
 *   - Changes that an owner makes to its file (holes, truncation) can only make copies fault, which
 *     are guarded (guard.h), or read zeros.
 *   - The mapping of a region that isn't registered any more is removed soon: the owner asks for
 *     that (mapped_owner_ends()), because it would keep the file's memory.
 *
 * Deaths. The initiator may be killed at any instruction: its mappings end with it, its hazards
 * stay set, and the owner finds that the process has ended (hazard.h). The owner may be killed at
 * any instruction, also between the two stores that clear a window's entry and its region's: the
 * initiator's stores go to the pages of a file that no process has any more, or that other owners
 * of the file have shared themselves, and the operation fails, because it counts only if the owner
 * is alive after it (local/peer.h); then the link goes down, and mapped_free() unmaps them. No
 * state of the places depends on a step of the owner's.
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

/* In place of an address: the memory that was registered isn't the owner's any more. */
#define MAPPED_GONE ((uint8_t *)1)

/*
 * The place of a mapping. Threads that copy look it up without a lock, under a hazard that names
 * the owner's slot; the control thread changes the rest while the key is 0.
 *
 *   key 0                 empty                            left by mapped_grant()
 *   a region's            a mapping, or why there is none  mapped_clear(): the region has ended
 *   MAPPED_LEAVING        as before, and copies may still  mapped_clear(): none does
 *                         use it
 *
 * One cache line, since each operation reads it.
 */
struct mapped {
	/* rkey << 32 | the region's file_serial; or as above  [M1 with M2] */
	_Alignas(64) _Atomic uint64_t key;
	uint64_t at; /* the owner's address of the region's first byte */
	/* The region's first byte here; without a mapping NULL, or MAPPED_GONE: the owner had
	 * replaced its memory, and operations are refused. */
	uint8_t *base;
	/* Of the region when it was mapped, bytes; 0 without a mapping. Atomic for mapped_is(). */
	_Atomic uint64_t length;
	struct peer_map map;
};
_Static_assert(sizeof(struct mapped) == 64, "one cache line a mapping");

#define MAPPED_LEAVING 1ull /* no region's rkey is 0 */

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

/*
 * The address in this process of the peer's address `at`, within the region or window `view`, for
 * `length` bytes, at least 1. NULL: not mapped (yet). MAPPED_GONE: refuse the operation. The
 * address is valid until the caller clears the hazard for the key by which it has read `view`.
 * Never waits.
 */
uint8_t *mapped_at(struct link *link, const struct mr_view *view, uint64_t at, uint64_t length);

/* Whether mapped_at() is likely to give an address; a guess, without a hazard. Queues the wish. */
bool mapped_is(struct link *link, const struct mr_view *view);

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
