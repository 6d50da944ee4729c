/* SPDX-License-Identifier: BSD-2-Clause */
/* Children of a process whose threads are in libibumad: none finds a lock held, or a broken list.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "umad/memory.h"

enum { THREADS = 2, FORKS = 500, PORT = 5, HANGS_AFTER_S = 60, PACKET = 320 };

static atomic_bool over;

static void *sends_and_forgets(void *number)
{
	_Alignas(8) uint8_t packet[PACKET] = {(uint8_t)(uintptr_t)number};

	((struct ib_user_mad *)packet)->timeout_ms = 1000;
	while (!atomic_load(&over)) {
		memory_sent(PORT, packet, sizeof(packet));
		memory_sent(PORT, packet, sizeof(packet));
		memory_unsent(PORT, packet);
		memory_unsent(PORT, packet);
	}
	return NULL;
}

static _Noreturn void child_uses_port(void)
{
	_Alignas(8) uint8_t packet[PACKET] = {7};

	alarm(HANGS_AFTER_S);
	((struct ib_user_mad *)packet)->timeout_ms = 1000;
	memory_sent(PORT, packet, sizeof(packet));
	while (memory_unanswered(PORT, packet, sizeof(packet)) > 0)
		;
	memory_close(PORT);
	_exit(memory_number(PORT) == -1 ? 0 : 1);
}

static void children_of_busy_threads(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	assert_int_equal(memory_open(PORT, 3), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, sends_and_forgets, (void *)i),
				 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status = -1;

		if (!pid)
			child_uses_port();
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	atomic_store(&over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	memory_close(PORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(children_of_busy_threads)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
