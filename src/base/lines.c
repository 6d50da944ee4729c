/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines and names without streams. See lines.h. */
#include "base/lines.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sys.h"

void lines_begin(struct lines *lines, int fd)
{
	lines->fd = fd;
	lines->failed = fd < 0;
	lines->at = lines->end = 0;
}

static bool lines_fill(struct lines *lines)
{
	ssize_t n = lines->failed ? -1 : sys_read(lines->fd, lines->buffer, sizeof(lines->buffer));

	lines->failed = n < 0;
	lines->at = 0;
	lines->end = n > 0 ? (size_t)n : 0;
	return n > 0;
}

bool lines_next(struct lines *lines, char *line, size_t size)
{
	size_t n = 0;
	bool any = false;

	while (lines->at < lines->end || lines_fill(lines)) {
		char c = lines->buffer[lines->at++];

		any = true;
		if (c == '\n')
			break;
		if (n < size - 1)
			line[n++] = c;
	}
	line[n] = 0;
	return any && !lines->failed;
}

/* What the kernel writes; the C library's has no fixed offset for the name. */
struct kernel_entry {
	uint64_t inode;
	int64_t next;
	uint16_t size;
	uint8_t kind;
	char name[];
};

bool names_open(struct names *names, const char *folder)
{
	names->fd = sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	names->failed = names->fd < 0;
	names->at = names->end = 0;
	return !names->failed;
}

void names_close(struct names *names)
{
	if (names->fd >= 0)
		sys_close(names->fd);
}

const char *names_next(struct names *names)
{
	const struct kernel_entry *entry;

	do {
		if (names->at >= names->end) {
			long n = syscall(SYS_getdents64, names->fd, names->buffer,
					 sizeof(names->buffer));

			names->failed = n < 0;
			if (n <= 0)
				return NULL;
			names->at = 0;
			names->end = (size_t)n;
		}
		entry = (const struct kernel_entry *)(names->buffer + names->at);
		names->at += entry->size;
	} while (entry->name[0] == '.');
	return entry->name;
}
