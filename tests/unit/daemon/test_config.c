/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The configuration file: every key, invalid values and their error messages. And behaviour of the
 * whole daemon: which owner and mode the file must have, the order of file and command line.
 */
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

#include "daemon/core/config.h"
#include "proto/limits.h"

static char error[512];

/* Decodes `size` bytes over the defaults of a system-wide daemon. */
static int decode_bytes(struct config *config, const char *text, size_t size)
{
	FILE *file = fmemopen((void *)text, size, "r");

	assert_non_null(file);
	error[0] = 0;
	config_init(config, true);
	int err = config_decode(config, file, "v.conf", error, sizeof(error));

	fclose(file);
	return err;
}

static int decode(struct config *config, const char *text)
{
	return decode_bytes(config, text, strlen(text));
}

static void nothing_changes_nothing(void **state)
{
	struct config config, before;

	(void)state;
	config_init(&before, true);
	assert_int_equal(decode(&config, "\n  # only comments\n\t\n#end"), 0);
	assert_memory_equal(&config, &before, sizeof(config));
	assert_string_equal(config.runtime_dir, "/run/verbena");
	assert_int_equal(config.idle_ms, -1);
	assert_true(config.memlock);
	assert_int_equal(config.node.mode, 0666);
	assert_int_equal(config.user_processes, LIMIT_SLOTS / 2);
	assert_true(config_is_shared(&config));
}

static void a_programs_daemon_is_private(void **state)
{
	struct config config;

	(void)state;
	config_init(&config, false);
	assert_false(config_is_shared(&config));
	assert_string_equal(config.runtime_dir, "");
	assert_int_equal(config.idle_ms, 10000);
	assert_int_equal(config.user_processes, CONFIG_UNLIMITED);
	config.ctl.mode = 0660;
	assert_true(config_is_shared(&config));
}

static void every_key(void **state)
{
	static const char text[] =
		"runtime-dir=/run/other\n"
		"idle-ms = 60000   # a minute\n"
		"  memlock\t=  off\n"
		"node-mode = 0660\nnode-owner = root\nnode-group = 12\n"
		"ctl-mode = 600\nctl-owner = 7\nctl-group = root\n"
		"user-processes = 10\nuser-objects = unlimited\n"
		"wire = off\ndevice = v0 eth0\ndevice =  v_1\teth1   eth1.7 # two\n";
	struct config config;

	(void)state;
	assert_int_equal(decode(&config, text), 0);
	assert_string_equal(config.runtime_dir, "/run/other");
	assert_int_equal(config.idle_ms, 60000);
	assert_false(config.memlock);
	assert_int_equal(config.node.mode, 0660);
	assert_int_equal(config.node.owner, 0);
	assert_int_equal(config.node.group, 12);
	assert_int_equal(config.ctl.mode, 0600);
	assert_int_equal(config.ctl.owner, 7);
	assert_int_equal(config.ctl.group, 0);
	assert_int_equal(config.user_processes, 10);
	assert_int_equal(config.user_objects, CONFIG_UNLIMITED);
	assert_false(config.wire);
	assert_int_equal(config.device_count, 2);
	assert_string_equal(config.device[0].name, "v0");
	assert_int_equal(config.device[0].count, 1);
	assert_string_equal(config.device[0].ifname[0], "eth0");
	assert_string_equal(config.device[1].name, "v_1");
	assert_int_equal(config.device[1].count, 2);
	assert_string_equal(config.device[1].ifname[0], "eth1");
	assert_string_equal(config.device[1].ifname[1], "eth1.7");
	assert_int_equal(decode(&config, "idle-ms = never\n"), 0);
	assert_int_equal(config.idle_ms, -1);
}

