/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The order in which locks nest. Each lock has a rank; a thread takes locks of rising ranks only,
 * and never two of one rank. In a build with VERBENA_LOCK_RANKS (the sanitizers' builds) each lock
 * checks that when it is taken, and a wrong order aborts with both names; otherwise ranks have no
 * effect. A lock that is only tried (lock_try, mutex_try) can't cause a deadlock, so it may have
 * any rank.
 *
 * Each library (libibverbs, librdmacm, librspreload) checks its own locks: they share no data. The
 * mutexes in the public structures of verbs (ibv_context.mutex and such) are also used by programs,
 * and have no rank.
 */
#ifndef VERBENA_BASE_LOCK_RANK_H
#define VERBENA_BASE_LOCK_RANK_H

#ifdef VERBENA_LOCK_RANKS
#include <stdatomic.h>
#include <stdint.h>
#endif

#include "base/thread_safety.h"

/* From the outermost to the innermost: name, what it guards. */
#define LOCK_RANKS(X)                                                                             \
	/* librspreload.so */                                                                     \
	/* Held from one call of the program's to another, so before all others. */               \
	X(RANK_CQ_TURN, "cq.turn")			/* ibv_start_poll() to ibv_end_poll() */  \
	X(RANK_QP_TURN, "qp.turn")			/* ibv_wr_start() to ibv_wr_complete() */ \
	X(RANK_PRELOAD_FORKED, "rspreload.change_lock") /* a listener's children */               \
	X(RANK_PRELOAD_SETS, "rspreload.sets_lock")	/* epoll sets with rsockets */            \
	X(RANK_PRELOAD_TABLE, "rspreload.table_lock")	/* descriptors that are rsockets */       \
	/* librdmacm.so.1 */                                                                      \
	X(RANK_RSOCKET, "rsocket.lock")		   /* one rsocket */                              \
	X(RANK_RSOCKET_PAGES, "rsocket.pages")	   /* the table of rsockets grows */              \
	X(RANK_RDMACM_DEVICES, "rdmacm.devices")   /* open devices */                             \
	X(RANK_RDMACM_JOINS, "rdmacm.joins")	   /* multicast joins */                          \
	X(RANK_RDMACM_CONN, "rdmacm.conn")	   /* the connection to the daemon */             \
	X(RANK_RDMACM_QPS, "rdmacm.qps")	   /* which QPs are in use for events */          \
	X(RANK_RDMACM_REGISTRY, "rdmacm.registry") /* ids by number */                            \
	X(RANK_RDMACM_CHANNELS, "rdmacm.channels") /* who waits on event channels */              \
	/* libibverbs.so.1 */                                                                     \
	X(RANK_XRC_DOMAIN, "xrc_domain.lock")  /* what a process is registered with */            \
	X(RANK_PARK_CONTROL, "park.control")   /* the control thread works */                     \
	X(RANK_PARK_ENGINE, "park.engine")     /* the engine thread works */                      \
	X(RANK_UMAD_RETURN, "umad.return")     /* a port goes on with another fabric */           \
	X(RANK_UMAD_PORTS, "umad.ports")       /* what is remembered of open ports */             \
	X(RANK_DEVICES, "abi.devices")	       /* the list of devices */                          \
	X(RANK_KERNEL_DEVICES, "kverbs.known") /* the list of kernel devices */                   \
	X(RANK_INSTANCE, "hca.instance")       /* making the process's HCA */                     \
	X(RANK_NODE, "hca.node")	       /* finding the node of a fabric */                 \
	X(RANK_CHANNEL_FIRST, "channel.first") /* registering a channel's first CQ */             \
	X(RANK_RELEASE, "hca.release_lock")    /* ending imported PDs */                          \
	X(RANK_CONVERT, "mem.convert")	       /* converted memory, and the regions on it */      \
	X(RANK_BOOKS, "hca.books")	       /* calls to the daemon: books.h */                 \
	X(RANK_HCA, "hca.lock")		       /* contexts, their objects */                      \
	X(RANK_EVENTS, "hca.events_lock")      /* the daemon's event socket */                    \
	X(RANK_ENGINE, "hca.engine")	       /* the engine */                                   \
	X(RANK_QP, "qp.lock")                                                                     \
	X(RANK_SRQ, "srq.lock")                                                                   \
	X(RANK_COUNTERS, "counters.lock")   /* counters of flow rules */                          \
	X(RANK_SEGMENT, "segment.lock")	    /* the copy of the flow rules */                      \
	X(RANK_WINDOWS, "hca.windows_lock") /* states of memory windows */                        \
	X(RANK_XRC, "hca.xrc->lock")	    /* what the daemon is to hear of XRC queue pairs */   \
	X(RANK_ACTIVE, "hca.active_lock")   /* QPs with a timer */                                \
	X(RANK_MODERATED, "hca.moderated_lock") /* CQs whose event is held back */                \
	X(RANK_CQ, "cq.lock")                                                                     \
	X(RANK_ROCE_LIST, "roce.list_lock")   /* QPs with something to send */                    \
	X(RANK_ROCE_TX, "roce.tx_lock")	      /* the sender */                                    \
	X(RANK_LINK_TX, "link.tx_lock")	      /* the producer's side of a ring */                 \
	X(RANK_CONTEXTS, "hca.contexts_lock") /* the list of contexts */                          \
	X(RANK_CAPTURE, "capture.lock")                                                           \
	X(RANK_MEMBERSHIP, "membership.lock") /* the connection to a fabric */                    \
	X(RANK_FLOWS, "flows.lock")	      /* counts of a fabric's ways */                     \
	X(RANK_EVENT_QUEUE, "channel.lock")   /* a queue of events */                             \
	X(RANK_FORK_PAGES, "abi.fork")	      /* ibv_dontfork_range()'s pages */                  \
	X(RANK_GUARD, "mem.guard")	      /* the signal handler's installation */             \
	/* everywhere */                                                                          \
	X(RANK_CLOSER, "daemon.closer_lock") /* verbenad: descriptors to be closed */             \
	X(RANK_DAEMON_CONN, "client.conn")   /* one connection to the daemon */                   \
	X(RANK_DAEMON_KEPT, "client.kept")   /* the socket that is kept for the next start */

#define LOCK_RANK_ENUM(rank, name) rank,
/* RANK_NONE: the lock wasn't initialised and can't be taken. */
enum lock_rank { RANK_NONE, LOCK_RANKS(LOCK_RANK_ENUM) LOCK_RANK_COUNT };
#undef LOCK_RANK_ENUM

#ifdef VERBENA_LOCK_RANKS
/* Each lock structure has this member. */
#define LOCK_RANK_MEMBER uint8_t rank;
#define LOCK_RANK_INIT(of) .rank = (uint8_t)(of),
/* Call before `lock` is taken with waiting: aborts if the calling thread holds a lock of the same
 * rank or an inner one. */
void rank_check(const void *lock, enum lock_rank rank);
/* Call when the lock was taken; is released; is reinitialised (in a forked child, for locks held at
 * the fork). */
void rank_taken(const void *lock, enum lock_rank rank);
void rank_given(const void *lock);
void rank_forget(const void *lock);
/* Call before a call that may wait for another process: aborts if the calling thread holds hca.lock
 * (link_reap() takes it), hca.events_lock (the engine thread does) or a lock of a fast path,
 * hca.engine and inwards. */
void rank_check_blocking(const char *what);
/* Aborts if the calling thread doesn't hold the lock. */
void rank_must_hold(const void *lock, enum lock_rank rank);
/* Aborts if a lock's word says that some thread holds it. */
void rank_must_be_free(const _Atomic uint32_t *word, enum lock_rank rank);
#else
#define LOCK_RANK_MEMBER
#define LOCK_RANK_INIT(of)
#define rank_check(lock, rank) ((void)(lock))
#define rank_taken(lock, rank) ((void)(lock))
#define rank_given(lock) ((void)(lock))
#define rank_forget(lock) ((void)(lock))
#define rank_check_blocking(what) ((void)(what))
#define rank_must_hold(lock, rank) ((void)(lock))
#define rank_must_be_free(word, rank) ((void)(word))
#endif

#endif
