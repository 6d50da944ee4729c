/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies of converted memory for the child of a fork, while the memory itself can't be made
 * private. See convert_state.h. Owns the list of copies, which exists from before the fork until
 * after it.
 */
#include <sys/mman.h>

#include "base/log.h"
#include "base/sys.h"
#include "hca/mem/convert_state.h"

/* A copy of a mapping. */
static struct copy {
	void *copy, *at;
	uint64_t length;
	int prot;
} copies[PARTS] GUARDED_BY(convert_lock);
static unsigned int copy_count GUARDED_BY(convert_lock);

static bool run_copy(uintptr_t start, uint64_t length, uint64_t at) REQUIRES(convert_lock)
{
	return sys_pread(convert_file.fd, (void *)start, length, (off_t)at) == (ssize_t)length;
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

void copies_make(void) REQUIRES(convert_lock)
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

void copies_drop(void) REQUIRES(convert_lock)
{
	for (; copy_count; copy_count--)
		munmap(copies[copy_count - 1].copy, copies[copy_count - 1].length);
}

void copies_place(void) REQUIRES(convert_lock)
{
	for (; copy_count; copy_count--) {
		const struct copy *copy = &copies[copy_count - 1];

		if (mremap(copy->copy, copy->length, copy->length, MREMAP_MAYMOVE | MREMAP_FIXED,
			   copy->at) != MAP_FAILED)
			mprotect(copy->at, copy->length, copy->prot);
	}
}
