/* SPDX-License-Identifier: BSD-2-Clause */
/* Stopping threads. See warden.h. State: the warden, under convert_lock but for what says
 * otherwise. */
#include "hca/mem/warden.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reg.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lines.h"
#include "base/proc_file.h"
#include "base/sys.h"
#include "hca/process/park.h"

enum { THREADS = 256, STACK_BYTES = 32 << 10 };

/* Threads that run stop within microseconds of being scheduled. One that sleeps in the kernel where
 * no signal reaches it (a disk) may never. */
#define STOP_PATIENCE_NS 200000000ull
#define STOP_NAP_NS 20000
/* How long a thread may be listed that has ended. */
#define END_PATIENCE_NS 10000000ull

/* Which side goes on: the warden leaves STARTING, the caller STOPPED. */
enum { STARTING, STOPPED, REFUSED, LET_GO };

/* So often in a row the kernel may forbid it before it isn't tried any more: each time takes
 * END_PATIENCE_NS. */
enum { FORBIDDEN_MOST = 3 };

struct tracee {
	pid_t thread;
	bool stopped;
	int signal; /* that it was about to get */
};

static struct warden {
	_Atomic uint32_t phase; /* a futex */
	pid_t pid, program, caller;
	unsigned int forbidden;	       /* how often in a row */
	struct tracee tracee[THREADS]; /* the warden's until it has stopped them */
	unsigned int count;
	uint8_t stack[STACK_BYTES] __attribute__((aligned(64)));
} warden;

/* ------------------------------------------------------------------ the warden's side */

/*
 * The warden has the caller's thread area, and with it errno. So it makes system calls by itself,
 * and calls nothing of the C library.
 */
