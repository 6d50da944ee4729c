/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into verbenad by half.c: the daemon believes that it has told a process of a link, and
 * hasn't. The event that is lost is the first one that names the process at slot N, once there is a
 * file `lose-N` in the run-time directory; the file is removed.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/proto.h"

static bool is_lost(const struct msghdr *message)
{
	const struct proto_event *event = message->msg_iov[0].iov_base;
	char path[512];

	if (message->msg_iov[0].iov_len != sizeof(*event) || event->type != PROTO_EVENT_LINK)
		return false;
	snprintf(path, sizeof(path), "%s/lose-%u", getenv("VERBENA_RUNTIME_DIR"), event->slot);
	return !unlink(path);
}

/* The daemon sends events by this function (src/base/sys.c). */
__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*next)(long number, ...);
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (number == SYS_sendmsg && is_lost((const struct msghdr *)a[1]))
		return sizeof(struct proto_event);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
