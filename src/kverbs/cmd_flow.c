/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Commands for flow steering, which driver libraries call: 0 or a positive errno. A program
 * describes packets by a list of specifications, each a header with a value and a mask; the
 * kernel's layouts of these differ, and so does the beginning of the value. No state; any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "kverbs/commands.h"

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

enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]), SPEC_MAX = SPEC_HEADER + 2 * 40 };

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
static uint32_t handle_of_action(const uint8_t *from)
{
	struct ibv_flow_spec_action_handle spec;

	memcpy(&spec, from, sizeof(spec));
	return container_of(spec.action, const struct provider_flow_action, ibv)->handle;
}

static uint32_t handle_of_counters(const uint8_t *from)
{
	struct ibv_flow_spec_counter_action spec;

	memcpy(&spec, from, sizeof(spec));
	return container_of(spec.counters, const struct provider_counters, ibv)->handle;
}

/* Specifications that say what is done with a packet. All with a word have it in one place. */
static int action_encode(uint8_t *to, const struct spec_header *header, const uint8_t *from,
			 size_t *size)
{
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
		action.tag_id = handle_of_action(from);
		break;
	case IBV_FLOW_SPEC_ACTION_COUNT:
		action.tag_id = handle_of_counters(from);
		break;
	default:
		return EINVAL;
	}
	memcpy(to, &action, action.size);
	*size = action.size;
	return 0;
}

/* All specifications behind flow_attr: *size has their bytes in `to`. */
static int specs_encode(uint8_t *to, const struct ibv_flow_attr *attr, size_t *size)
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
			     : action_encode(to + *size, &header, from, &more);
		*size += more;
		from += header.size;
	}
	return err;
}

/* `driver` and `driver_size`: what the driver appends. */
EXPORT int ibv_cmd_create_flow(struct ibv_qp *qp, struct ibv_flow *flow, struct ibv_flow_attr *attr,
			       void *driver, size_t driver_size)
{
	struct ib_uverbs_create_flow_resp answer;
	struct ib_uverbs_create_flow *core =
		calloc(1, sizeof(*core) + attr->num_of_specs * (size_t)SPEC_MAX);
	size_t size;

	if (!core)
		return ENOMEM;
	core->qp_handle = qp->handle;
	core->flow_attr.type = attr->type;
	core->flow_attr.priority = attr->priority;
	core->flow_attr.num_of_specs = attr->num_of_specs;
	core->flow_attr.port = attr->port;
	core->flow_attr.flags = attr->flags;
	int err = specs_encode((uint8_t *)(core + 1), attr, &size);

	core->flow_attr.size = (uint16_t)size;
	if (!err)
		err = command_run(kernel_of(qp->context),
				  &(struct command){
					  .number = IB_USER_VERBS_EX_CMD_CREATE_FLOW,
					  .extended = true,
					  .core = core,
					  .core_size = sizeof(*core) + size,
					  .answer = &answer,
					  .answer_size = sizeof(answer),
					  .driver = driver_data_of(
						  driver, 0, driver ? driver_size : 0, NULL, 0, 0),
				  });
	free(core);
	if (err) {
		errno = err;
		return err;
	}
	flow->context = qp->context;
	flow->handle = answer.flow_handle;
	return 0;
}

EXPORT int ibv_cmd_destroy_flow(struct ibv_flow *flow)
{
	struct ib_uverbs_destroy_flow core = {.flow_handle = flow->handle};

	return destroy_result(COMMAND_PLAIN_EXTENDED(flow->context, DESTROY_FLOW, core));
}
