/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process's published memory: what its peers may look up without asking it.
 *
 * Each process has two memory files: the table, for every peer, and the regions' file, for peers of
 * the same user only, because keys are secrets between users. The library makes each file, maps it
 * writable in its owner only, then seals it (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW |
 * F_SEAL_SEAL) before the daemon hands it on: peers (and, for the table, the daemon) can map it
 * read-only, and no process can shrink it under them. The files are sparse: pages exist once they
 * are written.
 *
 * Written by: the owner only, under the lock of the object that the entry describes.
 * Read by: peers (initiators of operations) and the daemon (to show states), at any time, with
 * acquire loads; each reader copies a field once and then checks the copy. An owner that publishes
 * false entries harms only itself: a peer that acts on an entry acts on the owner's own memory.
 */
#ifndef VERBENA_SHM_PUB_H
#define VERBENA_SHM_PUB_H

#include "base/counter.h"
#include "proto/limits.h"
#include "shm/counters.h"
#include "shm/life.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PUB_MAGIC 0x766272626e61ull
#define PUB_VERSION 15u
#define PUB_HAZARDS 64u

/*
 * One-sided operations run in the initiator. It publishes in its own regions' file which region it
 * is about to touch; the owner reads that file before it releases memory:
 *
 *   Initiator: hazard := target [H1], reads the region's rkey_access [H2], copies, hazard := 0 [H5]
 *   Owner:     rkey_access := 0 [H3], then reads the hazards until none names the region [H4]
 *
 * [H1] to [H4] are seq_cst: the owner sees the hazard, or the initiator sees that the key is gone.
 * [H5] is a release: an owner that finds the hazard cleared comes after the copy. hca/mem/hazard.h
 * has the whole protocol, and the wait.
 */
struct pub_hazard {
	_Alignas(64) _Atomic uint64_t target; /* slot of the target << 32 | rkey; 0: none */
	/* Of the initiator: its number, and PUB_HAZARD_SEVERAL. */
	_Atomic uint32_t thread;
};

/* The copy takes several system calls, so that the end of one isn't the end of the copy. Set before
 * the first of them. No thread's number has the bit. */
#define PUB_HAZARD_SEVERAL 0x80000000u

/* The copy that holds up a deregistration of this process; for `verbena status`. */
struct pub_held_up {
	_Alignas(64) _Atomic uint32_t pid; /* of the copying process; 0: nothing is held up */
	_Atomic uint32_t thread;	   /* of that process; 0: not known */
	_Atomic uint32_t key;
};

/*
 * For which records peers ring the process's doorbell:
 *
 *   asleep = 1  no thread of the process polls: for each record
 *   asleep = 0  a thread polls and takes the records, but may stop at any moment: for records to
 *               QPs that complete to an armed CQ, whose event must come at once all the same
 *
 * A CQ has a number, its arm group, which a QP's entry names; some CQs have the same one, and then
 * peers ring more often than is needed. `armed` is the number of a group's CQs that are armed (owe
 * an event): for any completion in the lower half, for a solicited one only in the upper half.
 * armed_cqs is the number of all. Most processes have none; then peers look no further.
 *
 * A datagram that isn't solicited rings for no CQ of the latter kind. Should it complete with an
 * error, which raises the event too, that comes with the next pass: of a poller, or of the engine
 * thread once the watchdog has expired.
 *
 * Written by the process's threads. `asleep`: by a poller, by the engine thread, by a thread that
 * is about to block (lease.c). The counts: by the thread that arms a CQ or finds it armed when it
 * adds a completion, under cq.lock, and by atomic additions, because CQs share the words.
 *
 * Read by peers. The process stores 1 into `asleep`, or counts a CQ that it arms, then passes [S2],
 * then looks at all rings and at the QPs that wait for room. A peer stores its record, or makes
 * room, then passes [S1], then reads these words. So the process sees the record, or the peer sees
 * the words and rings.
 *
 * A peer that dies between record and doorbell is reported by the daemon; the engine thread then
 * takes that peer's last records (link_down()). When the process itself dies its links go down.
 */
