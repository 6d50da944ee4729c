/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GIDs as socket addresses, and flow labels as UDP source ports (RoCEv2, IBTA volume 1, annex
 * A17): switches choose among equal paths by the source port, so that one flow keeps one.
 */
#ifndef VERBENA_WIRE_FLOW_H
#define VERBENA_WIRE_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Whether a GID is a link-local address (fe80::/10), which is meaningless without an interface. */
bool flow_is_link_local(const uint8_t gid[16]);
/* Whether a GID is a multicast group: ff00::/8, or 224.0.0.0/4 mapped into IPv6. */
bool flow_is_multicast(const uint8_t gid[16]);

/*
 * The address to send to from a socket of `family` (AF_INET or AF_INET6; for the latter IPv4 is
 * mapped). `port` in host order. `scope`: the interface's index, used for link-local GIDs and IPv6
 * groups only. Returns the address's size; 0: such a socket can't reach the GID (IPv6 from an
 * AF_INET socket), or the GID is link-local and scope is 0.
 */
socklen_t flow_address(const uint8_t gid[16], uint16_t port, uint32_t scope, int family,
		       struct sockaddr_storage *to);

/* The GID (and port, host order) of a socket address. False: neither IPv4 nor IPv6. */
bool flow_gid(const struct sockaddr *from, uint8_t gid[16], uint16_t *port);

/* The flow label (20 bits) of a connection that has chosen none. Both ends compute the same. */
uint32_t flow_label_of_qps(uint32_t local_qpn, uint32_t remote_qpn);

/* The source port, 0xc000 to 0xffff, for a flow label of 20 bits. */
uint16_t flow_source_port(uint32_t flow_label);

#endif
