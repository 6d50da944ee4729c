/* SPDX-License-Identifier: BSD-2-Clause */
/* See segment.h. */
#include "hca/exec/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hca/exec/datagram_send.h"
#include "hca/exec/execute.h"
#include "hca/exec/fanout.h"
#include "hca/exec/mcast.h"
#include "hca/local/datagram_inbox.h"
#include "hca/local/link.h"
#include "hca/process/capture.h"
#include "hca/process/context.h"
#include "hca/roce/interface.h"
#include "hca/verbs/flow.h"
#include "hca/verbs/wq.h"
#include "wire/steer.h"

/* Rules are looked at in the order of their levels: normal ones by priority, then the rules for
 * what no normal rule takes. Sniffers get every frame. */
enum { LEVEL_DEFAULT = 1 << 16, LEVEL_SNIFFER = 1 << 17 };

struct level_rule {
	uint32_t level;
	struct flow_rule rule;
};

struct segment {
	struct lock lock;
	/* What the copy was made of. */
	const struct groups *table GUARDED_BY(lock), *old GUARDED_BY(lock);
	uint64_t changes GUARDED_BY(lock), old_changes GUARDED_BY(lock);
	/* Of this user's processes only. */
	struct level_rule *rules GUARDED_BY(lock);
	uint32_t count GUARDED_BY(lock), room GUARDED_BY(lock);
	bool has_egress GUARDED_BY(lock); /* some of them are for what is sent */
};

/* A frame, as the rules see it. */
struct seen {
	struct ether_frame parsed;
	uint32_t device;
	uint32_t source_qpn;
	/* The sender's QP doesn't want what it sends to groups. */
	bool blocks_self;
	bool is_from_outside; /* by the network interface */
};

/* A queue pair that a frame is for, and by which rule. */
struct steered {
	uint32_t qpn, handle, tag, level;
	uint8_t actions;
};

/* The most queue pairs that get one frame. */
enum { STEERED_MAX = 256 };

struct steering {
	uint32_t n;
	struct steered to[STEERED_MAX];
};

int segment_make(struct hca *hca)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	if (!segment)
		return -ENOMEM;
	lock_init(&segment->lock, RANK_SEGMENT);
	hca->segment = segment;
	return 0;
}

void segment_unmake(struct hca *hca)
{
	if (!hca->segment)
		return;
	lock_take(&hca->segment->lock);
	free(hca->segment->rules);
	lock_give(&hca->segment->lock);
	free(hca->segment);
	hca->segment = NULL;
}

void segment_leave(struct hca *hca)
{
	lock_init(&hca->segment->lock, RANK_SEGMENT);
}

/* ------------------------------------------------------------------ the copy of the rules */

static uint32_t rule_level(const struct flow_rule *rule)
{
	switch (rule->type) {
	case IBV_FLOW_ATTR_NORMAL:
		return rule->priority;
	case IBV_FLOW_ATTR_SNIFFER:
		return LEVEL_SNIFFER;
	default:
		return LEVEL_DEFAULT + rule->priority;
	}
}

static bool segment_has(const struct segment *segment, const struct flow_rule *rule)
	REQUIRES(segment->lock)
{
	for (uint32_t i = 0; i < segment->count; i++)
		if (segment->rules[i].rule.qpn == rule->qpn &&
		    segment->rules[i].rule.handle == rule->handle)
			return true;
	return false;
}

static void segment_add(struct segment *segment, const struct flow_rule *rule)
	REQUIRES(segment->lock)
{
	if (segment->count == segment->room) {
		uint32_t room = segment->room ? segment->room * 2 : 16;
		struct level_rule *rules = realloc(segment->rules, room * sizeof(*rules));

		if (!rules)
			return;
		segment->rules = rules;
		segment->room = room;
	}
	segment->rules[segment->count++] = (struct level_rule){rule_level(rule), *rule};
	segment->has_egress |= rule->actions & FLOW_EGRESS;
}

