/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a peer's process runs: with its number, and in another PID namespace, where it has
 * none. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hca/local/peer.h"

/* A process whose end the kernel reports in `life`. It ends with the test. */
static pid_t process_start(struct process_life *life)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		close(ready[0]);
		if (!life_begin(life) && write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void runs_until_stopped_or_dead(void **state)
{
	struct process_life *life = mmap(NULL, sizeof(*life), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(life, MAP_FAILED);
	pid_t pid = process_start(life);
	const struct peer_process near = {.pid = pid, .fd = -1, .life = life};
	const struct peer_process far = {.pid = 0, .fd = -1, .life = life};

	assert_true(peer_runs(&near));
	assert_true(peer_runs(&far));
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
	assert_false(peer_runs(&near));
	assert_true(peer_runs(&far)); /* it isn't visible that it is stopped */
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(peer_runs(&near));
	assert_false(peer_runs(&far));
	munmap(life, sizeof(*life));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_until_stopped_or_dead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
