/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory and fork: which pages a child would not inherit, as /proc/self/smaps tells it
 * ("dc" among a mapping's flags: don't copy), against a count for each page.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "abi/verbs_abi.h"

enum { PAGE = 4096, PAGES = 24 };

static char *memory;

static bool kept_from_child(const char *page)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	bool ours = false, kept = false;
	uintptr_t from, to;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			ours = (uintptr_t)page >= from && (uintptr_t)page < to;
		else if (ours && !strncmp(line, "VmFlags:", 8))
			kept = strstr(line, " dc") != NULL;
	}
	fclose(file);
	return kept;
}

static void expect(const char *pattern)
{
	char got[PAGES + 1] = {0};

	for (int i = 0; i < (int)strlen(pattern); i++)
		got[i] = kept_from_child(memory + (size_t)i * PAGE) ? '#' : '.';
	assert_string_equal(got, pattern);
}

static void nothing_happens_before_init(void **state)
{
	(void)state;
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	/* Unneeded, so it does nothing. */
	assert_int_equal(ibv_fork_init(), 0);
	/* That a registration makes it too late for good, e2e.fork_rules tests: processes of their
	 * own are needed for it. */
	assert_int_equal(ibv_dontfork_range(memory, PAGE), 0);
	expect("..");
	assert_int_equal(setenv("RDMAV_USE_MADVISE", "1", 1), 0);
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static void parts_of_pages_count_as_pages(void **state)
{
	(void)state;
	assert_int_equal(fork_register(memory + PAGE + 10, 1), 0);
	expect(".#..");
	assert_int_equal(fork_register(memory + 2 * PAGE - 1, 2), 0);
	expect(".##.");
	fork_unregister(memory + PAGE + 10, 1);
	expect(".##.");
	fork_unregister(memory + 2 * PAGE - 1, 2);
	expect("....");
}

static void overlaps_are_counted(void **state)
{
	(void)state;
	assert_int_equal(ibv_dontfork_range(memory, 2 * PAGE), 0);
	assert_int_equal(ibv_dontfork_range(memory + 4 * PAGE, 2 * PAGE), 0);
	expect("##..##..");
	assert_int_equal(ibv_dontfork_range(memory + PAGE, 6 * PAGE), 0);
	expect("#######.");
	assert_int_equal(ibv_dofork_range(memory, 2 * PAGE), 0);
	expect(".######.");
	assert_int_equal(ibv_dofork_range(memory + PAGE, 6 * PAGE), 0);
	expect("....##..");
	assert_int_equal(ibv_dofork_range(memory + 4 * PAGE, 2 * PAGE), 0);
	expect("........");
}

static void unmapped_memory_is_refused(void **state)
{
	char *hole = memory + 4 * PAGE;

	(void)state;
	assert_int_equal(munmap(hole, PAGE), 0);
	assert_int_equal(fork_register(memory + 2 * PAGE, 4 * PAGE), ENOMEM);
	expect("....");
	assert_int_equal(fork_register(memory, SIZE_MAX - PAGE), EINVAL);
	/* Memory that is gone when its region ends is no obstacle. */
	assert_ptr_equal(mmap(hole, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 hole);
	assert_int_equal(fork_register(hole, PAGE), 0);
	assert_int_equal(munmap(hole, PAGE), 0);
	fork_unregister(hole, PAGE);
	assert_ptr_equal(mmap(hole, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 hole);
	expect("......");
}

/* Random registrations against a count for each page. */
static void model(void **state)
{
	struct {
		size_t offset, length;
	} regions[12] = {0};
	unsigned int counts[PAGES] = {0};

	(void)state;
	srand(1);
	for (int round = 0; round < 400; round++) {
		int r = rand() % 12, add = !regions[r].length;

		if (add) {
			regions[r].offset = (size_t)rand() % ((PAGES - 8) * PAGE);
			regions[r].length = 1 + (size_t)rand() % (7 * PAGE);
			assert_int_equal(
				fork_register(memory + regions[r].offset, regions[r].length), 0);
		} else {
			fork_unregister(memory + regions[r].offset, regions[r].length);
		}
		for (size_t p = regions[r].offset / PAGE;
		     p <= (regions[r].offset + regions[r].length - 1) / PAGE; p++)
			counts[p] += add ? 1 : -1;
		if (!add)
			regions[r].length = 0;
		char pattern[PAGES + 1] = {0};

		for (int p = 0; p < PAGES; p++)
			pattern[p] = counts[p] ? '#' : '.';
		expect(pattern);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_happens_before_init),
		cmocka_unit_test(parts_of_pages_count_as_pages),
		cmocka_unit_test(overlaps_are_counted),
		cmocka_unit_test(unmapped_memory_is_refused),
		cmocka_unit_test(model),
	};

	memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
