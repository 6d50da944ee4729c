/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finding and starting the daemon: the run-time directory's rules, one daemon however many start at
 * once, idle exit without losing a client, and no visible effect on the program.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/daemon.h"
#include "client/rundir.h"
#include "client/start.h"
#include "netns.h"
#include "raw.h"

static struct raw_daemon here; /* only its directory is used here */

static int make_directory(void **state)
{
	(void)state;
	snprintf(here.dir, sizeof(here.dir), "/tmp/verbena-unit-XXXXXX");
	if (!mkdtemp(here.dir))
		return -1;
	setenv("VERBENA_RUNTIME_DIR", here.dir, 1);
	setenv("VERBENA_IDLE_MS", "300", 1);
	return 0;
}

/* The daemon's pid; 0: none is running. Its file is emptied when it exits. */
static pid_t daemon_pid(void)
{
	char path[128], text[32] = "";

	snprintf(path, sizeof(path), "%s/verbenad.pid", here.dir);
	FILE *f = fopen(path, "r");

	if (f && !fgets(text, sizeof(text), f))
		text[0] = 0;
	if (f)
		fclose(f);
	return atoi(text);
}

static void wait_until_it_left(void)
{
	for (int i = 0; i < RAW_NAPS && daemon_pid(); i++)
		raw_nap();
	assert_int_equal(daemon_pid(), 0);
}

static int remove_directory(void **state)
{
	(void)state;
	wait_until_it_left();
	raw_nap();
	raw_daemon_remove(&here);
	return access(here.dir, F_OK) == 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ the directory */

static void directory_from_the_environment(void **state)
{
	char buf[PATH_MAX], cwd[PATH_MAX], wanted[PATH_MAX + 16];

	(void)state;
	assert_int_equal(rundir_find(buf, sizeof(buf)), 0);
	assert_string_equal(buf, here.dir);
	assert_int_equal(rundir_find(buf, 5), -ENAMETOOLONG);
	/* A relative one is made absolute. */
	setenv("VERBENA_RUNTIME_DIR", "some/where", 1);
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	snprintf(wanted, sizeof(wanted), "%s/some/where", cwd);
	assert_int_equal(rundir_find(buf, sizeof(buf)), 0);
	assert_string_equal(buf, wanted);
}

static void directory_by_user_and_namespace(void **state)
{
	char buf[PATH_MAX], wanted[PATH_MAX];
	struct stat ns;

	(void)state;
	assert_int_equal(stat("/proc/self/ns/net", &ns), 0);
	unsetenv("VERBENA_RUNTIME_DIR");
	setenv("XDG_RUNTIME_DIR", here.dir, 1);
	assert_int_equal(rundir_find(buf, sizeof(buf)), 0);
	snprintf(wanted, sizeof(wanted), "%s/verbena-%lu", here.dir, (unsigned long)ns.st_ino);
	assert_string_equal(buf, wanted);
	/* Unusable ones are passed over. */
	snprintf(wanted, sizeof(wanted), "/tmp/verbena-%u-%lu", (unsigned int)geteuid(),
		 (unsigned long)ns.st_ino);
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	assert_int_equal(rundir_find(buf, sizeof(buf)), 0);
	assert_string_equal(buf, wanted);
	setenv("XDG_RUNTIME_DIR", "relative", 1);
	assert_int_equal(rundir_find(buf, sizeof(buf)), 0);
	assert_string_equal(buf, wanted);
	unsetenv("XDG_RUNTIME_DIR");
}

static void directory_must_be_ours(void **state)
{
	char path[128], link[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/dir", here.dir);
	snprintf(link, sizeof(link), "%s/link", here.dir);
	assert_int_equal(rundir_check(path), -ENOENT);
	assert_int_equal(rundir_make(path), 0);
	assert_int_equal(rundir_make(path), 0);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(rundir_make(path), -EPERM);
	assert_int_equal(chmod(path, 0720), 0);
	assert_int_equal(rundir_make(path), -EPERM);
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(rundir_make(path), 0);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(rundir_check(link), -ENOTDIR);
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 1234, 1234), 0);
		assert_int_equal(rundir_check(path), -EPERM);
		/* No client connects to a socket in there. */
		setenv("VERBENA_RUNTIME_DIR", path, 1);
		assert_int_equal(start_connect(NULL), -EPERM);
	}
	rmdir(path);
}

