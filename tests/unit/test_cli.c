/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The parts of the `verbena` command that need no daemon: numbers for people, tables, colours,
 * the search for library, daemon and programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/format.h"
#include "cli/locate.h"
#include "cli/space.h"
#include "cli/table.h"

static void durations(void **state)
{
	char text[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format_duration(text, 0), "0 ms");
	assert_string_equal(format_duration(text, 999), "999 ms");
	assert_string_equal(format_duration(text, 59999), "59 s");
	assert_string_equal(format_duration(text, 185000), "3 min 5 s");
	assert_string_equal(format_duration(text, 7800000), "2 h 10 min");
	assert_string_equal(format_duration(text, 99ull * 3600 * 1000), "4 d 3 h");
	assert_true(strlen(format_duration(text, UINT64_MAX)) < FORMAT_BYTES);
}

static void sizes(void **state)
{
	char text[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format_size(text, 0), "0");
	assert_string_equal(format_size(text, 1023), "1023 B");
	assert_string_equal(format_size(text, 1024), "1.0 KiB");
	assert_string_equal(format_size(text, 1536 << 10), "1.5 MiB");
	assert_string_equal(format_size(text, (1 << 20) - 1), "1.0 MiB");
	assert_string_equal(format_size(text, UINT64_MAX), "16.0 EiB");
}

static void access_flags(void **state)
{
	char text[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format_access(text, 0), "");
	assert_string_equal(format_access(text, 0x1), "LW");
	assert_string_equal(format_access(text, 0xf), "LW,RW,RR,RA");
	assert_string_equal(format_access(text, 1 << 20), "0x100000");
	assert_string_equal(format_access(text, 0x100001), "LW,0x100000");
	assert_string_equal(format_access(text, UINT64_MAX),
			    "LW,RW,RR,RA,MW,ZB,OD,HUGE,FG,0xfffffffffffffe00");
}

static void users(void **state)
{
	char text[FORMAT_BYTES];

	(void)state;
	assert_string_equal(format_user(text, 0), "root");
	assert_string_equal(format_user(text, 4000000001u), "4000000001");
}

/* Prints the table into memory; the caller frees. */
static char *table_text(const struct table *table, bool colour)
{
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	assert_non_null(out);
	table_print(table, out, colour);
	fclose(out);
	return text;
}

static const struct table_column columns[] = {{"NAME", false}, {"COUNT", true}, {"REST", false}};

static void table_alignment(void **state)
{
	struct table table;
	char *text;

	(void)state;
	table_set_columns(&table, columns, 3);
	table_add_cell(&table, TABLE_PLAIN, "a");
	table_add_cell(&table, TABLE_PLAIN, "%d", 123456);
	table_add_cell(&table, TABLE_GOOD, "x");
	table_add_cell(&table, TABLE_PLAIN, "longer");
	table_add_cell(&table, TABLE_PLAIN, "%d", 7);
	table_add_cell(&table, TABLE_BAD, "%s", "");
	/* An incomplete row is not shown. */
	table_add_cell(&table, TABLE_PLAIN, "incomplete");

	text = table_text(&table, false);
	assert_string_equal(text, "NAME     COUNT  REST\n"
				  "a       123456  x\n"
				  "longer       7  -\n");
	free(text);
	text = table_text(&table, true);
	assert_non_null(strstr(text, "\033[32mx\033[0m\n"));
	assert_non_null(strstr(text, "\033[31m-\033[0m\n"));
	free(text);
	table_free(&table);
}

static void table_hostile_text(void **state)
{
	struct table table;
	char *text;

	(void)state;
	table_set_columns(&table, columns, 3);
	table_add_cell(&table, TABLE_PLAIN, "%s", "a\033[2J\nb\x7f");
	table_add_cell(&table, TABLE_PLAIN, "%s",
		       "\xc2\x9b"
		       "c");				       /* one-character CSI */
	table_add_cell(&table, TABLE_PLAIN, "%s", "\xc3\xa4"); /* a letter stays */
	text = table_text(&table, false);
	assert_string_equal(text, "NAME      COUNT  REST\n"
				  "a?[2J?b?    ??c  \xc3\xa4\n");
	free(text);
	table_free(&table);
}

static void table_many_rows(void **state)
{
	struct table table;
	char *text;

	(void)state;
	table_set_columns(&table, columns, 3);
	for (int i = 0; i < 30000; i++)
		table_add_cell(&table, TABLE_PLAIN, "%d", i);
	text = table_text(&table, false);
	assert_non_null(strstr(text, "\n29997  29998  29999\n"));
	free(text);
	table_free(&table);
}

static void colour_only_on_terminals(void **state)
{
	FILE *terminal = fopen("/dev/ptmx", "r+");
	FILE *file = tmpfile();

	(void)state;
	if (!terminal || !file)
		skip();
	setenv("TERM", "xterm", 1);
	unsetenv("NO_COLOR");
	assert_true(table_colour_wanted(terminal));
	assert_false(table_colour_wanted(file));
	setenv("NO_COLOR", "1", 1);
	assert_false(table_colour_wanted(terminal));
	setenv("NO_COLOR", "", 1);
	assert_true(table_colour_wanted(terminal));
	setenv("TERM", "dumb", 1);
	assert_false(table_colour_wanted(terminal));
	unsetenv("TERM");
	assert_false(table_colour_wanted(terminal));
	fclose(terminal);
	fclose(file);
}

/* A directory for one test. */
static char root[64];

