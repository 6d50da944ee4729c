/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links: this process's half of what connects it to another process of the host (or to itself).
 *
 * A link is made at the first wish to talk to a slot. Its states:
 *
 *   WISHED  the daemon is to be asked      -> ASKED  the control thread is about to ask
 *   ASKED   the daemon is being asked      -> WISHED the daemon is gone: the next one is asked
 *   WISHED, ASKED                          -> UP     the daemon's event brought the memory (the
 * peer may have asked first)
 *                                          -> DOWN   nobody is at the slot
 *   UP                                     -> DOWN   the peer is gone, or broke the ring's rules,
 *                                                    or neither side needs it (link_idle.h)
 *   DOWN                                   -> WISHED somebody wants to talk to the slot again
 *
 * The control thread (process/control.h) does what waits for the daemon; every other change but the
 * last is the engine thread's. The memory is given back once nobody uses it; the structure stays
 * for those who still point to it, and serves the next process at the slot (slots are reused late).
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
#include "shm/groups.h"
#include "shm/link.h"
#include "shm/pub.h"

struct qp;

enum link_state { LINK_WISHED, LINK_ASKED, LINK_UP, LINK_DOWN };

/* A record that found the ring full. */
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
	bool self;	     /* both ends are this process: copies are memcpy, atomics are direct */
	_Atomic bool can_vm; /* process_vm_* reaches the peer */
	_Atomic bool direct; /* can_vm, and the peer waits for our hazards: see link_direct() */
	_Atomic bool mapped; /* memory, peer and doorbell exist */
	_Atomic uint32_t watchers; /* threads that look at the peer's hazards: it stays mapped */
	_Atomic bool wanted;	   /* down and still mapped, but somebody wishes for the next one */
	_Atomic uint64_t refused_at; /* ns: nobody was there */
	_Atomic bool broken;	     /* the peer broke the ring's rules: our QPs are to be told */
	_Atomic bool untold;	     /* DOWN by this side's word, which the daemon must hear */
	uint64_t id;
	struct link_offer
		*next; /* the following link, while this one's memory is in use; or NULL */
	/* The id of a broken link that the daemon hasn't been told of; else 0. Set before WISHED,
	 * so the control thread, which looks at the state first, gives it back before it asks
	 * again. */
	_Atomic uint64_t given_up;
	_Atomic bool refused; /* the daemon said that nobody is there; the engine thread takes it */
	uint32_t side;	      /* mine */
	int32_t pid;	      /* for people; who it is: */
	struct peer_process process;
	uint32_t uid;	     /* the peer's user */
	uint64_t held_bytes; /* of messages that came by it and wait for receives; under engine */
	bool datagrams;	     /* the peer sent some; under engine */
	int doorbell; /* wakes the peer: its eventfd, or the bell that it hears (`hear` >= 0) */
	int hear;     /* a stranger's link: the bell that wakes this process; else -1 */
	const struct pub *peer;
	struct mapped_regions *_Atomic places; /* regions of the peer's that are mapped here */
	struct mapped_wishes wishes;	       /* that are to be; see mapped.h */
	const struct pub_regions *regions;     /* the peer's; NULL: of another user, so no can_vm */
	struct link_memory *memory;
	struct lock tx_lock;
	struct ring_tx tx;
	struct list
		backlog GUARDED_BY(tx_lock); /* struct backlog, before anything else may be sent */
	uint32_t backlog_count GUARDED_BY(tx_lock);
	struct link_idle idle;
	bool stuck GUARDED_BY(tx_lock); /* the peer made no room for it while an ending QP waited */
	struct list waiters GUARDED_BY(tx_lock); /* struct qp.tx_wait */
	_Atomic bool has_waiters;
	struct ring_rx rx;	    /* under engine */
	struct groups_known source; /* of the peer's last datagram; under engine */
	struct list node;	    /* on hca.links; under engine */
};

/* The link to `slot`, made when there is none. NULL: out of memory. Any lock may be held above
 * hca.active_lock. */
struct link *link_get(struct hca *hca, uint32_t slot);

/* The same for a datagram: NULL also when nobody was at the slot a moment ago. */
struct link *link_get_datagram(struct hca *hca, uint32_t slot);

/* The link of this process to itself; -ENOMEM. */
int link_make_self(struct hca *hca);
/* Of an HCA that couldn't be made. */
void link_free_self(struct hca *hca);

/* The daemon's events (engine thread only). */
/* Takes the event's descriptors over. */
void link_install(struct hca *hca, const struct proto_event *event, int *fds);
void link_down(struct hca *hca, uint32_t slot, uint64_t id);
/* In a forked child: a link that came and isn't installed yet is the parent's. */
void link_forget_next(struct link *link);

