/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The soft HCA: what a card and its driver do, inside the process. Its objects have headers of
 * their own: verbs/{qp,cq,srq,ah,channel,event,send_queue,recv_queue}.h, mem/{pd,mr}.h,
 * local/link.h, process/context.h.
 *
 * One struct hca per process (hca_get()), made when the first context is opened: it owns the
 * process's published table, its links to other processes, the table of QPs by number, and the
 * engine thread. Contexts, PDs, CQs, QPs, SRQs, MRs and AHs belong to the program that made them.
 *
 * Locks, in the order in which they nest (base/lock_rank.h has the ranks, which debug builds
 * check):
 *   hca.release_lock   ending imported PDs that were given back before their users
 *   hca.books          a call to the daemon with what it changes here (books.h); returning to
 *                      another daemon
 *   hca.lock           making and ending contexts, their lists of objects, PD numbers (slow path
 *                      only); never held across a call to the daemon
 *   hca.events_lock    the daemon's event socket and its replacement (slow path only)
 *   hca.engine         the thread that drives the engine: incoming records, the QP table's readers,
 *                      timers. Ending a QP takes it, so the engine never meets a QP that is gone
 *   qp.lock            one QP: both queues, its state, its published entry
 *   srq.lock           one SRQ
 *   counters.lock      counters of flow rules: the indices (verbs/flow.h)
 *   segment.lock       the copy of the flow rules (exec/segment.h)
 *   hca.xrc->lock      what the daemon is to be told of XRC queue pairs
 *   hca.windows_lock   the states of memory windows, and which regions have any (verbs/window.h)
 *   hca.moderated_lock the CQs whose event is held back (verbs/cq_moderation.c)
 *   cq.lock            one CQ
 *   roce.list_lock, roce.tx_lock
 *                      what the RoCE carrier has to send; the sender (roce.h)
 *   link.tx_lock       the producer's side of a link's ring, its backlog, its list of waiting QPs
 *   hca.contexts_lock  the list of contexts, for the engine thread
 *   capture.lock       the rings of captures (capture.h)
 *   channel.lock       a queue of events (completion channel or asynchronous)
 * No two locks of one kind are ever held together. A QP's lock is never held across a call to
 * the daemon.
 */
#ifndef VERBENA_HCA_PROCESS_HCA_H
#define VERBENA_HCA_PROCESS_HCA_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/mutex.h"
#include "client/daemon.h"
#include "hca/process/work.h"
#include "proto/limits.h"
#include "shm/pub.h"

struct capture;
struct fresh;
struct interface;
struct link;
struct mcast;
struct membership;
struct own_hazards;
struct prefetch;
struct qp;
struct roce;
struct segment;
struct window_place;
struct xrc_here;

/* What return_seek() has asked the control thread for, about the next daemon.
 *   NOTHING        -> NEXT           the engine thread: the daemon is gone, or the run-time
 *                                    directory has changed
 *   NOTHING, NEXT  -> NEXT_OR_START  a link is WISHED, so a daemon is needed
 *   both           -> NOTHING        the control thread does it (return_sought()) */
enum seek {
	SEEK_NOTHING,
	SEEK_NEXT,	   /* watch for the next daemon, and attach to it once it is there */
	SEEK_NEXT_OR_START /* and start one if there is none */
};

/*
 * Flags of the HCA. None is part of enum seek, nor of another enum: each concerns another pair of
 * threads.
 *   flag           set by                              cleared by
 *   lost           daemon_lost(): the event socket     take_over(): this process has returned
 *                  has ended (engine thread)           to a daemon
 *     under hca.events_lock
 *   links_named    links_again(), before this process    take_over(), which replaces the event
 *                  names its links to the next daemon    socket; go_back(), if that failed
 *     under hca.events_lock. A link that the former daemon has made is UP before, and is named, or
 *     it is refused (link_install()): the next daemon ends it at the peer, which finds that this
 *     process never came to it
 *   control_woken  control_wake(), which then posts    control_thread(), before it looks at the
 *                  the semaphore                       work
 *   kicked         engine_kick(), which then writes    kick_heard(), before the look at the work
 *                  to the doorbell                     (engine.c); after fork()
 *     atomic, without a lock: any thread wakes, under any lock
 *   has_rnr        a QP is put on `rnr` or `dry`       local_scan_receivers(), when both are empty
 *     written under hca.engine; atomic, because scan_timers() reads it to avoid that lock
 *   has_moderated  cq_moderation_begin()               cq_moderation_scan(), when `moderated`
 *                                                      is empty; after fork()
 *     written under hca.moderated_lock; atomic, because each scan reads it to avoid that lock
 *   filled         link_drain(): a peer's ring was     engine_pass_until_idle(), first pass
 *                  full
 *     under hca.engine
 *   watch_due      sleep_until(): the watchdog has     still_polled(), engine_start()
 *                  expired
 *     the engine thread's; without a watchdog it stays set
 *   stop           control_stop(), for an HCA that     never
 *                  couldn't be made
 *     atomic, without a lock: it only ends a loop
 *   roce_forced, long_by_ring, share_memory            never
 *     from the environment, before the threads start; so no lock guards them
 */
