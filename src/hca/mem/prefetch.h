/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prefetching parts of on-demand regions (ibv_advise_mr).
 *
 * On demand means here what it means for every region: a copy goes through the page table of the
 * process that has the memory, and the kernel brings the page in. An on-demand region only isn't
 * populated when it is registered, nor counted as pinned, and its pages may be unmapped and mapped
 * again: a copy to or from a page that isn't mapped at that moment fails, the next may succeed. An
 * implicit region grants the whole lower half of the address space, where the program's memory is.
 *
 * Synchronously, the calling thread populates the pages. Asynchronously, the control thread does
 * (CONTROL_PREFETCH), PREFETCH_PIECE bytes at a time, so that its other work never waits for long;
 * a part whose region has ended meanwhile is left out.
 */
#ifndef VERBENA_HCA_MEM_PREFETCH_H
#define VERBENA_HCA_MEM_PREFETCH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct hca;

#define PREFETCH_PIECE (2ull << 20)
enum { PREFETCHES_MAX = 4096 /* parts that wait for the control thread */ };

/* A part of a region. */
struct prefetch {
	struct prefetch *next;
	uint64_t addr, end; /* this process's addresses */
	uint32_t rkey;
	bool write;
};

/*
 * Finds the part that `sge` names. 0; -ENOENT: there is no such key; -EPERM: another protection
 * domain's, or `write` and the region isn't writable; -EINVAL: no on-demand region; -EFAULT: out of
 * its bounds.
 */
int prefetch_find(const struct hca *hca, uint32_t pd, const struct ibv_sge *sge, bool write,
		  struct prefetch *out);

/* Brings the pages in. 0, or -EFAULT: some aren't mapped with the needed rights. */
int prefetch_now(const struct prefetch *part);

/* Whether all pages are part of the address space, present or not: 0 or -EFAULT. */
int prefetch_probe(const struct prefetch *part);

/* Leaves the part to the control thread. 0 or -ENOMEM. */
int prefetch_later(struct hca *hca, const struct prefetch *part);

/* Populates a piece. Control thread. True: it must be called again soon. */
bool prefetch_serve(struct hca *hca);

#endif
