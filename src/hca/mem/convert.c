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
#include "hca/mem/shared.h"
#include "hca/process/hca.h"
#include "hca/process/park.h"

#define FILE_BYTES (1ull << 62)
#define PART_GAP (1ull << 40)
#define PIECE (2ull << 20) /* what is copied at once, and in use twice meanwhile */

enum { PARTS = 512, PAGE_MIN = 4096, OWN_THREADS = 2 };

/* A part of the file that is mapped over memory of the program. */
struct part {
	uintptr_t start, end; /* where it was mapped */
	uint64_t at;	      /* of `start` in the file */
	uint64_t end_in_file; /* including the gap behind it */
};

struct mutex convert_lock = MUTEX_INITIALIZER(RANK_CONVERT);

static struct {
	int fd; /* -1: no file yet */
	struct stat status;
	uint64_t next;	    /* the first offset that was never used */
	unsigned int count; /* of `part`, ordered by offset */
	struct part part[PARTS];
	uint64_t presence[PIECE / PAGE_MIN]; /* of the pages of a piece, as in pagemap */
	int pagemap;
	bool unsure; /* pages of the file may still be needed where no part is */
} file GUARDED_BY(convert_lock) = {.fd = -1};

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

/* NULL, or why there is none. */
static const char *convert_file_make(void) REQUIRES(convert_lock)
{
	struct rlimit limit;

	/* Writing beyond it is a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY)
		return "RLIMIT_FSIZE is set";
	if (file.fd >= 0)
		return file_is_open() ? NULL : "the program has closed the memory file";
	int fd = memfd_create("verbena-memory", MFD_CLOEXEC);

	if (fd < 0)
		return "the system refuses memory files";
	if (ftruncate(fd, FILE_BYTES) < 0 || fstat(fd, &file.status) < 0) {
		sys_close(fd);
		return "a memory file can't be made";
	}
	file.fd = fd;
	return NULL;
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
		from = file.part[i].end_in_file;
	}
	file_punch(from, file.next);
}

/* ------------------------------------------------------------------ to the file */

/* Writes what exists of the piece's pages to the file. */
static bool piece_write(uintptr_t start, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	uintptr_t page = page_bytes();
	size_t pages = length / page, end;
	ssize_t n = sys_pread(file.pagemap, file.presence, pages * sizeof(file.presence[0]),
			      (off_t)(start / page * sizeof(file.presence[0])));

	if (n != (ssize_t)(pages * sizeof(file.presence[0])))
		return false;
	for (size_t i = 0; i < pages; i = end + 1) {
		/* bit 63: present; bit 62: in swap space */
		for (end = i; end < pages && file.presence[end] >> 62;)
			end++;
		size_t size = (end - i) * page;

		if (size && sys_pwrite(file.fd, (void *)(start + i * page), size,
				       (off_t)(at + i * page)) != (ssize_t)size)
			return false;
	}
	return true;
}

static bool piece_convert(uintptr_t start, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	/* Nothing on these pages may change from here ... */
	if (!piece_write(start, length, at) ||
	    mmap((void *)start, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd,
		 (off_t)at) == MAP_FAILED)
		return false;
	/* ... to here. */
	return madvise((void *)start, length, MADV_DONTFORK) == 0;
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

static bool run_read(uintptr_t start, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	return sys_pread(file.fd, (void *)start, length, (off_t)at) == (ssize_t)length;
}

/* In a quiet process: private memory in place of the file's, with the same bytes. */
static bool part_return(uintptr_t start, uint64_t length, uint64_t at, int prot)
	REQUIRES(convert_lock)
{
	for (uint64_t done = 0, size; done < length; done += size) {
		void *here = (void *)(start + done);

		size = length - done < PIECE ? length - done : PIECE;
		/* Nothing on these pages may change from here ... */
		if (mmap(here, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			return false;
		if (!each_run(at + done, at + done + size, run_read, (uintptr_t)here)) {
			/* The kernel has no memory: the bytes are in the file still. */
			mmap(here, size, prot, MAP_SHARED | MAP_FIXED, file.fd, (off_t)(at + done));
			return false;
		}
		/* ... to here. */
		file_punch(at + done, at + done + size);
		if (prot != (PROT_READ | PROT_WRITE))
			mprotect(here, size, prot);
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
	if (mmap((void *)start, length, prot, MAP_PRIVATE | MAP_FIXED, file.fd, (off_t)at) ==
	    MAP_FAILED)
		return false;
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
	if (!done)
		log_warn("memory that was converted for RDMA stays shared, and children don't "
			 "inherit it: %s",
			 held ? held : "the system has refused to map it anew");
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

/* [start, end) isn't needed of the part any more: makes it private. */
static void part_cut(unsigned int i, uintptr_t start, uintptr_t end) REQUIRES(convert_lock)
{
	struct part *p = &file.part[i], rest = *p;
	uint64_t from = p->at + (start - p->start);
	uint64_t to = end == p->end ? p->end_in_file : p->at + (end - p->start);

	return_range(from, to);
	rest.at = to;
	rest.start = end;
	p->end = start;
	p->end_in_file = from;
	if (rest.start < rest.end && file.count < PARTS)
		part_insert(i + 1, rest);
	if (p->start == p->end)
		part_remove(i);
}

/* ------------------------------------------------------------------ regions */

static bool mr_overlaps(const struct mr *mr, uintptr_t start, uintptr_t end)
{
	return mr->ibv.length && pages_start(mr) < end && start < pages_end(mr);
}

/* The first pages at or after *start, below `end`, that no region needs; false: there are none. */
static bool unneeded_find(uintptr_t *start, uintptr_t *end) REQUIRES(convert_lock)
{
	uintptr_t from = *start, to = *end;
	bool moved = true;

	while (moved && from < to) {
		moved = false;
		list_for_each(node, &regions) {
			const struct mr *mr = container_of(node, struct mr, pages);

			if (mr_overlaps(mr, from, from + 1)) {
				from = pages_end(mr);
				moved = true;
			}
		}
	}
	list_for_each(node, &regions) {
		const struct mr *mr = container_of(node, struct mr, pages);

		if (from < to && mr_overlaps(mr, from, to))
			to = pages_start(mr);
	}
	*start = from;
	*end = to;
	return from < to;
}

/* Makes those pages of [start, end) private that no region needs. */
static void unneeded_return(uintptr_t start, uintptr_t end) REQUIRES(convert_lock)
{
	for (unsigned int i = 0; i < file.count;) {
		const struct part *p = &file.part[i];
		uintptr_t from = p->start > start ? p->start : start;
		uintptr_t to = p->end < end ? p->end : end;

		if (from < to && unneeded_find(&from, &to)) {
			part_cut(i, from, to);
			i = 0;
		} else {
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
	list_for_each(node, &regions)
		if (mr_overlaps(container_of(node, struct mr, pages), start, end))
			return "another region on these pages isn't converted";
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
	uint64_t at = file.next + (start & (PIECE - 1)), length = end - start;
	struct part part = {start, end, at, at + length + PART_GAP};

	if (file.count == PARTS || length > FILE_BYTES / 4 || part.end_in_file > FILE_BYTES / 2)
		return "too much memory was converted";
	file.next = (part.end_in_file | (PIECE - 1)) + 1;
	for (uint64_t done = 0, size; done < length; done += size) {
		size = length - done < PIECE ? length - done : PIECE;
		if (piece_convert(start + done, size, at + done))
			continue;
		file.unsure |= !file_return(at, part.end_in_file, true);
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

static bool is_on_parts(const struct mr *mr) REQUIRES(convert_lock)
{
	for (unsigned int i = 0; i < file.count; i++)
		if (mr_overlaps(mr, file.part[i].start, file.part[i].end))
			return true;
	return false;
}

/* Makes all memory private while peers may be in the middle of operations. */
static void move_all(struct hca *hca) REQUIRES(convert_lock)
{
	if (!file.count)
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

void convert_region(struct hca *hca, struct mr *mr) NO_THREAD_SAFETY_ANALYSIS
{
	uint64_t print;

	if (!hca->convert || !mr->ibv.length || mr->file || !mr_is_pinned(mr))
		return;
	if (shared_find(mr_base(mr), mr->ibv.length, &print) == PROTO_REACH_PRIVATE) {
		const char *why = region_convert(hca, mr);

		if (why)
			log_info("%zu bytes at %p aren't converted: %s", mr->ibv.length,
				 mr_base(mr), why);
		/* A peer reaches a window by the window's key, which isn't waited for. */
		if (mr->access & IBV_ACCESS_MW_BIND && is_on_parts(mr))
			move_all(hca);
	}
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
	unneeded_return(pages_start(mr), pages_end(mr));
}

void convert_region_changed(struct hca *hca, struct mr *mr,
			    const struct mr *old) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert || list_empty(&mr->pages))
		return;
	if (mr->access & IBV_ACCESS_MW_BIND && is_on_parts(mr))
		move_all(hca);
	unneeded_return(pages_start(old), pages_end(old));
}

void convert_before_fork(struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	convert_begin(hca);
	if (hca->convert)
		move_all(hca);
}

void convert_after_fork(const struct hca *hca)
{
	convert_end(hca);
}

void convert_leave(const struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	if (!hca->convert)
		return;
	mutex_init(&convert_lock, RANK_CONVERT);
	while (list_pop(&regions))
		;
	if (file_is_open())
		sys_close(file.fd);
	file.fd = -1;
	file.next = 0;
	file.count = 0;
}
