/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many programs at once; see crowd.h.
 *
 * An epoll waits for signals (a signalfd, SIGCHLD among them), for outputs of programs and for
 * room in ours. One thread. Memory is bounded by the programs that run at a time.
 */
#include "cli/crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/crowd_output.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
#define NEVER UINT64_MAX

/* A program that goes on after SIGTERM is killed then. */
#define GRACE_NS (5 * NS_PER_S)

/* Descriptors beside those of programs, and what each program needs. */
#define DESCRIPTORS_OTHER 64
#define DESCRIPTORS_EACH 2

/* So many are started before outputs are looked at again. */
#define STARTS_IN_A_ROW 16

enum member_state { MEMBER_IDLE, MEMBER_RUNNING, MEMBER_ENDED };

/* A program that runs, or whose outputs are still being read. */
struct member {
	enum member_state state;
	size_t index; /* in the plan */
	pid_t pid;
	uint64_t deadline_ns; /* when a signal is due */
	bool is_late;	      /* it got SIGTERM because its time was up; SIGKILL is next */
	struct stream out, err;
};

struct crowd {
	const struct crowd_plan *plan;
	struct crowd_result *results;
	struct member *members; /* `at_once` of them */
	size_t at_once, next, idle_hint;
	size_t busy, ended;   /* members that aren't idle; those of them that have ended */
	uint64_t deadline_ns; /* the first one of all members */
	uint64_t tick_ns;     /* when tick() is called next */
	int epoll, signals, null;
	struct watch signals_watch;
	struct sink sinks[2]; /* standard output, standard error */
	int stopped_by;	      /* the signal after which no more are started */
	sigset_t old_mask;
	struct rlimit old_files;
	struct sigaction old_pipe;
};

