/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions. See mr.h. The thread that registers or deregisters a region writes its entry in
 * the regions' file. */
#include "hca/mem/mr.h"

#include <errno.h>

#include "hca/mem/foreign.h"
#include "hca/mem/guard.h"
#include "hca/mem/mapped.h"
#include "hca/mem/pd.h"
#include "hca/process/hca.h"

/* What peers need to map the region. */
static void publish_file(struct pub_mr *e, const struct mr *mr)
{
	static _Atomic uint32_t serial;
	uint32_t number = 0;

	if (mr->print) {
		atomic_store_explicit(&e->file_fd, mr->file ? (uint32_t)mr->file->fd : UINT32_MAX,
				      memory_order_relaxed);
		atomic_store_explicit(&e->file_print, mr->print, memory_order_relaxed);
		while (!number)
			number = atomic_fetch_add(&serial, 1) + 1;
	}
	atomic_store_explicit(&e->file_serial, number, memory_order_relaxed);
}

void mr_entry_open(struct pub_mr *entry, uint32_t access, uint32_t rkey)
{
	/* [K1], pairs with [H2] */
	atomic_store_explicit(&entry->rkey_access, (uint64_t)access << 32 | rkey,
			      memory_order_release);
}

/* For lookups from now on. */
static void mr_entry_change(struct pub_mr *entry, uint64_t word)
{
	/* [H3], pairs with [H2]; and with the lookup after [O1] */
	atomic_store(&entry->rkey_access, word);
}

void mr_entry_clear(struct pub_mr *entry)
{
	mr_entry_change(entry, 0);
}

/* Of an implicit region: the half of the address space that programs have. Addresses in the other
 * half would be taken for marked ones (foreign.h). */
static uint64_t published_length(const struct mr *mr)
{
	bool whole = mr_is_implicit(mr_base(mr), mr->ibv.length, mr->access);

	return whole ? 1ull << 63 : mr->ibv.length;
}

int mr_publish(struct hca *hca, struct mr *mr)
{
	uint32_t index = mr->key >> LIMIT_KEY_TAG_BITS;

	if (index >= LIMIT_MRS_PER_SLOT)
		return -EINVAL;
	struct pub_mr *e = &hca->regions->mr[index];
	uint32_t access = mr->access, pd = pd_of(mr->ibv.pd)->id;

	atomic_store_explicit(&e->start, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&e->length, published_length(mr), memory_order_relaxed);
	atomic_store_explicit(&e->offset, mr->base - mr->iova, memory_order_relaxed);
	publish_file(e, mr);
	if (mr->foreign || mr->null_region) {
		foreign_publish(e, mr);
		access = foreign_access(access);
		pd |= PUB_MR_FOREIGN;
	}
	atomic_store_explicit(&e->pd, pd, memory_order_relaxed);
	mr_entry_open(e, access, mr->key);
	guard_install();
	return 0;
}

int mr_move(struct hca *hca, struct mr *mr)
{
	struct pub_mr *e = &hca->regions->mr[mr->key >> LIMIT_KEY_TAG_BITS];

	if (atomic_load_explicit(&e->rkey_access, memory_order_relaxed)) {
		atomic_store_explicit(&e->file_serial, 0, memory_order_relaxed);
		mr_entry_change(e, (uint64_t)(mr->access | PUB_MR_MOVING) << 32 | mr->key);
	}
	int err = hazard_wait_region(hca, mr->key);

	if (mr->print)
		mapped_owner_ends(hca);
	return err;
}

void mr_moved(struct hca *hca, struct mr *mr)
{
	const struct pub_mr *e = &hca->regions->mr[mr->key >> LIMIT_KEY_TAG_BITS];

	if (atomic_load_explicit(&e->rkey_access, memory_order_relaxed))
		mr_publish(hca, mr);
}

int mr_revoke(struct hca *hca, struct mr *mr)
{
	mr_entry_clear(&hca->regions->mr[mr->key >> LIMIT_KEY_TAG_BITS]);
	int err = hazard_wait_region(hca, mr->key);

	if (mr->print)
		mapped_owner_ends(hca);
	return err;
}

static inline bool sge_hold(const struct ibv_sge *sge, uint32_t count,
			    const struct hazard_scope *scope)
{
	for (uint32_t i = 0; i < count; i++)
		if (unlikely(!hazard_push(scope, sge[i].lkey)))
			return false;
	hazard_publish();
	return true;
}

static __attribute__((noinline)) int resolve_each(const struct hca *hca, uint32_t pd,
						  const struct ibv_sge *sge, uint32_t count,
						  uint32_t access, struct iovec *out,
						  const struct hazard_scope *scope)
{
	int n = 0;

	if (unlikely(!sge_hold(sge, count, scope)))
		return -EFAULT;
	for (uint32_t i = 0; i < count; i++) {
		if (!sge[i].length)
			continue;
		uint64_t at = mr_resolve_local(hca, pd, &sge[i], access);

		if (unlikely(!at))
			at = foreign_resolve(hca, pd, sge[i].addr, sge[i].length, sge[i].lkey,
					     access);
		if (unlikely(!at))
			return -EFAULT;
		out[n++] = (struct iovec){(void *)(uintptr_t)at, sge[i].length};
	}
	return n;
}

/* One segment in a region of this process's own goes the short way, because nearly every request is
 * such: half the instructions. */
int mr_resolve_list(const struct hca *hca, uint32_t pd, const struct ibv_sge *sge, uint32_t count,
		    uint32_t access, struct iovec *out, const struct hazard_scope *scope)
{
	if (likely(count == 1 && sge->length) && likely(sge_hold(sge, 1, scope))) {
		uint64_t at = mr_resolve_local(hca, pd, sge, access);

		if (likely(at)) {
			*out = (struct iovec){(void *)(uintptr_t)at, sge->length};
			return 1;
		}
	}
	return resolve_each(hca, pd, sge, count, access, out, scope);
}
