/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links: this process's half of what connects it to another process of the host (or to itself).
 *
 * A link is made when a QP or a datagram first needs the process at a slot. Its states are one
 * word, link.state:
 *
 *   state         mapped  meaning                            left to
 *   DOWN             0    there is no link                   WISHED: link_get()
 *   WISHED           0    the daemon is to be asked          ASKED: link_ask();
 *                                                            UP: link_up();
 *                                                            DOWN: link_refused(), link_down()
 *   ASKED            0    the daemon is being asked; with    WISHED: the daemon is gone, and the
 *                         `refused`: it has refused          next one is asked; link_shut_here();
 *                                                            UP: link_up();
 *                                                            DOWN: link_refused(), link_down()
 *   UP               1    in use                             ENDING: link_down(), link_break();
 *                                                            ENDING or, if the link has users,
 *                                                            ENDING_WANTED: link_end_living()
 *   ENDING           1    the peer is gone, or broke the     DOWN: link_reap();
 *                         ring's rules, or neither side      ENDING_WANTED: link_get(),
 *                         needs the link (link_idle.h), or   link_end_living()
 *                         the peer hasn't got it; the
 *                         memory may still be in use
 *   ENDING_WANTED    1    likewise, and the next link is     WISHED: link_reap()
 *                         needed already: QPs wait for it
 *
 * `mapped`: the memory, the peer's tables and the doorbell exist. The event that makes a link UP
 * may come before the daemon is asked, since the peer may have asked first.
 *
 * The control thread (process/control.h) makes the transitions that wait for the daemon: WISHED ->
 * ASKED -> WISHED. Any thread may need the next link (link_get()), and the thread that finds that a
 * link is to end makes it ENDING (link_break(), link_idle_down()). The engine thread makes all
 * other transitions. Since several threads change the state, each transition out of a state that
 * another thread may leave as well is a compare-and-swap.
 *
 * A link that ends while both processes live stays mapped until the peer has left it as well
 * (link_part.h), so that a deregistration sees the hazards of the peer's last copies.
 *
 * link_reap() gives the memory back once no thread uses it, under hca.lock. The structure is never
 * freed, since other objects point to it, and serves the next process at the slot (slots are
 * quarantined before reuse).
 *
 * The flags, and why they aren't states:
 *
 *   flag         set by                            cleared by
 *   untold       link_break(), link_idle_end(),    link_leave(), which gives the link back;
 *                before ENDING                     link_up()
 *     a duty towards the daemon; the engine thread does it later
 *   broken       link_break(), before ENDING       link_up()
 *     a duty towards this process's QPs; the next pass does it
 *   refused      link_ask() (control thread)       link_take_refusals() (engine thread)
 *     a message between the two threads; it counts for nothing if the peer's own request has made
 *     the link UP meanwhile
 *   can_vm       link_up(), before UP              link_up(); leave_link(), after fork()
 *   direct       link_direct_slow(), under the     link_up(); leave_link(), after fork()
 *                QP's lock
 *   has_left     link_leave()                      link_up()
 *   shut_out     link_shut_out(), in link_leave()  link_up()
 *   parting      link_part()                       link_unmap()
 *     what link_reap() has done already; only the engine thread uses them
 *   datagrams    datagram_inbox_take(), under      never: at worst the next process at the slot
 *                hca.engine                        is rung without need
 *   stuck        waits_for_room(), under tx_lock   link_flush_backlog(), under tx_lock, when it
 *                                                  has moved a record; link_unmap()
 *     facts about the peer
 *   has_waiters  link_wait(), link_control(), and  wake_waiters(), under hca.engine, before it
 *                what ends a wait: UP, DOWN,       takes the list: a waiter that comes later
 *                refusal, STAY                     sets it again
 *     a hint for the engine
 *
 * Those that several threads write are atomic. No lock guards them: they are read where no lock of
 * the link is held, and the order of the stores, as given here, makes them true.
 */
#ifndef VERBENA_HCA_LOCAL_LINK_H
#define VERBENA_HCA_LOCAL_LINK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/list.h"
#include "base/lock.h"
#include "client/daemon.h"
#include "hca/local/link_idle.h"
#include "hca/local/peer.h"
#include "hca/local/record.h"
#include "hca/mem/mapped.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"
#include "shm/groups.h"
#include "shm/link.h"
#include "shm/pub.h"
#include "wire/packet.h"

#define LINK_ANY_QP WIRE_MULTICAST_QPN /* no QP has this number */

struct local_conn;

enum link_state { LINK_WISHED, LINK_ASKED, LINK_UP, LINK_ENDING, LINK_ENDING_WANTED, LINK_DOWN };

/* A record that is to be sent as soon as the ring, which was full, has room. */
struct backlog {
	struct list node;
	struct ring_header header;
	uint32_t size;
	uint8_t payload[];
};

