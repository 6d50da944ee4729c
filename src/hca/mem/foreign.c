/* SPDX-License-Identifier: BSD-2-Clause */
/* Foreign regions. See foreign.h. Owns the list of places: each is taken and given back by one
 * atomic operation, and holds the region's rkey in this process. */
#include "hca/mem/foreign.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/mem/copy.h"
#include "hca/mem/mr.h"
#include "hca/process/hca.h"

/* A marked address: the sign bit, 16 bits for the place, 47 for the owner's address. */
#define MARK (1ull << 63)
#define ADDRESS_BITS 47
#define ADDRESS_MAX ((1ull << ADDRESS_BITS) - 1)
enum { PLACES = 4096, PLACE_NULL = PLACES }; /* PLACE_NULL: of all null regions */
_Static_assert(PLACE_NULL < 1 << 16, "a place is 16 bits of an address");

#define FIND_NS 5000000000ull
#define SETTLE_NS 1000000000ull

static _Atomic uint32_t places[PLACES]; /* 0: free */
static _Atomic uint32_t next_place;
static struct hca *_Atomic importer; /* the process's HCA, once it has imported a region */

/* What the entry of a foreign region says of its owner. */
struct owner {
	struct mr_view here; /* the entry itself */
	uint32_t slot, rkey, pd;
	uint64_t link;
};

/* ------------------------------------------------------------------ importing */

/* Takes the place whose last use is longest ago, so that a stale marked address, which names a
 * place that was given back, finds no region there. */
static int foreign_take_place(uint32_t rkey, uint32_t *place)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		uint32_t at = atomic_fetch_add(&next_place, 1) % PLACES, none = 0;

		if (!atomic_compare_exchange_strong(&places[at], &none, rkey))
			continue;
		*place = at;
		return 0;
	}
	log_warn("ibv_import_mr: this process has imported %d regions, more can't be", PLACES);
	return -ENOMEM;
}

/* Looks the region up once. -EAGAIN: the link isn't up on both sides yet. hca.lock is held, so
 * tables stay mapped. */
static int foreign_look_up(struct hca *hca, struct mr *mr)
{
	struct foreign *foreign = mr->foreign;
	struct link *link = link_get_datagram(hca, foreign->slot);
	struct mr_view view;

	if (link && link_pending(link))
		return -EAGAIN;
	if (!link || !link_is(link, LINK_UP))
		return -EINVAL;
	if (link->self || !atomic_load(&link->can_vm))
		return -EOPNOTSUPP;
	if (!link_direct(link))
		return -EAGAIN;
	if (!mr_read(link->regions, foreign->rkey, &view) || view.access & PUB_MR_FOREIGN)
		return -EINVAL;
	if (view.start + view.offset > ADDRESS_MAX ||
	    view.start + view.offset + view.length > ADDRESS_MAX)
		return -EOPNOTSUPP;
	mr->iova = view.start;
	mr->ibv.length = view.length;
	mr->access = view.access;
	foreign->offset = view.offset;
	foreign->pd = view.pd;
	foreign->link = link->id;
	return link_hold(link) ? 0 : -EAGAIN; /* it is idle, and about to end */
}

static void foreign_release_link(const struct mr *mr)
{
	const struct hca *hca = atomic_load(&importer);

	link_put(atomic_load(&hca->link_by_slot[mr->foreign->slot]));
}

