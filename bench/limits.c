/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This machine's own limits: what no library that does Verbena's work in software can be faster
 * than. Two processes, each pinned to a core of its own, and one line "name value" for each figure:
 *
 *   line_ns          a cache line goes from one core to the other, one way (half a round trip)
 *   memcpy_MBs       memcpy of 1 MiB, both buffers warm, in 10^6 bytes a second
 *   vm_write_ns      process_vm_writev of 8 bytes into the other process
 *   vm_write_MBs     process_vm_writev of 1 MiB
 *   vm_read_ns, vm_read_MBs   the same of process_vm_readv
 *
 * Each is the median of many runs of some microseconds, so that it holds on a busy machine as well:
 * a run during which a process lost its core is one run. perftest's "typical" is such a median too.
 * The two processes share one anonymous mapping; the peer only spins or sleeps.
 *
 * usage: limits [CORE_A CORE_B]
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { RUNS = 4000, LARGE = 1 << 20 };

/* Two words on lines (and prefetched pairs of lines) of their own. */
struct shared {
	_Alignas(256) _Atomic uint32_t ping;
	_Alignas(256) _Atomic uint32_t pong;
};

static struct shared *shared;
static int core_a, core_b = 1;

/* The median of calls of `run`, each of which returns ns for one operation, in `seconds`. */
static double median(double (*run)(void), double seconds)
{
	static double result[RUNS];
	double end = now() + seconds * 1e9;
	int n = 0;

	run(); /* caches, page tables, clock frequency */
	while (n < RUNS && (n < 3 || now() < end))
		result[n++] = run();
	qsort(result, n, sizeof(result[0]), compare);
	return result[n / 2];
}

/* ------------------------------------------------------------------ cache line */

enum { TURNS = 100 };
static uint32_t turn;

static double line_run(void)
{
	double start = now();

	for (int i = 0; i < TURNS; i++) {
		atomic_store_explicit(&shared->ping, ++turn, memory_order_release);
		while (atomic_load_explicit(&shared->pong, memory_order_acquire) != turn)
			;
	}
	return (now() - start) / TURNS / 2;
}

static _Noreturn void echo(void)
{
	pin(core_b);
	for (uint32_t expected = 1;; expected++) {
		while (atomic_load_explicit(&shared->ping, memory_order_acquire) != expected)
			;
		atomic_store_explicit(&shared->pong, expected, memory_order_release);
	}
}

/* ------------------------------------------------------------------ copies */

static pid_t target;
static uint8_t *mine, *theirs; /* theirs: mapped at the same address in both processes, private */
static uint32_t copy_size, copy_count;
static ssize_t (*copy_call)(pid_t, const struct iovec *, unsigned long, const struct iovec *,
			    unsigned long, unsigned long);

static double copy_run(void)
{
	struct iovec local = {mine, copy_size}, remote = {theirs, copy_size};
	double start = now();

	for (uint32_t i = 0; i < copy_count; i++)
		if (copy_call(target, &local, 1, &remote, 1, 0) != (ssize_t)copy_size)
			give_up("process_vm_writev (are processes here allowed to debug "
				"children?)");
	return (now() - start) / copy_count;
}

static double memcpy_run(void)
{
	double start = now();

	for (int i = 0; i < 4; i++) {
		memcpy(theirs, mine, LARGE);
		__asm__ volatile("" ::"r"(theirs) : "memory");
	}
	return (now() - start) / 4;
}

static _Noreturn void be_a_target(void)
{
	pin(core_b);
	memset(theirs, 2, LARGE);
	atomic_store(&shared->pong, 1);
	for (;;)
		pause();
}

/* ------------------------------------------------------------------ */

static pid_t child(void (*body)(void))
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		give_up("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		body();
	_exit(1);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static uint8_t *map(int flags)
{
	uint8_t *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		give_up("mmap");
	return p;
}

static void report_copies(const char *name)
{
	copy_size = 8;
	copy_count = 20;
	printf("vm_%s_ns %.1f\n", name, median(copy_run, 0.3));
	copy_size = LARGE;
	copy_count = 2;
	printf("vm_%s_MBs %.0f\n", name, LARGE * 1e3 / median(copy_run, 0.3));
}

int main(int argc, char **argv)
{
	if (argc == 3) {
		core_a = atoi(argv[1]);
		core_b = atoi(argv[2]);
	}
	shared = (struct shared *)map(MAP_SHARED);
	mine = map(MAP_PRIVATE);
	theirs = map(MAP_PRIVATE);
	memset(mine, 1, LARGE);
	pin(core_a);

	pid_t pid = child(echo);

	printf("line_ns %.1f\n", median(line_run, 0.5));
	end(pid);

	memset(theirs, 0, LARGE);
	printf("memcpy_MBs %.0f\n", LARGE * 1e3 / median(memcpy_run, 0.2));

	atomic_store(&shared->pong, 0);
	target = child(be_a_target);
	while (!atomic_load(&shared->pong))
		usleep(100);
	copy_call = process_vm_writev;
	report_copies("write");
	copy_call = process_vm_readv;
	report_copies("read");
	end(target);
	return 0;
}
