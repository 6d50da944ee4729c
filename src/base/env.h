/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The environment, as far as it may be believed. A program that runs with rights which its caller
 * doesn't have (set-user-ID, file capabilities: AT_SECURE) still has its caller's environment.
 * Nothing there may choose how data moves, what is limited or where the daemon is: such a program
 * finds no variable set. tools/check-env keeps all other code from asking libc.
 */
#ifndef VERBENA_BASE_ENV_H
#define VERBENA_BASE_ENV_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>

/* The variable's value; NULL: it isn't set, or not to be believed. */
static inline const char *env_get(const char *name)
{
	return secure_getenv(name);
}

/* This program has rights that its caller doesn't have. */
static inline bool env_is_callers(void)
{
	return getauxval(AT_SECURE) != 0;
}

#endif