static int compare_levels(const void *a, const void *b)
{
	uint32_t x = ((const struct level_rule *)a)->level,
		 y = ((const struct level_rule *)b)->level;

	return x < y ? -1 : x > y;
}

/* The user of the process at a slot, as flows.user has it; of one that hasn't returned to this
 * daemon yet, as the last daemon knew it. */
static uint64_t tables_user(const struct mcast_tables *tables, uint32_t slot)
{
	const struct flow_rules *flows = tables->table ? &tables->table->flows : NULL;
	uint64_t user = flows ? atomic_load_explicit(&flows->user[slot], memory_order_relaxed) : 0;

	return user || !tables->old
		       ? user
		       : atomic_load_explicit(&tables->old->flows.user[slot], memory_order_relaxed);
}

/* Copies the rules of one table. `absent_only`: of processes that the new daemon doesn't have with
 * all their rules yet. */
static void copy_rules(struct segment *segment, const struct mcast_tables *tables,
		       const struct groups *from, uint64_t user, bool absent_only)
	REQUIRES(segment->lock)
{
	uint32_t places = atomic_load_explicit(&from->flows.places, memory_order_relaxed);
	struct flow_rule rule;

	for (uint32_t i = 0; i < places && i < LIMIT_FLOWS; i++) {
		if (!flows_read(&from->flows, i, &rule))
			continue;
		uint32_t slot = rule.qpn >> LIMIT_QP_BITS & (LIMIT_SLOTS - 1);

		if (tables_user(tables, slot) != user)
			continue;
		if (absent_only &&
		    (atomic_load_explicit(&tables->table->flows.user[slot], memory_order_relaxed) ||
		     segment_has(segment, &rule)))
			continue;
		segment_add(segment, &rule);
	}
}

/* Copies the rules anew if they have changed. hca.engine or a QP's lock is held. */
static void segment_refresh(struct hca *hca, struct segment *segment) REQUIRES(segment->lock)
{
	struct mcast_tables tables = mcast_tables(hca);
	uint64_t changes = tables.table ? flows_changes(&tables.table->flows) : 0;
	uint64_t old_changes = tables.old ? flows_changes(&tables.old->flows) : 0;

	if (likely(segment->table == tables.table && segment->old == tables.old &&
		   segment->changes == changes && segment->old_changes == old_changes))
		return;
	segment->table = tables.table;
	segment->old = tables.old;
	segment->changes = changes;
	segment->old_changes = old_changes;
	segment->count = 0;
	segment->has_egress = false;
	uint64_t user = tables_user(&tables, hca->slot);

	if (!user)
		return;
	copy_rules(segment, &tables, tables.table, user, false);
	if (tables.old)
		copy_rules(segment, &tables, tables.old, user, true);
	if (segment->count)
		qsort(segment->rules, segment->count, sizeof(segment->rules[0]), compare_levels);
}

/* ------------------------------------------------------------------ steering */

/* Whether the rule is for the frame. A rule that describes no frames gives none back to the queue
 * pair that sends it, as a station doesn't hear itself. */
static bool rule_applies(const struct flow_rule *rule, const struct seen *seen)
{
	bool self = rule->qpn == seen->source_qpn;
	bool group = ether_is_group(seen->parsed.outer.mac);

	if (rule->device != seen->device)
		return false;
	if (self && seen->blocks_self && group && !(rule->actions & FLOW_EGRESS))
		return false;
	switch (rule->type) {
	case IBV_FLOW_ATTR_NORMAL:
		return steer_matches(rule->specs, rule->size, &seen->parsed);
	case IBV_FLOW_ATTR_MC_DEFAULT:
		return group && !self;
	default:
		return !self;
	}
}

static void steering_add(struct steering *steering, const struct level_rule *at)
{
	if (steering->n < STEERED_MAX)
		steering->to[steering->n++] = (struct steered){
			.qpn = at->rule.qpn,
			.handle = at->rule.handle,
			.tag = at->rule.tag,
			.level = at->level,
			.actions = at->rule.actions,
		};
}

