/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines and names that are read without streams. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lines.h"

static int file_with(const char *text, size_t size)
{
	int fd = memfd_create("lines", MFD_CLOEXEC);

	assert_true(fd >= 0 && write(fd, text, size) == (ssize_t)size);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void lines_end_with_newlines_or_the_file(void **state)
{
	const char text[] = "one\n\nthree is cut\nlast";
	int fd = file_with(text, sizeof(text) - 1);
	struct lines lines;
	char line[6];

	(void)state;
	lines_begin(&lines, fd);
	for (int i = 0; i < 4; i++) {
		assert_true(lines_next(&lines, line, sizeof(line)));
		assert_string_equal(line, ((const char *[]){"one", "", "three", "last"})[i]);
	}
	assert_false(lines_next(&lines, line, sizeof(line)));
	assert_false(lines.failed);
	close(fd);
}

static void lines_cross_the_buffer(void **state)
{
	enum { LINES = 3000 };
	char *text = malloc(LINES * 8 + 1), line[16], expected[16];
	struct lines lines;

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < LINES; i++)
		snprintf(text + (size_t)i * 8, 9, "%7d\n", i);
	int fd = file_with(text, (size_t)LINES * 8);

	lines_begin(&lines, fd);
	for (int i = 0; i < LINES; i++) {
		snprintf(expected, sizeof(expected), "%7d", i);
		assert_true(lines_next(&lines, line, sizeof(line)));
		assert_string_equal(line, expected);
	}
	assert_false(lines_next(&lines, line, sizeof(line)));
	close(fd);
	free(text);
}

static void lines_of_no_file_fail(void **state)
{
	struct lines lines;
	char line[8];

	(void)state;
	lines_begin(&lines, -1);
	assert_false(lines_next(&lines, line, sizeof(line)));
	assert_true(lines.failed);
}

static void names_are_all_there(void **state)
{
	enum { FILES = 200 };
	char folder[] = "/tmp/verbena-names-XXXXXX", path[64];
	bool seen[FILES] = {false};
	struct names names;
	const char *name;
	int found = 0;

	(void)state;
	assert_non_null(mkdtemp(folder));
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/%d", folder, i);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	assert_true(names_open(&names, folder));
	while ((name = names_next(&names))) {
		int i = atoi(name);

		assert_in_range(i, 0, FILES - 1);
		assert_false(seen[i]);
		seen[i] = true;
		found++;
	}
	assert_false(names.failed);
	names_close(&names);
	assert_int_equal(found, FILES);
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/%d", folder, i);
		unlink(path);
	}
	rmdir(folder);
	assert_false(names_open(&names, folder));
	names_close(&names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_end_with_newlines_or_the_file),
		cmocka_unit_test(lines_cross_the_buffer),
		cmocka_unit_test(lines_of_no_file_fail),
		cmocka_unit_test(names_are_all_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