/* Polls, since no event reports that the owner has its half of the link: nothing else needs one. */
int foreign_find(struct hca *hca, struct mr *mr)
{
	uint64_t give_up = now_ns() + FIND_NS;
	int err;

	atomic_store(&importer, hca);
	for (;;) {
		mutex_take(&hca->lock);
		err = foreign_look_up(hca, mr);
		mutex_give(&hca->lock);
		if (err != -EAGAIN)
			break;
		if (now_ns() > give_up)
			return -ETIMEDOUT;
		sys_nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
	if (err)
		return err;
	err = foreign_take_place(mr->key, &mr->foreign->place);
	if (err)
		foreign_release_link(mr);
	return err;
}

void foreign_publish(struct pub_mr *entry, const struct mr *mr)
{
	const struct foreign *foreign = mr->foreign;

	if (mr->null_region) {
		atomic_store_explicit(&entry->place, PLACE_NULL, memory_order_relaxed);
		return;
	}
	atomic_store_explicit(&entry->offset, foreign->offset, memory_order_relaxed);
	atomic_store_explicit(&entry->owner_slot, foreign->slot, memory_order_relaxed);
	atomic_store_explicit(&entry->owner_link, foreign->link, memory_order_relaxed);
	atomic_store_explicit(&entry->owner_rkey, foreign->rkey, memory_order_relaxed);
	atomic_store_explicit(&entry->owner_pd, foreign->pd, memory_order_relaxed);
	atomic_store_explicit(&entry->place, foreign->place, memory_order_relaxed);
}

void foreign_forget(struct mr *mr)
{
	atomic_store(&places[mr->foreign->place], 0);
	foreign_release_link(mr);
}

/* ------------------------------------------------------------------ marked addresses */

bool foreign_among(const struct iovec *list, int count)
{
	for (int i = 0; i < count; i++)
		if (foreign_is(list[i].iov_base))
			return true;
	return false;
}

static uint32_t marked_place(uint64_t marked)
{
	return (uint32_t)((marked & ~MARK) >> ADDRESS_BITS);
}

/* Finds the entry of the region that a marked address is in. */
static bool find_owner(const struct hca *hca, uint64_t marked, struct owner *out)
{
	uint32_t rkey = atomic_load(&places[marked_place(marked) & (PLACES - 1)]);

	if (!mr_read(hca->regions, rkey, &out->here))
		return false;
	const struct pub_mr *e = &hca->regions->mr[rkey >> LIMIT_KEY_TAG_BITS];

	out->slot = atomic_load_explicit(&e->owner_slot, memory_order_relaxed);
	out->rkey = atomic_load_explicit(&e->owner_rkey, memory_order_relaxed);
	out->pd = atomic_load_explicit(&e->owner_pd, memory_order_relaxed);
	out->link = atomic_load_explicit(&e->owner_link, memory_order_relaxed);
	return out->slot < LIMIT_SLOTS;
}

/* Whether the owner's region is still the one that was imported. */
static bool still_there(const struct link *link, const struct owner *owner)
{
	struct mr_view there;

	return mr_read(link->regions, owner->rkey, &there) && there.pd == owner->pd &&
	       there.start == owner->here.start && there.length == owner->here.length &&
	       there.offset == owner->here.offset &&
	       foreign_access(there.access) == owner->here.access;
}

/* The link to the owner; NULL: it has ended. */
static struct link *link_to(const struct hca *hca, const struct owner *owner)
{
	struct link *link = atomic_load(&hca->link_by_slot[owner->slot]);

	return link && link_is(link, LINK_UP) && link->id == owner->link ? link : NULL;
}

uint64_t foreign_resolve(const struct hca *hca, uint32_t pd, uint64_t addr, uint64_t length,
			 uint32_t rkey, uint32_t access)
{
	uint32_t right = access | PUB_MR_FOREIGN;
	struct mr_view view;

	if (!mr_read_range(hca->regions, rkey, &view) || view.pd != (pd | PUB_MR_FOREIGN) ||
	    (view.access & right) != right || !mr_covers(&view, addr, length))
		return 0;
	const struct pub_mr *e = &hca->regions->mr[rkey >> LIMIT_KEY_TAG_BITS];
	uint64_t place = atomic_load_explicit(&e->place, memory_order_relaxed);

	if (place == PLACE_NULL)
		return MARK | place << ADDRESS_BITS;
	uint64_t marked = MARK | place << ADDRESS_BITS | (addr + view.offset);
	struct owner owner;

	/* The region is checked again at each copy. It is checked here, too, so that a request on a
	 * region which is gone already fails before it is sent. */
	if (!find_owner(hca, marked, &owner))
		return 0;
	const struct link *link = link_to(hca, &owner);

	return link && still_there(link, &owner) ? marked : 0;
}

/* ------------------------------------------------------------------ copying */

/* Sets the hazard for the owner's region when the owner isn't moving it (PUB_MR_MOVING), which
 * takes it as long as a copy of the region; but after SETTLE_NS at the latest. */
static _Atomic uint64_t *hazard_once_settled(const struct link *link, const struct owner *owner)
{
	uint64_t until = 0;

	for (;;) {
		_Atomic uint64_t *hazard = hazard_set_inner(link->hca, owner->slot, owner->rkey);
		struct mr_view there;

		if (likely(!mr_read(link->regions, owner->rkey, &there) ||
			   !(there.access & PUB_MR_MOVING)) ||
		    (until && now_ns() > until))
			return hazard;
		hazard_clear(hazard); /* the owner waits for it */
		until = until ? until : now_ns() + SETTLE_NS;
		sched_yield();
	}
}

static bool foreign_move(uint64_t marked, void *local, size_t length, bool put)
{
	struct hca *hca = atomic_load_explicit(&importer, memory_order_acquire);
	uint64_t at = marked & ADDRESS_MAX;
	struct iovec segment = {local, length};
	struct owner owner;

	if (!length)
		return true;
	if (!hca || !find_owner(hca, marked, &owner) ||
	    !mr_covers(&owner.here, at - owner.here.offset, length) ||
	    (put && !(owner.here.access & IBV_ACCESS_LOCAL_WRITE)))
		return false;
	const struct link *link = link_to(hca, &owner);

	if (!link)
		return false;
	_Atomic uint64_t *hazard = hazard_once_settled(link, &owner);
	bool ok = still_there(link, &owner) &&
		  !(put ? copy_to_process(&link->process, at, &segment, 1, length)
			: copy_from_process(&link->process, at, &segment, 1, length));

	hazard_clear(hazard);
	return ok;
}

bool foreign_get(void *to, const void *from, size_t length)
{
	if (marked_place((uintptr_t)from) == PLACE_NULL) {
		memset(to, 0, length);
		return true;
	}
	return foreign_move((uintptr_t)from, to, length, false);
}

bool foreign_put(void *to, const void *from, size_t length)
{
	if (marked_place((uintptr_t)to) == PLACE_NULL)
		return true;
	return foreign_move((uintptr_t)to, (void *)from, length, true);
}
