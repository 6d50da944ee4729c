/* SPDX-License-Identifier: BSD-2-Clause */
/* For tests of a process that is on no fabric. */
#include "hca/exec/datagram_fabric.h"
#include "hca/fabric/node.h"

#include <errno.h>

int datagram_address(const struct membership *membership, struct ah *ah,
		     const struct ibv_ah_attr *attr)
{
	(void)membership, (void)ah, (void)attr;
	return EINVAL;
}

int node_query_gid(const struct node *node, uint32_t port, uint32_t index,
		   struct ibv_gid_entry *entry)
{
	(void)node, (void)port, (void)index, (void)entry;
	return EINVAL;
}
