/* SPDX-License-Identifier: BSD-2-Clause */
/* See fork.h. Only constructors write the list, that is one thread. */
#include "base/fork.h"

#include <stdlib.h>

enum { KEPT_MAX = 8 };

static struct {
	struct mutex *mutex;
	void (*mend)(void);
} kept[KEPT_MAX];
static unsigned int count;

static void kept_in_child(void)
{
	for (unsigned int i = 0; i < count; i++) {
		pthread_mutex_t *mutex = &kept[i].mutex->pthread;
		bool was_held = pthread_mutex_trylock(mutex) != 0;

		/* A sanitizer takes a mutex that is made anew while it is held for held still. */
		if (was_held)
			pthread_mutex_init(mutex, NULL);
		else
			pthread_mutex_unlock(mutex);
		rank_forget(kept[i].mutex);
		if (was_held && kept[i].mend)
			kept[i].mend();
	}
}

void fork_keep(struct mutex *mutex, void (*mend)(void))
{
	if (!count)
		pthread_atfork(NULL, NULL, kept_in_child);
	if (count == KEPT_MAX)
		abort();
	kept[count].mutex = mutex;
	kept[count++].mend = mend;
}
