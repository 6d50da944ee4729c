/* SPDX-License-Identifier: BSD-2-Clause */
/* A context on a daemon and an engine that only count, for tests of the files around CQs. */
#ifndef VERBENA_TESTS_FAKES_H
#define VERBENA_TESTS_FAKES_H

#include "hca/verbs/completion.h"
#include "hca/verbs/cq.h"

struct fakes {
	unsigned int polls, releases;
	int daemon_result; /* what the next calls to the daemon return */
	unsigned int daemon_cqs, daemon_channels;
	uint32_t resized_to;
	void (*on_poll)(void); /* what an engine's pass does */
	uint64_t now;
};

extern struct fakes fakes;

/* A fresh context with an HCA behind it, and its end (which checks that nothing was left). */
struct ibv_context *fake_open(void);
void fake_close(struct ibv_context *context);

struct cq *fake_cq(struct ibv_context *context, unsigned int cqe, struct ibv_comp_channel *channel);
/* A successful completion with this wr_id. */
bool fake_push(struct cq *cq, uint64_t wr_id);
bool fd_readable(int fd);

#endif
