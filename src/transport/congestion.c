/* SPDX-License-Identifier: BSD-2-Clause */
/* See congestion.h. */
#include "transport/congestion.h"

#include "transport/transport.h"

enum { PATIENCE_MIN_NS = 1000000 };

void congestion_start(struct congestion *c)
{
	*c = (struct congestion){.window = CONGESTION_FIRST, .threshold = TP_WINDOW_MAX};
}

void congestion_acknowledged(struct congestion *c, uint32_t bytes, bool filled)
{
	if (!filled || c->window >= TP_WINDOW_MAX)
		return;
	uint64_t grown = c->window;

	if (c->window < c->threshold)
		grown += bytes;
	else
		grown += (uint64_t)CONGESTION_STEP * bytes / c->window;
	c->window = grown < TP_WINDOW_MAX ? (uint32_t)grown : TP_WINDOW_MAX;
}

/* The usual smoothing: an eighth of what is new, a quarter of how far it is off. */
void congestion_round_trip(struct congestion *c, uint64_t ns)
{
	uint32_t sample = ns < UINT32_MAX / 8 ? (uint32_t)ns + !ns : UINT32_MAX / 8;

	if (!c->rtt_ns) {
		c->rtt_ns = sample;
		c->deviation_ns = sample / 2;
		return;
	}
	uint32_t off = sample > c->rtt_ns ? sample - c->rtt_ns : c->rtt_ns - sample;

	c->deviation_ns = c->deviation_ns - c->deviation_ns / 4 + off / 4;
	c->rtt_ns = c->rtt_ns - c->rtt_ns / 8 + sample / 8;
}

static void shrink(struct congestion *c, uint32_t to, uint64_t now)
{
	if (to < CONGESTION_FLOOR)
		to = CONGESTION_FLOOR;
	if (to < c->window)
		c->window = to;
	c->threshold = c->window;
	c->cut_ns = now;
}

void congestion_loss(struct congestion *c, uint64_t now)
{
	if (c->cut_ns && now - c->cut_ns < c->rtt_ns)
		return;
	shrink(c, c->window - c->window / 8, now);
}

void congestion_silence(struct congestion *c, uint64_t now)
{
	shrink(c, c->window / 2, now);
}

uint64_t congestion_echo_ns(const struct congestion *c)
{
	return c->rtt_ns ? c->rtt_ns + 4 * (uint64_t)c->deviation_ns : PATIENCE_MIN_NS;
}

uint64_t congestion_patience_ns(const struct congestion *c)
{
	uint64_t ns = 2 * (uint64_t)c->rtt_ns + 4 * (uint64_t)c->deviation_ns;

	return ns > PATIENCE_MIN_NS ? ns : PATIENCE_MIN_NS;
}
