/* SPDX-License-Identifier: BSD-2-Clause */
/* What the return of converted memory needs. See reserve.h. No state. */
#include "hca/mem/reserve.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"

/* Neighbouring pages with different rights are mappings of their own. */
enum { PAGES = 5 };

static void mappings_make(struct reserve *reserve)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return;
	for (size_t i = 1; i < PAGES; i += 2) {
		if (mprotect(at + i * page, page, PROT_READ) < 0) {
			munmap(at, PAGES * page);
			return;
		}
	}
	reserve->mappings = at;
}

bool reserve_keep(struct reserve *reserve, int fd)
{
	bool all = true;

	if (reserve->lifted)
		setrlimit(RLIMIT_DATA, &reserve->data);
	reserve->lifted = false;
	for (int i = 0; i < RESERVE_FILES; i++) {
		if (reserve->fd[i] < 0)
			reserve->fd[i] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		all &= reserve->fd[i] >= 0;
	}
	if (!reserve->mappings)
		mappings_make(reserve);
	return all && reserve->mappings;
}

void reserve_drop(struct reserve *reserve, const struct stat *file)
{
	struct stat now;

	for (int i = 0; i < RESERVE_FILES; i++) {
		if (reserve->fd[i] >= 0 && !fstat(reserve->fd[i], &now) &&
		    now.st_dev == file->st_dev && now.st_ino == file->st_ino)
			sys_close(reserve->fd[i]);
		reserve->fd[i] = -1;
	}
	if (reserve->mappings)
		munmap(reserve->mappings, PAGES * (size_t)sysconf(_SC_PAGESIZE));
	reserve->mappings = NULL;
}

void reserve_use(struct reserve *reserve, const struct stat *file)
{
	struct rlimit *data = &reserve->data;

	reserve_drop(reserve, file);
	/* Shared memory didn't count. */
	if (!getrlimit(RLIMIT_DATA, data) && data->rlim_cur < data->rlim_max)
		reserve->lifted =
			!setrlimit(RLIMIT_DATA, &(struct rlimit){data->rlim_max, data->rlim_max});
}
