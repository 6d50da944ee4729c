/* SPDX-License-Identifier: BSD-2-Clause */
/* See ether.h. No state. */
#include "wire/ether.h"

#include <string.h>

enum {
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	TYPE_VLAN = 0x8100,
	TYPE_SERVICE_VLAN = 0x88a8,
	TYPE_MPLS = 0x8847,
	TYPE_MPLS_GROUP = 0x8848,
	TYPE_BRIDGED = 0x6558, /* an Ethernet frame, in GRE */
};

enum {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_IPV4 = 4,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_IPV6 = 41,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_GRE = 47,
	PROTOCOL_AUTHENTICATION = 51,
	PROTOCOL_DESTINATION = 60,
};

enum { PORT_VXLAN = 4789, PORT_MPLS = 6635 };
enum { IPV4_HEADER = 20, IPV6_HEADER = 40, HEADER_UDP = 8, HEADER_VXLAN = 8, LABEL = 4 };
enum { TCP_CHECKSUM_AT = 16, UDP_CHECKSUM_AT = 6, HEADER_TCP = 20 };

/* What is left of the frame. */
struct bytes {
	const uint8_t *at;
	size_t n;
};

static uint16_t get_16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static struct bytes bytes_skip(struct bytes b, size_t n)
{
	n = n < b.n ? n : b.n;
	return (struct bytes){b.at + n, b.n - n};
}

static struct bytes parse_ipv4(struct bytes b, struct ether_part *part)
{
	size_t header = b.n >= IPV4_HEADER ? (size_t)(b.at[0] & 15) * 4 : 0;

	if (header < IPV4_HEADER || header > b.n || b.at[0] >> 4 != 4)
		return (struct bytes){0};
	part->ip = b.at;
	part->version = 4;
	part->protocol = b.at[9];
	/* A later fragment begins with no header. */
	if (get_16(b.at + 6) & 0x1fff)
		return (struct bytes){0};
	return bytes_skip(b, header);
}

/* Steps over one extension header. False: `protocol` isn't one, or it isn't whole, or what follows
 * is a later fragment (then nothing is left). */
static bool extension_skip(struct bytes *b, uint8_t *protocol)
{
	size_t size;

	if (*protocol != PROTOCOL_HOP_BY_HOP && *protocol != PROTOCOL_ROUTING &&
	    *protocol != PROTOCOL_FRAGMENT && *protocol != PROTOCOL_AUTHENTICATION &&
	    *protocol != PROTOCOL_DESTINATION)
		return false;
	if (b->n < 8) {
		b->n = 0;
		return false;
	}
	size = *protocol == PROTOCOL_FRAGMENT	      ? 8
	       : *protocol == PROTOCOL_AUTHENTICATION ? ((size_t)b->at[1] + 2) * 4
						      : ((size_t)b->at[1] + 1) * 8;
	bool later = *protocol == PROTOCOL_FRAGMENT && get_16(b->at + 2) & 0xfff8;

	*protocol = b->at[0];
	*b = bytes_skip(*b, later ? b->n : size);
	return b->n != 0;
}

static struct bytes parse_ipv6(struct bytes b, struct ether_part *part)
{
	if (b.n < IPV6_HEADER || b.at[0] >> 4 != 6)
		return (struct bytes){0};
	part->ip = b.at;
	part->version = 6;
	part->protocol = b.at[6];
	b = bytes_skip(b, IPV6_HEADER);
	while (extension_skip(&b, &part->protocol))
		;
	return b;
}

/* An IP packet of EtherType `type`. Returns what follows its headers; n 0: nothing does. */
static struct bytes parse_ip(struct bytes b, uint16_t type, struct ether_part *part)
{
	if (type == TYPE_IPV4)
		b = parse_ipv4(b, part);
	else if (type == TYPE_IPV6)
		b = parse_ipv6(b, part);
	else
		return (struct bytes){0};
	if (b.n) {
		part->l4 = b.at;
		part->l4_bytes = b.n;
	}
	return b;
}

