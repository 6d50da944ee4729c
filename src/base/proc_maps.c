/* SPDX-License-Identifier: BSD-2-Clause */
/* The mappings of a process. See proc_maps.h. */
#include "base/proc_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/sys.h"

/* Defined in Linux's <linux/fs.h>, but the headers may be older than the kernel. */
struct map_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
enum { MAP_QUERY_SHARED = 8, MAP_QUERY_NEXT = 16 };
#define MAP_QUERY_RIGHTS 7u /* as PROT_READ, PROT_WRITE, PROT_EXEC */

int proc_maps_open(struct proc_maps *maps, pid_t pid)
{
	char path[32] = "/proc/self/maps";

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps->fd = sys_open(path, O_RDONLY | O_CLOEXEC);
	maps->by_lines = false;
	maps->last.end = 0;
	return maps->fd < 0 ? -errno : 0;
}

void proc_maps_close(struct proc_maps *maps)
{
	sys_close(maps->fd);
}

/* Takes one line apart. Fields: start-end rights offset major:minor inode name. */
static void line_parse(char *line, struct proc_mapping *out)
{
	char *rest;

	*out = (struct proc_mapping){.start = strtoull(line, &rest, 16)};
	out->end = strtoull(rest + (*rest == '-'), &rest, 16);
	rest += strspn(rest, " ");
	if (strnlen(rest, 4) == 4) {
		out->prot = (rest[0] == 'r' ? PROT_READ : 0) | (rest[1] == 'w' ? PROT_WRITE : 0) |
			    (rest[2] == 'x' ? PROT_EXEC : 0);
		out->shared = rest[3] == 's';
	}
	rest += strcspn(rest, " ");
	out->offset = strtoull(rest, &rest, 16);
	out->major = (uint32_t)strtoul(rest, &rest, 16);
	out->minor = (uint32_t)strtoul(rest + (*rest == ':'), &rest, 16);
	out->inode = strtoull(rest, &rest, 10);
	rest += strspn(rest, " ");
	size_t n = strlen(rest);

	if (n < sizeof(out->name)) /* else it isn't whole */
		memcpy(out->name, rest, n);
}

static int line_next(struct proc_maps *maps, uint64_t at, struct proc_mapping *out)
{
	char line[512];

	if (!maps->by_lines)
		lines_begin(&maps->text, maps->fd);
	maps->by_lines = true;
	while (maps->last.end <= at) {
		if (!lines_next(&maps->text, line, sizeof(line)))
			return maps->text.failed ? -EOPNOTSUPP : -ENOENT;
		line_parse(line, &maps->last);
	}
	*out = maps->last;
	return 0;
}

/* `flags`: MAP_QUERY_NEXT, or 0. -ENOTTY: the lines are needed. */
static int mapping_query(const struct proc_maps *maps, uint64_t at, uint64_t flags,
			 struct proc_mapping *out)
{
	if (maps->by_lines)
		return -ENOTTY;
	struct map_query q = {.size = sizeof(q),
			      .query_flags = flags,
			      .query_addr = at,
			      .name_size = sizeof(out->name),
			      .name_addr = (uintptr_t)out->name};

	out->name[0] = 0;
	int err = ioctl(maps->fd, MAP_QUERY, &q) < 0 ? -errno : 0;

	if (err == -ENAMETOOLONG) {
		q = (struct map_query){.size = sizeof(q), .query_flags = flags, .query_addr = at};
		err = ioctl(maps->fd, MAP_QUERY, &q) < 0 ? -errno : 0;
		out->name[0] = 0;
	}
	if (err)
		return err;
	if (!q.name_size)
		out->name[0] = 0;
	out->start = q.vma_start;
	out->end = q.vma_end;
	out->offset = q.vma_offset;
	out->inode = q.inode;
	out->major = q.dev_major;
	out->minor = q.dev_minor;
	out->shared = q.vma_flags & MAP_QUERY_SHARED;
	out->prot = (int)(q.vma_flags & MAP_QUERY_RIGHTS);
	return 0;
}

int proc_maps_find(struct proc_maps *maps, uint64_t at, bool lines, struct proc_mapping *out)
{
	int err = mapping_query(maps, at, 0, out);

	if (!err || err == -ENOENT)
		return err;
	if (!maps->by_lines && !lines)
		return -EOPNOTSUPP;
	err = line_next(maps, at, out);
	return err || out->start <= at ? err : -ENOENT;
}

int proc_maps_next(struct proc_maps *maps, uint64_t at, struct proc_mapping *out)
{
	int err = mapping_query(maps, at, MAP_QUERY_NEXT, out);

	/* Other errors are also those of a process that has no memory any more. */
	return !err || err == -ENOENT ? err : line_next(maps, at, out);
}
