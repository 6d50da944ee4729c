/* SPDX-License-Identifier: BSD-2-Clause */
/* See steer.h. No state. */
#include "wire/steer.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

enum { VALUE_MAX = sizeof(struct ib_uverbs_flow_ipv6_filter) };

/* Where a specification stands in the list. */
struct spec {
	uint32_t type; /* without IBV_FLOW_SPEC_INNER */
	bool inner;
	const uint8_t *value, *mask;
	size_t length;	 /* of each of the two */
	uint32_t before; /* type of the one before it that describes frames, of its part; 0: none */
};

/* Writes the frame's fields as the kind's value has them; false: the frame lacks the layer. */
typedef bool fill_fn(const struct spec *spec, const struct ether_frame *frame,
		     const struct ether_part *part, uint8_t *value);

static bool fill_eth(const struct spec *spec, const struct ether_frame *frame,
		     const struct ether_part *part, uint8_t *value)
{
	const size_t tag_at = offsetof(struct ib_uverbs_flow_eth_filter, vlan_tag);
	const size_t type_at = offsetof(struct ib_uverbs_flow_eth_filter, ether_type);

	(void)frame;
	if (!part->mac)
		return false;
	if (!part->tagged && (spec->mask[tag_at] || spec->mask[tag_at + 1]))
		return false;
	memcpy(value, part->mac, 12);
	value[type_at] = (uint8_t)(part->type >> 8);
	value[type_at + 1] = (uint8_t)part->type;
	value[tag_at] = (uint8_t)(part->tag >> 8);
	value[tag_at + 1] = (uint8_t)part->tag;
	return true;
}

static bool fill_ipv4(const struct spec *spec, const struct ether_frame *frame,
		      const struct ether_part *part, uint8_t *value)
{
	struct ib_uverbs_flow_ipv4_filter filter = {0};

	(void)spec, (void)frame;
	if (part->version != 4)
		return false;
	memcpy(&filter.src_ip, part->ip + 12, 4);
	memcpy(&filter.dst_ip, part->ip + 16, 4);
	filter.proto = part->ip[9];
	filter.tos = part->ip[1];
	filter.ttl = part->ip[8];
	filter.flags = (part->ip[6] & 0x40 ? 2 : 0) | (part->ip[6] & 0x20 ? 4 : 0);
	memcpy(value, &filter, sizeof(filter));
	return true;
}

static bool fill_ipv6(const struct spec *spec, const struct ether_frame *frame,
		      const struct ether_part *part, uint8_t *value)
{
	struct ib_uverbs_flow_ipv6_filter filter = {0};
	uint8_t label[4];

	(void)spec, (void)frame;
	if (part->version != 6)
		return false;
	memcpy(filter.src_ip, part->ip + 8, 16);
	memcpy(filter.dst_ip, part->ip + 24, 16);
	memcpy(label, part->ip, 4);
	label[0] = 0;
	label[1] &= 15;
	memcpy(&filter.flow_label, label, 4);
	filter.next_hdr = part->protocol;
	filter.traffic_class = (uint8_t)(part->ip[0] << 4 | part->ip[1] >> 4);
	filter.hop_limit = part->ip[7];
	memcpy(value, &filter, sizeof(filter));
	return true;
}

static bool is_protocol(const struct ether_part *part, uint8_t protocol, size_t bytes)
{
	return part->l4 && part->protocol == protocol && part->l4_bytes >= bytes;
}

static bool fill_ports(const struct spec *spec, const struct ether_frame *frame,
		       const struct ether_part *part, uint8_t *value)
{
	(void)frame;
	if (!is_protocol(part, spec->type == IBV_FLOW_SPEC_TCP ? 6 : 17, 4))
		return false;
	memcpy(value, part->l4 + 2, 2); /* the filter begins with the destination */
	memcpy(value + 2, part->l4, 2);
	return true;
}

static bool fill_esp(const struct spec *spec, const struct ether_frame *frame,
		     const struct ether_part *part, uint8_t *value)
{
	(void)spec, (void)frame;
	if (!is_protocol(part, 50, 8))
		return false;
	memcpy(value, part->l4, 8);
	return true;
}

static bool fill_vxlan(const struct spec *spec, const struct ether_frame *frame,
		       const struct ether_part *part, uint8_t *value)
{
	(void)spec, (void)part;
	if (!frame->vxlan)
		return false;
	value[0] = 0;
	memcpy(value + 1, frame->vxlan + 4, 3);
	return true;
}