struct link {
	struct hca *hca;
	uint32_t slot;		/* the peer's */
	_Atomic uint32_t state; /* enum link_state */
	/* Both ends are this process: copies are memcpy, atomics are direct. Set once, in
	 * link_make_self(), so no lock guards it. */
	bool self;
	/* Flags: the tables above say which thread sets and clears each. */
	_Atomic bool can_vm; /* process_vm_* reaches the peer */
	_Atomic bool direct; /* can_vm, and the peer waits for our hazards: see link_direct() */
	/* Threads that look at the peer's hazards or regions: the link stays mapped. Raised under
	 * hca.lock, so that link_reap() sees it; lowered without. */
	_Atomic uint32_t watchers;
	_Atomic uint64_t refused_at; /* ns: when the daemon said that no process is at the slot */
	/* Why our QPs on it are to fail, for the log: a constant text; NULL: they aren't. */
	_Atomic(const char *) broken;
	_Atomic bool untold; /* this side has ended it and hasn't told the daemon yet */
	/* The daemon's; 0: none. Written by the engine thread while the link isn't UP. */
	uint64_t id;
	/* The event of the following link, while this one's memory is in use; or NULL. The engine
	 * thread's. */
	struct link_offer *next;
	_Atomic bool refused; /* the daemon said that no process is there; for the engine thread */
	/* Of the mapped link, down to `regions`: written by link_up() and link_unmap() (engine
	 * thread), when no other thread uses the link. A thread reads them while it holds the lock
	 * of a QP, or hca.engine, under which it has seen the link UP; or while it has raised
	 * `watchers`; or under hca.lock, if the link is mapped. */
	uint32_t side;		   /* this process's */
	bool has_left;		   /* this side has set link_memory.left */
	bool shut_out;		   /* then: the peer never came to the link (link_part.h) */
	bool parting;		   /* on hca.parting */
	int parting_fd;		   /* then: a pidfd of the peer's, which the engine polls; or -1 */
	struct link *next_parting; /* on hca.parting */
	int32_t pid;		   /* for messages only; the peer's identity is `process` */
	struct peer_process process;
	uint32_t uid; /* the peer's user */
	/* Of messages that came by it and wait for receives; under hca.engine. */
	uint64_t held_bytes;
	bool datagrams; /* the peer has sent datagrams; under hca.engine */
	int doorbell;	/* wakes the peer: its eventfd or, if `hear` >= 0, the bell that it hears */
	int hear;	/* the peer is another user's: the bell that wakes this process; else -1 */
	const struct pub *peer;
	struct mapped_regions *_Atomic places; /* the peer's regions that are mapped here */
	struct mapped_wishes wishes;	       /* those that are to be mapped; see mapped.h */
	const struct pub_regions *regions;     /* the peer's; NULL: of another user, so no can_vm */
	struct link_memory *memory;
	struct lock tx_lock;
	struct ring_tx tx;
	struct list
		backlog GUARDED_BY(tx_lock); /* struct backlog, before anything else may be sent */
	uint32_t backlog_count GUARDED_BY(tx_lock);
	struct link_idle idle;
	bool stuck GUARDED_BY(tx_lock); /* an ending QP waited for room, and the peer made none */
	struct list waiters GUARDED_BY(tx_lock); /* struct qp.tx_wait */
	/* `waiters` or the backlog may not be empty, or their wait is over. Atomic, because each
	 * pass reads it without tx_lock. */
	_Atomic bool has_waiters;
	/* The connection that owed an acknowledgement last, which a record of another one may carry
	 * (core/local_qp.h), or NULL. Written under hca.engine, and by the connection's end under
	 * tx_lock as well (link_forget_owing()); a thread that uses the connection holds tx_lock.
	 */
	struct local_conn *_Atomic owing;
	bool deep;		    /* the last pass left records in the ring; under hca.engine */
	struct ring_rx rx;	    /* under hca.engine */
	struct groups_known source; /* of the peer's last datagram; under hca.engine */
	struct list node;	    /* on hca.links; under hca.engine */
};

/* The link to the process at `slot`; it is made, or becomes WISHED again, if need be. Doesn't wait
 * for the daemon. NULL: out of memory. Any lock that ranks before hca.active_lock may be held. */
struct link *link_get(struct hca *hca, uint32_t slot);

/* The same for a datagram: NULL also if the daemon said less than 100 ms ago that no process is
 * there. */
struct link *link_get_datagram(struct hca *hca, uint32_t slot);

/* A link that isn't in hca.link_by_slot yet, WISHED. NULL: out of memory. */
struct link *link_new(struct hca *hca, uint32_t slot);

