/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is shared already. See shared.h. No state but the environment's. */
#include "hca/mem/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/sys.h"

bool shared_allowed(void)
{
	const char *how = env_get("VERBENA_MEMORY");

	return !how || strcmp(how, "private") != 0;
}

/* Whether the mapping goes on where the piece ends, in its file as well. */
static bool piece_goes_on(const struct shared_piece *piece, const struct proc_mapping *m)
{
	const struct proc_mapping *first = &piece->first;

	return m->start == piece->end && m->inode == first->inode && m->major == first->major &&
	       m->minor == first->minor && m->offset == shared_offset(piece, m->start);
}

int shared_look(struct proc_maps *maps, uint64_t addr, uint64_t length, bool lines,
		struct shared_piece pieces[SHARED_PIECES])
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = addr & ~(page - 1);
	uint64_t to = (addr + length + page - 1) & ~(page - 1);
	struct proc_mapping m;
	int n = 0;

	/* A peer may claim anything; what wraps around is no memory. */
	if (addr > INT64_MAX || length > INT64_MAX)
		return -ENOENT;
	while (at < to) {
		int err = proc_maps_find(maps, at, lines, &m);

		if (err)
			return err;
		if (!m.shared || !m.inode)
			return -EXDEV;
		uint64_t end = m.end < to ? m.end : to;

		if (n && piece_goes_on(&pieces[n - 1], &m))
			pieces[n - 1].end = end;
		else if (n == SHARED_PIECES)
			return -E2BIG;
		else
			pieces[n++] = (struct shared_piece){.start = at, .end = end, .first = m};
		at = end;
	}
	return n ? n : -ENOENT;
}

/* FNV-1a, word by word, with a final mix. */
static uint64_t print_add(uint64_t print, uint64_t word)
{
	print = (print ^ word) * 0x100000001b3ull;
	return print ^ print >> 29;
}

uint64_t shared_print(const struct shared_piece *pieces, int count)
{
	uint64_t print = 0xcbf29ce484222325ull;

	for (const struct shared_piece *p = pieces; p < pieces + count; p++) {
		print = print_add(print, p->start);
		print = print_add(print, p->end);
		print = print_add(print, shared_offset(p, p->start));
		print = print_add(print, (uint64_t)p->first.major << 32 | p->first.minor);
		print = print_add(print, p->first.inode);
	}
	return print ? print : 1;
}

/* Whether the page of this process's at this address may be a file's: false for one that surely is
 * private. Saves reading all lines of /proc/self/maps for each registration, where the kernel has
 * no better way. */
static bool page_may_be_a_files(uint64_t at)
{
	uint64_t entry = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
	int fd = sys_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = sys_pread(fd, &entry, sizeof(entry), (off_t)(at / page * sizeof(entry)));

	sys_close(fd);
	return n == sizeof(entry) && (!entry || entry >> 61 & 1); /* 0: not present */
}

enum proto_reach shared_find(const void *addr, uint64_t length, uint64_t *print)
{
	struct shared_piece pieces[SHARED_PIECES] = {0};
	uint64_t start = (uintptr_t)addr;
	struct proc_maps maps;

	*print = 0;
	if (!length)
		return PROTO_REACH_UNKNOWN;
	if (proc_maps_open(&maps, 0))
		return PROTO_REACH_UNSEEN;
	int n = shared_look(&maps, start, length, false, pieces);

	if (n == -EOPNOTSUPP)
		n = page_may_be_a_files(start + length - 1)
			    ? shared_look(&maps, start, length, true, pieces)
			    : -EXDEV;
	proc_maps_close(&maps);
	if (n > 0)
		*print = shared_print(pieces, n);
	return n > 0	     ? PROTO_REACH_MAPPED
	       : n == -E2BIG ? PROTO_REACH_PIECES
	       : n == -EXDEV ? PROTO_REACH_PRIVATE
			     : PROTO_REACH_UNSEEN;
}
