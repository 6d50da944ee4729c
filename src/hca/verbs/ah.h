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
	struct ib_uverbs_ah_attr request;	/* as sent to the daemon */
	const struct datagram_carrier *carrier; /* the way of its datagrams: carrier.h */
	bool beyond;				/* a group: datagrams also go to other hosts */
	uint32_t ifindex;			/* of its source address */
	struct record_ud to; /* copied into each request that is posted; without Q_Key */
};

static inline struct ah *ah_of(struct ibv_ah *ibv)
{
	return container_of(ibv, struct ah, ibv);
}

#endif
