/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that must not block makes no call to the daemon: no packet is sent, no answer awaited.
 * Calls that don't block are allowed, and other threads aren't affected. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused_on_such_a_thread),
		cmocka_unit_test(allowed_on_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