static void refusals_name_the_line(void **state)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
		{"\n\nnode-mode 0660\n",
		 "v.conf:3: \"node-mode 0660\" is not a line of the form key = value"},
		{"node-mood = 0660", "v.conf:1: there is no key \"node-mood\"; verbenad.conf(5) "
				     "lists them"},
		{"memlock = on\n# x\nmemlock = on\n",
		 "v.conf:3: memlock is set in line 1 already; remove one of the two"},
		{"node-mode = 0888", "not \"0888\""},
		{"node-mode = 1777", "wants an octal mode from 0 to 0777, for example 0660"},
		{"node-mode = -1", "wants an octal mode"},
		{"node-mode =", "not \"\""},
		{"node-owner = nobody-of-this-name", "wants a user that exists"},
		{"node-group = nobody-of-this-name", "groupadd"},
		{"node-owner = 4294967295", "wants a user"}, /* for chown() it means "unchanged" */
		{"memlock = yes", "memlock wants on or off, not \"yes\""},
		{"idle-ms = soon", "wants milliseconds, a time such as 30s, or never"},
		{"idle-ms = 99999999999999999999", "wants milliseconds"},
		{"idle-ms = 5 s", "wants milliseconds"},
		{"user-processes = -1", "wants a number, or unlimited"},
		{"user-objects = 1e6", "wants a number, or unlimited"},
		{"runtime-dir = run", "wants an absolute path"},
		{"device = v0", "and at least one interface, for example"},
		{"device =", "wants a name"},
		{"device = a/b eth0", "wants a name"},
		{"device = a123456789012345678901234567890123 eth0", "wants a name"},
		{"device = a eth0\ndevice = a eth1", "v.conf:2: device wants a name that no other"},
		{"device = a eth0\ndevice = b eth1 eth0", "wants names of at most 8 interfaces"},
		{"device = a eth0123456789012", "wants names of at most 8 interfaces"},
		{"device = a 1 2 3 4 5 6 7 8 9", "wants names of at most 8 interfaces"},
		{"= 5", "there is no key \"\""},
	};
	struct config config;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(decode(&config, cases[i].text), -EINVAL);
		if (!strstr(error, cases[i].said))
			fail_msg("\"%s\" gives: %s", cases[i].text, error);
		assert_int_equal(strncmp(error, "v.conf:", 7), 0);
	}
}

static void many_devices(void **state)
{
	char text[1024] = "";
	struct config config;

	(void)state;
	for (int i = 0; i < CONFIG_DEVICES; i++)
		sprintf(text + strlen(text), "device = v%d eth%d\n", i, i);
	assert_int_equal(decode(&config, text), 0);
	assert_int_equal(config.device_count, CONFIG_DEVICES);
	strcat(text, "device = more eth16\n");
	assert_int_equal(decode(&config, text), -EINVAL);
	assert_non_null(strstr(error, "v.conf:17: device may be there 16 times"));
}

static void long_and_binary_files(void **state)
{
	static const char zero[] = "memlock = on\0\nidle-ms = 1\n";
	char text[300];
	struct config config;

	(void)state;
	assert_int_equal(decode_bytes(&config, zero, sizeof(zero) - 1), -EINVAL);
	assert_non_null(strstr(error, "v.conf:1: there is a zero byte"));
	/* A socket's path must fit behind it. */
	snprintf(text, sizeof(text), "runtime-dir = /%0200d\n", 0);
	assert_int_equal(decode(&config, text), -EINVAL);
	/* A message that doesn't fit is only cut. */
	char *long_line = calloc(1, 1 << 20);

	assert_non_null(long_line);
	memset(long_line, 'x', (1 << 20) - 1);
	assert_int_equal(decode(&config, long_line), -EINVAL);
	assert_int_equal(strlen(error), sizeof(error) - 1);
	free(long_line);
}

static void files_of_others_are_refused(void **state)
{
	char path[] = "/tmp/verbena-conf-XXXXXX";
	int fd = mkstemp(path);
	struct config config;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "memlock = off\n", 14), 14);
	close(fd);
	config_init(&config, false);
	assert_int_equal(config_read(&config, path), 0);
	assert_false(config.memlock);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(config_read(&config, path), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(config_read(&config, path), -ENOENT);
	assert_int_equal(config_read(&config, "/tmp"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_changes_nothing),
		cmocka_unit_test(a_programs_daemon_is_private),
		cmocka_unit_test(every_key),
		cmocka_unit_test(refusals_name_the_line),
		cmocka_unit_test(many_devices),
		cmocka_unit_test(long_and_binary_files),
		cmocka_unit_test(files_of_others_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