/* A rule that drops keeps the frame from the other rules of its level. */
static void steering_drop(struct steering *steering, uint32_t level)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < steering->n; i++) {
		const struct steered *s = &steering->to[i];

		if (s->level != level || s->actions & (FLOW_DROP | FLOW_DONT_TRAP))
			steering->to[kept++] = *s;
	}
	steering->n = kept;
}

/* Finds the rules that take the frame, of those for what is sent, or of the others: all of the
 * first level that has one which keeps the frame, those before it that let it pass, and sniffers.
 */
static void rules_take(const struct segment *segment, const struct seen *seen, bool egress,
		       struct steering *steering) REQUIRES(segment->lock)
{
	uint32_t level = UINT32_MAX;
	bool drops = false;

	for (uint32_t i = 0; i < segment->count; i++) {
		const struct level_rule *at = &segment->rules[i];

		if ((at->level > level && at->level < LEVEL_SNIFFER) ||
		    !(at->rule.actions & FLOW_EGRESS) == egress || !rule_applies(&at->rule, seen))
			continue;
		steering_add(steering, at);
		if (at->level == LEVEL_SNIFFER || at->rule.actions & FLOW_DONT_TRAP)
			continue;
		level = at->level;
		drops |= at->rule.actions & FLOW_DROP;
	}
	if (drops)
		steering_drop(steering, level);
}

static bool steering_drops(const struct steering *steering)
{
	for (uint32_t i = 0; i < steering->n; i++)
		if (steering->to[i].actions & FLOW_DROP)
			return true;
	return false;
}

/* Finds the rules that take the frame on its way out, and, if none of them drops it, those that
 * take it then. */
static void frame_steer(struct hca *hca, const struct seen *seen, struct steering *out,
			struct steering *steering)
{
	struct segment *segment = hca->segment;

	out->n = steering->n = 0;
	lock_take(&segment->lock);
	segment_refresh(hca, segment);
	if (unlikely(segment->has_egress && !seen->is_from_outside))
		rules_take(segment, seen, true, out);
	if (likely(!steering_drops(out)))
		rules_take(segment, seen, false, steering);
	lock_give(&segment->lock);
}

/* ------------------------------------------------------------------ sending */

/* Writes the slots to which the frame goes into the fanout. Returns the QP that it is for, if it is
 * one only, else 0. Rules that drop, and those for what is sent, have to see a frame only if they
 * count. */
static uint32_t steering_slots(const struct steering *out, const struct steering *steering,
			       struct fanout *fanout)
{
	uint32_t only = 0;
	bool several = false;

	memset(fanout->left, 0, sizeof(fanout->left));
	for (uint32_t i = 0; i < out->n; i++) {
		uint32_t slot = out->to[i].qpn >> LIMIT_QP_BITS;

		if (slot >= LIMIT_SLOTS || !(out->to[i].actions & FLOW_COUNT))
			continue;
		fanout->left[slot / 64] |= 1ull << slot % 64;
		several = true;
	}
	for (uint32_t i = 0; i < steering->n; i++) {
		const struct steered *s = &steering->to[i];
		uint32_t slot = s->qpn >> LIMIT_QP_BITS;

		if (slot >= LIMIT_SLOTS || (s->actions & (FLOW_DROP | FLOW_COUNT)) == FLOW_DROP)
			continue;
		fanout->left[slot / 64] |= 1ull << slot % 64;
		several |= (only && only != s->qpn) || s->actions & FLOW_DROP;
		only = s->qpn;
	}
	return several ? 0 : only;
}

/* Whether the frame also leaves the host: a frame to one station that a normal rule has taken
 * doesn't. */
