/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The control thread. See control.h. hca.control_woken is set while the semaphore has been posted
 * and the thread hasn't taken it since: so the semaphore's count stays 0 or 1.
 */
#include "hca/process/control.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "client/call.h"
#include "hca/engine/engine.h"
#include "hca/fabric/membership.h"
#include "hca/local/link.h"
#include "hca/mem/mapped.h"
#include "hca/mem/prefetch.h"
#include "hca/process/books.h"
#include "hca/process/hca.h"
#include "hca/process/park.h"
#include "hca/verbs/event.h"
#include "hca/verbs/migrate.h"
#include "hca/verbs/window.h"
#include "hca/verbs/xrc_follow.h"

/* How long to wait before the next look at copies that hold a window up: as a deregistration naps.
 * No event reports a copy's end. */
#define LOOK_AGAIN_NS 100000

/* Sleeps until there is work; with `soon` for LOOK_AGAIN_NS at most. */
static void control_sleep(struct hca *hca, bool soon)
{
	struct timespec until;

	if (!soon) {
		while (sem_wait(&hca->control) < 0)
			;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += LOOK_AGAIN_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	while (sem_clockwait(&hca->control, CLOCK_MONOTONIC, &until) < 0 && errno == EINTR)
		;
}

/* Looks whether a fabric runs again, if the engine thread asks for that. */
static void control_rejoin(struct hca *hca)
{
	if (!work_take(&hca->control_work, CONTROL_FABRIC))
		return;
	int result = membership_again(hca->membership);

	if (!result)
		engine_hear_fabric(hca);
	else if (result == -ESTALE)
		async_device(hca, IBV_EVENT_DEVICE_FATAL, 0, 0);
	else
		engine_kick(hca); /* it sets the time of the next look */
}

static void *control_thread(void *arg)
{
	struct hca *hca = arg;
	bool soon = false;

	park_join(PARK_CONTROL);
	while (!atomic_load(&hca->stop)) {
		control_sleep(hca, soon);
		park_work(PARK_CONTROL);
		atomic_store(&hca->control_woken, false);
		soon = mapped_serve(hca);
		link_ask_daemon(hca);
		return_sought(hca);
		xrc_serve(hca);
		migrate_serve(hca);
		control_rejoin(hca);
		soon |= windows_serve(hca);
		soon |= prefetch_serve(hca);
		park_rest(PARK_CONTROL);
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
