/* SPDX-License-Identifier: BSD-2-Clause */
/* A bell wakes a thread that sleeps in epoll, until it is quieted; and no setting by a hostile peer
 * that shares it makes either side block. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm/bell.h"

enum { SOON_MS = 10000, HANG_S = 60 };

struct rig {
	int bell, epoll;
};

static int setup(void **state)
{
	static struct rig rig;
	struct epoll_event e = {.events = EPOLLIN};

	rig.bell = bell_make();
	rig.epoll = epoll_create1(EPOLL_CLOEXEC);
	*state = &rig;
	alarm(HANG_S); /* a call that blocks ends the test */
	return rig.bell < 0 || epoll_ctl(rig.epoll, EPOLL_CTL_ADD, rig.bell, &e);
}

static int teardown(void **state)
{
	const struct rig *rig = *state;

	alarm(0);
	close(rig->bell);
	close(rig->epoll);
	return 0;
}

static int wait_for(const struct rig *rig, int ms)
{
	struct epoll_event e;

	return epoll_wait(rig->epoll, &e, 1, ms);
}

static void rings_until_it_is_quieted(void **state)
{
	const struct rig *rig = *state;

	assert_int_equal(wait_for(rig, 0), 0);
	for (int i = 0; i < 100; i++) {
		for (int n = 0; n <= i % 3; n++)
			assert_int_equal(bell_ring(rig->bell), 0);
		assert_int_equal(wait_for(rig, SOON_MS), 1);
		assert_int_equal(wait_for(rig, 0), 1);
		assert_int_equal(bell_quiet(rig->bell), 0);
		assert_int_equal(wait_for(rig, 0), 0);
	}
}

/* A hostile peer may change the flags, the period and the setting at any time. */
static void a_stranger_blocks_nobody(void **state)
{
	const struct rig *rig = *state;
	const struct itimerspec often = {.it_value.tv_nsec = 1, .it_interval.tv_nsec = 1};
	const struct itimerspec later = {.it_value.tv_sec = INT32_MAX};
	int stranger = dup(rig->bell);

	assert_int_equal(fcntl(stranger, F_SETFL, 0), 0); /* not O_NONBLOCK */
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(timerfd_settime(stranger, 0, i % 2 ? &often : &later, NULL), 0);
		assert_int_equal(bell_ring(rig->bell), 0);
		assert_int_equal(wait_for(rig, SOON_MS), 1);
		assert_int_equal(timerfd_settime(stranger, 0, &later, NULL), 0);
		assert_int_equal(bell_quiet(rig->bell), 0);
		assert_int_equal(wait_for(rig, 0), 0);
	}
	close(stranger);
}

static void knows_a_bell(void **state)
{
	const struct rig *rig = *state;
	int other = eventfd(0, EFD_CLOEXEC);

	assert_true(bell_is_one(rig->bell));
	assert_false(bell_is_one(other));
	assert_false(bell_is_one(-1));
	assert_int_equal(bell_ring(other), -EINVAL);
	assert_int_equal(bell_quiet(-1), -EBADF);
	close(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rings_until_it_is_quieted, setup, teardown),
		cmocka_unit_test_setup_teardown(a_stranger_blocks_nobody, setup, teardown),
		cmocka_unit_test_setup_teardown(knows_a_bell, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