/* ------------------------------------------------------------------ starting */

/* A program's first calls. Exits with 0 when it found the device, and writes the daemon's pid. */
static pid_t one_program(int report)
{
	pid_t child = fork();

	assert_true(child >= 0);
	if (child)
		return child;
	struct proto_device list[4];
	int n = daemon_list_devices(list, 4);
	pid_t pid = daemon_pid();

	if (n == 1 && write(report, &pid, sizeof(pid)) == sizeof(pid))
		_exit(0);
	_exit(1);
}

static void fifty_at_once_get_one_daemon(void **state)
{
	enum { PROGRAMS = 50 };
	pid_t child[PROGRAMS], seen, first = 0;
	int report[2], status;

	(void)state;
	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	for (int i = 0; i < PROGRAMS; i++)
		child[i] = one_program(report[1]);
	close(report[1]);
	for (int i = 0; i < PROGRAMS; i++) {
		assert_int_equal(waitpid(child[i], &status, 0), child[i]);
		assert_int_equal(status, 0);
	}
	for (int i = 0; i < PROGRAMS; i++) {
		assert_int_equal(read(report[0], &seen, sizeof(seen)), sizeof(seen));
		assert_true(seen > 0);
		if (!first)
			first = seen;
		assert_int_equal(seen, first);
	}
	close(report[0]);
}

static void *list_devices(void *arg)
{
	struct proto_device list[4];

	*(int *)arg = daemon_list_devices(list, 4);
	return NULL;
}

static void threads_start_one_too(void **state)
{
	pthread_t thread[8];
	int result[8];

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, list_devices, &result[i]), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(result[i], 1);
	}
}

/* The daemon exits after 1 ms without clients; programs keep connecting at that moment. */
static void nobody_is_lost_when_it_leaves(void **state)
{
	enum { ROUNDS = 60, PROGRAMS = 3 };
	pid_t child[PROGRAMS];
	int report[2], status;

	(void)state;
	setenv("VERBENA_IDLE_MS", "1", 1);
	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < PROGRAMS; i++)
			child[i] = one_program(report[1]);
		for (int i = 0; i < PROGRAMS; i++) {
			assert_int_equal(waitpid(child[i], &status, 0), child[i]);
			assert_int_equal(status, 0);
		}
	}
	close(report[0]);
	close(report[1]);
}

static void a_killed_daemon_is_replaced(void **state)
{
	struct proto_device list[4];

	(void)state;
	assert_int_equal(daemon_list_devices(list, 4), 1);
	pid_t first = daemon_pid();

	assert_true(first > 1);
	assert_int_equal(kill(first, SIGKILL), 0);
	for (int i = 0; i < RAW_NAPS && kill(first, 0) == 0; i++)
		raw_nap();
	assert_int_equal(daemon_list_devices(list, 4), 1);
	assert_int_not_equal(daemon_pid(), first);
	assert_true(daemon_pid() > 1);
}

static void a_second_daemon_by_hand_refuses(void **state)
{
	struct proto_device list[4];
	int status;

	(void)state;
	assert_int_equal(daemon_list_devices(list, 4), 1);
	int keep = start_connect(NULL);

	assert_true(keep >= 0);
	pid_t child = fork();

	if (child == 0) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 2);
		execl(getenv("VERBENA_DAEMON"), "verbenad", "--runtime-dir", here.dir, NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	close(keep);
}

/* Its directory was deleted: no client can find it, so it must exit. */
static void without_its_directory_it_leaves(void **state)
{
	struct proto_device list[4];

	(void)state;
	assert_int_equal(daemon_list_devices(list, 4), 1);
	pid_t daemon = daemon_pid();

	assert_true(daemon > 1);
	raw_daemon_remove(&here);
	for (int i = 0; i < RAW_NAPS && kill(daemon, 0) == 0; i++)
		raw_nap();
	assert_int_equal(kill(daemon, 0), -1);
}

