/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links that have ended, and that wait for their peer to leave them.
 *
 * A link may end while both processes live: a daemon's restart in which one side only names it, a
 * peer that breaks the rules, consent. The two sides learn of that at different times, and until
 * the peer does it may begin a copy. The invariant: as long as a thread of the peer's process may
 * still begin a copy by the link, or is in one, a deregistration here sees its hazards. So the
 * peer's tables stay mapped, and the link ENDING, until the peer has marked that it has left
 * (link_memory.left, shm/link.h, which has the barriers), has been shut out before it had the link,
 * or has ended. Each side leaves, and marks that, before it waits for the other one; so no two wait
 * for each other.
 *
 * A peer that hasn't come to the link yet is shut out of it (link_memory.part): the daemon was
 * killed after it had told this side of the link, and before it told the peer. Then the peer has
 * taken nothing of what this side sent, and the requests are sent again by the next link
 * (core/local_qp.h). A side that is shut out refuses the link as soon as it hears of it.
 *
 * This wait is no polling: a peer that leaves rings the doorbell; its end is reported by a pidfd.
 * Where there is none (another PID namespace, no descriptors) the engine looks once a second
 * whether the peer lives. The engine's rounds look at the marks of parting links, which is a load
 * for each.
 *
 * A peer that never leaves (it is stopped, or breaks the rules) keeps one link's memory and one
 * descriptor here, until it ends: there is no next link to its slot before. Its hazards hold a
 * deregistration up for a bounded time, as with a link that is up (mem/hazard.h). A process of
 * another user can't copy, and isn't waited for.
 *
 * hca.parting lists these links: struct link.next_parting, .parting, .parting_fd. Only the engine
 * thread uses any of this.
 */
#ifndef VERBENA_HCA_LOCAL_LINK_PART_H
#define VERBENA_HCA_LOCAL_LINK_PART_H

#include <stdbool.h>
#include <stdint.h>

struct hca;
struct link;
struct link_memory;

/* This side comes to a link that isn't up yet: it may take records and copy from now on. False: the
 * peer has left already, and the link is to be refused. */
bool link_take_part(struct link_memory *memory, uint32_t side);
/* Whether the peer has come to the link, which is up here. */
bool link_peer_came(const struct link *link);
/* This side leaves: whether it has shut the peer out, which had not come to the link. Only the
 * first call for a link decides. */
bool link_shut_out(struct link *link);

/* Marks that this side has left, and wakes the peer: no thread of this process is in a copy by the
 * link, and none will begin one. */
void link_tell_left(struct link *link);

/* Whether the peer has left the link or was shut out of it: it begins no copy by it, and is in
 * none. This side has left. */
bool link_peer_left(const struct link *link);

/* The peer may still copy: the link waits until it leaves or ends. */
void link_part(struct hca *hca, struct link *link);
/* The wait is over, or there was none. */
void link_end_parting(struct link *link);

/* Whether a look at the links that wait (link_reap()) may find that some wait is over. */
bool link_any_parted(const struct hca *hca);
/* Whether a link waits whose peer's end no descriptor reports. */
bool link_parts_unwatched(const struct hca *hca);

#endif
