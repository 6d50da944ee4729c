/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flow rules' specifications: from the program's layout to the kernel's. A program describes
 * packets by a list of specifications, each a header with a value and a mask; the kernel's layouts
 * of these differ, and so does the beginning of the value. No state; any thread.
 */
#include "kverbs/flow_specs.h"

#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <stdbool.h>
#include <string.h>

/* Every specification of the kernel begins with this, 8 bytes; the value follows, then the mask. */
enum { SPEC_HEADER = sizeof(struct ib_uverbs_flow_spec_hdr) };

/* What a kind of specification that describes packets has where. */
struct spec_layout {
	uint32_t type, kernel_type;
	uint16_t value_at;    /* in the program's structure */
	uint16_t size;	      /* of a value, or of a mask: what is copied */
	uint16_t kernel_size; /* of a value in the kernel's structure */
	bool grows;	      /* the program says by the structure's size how long its value is */
	bool inner;	      /* there is one for tunnelled packets, too */
};

#define SPEC(TYPE, program, kernel, bytes, inside)                                 \
	{                                                                          \
		.type = IBV_FLOW_SPEC_##TYPE, .kernel_type = IBV_FLOW_SPEC_##TYPE, \
		.value_at = offsetof(struct program, val), .size = (bytes),        \
		.kernel_size = sizeof(struct kernel), .inner = (inside),           \
	}

static const struct spec_layout layouts[] = {
	SPEC(ETH, ibv_flow_spec_eth, ib_uverbs_flow_eth_filter, 16, true),
	/* The kernel takes the short form: what follows the addresses matches anything. */
	{
		.type = IBV_FLOW_SPEC_IPV4,
		.kernel_type = IBV_FLOW_SPEC_IPV4,
		.value_at = offsetof(struct ibv_flow_spec_ipv4, val),
		.size = sizeof(struct ibv_flow_ipv4_filter),
		.kernel_size = sizeof(struct ibv_flow_ipv4_filter),
		.inner = true,
	},
	{
		.type = IBV_FLOW_SPEC_IPV4_EXT,
		.kernel_type = IBV_FLOW_SPEC_IPV4,
		.value_at = offsetof(struct ibv_flow_spec_ipv4_ext, val),
		.size = sizeof(struct ib_uverbs_flow_ipv4_filter),
		.kernel_size = sizeof(struct ib_uverbs_flow_ipv4_filter),
		.grows = true,
		.inner = true,
	},
	{
		.type = IBV_FLOW_SPEC_IPV6,
		.kernel_type = IBV_FLOW_SPEC_IPV6,
		.value_at = offsetof(struct ibv_flow_spec_ipv6, val),
		.size = offsetof(struct ib_uverbs_flow_ipv6_filter, reserved),
		.kernel_size = sizeof(struct ib_uverbs_flow_ipv6_filter),
		.grows = true,
		.inner = true,
	},
	SPEC(ESP, ibv_flow_spec_esp, ib_uverbs_flow_spec_esp_filter, 8, true),
	SPEC(TCP, ibv_flow_spec_tcp_udp, ib_uverbs_flow_tcp_udp_filter, 4, true),
	SPEC(UDP, ibv_flow_spec_tcp_udp, ib_uverbs_flow_tcp_udp_filter, 4, true),
	SPEC(GRE, ibv_flow_spec_gre, ib_uverbs_flow_gre_filter, 8, false),
	SPEC(MPLS, ibv_flow_spec_mpls, ib_uverbs_flow_mpls_filter, 4, true),
	{
		.type = IBV_FLOW_SPEC_VXLAN_TUNNEL,
		.kernel_type = IBV_FLOW_SPEC_VXLAN_TUNNEL,
		.value_at = offsetof(struct ibv_flow_spec_tunnel, val),
		.size = sizeof(struct ib_uverbs_flow_tunnel_filter),
		.kernel_size = sizeof(struct ib_uverbs_flow_tunnel_filter),
		.grows = true,
	},
};

enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };
_Static_assert(FLOW_SPEC_MAX == SPEC_HEADER + 2 * 40, "the longest specification");

_Static_assert(offsetof(struct ib_uverbs_flow_spec_action_tag, tag_id) ==
			       offsetof(struct ib_uverbs_flow_spec_action_handle, handle) &&
		       offsetof(struct ib_uverbs_flow_spec_action_tag, tag_id) ==
			       offsetof(struct ib_uverbs_flow_spec_action_count, handle) &&
		       sizeof(struct ib_uverbs_flow_spec_action_tag) ==
			       sizeof(struct ib_uverbs_flow_spec_action_handle) &&
		       sizeof(struct ib_uverbs_flow_spec_action_tag) ==
			       sizeof(struct ib_uverbs_flow_spec_action_count),
	       "one layout");
