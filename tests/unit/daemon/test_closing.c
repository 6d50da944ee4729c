/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors whose last close() blocks. A client hands the daemon sockets that linger, in each way
 * in which descriptors can come, and gives up its own, so that the daemon's are the last. The
 * daemon must go on serving the other clients meanwhile. A close lingers longer than the whole test
 * may take: an answer to another client can't come after it.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/core/closer.h"
#include "raw.h"

/* FILES_A_CONNECTION: as in setup.c. */
enum { ALICE = 60001, BOB = 60002, FILES = 160, FILES_A_CONNECTION = 8, LOT = 4 };
enum { LINGER_S = 900, PEERS_MAX = 1024, CALLS = 50, MANY = 64 };

static int peers[PEERS_MAX], peer_count;
static long fds_before;

/* A socket that has more to send than its peer's buffer takes. The peer doesn't read. */
static int lingering_socket(void)
{
	static const char data[65536];
	const struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(listener >= 0 && fd >= 0 && peer_count < PEERS_MAX);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &size), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	peers[peer_count] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(peers[peer_count++] >= 0);
	close(listener);
	while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}

/* Ends the lingering. */
static void close_peers(void)
{
	while (peer_count)
		close(peers[--peer_count]);
}

/* The daemon's closing threads. */
static long daemon_threads(void)
{
	char path[400], name[32] = ""; /* may be compared in one piece */
	const struct dirent *entry;
	long count = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", server.pid);
	DIR *dir = opendir(path);

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", server.pid, entry->d_name);
		FILE *file = fopen(path, "r");

		/* A thread may end meanwhile. */
		count += file && fgets(name, sizeof(name), file) &&
			 !strcmp(name, CLOSER_THREAD "\n");
		if (file)
			fclose(file);
	}
	closedir(dir);
	return count;
}

static void expect_threads(long wanted)
{
	for (int i = 0; i < RAW_NAPS && daemon_threads() != wanted; i++)
		raw_nap();
	assert_int_equal(daemon_threads(), wanted);
}

static int call_list_devices(int fd)
{
	struct proto_list_devices_resp resp;

	return raw_call(fd, PROTO_LIST_DEVICES, NULL, 0, &resp, sizeof(resp));
}

/* The daemon serves others: so many requests one after the other, each on a new connection, that
 * the loop has handled whatever came before them. */
static void expect_service(void)
{
	for (int i = 0; i < CALLS; i++) {
		int fd = raw_connect(&server);

		assert_int_equal(call_list_devices(fd), 0);
		close(fd);
	}
	assert_int_equal(raw_count(&server, "clients"), 0);
}

static int before(void **state)
{
	(void)state;
	/* The daemon has finished starting, and closing what earlier clients left. */
	expect_service();
	int fd = raw_connect(&server);

	for (int i = 0; i < CALLS; i++)
		assert_int_equal(call_list_devices(fd), 0);
	fds_before = raw_daemon_fds(&server) - 1;
	close(fd);
	return 0;
}

/* What the daemon was sent is closed once that is possible, and no thread is left. */
static int after(void **state)
{
	(void)state;
	close_peers();
	expect_threads(0);
	raw_expect_fds_equal(&server, fds_before);
	return 0;
}

/* The daemon's last close() is meant: it must not get to a packet before the test has closed its
 * own descriptors. */
static void daemon_pause(void)
{
	int status;

	assert_int_equal(kill(server.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(server.pid, &status, WUNTRACED), server.pid);
	assert_true(WIFSTOPPED(status));
}

static void daemon_continue(void)
{
	assert_int_equal(kill(server.pid, SIGCONT), 0);
}

/* A well-formed request that wants no descriptor, with `count` of them. */
static void send_with(int fd, const int *fds, unsigned int count)
{
	const struct ib_uverbs_cmd_hdr header = {
		.command = PROTO_LIST_DEVICES, .in_words = sizeof(header) / 4, .out_words = 1024};

	assert_int_equal(raw_send(fd, &header, sizeof(header), fds, count), 0);
}

/* Sends lingering sockets with such a request and gives them up. */
static void send_lingering(int fd, unsigned int count)
{
	int fds[MANY];

	for (unsigned int i = 0; i < count; i++)
		fds[i] = lingering_socket();
	daemon_pause();
	send_with(fd, fds, count);
	for (unsigned int i = 0; i < count; i++)
		close(fds[i]);
	daemon_continue();
}

/* Attaches with these descriptors, and gives up `lingering`, one of them. */
static int attach_giving_up(int fd, int table, int doorbell, int lingering)
{
	struct proto_attach_resp resp;

	daemon_pause();
	raw_attach_send(fd, &(struct proto_attach){.abi = PROTO_ABI}, (int[]){table, doorbell}, 2);
	close(lingering);
	daemon_continue();
	return raw_receive(fd, &resp, sizeof(resp), NULL);
}

/* ------------------------------------------------------------------ refused */

static void attaching_with_a_lingering_socket(void **state)
{
	int fd = raw_connect(&server), bell = eventfd(0, EFD_NONBLOCK), table = raw_table();
	int as_table = lingering_socket(), as_bell = lingering_socket();

	(void)state;
	assert_int_equal(attach_giving_up(fd, as_table, bell, as_table), -EINVAL);
	assert_int_equal(attach_giving_up(fd, table, as_bell, as_bell), -EINVAL);
	expect_service();
	/* The user's thread lingers at the first of the two. */
	expect_threads(1);
	close(fd);
	close(bell);
	close(table);
}

static void a_request_that_wants_no_descriptor(void **state)
{
	int fd = raw_connect(&server), cm = raw_connect_cm(&server);

	(void)state;
	send_lingering(fd, 1);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EINVAL);
	send_lingering(cm, 1);
	assert_int_equal(raw_receive(cm, NULL, 0, NULL), -EINVAL);
	expect_service();
	close(fd);
	close(cm);
}