static int root_make(void **state)
{
	(void)state;
	strcpy(root, "/tmp/verbena-test-cli-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int root_remove(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

static const char *in_root(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static void make_directory(const char *name)
{
	assert_int_equal(mkdir(in_root(name), 0755), 0);
}

static void make_file(const char *name, int mode)
{
	int fd = open(in_root(name), O_CREAT | O_WRONLY, mode);

	assert_true(fd >= 0);
	close(fd);
}

static void locates_both_layouts(void **state)
{
	struct location location;
	char bin[PATH_MAX];

	(void)state;
	make_directory("bin");
	make_directory("lib");
	snprintf(bin, sizeof(bin), "%s", in_root("bin"));
	assert_int_equal(location_find(bin, &location), -ENOENT);

	/* A library without a daemon beside it isn't Verbena's installation. */
	make_file("lib/libibverbs.so.1", 0644);
	assert_int_equal(location_find(bin, &location), -ENOENT);
	make_file("bin/verbenad", 0644);
	assert_int_equal(location_find(bin, &location), -EACCES);
	assert_int_equal(chmod(in_root("bin/verbenad"), 0755), 0);
	assert_int_equal(location_find(bin, &location), 0);
	assert_string_equal(location.library_dir, in_root("lib"));
	assert_string_equal(location.daemon, in_root("bin/verbenad"));

	/* An installation goes first. */
	make_directory("lib/verbena");
	make_file("lib/verbena/libibverbs.so.1", 0644);
	make_directory("libexec");
	make_directory("libexec/verbena");
	make_file("libexec/verbena/verbenad", 0755);
	assert_int_equal(location_find(bin, &location), 0);
	assert_string_equal(location.library_dir, in_root("lib/verbena"));
	assert_string_equal(location.daemon, in_root("libexec/verbena/verbenad"));

	/* Fedora's place of libraries. */
	assert_int_equal(unlink(in_root("lib/verbena/libibverbs.so.1")), 0);
	make_directory("lib64");
	make_directory("lib64/verbena");
	make_file("lib64/verbena/libibverbs.so.1", 0644);
	assert_int_equal(location_find(bin, &location), 0);
	assert_string_equal(location.library_dir, in_root("lib64/verbena"));
	assert_string_equal(location.daemon, in_root("libexec/verbena/verbenad"));
}

static void finds_programs_like_exec(void **state)
{
	char path[PATH_MAX], search[PATH_MAX];

	(void)state;
	make_directory("first");
	make_directory("second");
	make_file("first/tool", 0644);
	make_file("second/tool", 0755);
	snprintf(search, sizeof(search), "%s/first:%s/second", root, root);
	setenv("PATH", search, 1);
	/* What may not be run is passed over while there is another. */
	assert_int_equal(program_find("tool", path), 0);
	assert_string_equal(path, in_root("second/tool"));
	assert_int_equal(unlink(in_root("second/tool")), 0);
	assert_int_equal(program_find("tool", path), -EACCES);
	assert_int_equal(program_find("absent", path), -ENOENT);
	assert_int_equal(program_find("", path), -ENOENT);
	assert_int_equal(program_find(in_root("first"), path), -EACCES);
	unsetenv("PATH");
	assert_int_equal(program_find("sh", path), 0);
	setenv("PATH", "/usr/bin:/bin", 1);
}

static void examines_programs(void **state)
{
	(void)state;
	assert_int_equal(program_examine("/proc/self/exe"), PROGRAM_FINE);
	assert_int_equal(program_examine("/absent"), PROGRAM_FINE);
	make_file("script", 0755);
	assert_int_equal(program_examine(in_root("script")), PROGRAM_FINE);
}

static void write_setting(const char *name, const char *text)
{
	int fd = open(in_root(name), O_CREAT | O_TRUNC | O_WRONLY, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void names_what_forbids_user_namespaces(void **state)
{
	(void)state;
	assert_null(space_forbidding_setting(root));
	make_directory("kernel");
	make_directory("user");
	write_setting("user/max_user_namespaces", "127139\n");
	write_setting("kernel/apparmor_restrict_unprivileged_userns", "0\n");
	write_setting("kernel/unprivileged_userns_clone", "1\n");
	assert_null(space_forbidding_setting(root));
	write_setting("user/max_user_namespaces", "0\n");
	assert_string_equal(space_forbidding_setting(root), "user/max_user_namespaces");
	write_setting("kernel/unprivileged_userns_clone", "0\n");
	assert_string_equal(space_forbidding_setting(root), "kernel/unprivileged_userns_clone");
	write_setting("kernel/apparmor_restrict_unprivileged_userns", "1\n");
	assert_string_equal(space_forbidding_setting(root),
			    "kernel/apparmor_restrict_unprivileged_userns");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations),
		cmocka_unit_test(sizes),
		cmocka_unit_test(access_flags),
		cmocka_unit_test(users),
		cmocka_unit_test(table_alignment),
		cmocka_unit_test(table_hostile_text),
		cmocka_unit_test(table_many_rows),
		cmocka_unit_test(colour_only_on_terminals),
		cmocka_unit_test_setup_teardown(locates_both_layouts, root_make, root_remove),
		cmocka_unit_test_setup_teardown(examines_programs, root_make, root_remove),
		cmocka_unit_test_setup_teardown(names_what_forbids_user_namespaces, root_make,
						root_remove),
		cmocka_unit_test_setup_teardown(finds_programs_like_exec, root_make, root_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
