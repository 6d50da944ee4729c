/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that must not block makes no call to the daemon: no packet is sent, no answer awaited.
 * Calls that don't block are allowed, and other threads aren't affected. A user's limit of
 * descriptors in messages is waited for. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/blocking.h"
#include "client/call.h"
#include "proto/proto.h"

static int ends[2];

static void *forbidden_thread(void *arg)
{
	int *result = arg;
	uint32_t word = 7;
	int fds[PROTO_MAX_FDS];

	blocking_forbid();
	/* What doesn't block is allowed. */
	assert_int_equal(packet_receive(ends[0], &word, sizeof(word), fds, MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(packet_send(ends[0], &word, sizeof(word), NULL, 0, MSG_DONTWAIT), 0);
	*result = socket_call(ends[0], &word, sizeof(word), NULL, 0, NULL, 0, NULL);
	return NULL;
}

/* In a child: where the ranks of locks are checked, the forbidden call aborts. */
static int child(void)
{
	pthread_t thread;
	int result = 0;

	setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
	alarm(120); /* a call that waits is the fault under test */
	pthread_create(&thread, NULL, forbidden_thread, &result);
	pthread_join(thread, NULL);
	return result == -EDEADLK ? 0 : 1;
}

static void refused_on_such_a_thread(void **state)
{
	uint32_t word;
	int status;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	pid_t pid = fork();

	if (!pid)
		_exit(child());
	assert_int_equal(waitpid(pid, &status, 0), pid);
#ifdef VERBENA_LOCK_RANKS
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
#endif
	/* The packet that was allowed, and no other. */
	assert_int_equal(recv(ends[1], &word, sizeof(word), MSG_DONTWAIT), sizeof(word));
	assert_int_equal(recv(ends[1], &word, sizeof(word), MSG_DONTWAIT), -1);
	close(ends[0]);
	close(ends[1]);
}

static void allowed_on_others(void **state)
{
	struct proto_reply reply = {0};
	uint32_t word = 7;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(send(ends[1], &reply, sizeof(reply), 0), sizeof(reply));
	assert_int_equal(socket_call(ends[0], &word, sizeof(word), NULL, 0, NULL, 0, NULL), 0);
	close(ends[0]);
	close(ends[1]);
}

/* ------------------------------------------------------------------ descriptors in messages */

enum { LIMIT = 32, OTHER_USER = 61234, NOT_HERE = 1 };

static int in_messages[2];

/* Receives, and so closes, all of them, a moment after they have become too many. */
static void *receives_later(void *arg)
{
	int fds[PROTO_MAX_FDS];
	uint32_t word;

	(void)arg;
	usleep(20000);
	while (packet_receive(in_messages[1], &word, sizeof(word), fds, MSG_DONTWAIT) > 0)
		for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	return NULL;
}

/* In a child, as a user without privileges. Returns 0, NOT_HERE, or the line of what is wrong. */
static int too_many(void)
{
	int fds[PROTO_MAX_FDS];
	uint32_t word = 7;
	pthread_t thread;
	int result = 0;

	/* Other tests of this user may have as many of its descriptors in messages. */
	if (setresgid(OTHER_USER, OTHER_USER, OTHER_USER) < 0 ||
	    setresuid(OTHER_USER, OTHER_USER, OTHER_USER) < 0)
		return NOT_HERE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, in_messages) < 0)
		return __LINE__;
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){LIMIT, LIMIT});
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		fds[i] = in_messages[1];
	for (unsigned int i = 0; !result && i < 4 * LIMIT; i++)
		result = packet_send(in_messages[0], &word, sizeof(word), fds, PROTO_MAX_FDS,
				     MSG_DONTWAIT);
	if (result != -ETOOMANYREFS)
		return __LINE__;
	if (pthread_create(&thread, NULL, receives_later, NULL))
		return __LINE__;
	if (packet_send(ends[0], &word, sizeof(word), fds, PROTO_MAX_FDS, 0))
		return __LINE__;
	pthread_join(thread, NULL);
	return 0;
}

static void waits_for_the_limit(void **state)
{
	int status;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	pid_t pid = fork();

	if (!pid)
		_exit(too_many());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(ends[0]);
	close(ends[1]);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NOT_HERE)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_for_the_limit),
		cmocka_unit_test(refused_on_such_a_thread),
		cmocka_unit_test(allowed_on_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
