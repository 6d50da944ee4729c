/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mappings of a process, as the kernel reports them: by PROCMAP_QUERY (Linux 6.11), which finds
 * one mapping by its address, or else by the lines of /proc/PID/maps, whose cost grows with the
 * number of mappings. No state but the caller's; any thread.
 */
#ifndef VERBENA_BASE_PROC_MAPS_H
#define VERBENA_BASE_PROC_MAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/lines.h"

enum { PROC_MAPS_NAME = 256 };

/* One mapping. All but the addresses and rights are 0 for memory without a file. */
struct proc_mapping {
	uint64_t start, end;	   /* addresses in the process */
	uint64_t offset;	   /* of `start` in the file, bytes */
	uint64_t inode;		   /* the file's; of a System V segment its id */
	uint32_t major, minor;	   /* of the device or file system that the file is on */
	bool shared;		   /* MAP_SHARED: stores reach the file */
	int prot;		   /* PROT_... */
	char name[PROC_MAPS_NAME]; /* of the file as the kernel writes it; "": none, or longer */
};

/* An open /proc/PID/maps. It belongs to the address space that the process had when it was opened,
 * whatever the number names later. */
struct proc_maps {
	int fd;
	bool by_lines;		  /* they are being read */
	struct lines text;	  /* of `fd`, from the first call that needs them */
	struct proc_mapping last; /* of the lines: the one that was read last */
};

/* `pid` 0: the calling process. 0 or -errno (-EACCES: the caller may not trace the process). */
int proc_maps_open(struct proc_maps *maps, pid_t pid);
void proc_maps_close(struct proc_maps *maps);

/*
 * Finds the mapping that contains the address `at`; `at` rises from call to call. `lines`: the
 * lines may be read where the kernel has no PROCMAP_QUERY. 0; -ENOENT: nothing is mapped there;
 * -EOPNOTSUPP: the kernel can't say, or the lines are needed and may not be read.
 */
int proc_maps_find(struct proc_maps *maps, uint64_t at, bool lines, struct proc_mapping *out);

/* The first mapping that ends above `at`, which rises from call to call. 0; -ENOENT: there is none;
 * -EOPNOTSUPP: the kernel can't say, and the lines can't be read. */
int proc_maps_next(struct proc_maps *maps, uint64_t at, struct proc_mapping *out);

#endif