static const int passed_on[] = {SIGINT,	 SIGTERM, SIGHUP,  SIGQUIT,
				SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
#define PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

static uint64_t crowd_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int crowd_code(const struct crowd_result *result)
{
	switch (result->outcome) {
	case CROWD_EXITED:
		return result->value;
	case CROWD_SIGNALLED:
		return 128 + result->value;
	case CROWD_LATE:
		return CROWD_LATE_CODE;
	case CROWD_NOT_STARTED:
		break;
	}
	return 1;
}

static bool crowd_is_alone(const struct crowd *crowd)
{
	return crowd->plan->count == 1;
}

/* A program's process -------------------------------------------------------------------------- */

/* Gives the new process what this one had when it began. */
static void process_restore(const struct crowd *crowd)
{
	if (crowd->old_files.rlim_max)
		setrlimit(RLIMIT_NOFILE, &crowd->old_files);
	sigaction(SIGPIPE, &crowd->old_pipe, NULL);
	sigprocmask(SIG_SETMASK, &crowd->old_mask, NULL);
}

/* In the new process. */
static void process_become(struct crowd *crowd, size_t index, pid_t parent, int out, int err)
{
	bool alone = crowd_is_alone(crowd);

	/* Programs end with the command that started them, even if that is killed. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(128 + SIGTERM);
	if (!alone && (setpgid(0, 0) < 0 || dup2(crowd->null, STDIN_FILENO) < 0))
		_exit(126);
	if ((out >= 0 && dup2(out, STDOUT_FILENO) < 0) ||
	    (err >= 0 && dup2(err, STDERR_FILENO) < 0))
		_exit(126);
	process_restore(crowd);
	_exit(crowd->plan->become(crowd->plan->context, index));
}

/* Forks. `out` and `err` are the program's ends, or -1. Returns the process or -errno. */
static pid_t process_make(struct crowd *crowd, size_t index, int out, int err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid)
		process_become(crowd, index, parent, out, err);
	/* Also here, as a signal may have to be passed on before the process has done it. */
	if (!crowd_is_alone(crowd))
		setpgid(pid, pid);
	return pid;
}

/* A pipe whose reading end doesn't block. Returns 0 or -errno. */
static int pipe_make(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	if (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
		return 0;
	close(ends[0]);
	close(ends[1]);
	return -EMFILE;
}

/* Members -------------------------------------------------------------------------------------- */

static struct member *member_idle(struct crowd *crowd)
{
	for (size_t n = 0; n < crowd->at_once; n++) {
		size_t i = (crowd->idle_hint + n) % crowd->at_once;

		if (crowd->members[i].state == MEMBER_IDLE) {
			crowd->idle_hint = (i + 1) % crowd->at_once;
			return &crowd->members[i];
		}
	}
	return NULL;
}

/* With pipes whose lines are merged. Returns the process or -errno. */
static pid_t member_start_merged(struct crowd *crowd, struct member *member, size_t index)
{
	const char *prefix = crowd->plan->prefix(crowd->plan->context, index);
	int out[2], err[2];
	pid_t pid;
	int error = pipe_make(out);

	if (error)
		return error;
	error = pipe_make(err);
	if (error)
		goto out_out;
	pid = process_make(crowd, index, out[1], err[1]);
	if (pid < 0) {
		error = pid;
		goto out_err;
	}
	close(out[1]);
	close(err[1]);
	stream_begin(&member->out, &crowd->sinks[0], out[0], prefix);
	stream_begin(&member->err, &crowd->sinks[1], err[0], prefix);
	return pid;

out_err:
	close(err[0]);
	close(err[1]);
out_out:
	close(out[0]);
	close(out[1]);
	return error;
}

/* With both outputs in a file. Returns the process or -errno. */
static pid_t member_start_filed(struct crowd *crowd, size_t index)
{
	int file = crowd->plan->output_open(crowd->plan->context, index);
	pid_t pid;

	if (file < 0)
		return file;
	pid = process_make(crowd, index, file, file);
	close(file);
	return pid;
}

/* Returns 0, or -errno: it wasn't started. */
static int member_start(struct crowd *crowd, size_t index)
{
	const struct crowd_plan *plan = crowd->plan;
	struct member *member = member_idle(crowd);
	pid_t pid;

	if (!member)
		return -EAGAIN;
	*member = (struct member){.index = index, .deadline_ns = NEVER};
	if (plan->prepare)
		plan->prepare(plan->context, index);
	if (plan->output_open)
		pid = member_start_filed(crowd, index);
	else if (plan->is_direct && crowd_is_alone(crowd))
		pid = process_make(crowd, index, -1, -1);
	else
		pid = member_start_merged(crowd, member, index);
	if (pid < 0) {
		if (plan->dispose)
			plan->dispose(plan->context, index);
		return pid;
	}
	member->pid = pid;
	member->state = MEMBER_RUNNING;
	crowd->busy++;
	if (plan->limit_ns)
		member->deadline_ns = crowd_now_ns() + plan->limit_ns;
	if (member->deadline_ns < crowd->deadline_ns)
		crowd->deadline_ns = member->deadline_ns;
	return 0;
}

/* Sends a signal to a program and what it has started. */
static void member_signal(const struct crowd *crowd, const struct member *member, int number)
{
	if (member->state == MEMBER_RUNNING)
		kill(crowd_is_alone(crowd) ? member->pid : -member->pid, number);
}

/* The process has ended. */
static void member_reap(struct crowd *crowd, struct member *member, int status)
{
	struct crowd_result *result = &crowd->results[member->index];

	if (member->is_late)
		*result = (struct crowd_result){CROWD_LATE, 0};
	else if (WIFEXITED(status))
		*result = (struct crowd_result){CROWD_EXITED, WEXITSTATUS(status)};
	else
		*result = (struct crowd_result){CROWD_SIGNALLED, WTERMSIG(status)};
	member->state = MEMBER_ENDED;
	crowd->ended++;
	member->deadline_ns = NEVER;
	stream_finish(&member->out);
	stream_finish(&member->err);
}

static void member_settle(struct crowd *crowd, struct member *member)
{
	const struct crowd_plan *plan = crowd->plan;

	if (member->state != MEMBER_ENDED || member->out.state != STREAM_CLOSED ||
	    member->err.state != STREAM_CLOSED)
		return;
	member->state = MEMBER_IDLE;
	crowd->ended--;
	crowd->busy--;
	if (plan->dispose)
		plan->dispose(plan->context, member->index);
}

/* Deadlines that have come. */
static void members_hurry(struct crowd *crowd)
{
	uint64_t now = crowd_now_ns();

	if (now < crowd->deadline_ns)
		return;
	crowd->deadline_ns = NEVER;
	for (size_t i = 0; i < crowd->at_once; i++) {
		struct member *member = &crowd->members[i];

		if (member->state == MEMBER_RUNNING && now >= member->deadline_ns) {
			member_signal(crowd, member, member->is_late ? SIGKILL : SIGTERM);
			member_signal(crowd, member, SIGCONT);
			member->is_late = true;
			member->deadline_ns = now + GRACE_NS;
		}
		if (member->deadline_ns < crowd->deadline_ns)
			crowd->deadline_ns = member->deadline_ns;
	}
}

/* The crowd ------------------------------------------------------------------------------------ */

static void crowd_reap(struct crowd *crowd)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < crowd->at_once; i++)
			if (crowd->members[i].state == MEMBER_RUNNING &&
			    crowd->members[i].pid == pid)
				member_reap(crowd, &crowd->members[i], status);
}

