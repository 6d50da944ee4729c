/* SPDX-License-Identifier: BSD-2-Clause */
/* See blocking.h. The state is one flag per thread. */
#include "base/blocking.h"

#include <stdlib.h>

#include "base/cpu.h"
#include "base/lock_rank.h"
#include "base/log.h"

static _Thread_local bool forbidden;

void blocking_forbid(void)
{
	forbidden = true;
}

bool blocking_allowed(const char *what)
{
	rank_check_blocking(what);
	if (likely(!forbidden))
		return true;
	log_error("%s would block a thread that must not: refused; please report this", what);
#ifdef VERBENA_LOCK_RANKS
	abort();
#endif
	return false;
}
