/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replacing pages: private memory by the memory file, and the file's by private memory. See
 * convert_state.h. No state but the file's.
 *
 * While pages are replaced, nothing on them may change: between the two lines that say so, the
 * thread calls the kernel only, and stores to its stack and to convert_file.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "hca/mem/convert_state.h"
#include "hca/mem/quiet.h"

/* ------------------------------------------------------------------ to the file */

/*
 * A page exists once at any time: its bytes are in convert_file.piece while it has neither its old
 * memory nor its new one. So a process that has used up its memory cgroup needs no more than it
 * has.
 */

/* Copies whole pages: also what a sanitizer has marked as no part of an object. */
static __attribute__((no_sanitize("address", "thread"))) void
whole_copy(uint64_t *to, const uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(*to); i++) {
		to[i] = from[i];
		__asm__ volatile("" ::: "memory"); /* not by the sanitizer's memcpy() */
	}
}

/* False: the kernel has no memory. */
static bool pages_populate(uint64_t *at, uint64_t length)
{
	return !madvise(at, length, MADV_POPULATE_WRITE) || errno == EINVAL; /* before Linux 5.14 */
}

static bool anonymous_map(void *at, uint64_t length)
{
	return mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0) != MAP_FAILED;
}

static bool file_map(void *at, uint64_t length, uint64_t offset, int prot, int kind)
	REQUIRES(convert_lock)
{
	return mmap(at, length, prot, kind | MAP_FIXED, convert_file.fd, (off_t)offset) !=
	       MAP_FAILED;
}

/* Gives memory that was mapped anew the marks of the old one. The kernel may lack huge pages. */
static void marks_set(void *at, uint64_t length, unsigned int marks)
{
	if (marks & QUIET_HUGE)
		madvise(at, length, MADV_HUGEPAGE);
	if (marks & QUIET_SMALL)
		madvise(at, length, MADV_NOHUGEPAGE);
	if (marks & QUIET_UNDUMPED)
		madvise(at, length, MADV_DONTDUMP);
	if (marks & QUIET_LOCKED)
		mlock(at, length);
}

/* Pages that exist, at most PIECE bytes. */
static bool pages_to_file(uint64_t *here, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	/* Nothing on these pages may change from here ... */
	whole_copy(convert_file.piece, here, length);
	if (!file_map(here, length, at, PROT_READ | PROT_WRITE, MAP_SHARED))
		return false;
	bool done = pages_populate(here, length) || !anonymous_map(here, length);

	whole_copy(here, convert_file.piece, length);
	/* ... to here. */
	marks_set(here, length, convert_file.marks);
	return done && madvise(here, length, MADV_DONTFORK) == 0;
}

/* Pages that were never touched. */
static bool nothing_to_file(void *here, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	if (!file_map(here, length, at, PROT_READ | PROT_WRITE, MAP_SHARED))
		return false;
	marks_set(here, length, convert_file.marks);
	return madvise(here, length, MADV_DONTFORK) == 0;
}

