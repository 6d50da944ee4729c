/* SPDX-License-Identifier: BSD-2-Clause */
/* Which of the program's descriptors stand for rsockets. See preload.h. */
#include <errno.h>
#include <fcntl.h>

#include "base/fork.h"
#include "base/mutex.h"
#include "rspreload/preload.h"

struct entry table[FDS_MAX];
__thread int inside;

struct mutex table_lock = MUTEX_INITIALIZER(RANK_PRELOAD_TABLE);

FORK_KEEP(table_lock);

void table_enter(int fd, int rs)
{
	mutex_take(&table_lock);
	table_set(fd, rs);
	mutex_give(&table_lock);
}

int table_take(int fd)
{
	mutex_take(&table_lock);
	int rs = rs_of(fd), last = rs;

	table_set(fd, -1);
	socket_loud(fd, UINT8_MAX);
	for (int i = 0; last >= 0 && i < FDS_MAX; i++)
		if (__atomic_load_n(&table[i].rs, __ATOMIC_RELAXED) == rs + 1)
			last = -1;
	mutex_give(&table_lock);
	return last;
}

int table_adopt(int rs, int cloexec)
{
	int fd = open("/dev/null", O_RDWR | cloexec);

	if (fd >= FDS_MAX) {
		real.close(fd);
		errno = EMFILE;
		fd = -1;
	}
	if (fd < 0) {
		int error = errno;

		RS(rclose(rs));
		errno = error;
		return -1;
	}
	table_enter(fd, rs);
	return fd;
}

void table_copy(int from, int to)
{
	if (from < 0 || to < 0 || from >= FDS_MAX || to >= FDS_MAX)
		return;
	mutex_take(&table_lock);
	table_set(to, rs_of(from));
	later_set(to, later_of(from));
	mutex_give(&table_lock);
}