#define PUB_ARM_GROUPS 256u

struct pub_header {
	uint64_t magic;
	uint32_t version;
	uint32_t slot;
	/* Which fabric's node the process is on, before it has a slot. fabric 0: on none. */
	uint64_t fabric;
	uint32_t node; /* row */
	/* How often all converted memory became private again (hca/mem/convert.h); for `verbena
	 * resources`. */
	_Atomic uint32_t taken_back;
	_Alignas(64) _Atomic uint32_t asleep;
	_Atomic uint32_t armed_cqs;
	struct process_life life; /* the engine thread's */
	_Alignas(64) _Atomic uint32_t armed[PUB_ARM_GROUPS];
};

/* An XRC SRQ has a number, and so an entry, like a queue pair: in place of its type. */
#define PUB_XRC_SRQ 0xfeu

/* A queue pair, at the place that the low bits of its number name. */
struct pub_qp {
	/* enum ibv_qp_state in bits 0-7, enum ibv_qp_type 8-15, qp_access_flags 16-29,
	 * PUB_QP_COUNTS 30, PUB_QP_ANSWERS 31, epoch 32-63 (changes at each RESET and at
	 * destruction). 0: no QP here.
	 */
	_Atomic uint64_t state;
	_Atomic uint64_t peer;	 /* dest_qp_num; RC, UC, XRC. An XRC SRQ's domain */
	_Atomic uint32_t pd;	 /* the library's number of it: handles have no meaning to peers */
	_Atomic uint32_t rq_psn; /* the PSN that the first message must carry */
	/* The count of the receives posted since the last RESET, or of fewer (tell_receives()),
	 * from RECV_QUEUE_START on. Means nothing without PUB_QP_COUNTS. */
	_Atomic uint32_t receives;
	/* UD: enum pub_qp_dry in bits 0-1; the upper bits change at each change of these */
	_Atomic uint32_t dry;
	/* The arm groups of the CQs that it completes to: the send CQ's in bits 0-7, the receive
	 * CQ's 8-15. Written before `state` first says that there is a QP. */
	_Atomic uint32_t arm_groups;
	uint32_t reserved;
	/* On a fabric, RC and UC: which way its packets go to its peer (hca/fabric/path.c), to
	 * which LID in bits 0-15, by which port 24-31; else 0 */
	_Atomic uint64_t path;
	_Atomic uint64_t alternate; /* the same by its alternate path, or 0 */
	uint32_t reserved2[2];
};

/* Beside the access flags: the QP has resources for READs, atomics and their like
 * (max_dest_rd_atomic). */
#define PUB_QP_ANSWERS 0x8000u
/* Likewise: `receives` counts its receives, which don't come from an SRQ. */
#define PUB_QP_COUNTS 0x4000u
#define PUB_QP_ACCESS (PUB_QP_COUNTS - 1) /* the access flags */

/* Whether a datagram of this host will find a receive: hca/local/datagram_inbox.h. */
enum pub_qp_dry {
	PUB_QP_OPEN,
	PUB_QP_DRY,  /* senders wait for a while */
	PUB_QP_LEFT, /* what arrives is dropped */
	PUB_QP_DRY_MASK = 3,
};