bool looked_at_convert(uintptr_t start, size_t pages, uint64_t at) REQUIRES(convert_lock)
{
	uintptr_t page = page_bytes();
	size_t most = PIECE / page, end;
	ssize_t n = sys_pread(convert_file.pagemap, convert_file.presence,
			      pages * sizeof(convert_file.presence[0]),
			      (off_t)(start / page * sizeof(convert_file.presence[0])));

	if (n != (ssize_t)(pages * sizeof(convert_file.presence[0])))
		return false;
	for (size_t i = 0; i < pages; i = end) {
		bool exists =
			convert_file.presence[i] >> 62; /* bit 63: present; bit 62: in swap space */

		for (end = i; end < pages && (convert_file.presence[end] >> 62 != 0) == exists &&
			      (!exists || end - i < most);)
			end++;
		void *here = (void *)(start + i * page);
		size_t length = (end - i) * page;

		if (!(exists ? pages_to_file(here, length, at + i * page)
			     : nothing_to_file(here, length, at + i * page)))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------ from the file */

bool each_run(uint64_t from, uint64_t to,
	      bool (*use)(uintptr_t start, uint64_t length, uint64_t at), uintptr_t start)
	REQUIRES(convert_lock)
{
	for (uint64_t at = from; at < to;) {
		off_t data = lseek(convert_file.fd, (off_t)at, SEEK_DATA);

		if (data < 0 || (uint64_t)data >= to)
			return data >= 0 || errno == ENXIO;
		off_t hole = lseek(convert_file.fd, data, SEEK_HOLE);

		if (hole < 0)
			return false;
		uint64_t end = (uint64_t)hole < to ? (uint64_t)hole : to;

		end = end - (uint64_t)data < PIECE ? end : (uint64_t)data + PIECE;
		if (!use(start + ((uint64_t)data - from), end - (uint64_t)data, (uint64_t)data))
			return false;
		at = end;
	}
	return true;
}

/* Pages that the file has, at most PIECE bytes. */
static bool run_return(uint64_t *here, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	/* Nothing on these pages may change from here ... */
	if (sys_pread(convert_file.fd, convert_file.piece, length, (off_t)at) != (ssize_t)length ||
	    !anonymous_map(here, length))
		return false;
	file_punch(at, at + length);
	whole_copy(here, convert_file.piece, length);
	/* ... to here. */
	return true;
}

/* How many bytes from `at` on the file has, or lacks: up to `length`. */
static uint64_t run_length(uint64_t at, uint64_t length, bool *exists) REQUIRES(convert_lock)
{
	off_t data = lseek(convert_file.fd, (off_t)at, SEEK_DATA);

	*exists = data == (off_t)at;
	off_t end = *exists ? lseek(convert_file.fd, data, SEEK_HOLE) : data;

	return end < 0 || (uint64_t)end - at > length ? length : (uint64_t)end - at;
}

/* In a quiet process: private memory in place of the file's, with the same bytes. */
static bool part_return(uintptr_t start, uint64_t length, uint64_t at, int prot)
	REQUIRES(convert_lock)
{
	unsigned int marks = quiet_marks(start, convert_file.marked);

	uint64_t run = 0; /* what is left of it */
	bool exists = false;

	for (uint64_t done = 0, size; done < length; done += size, run -= size) {
		void *here = (void *)(start + done);

		if (!run)
			run = run_length(at + done, length - done, &exists);
		size = exists && run > PIECE ? PIECE : run;
		if (!(exists ? run_return(here, size, at + done) : anonymous_map(here, size)))
			return false;
		if (prot != (PROT_READ | PROT_WRITE))
			mprotect(here, size, prot);
		marks_set(here, size, marks);
	}
	return true;
}

static bool run_detach(uintptr_t start, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	if (madvise((void *)start, length, MADV_POPULATE_WRITE) < 0)
		return false;
	file_punch(at, at + length);
	return true;
}

/* In any process: the file's pages privately, then copies of them. False: it is shared still. */
static bool part_detach(uintptr_t start, uint64_t length, uint64_t at, int prot)
	REQUIRES(convert_lock)
{
	unsigned int marks = quiet_marks(start, convert_file.marked);

	convert_file.detached = true;
	if (!file_map((void *)start, length, at, prot, MAP_PRIVATE))
		return false;
	marks_set((void *)start, length, marks);
	if (!each_run(at, at + length, run_detach, start))
		convert_file.unsure = true; /* some of its bytes are in the file only */
	return true;
}

bool file_return(uint64_t from, uint64_t to, bool quiet) REQUIRES(convert_lock)
{
	struct proc_mapping m = {.end = 0};
	struct proc_maps maps;
	bool done = file_is_open();
	int err = done ? proc_maps_open(&maps, 0) : -EBADF;

	if (err)
		return false;
	while (!(err = proc_maps_next(&maps, m.end, &m))) {
		uint64_t end = m.offset + (m.end - m.start);
		uint64_t low = m.offset > from ? m.offset : from, high = end < to ? end : to;

		if (!m.shared || !is_ours(&m) || low >= high)
			continue;
		uintptr_t start = m.start + (low - m.offset);

		done &= quiet ? part_return(start, high - low, low, m.prot)
			      : part_detach(start, high - low, low, m.prot);
	}
	proc_maps_close(&maps);
	done &= err == -ENOENT;
	if (done && !convert_file.unsure) /* what the program has unmapped */
		file_punch(from, to);
	convert_file.unsure |= !done;
	return done;
}
