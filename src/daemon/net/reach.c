/* SPDX-License-Identifier: BSD-2-Clause */
/* See reach.h. No state. */
#include "daemon/net/reach.h"

#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* Interfaces may lie above one another; the kernel allows 8 levels. */
enum { LEVELS = 8 };

/* ------------------------------------------------------------------ reading */

int network_read(struct network *network)
{
	*network = (struct network){0};
	int n = host_addresses(&network->addresses);

	if (n >= 0) {
		network->address_count = (unsigned int)n;
		n = interfaces_read(&network->interfaces);
	}
	if (n < 0) {
		network_free(network);
		return n;
	}
	network->interface_count = (unsigned int)n;
	network->default_ifindex = interfaces_default();
	network_settle(network);
	return 0;
}

void network_free(struct network *network)
{
	free(network->addresses);
	free(network->interfaces);
	*network = (struct network){0};
}

const struct interface *network_find(const struct network *network, uint32_t ifindex)
{
	unsigned int low = 0, high = network->interface_count;

	while (low < high) {
		unsigned int middle = low + (high - low) / 2;

		if (network->interfaces[middle].ifindex == ifindex)
			return &network->interfaces[middle];
		if (network->interfaces[middle].ifindex < ifindex)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

const struct interface *network_named(const struct network *network, const char *ifname)
{
	for (unsigned int i = 0; i < network->interface_count; i++)
		if (!strcmp(network->interfaces[i].ifname, ifname))
			return &network->interfaces[i];
	return NULL;
}

/* ------------------------------------------------------------------ kinds */

/* The kernel's names of the drivers of virtual interfaces. */
static const char *const bridges[] = {"bridge", "openvswitch"};
static const char *const made_on_another[] = {"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"};
static const char *const tunnels[] = {"vxlan",	 "geneve",    "gretap", "ip6gretap", "erspan",
				      "bareudp", "ip6erspan", "l2tp",	"batadv",    "macsec"};
static const char *const nowhere[] = {"dummy", "ifb", "nlmon", "vrf"};
/* A container's card, a virtual machine's, or the host's end of either. */
static const char *const pairs[] = {"veth", "tun", "netkit"};

#define IS_AMONG(interface, kinds) \
	kind_is_among((interface)->kind, kinds, sizeof(kinds) / sizeof((kinds)[0]))

static bool kind_is_among(const char *kind, const char *const *kinds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(kinds[i], kind))
			return true;
	return false;
}

static bool is_bridge(const struct interface *interface)
{
	return interface && IS_AMONG(interface, bridges);
}

/* A cable whose other end is on this host, too. */
static const struct interface *other_end(const struct network *network,
					 const struct interface *interface)
{
	return strcmp(interface->kind, "veth") ? NULL : network_find(network, interface->lower);
}

/* ------------------------------------------------------------------ the base */

/* The card that is the bridge's first port: not one that leads to a guest. NULL: it has none. */
static const struct interface *card_of_bridge(const struct network *network,
					      const struct interface *bridge)
{
	for (unsigned int i = 0; i < network->interface_count; i++) {
		const struct interface *port = &network->interfaces[i];

		if (port->master == bridge->ifindex && !IS_AMONG(port, pairs) &&
		    !IS_AMONG(port, tunnels) && !IS_AMONG(port, nowhere))
			return port;
	}
	return NULL;
}

/* The interface below this one whose device has its addresses; NULL: it is the base itself. */
static const struct interface *interface_below(const struct network *network,
					       const struct interface *interface)
{
	const struct interface *master = network_find(network, interface->master);
	const struct interface *other = other_end(network, interface);

	if (is_bridge(interface))
		return card_of_bridge(network, interface);
	if (other && !master) {
		const struct interface *bridge = network_find(network, other->master);

		return is_bridge(bridge) ? bridge : NULL;
	}
	if (IS_AMONG(interface, made_on_another))
		return network_find(network, interface->lower);
	/* A member of a bond (or of a card that is made of two, as in virtual machines). */
	if (master && !is_bridge(master) && !IS_AMONG(master, nowhere))
		return master;
	return NULL;
}

static const struct interface *find_base(const struct network *network,
					 const struct interface *interface)
{
	const struct interface *next = interface_below(network, interface);

	for (int level = 0; next && level < LEVELS; level++) {
		interface = next;
		next = interface_below(network, interface);
	}
	return interface;
}

const struct interface *network_base(const struct network *network, uint32_t ifindex)
{
	const struct interface *interface = network_find(network, ifindex);

	return interface ? network_find(network, interface->base) : NULL;
}

static bool address_is_link_local(const struct host_address *address)
{
	return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)address->gid);
}