static void without_a_daemon_it_says_so(void **state)
{
	char *daemon = strdup(getenv("VERBENA_DAEMON"));
	struct proto_device list[4];

	(void)state;
	setenv("VERBENA_DAEMON", "/nonexistent/verbenad", 1);
	assert_int_equal(daemon_list_devices(list, 4), -ENODEV);
	/* One that ends at once, and one that isn't a program. */
	setenv("VERBENA_DAEMON", "/bin/false", 1);
	assert_int_equal(daemon_list_devices(list, 4), -ENODEV);
	setenv("VERBENA_DAEMON", "/etc/passwd", 1);
	assert_true(daemon_list_devices(list, 4) < 0);
	setenv("VERBENA_DAEMON", daemon, 1);
	free(daemon);
}

/* ------------------------------------------------------------------ the program notices nothing */

static volatile sig_atomic_t children_ended;

static void on_sigchld(int signal)
{
	(void)signal;
	children_ended++;
}

static long open_descriptors(const char *path)
{
	DIR *dir = opendir(path);
	long count = -2;

	if (!dir)
		return -1;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void the_program_notices_nothing(void **state)
{
	struct proto_device list[4];
	sigset_t before, after;
	char path[64];

	(void)state;
	/* Without close-on-exec: the daemon must not get it. */
	int leaky = open("/dev/zero", O_RDONLY);

	signal(SIGCHLD, on_sigchld);
	signal(SIGUSR1, SIG_IGN);
	sigprocmask(SIG_SETMASK, NULL, &before);
	long fds = open_descriptors("/proc/self/fd");

	assert_int_equal(daemon_list_devices(list, 4), 1);
	sigprocmask(SIG_SETMASK, NULL, &after);
	for (int s = 1; s < NSIG; s++)
		assert_int_equal(sigismember(&before, s), sigismember(&after, s));
	assert_int_equal(open_descriptors("/proc/self/fd"), fds);
	assert_int_equal(children_ended, 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	pid_t pid = daemon_pid();

	/* Of the program's: nothing. Its own: 0-2, directory, pid file, roster, spare, epoll,
	 * signals, two of netlink, three sockets, the table of groups. */
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	assert_in_range(open_descriptors(path), 8, 16);
	assert_int_not_equal(getsid(pid), getsid(0));
	signal(SIGCHLD, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
	close(leaky);
}

static void closed_standard_descriptors_stay_closed(void **state)
{
	int status;

	(void)state;
	pid_t child = fork();

	if (child == 0) {
		close(0);
		close(1);
		close(2);
		int fd = start_connect(NULL);

		_exit(fd > 2 && fcntl(1, F_GETFD) < 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void few_descriptors_are_an_error(void **state)
{
	struct proto_device list[4];
	int taken[1024], count = 0, fd;

	(void)state;
	while (count < 1024 && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		taken[count++] = fd;
	if (count < 1024)
		assert_int_equal(daemon_list_devices(list, 4), -EMFILE);
	while (count)
		close(taken[--count]);
	assert_int_equal(daemon_list_devices(list, 4), 1);
}

/* Another network namespace counts as another host: its programs get an error and aren't served. */
static void a_daemon_of_another_host_is_refused(void **state)
{
	struct proto_device list[4];
	int status;

	(void)state;
	assert_int_equal(daemon_list_devices(list, 4), 1);
	pid_t child = fork();

	if (child == 0) {
		if (netns_enter(1))
			_exit(77);
		_exit(daemon_list_devices(list, 4) == -EXDEV ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
	assert_int_equal(daemon_list_devices(list, 4), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)
	const struct CMUnitTest tests[] = {
		TEST(directory_from_the_environment),
		TEST(directory_by_user_and_namespace),
		TEST(directory_must_be_ours),
		TEST(fifty_at_once_get_one_daemon),
		TEST(threads_start_one_too),
		TEST(nobody_is_lost_when_it_leaves),
		TEST(a_killed_daemon_is_replaced),
		TEST(a_second_daemon_by_hand_refuses),
		TEST(without_its_directory_it_leaves),
		TEST(without_a_daemon_it_says_so),
		TEST(the_program_notices_nothing),
		TEST(closed_standard_descriptors_stay_closed),
		TEST(few_descriptors_are_an_error),
		TEST(a_daemon_of_another_host_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
