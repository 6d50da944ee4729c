/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links that nothing needs any more. A link costs both processes descriptors and address space, and
 * one datagram of a stranger makes one. So a link that lies idle is given back, and comes up again
 * when somebody wishes for it.
 *
 * Idle: no QP of this process is connected by it, no region is imported by it, no request waits for
 * it, no deregistration looks at it, and for a whole period (link_idle_scan()) no record was sent
 * or taken. Either side may ask to end it; the other one decides:
 *
 *   this side                                     the peer
 *   LEAVE is its last record, the ring is sealed
 *                                                 has no use for the link either: seals its own
 *                                                 ring, is DOWN, and tells the daemon
 *   the daemon's event: takes what the peer has
 *   written before its seal, is DOWN
 *                                             or  needs it: answers STAY
 *   takes the seal off, and goes on
 *
 * What holds:
 * - No record is lost. A sealed ring takes no record (link_begin() gives NULL, so requests wait as
 *   they do for a full ring), a seal is taken off by STAY only, and a side is DOWN only after it
 *   has taken all that the peer wrote before the peer's seal: the side that agrees has read up to
 *   LEAVE, the side that asked drains its ring after the daemon's event. Requests that wait when
 *   the link goes down wish for the next one.
 * - Both sides ask at once: both agree, whatever has begun to wait since; the daemon ends the link
 *   at the first word and has no link for the second.
 * - The side whose need ends last asks: the end of a need sets the timer (link_put()), and a side
 *   that was told STAY doesn't ask again before the peer has asked itself. So a connected link
 *   wakes no process.
 * - A stranger (another user's process) that doesn't answer for two periods loses the link without
 *   its consent: descriptors must come back from a stopped process, too. What it writes later is
 *   lost, and its QPs see a peer that has gone.
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

/* What this side has said:  NONE -> ASKED -> NONE (STAY), ENDED (LEAVE came, or no answer), or the
 * daemon's event ends the link;  NONE -> ENDED (LEAVE came). */
enum link_leave {
	LEAVE_NONE,
	LEAVE_ASKED, /* LEAVE is the ring's last record */
	LEAVE_ENDED  /* the link is DOWN by this side's word */
};

struct link_idle {
	_Atomic uint32_t users; /* QPs connected by the link, regions imported by it */
	uint32_t leave;		/* enum link_leave; under tx_lock */
	struct list seal;	/* first on link.backlog while `leave` isn't NONE; under tx_lock */
	bool kept;		/* the peer said STAY, and no LEAVE since; under engine */
	uint32_t sent, taken;	/* positions of both rings at the last look; under engine */
	uint64_t asked_at;	/* ns; engine thread's */
};

/* The period from the environment (VERBENA_LINK_IDLE_MS), in ns. */
uint64_t link_idle_period(void);

/* A new structure; a link that is about to be up (engine thread). */
void link_idle_init(struct link *link);
void link_idle_begin(struct link *link);

/* Something needs the link to `slot` from now on: link_get() and a count. NULL: out of memory. */
struct link *link_take(struct hca *hca, uint32_t slot);
/* The same for a link that is up, and stays so. False: it is about to end for being idle, and isn't
 * held. */
bool link_hold(struct link *link);
/* It needs it no more. Any lock may be held. */
void link_put(struct link *link);

/* Asks to end what lies idle, if it is time. Returns when to look again (ns). Engine thread. */
uint64_t link_idle_scan(struct hca *hca);

/* LEAVE or STAY. hca.engine is held. */
void link_idle_record(struct link *link, const struct ring_header *h);

/* The daemon said that the link has ended: whether this side had asked for that. */
bool link_idle_asked(struct link *link);
/* It goes down by consent: who is connected by it gets the next one. */
void link_idle_down(struct link *link);
/* Its memory is given back; tx_lock is held. */
void link_idle_forget(struct link *link);

#endif
