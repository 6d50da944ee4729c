/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a process lives. See life.h. No state of its own. */
#include "shm/life.h"

int life_begin(struct process_life *life)
{
	pthread_mutexattr_t attr;
	int err = pthread_mutexattr_init(&attr);

	if (err)
		return -err;
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	err = pthread_mutex_init(&life->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return err ? -err : -pthread_mutex_lock(&life->mutex); /* the kernel sets its word: [E1] */
}