struct hca {
	struct mutex lock;
	/* Changed under `lock` and `contexts_lock`, read under either. The engine thread takes
	 * `contexts_lock` only, since `lock` is held during slow calls. */
	struct list contexts;
	struct lock contexts_lock;
	unsigned int next_pd_id GUARDED_BY(lock);
	struct mutex release_lock;

	struct daemon_conn conn;
	int table_fd, regions_fd; /* of `pub` and `regions`; handed to the next daemon, too */
	int event_fd;
	/* From the daemon, for port 4791: see struct daemon_wire; or -1. All three change with
	 * `generation` only; roce_fd from -1 to a descriptor when roce_open() has prepared it. */
	_Atomic int roce_fd;
	int park_fd;
	uint32_t roce_flags; /* enum proto_wire */
	struct rwlock books;
	uint32_t generation; /* how many daemons came after the first; written under both locks */
	struct mutex events_lock;
	int watch_fd; /* inotify: waits for the next daemon; -1: the daemon lives */
	/* The daemon is gone, and the engine thread has taken its last events. */
	bool lost GUARDED_BY(events_lock);
	bool links_named GUARDED_BY(events_lock);
	enum seek seek GUARDED_BY(events_lock);
	struct fresh *_Atomic fresh; /* connections of a return that is under way: return.c */
	pthread_t control_thread;
	sem_t control;		    /* wakes it: control.c */
	_Atomic bool control_woken; /* `control` was posted, and its thread hasn't taken that yet */
	_Atomic uint32_t last_qp_index, last_key_index; /* the last ones that the daemon gave */
	uint64_t cookie;
	uint32_t slot;
	struct pub *pub; /* this process's published table */
	struct pub_regions *regions;
	struct own_hazards *own_hazards;   /* one for each QP (mem/hazard.h) */
	_Atomic uint32_t own_hazards_used; /* the most at once so far; grows under hca.engine */
	uint32_t own_hazards_free; /* the first free one's number, from 1; under hca.engine */