/* A signal for the programs. The terminal has sent its own to one that is alone, too. */
static void crowd_signal(struct crowd *crowd, const struct signalfd_siginfo *info)
{
	int number = (int)info->ssi_signo;

	if (!crowd_is_alone(crowd) || info->ssi_code != SI_KERNEL)
		for (size_t i = 0; i < crowd->at_once; i++)
			member_signal(crowd, &crowd->members[i], number);
	if (number == SIGTSTP)
		raise(SIGSTOP);
	if (number != SIGINT && number != SIGTERM && number != SIGHUP && number != SIGQUIT)
		return;
	crowd->stopped_by = number;
	/* Only the reader of our outputs is still waited for. */
	for (int i = 0; i < 2 && crowd->busy == crowd->ended; i++)
		sink_abandon(&crowd->sinks[i]);
}

static void signals_read(struct crowd *crowd)
{
	struct signalfd_siginfo info;

	while (read(crowd->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			crowd_reap(crowd);
		else
			crowd_signal(crowd, &info);
	}
}

/* Starts what may be started. */
static void crowd_start(struct crowd *crowd)
{
	for (int n = 0; n < STARTS_IN_A_ROW && !crowd->stopped_by && crowd->busy < crowd->at_once &&
			crowd->next < crowd->plan->count;
	     n++) {
		int error = member_start(crowd, crowd->next);

		/* What is short now may be there when a program has ended. */
		if (error && crowd->busy && error != -ENOENT)
			return;
		if (error)
			crowd->results[crowd->next] =
				(struct crowd_result){CROWD_NOT_STARTED, -error};
		crowd->next++;
	}
}

/* How long to wait for events, in milliseconds. */
static int crowd_patience(const struct crowd *crowd)
{
	uint64_t until = crowd->deadline_ns < crowd->tick_ns ? crowd->deadline_ns : crowd->tick_ns;
	uint64_t now;

	if (until == NEVER)
		return -1;
	now = crowd_now_ns();
	if (until <= now)
		return 0;
	until = (until - now) / NS_PER_MS + 1;
	return until < 3600000 ? (int)until : 3600000;
}

static void crowd_tick(struct crowd *crowd)
{
	if (crowd_now_ns() >= crowd->tick_ns)
		crowd->tick_ns =
			crowd_now_ns() + crowd->plan->tick(crowd->plan->context) * NS_PER_MS;
}

static void crowd_wait(struct crowd *crowd, int patience_ms)
{
	struct epoll_event events[64];
	int count = epoll_wait(crowd->epoll, events, 64, patience_ms);

	for (int i = 0; i < count; i++) {
		struct watch *watch = events[i].data.ptr;

		switch (watch->kind) {
		case WATCH_SIGNALS:
			signals_read(crowd);
			break;
		case WATCH_STREAM:
			stream_ready((struct stream *)watch);
			break;
		case WATCH_SINK:
			sink_ready((struct sink *)watch);
			break;
		}
	}
}

static bool crowd_may_start(const struct crowd *crowd)
{
	return !crowd->stopped_by && crowd->next < crowd->plan->count &&
	       crowd->busy < crowd->at_once;
}

static void crowd_loop(struct crowd *crowd)
{
	while (crowd->busy || crowd_may_start(crowd)) {
		size_t before = crowd->next;

		crowd_start(crowd);
		if (crowd->plan->tick)
			crowd_tick(crowd);
		crowd_wait(crowd,
			   crowd->next != before || !crowd->busy ? 0 : crowd_patience(crowd));
		members_hurry(crowd);
		for (size_t i = 0; crowd->ended && i < crowd->at_once; i++)
			member_settle(crowd, &crowd->members[i]);
	}
	while (!sink_is_empty(&crowd->sinks[0]) || !sink_is_empty(&crowd->sinks[1]))
		crowd_wait(crowd, -1);
}

/* Beginning ------------------------------------------------------------------------------------ */

/* Lets this process have as many descriptors as it may, and says how many programs they are enough
 * for. */
static size_t descriptors_prepare(struct crowd *crowd)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return crowd->plan->at_once;
	crowd->old_files = files;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		files.rlim_cur = crowd->old_files.rlim_cur;
	if (files.rlim_cur <= DESCRIPTORS_OTHER + DESCRIPTORS_EACH)
		return 1;
	return (size_t)(files.rlim_cur - DESCRIPTORS_OTHER) / DESCRIPTORS_EACH;
}

