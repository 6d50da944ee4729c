/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Membership of UDP sockets in IP multicast groups, by which the kernel lets an interface take the
 * group's packets (and says so to the network: IGMP, MLD), and a socket of the RoCEv2 port see
 * them. Groups are GIDs. No state.
 */
#ifndef VERBENA_DAEMON_NET_UDP_GROUP_H
#define VERBENA_DAEMON_NET_UDP_GROUP_H

#include <stdbool.h>
#include <stdint.h>

/* A socket that is there only to be a member; it gets no packets. A descriptor or -errno. */
int udp_group_socket(bool ipv6);

/* On one interface. 0, also when it is a member; -ENOBUFS the socket has as many as it may
 * (net.ipv4.igmp_max_memberships, net.core.optmem_max); -ENODEV; -errno. */
int udp_group_join(int fd, const uint8_t gid[16], uint32_t ifindex);
void udp_group_leave(int fd, const uint8_t gid[16], uint32_t ifindex);
/* Whatever it is a member of, whoever made it one; and it hears its own groups only. */
void udp_group_leave_all(int fd);

/* The packets of all groups that anybody on this host is a member of, for a socket that can't be a
 * member of more. */
void udp_group_hear_all(int fd, bool yes);

/* The address from which the host's routes lead to the group, as a GID. 0 or -errno. */
int udp_group_source(const uint8_t gid[16], uint8_t source[16]);

#endif
