/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Environment variables that may be trusted. A program with rights that its caller doesn't have
 * (set-user-ID, file capabilities: AT_SECURE) still has its caller's environment. That must not
 * choose how data moves, what is limited or where the daemon is, so such a program finds every
 * variable unset. tools/check-env rejects all other calls of getenv().
 */
#ifndef VERBENA_BASE_ENV_H
#define VERBENA_BASE_ENV_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>

/* The variable's value; NULL: it isn't set, or not trusted. */
static inline const char *env_get(const char *name)
{
	return secure_getenv(name);
}

/* Whether this program has rights that its caller doesn't have. */
static inline bool env_is_callers(void)
{
	return getauxval(AT_SECURE) != 0;
}

#endif
