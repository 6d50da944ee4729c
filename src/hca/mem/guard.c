/* SPDX-License-Identifier: BSD-2-Clause */
/* The handler behind guard.h. `before` holds the actions that it replaced; it changes under `lock`,
 * before the new action is in force. */
#include "hca/mem/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"

/* Two handlers that take each other for the one before would call each other without end: that
 * shows as calls that get ever deeper. (A handler that leaves by siglongjmp() doesn't come back
 * either, but the next fault's frame isn't below its.) */
enum { DEEPER_MAX = 100 };

_Thread_local void **guard_place __attribute__((tls_model("initial-exec")));

static _Thread_local unsigned int deeper __attribute__((tls_model("initial-exec")));
static _Thread_local char *last_frame __attribute__((tls_model("initial-exec")));
static const int caught[] = {SIGSEGV, SIGBUS};
static struct sigaction before[2];
static struct mutex lock = MUTEX_INITIALIZER(RANK_GUARD);
FORK_KEEP(lock);

/* What would have happened without us. */
static void pass_on(const struct sigaction *action, int number, siginfo_t *info, void *context)
{
	bool default_action = action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN;
	char *frame = __builtin_frame_address(0);

	deeper = last_frame && frame < last_frame ? deeper + 1 : 0;
	last_frame = frame;
	if (default_action || deeper > DEEPER_MAX) {
		signal(number, SIG_DFL); /* the instruction faults again */
		return;
	}
	/* What it wants blocked; the mask is as before when on_fault() returns. */
	pthread_sigmask(SIG_BLOCK, &action->sa_mask, NULL);
	if (action->sa_flags & SA_SIGINFO)
		action->sa_sigaction(number, info, context);
	else
		action->sa_handler(number);
	last_frame = NULL;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	void **place = guard_place;

	/* Sent by somebody, not caused by an instruction: none of ours. */
	if (place && info->si_code > 0) {
		guard_place = NULL;
		GUARD_GO(place);
	}
	pass_on(&before[number == SIGBUS], number, info, context);
}

static void guard_install_handler(unsigned int i)
{
	struct sigaction action;

	if (sigaction(caught[i], NULL, &action) < 0 || action.sa_sigaction == on_fault)
		return;
	before[i] = action;
	/* On the alternative stack if there is one: a handler of stack overflows depends on it.
	 * Nothing is blocked while it runs, because a copy that faulted doesn't return from it, and
	 * whatever was would stay so. (signal() has a handler's own signal blocked.) */
	sigemptyset(&action.sa_mask);
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | (action.sa_flags & SA_RESTART);
	action.sa_sigaction = on_fault;
	if (sigaction(caught[i], &action, NULL) < 0)
		log_warn("faults of unmapped regions can't be caught");
}

void guard_install(void)
{
	mutex_take(&lock);
	for (unsigned int i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		guard_install_handler(i);
	mutex_give(&lock);
}
