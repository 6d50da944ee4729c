/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process's published memory: what its peers may look up without asking it.
 *
 * Two memory files a process: the table, for every peer, and the regions' file, for peers of the
 * same user only, because keys are secrets between users. Each is made by the library, mapped
 * writable only by its owner, then sealed (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW |
 * F_SEAL_SEAL) before the daemon hands it on, so that peers (and, the table, the daemon) can map it
 * read-only and nobody can shrink it under them. They are sparse: pages exist once they are
 * written.
 *
 * Written by: the owner only, under the lock of the object that the entry describes.
 * Read by: peers (initiators of operations) and the daemon (to show states), at any time, with
 * acquire loads; each reader copies a field once and then checks the copy. An owner that lies
 * harms only itself: whoever acts on an entry acts on the owner's own memory.
 */
#ifndef VERBENA_SHM_PUB_H
#define VERBENA_SHM_PUB_H

#include "proto/limits.h"
#include "shm/counters.h"
#include "shm/life.h"
#include <stdatomic.h>
#include <stdint.h>

#define PUB_MAGIC 0x766272626e61ull
#define PUB_VERSION 6u
#define PUB_HAZARDS 64u

/*
 * One-sided operations run in the initiator. It says in its own regions' file what it is about to
 * touch; the owner looks there before it lets go of memory:
 *
 *   Initiator: hazard := target [H1], reads the region's rkey_access [H2], copies, hazard := 0 [H5]
 *   Owner:     rkey_access := 0 [H3], then reads the hazards until none names the region [H4]
 *
 * [H1] to [H4] are seq_cst: the owner sees the hazard, or the initiator sees that the key is gone.
 * [H5] is a release: whoever no longer sees the hazard comes after the copy. All of it, and the
 * wait: hca/mem/hazard.h.
 */
struct pub_hazard {
	_Alignas(64) _Atomic uint64_t target; /* slot of the target << 32 | rkey; 0: none */
	_Atomic uint32_t thread;	      /* of the initiator; for people */
};

/* What holds up a deregistration of this process; for people. */
struct pub_held_up {
	_Alignas(64) _Atomic uint32_t pid; /* whose copy doesn't end; 0: nothing is held up */
	_Atomic uint32_t thread;	   /* of that process; 0: not known */
	_Atomic uint32_t key;
};

struct pub_header {
	uint64_t magic;
	uint32_t version;
	uint32_t slot;
	_Alignas(64) _Atomic uint32_t asleep; /* nobody polls: ring my doorbell   [S1 with S2] */
	struct process_life life;	      /* the engine thread's */
};

/* A queue pair, at the place that the low bits of its number name. */
struct pub_qp {
	/* enum ibv_qp_state in bits 0-7, enum ibv_qp_type 8-15, qp_access_flags 16-31,
	 * epoch 32-63 (changes at each RESET and at destruction). 0: no QP here. */
	_Atomic uint64_t state;
	_Atomic uint64_t peer;	 /* dest_qp_num; RC and UC */
	_Atomic uint32_t pd;	 /* the library's own number: a handle says nothing to peers */
	_Atomic uint32_t rq_psn; /* the PSN that the first message must carry */
	/* Receives that were posted since the last RESET, or fewer (see rq_credit()); none if they
	 * come from an SRQ. */
	_Atomic uint32_t receives;
	/* UD: enum pub_qp_dry in bits 0-1; the bits above change with it */
	_Atomic uint32_t dry;
	uint32_t reserved[8];
};

/* Whether a datagram of this host finds a receive: hca/local/datagram_inbox.h. */
enum pub_qp_dry {
	PUB_QP_OPEN,
	PUB_QP_DRY,  /* senders wait for a while */
	PUB_QP_LEFT, /* what comes is dropped */
	PUB_QP_DRY_MASK = 3,
};

/* A memory region, at the place that its keys' index names. */
struct pub_mr {
	_Atomic uint64_t rkey_access; /* rkey in bits 0-31, access flags 32-63; 0: no region */
	_Atomic uint64_t start;	      /* first valid address as the remote side names it (iova) */
	_Atomic uint64_t length;      /* bytes */
	_Atomic uint64_t offset;      /* owner's address minus iova */
	_Atomic uint32_t pd;
	union {
		/* Of a foreign region (PUB_MR_FOREIGN), where it is; only its importer reads it. */
		_Atomic uint32_t owner_slot;
		_Atomic uint32_t file_fd; /* of a region in a memory file: the owner's descriptor */
	};
	union {
		_Atomic uint64_t owner_link;
		_Atomic uint64_t file_offset; /* where the region begins in it */
	};
	_Atomic uint32_t owner_rkey, owner_pd;
	_Atomic uint32_t place;	      /* in its importer's list */
	_Atomic uint32_t file_serial; /* never the same twice; 0: in no memory file */
};

/*
 * A region that this process imported: `offset` leads to memory of another process. The mark is
 * among the access flags; the same bit of `pd` makes that no domain's number, so whoever doesn't
 * look for the mark finds the entry of no use.
 */
#define PUB_MR_FOREIGN 0x80000000u

_Static_assert(sizeof(struct pub_qp) == 64, "one cache line a queue pair");
_Static_assert(sizeof(struct pub_mr) == 64, "one cache line a region");

struct pub {
	struct pub_header header;
	struct pub_held_up held_up;
	_Alignas(4096) struct pub_qp qp[LIMIT_QPS_PER_SLOT];
	_Alignas(4096) struct pub_counters counters; /* for the daemon, who shows them */
};

/*
 * The regions' file: what names keys or addresses, and so is a secret between users. Of two linked
 * processes both have the other's or neither has: who may touch another's memory shows it its
 * hazards.
 */
struct pub_regions {
	uint64_t probe; /* random; a peer reads it with process_vm_readv to learn that it may */
	uint64_t probe_addr; /* where `probe` is in the owner's address space */
	_Alignas(64) struct pub_hazard hazard[PUB_HAZARDS];
	_Alignas(4096) struct pub_mr mr[LIMIT_MRS_PER_SLOT];
};

#define PUB_SIZE sizeof(struct pub)
#define PUB_REGIONS_SIZE sizeof(struct pub_regions)

/*
 * A QP's state is written last, and read first [Q1 with Q2]. Both are seq_cst, for those who write
 * one word and then read another:
 *
 *   Both ends of a connection become ready: each writes its state, then reads the other's; the one
 *   that is late at least sees the other, and sends it a KICK.
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
static inline uint32_t pub_qp_epoch(uint64_t word)
{
	return word >> 32;
}

#endif