void network_settle(struct network *network)
{
	for (unsigned int i = 0; i < network->interface_count; i++) {
		network->interfaces[i].base = find_base(network, &network->interfaces[i])->ifindex;
		network->interfaces[i].addressed = ADDRESSED_NOT;
	}
	for (unsigned int i = 0; i < network->address_count; i++) {
		const struct host_address *address = &network->addresses[i];
		enum addressed this =
			address_is_link_local(address) ? ADDRESSED_LINK : ADDRESSED_WHOLE;
		/* The base is one of the network's own interfaces. */
		struct interface *base =
			(struct interface *)network_base(network, address->ifindex);

		if (base && this > base->addressed)
			base->addressed = this;
	}
}

/* ------------------------------------------------------------------ reach */

static bool has_default_route(const struct network *network, const struct interface *base)
{
	return network->default_ifindex && network_base(network, network->default_ifindex) == base;
}

/* A port that isn't the one which has the bridge's addresses. */
static bool is_mere_port(const struct network *network, const struct interface *base)
{
	const struct interface *master = network_find(network, base->master);

	return is_bridge(master) && network_find(network, master->base) != base;
}

static enum reach reach_within_host(const struct network *network, const struct interface *base)
{
	/* It has a card that isn't seen as one (Open vSwitch, a bridge in a container). */
	if (has_default_route(network, base))
		return REACH_CARD;
	return base->addressed == ADDRESSED_WHOLE ? REACH_GUESTS : REACH_NONE;
}

enum reach network_reach(const struct network *network, const struct interface *base)
{
	if (base->flags & IFF_LOOPBACK || !base->addressed || IS_AMONG(base, nowhere))
		return REACH_NONE;
	if (is_bridge(base) || other_end(network, base))
		return reach_within_host(network, base);
	if (is_mere_port(network, base))
		return REACH_NONE;
	if (base->type == ARPHRD_ETHER && !base->kind[0])
		return REACH_CARD;
	/* A link-local address is made by the kernel on any interface that is up: on the host's
	 * ends of containers' cables, for example. */
	if (base->addressed != ADDRESSED_WHOLE)
		return REACH_NONE;
	return base->type != ARPHRD_ETHER || IS_AMONG(base, tunnels) ? REACH_TUNNEL : REACH_CARD;
}

/* ------------------------------------------------------------------ the choice */

static bool is_base(const struct interface *interface)
{
	return interface->base == interface->ifindex;
}

static enum reach best_reach(const struct network *network)
{
	enum reach best = REACH_NONE;

	for (unsigned int i = 0; i < network->interface_count; i++) {
		const struct interface *interface = &network->interfaces[i];
		enum reach reach =
			is_base(interface) ? network_reach(network, interface) : REACH_NONE;

		best = reach > best ? reach : best;
	}
	return best;
}

enum { RANK_DEFAULT = ADDRESSED_WHOLE + 1 };

/* Higher goes first. */
static int base_rank(const struct network *network, const struct interface *base)
{
	return has_default_route(network, base) ? RANK_DEFAULT : (int)base->addressed;
}

unsigned int network_choose(const struct network *network, enum reach least,
			    const struct interface **chosen, unsigned int places)
{
	enum reach best = best_reach(network);
	unsigned int count = 0;

	if (best == REACH_NONE || best < least)
		return 0;
	for (int rank = RANK_DEFAULT; rank > ADDRESSED_NOT; rank--)
		for (unsigned int i = 0; i < network->interface_count && count < places; i++) {
			const struct interface *base = &network->interfaces[i];

			if (is_base(base) && network_reach(network, base) == best &&
			    base_rank(network, base) == rank)
				chosen[count++] = base;
		}
	return count;
}