static long direct_call(long number, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = 0;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

static uint64_t direct_now_ns(void)
{
	struct timespec now = {0};

	direct_call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static long direct_trace(long request, pid_t thread, long at, long data)
{
	return direct_call(SYS_ptrace, request, thread, at, data);
}

/* System calls that have done nothing when they end with EINTR, and of which the kernel doesn't
 * begin another one by itself: epoll_wait(), semop(), ... */
static bool begins_anew(long call)
{
	return call == SYS_epoll_wait || call == SYS_epoll_pwait || call == SYS_epoll_pwait2 ||
	       call == SYS_rt_sigtimedwait || call == SYS_semop || call == SYS_semtimedop ||
	       call == SYS_recvfrom || call == SYS_recvmsg || call == SYS_accept ||
	       call == SYS_accept4;
}

/* The stop has ended the thread's call with EINTR: ends it instead as the kernel ends those that
 * begin anew unless a handler runs. */
static void call_mend(pid_t thread)
{
	enum { ERESTARTNOHAND = 514 };
	long call = -1, result = 0;

	direct_trace(PTRACE_PEEKUSER, thread, ORIG_RAX * sizeof(long), (long)&call);
	direct_trace(PTRACE_PEEKUSER, thread, RAX * sizeof(long), (long)&result);
	if (call >= 0 && result == -EINTR && begins_anew(call))
		direct_trace(PTRACE_POKEUSER, thread, RAX * sizeof(long), -ERESTARTNOHAND);
}

static void warden_nap(void)
{
	const struct timespec limit = {.tv_nsec = STOP_NAP_NS};

	direct_call(SYS_nanosleep, (long)&limit, 0, 0, 0);
}

/* Waits until the thread has stopped. False: it doesn't. One that has ended is none. */
static bool tracee_await(struct tracee *one, uint64_t until)
{
	int status = 0;

	while (one->thread && !one->stopped) {
		long n = direct_call(SYS_wait4, one->thread, (long)&status, __WALL | WNOHANG, 0);

		if (n == one->thread && WIFSTOPPED(status)) {
			one->stopped = true;
			one->signal = status >> 16 ? 0 : WSTOPSIG(status);
			call_mend(one->thread);
		} else if (n != 0) {
			one->thread = 0;
			return true;
		} else if (direct_now_ns() > until) {
			return false;
		} else {
			warden_nap();
		}
	}
	return true;
}

static pid_t text_number(const char *text)
{
	pid_t number = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		number = number * 10 + (*text - '0');
	return number;
}

static bool is_traced(pid_t thread)
{
	for (unsigned int i = 0; i < warden.count; i++)
		if (warden.tracee[i].thread == thread)
			return true;
	return false;
}

/* Begins to stop the thread: 0 or -errno; -EPERM: it is ending, or may not be traced (Yama's
 * ptrace_scope, another tracer, ...). */
static long thread_trace(pid_t thread)
{
	if (warden.count == THREADS)
		return -E2BIG;
	long err = direct_trace(PTRACE_SEIZE, thread, 0, 0);

	if (!err)
		err = direct_trace(PTRACE_INTERRUPT, thread, 0, 0);
	if (!err)
		warden.tracee[warden.count++] = (struct tracee){.thread = thread};
	return err == -ESRCH ? 0 : err;
}

/* The same for each thread that is new, but for the first one of the process. The folder's names
 * are read by the kernel's call, as in base/lines.c, whose functions set errno. */
static long new_threads_trace(const char *folder)
{
	char buffer[1024] __attribute__((aligned(8))) = {0};
	long n = 0, err = 0;
	long fd = direct_call(SYS_openat, AT_FDCWD, (long)folder,
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	while (!err && (n = direct_call(SYS_getdents64, fd, (long)buffer, sizeof(buffer), 0)) > 0)
		for (long at = 0; !err && at < n; at += *(uint16_t *)(buffer + at + 16)) {
			pid_t thread = text_number(buffer + at + 19);

			if (thread && thread != warden.caller && thread != warden.program &&
			    !park_has(thread) && !is_traced(thread))
				err = thread_trace(thread);
		}
	direct_call(SYS_close, fd, 0, 0, 0);
	return err ? err : n;
}

static bool tracees_await(uint64_t until)
{
	bool all = true;

	for (unsigned int i = 0; i < warden.count; i++)
		all &= tracee_await(&warden.tracee[i], until);
	return all;
}

/* Stops threads until there is no new one. While one runs it may make another. */
static bool others_trace(const char *folder, uint64_t until)
{
	uint64_t ends = direct_now_ns() + END_PATIENCE_NS;
	unsigned int before;
	long err;

	do {
		before = warden.count;
		err = new_threads_trace(folder);
		if (!tracees_await(until))
			return false;
		if (err == -EPERM)
			warden_nap();
	} while (err == -EPERM ? direct_now_ns() < ends : !err && warden.count > before);
	warden.forbidden += err == -EPERM;
	return !err;
}

/*
 * The process's first thread is the last to be stopped and the first to go on: while it is traced
 * the kernel doesn't drop signals for the process that it ignores, but wakes a thread for them. A
 * thread that isn't traced would see its call end with EINTR.
 */
static bool threads_stop(const char *folder)
{
	uint64_t until = direct_now_ns() + STOP_PATIENCE_NS;

	if (!others_trace(folder, until))
		return false;
	if (warden.program == warden.caller)
		return true;
	unsigned int count = warden.count;

	return !thread_trace(warden.program) && tracees_await(until) &&
	       others_trace(folder, until) && warden.count == count + 1;
}

static void tracee_release(const struct tracee *one)
{
	if (one->thread && one->stopped)
		direct_trace(PTRACE_DETACH, one->thread, 0, one->signal);
}

/* Those that haven't stopped are let go by the warden's end. */
static void threads_release(void)
{
	for (unsigned int i = warden.count; i-- > 0;)
		tracee_release(&warden.tracee[i]);
}

static void phase_set(uint32_t phase)
{
	atomic_store(&warden.phase, phase);
	direct_call(SYS_futex, (long)&warden.phase, FUTEX_WAKE, INT_MAX, 0);
}

/* The address space is shared, so the futex is found, though it is another process's. */
static void phase_await_change(uint32_t phase)
{
	const struct timespec limit = {.tv_nsec = 10000000};

	direct_call(SYS_futex, (long)&warden.phase, FUTEX_WAIT, phase, (long)&limit);
}

static int warden_run(void *folder)
{
	const uint64_t all = ~(uint64_t)0;

	direct_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof(all));
	direct_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
	bool stopped =
		direct_call(SYS_getppid, 0, 0, 0, 0) == warden.program && threads_stop(folder);

	if (!stopped) /* what was interrupted is mended all the same */
		tracees_await(direct_now_ns() + STOP_PATIENCE_NS);
	phase_set(stopped ? STOPPED : REFUSED);
	while (stopped && atomic_load(&warden.phase) == STOPPED)
		phase_await_change(STOPPED);
	threads_release();
	return 0;
}

/* ------------------------------------------------------------------ the caller's side */

/* Calls in which a thread may wait when it is to be stopped: those that the kernel continues or
 * begins anew, with what is left of their time, those that call_mend() lets begin anew, and those
 * that no stop interrupts. */
static bool may_stop_in(long call)
{
	static const short may[] = {
		SYS_futex,
		SYS_poll,
		SYS_ppoll,
		SYS_select,
		SYS_pselect6,
		SYS_read,
		SYS_readv,
		SYS_nanosleep,
		SYS_clock_nanosleep,
		SYS_pause,
		SYS_wait4,
		SYS_waitid,
		SYS_rt_sigsuspend,
		SYS_restart_syscall,
		/* not interrupted */
		SYS_mmap,
		SYS_munmap,
		SYS_mremap,
		SYS_mprotect,
		SYS_madvise,
		SYS_brk,
		SYS_clone,
		SYS_clone3,
		SYS_vfork,
		SYS_exit,
		SYS_sched_yield,
	};

	for (unsigned int i = 0; i < sizeof(may) / sizeof(may[0]); i++)
		if (may[i] == call)
			return true;
	return begins_anew(call);
}

/* False: a thread waits where a stop would show. */
static bool threads_may_stop(void)
{
	struct names names;
	const char *name;
	char file[40], text[128];
	bool may = names_open(&names, "/proc/self/task");

	while (may && (name = names_next(&names))) {
		pid_t thread = text_number(name);

		if (thread == warden.caller || park_has(thread))
			continue;
		snprintf(file, sizeof(file), "task/%d/syscall", thread);
		/* "running": it stops in no call */
		may = !proc_file_read(warden.program, file, text, sizeof(text)) || text[0] == 'r' ||
		      may_stop_in(strtol(text, NULL, 10));
	}
	may = may && !names.failed;
	names_close(&names);
	return may;
}

static void warden_reap(void)
{
	while (sys_waitpid(warden.pid, NULL, __WCLONE) < 0 && errno == EINTR)
		;
	warden.pid = 0;
}

/* Of the thread sanitizer's library, if that is in the process. */
extern void __tsan_init(void) __attribute__((weak, visibility("default")));

const char *warden_stop(void)
{
	static char folder[32]; /* the warden reads it */

	/* It takes a child of a process with threads for broken as soon as the child has one. */
	if (__tsan_init)
		return "the thread sanitizer watches the process";
	warden.program = getpid();
	warden.caller = gettid();
	warden.count = 0;
	if (warden.forbidden >= FORBIDDEN_MOST)
		return "the process has several threads, and may not trace them (ptrace)";
	if (!threads_may_stop())
		return "a thread of the process waits where it can't be stopped unseen";
	snprintf(folder, sizeof(folder), "/proc/%d/task", warden.program);
	atomic_store(&warden.phase, STARTING);
	int saved = errno;

	warden.pid = clone(warden_run, warden.stack + STACK_BYTES,
			   CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_UNTRACED, folder);
	if (warden.pid < 0) {
		warden.pid = 0;
		return "the process has several threads, and may not start another process";
	}
	while (atomic_load(&warden.phase) == STARTING) {
		phase_await_change(STARTING);
		if (direct_call(SYS_wait4, warden.pid, 0, __WCLONE | WNOHANG, 0) != 0) {
			warden.pid = 0; /* it was killed; its tracees run on */
			break;
		}
	}
	errno = saved;
	if (warden.pid && atomic_load(&warden.phase) == STOPPED) {
		warden.forbidden = 0;
		return NULL;
	}
	if (warden.pid)
		warden_reap();
	return "the process has several threads, and they can't be stopped (ptrace)";
}

void warden_release(void)
{
	if (!warden.pid)
		return;
	phase_set(LET_GO);
	warden_reap();
}

bool warden_works(void)
{
	return warden.pid;
}

bool warden_has(pid_t thread)
{
	return warden.pid && is_traced(thread);
}

bool warden_is(pid_t process)
{
	return warden.pid && warden.pid == process;
}

const void *warden_memory(size_t *bytes)
{
	*bytes = sizeof(warden);
	return &warden;
}

#else

const char *warden_stop(void)
{
	return "the process has several threads";
}

void warden_release(void)
{
}

bool warden_works(void)
{
	return false;
}

bool warden_has(pid_t thread)
{
	(void)thread;
	return false;
}

bool warden_is(pid_t process)
{
	(void)process;
	return false;
}

const void *warden_memory(size_t *bytes)
{
	*bytes = 0;
	return NULL;
}

#endif
