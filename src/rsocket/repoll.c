/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-core 65's epoll for rsockets (rdma/later.h). Not supported: rpoll() waits for any number of
 * rsockets, and librspreload.so has the system's epoll calls for them. No state.
 */
#include <errno.h>
#include <rdma/later.h>

#include "base/export.h"

static int not_supported(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT int repoll_create(int flags)
{
	(void)flags;
	return not_supported();
}

EXPORT int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	(void)epfd, (void)op, (void)fd, (void)event;
	return not_supported();
}

EXPORT int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	(void)epfd, (void)events, (void)maxevents, (void)timeout;
	return not_supported();
}