/* Signals that were ignored when this process began stay so. Returns 0 or -errno. */
static int signals_prepare(struct crowd *crowd)
{
	const struct sigaction ignored = {.sa_handler = SIG_IGN};
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &crowd->signals_watch};
	struct sigaction old;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < PASSED_ON; i++)
		if (sigaction(passed_on[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(&set, passed_on[i]);
	sigprocmask(SIG_BLOCK, &set, &crowd->old_mask);
	sigaction(SIGPIPE, &ignored, &crowd->old_pipe);
	crowd->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	crowd->signals_watch.kind = WATCH_SIGNALS;
	if (crowd->signals < 0 ||
	    epoll_ctl(crowd->epoll, EPOLL_CTL_ADD, crowd->signals, &event) < 0)
		return -errno;
	return 0;
}

static void crowd_end(struct crowd *crowd)
{
	process_restore(crowd);
	if (crowd->signals >= 0)
		close(crowd->signals);
	if (crowd->null >= 0)
		close(crowd->null);
	if (crowd->epoll >= 0)
		close(crowd->epoll);
	free(crowd->members);
	free(crowd);
}

/* Returns 0 or -errno. */
static int crowd_prepare(struct crowd *crowd)
{
	size_t possible;
	int error;

	sigprocmask(SIG_BLOCK, NULL, &crowd->old_mask);
	sigaction(SIGPIPE, NULL, &crowd->old_pipe);
	crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
	crowd->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (crowd->epoll < 0 || crowd->null < 0)
		return -errno;
	error = signals_prepare(crowd);
	if (!error)
		error = sink_open(&crowd->sinks[0], crowd->epoll, STDOUT_FILENO);
	if (!error)
		error = sink_open(&crowd->sinks[1], crowd->epoll, STDERR_FILENO);
	if (error)
		return error;
	possible = descriptors_prepare(crowd);
	crowd->at_once = crowd->plan->at_once < possible ? crowd->plan->at_once : possible;
	if (crowd->at_once > crowd->plan->count)
		crowd->at_once = crowd->plan->count;
	if (!crowd->at_once)
		crowd->at_once = 1;
	crowd->members = calloc(crowd->at_once, sizeof(*crowd->members));
	return crowd->members ? 0 : -ENOMEM;
}

int crowd_run(const struct crowd_plan *plan, struct crowd_result *results)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	int result;

	if (!crowd)
		return -ENOMEM;
	crowd->plan = plan;
	crowd->results = results;
	crowd->deadline_ns = NEVER;
	crowd->tick_ns = plan->tick ? 0 : NEVER;
	crowd->signals = -1;
	memset(results, 0, plan->count * sizeof(*results));
	/* What is buffered would be written by each process. */
	fflush(NULL);
	result = crowd_prepare(crowd);
	if (result) {
		cli_error("cannot start programs: %s", strerror(-result));
	} else {
		crowd_loop(crowd);
		result = crowd->stopped_by;
	}
	if (crowd->sinks[0].error || crowd->sinks[1].error)
		result = -EIO;
	crowd_end(crowd);
	return result;
}