/* Makes the link of this process to itself (hca.self). 0 or -ENOMEM. */
int link_make_self(struct hca *hca);
/* Frees it, for an HCA that couldn't be made. */
void link_free_self(struct hca *hca);

/* ---- the daemon's events; engine thread only */
/* The daemon has made a link: maps its memory. Takes over `fds`, the event's descriptors. The lock
 * is held from before the event is read until the link is UP: see hca.links_named. */
void link_install(struct hca *hca, const struct proto_event *event, int *fds)
	REQUIRES(hca->events_lock);
/* The daemon has ended the link `id`, because the peer has ended, has given the link back, or
 * didn't name it to the next daemon: takes what the peer wrote last, then the link is ENDING. */
void link_down(struct hca *hca, uint32_t slot, uint64_t id);
/* Ends a link whose peer lives: it is ENDING or, if it has users, ENDING_WANTED. */
void link_end_living(struct link *link);
/* In a forked child: forgets a link's event that hasn't been handled yet; the link is the
 * parent's. */
void link_forget_next(struct link *link);

/* By what this side names a link that goes on with the next daemon. */
struct link_name {
	uint64_t id;
	uint32_t side;
};
/* Whether the link to the process at `slot` is up, and connects two processes; if so, its name. The
 * link may end at any time. Takes hca.lock. */
bool link_name_up(struct hca *hca, uint32_t slot, struct link_name *name);

/* Gives back the memory of links that are ending and that no thread uses (engine thread only). */
void link_reap(struct hca *hca);

/* Sends the queued link requests, and those that give links back, to the daemon (control thread
 * only; blocks for round trips). */
void link_ask_daemon(struct hca *hca);
/* Makes the links DOWN that the daemon has refused (engine thread only). */
void link_take_refusals(struct hca *hca);
/* Peers' regions that are mapped here may have ended: has the control thread look (engine thread
 * only). */
void link_hear_ended(struct hca *hca);
/* Whether the next daemon is to be asked for some link, or to be given one back. */
bool link_any_request(struct hca *hca);

static inline bool link_is(const struct link *link, enum link_state state)
{
	return atomic_load_explicit(&link->state, memory_order_acquire) == state;
}

/* The daemon has not answered the request for this link yet. */
static inline bool link_introducing(const struct link *link)
{
	uint32_t state = atomic_load_explicit(&link->state, memory_order_acquire);

	return state == LINK_WISHED || state == LINK_ASKED;
}

/* The link isn't up, but it will be, or will be refused: a QP waits for it. */
static inline bool link_pending(const struct link *link)
{
	uint32_t state = atomic_load_explicit(&link->state, memory_order_acquire);

	return state == LINK_WISHED || state == LINK_ASKED || state == LINK_ENDING_WANTED;
}

/* No process is at the other end: what is sent to it is lost. Sequentially consistent for
 * link_take(), which raises idle.users before this look at the state. */
static inline bool link_is_gone(const struct link *link)
{
	uint32_t state = atomic_load(&link->state);

	return state == LINK_ENDING || state == LINK_DOWN;
}

/* The link has ended, and its memory may still be in use. */
static inline bool link_is_ending(const struct link *link)
{
	uint32_t state = atomic_load_explicit(&link->state, memory_order_acquire);

	return state == LINK_ENDING || state == LINK_ENDING_WANTED;
}

/* The memory, the peer's tables and the doorbell exist. */
static inline bool link_is_mapped(const struct link *link)
{
	uint32_t state = atomic_load(&link->state);

	return state == LINK_UP || state == LINK_ENDING || state == LINK_ENDING_WANTED;
}

/*
 * Whether this process may copy to and from the peer's memory: process_vm_* reaches the peer, and
 * the peer has mapped this link, too, so its deregistrations wait for our hazards. Until then
 * one-sided requests wait; the peer sends a KICK once it has the link. The link is up, and the
 * caller holds the QP's lock.
 */
bool link_direct_slow(struct link *link);
static inline bool link_direct(struct link *link)
{
	return likely(atomic_load_explicit(&link->direct, memory_order_acquire)) ||
	       link_direct_slow(link);
}

/*
 * Reserves room for a record with `payload` bytes. On success tx_lock is held, and link_send() or
 * link_abandon() must follow. NULL: the ring is full or sealed, or older records are in the
 * backlog; the caller may enter the list of waiters (link_wait()).
 * Not analysed for thread safety: the lock stays held on one of two ways out.
 */
static inline struct ring_header *link_begin(struct link *link, uint32_t payload)
	TRY_ACQUIRE(true, link->tx_lock) NO_THREAD_SAFETY_ANALYSIS
{
	lock_take(&link->tx_lock);
	if (likely(list_empty(&link->backlog))) {
		struct ring_header *h = ring_reserve(&link->tx, payload);

		if (likely(h != NULL))
			return h;
	}
	lock_give(&link->tx_lock);
	return NULL;
}

