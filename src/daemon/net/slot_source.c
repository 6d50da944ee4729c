/* SPDX-License-Identifier: BSD-2-Clause */
/* See slot_source.h. No state. */
#include "daemon/net/slot_source.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/net/slot_socket.h"

static int source_option(int fd, int level, int name)
{
	socklen_t size = sizeof(int);
	int value;

	return getsockopt(fd, level, name, &value, &size) < 0 ? -1 : value;
}

static bool host_lacks_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

/* Whether a socket of the other family, or at another interface, can't have the port beside it. */
static bool source_is_everywhere(int fd, bool ipv6)
{
	return source_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX) == 0 &&
	       (ipv6 ? source_option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 0 : host_lacks_ipv6());
}

int slot_source_port(int fd)
{
	bool ipv6, anywhere = false;

	if (!slot_socket_is_udp(fd, &ipv6) || !source_is_everywhere(fd, ipv6))
		return -EINVAL;
	int port = slot_socket_port(fd, ipv6, &anywhere);

	return anywhere && port ? port : -EINVAL;
}
