/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prefetching. See prefetch.h. hca.prefetches is a stack: any thread pushes onto it, the control
 * thread takes the whole of it; hca.prefetching is the control thread's own.
 */
#include "hca/mem/prefetch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hca/mem/mr_view.h"
#include "hca/process/control.h"
#include "hca/process/hca.h"

/* Of Linux 5.14; the C library's headers may be older. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static uint64_t page_floor(uint64_t addr)
{
	return addr & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

static int prefetch_check(const struct mr_view *view, uint32_t pd, bool write)
{
	/* A window's entry, or an imported region's. */
	if (view->pd & (PUB_MR_WINDOW | PUB_MR_FOREIGN) || !(view->access & IBV_ACCESS_ON_DEMAND))
		return -EINVAL;
	if (view->pd != pd || (write && !(view->access & IBV_ACCESS_LOCAL_WRITE)))
		return -EPERM;
	return 0;
}

int prefetch_find(const struct hca *hca, uint32_t pd, const struct ibv_sge *sge, bool write,
		  struct prefetch *out)
{
	struct mr_view view;

	if (!mr_read_range(hca->regions, sge->lkey, &view))
		return -ENOENT;
	int err = prefetch_check(&view, pd, write);

	if (err)
		return err;
	if (!mr_covers(&view, sge->addr, sge->length))
		return -EFAULT;
	uint64_t addr = sge->addr + view.offset;

	*out = (struct prefetch){.addr = page_floor(addr),
				 .end = addr + sge->length,
				 .rkey = sge->lkey,
				 .write = write};
	return 0;
}

/* Kernels before 5.14 can't populate pages; there they come in at their first access. */
static int prefetch_range(uint64_t addr, uint64_t end, bool write)
{
	int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	void *at = (void *)(uintptr_t)addr;

	while (addr < end && madvise(at, end - addr, advice) < 0) {
		if (errno == EINTR || errno == EAGAIN)
			continue;
		return errno == EINVAL && madvise(at, 0, advice) < 0 ? 0 : -EFAULT;
	}
	return 0;
}

int prefetch_now(const struct prefetch *part)
{
	return prefetch_range(part->addr, part->end, part->write);
}

int prefetch_probe(const struct prefetch *part)
{
	unsigned char present[64];
	uint64_t step = sizeof(present) * (uint64_t)sysconf(_SC_PAGESIZE);

	for (uint64_t at = part->addr; at < part->end; at += step) {
		uint64_t left = part->end - at;

		if (mincore((void *)(uintptr_t)at, left < step ? left : step, present) < 0)
			return -EFAULT;
	}
	return 0;
}

int prefetch_later(struct hca *hca, const struct prefetch *part)
{
	if (atomic_fetch_add(&hca->prefetch_count, 1) >= PREFETCHES_MAX)
		goto out_count;
	struct prefetch *p = malloc(sizeof(*p));

	if (!p)
		goto out_count;
	*p = *part;
	p->next = atomic_load(&hca->prefetches);
	while (!atomic_compare_exchange_weak(&hca->prefetches, &p->next, p))
		;
	work_leave(&hca->control_work, CONTROL_PREFETCH);
	control_wake(hca);
	return 0;

out_count:
	atomic_fetch_sub(&hca->prefetch_count, 1);
	return -ENOMEM;
}

/* Populates the next piece of the part. False: nothing is left of it, or its region has ended, or
 * it isn't mapped. */
static bool prefetch_piece(const struct hca *hca, struct prefetch *part)
{
	uint64_t left = part->end - part->addr;
	uint64_t stop = part->addr + (left < PREFETCH_PIECE ? left : PREFETCH_PIECE);
	struct mr_view view;

	if (!mr_read_range(hca->regions, part->rkey, &view) ||
	    !(view.access & IBV_ACCESS_ON_DEMAND) || prefetch_range(part->addr, stop, part->write))
		return false;
	part->addr = stop;
	return part->addr < part->end;
}

bool prefetch_serve(struct hca *hca)
{
	struct prefetch *part = hca->prefetching;

	if (!part && work_take(&hca->control_work, CONTROL_PREFETCH))
		part = hca->prefetching = atomic_exchange(&hca->prefetches, NULL);
	if (part && !prefetch_piece(hca, part)) {
		hca->prefetching = part->next;
		free(part);
		atomic_fetch_sub(&hca->prefetch_count, 1);
	}
	return hca->prefetching || work_is_left(&hca->control_work, CONTROL_PREFETCH);
}
