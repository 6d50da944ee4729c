/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions: publishing them, revoking them, and turning (key, address, length) into memory.
 *
 * A region's only data-path state is its entry in the process's regions' file (shm/pub.h); local
 * keys are looked up there as well. A region has one key, which is its lkey and its rkey, as with
 * most adapters: what a request may do with it depends on the region's rights alone.
 */
#ifndef VERBENA_HCA_MEM_MR_H
#define VERBENA_HCA_MEM_MR_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/cpu.h"
#include "base/list.h"
#include "client/daemon.h"
#include "hca/mem/hazard.h"
#include "hca/mem/mr_view.h"
#include "hca/process/hca.h"
#include "shm/pub.h"

/* Bytes of the memory file of converted memory. */
struct mr_converted {
	uint64_t from, to;
};
enum { MR_CONVERTED = 4 };

/* The memory file of a region that was registered by its descriptor. */
struct mr_file {
	int fd;	     /* this process's; peers take it by its number (peer_map.h) */
	void *pages; /* its mapping in this process */
	size_t size;
};

struct mr {
	struct ibv_mr ibv;
	uint32_t handle; /* ibv.handle as it was made; of an imported one the original's */
	uint32_t key;	 /* ibv.lkey and ibv.rkey as they were made (see pd.h) */
	uint64_t base;	 /* the owner's address of the first byte; ibv.addr is what programs see */
	uint64_t iova;
	uint32_t access;
	/* Where the region comes from; set when it is made, and never changed, so no lock guards
	 * them:
	 *   imported  foreign  null_region  dm
	 *      0       NULL        0         0   registered here: it has an entry of its own
	 *      0       NULL        1         0   ibv_alloc_null_mr(): no memory (foreign.h)
	 *      0       NULL        0       not 0 ibv_reg_dm_mr(): device memory (dm.h)
	 *      1       NULL        0         0   imported from this process: the original's entry
	 * and keys 1      not NULL     0         0   imported from another process (foreign.h): an
	 * entry of its own */
	bool imported, null_region;
	uint32_t dm;	    /* the buffer's handle: never 0 */
	uint64_t dm_offset; /* where the region begins in it, bytes */
	struct foreign *foreign;
	/* Counts the regions that were registered with its DMA handle (ibv_reg_mr_ex()); NULL: it
	 * has none. Set before the program gets the region. */
	_Atomic uint32_t *dmah_users;
	struct mr_file *file;	   /* NULL: the program has mapped the memory itself */
	uint64_t print;		   /* of memory that peers may map (shared.h); 0: they can't */
	struct proto_reg_mr reach; /* the same, for the daemon */
	struct list held;
	struct list pages;			     /* convert.h */
	struct mr_converted converted[MR_CONVERTED]; /* convert.h; unused ones are empty */
};

static inline void *mr_base(const struct mr *mr)
{
	return (void *)(uintptr_t)mr->base;
}

/* The whole address space, on demand: ibv_reg_mr(3). */
static inline bool mr_is_implicit(const void *addr, uint64_t length, uint32_t access)
{
	return access & IBV_ACCESS_ON_DEMAND && !addr && length == SIZE_MAX;
}

/* Whether the region's pages are pinned, as an adapter's driver would pin them. */
static inline bool mr_is_pinned(const struct mr *mr)
{
	return !mr->null_region && !mr->dm && !(mr->access & IBV_ACCESS_ON_DEMAND);
}

/* Asks the daemon for the keys of the region that `mr` describes; also of a daemon to which the
 * process returns. 0 or a negative errno. */
int mr_ask_keys(struct daemon_conn *conn, const struct mr *mr, struct ib_uverbs_reg_mr_resp *resp);

/* Opens the entry, whose other fields are written, to lookups of `rkey`; and closes it. */
void mr_entry_open(struct pub_mr *entry, uint32_t access, uint32_t rkey);
void mr_entry_clear(struct pub_mr *entry);

/* Publishes mr (its ibv.length, pd, and base, key, iova, access are filled). 0 or -EINVAL. */
int mr_publish(struct hca *hca, struct mr *mr);

/* Has peers ask this process for their operations on the region, until mr_moved(): when this
 * returns 0, no peer copies to or from its memory itself. -EBUSY as below. A region that was
 * revoked stays so. */
int mr_move(struct hca *hca, struct mr *mr) __attribute__((warn_unused_result));
void mr_moved(struct hca *hca, struct mr *mr);

/*
 * Ends all access to the region: when this returns 0, no copy by any thread of any process reaches
 * its memory any more (hazard.h). -EBUSY: a copy that is under way doesn't end within the bound; no
 * new one begins.
 */
int mr_revoke(struct hca *hca, struct mr *mr) __attribute__((warn_unused_result));

/* As mr_resolve() (mr_view.h), for a local segment; access is 0 or IBV_ACCESS_LOCAL_WRITE. */
static inline uint64_t mr_resolve_local(const struct hca *hca, uint32_t pd,
					const struct ibv_sge *sge, uint32_t access)
{
	return mr_resolve(hca->regions, pd, sge->addr, sge->length, sge->lkey, access);
}

/* The address of a segment in a region of this process's own, which is held until `scope` ends;
 * else 0. */
static inline uint64_t mr_resolve_own(const struct hca *hca, uint32_t pd, const struct ibv_sge *sge,
				      uint32_t access, const struct hazard_scope *scope)
{
	if (unlikely(!hazard_push(scope, sge->lkey)))
		return 0;
	hazard_publish();
	return mr_resolve_local(hca, pd, sge, access);
}

/*
 * Resolves local segments to an iovec (segments of length 0 are left out). Returns their number, or
 * -EFAULT if a key, range or right is wrong. Addresses in foreign regions are marked (foreign.h).
 * The regions are held until `scope` ends.
 */
int mr_resolve_list(const struct hca *hca, uint32_t pd, const struct ibv_sge *sge, uint32_t count,
		    uint32_t access, struct iovec *out, const struct hazard_scope *scope);

#endif
