/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Membership of UDP sockets in IP multicast groups, by which the kernel makes an interface receive
 * the group's packets (and reports that to the network: IGMP, MLD) and delivers them to a socket of
 * the RoCEv2 port. Groups are GIDs. No state.
 */
#ifndef VERBENA_DAEMON_NET_UDP_GROUP_H
#define VERBENA_DAEMON_NET_UDP_GROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Makes a socket that serves only as a member; it gets no packets. Returns a descriptor or
 * -errno. */
int udp_group_socket(bool ipv6);

/* Joins on one interface. Returns 0, also when the socket is a member already; -ENOBUFS: the socket
 * is in as many groups as it may be (net.ipv4.igmp_max_memberships, net.core.optmem_max); -ENODEV;
 * -errno. */
int udp_group_join(int fd, const uint8_t gid[16], uint32_t ifindex);
void udp_group_leave(int fd, const uint8_t gid[16], uint32_t ifindex);

/* Whether the socket receives the packets of all groups that any socket of this host has joined:
 * for a socket that can't join more. */
void udp_group_hear_all(int fd, bool yes);

/* Finds the address from which the host's routes lead to the group, as a GID. Returns 0 or
 * -errno. */
int udp_group_source(const uint8_t gid[16], uint8_t source[16]);

#endif