/* A memory region, at the index that its keys name. */
struct pub_mr {
	/* rkey in bits 0-31, access flags 32-63 (PUB_MR_WINDOW: 32-39, and the number of the
	 * binding in 40-61); 0: no region */
	_Atomic uint64_t rkey_access;
	_Atomic uint64_t start;	 /* first valid address as the remote side names it (iova) */
	_Atomic uint64_t length; /* bytes */
	_Atomic uint64_t offset; /* owner's address minus iova */
	_Atomic uint32_t pd;
	union {
		/* PUB_MR_FOREIGN: the slot of the region's owner; only the importer reads it. */
		_Atomic uint32_t owner_slot;
		/* Of a region that peers may map: the owner's descriptor, or UINT32_MAX. */
		_Atomic uint32_t file_fd;
		_Atomic uint32_t window_qpn; /* PUB_MR_WINDOW: the QP of a type 2 window, or 0 */
	};
	union {
		_Atomic uint64_t owner_link;
		_Atomic uint64_t file_print; /* which files it is in: hca/mem/shared.h */
	};
	union {
		_Atomic uint32_t owner_rkey;
		_Atomic uint32_t window_region; /* PUB_MR_WINDOW: the rkey of its region */
	};
	_Atomic uint32_t owner_pd;
	_Atomic uint32_t place; /* PUB_MR_FOREIGN: in the importer's list */
	/* Never the same twice; 0: peers can't map it. PUB_MR_WINDOW: the region's. */
	_Atomic uint32_t file_serial;
};

/*
 * A region that this process imported: `offset` leads to memory of another process. The bit is set
 * in the access flags, and also in `pd`: so it matches no PD, and a reader that doesn't check the
 * flag refuses the entry.
 */
#define PUB_MR_FOREIGN 0x80000000u

/*
 * Set in the access flags while the owner replaces the memory behind the region by equal memory
 * (hca/mem/convert.h): peers let the owner execute their operations.
 */
#define PUB_MR_MOVING 0x40000000u

/*
 * A memory window (hca/verbs/window.h): set in `pd`, so that it matches no PD, and a reader that
 * knows no windows refuses the entry. The access flags have the number of the binding above them,
 * so that a reader can tell two bindings with the same key apart.
 */
#define PUB_MR_WINDOW 0x40000000u
#define PUB_MR_BINDING_SHIFT 8
#define PUB_MR_BINDINGS (1u << 22) /* the bits above are PUB_MR_MOVING and PUB_MR_FOREIGN */

/*
 * How far a queue pair (RC) has taken its peer's requests: for a peer whose process outlives this
 * one, and which never gets the last acknowledgement. The invariant: a request whose completion the
 * program has seen is below the count.
 *
 *   Written by  the owner, under the QP's lock, before the completion of a receive is added to its
 *               CQ, and when a request without one has been executed; 0 when a life of the QP
 *               begins. The store is relaxed: the release of the CQ's head orders it before the
 *               completion.
 *   Read by     the peer's requester, after it has found that the owner's process has ended (the
 *               acquire load of `life`), and before it fails a request for that. Nothing is written
 *               any more then. A program that has seen the completion has acquired the CQ's head,
 *               and its process's end comes after that, so the peer reads a count above the
 *               request.
 *   Dies        the owner, at any instruction: killed between the store and the completion, it has
 *               the message in its memory and never reports it, as behind an adapter that has
 *               acknowledged it. The peer, at any instruction: it writes nothing here.
 *
 * In a line of its own kind and not in struct pub_qp, which peers read for each request: the store
 * for each message would take that line from them. The reader completes only requests of its own
 * that are outstanding, and no READ without its data, so a false count is worth what a false
 * acknowledgement is.
 */
#define PUB_TAKEN_THERE (1ull << 48)

/* All requests with numbers below `msn` are executed, which the life `sender` of the peer's QP has
 * sent to the life `own` of this one. */
static inline uint64_t pub_taken(uint32_t msn, uint8_t sender, uint8_t own)
{
	return PUB_TAKEN_THERE | (uint64_t)own << 40 | (uint64_t)sender << 32 | msn;
}

_Static_assert(sizeof(struct pub_qp) == 64, "one cache line a queue pair");
_Static_assert(sizeof(struct pub_mr) == 64, "one cache line a region");

