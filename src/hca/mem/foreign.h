/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Foreign regions: memory of another process of the same user, whose region this process imported;
 * and null regions (ibv_alloc_null_mr), which have no memory.
 *
 * An imported region has keys of this process and an entry in its table; the entry is marked
 * (PUB_MR_FOREIGN) and says where the region is. A key of such a region resolves to a *marked
 * address*: the sign bit, the region's place in a list of this process, and the owner's address.
 * Copies between segments and flat memory (copy.h) test for the mark and call the functions below,
 * which use process_vm_* on the owner: as with a one-sided operation, a hazard is set, and the
 * owner's entry must still be what it was when it was imported. So the owner may deregister or end
 * at any time, and from then on the access fails.
 *
 * Peers never follow such an entry: they leave the operation to this process (SEND_BY_RING), and
 * the payload of a SEND by reference from such a region is pulled.
 *
 * A null region's key resolves to a marked address, too, with a place that no import has: copies
 * from there give zeros, and copies to there do nothing. Peers leave it to this process as well.
 *
 * Copies are made under a QP's lock, which keeps the link to the owner mapped (link.c).
 */
#ifndef VERBENA_HCA_MEM_FOREIGN_H
#define VERBENA_HCA_MEM_FOREIGN_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "shm/pub.h"

struct hca;
struct mr;

/* The origin of an imported region; belongs to its struct mr. */
struct foreign {
	uint32_t handle; /* for the daemon */
	uint32_t slot;	 /* the owner's */
	uint32_t rkey;	 /* the owner's */
	uint32_t pd;	 /* the owner's number */
	uint64_t link;	 /* to the owner, by its id */
	uint64_t offset; /* the owner's address minus iova */
	uint32_t place;
};

/*
 * Finds the region in its owner's table and fills the rest of mr->foreign (slot and rkey are given)
 * and mr's iova, length and access. Waits until the owner has the link.
 * 0; -EINVAL: the region doesn't exist (any more); -EOPNOTSUPP: the owner's memory can't be
 * reached; -ENOMEM; -ETIMEDOUT: the owner doesn't run.
 */
int foreign_find(struct hca *hca, struct mr *mr);

/* The access flags of an import's entry. Atomics are excluded: only the owner can execute them. */
static inline uint32_t foreign_access(uint32_t access)
{
	return (access & ~(uint32_t)IBV_ACCESS_REMOTE_ATOMIC) | PUB_MR_FOREIGN;
}

/* Writes the fields that only a foreign region's entry has, before the entry's key is published. */
void foreign_publish(struct pub_mr *entry, const struct mr *mr);

/* Gives the region's place back, after its entry was revoked. */
void foreign_forget(struct mr *mr);

static inline bool foreign_is(const void *at)
{
	return (intptr_t)at < 0;
}

/* Whether some address of the list is marked. */
bool foreign_among(const struct iovec *list, int count);

/* Called if mr_resolve() gave 0: the marked address, or 0 if the key names no foreign region
 * either. */
uint64_t foreign_resolve(const struct hca *hca, uint32_t pd, uint64_t addr, uint64_t length,
			 uint32_t rkey, uint32_t access) __attribute__((cold));

/* Copy from (to) a marked address. False: the region or its memory doesn't exist any more. The
 * owner's memory is written in order, its last byte last. */
bool foreign_get(void *to, const void *from, size_t length) __attribute__((cold));
bool foreign_put(void *to, const void *from, size_t length) __attribute__((cold));

#endif
