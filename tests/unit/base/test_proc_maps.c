/* SPDX-License-Identifier: BSD-2-Clause */
/* The mappings of this process, as the kernel tells one by one and as its lines say. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/proc_maps.h"

enum { PAGES = 8 };

/* Eight pages: the first two and the last two are of a file, from its pages 3 and 7 on; between
 * them is nothing. */
static uint8_t *pieces_map(int fd, size_t page)
{
	uint8_t *at = mmap(NULL, PAGES * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(munmap(at, PAGES * page), 0);
	assert_ptr_equal(mmap(at, 2 * page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 3 * (off_t)page),
			 at);
	assert_ptr_equal(mmap(at + 6 * page, 2 * page, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_FIXED, fd, 7 * (off_t)page),
			 at + 6 * page);
	return at;
}

static void pieces_are_found(bool by_lines)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("pieces", MFD_CLOEXEC);
	struct proc_mapping m;
	struct proc_maps maps;
	struct stat status;

	assert_true(fd >= 0 && !ftruncate(fd, 16 * (off_t)page) && !fstat(fd, &status));
	uint8_t *at = pieces_map(fd, page);

	assert_int_equal(proc_maps_open(&maps, 0), 0);
	maps.by_lines = by_lines; /* as where the kernel has no PROCMAP_QUERY */
	if (by_lines)
		lines_begin(&maps.text, maps.fd);
	assert_int_equal(proc_maps_next(&maps, (uintptr_t)at + page, &m), 0);
	assert_true(m.start == (uintptr_t)at && m.end == (uintptr_t)at + 2 * page);
	assert_true(m.shared && m.prot == PROT_READ && m.offset == 3 * page);
	assert_true(m.inode == status.st_ino && m.major == major(status.st_dev) &&
		    m.minor == minor(status.st_dev));
	assert_string_equal(m.name, "/memfd:pieces (deleted)");
	/* The next one is behind the gap. */
	assert_int_equal(proc_maps_next(&maps, m.end, &m), 0);
	assert_true(m.start == (uintptr_t)at + 6 * page && m.end == (uintptr_t)at + 8 * page);
	assert_true(!m.shared && m.prot == (PROT_READ | PROT_WRITE) && m.offset == 7 * page);
	proc_maps_close(&maps);
	munmap(at, 2 * page);
	munmap(at + 6 * page, 2 * page);
	close(fd);
}

static void pieces_are_told_one_by_one(void **state)
{
	(void)state;
	pieces_are_found(false);
}

static void pieces_are_read_from_lines(void **state)
{
	(void)state;
	pieces_are_found(true);
}

/* All mappings, in both ways; the names, too. Reading maps none. */
static void both_ways_tell_the_same(void **state)
{
	struct proc_mapping one = {.end = 0}, line = {.end = 0};
	struct proc_maps told, read;
	int err, count = 0;

	(void)state;
	assert_int_equal(proc_maps_open(&told, 0), 0);
	assert_int_equal(proc_maps_open(&read, 0), 0);
	read.by_lines = true;
	lines_begin(&read.text, read.fd);
	while (!(err = proc_maps_next(&told, one.end, &one))) {
		assert_int_equal(proc_maps_next(&read, line.end, &line), 0);
		assert_memory_equal(&one, &line, offsetof(struct proc_mapping, name));
		assert_string_equal(one.name, line.name);
		count++;
	}
	/* The lines have one more, [vsyscall], which is no mapping of the process. */
	assert_int_equal(err, -ENOENT);
	assert_true(count > 10);
	proc_maps_close(&told);
	proc_maps_close(&read);
}

/* A process that has ended has no mappings, also while it can be asked. */
static void an_ended_process_has_none(void **state)
{
	struct proc_mapping m;
	struct proc_maps maps;
	int hold[2];

	(void)state;
	assert_int_equal(pipe(hold), 0);
	pid_t child = fork();

	if (!child) {
		char byte;

		close(hold[1]);
		_exit((int)read(hold[0], &byte, 1));
	}
	assert_int_equal(proc_maps_open(&maps, child), 0);
	assert_int_equal(proc_maps_next(&maps, 0, &m), 0);
	close(hold[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_not_equal(proc_maps_next(&maps, 0, &m), 0);
	proc_maps_close(&maps);
	close(hold[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_told_one_by_one),
		cmocka_unit_test(pieces_are_read_from_lines),
		cmocka_unit_test(both_ways_tell_the_same),
		cmocka_unit_test(an_ended_process_has_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
