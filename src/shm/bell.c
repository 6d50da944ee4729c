/* SPDX-License-Identifier: BSD-2-Clause */
/* Bells. See bell.h. No state. */
#include "shm/bell.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>

int bell_make(void)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int bell_ring(int bell)
{
	/* One nanosecond after the clock's start: in the past. */
	const struct itimerspec past = {.it_value.tv_nsec = 1};

	return timerfd_settime(bell, TFD_TIMER_ABSTIME, &past, NULL) < 0 ? -errno : 0;
}

int bell_quiet(int bell)
{
	const struct itimerspec never = {0};

	return timerfd_settime(bell, 0, &never, NULL) < 0 ? -errno : 0;
}

bool bell_is_one(int fd)
{
	struct itimerspec now;

	return timerfd_gettime(fd, &now) == 0;
}
