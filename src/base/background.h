/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that goes on in the background. background_enter() forks: the parent stays in the
 * terminal until the child calls background_settle() or ends, and its exit code says which of the
 * two it was. Until then the child's messages go where the parent's went, so that a person sees why
 * a program has not started.
 *
 * The caller has one thread, and no locks.
 */
#ifndef VERBENA_BASE_BACKGROUND_H
#define VERBENA_BASE_BACKGROUND_H

/*
 * Returns in the child, which is the leader of a session of its own: the descriptor that
 * background_settle() wants, or -errno, when there is no child. The parent does not return: it ends
 * with 0 once the child has settled, else with 1.
 */
int background_enter(void);

/*
 * The child runs: ends the parent, and gives /dev/null the place of the standard descriptors.
 * `log`: the descriptor that becomes standard error instead; -1: none. `name`: of the program's
 * part, for a message.
 */
void background_settle(int parent, int log, const char *name);

#endif