static bool frame_leaves(const struct interface *interface, const struct seen *seen,
			 const struct steering *steering)
{
	if (likely(!interface) || interface->device != seen->device)
		return false;
	for (uint32_t i = 0; i < steering->n && !ether_is_group(seen->parsed.outer.mac); i++)
		if (steering->to[i].level < LEVEL_DEFAULT &&
		    !(steering->to[i].actions & FLOW_DONT_TRAP))
			return false;
	return true;
}

static enum step segment_begin(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			       int count) REQUIRES(qp->lock)
{
	uint8_t head[ETHER_LOOK];
	size_t n = wqe->length < sizeof(head) ? wqe->length : sizeof(head);
	struct steering out, steering;
	struct seen seen = {
		.device = qp->context->device_index,
		.source_qpn = qp_number(qp),
		.blocks_self = qp->blocks_self,
	};

	bool leaves;
	int err = 0;

	if (!copy_gather(head, local, count, 0, n))
		return datagram_fail(qp, wqe, IBV_WC_LOC_PROT_ERR);
	ether_parse(head, n, &seen.parsed);
	frame_steer(qp->hca, &seen, &out, &steering);
	leaves = !steering_drops(&out) &&
		 frame_leaves(atomic_load_explicit(&qp->hca->interface, memory_order_acquire),
			      &seen, &steering);
	if (leaves)
		err = interface_send(qp->hca, local, count, wqe->length,
				     wqe->flags & SEND_CHECKSUMS);
	if (err)
		return datagram_fail(qp, wqe,
				     err == -EMSGSIZE ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
	if (capture_on(qp->hca))
		capture_show_frame(qp, wqe, local, count, leaves);
	wqe->ud.remote_qpn = steering_slots(&out, &steering, qp->fanout);
	wqe->flags |= SEND_BEGUN;
	qp->ud_psn++;
	return STEP_DONE;
}

static enum step segment_carry(struct qp *qp, struct send_wqe *wqe, const struct iovec *local,
			       int count) REQUIRES(qp->lock)
{
	if (wqe->length < ETHER_HEADER)
		return datagram_fail(qp, wqe, IBV_WC_LOC_LEN_ERR);
	if (unlikely(!fanout_get(qp)))
		return datagram_sent(qp, wqe);
	if (!(wqe->flags & SEND_BEGUN) && segment_begin(qp, wqe, local, count) != STEP_DONE)
		return STEP_FAILED;
	return fanout_go_on(qp, wqe, local, count, NULL);
}

const struct datagram_carrier datagram_segment = {
	.name = "segment",
	.send = segment_carry,
	.skip = fanout_skip,
};

/* ------------------------------------------------------------------ receiving */

/* Whether the frame comes from a QP of the process at the link's other end, which is one of this
 * user's. */
static bool frame_is_from_peer(struct hca *hca, const struct link *link,
			       const struct ring_header *h)
{
	struct mcast_tables tables = mcast_tables(hca);
	uint64_t user = tables_user(&tables, hca->slot);

	if (likely(record_qpn(h->src) >> LIMIT_QP_BITS == link->slot && user &&
		   tables_user(&tables, link->slot) == user))
		return true;
	log_info("process %d sent a frame as QP 0x%x, or isn't of this user: dropped", link->pid,
		 record_qpn(h->src));
	return false;
}

/* A frame on its way to the QPs of this process. */
struct arriving {
	struct link *link;
	const struct seen *seen;
	const uint8_t *bytes;
	struct arrival arrival;
};

static void frame_deliver(struct hca *hca, struct qp *qp, const struct arriving *in)
{
	static const struct record_ud none;

	lock_take(&qp->lock);
	enum datagram_fate fate = datagram_inbox_take(qp, in->link, &none, &in->arrival, in->bytes);

	lock_give(&qp->lock);
	datagram_count_fate(hca, fate);
}

/* Whether an earlier rule has given the frame to this QP. */
static bool was_delivered(const struct steering *steering, uint32_t before)
{
	for (uint32_t i = 0; i < before; i++)
		if (steering->to[i].qpn == steering->to[before].qpn &&
		    !(steering->to[i].actions & FLOW_DROP))
			return true;
	return false;
}

static void frame_take_one(struct hca *hca, const struct steering *steering, uint32_t i,
			   struct arriving *in) REQUIRES(hca->engine)
{
	const struct steered *s = &steering->to[i];
	struct qp *qp = hca->qps[s->qpn & (LIMIT_QPS_PER_SLOT - 1)];

