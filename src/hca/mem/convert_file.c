/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory file of converted memory, and the pages of a region. See convert.h and
 * convert_state.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/sys.h"
#include "hca/mem/convert_state.h"

struct mutex convert_lock = MUTEX_INITIALIZER(RANK_CONVERT);
struct convert_file convert_file = {.fd = -1, .reserve = RESERVE_INITIALIZER};

uintptr_t page_bytes(void)
{
	return (uintptr_t)sysconf(_SC_PAGESIZE);
}

static uintptr_t convert_page_floor(uintptr_t at)
{
	return at & ~(page_bytes() - 1);
}

uintptr_t pages_start(const struct mr *mr)
{
	return convert_page_floor(mr->base);
}

uintptr_t pages_end(const struct mr *mr)
{
	return convert_page_floor(mr->base + mr->ibv.length + page_bytes() - 1);
}

bool file_is_open(void) REQUIRES(convert_lock)
{
	struct stat now;

	/* The program may have closed the descriptor, and the number be another file's. */
	return convert_file.fd >= 0 && !fstat(convert_file.fd, &now) &&
	       now.st_dev == convert_file.status.st_dev && now.st_ino == convert_file.status.st_ino;
}

static const char *convert_file_open(void) REQUIRES(convert_lock)
{
	int fd = memfd_create("verbena-memory", MFD_CLOEXEC);

	if (fd < 0)
		return errno == EMFILE || errno == ENFILE ? "no descriptor is left"
							  : "the system refuses memory files";
	if (ftruncate(fd, FILE_BYTES) < 0 || fstat(fd, &convert_file.status) < 0) {
		sys_close(fd);
		return "a memory file can't be made";
	}
	convert_file.fd = fd;
	return NULL;
}

const char *convert_file_make(void) REQUIRES(convert_lock)
{
	struct rlimit limit;

	/* Writing beyond it is a signal. */
	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY)
		return "RLIMIT_FSIZE is set";
	/* Shared memory doesn't count: the program might go beyond it. */
	if (getrlimit(RLIMIT_DATA, &limit) < 0 || limit.rlim_cur != RLIM_INFINITY)
		return "RLIMIT_DATA is set";
	const char *why = convert_file.fd < 0 ? convert_file_open() : NULL;

	if (!why && !file_is_open())
		why = "the program has closed the memory file";
	if (!why && !reserve_keep(&convert_file.reserve, convert_file.fd))
		why = "descriptors or mappings are nearly used up";
	return why;
}

bool is_ours(const struct proc_mapping *m) REQUIRES(convert_lock)
{
	return m->inode == convert_file.status.st_ino &&
	       m->major == major(convert_file.status.st_dev) &&
	       m->minor == minor(convert_file.status.st_dev) && convert_file.fd >= 0;
}

void file_punch(uint64_t from, uint64_t to) REQUIRES(convert_lock)
{
	if (to > from)
		sys_fallocate(convert_file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)from, (off_t)(to - from));
}

void file_sweep(void) REQUIRES(convert_lock)
{
	uint64_t from = 0;

	if (!convert_file.detached || convert_file.unsure || !file_is_open())
		return;
	for (unsigned int i = 0; i < convert_file.count; i++) {
		file_punch(from, convert_file.part[i].at);
		from = convert_file.part[i].gap_end;
	}
	file_punch(from, convert_file.next);
}