/* Gives back the memory of links that are down (engine thread only). */
void link_reap(struct hca *hca);

/* Sends the wishes that link_get noted (control thread only; blocks for round trips). */
void link_ask_daemon(struct hca *hca);
/* Takes the daemon's refusals of them (engine thread only). */
void link_take_refusals(struct hca *hca);
/* Whether the daemon is still to be asked for some link. */
bool link_any_wished(struct hca *hca);

static inline bool link_is(const struct link *link, enum link_state state)
{
	return atomic_load_explicit(&link->state, memory_order_acquire) == state;
}

/* Its state says that the daemon has not answered yet. */
static inline bool link_introducing(const struct link *link)
{
	uint32_t state = atomic_load_explicit(&link->state, memory_order_acquire);

	return state == LINK_WISHED || state == LINK_ASKED;
}

/* It isn't up, but it will be, or it will be known that it can't: worth waiting for. */
static inline bool link_pending(const struct link *link)
{
	return link_introducing(link) || (link_is(link, LINK_DOWN) && atomic_load(&link->wanted));
}

/* Nobody is there: what is sent to that process is lost. */
static inline bool link_is_gone(const struct link *link)
{
	return link_is(link, LINK_DOWN) && !atomic_load(&link->wanted);
}

/*
 * We may copy: process_vm_* reaches the peer, and it has this link, too, so its deregistrations
 * wait for our hazards. Until then one-sided requests wait; the peer's KICK comes after that. The
 * link is up, and the QP's lock held.
 */
bool link_direct_slow(struct link *link);
static inline bool link_direct(struct link *link)
{
	return likely(atomic_load_explicit(&link->direct, memory_order_acquire)) ||
	       link_direct_slow(link);
}

/*
 * Room for a record with `payload` bytes. On success tx_lock is held and link_send must follow.
 * NULL: full, or older records wait; the caller arranges to be woken (link_wait).
 */
/* Not analysed inside: the lock stays taken on one of two ways out. */
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

/* The record that link_begin made room for isn't sent. */
static inline void link_abandon(struct link *link, uint32_t payload) RELEASE(link->tx_lock)
{
	ring_abandon(&link->tx, payload);
	lock_give(&link->tx_lock);
}

/* Rings the peer's doorbell if it asked for that. After a batch of link_send. */
void link_ring(struct link *link);
static inline void link_notify(struct link *link)
{
	/* [S1], pairs with [S2]: the records before the look at asleep */
	atomic_thread_fence(memory_order_seq_cst);
	if (unlikely(atomic_load_explicit(&link->peer->header.asleep, memory_order_relaxed)))
		link_ring(link);
}

/* Bytes of the peer's memory were written directly, without a record: see link_memory.touched. The
 * link is up, and the QP's lock held. */
static inline void link_touched(struct link *link)
{
	_Atomic uint32_t *count = &link->memory->touched[link->side].count;

	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* How often the peer did that to this process's memory. The link is up, and engine held. */
static inline uint32_t link_touches(const struct link *link)
{
	uint32_t writer = link->self ? link->side : !link->side;

	return atomic_load_explicit(&link->memory->touched[writer].count, memory_order_relaxed);
}

/* A small record that must go: through the ring, or the backlog when that is full. Notifies. */
void link_control(struct link *link, const struct ring_header *header, const void *payload,
		  uint32_t size);

/* The engine will look at the QP again when the link is up or the ring has room. qp.lock is held.
 */
void link_wait(struct link *link, struct qp *qp);

/* Takes the QP off the list of the link that it waits for, if it does. qp.lock is held. */
void link_unwait(struct qp *qp);

/* Memory for a message that came by this link and waits for a receive. False: what waits from this
 * link, or from all processes of its user, would be too much. A QP has bounds of its own. Engine
 * held, for both. */
bool link_hold_bytes(struct link *link, size_t bytes);
void link_release_bytes(struct link *link, size_t bytes);

/* The peer broke the rules of the rings: the link ends, and the engine ends its QPs. */
void link_break(struct link *link);

/*
 * A QP ends, and its last records may be in the backlog: waits until they are in the ring, or the
 * peer hasn't made room for some milliseconds (it isn't waited for again until it does). No locks
 * are held.
 */
void link_send_last(struct link *link);

/* Moves the backlog into the ring, as far as it goes. True when it is empty. */
bool link_flush_backlog(struct link *link);

#endif
