/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control thread. See control.h. hca.control_woken is set while the semaphore has been posted
 * and the thread hasn't taken it since: so the semaphore's count stays 0 or 1.
 */
#include "hca/process/control.h"

#include <pthread.h>
#include <signal.h>

#include "client/call.h"
#include "hca/local/link.h"
#include "hca/mem/mapped.h"
#include "hca/process/books.h"
#include "hca/process/hca.h"

static void *control_thread(void *arg)
{
	struct hca *hca = arg;

	while (!atomic_load(&hca->stop)) {
		while (sem_wait(&hca->control) < 0)
			;
		atomic_store(&hca->control_woken, false);
		mapped_serve(hca);
		link_ask_daemon(hca);
		return_sought(hca);
	}
	return NULL;
}

int control_start(struct hca *hca)
{
	sigset_t all, old;

	sem_init(&hca->control, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's handlers stay on its threads */
	int err = pthread_create(&hca->control_thread, NULL, control_thread, hca);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	pthread_setname_np(hca->control_thread, "verbena-control");
	return 0;
}

void control_stop(struct hca *hca)
{
	atomic_store(&hca->stop, true);
	control_wake(hca);
	pthread_join(hca->control_thread, NULL);
}

void control_wake(struct hca *hca)
{
	if (!atomic_exchange(&hca->control_woken, true))
		sem_post(&hca->control);
}
