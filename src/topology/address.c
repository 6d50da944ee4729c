/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IP addresses of end ports: text to bytes and back, and consecutive ones of a network. No state
 * but the caller's topology.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "topology/private.h"

bool topology_address_parse(struct topology_address *address, const char *text, size_t bytes)
{
	char copy[TOPOLOGY_ADDRESS_BYTES], *slash;
	uint32_t prefix, most;

	if (bytes >= sizeof(copy))
		return false;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	slash = strchr(copy, '/');
	if (slash)
		*slash++ = '\0';
	memset(address, 0, sizeof(*address));
	address->is_ipv6 = strchr(copy, ':') != NULL;
	if (inet_pton(address->is_ipv6 ? AF_INET6 : AF_INET, copy, address->bytes) != 1)
		return false;
	most = address->is_ipv6 ? 128 : 32;
	prefix = most;
	if (slash && !quantity_number32(slash, 0, most, &prefix))
		return false;
	address->prefix = (uint8_t)prefix;
	return true;
}

const char *topology_address_text(char *text, const struct topology_address *address)
{
	char digits[INET6_ADDRSTRLEN];

	inet_ntop(address->is_ipv6 ? AF_INET6 : AF_INET, address->bytes, digits, sizeof(digits));
	snprintf(text, TOPOLOGY_ADDRESS_BYTES, "%s/%u", digits, address->prefix);
	return text;
}

int topology_set_address(struct topology *topology, uint32_t port,
			 const struct topology_address *address)
{
	uint32_t row = topology->ports[port].address;

	if (row == TOPOLOGY_NONE) {
		int err = topology_rows_grow((void **)&topology->addresses, &topology->address_room,
					     topology->address_count, sizeof(*topology->addresses));

		if (err)
			return err;
		row = topology->address_count++;
		topology->ports[port].address = row;
	}
	topology->addresses[row] = *address;
	return 0;
}

/* The next address. False: the network has no more. */
static bool address_advance(struct topology_address *address)
{
	unsigned int bits = address->is_ipv6 ? 128 : 32;
	struct topology_address next = *address;

	for (unsigned int i = bits / 8; i-- > 0;)
		if (++next.bytes[i])
			break;
	for (unsigned int bit = 0; bit < address->prefix; bit++)
		if ((next.bytes[bit / 8] ^ address->bytes[bit / 8]) & 0x80 >> bit % 8)
			return false;
	*address = next;
	return true;
}

/* Whether all bits behind the prefix are one: an IPv4 network's broadcast address. */
static bool address_is_broadcast(const struct topology_address *address)
{
	if (address->is_ipv6)
		return false;
	for (unsigned int bit = address->prefix; bit < 32; bit++)
		if (!(address->bytes[bit / 8] & 0x80 >> bit % 8))
			return false;
	return true;
}

/* Whether an end port of the topology has this address already. */
static bool address_is_taken(const struct topology *topology, uint32_t count,
			     const struct topology_address *address)
{
	for (uint32_t i = 0; i < count; i++)
		if (topology->addresses[i].is_ipv6 == address->is_ipv6 &&
		    !memcmp(topology->addresses[i].bytes, address->bytes, 16))
			return true;
	return false;
}

int topology_number_adapters(struct topology *topology, const char *network)
{
	struct topology_address address;
	uint32_t given = topology->address_count; /* by the file */

	if (!topology_address_parse(&address, network, strlen(network)))
		return -EINVAL;
	for (unsigned int bit = address.prefix; bit < (address.is_ipv6 ? 128 : 32); bit++)
		address.bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	for (uint32_t i = 0; i < topology->node_count; i++) {
		uint32_t port = topology_port(topology, i, 1);
		int err;

		if (topology->nodes[i].kind != TOPOLOGY_CA ||
		    topology->ports[port].address != TOPOLOGY_NONE)
			continue;
		do {
			if (!address_advance(&address) || address_is_broadcast(&address))
				return -EINVAL;
		} while (address_is_taken(topology, given, &address));
		err = topology_set_address(topology, port, &address);
		if (err)
			return err;
	}
	return 0;
}
