/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mapping the memory that another process shares (shared.h) into this one.
 *
 * What is mapped is what the kernel says that the owner has mapped at the region's addresses; the
 * owner says only which region it is. Each file is opened by the first of these that works:
 *
 *   /proc/PID/map_files   the mapping itself; needs CAP_CHECKPOINT_RESTORE (root)
 *   pidfd_getfd           a descriptor of the owner's that is this file: the one that it has named
 *                         (ibv_reg_dmabuf_mr()), or one that /proc/PID/fd shows with the mapping's
 *                         name
 *   the path              as the kernel names it, from this process's root and from the owner's
 *   shmat()               a System V segment, in the same IPC namespace; its attachments are
 * counted
 *
 * Shared anonymous memory, and a file that has neither a name nor a descriptor any more, are
 * reached by the first way only. The permission that is needed is the one to trace the owner, as
 * for process_vm_*; for a path and a segment the file's own as well.
 *
 * Before its pages are used, the new mapping is compared with the owner's: device, inode, offset.
 * Only regular files on file systems of this machine's memory and disks are opened: to open a
 * device or a pipe may have effects, and a file system that isn't local may not answer.
 *
 * The files are opened by a thread with a descriptor table of its own, which ends with it. For when
 * a process closes a descriptor of a file, it loses its locks (fcntl(F_SETLK)) on that file, also
 * those that it took by another descriptor. The program may have the peer's file open, and locked.
 *
 * The mapping isn't inherited by children (MADV_DONTFORK), nor written to core files.
 */
#ifndef VERBENA_HCA_MEM_PEER_MAP_H
#define VERBENA_HCA_MEM_PEER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer_process;

/* A region of the owner's, as it has published it. */
struct peer_map_region {
	uint64_t addr, length; /* in the owner's address space */
	uint64_t print;	       /* shared_print() of when it was registered */
	int fd;		       /* the owner's descriptor, if it has named one; else -1 */
	bool write;	       /* the mapping is to be writable */
};

struct peer_map {
	void *pages; /* for peer_unmap(); NULL: nothing is mapped */
	size_t size;
	uint8_t *base;	/* the region's first byte */
	bool in_memory; /* no page is on a disk: all may be populated for writing */
};

/*
 * Maps the region. 0; -ESTALE: the owner has other memory at these addresses now than when it
 * registered them; another -errno: this process can't map it. The caller has announced a hazard for
 * the region, so that it stays registered. Takes some system calls and a thread, and may wait for a
 * file system. Control thread only.
 */
int peer_map(const struct peer_process *peer, const struct peer_map_region *region,
	     struct peer_map *out);
void peer_unmap(struct peer_map *map);

#endif
