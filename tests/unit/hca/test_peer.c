/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a peer's process runs: with its number, and in another PID namespace, where it has none.
 * Whether a thread that is stopped has made its copy. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/proc_file.h"
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

/* ------------------------------------------------------------------ where a thread is stopped */

enum { COPIED = 4 << 20 };

static int silent[2]; /* a pipe into which no byte is written */

static void read_in_handler(int number)
{
	char byte;

	(void)number;
	if (read(silent[0], &byte, 1) < 0)
		_exit(1);
}

/* Makes copies without end, by calls of its own process, or runs in its own code. A signal
 * interrupts it, whose handler reads without end. */
static pid_t copier_start(bool copies)
{
	const pid_t parent = getpid();
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	uint8_t *memory = malloc(2ul * COPIED);
	struct iovec to = {memory, COPIED}, from = {memory + COPIED, COPIED};

	if (!memory || prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	memset(memory, 1, 2ul * COPIED);
	while (!copies || process_vm_readv(getpid(), &to, 1, &from, 1, 0) == COPIED)
		;
	_exit(1);
}

static void copier_stop(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (WIFEXITED(status))
		skip(); /* process_vm_readv() isn't permitted */
}

static void copier_end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static struct process_life no_end;

static void stopped_after_a_copy(void **state)
{
	pid_t pid = copier_start(true);
	const struct peer_process peer = {.pid = pid, .fd = -1, .life = &no_end};

	(void)state;
	/* Nearly always it is in the call, and is stopped at the call's end. */
	for (;;) {
		copier_stop(pid);
		if (peer_stopped_after_copy(&peer, (uint32_t)pid))
			break;
		assert_int_equal(kill(pid, SIGCONT), 0);
	}
	assert_false(peer_stopped_after_copy(&peer, 0));
	assert_false(peer_stopped_after_copy(&peer, (uint32_t)getpid())); /* none of its threads */
	copier_end(pid);
}

static void stopped_in_its_own_code(void **state)
{
	pid_t pid = copier_start(false);
	const struct peer_process peer = {.pid = pid, .fd = -1, .life = &no_end};

	(void)state;
	assert_false(peer_stopped_after_copy(&peer, (uint32_t)pid));
	copier_stop(pid);
	assert_false(peer_stopped_after_copy(&peer, (uint32_t)pid));
	copier_end(pid);
}

static bool is_reading(pid_t pid)
{
	char line[128];

	return proc_file_read(pid, "syscall", line, sizeof(line)) &&
	       strtol(line, NULL, 10) == SYS_read && line[0] != 'r';
}

/* A handler has interrupted the thread before its copy: the copy is still to come. */
static void stopped_in_a_handlers_call(void **state)
{
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(silent), 0);
	signal(SIGUSR1, read_in_handler);
	pid = copier_start(false);
	const struct peer_process peer = {.pid = pid, .fd = -1, .life = &no_end};

	assert_int_equal(kill(pid, SIGUSR1), 0);
	while (!is_reading(pid))
		sched_yield();
	copier_stop(pid);
	assert_int_equal(peer_state(&peer), 'T');
	assert_false(peer_stopped_after_copy(&peer, (uint32_t)pid));
	copier_end(pid);
	close(silent[0]);
	close(silent[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_until_stopped_or_dead),
		cmocka_unit_test(stopped_after_a_copy),
		cmocka_unit_test(stopped_in_its_own_code),
		cmocka_unit_test(stopped_in_a_handlers_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
