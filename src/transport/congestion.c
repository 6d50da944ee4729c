/* SPDX-License-Identifier: BSD-2-Clause */
/* See congestion.h. */
#include "transport/congestion.h"

#include "transport/transport.h"

enum {
	PATIENCE_MIN_NS = 1000000,
	PATIENCE_FIRST_NS = 20000000, /* until a round trip has been measured */
};

void congestion_start(struct congestion *c)
{
	*c = (struct congestion){
		.window = CONGESTION_FIRST,
		.threshold = TP_WINDOW_MAX,
		.step = CONGESTION_STEP_MIN,
	};
}

/* One round trip ends when a window's worth of bytes has been acknowledged. */
static void count_rounds(struct congestion *c, uint32_t bytes)
{
	c->round_bytes += bytes;
	if (c->round_bytes < c->window)
		return;
	c->round_bytes = 0;
	if (++c->rounds < CONGESTION_ROUNDS)
		return;
	c->rounds = 0;
	if (c->step < CONGESTION_STEP_MAX)
		c->step *= 2;
}

void congestion_acknowledged(struct congestion *c, uint32_t bytes, bool filled)
{
	c->since_cut += bytes;
	c->passed += bytes;
	if (!filled || c->window >= TP_WINDOW_MAX)
		return;
	uint64_t grown = c->window;

	if (c->window < c->threshold) {
		grown += bytes;
	} else {
		grown += (uint64_t)c->step * bytes / c->window;
		count_rounds(c, bytes);
	}
	c->window = grown < TP_WINDOW_MAX ? (uint32_t)grown : TP_WINDOW_MAX;
}

/* The path's own round trip is the shortest sample, raised slowly because paths change. */
static void note_own(struct congestion *c, uint32_t sample, uint64_t bytes)
{
	uint64_t rate = bytes * 1000000 / sample;

	if (!c->own_rtt_ns || sample < c->own_rtt_ns)
		c->own_rtt_ns = sample;
	else
		c->own_rtt_ns += (sample - c->own_rtt_ns) / 4096;
	c->rate -= c->rate / 16;
	if (rate > c->rate)
		c->rate = rate;
}

/* The usual smoothing: an eighth of the new sample, a quarter of its deviation. */
void congestion_round_trip(struct congestion *c, uint64_t ns, uint64_t bytes)
{
	uint32_t sample = ns < UINT32_MAX / 8 ? (uint32_t)ns + !ns : UINT32_MAX / 8;

	note_own(c, sample, bytes);
	if (sample > c->peak_rtt_ns)
		c->peak_rtt_ns = sample;
	if (!c->rtt_ns) {
		c->rtt_ns = sample;
		c->deviation_ns = sample / 2;
		return;
	}
	uint32_t off = sample > c->rtt_ns ? sample - c->rtt_ns : c->rtt_ns - sample;

	c->deviation_ns = c->deviation_ns - c->deviation_ns / 4 + off / 4;
	c->rtt_ns = c->rtt_ns - c->rtt_ns / 8 + sample / 8;
}

static void congestion_shrink(struct congestion *c, uint64_t to, uint64_t now)
{
	if (to < CONGESTION_FLOOR)
		to = CONGESTION_FLOOR;
	if (to < c->window)
		c->window = (uint32_t)to;
	c->threshold = c->window;
	c->cut_ns = now;
	c->since_cut = 0;
	c->peak_rtt_ns = 0;
}

/* A loss within a round trip after a cut is no new information: the packet was sent before the
 * cut. */
static bool cut_lately(const struct congestion *c, uint64_t now)
{
	return c->cut_ns && now - c->cut_ns < c->rtt_ns;
}

static void step_anew(struct congestion *c)
{
	c->step = CONGESTION_STEP_MIN;
	c->rounds = c->round_bytes = 0;
}

/* Counts a loss. True: losses are so rare that they don't indicate congestion. */
static bool is_rare(struct congestion *c, uint32_t bytes)
{
	if (c->passed > (uint64_t)CONGESTION_MEMORY * c->window) {
		c->passed /= 2;
		c->lost /= 2;
	}
	c->lost += bytes;
	return c->lost * CONGESTION_RARE < c->passed;
}

void congestion_loss(struct congestion *c, uint32_t bytes, bool costly, uint64_t now)
{
	bool rare = is_rare(c, bytes) && !costly;

	if (cut_lately(c, now))
		return;
	bool queued = c->peak_rtt_ns > c->own_rtt_ns + c->own_rtt_ns / 2;
	bool often = c->since_cut < c->window;
	uint32_t part = (queued || often) && !rare ? (costly ? 8 : 16) : 64;
	uint64_t to = c->window - c->window / part;
	uint64_t turn = rare	 ? c->rtt_ns
			: costly ? c->own_rtt_ns
				 : ((uint64_t)c->own_rtt_ns + c->rtt_ns) / 2;
	uint64_t carried = c->rate * turn / 1000000;

	congestion_shrink(c, to > carried ? to : carried, now);
	if (queued)
		step_anew(c);
	else if (c->step > CONGESTION_STEP_MIN)
		c->step /= 2;
}

void congestion_marked(struct congestion *c, uint64_t now)
{
	if (cut_lately(c, now))
		return;
	congestion_shrink(c, c->window - c->window / 8, now);
	step_anew(c);
}

void congestion_silence(struct congestion *c, uint64_t now)
{
	congestion_shrink(c, c->window / 2, now);
	step_anew(c);
	c->rate = 0;
}

uint64_t congestion_echo_ns(const struct congestion *c)
{
	return c->rtt_ns ? c->rtt_ns + 4 * (uint64_t)c->deviation_ns : PATIENCE_FIRST_NS;
}

uint64_t congestion_patience_ns(const struct congestion *c)
{
	if (!c->rtt_ns)
		return PATIENCE_FIRST_NS;
	uint64_t ns = 2 * (uint64_t)c->rtt_ns + 4 * (uint64_t)c->deviation_ns;

	return ns > PATIENCE_MIN_NS ? ns : PATIENCE_MIN_NS;
}
