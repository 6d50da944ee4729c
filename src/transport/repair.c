/* SPDX-License-Identifier: BSD-2-Clause */
/* What is retransmitted after a loss, see repair.h. */
#include "transport/repair.h"

#include "transport/requester.h"

void repair_rewind(struct tp *tp, uint64_t now)
{
	struct requester *q = &tp->requester;

	q->next = q->una;
	q->cursor = q->first;
	q->flight = q->answers_owed = q->arrived = 0;
	q->asked = UINT32_MAX / 2; /* the next packet asks for an acknowledgement */
	q->timed_at = TP_NEVER;
	q->probe_at = TP_NEVER; /* runs again from the next packet on */
	q->repeat = REPEAT_NONE;
	q->hole = HOLE_NONE;
	q->rewound_psn = q->una;
	q->rewound_at = now;
}

/* Whether the report that packet `una` is missing is new: it may have been in flight for `echo_ns`
 * when the requester last went back. */
static bool is_loss(const struct requester *q, uint64_t echo_ns, uint64_t now)
{
	if (q->next == q->una || q->rnr_until != TP_NEVER)
		return false;
	return q->rewound_at == TP_NEVER || q->rewound_psn != q->una ||
	       now - q->rewound_at >= echo_ns;
}

void repair_go_back(struct tp *tp, uint64_t echo_ns, uint64_t now)
{
	if (!is_loss(&tp->requester, echo_ns, now))
		return;
	repair_rewind(tp, now);
	congestion_loss(&tp->congestion, tp->path.mtu, true, now);
}

/* The number of packets in a burst. */
static uint32_t hole_max(const struct tp *tp)
{
	return (uint32_t)TP_BURST >> tp->mtu_shift;
}

/* Sends `una` again next; if `wide`, also what follows it up to the end of a burst. */
static void repair_repeat(struct tp *tp, bool wide)
{
	struct requester *q = &tp->requester;

	repeat_begin(q);
	q->probe_at = TP_NEVER; /* runs from when the packet is sent */
	q->again = q->una;
	q->again_of = q->first;
	q->again_end = q->una + (wide ? hole_max(tp) : 1);
}

/* The peer may be a Soft-RoCE, which drops FLUSH with the right ICRC, and others drop it with
 * Soft-RoCE's: every second probe has the other one, so that a single loss costs no more than that
 * of any packet. */
static void flush_try_other(struct requester *q)
{
	if (q->first == q->begun || request_at(q, q->first)->opcode != IBV_WR_FLUSH)
		return;
	if (!q->probes)
		q->flush_probes = 0;
	if (q->flush_probes++ % 2)
		q->flush_doubled = !q->flush_doubled;
}

void repair_probe(struct tp *tp)
{
	if (tp->type == IBV_QPT_RC)
		flush_try_other(&tp->requester);
	repair_repeat(tp, tp->requester.hole == HOLE_WIDE);
}

/* Packet `una` is missing at the peer. The peer drops what lies further ahead of it than it can
 * keep, so packets are sent again from there on. */
static void send_unkept(struct tp *tp)
{
	struct requester *q = &tp->requester;
	uint32_t end = q->una + early_room(tp->path.mtu), count = q->first, bytes = 0;

	if (!psn_before(end, q->next) || q->open)
		return;
	for (uint32_t at = q->una; at != end;) {
		const struct tp_request *r = request_at(q, count);
		uint32_t to = psn_before(r->last_psn, end) ? r->last_psn + 1 : end;

		bytes += bytes_between(tp, r, at, to);
		count += to == r->last_psn + 1;
		at = to;
	}
	q->next = end;
	q->cursor = count;
	q->flight = bytes;
}

static void repeat_hole(struct tp *tp, enum hole hole, uint64_t now)
{
	struct requester *q = &tp->requester;

	send_unkept(tp);
	q->hole = hole;
	repair_repeat(tp, q->hole == HOLE_WIDE);
	q->timed_at = TP_NEVER;
	q->rewound_psn = q->una;
	q->rewound_at = now;
}

/* Whether `una` is in the range that was or will be repeated, but isn't its first packet. */
static bool repeated_lately(const struct requester *q, uint64_t echo_ns, uint64_t now)
{
	return q->hole == HOLE_WIDE && psn_before(q->una, q->again_end) &&
	       now - q->rewound_at < echo_ns;
}

/* The peer has received later packets than `una`. If it keeps them, it needs only `una`: the
 * requester repeats that packet, continues with new ones, and learns from the acknowledgement
 * whether this was right (repair_arrived). Missing READ and atomic answers are detected here, not
 * by the peer, and for those the requester goes back. */
void repair_missing(struct tp *tp, uint64_t echo_ns, uint64_t now)
{
	struct requester *q = &tp->requester;

	if (q->repairs_failed >= TP_REPAIRS_MAX || wants_answer(request_at(q, q->first))) {
		repair_go_back(tp, echo_ns, now);
		return;
	}
	if (!is_loss(q, echo_ns, now) || repeated_lately(q, echo_ns, now))
		return;
	repeat_hole(tp, q->wide_holes ? HOLE_WIDE : HOLE_NARROW, now);
	q->wide_holes -= q->wide_holes != 0;
	congestion_loss(&tp->congestion, (q->again_end - q->again) << tp->mtu_shift, false, now);
}

/* Predicts the next holes from the last one: as large, or many close together. */
static void expect_holes(struct tp *tp, bool widened)
{
	struct requester *q = &tp->requester;
	bool is_near = q->una - q->rewound_psn < hole_max(tp);

	if (widened)
		q->wide_holes = TP_WIDE_HOLES;
	else if (is_near && q->was_near && !q->wide_holes)
		q->wide_holes = 1;
	q->was_near = is_near;
}

bool repair_arrived(struct tp *tp, bool repeated, bool alone, uint64_t now)
{
	struct requester *q = &tp->requester;
	enum hole was = q->hole;
	bool was_widened = q->widened;

	if (repeated && (repeat_was_sent(q) || (alone && repeat_is_due(q))))
		return repeat_is_due(q); /* the rest of it is in flight, or to be sent */
	q->hole = HOLE_NONE;
	q->widened = false;
	if (!repeated)
		return false;
	if (alone && was == HOLE_NARROW && q->next != q->una &&
	    !wants_answer(request_at(q, q->first))) {
		repeat_hole(tp, HOLE_WIDE, now);
		q->widened = true;
		return true;
	}
	if (!alone) {
		q->repairs_failed = 0;
		expect_holes(tp, was_widened);
	} else if (q->repairs_failed < TP_REPAIRS_MAX) {
		q->repairs_failed++;
	}
	return false;
}

/* While a packet is missing, the peer repeats the last acknowledgement as later packets arrive.
 * Those packets are no longer in flight, so as many new bytes may be, up to what the peer can
 * keep. */
void repair_kept(struct tp *tp)
{
	struct requester *q = &tp->requester;

	if (q->hole == HOLE_NONE || q->repairs_failed)
		return;
	q->arrived += q->ask_span;
	if (q->arrived > tp->congestion.window)
		q->arrived = tp->congestion.window;
}
