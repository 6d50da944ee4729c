/* SPDX-License-Identifier: BSD-2-Clause */
/* Address handles. */
#ifndef VERBENA_HCA_VERBS_AH_H
#define VERBENA_HCA_VERBS_AH_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "hca/local/record.h"

struct datagram_carrier;

struct ah {
	struct ibv_ah ibv;
	uint32_t handle;
	struct list held;
	struct ib_uverbs_ah_attr request;	/* as the daemon was told */
	const struct datagram_carrier *carrier; /* the way of its datagrams: carrier.h */
	bool beyond;				/* a group: other hosts get it, too */
	uint32_t ifindex;			/* of its source address */
	struct record_ud to; /* what a request takes of it when it is posted; no Q_Key */
};

static inline struct ah *ah_of(struct ibv_ah *ibv)
{
	return container_of(ibv, struct ah, ibv);
}

#endif
