/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Holding the calling thread's signals back. A signal handler may call fork(), which must not wait
 * for what its own thread has. Signals that an instruction causes stay as they are: the kernel ends
 * a program that blocks them.
 */
#ifndef VERBENA_BASE_SIGNALS_H
#define VERBENA_BASE_SIGNALS_H

#include <signal.h>

void signals_hold(sigset_t *old);
/* Leaves errno as it is. */
void signals_release(const sigset_t *old);

#endif