/* The packet behind a stack of labels: IP, as its first half byte says. */
static struct bytes parse_labels(struct bytes b, const uint8_t **first, struct ether_part *inner)
{
	if (b.n < LABEL)
		return (struct bytes){0};
	*first = b.at;
	for (bool last = false; !last; b = bytes_skip(b, LABEL)) {
		if (b.n < LABEL)
			return (struct bytes){0};
		last = b.at[2] & 1;
	}
	uint8_t version = b.n ? b.at[0] >> 4 : 0;

	return parse_ip(b, version == 4 ? TYPE_IPV4 : version == 6 ? TYPE_IPV6 : 0, inner);
}

/* An Ethernet header and what it leads to. `labelled`: takes what labels behind it lead to. */
static struct bytes parse_ethernet(struct bytes b, struct ether_part *part,
				   struct ether_part *labelled)
{
	if (b.n < ETHER_HEADER)
		return (struct bytes){0};
	part->mac = b.at;
	part->type = get_16(b.at + 12);
	b = bytes_skip(b, ETHER_HEADER);
	while ((part->type == TYPE_VLAN || part->type == TYPE_SERVICE_VLAN) && b.n >= ETHER_TAG) {
		if (!part->tagged)
			part->tag = get_16(b.at);
		part->tagged = true;
		part->type = get_16(b.at + 2);
		b = bytes_skip(b, ETHER_TAG);
	}
	if (part->type != TYPE_MPLS && part->type != TYPE_MPLS_GROUP)
		return parse_ip(b, part->type, part);
	parse_labels(b, &part->mpls, labelled);
	return (struct bytes){0};
}

static void parse_gre(struct bytes b, struct ether_frame *out)
{
	if (b.n < 4)
		return;
	/* A word each for checksum, key and sequence number. */
	size_t size =
		4u + (b.at[0] & 0x80 ? 4 : 0) + (b.at[0] & 0x20 ? 4 : 0) + (b.at[0] & 0x10 ? 4 : 0);
	uint16_t type = get_16(b.at + 2);

	if (b.n < size)
		return;
	out->gre = b.at;
	b = bytes_skip(b, size);
	if (type == TYPE_BRIDGED)
		parse_ethernet(b, &out->inner, &out->inner);
	else if (type == TYPE_MPLS || type == TYPE_MPLS_GROUP)
		parse_labels(b, &out->tunnel_mpls, &out->inner);
	else
		parse_ip(b, type, &out->inner);
}

static void parse_udp_tunnel(struct bytes b, struct ether_frame *out)
{
	uint16_t port = b.n >= HEADER_UDP ? get_16(b.at + 2) : 0;

	b = bytes_skip(b, HEADER_UDP);
	if (port == PORT_VXLAN && b.n >= HEADER_VXLAN) {
		out->vxlan = b.at;
		parse_ethernet(bytes_skip(b, HEADER_VXLAN), &out->inner, &out->inner);
	} else if (port == PORT_MPLS) {
		parse_labels(b, &out->tunnel_mpls, &out->inner);
	}
}

void ether_parse(const uint8_t *frame, size_t size, struct ether_frame *out)
{
	struct bytes b = {frame, size < ETHER_LOOK ? size : ETHER_LOOK};

	memset(out, 0, sizeof(*out));
	b = parse_ethernet(b, &out->outer, &out->inner);
	if (!b.n)
		return;
	switch (out->outer.protocol) {
	case PROTOCOL_UDP:
		parse_udp_tunnel(b, out);
		break;
	case PROTOCOL_GRE:
		parse_gre(b, out);
		break;
	case PROTOCOL_IPV4:
		parse_ip(b, TYPE_IPV4, &out->inner);
		break;
	case PROTOCOL_IPV6:
		parse_ip(b, TYPE_IPV6, &out->inner);
		break;
	default:
		break;
	}
}

