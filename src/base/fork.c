/* SPDX-License-Identifier: BSD-2-Clause */
/* See fork.h. Only constructors write the list, that is one thread. No other lock is taken while
 * the mutexes are held, so they have no rank here: they are taken in the order of the
 * constructors. */
#include "base/fork.h"

#include <stdlib.h>

enum { KEPT_MAX = 8 };

static struct mutex *kept[KEPT_MAX];
static unsigned int count;

static void fork_count(void)
{
	for (unsigned int i = 0; i < count; i++)
		pthread_mutex_lock(&kept[i]->pthread);
}

static void after_fork(void)
{
	for (unsigned int i = count; i-- > 0;)
		pthread_mutex_unlock(&kept[i]->pthread);
}

void fork_keep(struct mutex *mutex)
{
	if (!count)
		pthread_atfork(fork_count, after_fork, after_fork);
	if (count == KEPT_MAX)
		abort();
	kept[count++] = mutex;
}