static void more_descriptors_than_any_request_has(void **state)
{
	int fd = raw_connect(&server);

	(void)state;
	send_lingering(fd, MANY);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EMFILE);
	/* The connection goes on. */
	assert_int_equal(call_list_devices(fd), 0);
	expect_service();
	close(fd);
}

static void a_request_to_ctl(void **state)
{
	static const char request[] = "{\"op\":\"status\"}\n";
	int fd = raw_connect_ctl(&server), socket = lingering_socket();
	char byte;

	(void)state;
	daemon_pause();
	assert_int_equal(raw_send(fd, request, sizeof(request) - 1, &socket, 1), 0);
	close(socket);
	daemon_continue();
	ssize_t n = recv(fd, &byte, 1, 0);

	assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
	expect_service();
	close(fd);
}

/* ------------------------------------------------------------------ never received */

/* The client has gone when the daemon gets to its packets. */
static void packets_left_in_the_socket(void **state)
{
	int socket = lingering_socket(), fd, cm, ctl;

	(void)state;
	daemon_pause();
	fd = raw_connect(&server);
	cm = raw_connect_cm(&server);
	ctl = raw_connect_ctl(&server);
	send_with(fd, NULL, 0);
	send_with(fd, &socket, 1);
	assert_int_equal(raw_send(cm, "", 0, &socket, 1), 0); /* an empty packet */
	assert_int_equal(raw_send(ctl, "x", 1, NULL, 0), 0);
	assert_int_equal(raw_send(ctl, "x", 1, &socket, 1), 0);
	close(socket);
	close(fd);
	close(cm);
	close(ctl);
	daemon_continue();
	expect_service();
	expect_threads(1);
}

static void an_empty_packet(void **state)
{
	int fd = raw_connect(&server), socket = lingering_socket();

	(void)state;
	daemon_pause();
	assert_int_equal(raw_send(fd, "", 0, &socket, 1), 0);
	close(socket);
	daemon_continue();
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EPIPE);
	expect_service();
	close(fd);
}

/* The process has no descriptors left for those that come, so that recvmsg() would close them. */
static void no_room_for_descriptors(void **state)
{
	int fd = raw_connect(&server), other = raw_connect(&server);
	struct rlimit old, little;

	(void)state;
	assert_int_equal(call_list_devices(fd), 0);
	assert_int_equal(call_list_devices(other), 0);
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, NULL, &old), 0);
	little = (struct rlimit){.rlim_cur = (rlim_t)raw_daemon_fds(&server) + MANY / 4,
				 .rlim_max = old.rlim_max};
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &little, NULL), 0);
	send_lingering(fd, MANY);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EMFILE);
	assert_int_equal(call_list_devices(other), 0);
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &old, NULL), 0);
	close(fd);
	close(other);
	expect_service();
}

/* ------------------------------------------------------------------ users */

static int connect_as(uid_t uid)
{
	assert_int_equal(seteuid(uid), 0);
	int fd = raw_connect(&server);

	assert_int_equal(seteuid(0), 0);
	return fd;
}

/* The user may connect. The daemon's loop learns a moment after a closing thread's end of what it
 * has closed. */
