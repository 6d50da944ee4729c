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
	/* The daemon makes the channel with its first CQ, in one round trip. `first` is taken
	 * before an entry (books.h) begins, so that of several threads that make a first CQ one
	 * registers the channel. */
	struct mutex first;
	/* At the daemon. Set once by cq_came(), within an entry, under `first`; without `first`
	 * when a QP brings CQ and channel (cq_create_for_qp()), whose channel is used by one thread
	 * only until then. Never cleared. A return, which keeps entries out, reads it. */
	bool registered;
	uint32_t handle;
	struct list held; /* always in the books */
};

#endif
