/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library for LD_PRELOAD: large memory of any program is shared from the beginning, so that its
 * registered regions are found in a file and mapped by peers (tests/suite-on found). It is a means
 * of the tests, not an allocator for users: docs/memory.md says why there is none.
 *
 * Served from one memory file of the process: mmap() of private memory of 64 KiB and more, and what
 * malloc() and its relatives give of 32 KiB and more or aligned to a page. All else is glibc's. The
 * address decides the offset in the file: a block that is at WINDOW + x has the file's bytes from x
 * on. Addresses are given out once, so bytes are, too. A block's length is on the page before it.
 *
 * A child of fork() has a file of its own with the bytes as of the fork, at the same addresses.
 * The memory is MADV_DONTFORK, so a child that is made in another way lacks it, rather than share
 * it with its parent.
 *
 * Threads: any. `next` is atomic; the rest is written before main(), and by the handlers of fork(),
 * which one lock keeps apart.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static const uintptr_t WINDOW = 0x200000000000, WINDOW_END = 0x300000000000;
static const size_t PAGE = 4096, LARGE_MAP = 64 << 10, LARGE_BLOCK = 32 << 10;
enum { FD_LOWEST = 500, MAPPINGS_MOST = 4096 };

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *at, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *at);

static _Atomic uintptr_t next;	 /* address of the next block; 0: nothing is served */
static int file = -1, copy = -1; /* the process's; during a fork, the child's */
static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;

static bool is_ours(const void *at)
{
	return (uintptr_t)at >= WINDOW && (uintptr_t)at < WINDOW_END;
}

static size_t pages(size_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1);
}

static void *kernel_map(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, at, size, rights, flags, fd, offset); /* NOLINT */
}

/* During a fork descriptors are used by system calls only: librspreload, which may be preloaded as
 * well, has functions of its own for them, and keeps its table of descriptors locked meanwhile. */
static void raw_close(int fd)
{
	syscall(SYS_close, fd);
}

/* A file for all addresses of the window, at a number that programs don't count on. */
static int file_make(void)
{
	int low = memfd_create("born-shared", MFD_CLOEXEC), fd;

	if (low < 0)
		return -1;
	fd = (int)syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, FD_LOWEST);
	if (fd < 0)
		return low;
	raw_close(low);
	return fd;
}

static bool file_sized(int fd)
{
	return fd >= 0 && !ftruncate(fd, (off_t)(WINDOW_END - WINDOW));
}

/* Shared memory at an address that has never been used. NULL: not now. */
static void *block_map(size_t size, size_t alignment, int rights, int flags)
{
	uintptr_t at, after;

	size = pages(size);
	if (alignment < PAGE)
		alignment = PAGE;
	at = atomic_load(&next);
	do {
		if (!at || size > WINDOW_END - WINDOW)
			return NULL;
		after = ((at + alignment - 1) & ~(alignment - 1)) + size;
		if (after > WINDOW_END)
			return NULL;
	} while (!atomic_compare_exchange_weak(&next, &at, after));
	at = after - size;
	if (kernel_map((void *)at, size, rights, MAP_SHARED | MAP_FIXED_NOREPLACE | flags, file,
		       (off_t)(at - WINDOW)) != (void *)at)
		return NULL;
	madvise((void *)at, size, MADV_DONTFORK);
	return (void *)at;
}

static int block_unmap(void *at, size_t size)
{
	int result = (int)syscall(SYS_munmap, at, size);

	if (!result && is_ours(at))
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)((uintptr_t)at - WINDOW), (off_t)pages(size));
	return result;
}

/* ------------------------------------------------------------------ fork() */

static struct mapping {
	uintptr_t start, end;
	int rights;
} mappings[MAPPINGS_MOST];
static unsigned int mapping_count;

