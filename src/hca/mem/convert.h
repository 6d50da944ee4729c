/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converting private memory into memory that peers can map, and back. docs/memory.md has the rule
 * and why it holds.
 *
 * A region that is registered has its pages converted if they are plain and the process is quiet
 * (quiet.h): their bytes go to the memory file, and the file is mapped over them. From then on it
 * is a region in shared memory like any other (shared.h). When no region needs a page any more, and
 * before a fork, the page is private again.
 *
 * The file is one of the process's, sparse; offsets in it are never used twice, and behind each
 * converted part are PART_GAP bytes that nothing else uses, for mremap().
 *
 * A child that _Fork() or clone() makes lacks converted pages (MADV_DONTFORK), because no handler
 * runs. MADV_FREE fails on them, and on memory that has become private while other threads ran.
 *
 * Everything here is done between convert_begin() and convert_end(), which wait for one another:
 * a process with VERBENA_MEMORY=shared registers, changes and ends one region at a time. Without
 * it all functions return at once.
 */
#ifndef VERBENA_HCA_MEM_CONVERT_H
#define VERBENA_HCA_MEM_CONVERT_H

#include <stdbool.h>

#include "base/mutex.h"

struct hca;
struct mr;

extern struct mutex convert_lock;

/* Whether VERBENA_MEMORY asks for it. For hca_make(), before there are threads. */
bool convert_wanted(void);

/* Around all that registers, changes or ends regions. Take no lock inwards of RANK_CONVERT before.
 */
void convert_begin(const struct hca *hca);
void convert_end(const struct hca *hca);

/* The region, whose ibv.addr, ibv.length and access are filled, is about to be registered: converts
 * its pages if that is possible. Before mr's reach is looked at. */
void convert_region(struct hca *hca, struct mr *mr);

/* The region has changed, from `old`; its new pages aren't converted. */
void convert_region_changed(struct hca *hca, struct mr *mr, const struct mr *old);

/* The region has ended, and no peer reaches its memory any more: pages that only it needed become
 * private. Nothing for a region that convert_region() doesn't know. */
void convert_region_ends(struct hca *hca, struct mr *mr);

/* For pthread_atfork(): before the fork all memory is private again. The lock is held across the
 * fork. */
void convert_before_fork(struct hca *hca);
void convert_after_fork(const struct hca *hca);
void convert_leave(const struct hca *hca);

#endif
