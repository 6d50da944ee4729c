/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels, as objects; completion.h has what the program calls on them. */
#ifndef VERBENA_HCA_VERBS_CHANNEL_H
#define VERBENA_HCA_VERBS_CHANNEL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "hca/verbs/event.h"

struct channel {
	struct ibv_comp_channel ibv;
	struct event_queue queue;
	/* The daemon makes the channel with its first CQ, in one round trip. `registered` changes
	 * under `first`, which is taken before an entry (books.h) begins, and within the entry. */
	struct mutex first;
	bool registered;
	uint32_t handle;
	struct list held; /* always in the books */
};

#endif
