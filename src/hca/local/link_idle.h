/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Idle links. A link costs both processes descriptors and address space, and a single datagram from
 * a process of another user makes one. So an idle link is given back, and comes up again when it is
 * needed.
 *
 * Idle: no QP of this process is connected by it, no region is imported by it, no request waits for
 * it, no deregistration looks at it, and for a whole period (link_idle_scan()) no record was sent
 * or taken. Either side may ask to end it; the other one decides:
 *
 *   this side                                     the peer
 *   LEAVE is its last record, the ring is sealed
 *                                                 doesn't need the link either: seals its own
 *                                                 ring, is ENDING, and tells the daemon
 *   the daemon's event: takes what the peer has
 *   written before its seal, is ENDING
 *                                             or  needs it: answers STAY
 *   takes the seal off, and goes on
 *
 * What holds:
 * - No record is lost. A sealed ring takes no record (link_begin() gives NULL, so requests wait as
 *   they do for a full ring), only STAY takes a seal off, and a side is ENDING only after it has
 *   taken all that the peer wrote before the peer's seal: the side that agrees has read up to
 *   LEAVE, the side that asked drains its ring after the daemon's event. Requests that wait when
 *   the link goes down ask for the next one.
 * - If both sides ask at once, both agree, even if requests have begun to wait since; the daemon
 *   ends the link at the first message and has no link for the second.
 * - Without a daemon no side asks, because only the daemon tells the side that asked of the end. If
 *   the daemon is lost after LEAVE, the side that agrees starts the next one.
 * - The side whose need ends last asks: link_put() of the last user sets the timer, and a side that
 *   got STAY doesn't ask again before the peer has asked itself. So a connected link wakes no
 *   process.
 * - A process of another user that doesn't answer for two periods loses the link without its
 *   consent, since a stopped process must not keep this one's descriptors. What it writes later is
 *   lost, and its QPs see a dead peer.
 *
 * States of this side's end (enum link_leave; under link.tx_lock, because a sealed ring takes no
 * record and both sides' decisions are made under it):
 *   NONE  -> ASKED  link_idle_ask(): LEAVE is written, the ring is sealed
 *   NONE  -> ENDED  link_take_leave(): the peer asked, and nothing here needs the link
 *   ASKED -> NONE   link_take_stay(): the seal is taken off
 *   ASKED -> ENDED  link_take_leave(): both asked; link_idle_look(): a stranger didn't answer
 *   any   -> NONE   link_idle_forget(): the memory is given back. Until then a link that is ending
 *                   keeps the state in which it ended
 *
 * `kept` isn't one of these states, since it concerns NONE only and says what the peer wants, not
 * what this side has sent. It changes under hca.engine, and link_idle_look() reads it there:
 *   set      link_take_stay(), if this side had asked
 *   cleared  link_take_leave(), since the peer doesn't need the link any more; link_idle_begin()
 * While it is set this side doesn't ask.
 */
#ifndef VERBENA_HCA_LOCAL_LINK_IDLE_H
#define VERBENA_HCA_LOCAL_LINK_IDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct hca;
struct link;
struct ring_header;

/* What this side has sent: see the table above. */
enum link_leave {
	LEAVE_NONE,
	LEAVE_ASKED, /* LEAVE is the ring's last record */
	LEAVE_ENDED  /* this side has made the link ENDING */
};

struct link_idle {
	/* QPs connected by the link, regions imported by it. Atomic: counted under any lock or none
	 * (link_take(), link_hold(), link_put()). */
	_Atomic uint32_t users;
	uint32_t leave;	  /* enum link_leave; under link.tx_lock */
	struct list seal; /* first on link.backlog while `leave` isn't NONE; under link.tx_lock */
	bool kept;	  /* the peer sent STAY, and no LEAVE since; under hca.engine */
	uint32_t sent, taken; /* positions of both rings at the last scan; under hca.engine */
	uint64_t asked_at;    /* ns; only the engine thread's scan uses it */
};

/* The period from the environment (VERBENA_LINK_IDLE_MS), in ns. */
uint64_t link_idle_period(void);

/* Initialises the part of a new link. */
void link_idle_init(struct link *link);
/* The link is about to be UP, and its rings exist (engine thread). */
void link_idle_begin(struct link *link);

/* Takes the link to `slot` for a user that needs it from now on: link_get() and a count. NULL: out
 * of memory. */
struct link *link_take(struct hca *hca, uint32_t slot);
/* The same for a link that is UP, and stays UP. False: it is about to end for being idle; no count
 * is taken. */
bool link_hold(struct link *link);
/* Gives back a count of the two above. Any lock may be held. */
void link_put(struct link *link);

/* Asks to end idle links, if the period is over. `hca.link_idle_at` says when. Returns when to look
 * again (ns). Engine thread. */
uint64_t link_idle_scan(struct hca *hca);

/* Handles LEAVE or STAY. hca.engine is held. */
void link_idle_record(struct link *link, const struct ring_header *h);

/* The daemon has ended the link: whether this side had asked for that. */
bool link_idle_asked(struct link *link);
/* The link's memory is being given back: clears this part. tx_lock is held. */
void link_idle_forget(struct link *link);

#endif
