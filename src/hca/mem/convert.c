/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Converting private memory. See convert.h. Owns the memory file, the list of the parts of it that
 * are in use, and the list of all regions of memory that the program has mapped itself; all under
 * convert_lock.
 *
 * While pages are replaced, nothing on them may change: between the two lines that say so, this
 * thread calls the kernel only, and stores to its stack and to this file's static data.
 */
#include "hca/mem/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/proc_maps.h"
#include "base/sys.h"
#include "hca/mem/mr.h"
#include "hca/mem/quiet.h"
#include "hca/mem/reserve.h"
#include "hca/mem/shared.h"
#include "hca/process/hca.h"
#include "hca/process/park.h"

#define FILE_BYTES (1ull << 62)
#define PART_GAP (1ull << 40)
#define HUGE_BYTES (2ull << 20) /* offsets and addresses agree modulo this */
#define PIECE (64ull << 10)	/* what is copied at once */

enum { PARTS = 512, PAGE_MIN = 4096, OWN_THREADS = 2, LOOKED_AT = 512 };

/* A part of the file that is mapped over memory of the program. */
struct part {
	uint64_t at, end; /* what was converted, or registered since */
	uint64_t gap_end; /* behind it is a gap for mremap() */
};

struct mutex convert_lock = MUTEX_INITIALIZER(RANK_CONVERT);

static struct {
	int fd; /* -1: no file yet */
	struct stat status;
	uint64_t next;	    /* the first offset that was never used */
	unsigned int count; /* of `part`, ordered by offset */
	struct part part[PARTS];
	uint64_t presence[LOOKED_AT]; /* of pages, as in pagemap */
	int pagemap;
	uint64_t piece[PIECE / sizeof(uint64_t)]; /* the bytes that are in no page meanwhile */
	bool unsure; /* pages of the file may still be needed where no part is */
	struct reserve reserve;
} file GUARDED_BY(convert_lock) = {.fd = -1, .reserve = RESERVE_INITIALIZER};

/* For the child of a fork, while the memory itself can't be made private: a copy of a mapping. */
static struct copy {
	void *copy, *at;
	uint64_t length;
	int prot;
} copies[PARTS] GUARDED_BY(convert_lock);
static unsigned int copy_count GUARDED_BY(convert_lock);

static struct list regions GUARDED_BY(convert_lock) = {&regions, &regions};

bool convert_wanted(void)
{
	const char *how = env_get("VERBENA_MEMORY");

	return how && !strcmp(how, "shared");
}

