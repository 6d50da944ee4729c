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

struct ah {
	struct ibv_ah ibv;
	struct list held;
	struct ib_uverbs_ah_attr request; /* as the daemon was told */
	bool roce;			  /* to another host */
	bool group;			  /* multicast: mcast.h */
	uint32_t ifindex;		  /* of its source address */
	struct record_ud to; /* what a request takes of it when it is posted; no Q_Key */
};

static inline struct ah *ah_of(struct ibv_ah *ibv)
{
	return container_of(ibv, struct ah, ibv);
}

#endif
