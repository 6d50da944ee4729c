/* SPDX-License-Identifier: BSD-2-Clause */
/* See signals.h. No state. */
#include "base/signals.h"

#include <stddef.h>

void signals_hold(sigset_t *old)
{
	static const int caused[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
	sigset_t held;

	sigfillset(&held);
	for (size_t i = 0; i < sizeof(caused) / sizeof(caused[0]); i++)
		sigdelset(&held, caused[i]);
	pthread_sigmask(SIG_BLOCK, &held, old);
}

void signals_release(const sigset_t *old)
{
	pthread_sigmask(SIG_SETMASK, old, NULL);
}
