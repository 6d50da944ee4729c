/* SPDX-License-Identifier: BSD-2-Clause */
/* The signal handler of guard.h. `before` holds the actions that it replaced; it changes under
 * `lock`, before the new action is in force. */
#include "hca/mem/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"

/* Bounds mutually chained handlers: if another handler calls ours as its predecessor, and ours
 * calls it, each call is deeper on the stack than the last. (A handler that leaves by siglongjmp()
 * doesn't return either, but the next fault's frame isn't below its frame.) */
enum { DEEPER_MAX = 100 };

_Thread_local void **guard_place __attribute__((tls_model("initial-exec")));

static _Thread_local unsigned int deeper __attribute__((tls_model("initial-exec")));
static _Thread_local char *last_frame __attribute__((tls_model("initial-exec")));
static const int caught[] = {SIGSEGV, SIGBUS};
static struct sigaction before[2];
static struct mutex lock = MUTEX_INITIALIZER(RANK_GUARD);
FORK_KEEP(lock);

/* Does what would have been done without our handler. */
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
	/* Blocks the signals that the action asks for; the old mask is restored when on_fault()
	 * returns. */
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

	/* si_code <= 0: a process sent the signal, no instruction caused it, so it is not ours. */
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
	/* The handler runs on the alternative stack if there is one, since a handler of stack
	 * overflows needs that. It blocks no signal, because a copy that faulted doesn't return
	 * from it, and a blocked signal would stay blocked. (signal() blocks a handler's own
	 * signal.) */
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
