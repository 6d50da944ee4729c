/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which interfaces get a device, and which device has an address: the rules, without I/O.
 *
 * As in Linux, a device has the addresses of its own interface, its *base*, and of those above it:
 * a VLAN on a card, a macvlan, the bridge that the card is a port of. A bond is the base of its
 * members. An interface by which no other host is reached gets no device (loopback, dummy), nor
 * does one that leads to guests of this host or back to it (a bridge without a card: docker0; a
 * veth or tap that is such a bridge's port; a veth whose other end is here), nor a tunnel
 * (WireGuard, VXLAN), as they have none in Linux. But where there is no card, the tunnels get
 * devices, and where there is no tunnel, the bridges.
 */
#ifndef VERBENA_DAEMON_NET_REACH_H
#define VERBENA_DAEMON_NET_REACH_H

#include "daemon/net/host.h"
#include "daemon/net/interfaces.h"

/* What an interface leads to, from the least to the most: only those of the highest kind that the
 * host has get devices. */
enum reach {
	REACH_NONE,
	REACH_GUESTS, /* a bridge without a card, a cable with both ends here */
	REACH_TUNNEL, /* other hosts, over another interface or a program */
	REACH_CARD,   /* other hosts: a card, or what a container has as its card */
};

/* The network as it was read. */
struct network {
	struct host_address *addresses;
	struct interface *interfaces; /* sorted by index */
	unsigned int address_count, interface_count;
	uint32_t default_ifindex; /* of the default route; 0: none */
};

/* Reads it. Returns 0, or -errno: then it is empty. */
int network_read(struct network *network);
void network_free(struct network *network);

/* Sets each interface's base, and how the bases are addressed. Part of network_read(). */
void network_settle(struct network *network);

/* The interface with this index, or name; NULL: none. */
const struct interface *network_find(const struct network *network, uint32_t ifindex);
const struct interface *network_named(const struct network *network, const char *ifname);

/* The interface whose device has this interface's addresses (it may be the same one); NULL: there
 * is no such interface. */
const struct interface *network_base(const struct network *network, uint32_t ifindex);

/* What `base`, one that network_base() returned, leads to. */
enum reach network_reach(const struct network *network, const struct interface *base);

/*
 * Chooses the bases that get a device, of the highest kind there is, unless that is less than
 * `least`. Writes at most `places` of them: that of the default route first, then those with more
 * than a link-local address, then by index. Returns their number.
 */
unsigned int network_choose(const struct network *network, enum reach least,
			    const struct interface **chosen, unsigned int places);

#endif
