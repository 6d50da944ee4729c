/* SPDX-License-Identifier: BSD-2-Clause */
/* See udp_group.h. */
#include "daemon/net/udp_group.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/flow.h"
#include "wire/ip.h"
#include "wire/packet.h"

int udp_group_socket(bool ipv6)
{
	int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd; /* not bound, so no packet is for it */
}

/* ------------------------------------------------------------------ one group */

static int udp_group_change(int fd, const uint8_t gid[16], uint32_t ifindex, bool join)
{
	struct ip_mreqn four = {.imr_ifindex = (int)ifindex};
	struct ipv6_mreq six = {.ipv6mr_interface = ifindex};
	int n;

	if (ip_is_v4(gid)) {
		memcpy(&four.imr_multiaddr, gid + 12, 4);
		n = setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &four,
			       sizeof(four));
	} else {
		memcpy(&six.ipv6mr_multiaddr, gid, 16);
		n = setsockopt(fd, IPPROTO_IPV6, join ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &six,
			       sizeof(six));
	}
	return n < 0 ? -errno : 0;
}

int udp_group_join(int fd, const uint8_t gid[16], uint32_t ifindex)
{
	int err = udp_group_change(fd, gid, ifindex, true);

	/* IPv6 limits the memory (-ENOMEM), IPv4 the number (-ENOBUFS). */
	if (err == -ENOMEM)
		return -ENOBUFS;
	return err == -EADDRINUSE ? 0 : err;
}

void udp_group_leave(int fd, const uint8_t gid[16], uint32_t ifindex)
{
	udp_group_change(fd, gid, ifindex, false);
}

void udp_group_hear_all(int fd, bool yes)
{
	int value = yes;

	setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &value, sizeof(value));
	setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, &value, sizeof(value));
}

/* ------------------------------------------------------------------ the host's routes */

int udp_group_source(const uint8_t gid[16], uint8_t source[16])
{
	struct sockaddr_storage address = {0};
	int family = ip_is_v4(gid) ? AF_INET : AF_INET6;
	socklen_t size = flow_address(gid, WIRE_PORT, 0, family, &address);
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	uint16_t port;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, size) < 0)
		err = -errno;
	size = sizeof(address);
	if (!err && getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		err = -errno;
	close(fd);
	if (!err && !flow_gid((struct sockaddr *)&address, source, &port))
		err = -EAFNOSUPPORT;
	return err;
}
