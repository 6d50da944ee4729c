/* SPDX-License-Identifier: BSD-2-Clause */
/* A context with a fake daemon and engine that only count calls, for tests of CQs and related
 * files. */
#ifndef VERBENA_TESTS_FAKES_H
#define VERBENA_TESTS_FAKES_H

#include "hca/verbs/completion.h"
#include "hca/verbs/cq.h"

struct fakes {
	unsigned int polls, releases;
	unsigned int armed_polls; /* of `polls`: those of an armed CQ */
	int daemon_result;	  /* result of the next calls to the daemon */
	unsigned int daemon_cqs, daemon_channels;
	uint32_t resized_to;
	void (*on_poll)(void); /* called for each engine pass */
	uint64_t now;
};

extern struct fakes fakes;

/* Makes a fresh context with an HCA; closes it and checks that nothing is left. */
struct ibv_context *fake_open(void);
void fake_close(struct ibv_context *context);

struct cq *fake_cq(struct ibv_context *context, unsigned int cqe, struct ibv_comp_channel *channel);
/* A successful completion with this wr_id. */
bool fake_push(struct cq *cq, uint64_t wr_id);
bool fd_readable(int fd);

#endif
