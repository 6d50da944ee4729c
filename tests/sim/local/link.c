/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links: the real rings (src/shm/ring.c) on plain memory, the backlog of a full ring, QPs that wait
 * for room, and a daemon that connects two processes some time after one asked for it, and reports
 * a death to the living processes some time later. Modelled after src/hca/local/link.c.
 */
#include <stdlib.h>
#include <string.h>

#include "sim_local.h"

enum { OFFERS = 32 };

/* An event from the daemon to a process. */
struct offer {
	bool used, up;
	uint64_t due; /* ns */
	uint32_t to, peer, side, generation;
	struct link_shared *shared;
};

static struct offer offers[OFFERS];
/* Each link of a run has memory of its own, so that a new link's peers don't see the old one's
 * records. */
static struct link_shared shared[PROCESSES + CUTS * 2 + 4 + HALVES * 2];
static uint32_t shared_used, generation, halves;
static uint64_t last_due[PROCESSES];

/* ------------------------------------------------------------------ the daemon */

/* Events for a process stay in order, because they come by one socket. */
static void tell(struct offer offer)
{
	if (offer.due <= last_due[offer.to])
		offer.due = last_due[offer.to] + 1;
	last_due[offer.to] = offer.due;
	for (uint32_t i = 0; i < OFFERS; i++)
		if (!offers[i].used) {
			offers[i] = offer;
			offers[i].used = true;
			return;
		}
	fail("the daemon has too much to say");
}

static bool is_offered(uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < OFFERS; i++)
		if (offers[i].used && offers[i].up && offers[i].to == a && offers[i].peer == b)
			return true;
	return false;
}

static uint64_t soon(uint32_t ns)
{
	return sim.now + rng_below(&sim.rng, ns);
}

static struct offer of_new_link(uint32_t a, uint32_t b)
{
	struct link_shared *memory = &shared[shared_used++];

	memset(memory, 0, sizeof(*memory));
	return (struct offer){
		.up = true, .to = a, .peer = b, .generation = ++generation, .shared = memory};
}

static void tell_side(struct offer offer, uint32_t side, uint64_t due)
{
	uint32_t to = side ? offer.peer : offer.to, peer = side ? offer.to : offer.peer;

	offer.to = to;
	offer.peer = peer;
	offer.side = side;
	offer.due = due;
	tell(offer);
}

/*
 * The daemon is killed after it has told one side of the link. The next daemon hears of the link
 * from that side only, and ends it. If `late`, the other side has heard of it, too, but comes to it
 * at the moment when the first one leaves; with real daemons that is a side whose peer gives the
 * link back at once.
 */
static void introduce_half(uint32_t a, uint32_t b)
{
	static const uint32_t pause_ns[] = {20000, 300000, 60000000};
	struct offer offer = of_new_link(a, b), down = offer;
	uint32_t told = rng_below(&sim.rng, 2);
	uint64_t first = soon(20000),
		 end = first + rng_below(&sim.rng, pause_ns[rng_below(&sim.rng, 3)]);

	halves++;
	totals.halves++;
	trace("only process %u is told of link %u", told ? b : a, offer.generation);
	sim.last_fault = end;
	down.up = false;
	tell_side(offer, told, first);
	tell_side(down, told, end);
	if (!rng_chance(&sim.rng, sim.plan.late))
		return;
	tell_side(offer, !told, first + rng_below(&sim.rng, (uint32_t)(end - first) + 5000));
	tell_side(down, !told, end);
}

static void introduce(uint32_t a, uint32_t b)
{
	if (sim.process[b].dead) {
		tell((struct offer){.due = soon(20000), .to = a, .peer = b});
		return;
	}
	if (is_offered(a, b))
		return;
	if (halves < HALVES && rng_chance(&sim.rng, sim.plan.halves))
		introduce_half(a, b);
	if (shared_used == sizeof(shared) / sizeof(shared[0]))
		return;
	struct offer offer = of_new_link(a, b);

	for (uint32_t side = 0; side < 2; side++)
		tell_side(offer, side, soon(20000));
}

void daemon_death(struct process *process)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		if (&sim.process[i] != process && !sim.process[i].dead)
			tell((struct offer){.due = soon(3000000),
					    .to = i,
					    .peer = process->number,
					    .generation = UINT32_MAX});
}

/* Two living processes lose their link: after a restart only one of them named it to the daemon. */
void daemon_cut(uint32_t a, uint32_t b)
{
	const struct link *ab = &sim.process[a].link[b], *ba = &sim.process[b].link[a];

	if (ab->state != SIM_LINK_UP || ba->state != SIM_LINK_UP ||
	    ab->generation != ba->generation)
		return;
	trace("the link between processes %u and %u is lost", a, b);
	tell((struct offer){.due = soon(50000), .to = a, .peer = b, .generation = ab->generation});
	tell((struct offer){.due = soon(50000), .to = b, .peer = a, .generation = ba->generation});
	totals.cuts++;
	sim.disturbed = ~0u;
	sim.last_fault = sim.now;
}

