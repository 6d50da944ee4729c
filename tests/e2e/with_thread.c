/* SPDX-License-Identifier: BSD-2-Clause */
/* A library to preload that has a thread in each process, also in one that fork() makes, as the
 * thread sanitizer's does. */
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static void *wait_for_ever(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

static void start(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, wait_for_ever, NULL))
		pthread_detach(thread);
}

__attribute__((constructor)) static void begin(void)
{
	start();
	pthread_atfork(NULL, NULL, start);
}
