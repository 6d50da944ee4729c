/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory regions. See mr.h. Entries of the regions' file are written by the thread that registers
 * or deregisters. */
#include "hca/mem/mr.h"

#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/peer.h"
#include "hca/mem/foreign.h"
#include "hca/mem/guard.h"
#include "hca/mem/pd.h"
#include "hca/process/hca.h"

#define STOPPED_NS 1000000000ull /* for a stopped peer's operation */

/* The others are for those who have one of these: they never wait for one another. */
enum { OUTER_HAZARDS = PUB_HAZARDS - 8 };

static void publish_file(struct pub_mr *e, const struct mr_file *file)
{
	static _Atomic uint32_t serial;
	uint32_t number = 0;

	if (file) {
		atomic_store_explicit(&e->file_fd, (uint32_t)file->fd, memory_order_relaxed);
		atomic_store_explicit(&e->file_offset, file->offset, memory_order_relaxed);
		while (!number)
			number = atomic_fetch_add(&serial, 1) + 1;
	}
	atomic_store_explicit(&e->file_serial, number, memory_order_relaxed);
}

int mr_publish(struct hca *hca, struct mr *mr)
{
	uint32_t index = mr->rkey >> LIMIT_KEY_TAG_BITS;

	if (index >= LIMIT_MRS_PER_SLOT || !(mr->rkey & 1))
		return -EINVAL;
	struct pub_mr *e = &hca->regions->mr[index];
	uint32_t access = mr->access, pd = pd_of(mr->ibv.pd)->id;

	atomic_store_explicit(&e->start, mr->iova, memory_order_relaxed);
	atomic_store_explicit(&e->length, mr->ibv.length, memory_order_relaxed);
	atomic_store_explicit(&e->offset, (uint64_t)(uintptr_t)mr->ibv.addr - mr->iova,
			      memory_order_relaxed);
	publish_file(e, mr->file);
	if (mr->foreign) {
		foreign_publish(e, mr);
		access = foreign_access(access);
		pd |= PUB_MR_FOREIGN;
	}
	atomic_store_explicit(&e->pd, pd, memory_order_relaxed);
	/* [K1], pairs with [H2] */
	atomic_store_explicit(&e->rkey_access, (uint64_t)access << 32 | mr->rkey,
			      memory_order_release);
	guard_install();
	return 0;
}

/* A free place among the `count` from `first` on, beginning with the one at *hint. */
static inline _Atomic uint64_t *take_place(struct hca *hca, uint64_t value, unsigned int first,
					   unsigned int count, unsigned int *hint)
{
	for (;; ++*hint) {
		unsigned int i = *hint % count;
		_Atomic uint64_t *h = &hca->regions->hazard[first + i].target;
		uint64_t none = 0;

		if (atomic_compare_exchange_strong(h, &none, value)) /* [H1], pairs with [H4] */
			return h;
		if (i == count - 1)
			sched_yield(); /* more copying threads than places */
	}
}

_Atomic uint64_t *hazard_set(struct hca *hca, uint32_t slot, uint32_t rkey)
{
	static _Thread_local unsigned int hint __attribute__((tls_model("initial-exec")));

	return take_place(hca, (uint64_t)slot << 32 | rkey, 0, OUTER_HAZARDS, &hint);
}

_Atomic uint64_t *hazard_set_inner(struct hca *hca, uint32_t slot, uint32_t rkey)
{
	unsigned int hint = 0;

	return take_place(hca, (uint64_t)slot << 32 | rkey, OUTER_HAZARDS,
			  PUB_HAZARDS - OUTER_HAZARDS, &hint);
}

static bool named_by(const struct pub_regions *regions, uint64_t value)
{
	for (unsigned int i = 0; i < PUB_HAZARDS; i++)
		/* [H4], pairs with [H1] and, to see that a copy is over, with [H5] */
		if (atomic_load(&regions->hazard[i].target) == value)
			return true;
	return false;
}

/* Who doesn't see our regions doesn't touch them, shows us no hazards, and can't make us wait. */
static bool may_copy(const struct link *link)
{
	return link->regions != NULL;
}

/* Whether a process that doesn't end its copy is past it all the same. */
static bool copy_is_over(const struct link *link, uint64_t now, uint64_t give_up)
{
	if (peer_ended(link->pid))
		return true;
	if (peer_state(link->pid) != 'T')
		return false;
	if (peer_stopped_in_calls(link->pid))
		return true;
	if (now < give_up)
		return false;
	log_warn("ibv_dereg_mr: process %d was stopped in the middle of an RDMA operation; if it "
		 "goes on, this operation may still reach the memory",
		 link->pid);
	return true;
}

/*
 * Waits until `link`'s process no longer copies to or from the region. The copy is one system call
 * of theirs, so the wait is short; they publish no event for it, which would cost every copy a
 * system call, hence the naps.
 *
 * A process that is stopped meanwhile has left the system call (it can't be stopped within), but
 * can't say so. Only one that was stopped in the few instructions between its look at the region
 * and the system call may still copy when it goes on; it isn't waited for without end.
 */
static void wait_for_hazard(const struct link *link, uint64_t value)
{
	uint64_t give_up = now_ns() + STOPPED_NS;

	for (unsigned int i = 0; atomic_load(&link->state) == LINK_UP; i++) {
		if (!named_by(link->regions, value))
			return;
		if (i < 64) {
			sched_yield();
			continue;
		}
		if (!link->self && i % 16 == 0 && copy_is_over(link, now_ns(), give_up))
			return;
		sys_nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
}

void mr_revoke(struct hca *hca, struct mr *mr)
{
	struct pub_mr *e = &hca->regions->mr[mr->rkey >> LIMIT_KEY_TAG_BITS];
	uint64_t value = (uint64_t)hca->slot << 32 | mr->rkey;

	atomic_store(&e->rkey_access, 0); /* [H3], pairs with [H2] */
	/* This process's engine copies under its lock. */
	lock_take(&hca->engine);
	lock_give(&hca->engine);
	mutex_take(&hca->lock); /* the peers' tables stay mapped */
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (link && atomic_load(&link->state) == LINK_UP && may_copy(link))
			wait_for_hazard(link, value);
	}
	mutex_give(&hca->lock);
}

void hazard_wait_qp(struct hca *hca, uint32_t slot, uint32_t qpn)
{
	mutex_take(&hca->lock); /* links and their tables stay */
	struct link *link = atomic_load(&hca->link_by_slot[slot]);

	if (link && !link->self && atomic_load(&link->state) == LINK_UP && may_copy(link))
		wait_for_hazard(link, (uint64_t)hca->slot << 32 | hazard_of_qp(qpn));
	mutex_give(&hca->lock);
}

int mr_resolve_list(const struct hca *hca, uint32_t pd, const struct ibv_sge *sge, uint32_t count,
		    uint32_t access, struct iovec *out)
{
	int n = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!sge[i].length)
			continue;
		uint64_t at = mr_resolve_local(hca, pd, &sge[i], access);

		if (unlikely(!at))
			at = foreign_resolve(hca, pd, sge[i].addr, sge[i].length, sge[i].lkey + 1,
					     access);
		if (unlikely(!at))
			return -EFAULT;
		out[n++] = (struct iovec){(void *)(uintptr_t)at, sge[i].length};
	}
	return n;
}
