/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Specifications of flow rules: which frames a rule is for, and what is done with them. The layout
 * is the kernel's (struct ib_uverbs_flow_spec_* of <rdma/ib_user_verbs.h>): each specification is a
 * header with its type and size, then a value and a mask of the same layout.
 *
 * A specification of a layer matches only frames that have this layer, also where the mask is 0.
 *   ETH    vlan_tag with a mask other than 0 matches frames with a tag only; it is the first one
 *   IPV4   flags: 2 don't fragment, 4 more fragments
 *   IPV6   next_hdr is the protocol behind the extension headers
 *   MPLS   the first label behind what the specification before it describes: Ethernet, UDP (port
 *          6635) or GRE
 * With IBV_FLOW_SPEC_INNER a specification is about what is in a tunnel: VXLAN (UDP port 4789),
 * GRE, MPLS, or IP in IP.
 */
#ifndef VERBENA_WIRE_STEER_H
#define VERBENA_WIRE_STEER_H

#include "wire/ether.h"

/* The most bytes of a rule's specifications. */
enum { STEER_BYTES = 512 };

/* What a rule's actions say. */
struct steer_actions {
	uint32_t tag; /* of the completion */
	bool tags, drops, counts;
	bool describes; /* there are specifications that describe frames */
};

/* Checks `count` specifications of `size` bytes: 0; -EINVAL: they are malformed, or no frame has
 * all their layers, or one layer is described twice; -EOPNOTSUPP: their kind isn't supported.
 * `why`: what is wrong, in words. */
int steer_check(const uint8_t *specs, size_t size, unsigned int count,
		struct steer_actions *actions, const char **why);

/* Whether the frame has all that the specifications describe. They have been checked. */
bool steer_matches(const uint8_t *specs, size_t size, const struct ether_frame *frame);

/* Whether two lists, which have been checked, describe the same frames in the same words: the same
 * layers in the same order with the same masks, and the same values as far as the masks go. */
bool steer_same(const uint8_t *specs, size_t size, const uint8_t *others, size_t others_size);

#endif