static void expect_served(uid_t user)
{
	int err = -EPIPE;

	for (int i = 0; i < RAW_NAPS && err == -EPIPE; i++) {
		int fd = connect_as(user);

		err = call_list_devices(fd);
		close(fd);
		if (err)
			raw_nap();
	}
	assert_int_equal(err, 0);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

/* A daemon that may have FILES descriptors, to whose nodes all users may connect. */
static void start_small(void)
{
	char path[128], program[128], script[512];
	const char *const options[] = {"--config", path, "--idle-ms", "never", NULL};
	char *verbenad = strdup(getenv("VERBENA_DAEMON"));

	assert_non_null(verbenad);
	raw_daemon_stop(&server);
	snprintf(server.dir, sizeof(server.dir), "/tmp/verbena-unit-XXXXXX");
	assert_non_null(mkdtemp(server.dir));
	assert_int_equal(chmod(server.dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/conf", server.dir);
	write_file(path, "node-mode = 0666\nctl-mode = 0666\n", 0644);
	snprintf(program, sizeof(program), "%s/limited", server.dir);
	snprintf(script, sizeof(script), "#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", FILES,
		 verbenad);
	write_file(program, script, 0755);
	assert_int_equal(setenv("VERBENA_DAEMON", program, 1), 0);
	raw_daemon_exec(&server, options);
	assert_int_equal(setenv("VERBENA_DAEMON", verbenad, 1), 0);
	free(verbenad);
	before(NULL);
}

/* Sends packets of LOT lingering sockets each, and gives the sockets up. */
static void send_lots(int fd, int lots)
{
	int fds[MANY];

	for (int i = 0; i < lots * LOT; i++)
		fds[i] = lingering_socket();
	/* One pause for all: SIGSTOP ends a close that lingers. */
	daemon_pause();
	for (int i = 0; i < lots; i++)
		send_with(fd, fds + i * LOT, LOT);
	for (int i = 0; i < lots * LOT; i++)
		close(fds[i]);
	daemon_continue();
}

/* The daemon takes no more descriptors from a user than it can close, so that those of one user
 * can't use up all that it may have. */
static void a_user_with_too_much_to_close(void **state)
{
	const int taken = FILES / FILES_A_CONNECTION / LOT + 1;

	(void)state;
	if (geteuid() != 0)
		skip();
	start_small();
	int greedy = connect_as(BOB), second = connect_as(BOB), alice = connect_as(ALICE);

	assert_int_equal(call_list_devices(second), 0);
	send_lots(greedy, taken + 1);
	for (int i = 0; i < taken; i++)
		assert_int_equal(raw_receive(greedy, NULL, 0, NULL), -EINVAL);
	assert_int_equal(raw_receive(greedy, NULL, 0, NULL), -EMFILE);
	close(greedy);
	/* The user may not connect any more. What is connected is served, and so are other users.
	 */
	int third = connect_as(BOB);

	assert_int_equal(raw_receive(third, NULL, 0, NULL), -EPIPE);
	close(third);
	assert_int_equal(call_list_devices(second), 0);
	close(second);
	assert_int_equal(call_list_devices(alice), 0);
	close(alice);
	expect_service();
	/* When all is closed the user may come again. */
	close_peers();
	expect_threads(0);
	expect_served(BOB);
}

static void the_daemon_ends_meanwhile(void **state)
{
	int fd = raw_connect(&server);

	(void)state;
	send_lingering(fd, 1);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EINVAL);
	expect_threads(1);
	raw_daemon_stop(&server);
	close(fd);
	close_peers();
	raw_daemon_start(&server);
	expect_service();
}

/* The daemon is told to end while connections that it hasn't accepted have such packets. */
static void the_daemon_ends_before_it_accepts(void **state)
{
	int socket = lingering_socket();

	(void)state;
	daemon_pause();
	int fd = raw_connect(&server), cm = raw_connect_cm(&server);

	send_with(fd, &socket, 1);
	send_with(cm, &socket, 1);
	close(socket);
	assert_int_equal(kill(server.pid, SIGTERM), 0);
	daemon_continue();
	raw_daemon_stop(&server);
	close(fd);
	close(cm);
	close_peers();
	raw_daemon_start(&server);
	expect_service();
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, before, after)
	const struct CMUnitTest tests[] = {
		EACH(attaching_with_a_lingering_socket),
		EACH(a_request_that_wants_no_descriptor),
		EACH(more_descriptors_than_any_request_has),
		EACH(a_request_to_ctl),
		EACH(packets_left_in_the_socket),
		EACH(an_empty_packet),
		EACH(no_room_for_descriptors),
		EACH(a_user_with_too_much_to_close),
		cmocka_unit_test(the_daemon_ends_meanwhile),
		cmocka_unit_test(the_daemon_ends_before_it_accepts),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
