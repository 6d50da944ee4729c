/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests that play the kernel's part of sending: they define __wrap_sys_sendmsg(), and a
 * sendto() comes there as well. */
#ifndef VERBENA_TESTS_UNIT_NET_PLAYED_SENDS_H
#define VERBENA_TESTS_UNIT_NET_PLAYED_SENDS_H

#include <stdint.h>
#include <sys/socket.h>

ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t __wrap_sys_sendto(int fd, const void *bytes, size_t size, int flags,
			  const struct sockaddr *to, unsigned int to_size);
ssize_t __wrap_sys_sendto(int fd, const void *bytes, size_t size, int flags,
			  const struct sockaddr *to, unsigned int to_size)
{
	struct iovec all = {(void *)(uintptr_t)bytes, size};
	const struct msghdr message = {.msg_name = (void *)(uintptr_t)to,
				       .msg_namelen = to_size,
				       .msg_iov = &all,
				       .msg_iovlen = 1};

	return __wrap_sys_sendmsg(fd, &message, flags);
}

#endif