_Static_assert(sizeof(struct ib_uverbs_flow_ipv6_filter) == 40, "the longest value");
_Static_assert(sizeof(struct ibv_flow_eth_filter) == 16 &&
		       sizeof(struct ib_uverbs_flow_eth_filter) == 16,
	       "ETH: value and mask are copied");

static const struct spec_layout *layout_of(uint32_t type)
{
	for (unsigned int i = 0; i < LAYOUTS; i++)
		if (layouts[i].type == type ||
		    (layouts[i].inner && (layouts[i].type | IBV_FLOW_SPEC_INNER) == type))
			return &layouts[i];
	return NULL;
}

static bool all_zero(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i])
			return false;
	return true;
}

/* How a program's specification begins. It is copied, because it needn't be aligned. */
struct spec_header {
	uint32_t type;
	uint16_t size;
};

/* The length of the program's value: 0 or a positive errno. Bits of a later and longer structure
 * that the mask names are nothing that the kernel could match. */
static int value_length(const struct spec_layout *layout, const struct spec_header *header,
			const uint8_t *value, size_t *length)
{
	*length = layout->size;
	if (!layout->grows)
		return 0;
	if (header->size < sizeof(*header) + 2 * (size_t)layout->size)
		return EINVAL;
	*length = (header->size - sizeof(*header)) / 2;
	return all_zero(value + *length + layout->size, *length - layout->size) ? 0 : EOPNOTSUPP;
}

static int filter_encode(uint8_t *to, const struct spec_header *header, const uint8_t *from,
			 const struct spec_layout *layout, size_t *size)
{
	const uint8_t *value = from + layout->value_at;
	struct ib_uverbs_flow_spec_hdr sent = {
		.type = layout->kernel_type | (header->type & IBV_FLOW_SPEC_INNER),
		.size = (uint16_t)(SPEC_HEADER + 2 * layout->kernel_size),
	};
	size_t length;
	int err = value_length(layout, header, value, &length);

	if (err)
		return err;
	memcpy(to, &sent, sizeof(sent));
	memcpy(to + SPEC_HEADER, value, layout->size);
	memcpy(to + SPEC_HEADER + layout->kernel_size, value + length, layout->size);
	*size = sent.size;
	return 0;
}

/* What a pointer in a specification leads to: the handle of an action or of counters. */
static int handle_of_action(const struct flow_handles *handles, const uint8_t *from, uint32_t *out)
{
	struct ibv_flow_spec_action_handle spec;

	memcpy(&spec, from, sizeof(spec));
	return handles->action ? handles->action(handles->arg, spec.action, out) : EOPNOTSUPP;
}

static int handle_of_counters(const struct flow_handles *handles, const uint8_t *from,
			      uint32_t *out)
{
	struct ibv_flow_spec_counter_action spec;

	memcpy(&spec, from, sizeof(spec));
	return handles->counters(handles->arg, spec.counters, out);
}

/* Specifications that say what is done with a packet. All with a word have it in one place. */
static int action_encode(uint8_t *to, const struct spec_header *header, const uint8_t *from,
			 const struct flow_handles *handles, size_t *size)
{
	int err = 0;

	struct ib_uverbs_flow_spec_action_tag action = {
		.type = header->type,
		.size = sizeof(action),
	};

	switch (header->type) {
	case IBV_FLOW_SPEC_ACTION_TAG:
		memcpy(&action.tag_id, from + offsetof(struct ibv_flow_spec_action_tag, tag_id),
		       sizeof(action.tag_id));
		break;
	case IBV_FLOW_SPEC_ACTION_DROP:
		action.size = sizeof(struct ib_uverbs_flow_spec_action_drop);
		break;
	case IBV_FLOW_SPEC_ACTION_HANDLE:
		err = handle_of_action(handles, from, &action.tag_id);
		break;
	case IBV_FLOW_SPEC_ACTION_COUNT:
		err = handle_of_counters(handles, from, &action.tag_id);
		break;
	default:
		return EINVAL;
	}
	memcpy(to, &action, action.size);
	*size = action.size;
	return err;
}

int flow_specs_encode(uint8_t *to, const struct ibv_flow_attr *attr,
		      const struct flow_handles *handles, size_t *size)
{
	const uint8_t *from = (const uint8_t *)(attr + 1);
	int err = 0;

	*size = 0;
	for (unsigned int i = 0; i < attr->num_of_specs && !err; i++) {
		struct spec_header header;
		size_t more = 0;

		memcpy(&header, from, sizeof(header));
		const struct spec_layout *layout = layout_of(header.type);

		err = layout ? filter_encode(to + *size, &header, from, layout, &more)
			     : action_encode(to + *size, &header, from, handles, &more);
		*size += more;
		from += header.size;
	}
	return err;
}
