/* SPDX-License-Identifier: BSD-2-Clause */
/* See pacer.h. */
#include "transport/pacer.h"

/* Bytes per millisecond. */
static uint64_t rate_of(const struct congestion *c)
{
	uint64_t round = (uint64_t)c->window * 1000000 / c->rtt_ns;

	return 1 + (c->window < c->threshold ? 2 * round : round + round / 16);
}

static void begin_burst(struct pacer *p, const struct congestion *c, uint64_t now)
{
	uint64_t rate = rate_of(c);
	uint64_t most = rate * PACER_SLACK_NS / 1000000;

	p->left = most < PACER_BURST ? (uint32_t)most : PACER_BURST;
	if (p->at + PACER_SLACK_NS < now)
		p->at = now - PACER_SLACK_NS;
	p->at += (uint64_t)p->left * 1000000 / rate;
}

void pacer_expire(struct pacer *p, const struct congestion *c, uint64_t now)
{
	if (pacer_runs(c) && !p->left && p->at && p->at <= now)
		begin_burst(p, c, now);
}

void pacer_sent(struct pacer *p, const struct congestion *c, uint32_t bytes, uint64_t now)
{
	if (!p->left)
		begin_burst(p, c, now);
	p->left -= bytes < p->left ? bytes : p->left;
}