static uintptr_t page_bytes(void)
{
	return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static uintptr_t convert_page_floor(uintptr_t at)
{
	return at & ~(page_bytes() - 1);
}

/* A region's whole pages. */
static uintptr_t pages_start(const struct mr *mr)
{
	return convert_page_floor(mr->base);
}

static uintptr_t pages_end(const struct mr *mr)
{
	return convert_page_floor(mr->base + mr->ibv.length + page_bytes() - 1);
}

/* ------------------------------------------------------------------ the file */

static bool file_is_open(void) REQUIRES(convert_lock)
{
	struct stat now;

	/* The program may have closed the descriptor, and the number be another file's. */
	return file.fd >= 0 && !fstat(file.fd, &now) && now.st_dev == file.status.st_dev &&
	       now.st_ino == file.status.st_ino;
}

static const char *convert_file_open(void) REQUIRES(convert_lock)
{
	int fd = memfd_create("verbena-memory", MFD_CLOEXEC);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE ? "no descriptor is left"
							  : "the system refuses memory files";
	if (ftruncate(fd, FILE_BYTES) < 0 || fstat(fd, &file.status) < 0) {
		sys_close(fd);
		return "a memory file can't be made";
	}
	file.fd = fd;
	return NULL;
}

/* NULL, or why there is none. */
static const char *convert_file_make(void) REQUIRES(convert_lock)
{
	struct rlimit limit;

	/* Writing beyond it is a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY)
		return "RLIMIT_FSIZE is set";
	/* Shared memory doesn't count: the program might go beyond it. */
	if (getrlimit(RLIMIT_DATA, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY)
		return "RLIMIT_DATA is set";
	const char *why = file.fd < 0 ? convert_file_open() : NULL;

	if (!why && !file_is_open())
		why = "the program has closed the memory file";
	if (!why && !reserve_keep(&file.reserve, file.fd))
		why = "descriptors or mappings are nearly used up";
	return why;
}

static bool is_ours(const struct proc_mapping *m) REQUIRES(convert_lock)
{
	return m->inode == file.status.st_ino && m->major == major(file.status.st_dev) &&
	       m->minor == minor(file.status.st_dev) && file.fd >= 0;
}

static void file_punch(uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	if (to > from)
		sys_fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			      (off_t)(to - from));
}

/* Frees pages of the file outside all parts: the kernel makes one when private memory that was
 * mapped from the file (part_detach()) is touched at a page that the file lacks. */
static void file_sweep(void) REQUIRES(convert_lock)
{
	uint64_t from = 0;

	if (file.unsure || !file_is_open())
		return;
	for (unsigned int i = 0; i < file.count; i++) {
		file_punch(from, file.part[i].at);
		from = file.part[i].gap_end;
	}
	file_punch(from, file.next);
}

/* ------------------------------------------------------------------ to the file */

/*
 * A page exists once at any time: its bytes are in file.piece while it has neither its old memory
 * nor its new one. So a process that has used up its memory cgroup needs no more than it has.
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
	return mmap(at, length, prot, kind | MAP_FIXED, file.fd, (off_t)offset) != MAP_FAILED;
}

/* Pages that exist, at most PIECE bytes. */
static bool pages_to_file(uint64_t *here, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	/* Nothing on these pages may change from here ... */
	whole_copy(file.piece, here, length);
	if (!file_map(here, length, at, PROT_READ | PROT_WRITE, MAP_SHARED))
		return false;
	bool done = pages_populate(here, length) || !anonymous_map(here, length);

	whole_copy(here, file.piece, length);
	/* ... to here. */
	return done && madvise(here, length, MADV_DONTFORK) == 0;
}

/* Pages that were never touched. */
static bool nothing_to_file(void *here, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	return file_map(here, length, at, PROT_READ | PROT_WRITE, MAP_SHARED) &&
	       madvise(here, length, MADV_DONTFORK) == 0;
}

/* At most LOOKED_AT pages. */
static bool looked_at_convert(uintptr_t start, size_t pages, uint64_t at) REQUIRES(convert_lock)
{
	uintptr_t page = page_bytes();
	size_t most = PIECE / page, end;
	ssize_t n = sys_pread(file.pagemap, file.presence, pages * sizeof(file.presence[0]),
			      (off_t)(start / page * sizeof(file.presence[0])));

	if (n != (ssize_t)(pages * sizeof(file.presence[0])))
		return false;
	for (size_t i = 0; i < pages; i = end) {
		bool exists = file.presence[i] >> 62; /* bit 63: present; bit 62: in swap space */

		for (end = i; end < pages && (file.presence[end] >> 62 != 0) == exists &&
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

/* Calls `use` for each run of bytes that the file has in [from, to), in pieces; false ends it. */
static bool each_run(uint64_t from, uint64_t to,
		     bool (*use)(uintptr_t start, uint64_t length, uint64_t at), uintptr_t start)
	REQUIRES(convert_lock)
{
	for (uint64_t at = from; at < to;) {
		off_t data = lseek(file.fd, (off_t)at, SEEK_DATA);

		if (data < 0 || (uint64_t)data >= to)
			return data >= 0 || errno == ENXIO;
		off_t hole = lseek(file.fd, data, SEEK_HOLE);

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
	if (sys_pread(file.fd, file.piece, length, (off_t)at) != (ssize_t)length ||
	    !anonymous_map(here, length))
		return false;
	file_punch(at, at + length);
	whole_copy(here, file.piece, length);
	/* ... to here. */
	return true;
}

/* How many bytes from `at` on the file has, or lacks: up to `length`. */
static uint64_t run_length(uint64_t at, uint64_t length, bool *exists) REQUIRES(convert_lock)
{
	off_t data = lseek(file.fd, (off_t)at, SEEK_DATA);

	*exists = data == (off_t)at;
	off_t end = *exists ? lseek(file.fd, data, SEEK_HOLE) : data;

	return end < 0 || (uint64_t)end - at > length ? length : (uint64_t)end - at;
}

/* In a quiet process: private memory in place of the file's, with the same bytes. */
static bool part_return(uintptr_t start, uint64_t length, uint64_t at, int prot)
	REQUIRES(convert_lock)
{
	bool locked = quiet_is_locked(start);

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
		if (locked)
			mlock(here, size);
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
	bool locked = quiet_is_locked(start);

	if (!file_map((void *)start, length, at, prot, MAP_PRIVATE))
		return false;
	if (locked)
		mlock((void *)start, length);
	if (!each_run(at, at + length, run_detach, start))
		file.unsure = true; /* some of its bytes are in the file only */
	return true;
}

/* Makes private whatever is mapped of [from, to) of the file, wherever the program has it. False:
 * some of it stays shared. */
static bool file_return(uint64_t from, uint64_t to, bool quiet) REQUIRES(convert_lock)
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
	if (done && !file.unsure) /* what the program has unmapped */
		file_punch(from, to);
	file.unsure |= !done;
	return done;
}

/* ------------------------------------------------------------------ quiet moments */

/* Parks the library's threads and blocks all signals, if nothing else can touch the memory; NULL,
 * or why it can. */
static const char *quiet_begin(sigset_t *old)
{
	sigset_t all;

	if (!park_begin())
		return "the library's threads are busy";
	const char *why = quiet_shared_with(OWN_THREADS);

	if (why) {
		park_end();
		return why;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	return NULL;
}

static void quiet_end(const sigset_t *old)
{
	pthread_sigmask(SIG_SETMASK, old, NULL);
	park_end();
}

static void return_range(uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	reserve_use(&file.reserve, &file.status);
	const char *held = quiet_held_by();
	sigset_t old;
	bool quiet, done = false;

	if (!held) {
		quiet = !quiet_begin(&old);
		done = file_return(from, to, quiet);
		if (quiet)
			quiet_end(&old);
	} else {
		file.unsure = true;
	}
	reserve_keep(&file.reserve, file.fd);
	if (!done)
		log_warn("memory that was converted for RDMA stays shared: %s",
			 held ? held : "the system has refused to map it anew");
}

/* ------------------------------------------------------------------ copies for a child */

static bool run_copy(uintptr_t start, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	return sys_pread(file.fd, (void *)start, length, (off_t)at) == (ssize_t)length;
}

static bool copy_make(const struct proc_mapping *m) REQUIRES(convert_lock)
{
	uint64_t length = m->end - m->start;
	struct copy *copy = &copies[copy_count];

	if (copy_count == PARTS)
		return false;
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return false;
	*copy = (struct copy){at, (void *)m->start, length, m->prot};
	copy_count++;
	return each_run(m->offset, m->offset + length, run_copy, (uintptr_t)at);
}

/* Copies all converted memory, wherever the program has it: the child moves the copies to its
 * place. */
static void copies_make(void) REQUIRES(convert_lock)
{
	struct proc_mapping m = {.end = 0};
	struct proc_maps maps;
	int err = file_is_open() ? proc_maps_open(&maps, 0) : -EBADF;
	bool done = !err;

	while (done && !(err = proc_maps_next(&maps, m.end, &m)))
		done = !m.shared || !is_ours(&m) || copy_make(&m);
	if (err != -EBADF)
		proc_maps_close(&maps);
	if (!done)
		log_warn("memory that was converted for RDMA can't be copied: a forked child lacks "
			 "it");
}

static void copies_drop(void) REQUIRES(convert_lock)
{
	for (; copy_count; copy_count--)
		munmap(copies[copy_count - 1].copy, copies[copy_count - 1].length);
}

static void copies_place(void) REQUIRES(convert_lock)
{
	for (; copy_count; copy_count--) {
		const struct copy *copy = &copies[copy_count - 1];

		if (mremap(copy->copy, copy->length, copy->length, MREMAP_MAYMOVE | MREMAP_FIXED,
			   copy->at) != MAP_FAILED)
			mprotect(copy->at, copy->length, copy->prot);
	}
}

/* ------------------------------------------------------------------ parts */

static void part_insert(unsigned int i, struct part part) REQUIRES(convert_lock)
{
	memmove(&file.part[i + 1], &file.part[i], (file.count - i) * sizeof(part));
	file.part[i] = part;
	file.count++;
}

static void part_remove(unsigned int i) REQUIRES(convert_lock)
{
	file.count--;
	memmove(&file.part[i], &file.part[i + 1], (file.count - i) * sizeof(file.part[0]));
}

/* [from, to) isn't needed of the part any more: makes it private. False: the list has no room for
 * what is left on both sides. */
static bool part_cut(unsigned int i, uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	struct part *p = &file.part[i], rest = {to, p->end, p->gap_end};

	if (from > p->at && to < p->gap_end) {
		if (file.count == PARTS)
			return false;
		p->end = p->gap_end = from;
		part_insert(i + 1, rest);
	} else if (from > p->at) {
		p->end = from;
	} else if (to < p->gap_end) {
		*p = rest;
	} else {
		part_remove(i);
	}
	return_range(from, to);
	return true;
}

/* ------------------------------------------------------------------ regions */

static bool mr_overlaps(const struct mr *mr, uintptr_t start, uintptr_t end)
{
	return mr->ibv.length && pages_start(mr) < end && start < pages_end(mr);
}

static bool is_on_parts(const struct mr *mr)
{
	return mr->converted[0].to;
}

static void converted_add(struct mr *mr, struct mr_converted range) REQUIRES(convert_lock)
{
	struct mr_converted *r = mr->converted;

	for (unsigned int i = 0; i < file.count; i++)
		if (file.part[i].at < range.to && range.from < file.part[i].gap_end &&
		    file.part[i].end < range.to)
			file.part[i].end = range.to;
	while (r->to && r < &mr->converted[MR_CONVERTED - 1])
		r++;
	if (r->to) { /* too many: what is between them counts as needed */
		range.from = r->from < range.from ? r->from : range.from;
		range.to = r->to > range.to ? r->to : range.to;
	}
	*r = range;
}

/* Notes from which bytes of the file the region's memory is mapped now. A program may move the
 * memory (mremap()), and map something else there. */
static void ranges_find(struct mr *mr) REQUIRES(convert_lock)
{
	uintptr_t start = pages_start(mr), end = pages_end(mr);
	struct proc_mapping m = {.end = start};
	struct proc_maps maps;

	memset(mr->converted, 0, sizeof(mr->converted));
	if (!file.count)
		return;
	if (proc_maps_open(&maps, 0)) {
		converted_add(mr, (struct mr_converted){0, FILE_BYTES});
		return;
	}
	while (!proc_maps_next(&maps, m.end, &m) && m.start < end) {
		uintptr_t low = m.start > start ? m.start : start, high = m.end < end ? m.end : end;

		if (m.shared && is_ours(&m))
			converted_add(mr, (struct mr_converted){m.offset + (low - m.start),
								m.offset + (high - m.start)});
	}
	proc_maps_close(&maps);
}

/* The range of a region's that contains the byte, or else the next one behind it. NULL: none. */
static const struct mr_converted *range_next(uint64_t at) REQUIRES(convert_lock)
{
	const struct mr_converted *next = NULL;

	list_for_each(node, &regions) {
		const struct mr_converted *r = container_of(node, struct mr, pages)->converted;

		for (int i = 0; i < MR_CONVERTED; i++)
			if (r[i].to > at && (!next || r[i].from < next->from))
				next = &r[i];
	}
	return next;
}

/* The first bytes at or after *from, below *to, that no region needs; false: there are none. */
static bool unneeded_find(uint64_t *from, uint64_t *to) REQUIRES(convert_lock)
{
	const struct mr_converted *r;

	while ((r = range_next(*from)) && r->from <= *from)
		*from = r->to;
	if (r && r->from < *to)
		*to = r->from;
	return *from < *to;
}

/* Makes private what no region needs any more of the parts that this one has needed. */
static void unneeded_return(const struct mr *mr) REQUIRES(convert_lock)
{
	for (const struct mr_converted *r = mr->converted; r < &mr->converted[MR_CONVERTED]; r++) {
		for (unsigned int i = 0; i < file.count;) {
			const struct part *p = &file.part[i];
			uint64_t from = p->at, to = p->gap_end;

			if (r->from < to && from < r->to && unneeded_find(&from, &to) &&
			    from < p->end && part_cut(i, from, to))
				i = 0;
			else
				i++;
		}
	}
}

/* Whether memory that this thread writes meanwhile is on these pages. */
static bool own_memory_within(const struct hca *hca, uintptr_t start, uintptr_t end)
{
	enum { STACK = 256 << 10, THREAD = 16 << 10 };
	const struct {
		const void *at;
		size_t below, above;
	} own[] = {
		{__builtin_frame_address(0), STACK, STACK},
		{__builtin_thread_pointer(), THREAD, THREAD},
		{&errno, THREAD, THREAD},
		{&file, 0, sizeof(file)},
		{hca, 0, sizeof(*hca)},
	};

	for (unsigned int i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if ((uintptr_t)own[i].at + own[i].above >= start &&
		    (uintptr_t)own[i].at - own[i].below < end)
			return true;
	return false;
}

static const char *pages_refuse(const struct hca *hca, uintptr_t start, uintptr_t end)
	REQUIRES(convert_lock)
{
	if (own_memory_within(hca, start, end))
		return "the library itself uses the memory";
	list_for_each(node, &regions) {
		const struct mr *mr = container_of(node, struct mr, pages);

		/* Peers write to it by system calls, at any time. */
		if (!mr_is_pinned(mr))
			return "there are regions on demand";
		if (mr_overlaps(mr, start, end))
			return "another region on these pages isn't converted";
	}
	return quiet_is_plain(start, end) ? NULL
					  : "it isn't plain memory (a file, huge pages, locked, "
					    "or changed by madvise(), ...)";
}

/* Finds the next pages of [*start, end) that aren't converted. False: all are. */
static bool private_find(struct proc_maps *maps, uintptr_t *start, uintptr_t *end)
	REQUIRES(convert_lock)
{
	struct proc_mapping m;
	uintptr_t from = *start;

	while (from < *end && !proc_maps_next(maps, from, &m) && m.start <= from && m.shared &&
	       is_ours(&m))
		from = m.end;
	*start = from;
	if (from >= *end)
		return false;
	while (m.start < *end && !(m.shared && is_ours(&m)))
		if (proc_maps_next(maps, m.end, &m))
			return true;
	*end = m.start < *end ? m.start : *end;
	return true;
}

/* Converts pages that may be converted, in a quiet moment. */
static const char *pages_convert(uintptr_t start, uintptr_t end) REQUIRES(convert_lock)
{
	uint64_t at = file.next + (start & (HUGE_BYTES - 1)), length = end - start;
	struct part part = {at, at + length, at + length + PART_GAP};

	if (file.count == PARTS || length > FILE_BYTES / 4 || part.gap_end > FILE_BYTES / 2)
		return "too much memory was converted";
	file.next = (part.gap_end | (HUGE_BYTES - 1)) + 1;
	for (uint64_t done = 0, size; done < length; done += size) {
		size = LOOKED_AT * (uint64_t)page_bytes();
		size = length - done < size ? length - done : size;
		if (looked_at_convert(start + done, size / page_bytes(), at + done))
			continue;
		file.unsure |= !file_return(at, part.gap_end, true);
		return "the system has refused to map it anew";
	}
	part_insert(file.count, part);
	return NULL;
}

static const char *pages_convert_quietly(const struct hca *hca, uintptr_t start, uintptr_t end)
	REQUIRES(convert_lock)
{
	sigset_t old;
	const char *why = pages_refuse(hca, start, end);

	if (!why)
		why = quiet_begin(&old);
	if (why)
		return why;
	why = pages_convert(start, end);
	quiet_end(&old);
	return why;
}

static bool memory_overcommits(void)
{
	char how = '2';
	int fd = sys_open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = sys_read(fd, &how, 1);

	sys_close(fd);
	return n == 1 && how != '2';
}

/* What must be so for any memory. NULL, or why it isn't. */
static const char *convert_prepare(const struct mr *mr) REQUIRES(convert_lock)
{
	if (mr->access & IBV_ACCESS_MW_BIND)
		return "windows may be bound to it";
	if (!memory_overcommits())
		return "the kernel accounts for memory strictly (vm.overcommit_memory)";
	const char *why = quiet_held_by();

	if (!why)
		why = convert_file_make();
	if (why)
		return why;
	file.pagemap = sys_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	return file.pagemap < 0 ? "/proc/self/pagemap can't be read" : NULL;
}

static const char *region_convert(const struct hca *hca, const struct mr *mr) REQUIRES(convert_lock)
{
	uintptr_t start = pages_start(mr), end = pages_end(mr), all = end;
	const char *why = convert_prepare(mr);

	if (why)
		return why;
	for (; !why && start < all; start = end) {
		struct proc_maps maps;

		end = all;
		if (proc_maps_open(&maps, 0)) {
			why = "its mappings can't be read";
			break;
		}
		bool found = private_find(&maps, &start, &end);

		proc_maps_close(&maps);
		if (!found)
			break;
		why = pages_convert_quietly(hca, start, end);
	}
	sys_close(file.pagemap);
	return why;
}

/* Makes all memory private while peers may be in the middle of operations. */
static void move_all(struct hca *hca) REQUIRES(convert_lock)
{
	if (!file.count && !file.unsure)
		return;
	list_for_each(node, &regions) {
		struct mr *mr = container_of(node, struct mr, pages);

		if (is_on_parts(mr) && mr_move(hca, mr))
			log_warn("a peer's copy doesn't end: what it copies is lost");
	}
	return_range(0, FILE_BYTES);
	list_for_each(node, &regions) {
		struct mr *mr = container_of(node, struct mr, pages);

		if (!is_on_parts(mr))
			continue;
		memset(mr->converted, 0, sizeof(mr->converted));
		mr->reach.reach = shared_find(mr_base(mr), mr->ibv.length, &mr->print);
		mr_moved(hca, mr);
	}
	file.count = 0;
	atomic_fetch_add_explicit(&hca->pub->header.taken_back, 1, memory_order_relaxed);
}

/* ------------------------------------------------------------------ calls */

/* Not analysed: whether the lock is taken depends on the HCA. */
void convert_begin(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (hca->convert)
		mutex_take(&convert_lock);
}

void convert_end(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (hca->convert)
		mutex_give(&convert_lock);
}

/* Why the region isn't converted; NULL: it is, or needn't be. */
static const char *region_look_at(const struct hca *hca, const struct mr *mr) REQUIRES(convert_lock)
{
	uint64_t print;

	switch (shared_find(mr_base(mr), mr->ibv.length, &print)) {
	case PROTO_REACH_PRIVATE:
		return region_convert(hca, mr);
	case PROTO_REACH_UNSEEN:
		return "its mappings can't be read (is a descriptor left?)";
	default:
		return NULL;
	}
}

/* Whether peers reach the region in a way that a return of its memory doesn't wait for: by a
 * window's key, or by system calls. */
static bool keeps_all_private(const struct mr *mr)
{
	return mr->access & IBV_ACCESS_MW_BIND ? is_on_parts(mr) : !mr_is_pinned(mr);
}

void convert_region(struct hca *hca, struct mr *mr) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || !mr->ibv.length || mr->file)
		return;
	if (mr_is_pinned(mr)) {
		const char *why = region_look_at(hca, mr);

		if (why)
			log_info("%zu bytes at %p aren't converted: %s", mr->ibv.length,
				 mr_base(mr), why);
		ranges_find(mr);
	}
	if (keeps_all_private(mr))
		move_all(hca);
	if (!file.count)
		memset(mr->converted, 0, sizeof(mr->converted));
	if (is_on_parts(mr)) /* relaxed: only threads with the lock change the count */
		mr->reach.converted =
			atomic_load_explicit(&hca->pub->header.taken_back, memory_order_relaxed) +
			1;
	file_sweep();
	list_add_tail(&regions, &mr->pages);
}

void convert_region_ends(struct hca *hca, struct mr *mr) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || list_empty(&mr->pages))
		return;
	list_del(&mr->pages);
	unneeded_return(mr);
}

void convert_region_changed(struct hca *hca, struct mr *mr,
			    const struct mr *old) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || list_empty(&mr->pages))
		return;
	memset(mr->converted, 0, sizeof(mr->converted));
	if (mr_is_pinned(mr))
		ranges_find(mr);
	if (keeps_all_private(mr))
		move_all(hca);
	unneeded_return(old);
}

void convert_before_fork(struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	convert_begin(hca);
	if (!hca->convert || (!file.count && !file.unsure))
		return;
	reserve_use(&file.reserve, &file.status);
	bool held = quiet_held_by();

	if (held)
		copies_make();
	reserve_keep(&file.reserve, file.fd);
	if (!held)
		move_all(hca);
}

void convert_after_fork(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (hca->convert)
		copies_drop();
	convert_end(hca);
}

void convert_leave(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert)
		return;
	mutex_init(&convert_lock, RANK_CONVERT);
	while (list_pop(&regions))
		;
	copies_place();
	reserve_drop(&file.reserve, &file.status);
	if (file_is_open())
		sys_close(file.fd);
	file.fd = -1;
	file.next = 0;
	file.count = 0;
}
