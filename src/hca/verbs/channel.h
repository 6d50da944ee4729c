/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion channels, as objects; what the program calls on them is in completion.h. */
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
	/* The daemon learns of it with its first CQ, in one round trip. Changes under `first`,
	 * which is taken before an entry (books.h) begins, and within the entry. */
	struct mutex first;
	bool registered;
	uint32_t handle;
	struct list held; /* always in the books */
};

#endif
