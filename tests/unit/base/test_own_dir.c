/* SPDX-License-Identifier: BSD-2-Clause */
/* A user's directory where other users may have its name. Needs root, to be two users. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/own_dir.h"

enum { OTHER = 1234 };

static char place[64];

static int set_up(void **state)
{
	(void)state;
	strcpy(place, "/tmp/verbena-own-XXXXXX");
	return mkdtemp(place) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", place);
	return system(command);
}

static const char *in_place(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", place, name);
	return path;
}

static void others_make(const char *name)
{
	assert_int_equal(mkdir(in_place(name), 0700), 0);
	assert_int_equal(chown(in_place(name), OTHER, OTHER), 0);
}

static void a_free_name(void **state)
{
	char path[256];

	(void)state;
	assert_int_equal(own_dir_find(path, sizeof(path), place, "v-1"), 0);
	assert_string_equal(path, in_place("v-1"));
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(own_dir_find(path, sizeof(path), place, "v-1"), 0);
	assert_string_equal(path, in_place("v-1"));
	assert_int_equal(own_dir_find(path, 8, place, "v-1"), -ENAMETOOLONG);
}

static void a_taken_name(void **state)
{
	char path[256], again[256];
	struct stat st;

	(void)state;
	if (geteuid())
		skip();
	others_make("v-1");
	others_make("v-1.0000000000000000"); /* older than any, but not this user's */
	assert_int_equal(mkdir(in_place("v-12"), 0700), 0);
	assert_int_equal(own_dir_find(path, sizeof(path), place, "v-1"), 0);
	assert_memory_equal(path, in_place("v-1."), strlen(in_place("v-1.")));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	/* Other programs find the same one, also if two were made at once. */
	assert_int_equal(mkdir(in_place("v-1.ffffffffffffffff"), 0700), 0);
	assert_int_equal(own_dir_find(again, sizeof(again), place, "v-1"), 0);
	assert_string_equal(again, path);
}

/* A link of another user's may lead anywhere. */
static void a_taken_link(void **state)
{
	char path[256];

	(void)state;
	if (geteuid())
		skip();
	assert_int_equal(symlink("/tmp", in_place("v-1")), 0);
	assert_int_equal(lchown(in_place("v-1"), OTHER, OTHER), 0);
	assert_int_equal(own_dir_find(path, sizeof(path), place, "v-1"), 0);
	assert_memory_equal(path, in_place("v-1."), strlen(in_place("v-1.")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_free_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_taken_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_taken_link, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("own_dir", tests, NULL, NULL);
}