bool link_peer_left(const struct link *link)
{
	const struct link *theirs = &link->peer->link[link->process->number];

	return link->peer->dead || link->shut_out || theirs->left >= link->generation;
}

bool link_peer_came(const struct link *link)
{
	return link->self || link->shared->part[!link->side] == LINK_PART_TAKEN;
}

/* The first of both sides decides: link_part.c. */
static bool part_becomes(enum link_memory_part *part, enum link_memory_part what)
{
	bool open = *part == LINK_PART_OPEN;

	if (open)
		*part = what;
	return open;
}

/* A link that has ended stays until the peer has left it (link_part.h): there is no next one
 * before. */
static bool is_due(const struct offer *o)
{
	const struct link *link = &sim.process[o->to].link[o->peer];

	return o->used && o->due <= sim.now && (!o->up || !link->shared || link_peer_left(link));
}

uint64_t daemon_run(void)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < OFFERS; i++) {
		if (!offers[i].used)
			continue;
		if (sim.process[offers[i].to].dead)
			offers[i].used = false;
		else if (is_due(&offers[i]))
			engine_kick(&sim.process[offers[i].to]);
		else if (offers[i].due > sim.now && offers[i].due < next)
			next = offers[i].due;
	}
	return next;
}

bool link_has_events(const struct process *p)
{
	for (uint32_t i = 0; i < OFFERS; i++)
		if (offers[i].to == p->number && is_due(&offers[i]))
			return true;
	return false;
}

/* ------------------------------------------------------------------ up and down */

static void drop_backlog(struct link *link)
{
	struct list *node;

	while ((node = list_pop(&link->backlog)))
		free(container_of(node, struct backlog, node));
	link->backlog_count = 0;
}

void links_init(void)
{
	memset(offers, 0, sizeof(offers));
	memset(last_due, 0, sizeof(last_due));
	shared_used = generation = halves = 0;
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 0; k < sim.plan.processes; k++) {
			struct link *link = &sim.process[i].link[k];

			*link = (struct link){.process = &sim.process[i],
					      .peer = &sim.process[k],
					      .self = i == k,
					      .copies = i != k && sim.plan.copies[i][k]};
			list_init(&link->backlog);
			if (i != k)
				continue;
			link->shared = &shared[shared_used++];
			memset(link->shared, 0, sizeof(*link->shared));
			ring_tx_init(&link->tx, link->shared->ring[0], &link->shared->ctl[0]);
			ring_rx_init(&link->rx, link->shared->ring[0], &link->shared->ctl[0]);
			link->state = SIM_LINK_UP;
		}
}

void links_end(void)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 0; k < sim.plan.processes; k++)
			drop_backlog(&sim.process[i].link[k]);
}

struct link *link_get(struct process *process, struct process *peer)
{
	struct link *link = &process->link[peer->number];

	if (link->state == SIM_LINK_NONE || link->state == SIM_LINK_DOWN) {
		link->state = SIM_LINK_COMING;
		introduce(process->number, peer->number);
	}
	return link;
}

static void for_each_qp(struct link *link, void (*what)(struct qp *qp))
{
	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &link->process->qp[i];

		if (!qp->exists)
			continue;
		mutex_take(&qp->lock);
		if (qp->connected && qp->link == link && qp->state != IBV_QPS_ERR)
			what(qp);
		mutex_give(&qp->lock);
	}
}

static void relink(struct qp *qp)
{
	local_qp_relink(&qp->lq);
	link_wait(qp->link, qp->index);
}

static void announce(struct qp *qp)
{
	local_qp_announce(&qp->lq);
}

static void install(struct link *link, const struct offer *o)
{
	struct process *p = link->process;

	if (link->state == SIM_LINK_UP)
		return;
	link->state = SIM_LINK_COMING; /* the daemon isn't asked again meanwhile */
	task_yield("comes to a link");
	if (!part_becomes(&o->shared->part[o->side], LINK_PART_TAKEN)) {
		trace("link %u to process %u is refused", o->generation, o->peer);
		introduce(p->number, o->peer);
		return;
	}
	trace("link %u to process %u is up, side %u", o->generation, o->peer, o->side);
	mutex_take(&p->engine);
	mutex_take(&link->tx_lock);
	drop_backlog(link);
	link->shared = o->shared;
	link->side = o->side;
	link->generation = o->generation;
	link->broken = link->shut_out = false;
	ring_tx_init(&link->tx, o->shared->ring[o->side], &o->shared->ctl[o->side]);
	ring_rx_init(&link->rx, o->shared->ring[!o->side], &o->shared->ctl[!o->side]);
	mutex_give(&link->tx_lock);
	for_each_qp(link, relink);
	link->state = SIM_LINK_UP;
	task_yield("link is up");
	o->shared->installed[o->side] = true;
	task_yield("link is installed");
	for_each_qp(link, announce);
	link->has_waiters = true;
	mutex_give(&p->engine);
}