	if (!qp || qp_number(qp) != s->qpn)
		return;
	if (s->actions & FLOW_COUNT)
		flow_rule_count(qp, s->handle, in->arrival.length);
	if (s->actions & FLOW_DROP || was_delivered(steering, i))
		return;
	in->arrival.tag = s->tag;
	if (qp->spread)
		qp = wq_choose(qp->spread, &in->seen->parsed);
	frame_deliver(hca, qp, in);
}

/* Counts a frame that was sent by the rules of this process. */
static void frame_count_sent(struct hca *hca, const struct steering *out, uint32_t length)
	REQUIRES(hca->engine)
{
	for (uint32_t i = 0; i < out->n; i++) {
		const struct steered *s = &out->to[i];
		const struct qp *qp = hca->qps[s->qpn & (LIMIT_QPS_PER_SLOT - 1)];

		if (s->qpn >> LIMIT_QP_BITS == hca->slot && s->actions & FLOW_COUNT && qp &&
		    qp_number(qp) == s->qpn)
			flow_rule_count(qp, s->handle, length);
	}
}

static bool steering_has_slot(const struct steering *steering, uint32_t slot)
{
	for (uint32_t i = 0; i < steering->n; i++)
		if (steering->to[i].qpn >> LIMIT_QP_BITS == slot)
			return true;
	return false;
}

/* Gives a frame to the queue pairs of this process that it is for. `in`: but for what is parsed
 * here. */
static void frame_arrive(struct hca *hca, struct arriving *in, struct seen *seen)
	REQUIRES(hca->engine)
{
	struct steering out, steering;

	in->seen = seen;
	ether_parse(in->bytes, in->arrival.length, &seen->parsed);
	frame_steer(hca, seen, &out, &steering);
	frame_count_sent(hca, &out, in->arrival.length);
	if (capture_on(hca) && seen->is_from_outside && steering_has_slot(&steering, hca->slot))
		capture_show_frame_came(hca, seen->device, in->bytes, in->arrival.length);
	for (uint32_t i = 0; i < steering.n; i++)
		if (steering.to[i].qpn >> LIMIT_QP_BITS == hca->slot)
			frame_take_one(hca, &steering, i, in);
}

void segment_take(struct hca *hca, struct link *link, const struct ring_header *h,
		  const uint8_t *frame, uint32_t room)
{
	/* The sender may still write into the ring: what is looked at is a copy. */
	uint8_t bytes[LIMIT_FRAME];
	struct seen seen = {
		.device = h->imm & FRAME_DEVICE,
		.source_qpn = record_qpn(h->src),
		.blocks_self = h->imm & FRAME_BLOCKS_SELF,
	};
	struct arriving in = {
		.link = link,
		.bytes = bytes,
		.arrival = {.length = h->length, .is_frame = true},
	};

	if (h->length > room || h->length < ETHER_HEADER || h->length > LIMIT_FRAME ||
	    !frame_is_from_peer(hca, link, h))
		return;
	memcpy(bytes, frame, h->length);
	frame_arrive(hca, &in, &seen);
}

void segment_take_outer(struct hca *hca, uint32_t device, const uint8_t *frame, uint32_t length)
{
	struct seen seen = {.device = device, .is_from_outside = true};
	/* What must be kept for a receive is counted as the process's own. */
	struct arriving in = {
		.link = hca->self,
		.bytes = frame,
		.arrival = {.length = length, .is_frame = true},
	};

	if (length >= ETHER_HEADER)
		frame_arrive(hca, &in, &seen);
}
