/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Environment variables that may be trusted. A program with rights that its caller doesn't have
 * (set-user-ID, file capabilities: AT_SECURE) still has its caller's environment. That must not
 * choose how data moves, what is limited or where the daemon is, so such a program finds every
 * variable unset. tools/check-env rejects all other calls of getenv().
 *
 * Programs replace their environment (nginx does, before it accepts connections). What Verbena was
 * told when the program began holds all the same: it is copied when the library is loaded
 * (VERBENA_*, XDG_RUNTIME_DIR), and used where the environment has no such variable any more. A
 * program that wants a default in place of a variable that it was started with sets the variable to
 * the default; that it unsets it has no effect.
 */
#ifndef VERBENA_BASE_ENV_H
#define VERBENA_BASE_ENV_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>

/* The variable's value; NULL: it isn't set, or not trusted. Any thread. */
const char *env_get(const char *name);

/* Whether this program has rights that its caller doesn't have. */
static inline bool env_is_callers(void)
{
	return getauxval(AT_SECURE) != 0;
}

#endif