/* Waits until no thread is in the middle of using the link. */
static void forget_peer(struct link *link)
{
	void (*what)(struct local_qp * lq) = link->shut_out ? local_qp_untaken : local_qp_relink;

	for (uint32_t i = 0; i < QPS; i++) {
		struct qp *qp = &link->process->qp[i];

		mutex_take(&qp->lock);
		if (qp->connected && qp->link == link)
			what(&qp->lq);
		if (qp->connected && qp->link == link)
			totals.taken_of_dead += local_qp_peer_ended(&qp->lq);
		mutex_give(&qp->lock);
	}
}

/* Whether a QP is connected by the link. */
static bool has_users(const struct link *link)
{
	for (uint32_t i = 0; i < QPS; i++)
		if (link->process->qp[i].connected && link->process->qp[i].link == link)
			return true;
	return false;
}

/* Of a link that was up. */
static void leave(struct link *link)
{
	task_yield("leaves a link");
	link->shut_out = part_becomes(&link->shared->part[!link->side], LINK_PART_SHUT);
	if (link->shut_out) {
		trace("process %u never came to link %u", link->peer->number, link->generation);
		totals.shut++;
	} else { /* what is in its rings may be lost */
		sim.disturbed = ~0u;
		sim.last_fault = sim.now;
	}
	forget_peer(link);
	link->left = link->generation;
	if (!link->peer->dead)
		engine_kick(link->peer); /* it may wait for this */
}

/* A link ends whose event waits here, because the last link isn't left yet: link_forget_next(). */
static void forget_next(const struct offer *down)
{
	for (uint32_t i = 0; i < OFFERS; i++)
		if (offers[i].up && offers[i].to == down->to && offers[i].peer == down->peer &&
		    offers[i].generation == down->generation)
			offers[i].used = false;
}

static void take_down(struct link *link, const struct offer *o)
{
	bool up = link->state == SIM_LINK_UP, death = !o->generation || o->generation == UINT32_MAX;

	forget_next(o);
	if (link->state == SIM_LINK_NONE || link->state == SIM_LINK_DOWN ||
	    (!death && !(up && o->generation == link->generation)))
		return;
	if (up)
		engine_drain(link->process, link);
	trace("link to process %u is down", o->peer);
	/* A link that a QP needs is asked for again, if the peer lives. */
	bool wanted = up && !link->peer->dead && has_users(link);

	link->state = wanted ? SIM_LINK_COMING : SIM_LINK_DOWN;
	if (up)
		leave(link);
	link->has_waiters = true;
	if (wanted)
		introduce(link->process->number, link->peer->number);
}

/* Returns the earliest event. */
static struct offer *next_offer(const struct process *p)
{
	struct offer *first = NULL;

	for (uint32_t i = 0; i < OFFERS; i++)
		if (offers[i].to == p->number && is_due(&offers[i]) &&
		    (!first || offers[i].due < first->due))
			first = &offers[i];
	return first;
}

void link_take_events(struct process *p)
{
	struct offer *next;

	while ((next = next_offer(p))) {
		struct offer o = *next;

		next->used = false;
		if (o.up)
			install(&p->link[o.peer], &o);
		else
			take_down(&p->link[o.peer], &o);
	}
}

/* The peer violated the ring's protocol. */
void link_break(struct link *link)
{
	if (!sim.plan.hostile)
		fail("the link is given up, and nobody lies");
	link->broken = true;
	link->state = SIM_LINK_DOWN;
	engine_kick(link->process);
}

/* ------------------------------------------------------------------ the ring */

struct ring_header *link_begin(struct link *link, uint32_t payload)
{
	only_parent("ring");
	mutex_take(&link->tx_lock);
	if (list_empty(&link->backlog)) {
		struct ring_header *h = ring_reserve(&link->tx, payload);

		if (h)
			return h;
	}
	totals.ring_full++;
	mutex_give(&link->tx_lock);
	return NULL;
}