/* ------------------------------------------------------------------ checksums */

/* Adds bytes to a one's complement sum, of which the carries are added by sum_fold(). */
static uint64_t sum_add(uint64_t sum, const uint8_t *at, size_t n)
{
	for (; n >= 2; n -= 2, at += 2)
		sum += get_16(at);
	return n ? sum + ((uint64_t)at[0] << 8) : sum;
}

static uint16_t sum_fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* Where the checksum of the TCP or UDP header is, and the bytes that it covers, by the IP header:
 * a short frame has padding behind them. */
struct covered {
	const uint8_t *at; /* NULL: there is no such header, or the frame isn't whole */
	size_t n, checksum_at;
};

static struct covered find_covered(const uint8_t *frame, size_t size, const struct ether_part *part)
{
	struct covered none = {0};
	size_t minimum = part->protocol == PROTOCOL_TCP ? HEADER_TCP : HEADER_UDP;

	if (!part->l4 || (part->protocol != PROTOCOL_TCP && part->protocol != PROTOCOL_UDP))
		return none;
	/* The first fragment has the header, but not all that its checksum covers. */
	if (part->version == 4 && get_16(part->ip + 6) & 0x2000)
		return none;
	size_t before = (size_t)(part->l4 - part->ip);
	size_t whole = part->version == 4 ? get_16(part->ip + 2)
					  : get_16(part->ip + 4) + (size_t)IPV6_HEADER;

	if (part->version == 6 && part->ip[6] != part->protocol)
		return none; /* with extension headers: among them may be a fragment's */
	if (whole < before + minimum || (size_t)(part->ip - frame) + whole > size)
		return none;
	return (struct covered){
		.at = part->l4,
		.n = whole - before,
		.checksum_at = part->protocol == PROTOCOL_TCP ? TCP_CHECKSUM_AT : UDP_CHECKSUM_AT,
	};
}

/* The sum over what TCP's and UDP's checksum covers, including the checksum's field. */
static uint16_t covered_sum(const struct ether_part *part, const struct covered *c)
{
	size_t addresses = part->version == 4 ? 12 : 8;
	uint64_t sum = sum_add(part->protocol + (uint64_t)c->n, part->ip + addresses,
			       part->version == 4 ? 8 : 32);

	return sum_fold(sum_add(sum, c->at, c->n));
}

bool ether_checksums_right(const uint8_t *frame, size_t size)
{
	struct ether_frame parsed;

	ether_parse(frame, size, &parsed);
	const struct ether_part *part = &parsed.outer;
	struct covered c = find_covered(frame, size, part);

	if (part->version != 4 || !c.at ||
	    sum_fold(sum_add(0, part->ip, (size_t)(part->ip[0] & 15) * 4)) != 0xffff)
		return false;
	if (part->protocol == PROTOCOL_UDP && !get_16(c.at + UDP_CHECKSUM_AT))
		return true;
	return covered_sum(part, &c) == 0xffff;
}

static void put_16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

void ether_checksums_fill(uint8_t *frame, size_t size)
{
	struct ether_frame parsed;

	ether_parse(frame, size, &parsed);
	const struct ether_part *part = &parsed.outer;
	struct covered c = find_covered(frame, size, part);

	if (part->version == 4) {
		uint8_t *ip = frame + (part->ip - frame);

		put_16(ip + 10, 0);
		put_16(ip + 10, (uint16_t)~sum_fold(sum_add(0, ip, (size_t)(ip[0] & 15) * 4)));
	}
	if (!c.at)
		return;
	uint8_t *field = frame + (c.at - frame) + c.checksum_at;

	put_16(field, 0);
	uint16_t sum = (uint16_t)~covered_sum(part, &c);

	/* UDP: 0 would say that there is no checksum. */
	put_16(field, sum || part->protocol == PROTOCOL_TCP ? sum : 0xffff);
}