struct pub {
	struct pub_header header;
	struct pub_held_up held_up;
	_Alignas(4096) struct pub_qp qp[LIMIT_QPS_PER_SLOT];
	_Alignas(4096) _Atomic uint64_t taken[LIMIT_QPS_PER_SLOT]; /* pub_taken(), or 0 */
	_Alignas(4096) struct pub_counters counters; /* read by the daemon, for `verbena status` */
};

/*
 * The regions' file: what names keys or addresses, and so is a secret between users. Of two linked
 * processes both have mapped the other's or neither has: so a process that can touch another's
 * memory without asking is one whose hazards the other sees.
 */
struct pub_regions {
	uint64_t probe;	     /* random; a peer reads it with process_vm_readv to test that it may */
	uint64_t probe_addr; /* where `probe` is in the owner's address space */
	_Alignas(64) struct pub_hazard hazard[PUB_HAZARDS];
	_Alignas(4096) struct pub_mr mr[LIMIT_MRS_PER_SLOT];
};

#define PUB_SIZE sizeof(struct pub)
#define PUB_REGIONS_SIZE sizeof(struct pub_regions)

/*
 * A QP's state is written last, and read first [Q1 with Q2]. Both are seq_cst, because two
 * processes each write one word and then read the other's:
 *
 *   Both ends of a connection become ready: each writes its state, then reads the other's. The
 *   later one at least sees the other, and sends it a KICK.
 *   A puller sets a hazard [H1], then reads the sender's state; the sender ends [Q1], then reads
 *   hazards [H4].
 */
static inline void pub_qp_write_state(struct pub_qp *entry, uint64_t word)
{
	/* [Q1], pairs with [Q2] */
	atomic_store_explicit(&entry->state, word, memory_order_seq_cst);
}
static inline uint64_t pub_qp_read_state(const struct pub_qp *entry)
{
	/* [Q2], pairs with [Q1] */
	return atomic_load_explicit(&entry->state, memory_order_seq_cst);
}

#define PUB_ARMED_ANY 1u
#define PUB_ARMED_SOLICITED 0x10000u

/* Counts a CQ that is armed in a way (1), or is not any more (-1). After the former the caller
 * passes [S2], then looks at all rings. */
static inline void pub_count_armed(struct pub_header *header, uint32_t group, uint32_t way,
				   int change)
{
	atomic_fetch_add_explicit(&header->armed[group], way * (uint32_t)change,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&header->armed_cqs, change, memory_order_relaxed);
}

/* Whether the QP may complete to a CQ that owes an event for that: any completion, or one that
 * isn't solicited. `index` is below LIMIT_QPS_PER_SLOT. The caller has passed [S1]. */
static inline bool pub_qp_is_armed(const struct pub *pub, uint32_t index, bool solicited)
{
	uint32_t ways = solicited ? UINT32_MAX : PUB_ARMED_SOLICITED - 1;
	uint32_t groups = atomic_load_explicit(&pub->qp[index].arm_groups, memory_order_relaxed);
	const _Atomic uint32_t *armed = pub->header.armed;

	return (atomic_load_explicit(&armed[groups & 0xff], memory_order_relaxed) |
		atomic_load_explicit(&armed[groups >> 8 & 0xff], memory_order_relaxed)) &
	       ways;
}

static inline uint32_t pub_qp_state(uint64_t word)
{
	return word & 0xff;
}
static inline uint32_t pub_qp_type(uint64_t word)
{
	return word >> 8 & 0xff;
}
static inline uint32_t pub_qp_access(uint64_t word)
{
	return word >> 16 & 0xffff;
}
/* The epoch of a number without a queue pair so far, whose word is 0. */
#define PUB_QP_EPOCH_START COUNTER_START(2)

static inline uint32_t pub_qp_epoch(uint64_t word)
{
	return (uint32_t)(word >> 32) + PUB_QP_EPOCH_START;
}
static inline uint64_t pub_qp_epoch_bits(uint32_t epoch)
{
	return (uint64_t)(epoch - PUB_QP_EPOCH_START) << 32;
}

#endif
