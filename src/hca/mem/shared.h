/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that a process shares already: regions in mappings of files with MAP_SHARED (memory files,
 * /dev/shm, hugetlbfs, System V segments, files on disk). Peers can map the same files, and then
 * reach the region by loads and stores (mapped.h). Private memory has no file; it is reached by
 * process_vm_*.
 *
 * The registering process looks at its own mappings (shared_find()) and publishes the print of what
 * it finds: a number made of every file, every offset and every address of the region. It
 * publishes no descriptor and no path. An initiator asks the kernel for the mappings of the process
 * that owns the region (shared_look()), and maps the region's files only if their print is the
 * published one. So:
 *
 *   - A published entry can't name a file that the owner hasn't mapped itself.
 *   - An owner that has replaced the memory of a registered region (munmap(), MAP_FIXED, mremap())
 *     has another print: what is at the region's addresses now is never mapped for it.
 *   - A mapping that was made before shows the files that were registered. What the owner maps at
 *     the region's addresses later is other memory, which the mapping doesn't lead to.
 *
 * The print doesn't depend on access rights, and not on where the kernel splits a mapping. A file
 * is named by device and inode. A kernel may give an inode's number to another file once the first
 * has no name and nothing maps it; an owner that unmaps a registered file on disk, deletes it, and
 * maps such a file at the same address and offset, has the same print.
 *
 * VERBENA_MEMORY=private turns it off: the process's regions count as private, and it maps none of
 * its peers'.
 */
#ifndef VERBENA_HCA_MEM_SHARED_H
#define VERBENA_HCA_MEM_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/proc_maps.h"
#include "proto/proto.h"

/* A region may span so many files or parts of files. */
enum { SHARED_PIECES = 16 };

/* A part of the region that is consecutive in one file. The addresses are the owner's. */
struct shared_piece {
	uint64_t start, end;
	struct proc_mapping first; /* the mapping that `start` is in; its name, file and offset */
};

/* Which file offset `at`, an address of the piece, has. */
static inline uint64_t shared_offset(const struct shared_piece *piece, uint64_t at)
{
	return piece->first.offset + (at - piece->first.start);
}

/*
 * Looks at the mappings of [addr, addr + length), rounded to whole pages. The number of pieces;
 * -ENOENT: part of it isn't mapped; -EXDEV: part of it is private; -E2BIG: more than SHARED_PIECES;
 * -EOPNOTSUPP: the kernel doesn't say. `lines` as for proc_maps_find().
 */
int shared_look(struct proc_maps *maps, uint64_t addr, uint64_t length, bool lines,
		struct shared_piece pieces[SHARED_PIECES]);

/* The print of the pieces; never 0. */
uint64_t shared_print(const struct shared_piece *pieces, int count);

/* Whether this process's own memory can be mapped by others; if so, *print is its print, else 0. */
enum proto_reach shared_find(const void *addr, uint64_t length, uint64_t *print);

/* Whether VERBENA_MEMORY allows it. For hca_make(), before there are threads. */
bool shared_allowed(void);

#endif