static bool fill_gre(const struct spec *spec, const struct ether_frame *frame,
		     const struct ether_part *part, uint8_t *value)
{
	(void)spec, (void)part;
	if (!frame->gre)
		return false;
	memset(value, 0, 8);
	memcpy(value, frame->gre, 4);
	if (frame->gre[0] & 0x20) /* there is a key, behind the checksum if there is one */
		memcpy(value + 4, frame->gre + (frame->gre[0] & 0x80 ? 8 : 4), 4);
	return true;
}

static bool fill_mpls(const struct spec *spec, const struct ether_frame *frame,
		      const struct ether_part *part, uint8_t *value)
{
	bool by_gre = frame->gre != NULL;
	const uint8_t *label = part->mpls;

	if (spec->before == IBV_FLOW_SPEC_UDP)
		label = by_gre ? NULL : frame->tunnel_mpls;
	else if (spec->before == IBV_FLOW_SPEC_GRE)
		label = by_gre ? frame->tunnel_mpls : NULL;
	if (!label)
		return false;
	memcpy(value, label, 4);
	return true;
}

/* Layers of which a frame has one; a specification may describe each once in a part. */
enum layer { LAYER_ETH, LAYER_IP, LAYER_L4, LAYER_TUNNEL, LAYER_LABEL };

static const struct kind {
	uint32_t type;
	enum layer layer;
	uint8_t length, shorter; /* of a value; `shorter`: it may also have only that; 0: no */
	bool inner;		 /* there may be one of what is in a tunnel */
	fill_fn *fill;
} kinds[] = {
	{IBV_FLOW_SPEC_ETH, LAYER_ETH, sizeof(struct ib_uverbs_flow_eth_filter), 0, true, fill_eth},
	{IBV_FLOW_SPEC_IPV4, LAYER_IP, sizeof(struct ib_uverbs_flow_ipv4_filter), 8, true,
	 fill_ipv4},
	{IBV_FLOW_SPEC_IPV6, LAYER_IP, sizeof(struct ib_uverbs_flow_ipv6_filter), 0, true,
	 fill_ipv6},
	{IBV_FLOW_SPEC_TCP, LAYER_L4, sizeof(struct ib_uverbs_flow_tcp_udp_filter), 0, true,
	 fill_ports},
	{IBV_FLOW_SPEC_UDP, LAYER_L4, sizeof(struct ib_uverbs_flow_tcp_udp_filter), 0, true,
	 fill_ports},
	{IBV_FLOW_SPEC_ESP, LAYER_L4, sizeof(struct ib_uverbs_flow_spec_esp_filter), 0, true,
	 fill_esp},
	{IBV_FLOW_SPEC_VXLAN_TUNNEL, LAYER_TUNNEL, sizeof(struct ib_uverbs_flow_tunnel_filter), 0,
	 false, fill_vxlan},
	{IBV_FLOW_SPEC_GRE, LAYER_TUNNEL, sizeof(struct ib_uverbs_flow_gre_filter), 0, false,
	 fill_gre},
	{IBV_FLOW_SPEC_MPLS, LAYER_LABEL, sizeof(struct ib_uverbs_flow_mpls_filter), 0, true,
	 fill_mpls},
};

static const struct kind *kind_of(uint32_t type)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].type == type)
			return &kinds[i];
	return NULL;
}

static bool is_action(uint32_t type)
{
	return type >= IBV_FLOW_SPEC_ACTION_TAG;
}

/* What is read of the list of specifications so far. */
struct reader {
	const uint8_t *at;
	size_t left;
	uint32_t before[2]; /* of struct spec, by part */
};

/* The next specification's header; 0: it isn't whole. */
static size_t read_spec(struct reader *r, struct spec *spec)
{
	struct ib_uverbs_flow_spec_hdr header;

	if (r->left < sizeof(header))
		return 0;
	memcpy(&header, r->at, sizeof(header));
	if (header.size < sizeof(header) || header.size > r->left)
		return 0;
	spec->inner = !is_action(header.type) && header.type & IBV_FLOW_SPEC_INNER;
	spec->type = spec->inner ? header.type & ~(uint32_t)IBV_FLOW_SPEC_INNER : header.type;
	spec->length = (header.size - sizeof(header)) / 2;
	spec->value = r->at + sizeof(header);
	spec->mask = spec->value + spec->length;
	spec->before = r->before[spec->inner];
	if (!is_action(spec->type))
		r->before[spec->inner] = spec->type;
	r->at += header.size;
	r->left -= header.size;
	return header.size;
}

/* ------------------------------------------------------------------ checking */

