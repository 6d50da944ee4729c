/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of converted memory (convert.h) share: the memory file and the list of the parts
 * of it that are in use (convert_file.c), replacing pages (convert_pages.c), returning a part
 * (convert_parts.c), which parts the regions need (convert_needs.c), copies for a forked child
 * (convert_copies.c). All under convert_lock. Not for other files.
 */
#ifndef VERBENA_HCA_MEM_CONVERT_STATE_H
#define VERBENA_HCA_MEM_CONVERT_STATE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/list.h"
#include "base/proc_maps.h"
#include "hca/mem/convert.h"
#include "hca/mem/mr.h"
#include "hca/mem/reserve.h"

#define FILE_BYTES (1ull << 62)
#define PART_GAP (1ull << 40)
#define HUGE_BYTES (2ull << 20) /* offsets and addresses agree modulo this */
#define PIECE (64ull << 10)	/* what is copied at once */

enum { PARTS = 512, LOOKED_AT = 512 };

/* A part of the file that is mapped over memory of the program. */
struct part {
	uint64_t at, end; /* what was converted, or registered since */
	uint64_t gap_end; /* behind it is a gap for mremap() */
};

struct convert_file {
	int fd; /* -1: no file yet */
	struct stat status;
	uint64_t next;	    /* the first offset that was never used */
	unsigned int count; /* of `part`, ordered by offset */
	struct part part[PARTS];
	uint64_t presence[LOOKED_AT]; /* of pages, as in pagemap */
	int pagemap;
	unsigned int marks; /* of the pages that are being converted (quiet.h) */
	bool marked;	    /* some converted pages may have marks of madvise() */
	uint64_t piece[PIECE / sizeof(uint64_t)]; /* the bytes that are in no page meanwhile */
	bool unsure;   /* pages of the file may still be needed where no part is */
	bool detached; /* private memory was mapped from the file, as part_detach() does */
	struct reserve reserve;
};
extern struct convert_file convert_file GUARDED_BY(convert_lock);

/* All regions of memory that the program has mapped itself: mr.pages. */
extern struct list convert_regions GUARDED_BY(convert_lock);

/* ---- convert_file.c */
uintptr_t page_bytes(void);
/* A region's whole pages. */
uintptr_t pages_start(const struct mr *mr);
uintptr_t pages_end(const struct mr *mr);
/* Whether there is a file, and its descriptor is still that. */
bool file_is_open(void) REQUIRES(convert_lock);
/* Makes the file unless there is one. NULL, or why there is none. */
const char *convert_file_make(void) REQUIRES(convert_lock);
/* Whether the mapping is of the file. */
bool is_ours(const struct proc_mapping *m) REQUIRES(convert_lock);
/* Frees the file's pages in [from, to). */
void file_punch(uint64_t from, uint64_t to) REQUIRES(convert_lock);
/* Frees pages of the file outside all parts: the kernel makes one when private memory that was
 * mapped from the file (part_detach()) is touched at a page that the file lacks. */
void file_sweep(void) REQUIRES(convert_lock);

/* ---- convert_pages.c */
/* Maps the file from offset `at` on over private pages, at most LOOKED_AT, with the same bytes.
 * convert_file.pagemap is open. False: the system refuses that. */
bool looked_at_convert(uintptr_t start, size_t pages, uint64_t at) REQUIRES(convert_lock);
/* Calls `use` for each run of bytes that the file has in [from, to), in pieces; false ends it. */
bool each_run(uint64_t from, uint64_t to,
	      bool (*use)(uintptr_t start, uint64_t length, uint64_t at), uintptr_t start)
	REQUIRES(convert_lock);
/* Makes private whatever is mapped of [from, to) of the file, wherever the program has it. False:
 * some of it stays shared. */
bool file_return(uint64_t from, uint64_t to, bool quiet) REQUIRES(convert_lock);

/* ---- convert_parts.c */
/* Parks the library's threads, blocks the signals that have handlers and stops the program's other
 * threads (warden.h) if nothing else can touch the memory then; NULL, or why it can. Until
 * quiet_end() the caller allocates no memory and takes no lock. */
const char *quiet_begin(sigset_t *old);
/* Ends what quiet_begin() began. */
void quiet_end(const sigset_t *old);
/* Makes private what is mapped of [from, to) of the file, in a quiet moment if there is one. False:
 * some of it stays shared. */
bool return_range(uint64_t from, uint64_t to) REQUIRES(convert_lock);
/* Enters a part at place `i` of the list, which has room. */
void part_insert(unsigned int i, struct part part) REQUIRES(convert_lock);
/* [from, to) isn't needed of the part any more: makes it private. False: the list has no room for
 * what is left on both sides. */
bool part_cut(unsigned int i, uint64_t from, uint64_t to) REQUIRES(convert_lock);

/* ---- convert_needs.c */
/* Whether the region needs bytes of the file. */
bool is_on_parts(const struct mr *mr);
/* Notes from which bytes of the file the region's memory is mapped now. A program may move the
 * memory (mremap()), and map something else there. */
void ranges_find(struct mr *mr) REQUIRES(convert_lock);
/* Makes private what no region needs any more of the parts that this one has needed. */
void unneeded_return(const struct mr *mr) REQUIRES(convert_lock);

/* ---- convert_copies.c */
/* Copies all converted memory, wherever the program has it: the child moves the copies to its
 * place. */
void copies_make(void) REQUIRES(convert_lock);
/* In the parent, after the fork. */
void copies_drop(void) REQUIRES(convert_lock);
/* In the child. */
void copies_place(void) REQUIRES(convert_lock);

#endif