static inline void link_send(struct link *link, struct ring_header *h, uint32_t payload)
	RELEASE(link->tx_lock)
{
	ring_commit(&link->tx, h, payload);
	lock_give(&link->tx_lock);
}

/* Releases the room that link_begin() reserved, without sending a record. */
static inline void link_abandon(struct link *link, uint32_t payload) RELEASE(link->tx_lock)
{
	ring_abandon(&link->tx, payload);
	lock_give(&link->tx_lock);
}

/* Rings the peer's doorbell. */
void link_ring(struct link *link);
/* Whether a record to the QP `qpn` of the peer's may complete to an armed CQ that owes an event for
 * it: the caller has found that some CQ is armed. */
bool link_qp_is_armed(const struct link *link, uint32_t qpn, bool solicited);
/* The connection ends: no record carries its acknowledgement any more. hca.engine is held. */
void link_forget_owing(struct link *link, const struct local_conn *conn)
	REQUIRES(link->hca->engine);

/* After a batch of link_send() for the QPs `qpn` and `other` (LINK_ANY_QP: for several, for none,
 * or the peer is to look at its waiting QPs): rings the peer's doorbell if the peer asks for that
 * (struct pub_header). `solicited` false: no record of the batch for `qpn` completes by a solicited
 * event. */
static inline void link_notify_if(struct link *link, uint32_t qpn, bool solicited, uint32_t other)
{
	const struct pub_header *peer = &link->peer->header;

	/* [S1], pairs with [S2]: the records before the look at asleep and at the armed CQs */
	atomic_thread_fence(memory_order_seq_cst);
	if (unlikely(atomic_load_explicit(&peer->asleep, memory_order_relaxed)) ||
	    (unlikely(atomic_load_explicit(&peer->armed_cqs, memory_order_relaxed)) &&
	     (link_qp_is_armed(link, qpn, solicited) ||
	      (other != qpn && link_qp_is_armed(link, other, true)))))
		link_ring(link);
}
static inline void link_notify_qp(struct link *link, uint32_t qpn)
{
	link_notify_if(link, qpn, true, qpn);
}
static inline void link_notify(struct link *link)
{
	link_notify_qp(link, LINK_ANY_QP);
}

/* Counts a direct write to the peer's memory, without a record: see link_memory.touched. The link
 * is up, and the caller holds the QP's lock. */
static inline void link_touched(struct link *link)
{
	_Atomic uint32_t *count = &link->memory->touched[link->side].count;

	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* The number of the peer's such writes to this process's memory. The link is up, and hca.engine is
 * held. */
static inline uint32_t link_touches(const struct link *link)
{
	uint32_t writer = link->self ? link->side : !link->side;

	return atomic_load_explicit(&link->memory->touched[writer].count, memory_order_relaxed);
}

/* Sends a small record that must not be lost: by the ring, or by the backlog while the ring is
 * full. Notifies the peer. */
void link_control(struct link *link, const struct ring_header *header, const void *payload,
		  uint32_t size);

/* Has the engine resume the QP when the link is up or the ring has room. The caller holds
 * qp.lock. */
void link_wait(struct link *link, struct qp *qp) REQUIRES(qp->lock);
/* Has the engine resume the QP with its next pass. False: no thread polls, so none may come soon.
 */
bool link_await_poll(struct link *link, struct qp *qp) REQUIRES(qp->lock);

/* Takes the QP off the list of waiters of its link, if it is on it. The caller holds qp.lock. */
void link_unwait(struct qp *qp) REQUIRES(qp->lock);
/* Calls `what`, under its lock, for each QP and each stand-in that is connected by the link, but
 * for those in ERR. hca.engine is held. */
void link_for_each_qp(struct hca *hca, const struct link *link, void (*what)(struct qp *qp));

/* Accounts for the memory of a message that came by this link and waits for a receive. False: the
 * messages that wait from this link, or from all processes of its user, would exceed the bound.
 * (Each QP has a bound of its own besides.) Both: hca.engine is held. */
bool link_hold_bytes(struct link *link, size_t bytes);
void link_release_bytes(struct link *link, size_t bytes);

/* This process gives the link up: it is ENDING, and the engine's next pass fails its QPs. `why`
 * stays valid; it is the reason that the log gives for each QP. */
void link_break(struct link *link, const char *why);

/*
 * For a QP that ends, whose last records may be in the backlog: waits until they are in the ring,
 * for 20 ms at most. After that the peer counts as stuck, and later calls don't wait for it until
 * it makes room. The caller holds no locks.
 */
void link_send_last(struct link *link);

/* Moves records from the backlog into the ring while there is room. True: the backlog is empty. */
bool link_flush_backlog(struct link *link);

#endif