static int check_action(const struct spec *spec, size_t size, struct steer_actions *actions,
			const char **why)
{
	*why = "an action's size is wrong";
	switch (spec->type) {
	case IBV_FLOW_SPEC_ACTION_TAG:
		if (size != sizeof(struct ib_uverbs_flow_spec_action_tag))
			return -EINVAL;
		memcpy(&actions->tag, spec->value, sizeof(actions->tag));
		actions->tags = true;
		return 0;
	case IBV_FLOW_SPEC_ACTION_DROP:
		actions->drops = true;
		return size == sizeof(struct ib_uverbs_flow_spec_action_drop) ? 0 : -EINVAL;
	case IBV_FLOW_SPEC_ACTION_COUNT:
		*why = actions->counts ? "two actions count" : *why;
		if (actions->counts || size != sizeof(struct ib_uverbs_flow_spec_action_count))
			return -EINVAL;
		actions->counts = true;
		return 0;
	default:
		*why = "the only actions are tag, drop and count";
		return -EOPNOTSUPP;
	}
}

static int check_description(const struct spec *spec, size_t size, unsigned int seen[2],
			     const char **why)
{
	const struct kind *kind = kind_of(spec->type);

	if (!kind || (spec->inner && !kind->inner)) {
		*why = "a specification's type is unknown";
		return -EOPNOTSUPP;
	}
	if (size % 2 ||
	    (spec->length != kind->length && !(kind->shorter && spec->length == kind->shorter))) {
		*why = "a specification's size is wrong";
		return -EINVAL;
	}
	if (seen[spec->inner] & 1u << kind->layer) {
		*why = "two specifications describe one layer";
		return -EINVAL;
	}
	seen[spec->inner] |= 1u << kind->layer;
	return 0;
}

int steer_check(const uint8_t *specs, size_t size, unsigned int count,
		struct steer_actions *actions, const char **why)
{
	struct reader reader = {.at = specs, .left = size};
	unsigned int seen[2] = {0, 0};
	struct spec spec;
	int err = 0;

	*actions = (struct steer_actions){0};
	for (unsigned int i = 0; i < count && !err; i++) {
		size_t bytes = read_spec(&reader, &spec);

		if (!bytes) {
			*why = "the specifications are longer than the rule";
			return -EINVAL;
		}
		err = is_action(spec.type) ? check_action(&spec, bytes, actions, why)
					   : check_description(&spec, bytes, seen, why);
		actions->describes |= !is_action(spec.type);
	}
	if (!err && reader.left) {
		*why = "the rule is longer than its specifications";
		return -EINVAL;
	}
	return err;
}

/* ------------------------------------------------------------------ matching */

static bool spec_matches(const struct spec *spec, const struct ether_frame *frame)
{
	const struct kind *kind = kind_of(spec->type);
	uint8_t value[VALUE_MAX];

	if (!kind || !kind->fill(spec, frame, spec->inner ? &frame->inner : &frame->outer, value))
		return false;
	for (size_t i = 0; i < spec->length; i++)
		if ((value[i] ^ spec->value[i]) & spec->mask[i])
			return false;
	return true;
}

bool steer_matches(const uint8_t *specs, size_t size, const struct ether_frame *frame)
{
	struct reader reader = {.at = specs, .left = size};
	struct spec spec;

	while (reader.left) {
		if (!read_spec(&reader, &spec))
			return false;
		if (!is_action(spec.type) && !spec_matches(&spec, frame))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------ comparing */

/* The next specification that describes frames. False: there is none. */
static bool next_description(struct reader *reader, struct spec *spec)
{
	while (reader->left && read_spec(reader, spec))
		if (!is_action(spec->type))
			return true;
	return false;
}

static bool spec_same(const struct spec *a, const struct spec *b)
{
	if (a->type != b->type || a->inner != b->inner || a->length != b->length)
		return false;
	for (size_t i = 0; i < a->length; i++)
		if (a->mask[i] != b->mask[i] || (a->value[i] ^ b->value[i]) & a->mask[i])
			return false;
	return true;
}

bool steer_same(const uint8_t *specs, size_t size, const uint8_t *others, size_t others_size)
{
	struct reader mine = {.at = specs, .left = size};
	struct reader theirs = {.at = others, .left = others_size};
	struct spec a = {0}, b = {0};

	for (;;) {
		bool more = next_description(&mine, &a);

		if (more != next_description(&theirs, &b))
			return false;
		if (!more)
			return true;
		if (!spec_same(&a, &b))
			return false;
	}
}