static bool bytes_copied(uintptr_t start, uintptr_t end)
{
	off_t at = (off_t)(start - WINDOW), to = (off_t)(end - WINDOW);

	while (at < to) {
		off_t data = lseek(file, at, SEEK_DATA);

		if (data < 0 || data >= to)
			return true;
		off_t hole = lseek(file, data, SEEK_HOLE);

		for (at = data; at < to && at < hole;) {
			off_t from = at, into = at;
			size_t most = (size_t)((hole < to ? hole : to) - at);
			ssize_t n = copy_file_range(file, &from, copy, &into, most, 0);

			if (n <= 0)
				return false;
			at += n;
		}
	}
	return true;
}

/* The file's mappings, without calls of the allocator. */
static bool mappings_find(void)
{
	static char text[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t n = -1;

	while (fd >= 0 && length < sizeof(text) - 1 &&
	       (n = syscall(SYS_read, fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)n;
	if (fd >= 0)
		raw_close(fd);
	text[length] = 0;
	mapping_count = 0;
	for (char *line = text, *end; *line && (end = strchr(line, '\n')); line = end + 1) {
		char *rest;
		struct mapping m = {.start = strtoul(line, &rest, 16)};

		*end = 0;
		m.end = strtoul(rest + 1, &rest, 16);
		if (!is_ours((void *)m.start) || !strstr(rest, "born-shared"))
			continue;
		m.rights = (rest[1] == 'r' ? PROT_READ : 0) | (rest[2] == 'w' ? PROT_WRITE : 0) |
			   (rest[3] == 'x' ? PROT_EXEC : 0);
		if (mapping_count == MAPPINGS_MOST)
			return false;
		mappings[mapping_count++] = m;
	}
	return !n;
}

static void fork_fails(const char *what)
{
	static const char text[] = "born_shared: a fork can't copy the memory: ";

	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0 ||
	    write(STDERR_FILENO, what, strlen(what)) < 0)
		_exit(127);
	abort();
}

static void before_fork(void)
{
	pthread_mutex_lock(&forking);
	if (!next)
		return;
	copy = file_make();
	if (!file_sized(copy))
		fork_fails("no file\n");
	if (!mappings_find())
		fork_fails("too many mappings\n");
	for (unsigned int i = 0; i < mapping_count; i++)
		if (!bytes_copied(mappings[i].start, mappings[i].end))
			fork_fails("no memory\n");
}

static void in_parent(void)
{
	if (copy >= 0)
		raw_close(copy);
	copy = -1;
	pthread_mutex_unlock(&forking);
}

static void in_child(void)
{
	for (unsigned int i = 0; copy >= 0 && i < mapping_count; i++) {
		const struct mapping *m = &mappings[i];
		size_t size = m->end - m->start;

		if (kernel_map((void *)m->start, size, m->rights, MAP_SHARED | MAP_FIXED, copy,
			       (off_t)(m->start - WINDOW)) != (void *)m->start)
			fork_fails("not mapped\n");
		madvise((void *)m->start, size, MADV_DONTFORK);
	}
	if (copy >= 0) {
		raw_close(file);
		file = copy;
	}
	copy = -1;
	pthread_mutex_unlock(&forking);
}

__attribute__((constructor)) static void born_shared_begin(void)
{
	file = file_make();
	if (!file_sized(file) || pthread_atfork(before_fork, in_parent, in_child))
		return;
	next = WINDOW;
}

/* ------------------------------------------------------------------ mmap() and relatives */

PUBLIC void *mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
	const int kept = MAP_NORESERVE | MAP_POPULATE;

	if (!at && size >= LARGE_MAP && rights == (PROT_READ | PROT_WRITE) &&
	    (flags & ~kept) == (MAP_PRIVATE | MAP_ANONYMOUS)) {
		void *block = block_map(size, PAGE, rights, flags & kept);

		if (block)
			return block;
	}
	return kernel_map(at, size, rights, flags, fd, offset);
}

PUBLIC void *mmap64(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
	return mmap(at, size, rights, flags, fd, offset);
}

PUBLIC int munmap(void *at, size_t size)
{
	return block_unmap(at, size);
}

/* Dropped memory is zero again, which it isn't in a file unless the file is emptied. */
PUBLIC int madvise(void *at, size_t size, int advice)
{
	if (is_ours(at) && (advice == MADV_DONTNEED || advice == MADV_FREE) &&
	    !syscall(SYS_madvise, at, size, MADV_REMOVE))
		return 0;
	return (int)syscall(SYS_madvise, at, size, advice);
}

/* What grows would reach into the file's next block, so it becomes another block. */
PUBLIC void *mremap(void *at, size_t size, size_t wanted, int flags, ...)
{
	void *fixed = NULL, *to;
	va_list arguments;

	va_start(arguments, flags);
	if (flags & MREMAP_FIXED)
		fixed = va_arg(arguments, void *);
	va_end(arguments);
	if (!is_ours(at) || wanted <= size || flags != MREMAP_MAYMOVE)
		return (void *)syscall(SYS_mremap, at, size, wanted, flags, fixed); /* NOLINT */
	to = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return to;
	memcpy(to, at, size);
	block_unmap(at, size);
	return to;
}

/* ------------------------------------------------------------------ malloc() and relatives */

/* On the page before a block. */
struct head {
	void *start;	       /* of its mapping */
	size_t mapped, usable; /* bytes of the mapping; from the block's address on */
};

static struct head *head_of(void *at)
{
	return (struct head *)((uintptr_t)at - PAGE);
}

static void *block_make(size_t alignment, size_t size)
{
	size_t before = alignment > PAGE ? alignment : PAGE, usable = pages(size ? size : 1);
	void *start;

	if (size > WINDOW_END - WINDOW || alignment > WINDOW_END - WINDOW)
		return NULL;
	start = block_map(before + usable, before, PROT_READ | PROT_WRITE, 0);
	if (!start)
		return NULL;
	void *at = (void *)((uintptr_t)start + before);

	*head_of(at) = (struct head){start, before + usable, usable};
	return at;
}

PUBLIC void *malloc(size_t size)
{
	void *at = size >= LARGE_BLOCK ? block_make(PAGE, size) : NULL;

	return at ? at : __libc_malloc(size);
}

PUBLIC void free(void *at)
{
	int kept = errno;

	if (is_ours(at))
		block_unmap(head_of(at)->start, head_of(at)->mapped);
	else
		__libc_free(at);
	errno = kept;
}

PUBLIC void *calloc(size_t count, size_t size)
{
	size_t bytes;
	void *at = NULL;

	if (!__builtin_mul_overflow(count, size, &bytes) && bytes >= LARGE_BLOCK)
		at = block_make(PAGE, bytes);
	return at ? at : __libc_calloc(count, size);
}

PUBLIC void *realloc(void *at, size_t size)
{
	void *to;

	if (!is_ours(at))
		return __libc_realloc(at, size);
	if (size && size <= head_of(at)->usable && size >= head_of(at)->usable / 2)
		return at;
	to = size ? malloc(size) : NULL;
	if (to)
		memcpy(to, at, size < head_of(at)->usable ? size : head_of(at)->usable);
	if (to || !size)
		free(at);
	return to;
}

PUBLIC void *memalign(size_t alignment, size_t size)
{
	bool large = alignment >= PAGE || size >= LARGE_BLOCK;
	void *at = large && !(alignment & (alignment - 1)) ? block_make(alignment, size) : NULL;

	return at ? at : __libc_memalign(alignment, size);
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
	return memalign(alignment, size);
}

PUBLIC void *valloc(size_t size)
{
	return memalign(PAGE, size);
}

PUBLIC int posix_memalign(void **result, size_t alignment, size_t size)
{
	int kept = errno;
	void *at;

	if (!alignment || alignment % sizeof(void *) || alignment & (alignment - 1))
		return EINVAL;
	at = memalign(alignment, size);
	errno = kept;
	if (!at)
		return ENOMEM;
	*result = at;
	return 0;
}

PUBLIC size_t malloc_usable_size(void *at)
{
	/* glibc's own is behind this one; its header is known: the size is before the block, with
	 * three flags. */
	if (at && !is_ours(at)) {
		size_t size = ((size_t *)at)[-1];

		return (size & ~(size_t)7) - (size & 2 ? 16 : 8);
	}
	return at ? head_of(at)->usable : 0;
}