	int doorbell; /* eventfd: peers and this process wake the engine thread by it */
	/* This process has written to the doorbell, and the engine thread hasn't read it since: a
	 * further kick needs no write. */
	_Atomic bool kicked;
	struct lock engine;
	struct mcast *mcast;		     /* groups: mcast.h */
	struct segment *segment;	     /* frames: segment.h */
	struct interface *_Atomic interface; /* NULL: there is none (interface.h) */
	struct xrc_here *xrc;		     /* XRC SRQs and stand-ins: exec/xrc_target.h */
	struct qp **qps;		     /* by index; written under hca.engine */
	struct list links GUARDED_BY(engine);
	struct link *_Atomic link_by_slot[LIMIT_SLOTS];
	/* The id of a link to the process at the slot that this side has ended or couldn't take,
	 * and that is still to be given back at the daemon; else 0. Not in struct link, for which
	 * there may have been no memory. Written before the link's state becomes WISHED; the
	 * control thread reads the state first, so it gives the old link back before it asks for
	 * the next one. */
	_Atomic uint64_t link_given_up[LIMIT_SLOTS];
	struct link *self;
	struct membership *membership;	     /* NULL: on no node of a fabric */
	struct roce *roce;		     /* NULL: the process is a fabric's node */
	bool roce_forced;		     /* VERBENA_CARRIER=wire: also to QPs of this host */
	bool long_by_ring;		     /* see way.h */
	bool share_memory;		     /* see mem/shared.h */
	bool convert;			     /* see mem/convert.h */
	struct capture *_Atomic capture;     /* NULL: no capture runs; else equals `captures` */
	struct capture *_Atomic captures;    /* NULL: none has ever run; engine thread */
	struct list acks GUARDED_BY(engine); /* struct local_conn.ack_node */
	/* Records that were handled since `acks` was last flushed. */
	uint32_t unacknowledged GUARDED_BY(engine);
	struct list tagged GUARDED_BY(engine); /* struct tagged.node */
	struct list rnr GUARDED_BY(engine);    /* struct local_conn.rnr_node */
	struct list dry GUARDED_BY(engine);    /* struct datagram_inbox.node */
	_Atomic uint64_t pace_at, awake_at;    /* verbs/pace.h */
	_Atomic bool has_rnr; /* `rnr` or `dry` may be non-empty; written under hca.engine */
	struct lock windows_lock;
	struct window_place *windows GUARDED_BY(windows_lock); /* by index; verbs/window.c */
	struct list windows_ending GUARDED_BY(windows_lock);   /* struct mw.ending */
	uint32_t bindings GUARDED_BY(windows_lock);	       /* of windows, ever */
	struct lock moderated_lock;
	struct list moderated GUARDED_BY(moderated_lock); /* struct cq.moderated */
	_Atomic bool has_moderated; /* it may be non-empty; written under moderated_lock */
	/* Parts of regions to be populated: mem/prefetch.h. */
	struct prefetch *_Atomic prefetches; /* any thread pushes, the control thread takes all */
	struct prefetch *prefetching;	     /* taken; the control thread's */
	_Atomic uint32_t prefetch_count;     /* of both */
	struct lock active_lock;
	struct list active GUARDED_BY(active_lock);
	struct work control_work;      /* enum control_work: work.h */
	struct work engine_work;       /* enum engine_work */
	struct link *parting;	       /* the first link that waits for its peer; engine thread's */
	uint64_t link_idle_ns;	       /* the period (local/link_idle.h), ... */
	_Atomic uint64_t link_idle_at; /* ... and when to look next, ns */

	/* the lease: see lease.c */
	_Atomic uint32_t polls;	  /* counts empty polls; the engine thread watches it */
	_Atomic uint32_t handled; /* counts passes that found records; written under hca.engine */
	bool filled GUARDED_BY(engine);	 /* a peer's ring was full */
	_Atomic uint32_t last_arm_group; /* that a CQ was given */
	pthread_t thread;
	int epoll;		 /* the engine thread sleeps in it */
	int watchdog;		 /* a timer, re-armed while some thread polls; -1: there is none */
	bool watch_due;		 /* it has expired; engine thread's */
	uint64_t watched;	 /* ns, when still_polled() last found that; engine thread's */
	uint64_t attended;	 /* ns, when polls_are_close() was last asked; engine thread's */
	uint32_t attended_polls; /* `polls` then */
	_Atomic bool stop;	 /* the two threads end */
};

/* Whether the process has a UDP socket: this daemon has port 4791, or a former one had it. */
static inline bool hca_has_wire(const struct hca *hca)
{
	return hca->roce && atomic_load_explicit(&hca->roce_fd, memory_order_acquire) >= 0;
}

/* For a new HCA, and again in a forked child. */
static inline void hca_init_locks(struct hca *hca)
	ASSERT_HELD(hca->engine, hca->active_lock, hca->windows_lock, hca->moderated_lock);
static inline void hca_init_locks(struct hca *hca)
{
	mutex_init(&hca->lock, RANK_HCA);
	mutex_init(&hca->release_lock, RANK_RELEASE);
	mutex_init(&hca->events_lock, RANK_EVENTS);
	rwlock_init(&hca->books, RANK_BOOKS);
	lock_init(&hca->engine, RANK_ENGINE);
	lock_bias(&hca->engine);
	lock_init(&hca->active_lock, RANK_ACTIVE);
	lock_init(&hca->windows_lock, RANK_WINDOWS);
	lock_init(&hca->moderated_lock, RANK_MODERATED);
	lock_init(&hca->contexts_lock, RANK_CONTEXTS);
}

/* The process's HCA. The first call makes it: attaches to the daemon (and starts it if need be),
 * and starts the threads. NULL with errno. */
struct hca *hca_get(void);

#endif
