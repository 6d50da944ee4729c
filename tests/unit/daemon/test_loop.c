/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's loop shares its time out to the owners of the watches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/core/loop.h"

enum { GREEDY = 40, ALICE = 1, BOB = 2, EACH_NS = 500000 };

static int handled[3];

/* Takes its time, and stays ready. */
static void take_time(struct watch *watch, uint32_t events)
{
	uint64_t until = clock_ns() + EACH_NS;

	(void)events;
	handled[watch->owner]++;
	while (clock_ns() < until)
		;
}

static void an_owner_delays_others_by_its_time_only(void **state)
{
	struct loop loop = {0};
	struct watch watches[GREEDY + 1];

	(void)state;
	assert_int_equal(loop_init(&loop), 0);
	for (int i = 0; i <= GREEDY; i++) {
		int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

		assert_true(fd >= 0);
		watches[i] = (struct watch){
			.fd = -1, .owner = i < GREEDY ? ALICE : BOB, .ready = take_time};
		assert_int_equal(loop_add(&loop, &watches[i], fd, EPOLLIN), 0);
	}
	for (int round = 1; round <= 3; round++) {
		assert_int_equal(loop_round(&loop, 0), GREEDY + 1);
		assert_int_equal(handled[BOB], round);
		assert_in_range(handled[ALICE], round, round * LOOP_OWNER_NS / EACH_NS);
	}
	for (int i = 0; i <= GREEDY; i++) {
		int fd = watches[i].fd;

		loop_remove(&loop, &watches[i]);
		close(fd);
	}
	loop_fini(&loop);
}

/* The daemon's own watches have no owner. */
static void the_daemon_takes_what_it_needs(void **state)
{
	struct loop loop = {0};
	struct watch watches[GREEDY];

	(void)state;
	handled[0] = 0;
	assert_int_equal(loop_init(&loop), 0);
	for (int i = 0; i < GREEDY; i++) {
		watches[i] = (struct watch){.fd = -1, .ready = take_time};
		assert_int_equal(loop_add(&loop, &watches[i], eventfd(1, EFD_CLOEXEC), EPOLLIN), 0);
	}
	assert_int_equal(loop_round(&loop, 0), GREEDY);
	assert_int_equal(handled[0], GREEDY);
	for (int i = 0; i < GREEDY; i++)
		close(watches[i].fd);
	loop_fini(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_owner_delays_others_by_its_time_only),
		cmocka_unit_test(the_daemon_takes_what_it_needs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