/* Mutates a hostile process's record. */
static void mutate(struct ring_header *h, uint32_t payload)
{
	if (!rng_chance(&sim.rng, 100))
		return;
	totals.hostile++;
	switch (rng_below(&sim.rng, 9)) {
	case 0:
		h->kind = (uint8_t)rng_below(&sim.rng, REC_KINDS + 1);
		if (h->kind == RING_PAD)
			h->kind = REC_SEND;
		break;
	case 1:
		h->flags ^= (uint8_t)(1u << rng_below(&sim.rng, 8));
		break;
	case 2:
		h->msn += rng_below(&sim.rng, 5) - 2;
		break;
	case 3:
		h->ack += rng_below(&sim.rng, 5) - 2;
		break;
	case 4:
		h->imm = rng_below(&sim.rng, 24);
		break;
	case 5:
		h->length = rng_chance(&sim.rng, 500) ? (uint32_t)rng_next(&sim.rng)
						      : rng_below(&sim.rng, 1200);
		break;
	case 6:
		h->src ^= 1u << rng_below(&sim.rng, 32);
		break;
	case 7:
		h->kind ^= REC_CARRIES;
		break;
	default:
		if (payload)
			((uint8_t *)h)[RING_HEADER + rng_below(&sim.rng, payload)] ^=
				(uint8_t)(1u << rng_below(&sim.rng, 8));
	}
}

void link_send(struct link *link, struct ring_header *h, uint32_t payload)
{
	if (sim.plan.hostile == link->process->number + 1)
		mutate(h, payload);
	uint8_t kind = h->kind & (uint8_t)~REC_CARRIES;

	totals.kinds[kind < REC_KINDS ? kind : REC_KINDS]++;
	trace("to process %u: kind %u flags 0x%x dst 0x%x src 0x%x msn %u ack %u imm %u length %u",
	      link->peer->number, h->kind, h->flags, h->dst, h->src, h->msn, h->ack, h->imm,
	      h->length);
	uint32_t pos = link->tx.pos;

	ring_commit(&link->tx, h, payload);
	totals.rings_round += link->tx.pos < pos;
	mutex_give(&link->tx_lock);
}

void link_abandon(struct link *link, uint32_t payload)
{
	ring_abandon(&link->tx, payload);
	mutex_give(&link->tx_lock);
}

static void fill(struct ring_header *to, const struct ring_header *from)
{
	to->kind = from->kind;
	to->flags = from->flags;
	to->dst = from->dst;
	to->src = from->src;
	to->msn = from->msn;
	to->ack = from->ack;
	to->imm = from->imm;
	to->length = from->length;
}

void link_control(struct link *link, const struct ring_header *header, const void *payload,
		  uint32_t size)
{
	if (link->state != SIM_LINK_UP)
		return;
	struct ring_header *h = link_begin(link, size);

	if (h) {
		fill(h, header);
		if (size)
			memcpy((uint8_t *)h + RING_HEADER, payload, size);
		link_send(link, h, size);
	} else {
		mutex_take(&link->tx_lock); /* before the storage: a process may be killed here */
		struct backlog *b = malloc(sizeof(*b));

		if (!b || size > sizeof(b->payload))
			fail("a control record of %u bytes", size);
		b->header = *header;
		b->size = size;
		if (size)
			memcpy(b->payload, payload, size);
		list_add_tail(&link->backlog, &b->node);
		link->backlog_count++;
		mutex_give(&link->tx_lock);
		link->has_waiters = true;
	}
	link_notify(link);
}

bool link_flush_backlog(struct link *link)
{
	bool sent = false, empty;

	mutex_take(&link->tx_lock);
	while (!list_empty(&link->backlog)) {
		struct backlog *b = container_of(link->backlog.next, struct backlog, node);
		struct ring_header *h = ring_reserve(&link->tx, b->size);

		if (!h)
			break;
		fill(h, &b->header);
		memcpy((uint8_t *)h + RING_HEADER, b->payload, b->size);
		trace("from the backlog: kind %u msn %u ack %u", h->kind, h->msn, h->ack);
		ring_commit(&link->tx, h, b->size);
		list_del(&b->node);
		link->backlog_count--;
		free(b);
		sent = true;
	}
	empty = list_empty(&link->backlog);
	mutex_give(&link->tx_lock);
	if (sent)
		link_notify(link);
	return empty;
}

void link_notify(struct link *link)
{
	only_parent("doorbells");
	task_yield("looks whether the peer sleeps");
	engine_kick(link->peer);
}

void link_wait(struct link *link, uint32_t qp)
{
	mutex_take(&link->tx_lock);
	link->waits[qp] = true;
	uint64_t full_at = link->tx.full_at;

	mutex_give(&link->tx_lock);
	link->has_waiters = true;
	task_yield("waits for room");
	if (link->state == SIM_LINK_UP && ring_consumed(&link->tx) != full_at)
		engine_kick(link->process);
}
