/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The oracle. Each posted request has a number, which its bytes, its immediate data and the
 * target's memory contain; so each effect at the responder can be attributed to its request.
 *
 *   order      a request of RC takes effect only if all earlier ones of its QP's life have; one of
 *              UC never after a later one
 *   once       no request takes effect twice, none completes twice; completions in posting order
 *   errors     after a completion with an error no request of that life takes effect any more; but
 *              a responder that didn't answer in time (RETRY_EXC_ERR), or whose answer found no
 *              memory here, executes what was sent before
 *   drained    in SQD no request that was posted since takes effect or completes; after the event
 *              "drained" none does, and all that took effect have completed (RC)
 *   lives      a responder's life executes requests of one life of the sender
 *   bytes      what arrives is what was posted; program memory becomes garbage at its completion
 *   seen       a message of which the receiver has seen the completion doesn't end with
 *              RETRY_EXC_ERR because the receiver's process was killed
 *   statuses   success means executed; an error needs a cause; RETRY_EXC_ERR needs the QP's time
 *              without a piece of a request sent or received; a request that the responder refused
 *              completes with the status of the refusal as soon as the refusal is read
 *   FLUSH      takes effect once all requests before it have; it names the oldest request of its QP
 *              that hasn't taken effect; what isn't granted fails with its own status
 *   windows    BIND and LOCAL_INV are executed when all requests before them have completed; a
 * message that invalidates a window arrives when its binding has ended memory     (memory.c) no
 * access after deregistration, or after the end of a window's binding; none to memory that was
 * given back
 */
#include <stdio.h>
#include <string.h>

#include "sim_local.h"

static struct request requests[REQUESTS];
static struct life lives[LIVES];
static struct receive_state receives[RECEIVES];
static uint32_t request_count, life_count, receive_count;

struct totals totals;

void oracle_init(void)
{
	request_count = life_count = receive_count = 1;
}

struct request *oracle_get(uint32_t number)
{
	if (!number || number >= request_count)
		fail("no request has the number %u", number);
	return &requests[number];
}

struct life *oracle_life(struct qp *qp)
{
	if (life_count == LIVES)
		fail("too many lives");
	struct life *life = &lives[life_count];

	*life = (struct life){.number = life_count++,
			      .process = qp->process->number,
			      .qp = qp->index,
			      .pair = qp->pair,
			      .side = qp->side,
			      .epoch = qp->epoch};
	return life;
}

void oracle_polled(struct qp *qp, uint32_t count)
{
	if (sim.in_child || !qp->life)
		return;
	qp->life->polled += count;
	if (qp->life->polled > qp->life->completed)
		fail("QP 0x%x: more completions are polled than there were", qp->qpn);
}

struct request *oracle_request(struct qp *qp)
{
	struct life *life = qp->life;

	if (!life || request_count == REQUESTS ||
	    life->posted == sizeof(life->request) / sizeof(life->request[0]))
		return NULL;
	struct request *r = &requests[request_count];

	*r = (struct request){.number = request_count++,
			      .life = life->number,
			      .seq = life->posted,
			      .process = (uint8_t)qp->process->number,
			      .pair = (uint8_t)qp->pair,
			      .side = (uint8_t)qp->side,
			      .block = UINT32_MAX,
			      .target_block = UINT32_MAX};
	life->request[life->posted++] = r->number;
	if (life->posted - life->polled > DEPTH)
		fail("QP 0x%x: request %u is posted to a full queue", qp->qpn, r->number);
	totals.requests++;
	return r;
}

/* ------------------------------------------------------------------ bytes */

static uint64_t word_of(uint32_t request, uint32_t word)
{
	uint64_t x = ((uint64_t)request << 20 | word) * 0x9e3779b97f4a7c15ull;

	return word ? x ^ x >> 29 : 0x5eedull << 48 | request;
}

void oracle_fill(uint32_t request, uint32_t from, uint8_t *to, uint32_t length)
{
	for (uint32_t i = 0; i < length;) {
		uint64_t word = word_of(request, (from + i) / 8);
		uint32_t at = (from + i) % 8, n = 8 - at < length - i ? 8 - at : length - i;

		memcpy(to + i, (uint8_t *)&word + at, n);
		i += n;
	}
}

static bool bytes_are(uint32_t request, uint32_t from, const uint8_t *bytes, uint32_t length)
{
	uint8_t expected[BLOCK];

	oracle_fill(request, from, expected, length);
	return !memcmp(expected, bytes, length);
}

/* ------------------------------------------------------------------ order */

static bool one_sided(const struct request *r)
{
	return !is_send(r->opcode);
}

static bool executed_here(const struct request *r)
{
	return r->opcode == IBV_WR_BIND_MW || r->opcode == IBV_WR_LOCAL_INV;
}

/* Whether it has no visible effect. */
static bool silent(const struct request *r)
{
	return !r->length && (r->opcode == IBV_WR_RDMA_WRITE || r->opcode == IBV_WR_RDMA_READ);
}

static bool takes_receive(const struct request *r)
{
	return is_send(r->opcode) || r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_rc(const struct request *r)
{
	return sim.plan.pair[r->pair].type == IBV_QPT_RC;
}

/* `placing`: the bytes of a WRITE with immediate may be placed once those before it are, if these
 * can't fail any more: their receives are posted. An SRQ's receives are nobody's before they are
 * taken. */
static void check_order(const struct request *r, bool placing)
{
	struct life *life = &lives[r->life];

	if (r->executed)
		fail("request %u is executed twice", r->number);
	if (life->drain != DRAIN_NOT && r->seq >= life->drain_posted)
		fail("request %u is executed, which was posted in SQD", r->number);
	if (life->drain == DRAIN_DONE && is_rc(r))
		fail("request %u is executed after its queue was drained", r->number);
	if (!is_rc(r)) {
		if (r->seq < life->unreliable)
			fail("unreliable request %u is executed after a later one", r->number);
		return;
	}
	/* Pieces of a WRITE that are in the ring when the rest of its memory is unmapped are
	 * placed. */
	bool piece = placing && r->status == IBV_WC_LOC_PROT_ERR;

	if (life->refused && r->seq >= life->failed_seq + piece)
		fail("request %u is executed, though request %u before it has failed", r->number,
		     life->request[life->failed_seq]);
	if (r->bad)
		fail("request %u is executed, which isn't granted", r->number);
	for (uint32_t i = life->executed; i < r->seq; i++) {
		const struct request *before = &requests[life->request[i]];

		if (before->executed || silent(before) ||
		    (placing && !sim.plan.pair[r->pair].srq &&
		     (before->placed || !before->length) &&
		     before->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)) {
			life->executed += i == life->executed && !placing;
			continue;
		}
		fail("request %u is executed, request %u before it isn't", r->number,
		     before->number);
	}
}

static void executed(struct request *r)
{
	struct life *life = &lives[r->life];

	if (is_rc(r) && r->completed && r->status == IBV_WC_LOC_PROT_ERR &&
	    (r->opcode < IBV_WR_RDMA_READ || is_send(r->opcode)))
		fail("request %u is executed after it has failed", r->number);
	r->executed = true;
	/* UC: earlier requests have completed here, and reach the responder later. */
	if (!executed_here(r))
		life->unreliable = r->seq + 1;
	trace("request %u (life %u, %u) is executed", r->number, r->life, r->seq);
}

/* A responder's life executes requests of one life of the sender only. */
static void check_lives(struct qp *qp, const struct request *r)
{
	if (r->pair != qp->pair || r->side == qp->side)
		fail("QP 0x%x executes request %u, which is another pair's", qp->qpn, r->number);
	if (qp->life->sender && qp->life->sender != r->life + 1)
		fail("QP 0x%x executes request %u of life %u after requests of life %u", qp->qpn,
		     r->number, r->life, qp->life->sender - 1);
	qp->life->sender = r->life + 1;
}

/* A requester's life communicates with one life of its peer only. */
void oracle_meets(const struct request *r, uint8_t peer_epoch)
{
	struct life *life = &lives[r->life];

	if (!is_rc(r))
		return;
	if (life->met && life->peer_epoch != peer_epoch)
		fail("request %u goes to life %u of its peer, those before it went to life %u",
		     r->number, peer_epoch, life->peer_epoch);
	life->met = true;
	life->peer_epoch = peer_epoch;
}

void oracle_sent(struct request *r, const struct ring_header *h)
{
	oracle_meets(r, record_epoch(h->dst));
	r->sent = true;
	r->msn = h->msn;
}

/* ------------------------------------------------------------------ refusals */

const struct request *oracle_refusal(const struct qp *qp, const struct ring_header *h)
{
	const struct life *life = qp->life;

	if (h->kind != REC_NAK || sim.plan.hostile || sim.in_child || !life ||
	    record_qpn(h->src) != qp->attr.dest_qp_num ||
	    record_epoch(h->dst) != (uint8_t)qp->epoch)
		return NULL;
	for (uint32_t i = life->completed; i < life->posted; i++) {
		const struct request *r = &requests[life->request[i]];

		if (!r->sent || r->msn != h->msn)
			continue;
		totals.refused_in_part += i == life->completed + qp->sq.next - qp->sq.acked;
		return r;
	}
	return NULL;
}

/* Whether the answer of a READ or an atomic before the request may be lost with a link: this ends
 * when its time is up, and nothing after it completes before. */
static bool follows_lost_answer(const struct request *r)
{
	const struct life *life = &lives[r->life];
	const struct request *oldest = &requests[life->request[life->completed]];

	return (sim.plan.cut_at[0] || sim.plan.late) && oldest->seq < r->seq &&
	       (oldest->executed || silent(oldest)) &&
	       (oldest->opcode == IBV_WR_RDMA_READ || is_atomic(oldest->opcode));
}

void oracle_answered(const struct request *r, uint32_t status)
{
	if (!r->completed && follows_lost_answer(r))
		return;
	if (!r->completed)
		fail("request %u is open, though its refusal (status %u) was read", r->number,
		     status);
	/* Its own memory may be gone, too. */
	if (r->status != status && r->status != IBV_WC_LOC_PROT_ERR)
		fail("request %u was refused with status %u and fails with status %u", r->number,
		     status, r->status);
}

void oracle_no_receive(const struct qp *qp)
{
	if (!qp->rq->shared && qp->rq->tail != qp->rq->head && !sim.plan.hostile &&
	    !sim.plan.pair[qp->pair].tags)
		fail("QP 0x%x refuses a request for want of a receive, and has one", qp->qpn);
}

/* ------------------------------------------------------------------ unreliable */

void oracle_handled(const struct qp *qp, const struct ring_header *h)
{
	const struct local_qp *lq = &qp->lq;

	if (qp->type != IBV_QPT_UC || sim.plan.hostile || sim.in_child || h->kind >= REC_ACK ||
	    h->kind == REC_SEND_DATA || (h->kind == REC_WRITE_DATA && !(h->flags & REC_LAST)) ||
	    record_qpn(h->src) != qp->attr.dest_qp_num ||
	    record_epoch(h->dst) != (uint8_t)qp->epoch || qp->state == IBV_QPS_ERR ||
	    (record_epoch(h->src) != lq->sender_epoch && local_qp_has_begun(lq)))
		return;
	if ((int32_t)((uint32_t)lq->arrived_msn - h->msn) <= 0)
		fail("QP 0x%x ignores unreliable request %u, the next is %u", qp->qpn, h->msn,
		     (uint32_t)lq->arrived_msn);
}

/* Whether an unreliable receiver waits for bytes that its sender can still send, or disown. */
static bool waits_for_bytes(const struct qp *qp)
{
	const struct qp *peer = qp_peer(qp);

	return qp->type == IBV_QPT_UC && qp->exists && qp->connected && !qp->process->dead &&
	       !peer->process->dead && qp->state != IBV_QPS_ERR &&
	       qp->lq.responder == LOCAL_WAIT_DATA && peer->connected &&
	       peer->state != IBV_QPS_ERR && (uint8_t)peer->epoch == qp->lq.sender_epoch &&
	       qp->link->state == SIM_LINK_UP;
}

/* ------------------------------------------------------------------ one-sided */

struct request *oracle_at(struct qp *qp, uint64_t address, uint32_t *offset)
{
	struct place at = memory_place(address);

	*offset = at.offset;
	if (sim.plan.hostile)
		return NULL;
	if (at.block->use != BLOCK_TARGET)
		fail("QP 0x%x reaches block %u, which is for no request", qp->qpn,
		     block_index(at.process, at.block));
	struct request *r = oracle_get(at.block->request);

	check_lives(qp, r);
	return r;
}

void oracle_placing(struct request *r, uint32_t offset, const uint8_t *from, uint32_t length)
{
	if (sim.plan.hostile)
		return;
	check_order(r, true);
	if (offset + length > r->length || !bytes_are(r->number, offset, from, length))
		fail("request %u: an RDMA WRITE of other bytes", r->number);
}

void oracle_reading(struct request *r, uint32_t offset, uint32_t length)
{
	if (sim.plan.hostile)
		return;
	check_order(r, false);
	if (offset + length > r->length)
		fail("request %u reads too much", r->number);
}

void oracle_moved(struct request *r, uint32_t end)
{
	if (sim.plan.hostile || end != r->length)
		return;
	r->placed = true;
	if (r->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		executed(r);
}

void oracle_executed_here(struct request *r)
{
	const struct life *life = &lives[r->life];

	if (sim.plan.hostile)
		return;
	check_order(r, false);
	if (life->completed != r->seq)
		fail("request %u is executed before request %u has completed", r->number,
		     life->request[life->completed]);
	if (r->bad)
		fail("request %u is executed, which isn't granted", r->number);
	executed(r);
}

void oracle_atomic(struct request *r, uint64_t old)
{
	if (sim.plan.hostile)
		return;
	check_order(r, false);
	r->old = old;
	executed(r);
}

/* The life of the peer's QP whose requests `qp` executes now. */
static const struct life *life_of_sender(const struct qp *qp)
{
	const struct qp *peer = qp_peer(qp);

	for (uint32_t i = life_count - 1; i; i--)
		if (lives[i].process == peer->process->number && lives[i].qp == peer->index &&
		    (uint8_t)lives[i].epoch == qp->lq.sender_epoch)
			return &lives[i];
	fail("QP 0x%x executes a request of life %u of its peer, which had none", qp->qpn,
	     qp->lq.sender_epoch);
}

static bool is_flush_of(const struct request *r, const struct record_atomic *op)
{
	return r->opcode == IBV_WR_FLUSH && r->flush.addr == op->addr &&
	       r->flush.rkey == op->rkey && r->flush.compare_add == op->compare_add &&
	       r->flush.swap == op->swap;
}

void oracle_flushed(struct request *r)
{
	if (sim.plan.hostile)
		return;
	check_order(r, false);
	executed(r);
}

void oracle_flushes(struct qp *qp, const struct record_atomic *op)
{
	if (sim.plan.hostile)
		return;
	const struct life *life = life_of_sender(qp);
	uint32_t i = 0;

	while (i < life->posted &&
	       (requests[life->request[i]].executed || silent(&requests[life->request[i]])))
		i++;
	struct request *r = i < life->posted ? &requests[life->request[i]] : NULL;

	if (!r || !is_flush_of(r, op))
		fail("QP 0x%x executes a FLUSH, though request %u of its peer is next", qp->qpn,
		     r ? r->number : 0);
	check_lives(qp, r);
	oracle_flushed(r);
}

/* ------------------------------------------------------------------ receives */

uint32_t oracle_receive(struct qp *qp, struct block *block, uint32_t length)
{
	if (receive_count == RECEIVES)
		return 0;
	receives[receive_count] = (struct receive_state){
		.posted = true,
		.process = (uint8_t)qp->process->number,
		.block = block_index(qp->process, block),
		.length = length,
	};
	block->receive = receive_count;
	return receive_count++;
}

static struct block *block_of_receive(uint32_t number)
{
	return &sim.process[receives[number].process].block[receives[number].block];
}

/* The receive's memory is given back to the program. */
void oracle_receive_gone(uint32_t number)
{
	if (sim.in_child)
		return;
	struct receive_state *s = &receives[number];
	struct block *block = block_of_receive(number);

	if (s->done)
		fail("receive %u is over twice", number);
	s->done = true;
	if (block->receive == number && block->use == BLOCK_RECEIVE) {
		block_spoil(&sim.process[s->process], block);
		block->use = BLOCK_FREE;
	}
}

/* The request whose message this is. */
static struct request *message_of(const struct arrival *arrival, const uint8_t *bytes)
{
	uint64_t first;

	if (arrival->has_imm)
		return oracle_get(arrival->imm);
	memcpy(&first, bytes, sizeof(first));
	if (first >> 48 != 0x5eed)
		fail("a message of %u bytes that nobody sent (0x%llx)", arrival->length,
		     (unsigned long long)first);
	return oracle_get((uint32_t)first);
}

/* The receive was taken by the bytes with which the message begins. */
static void check_head(const struct qp *qp, const struct request *r)
{
	uint32_t length = r->length < LOCAL_HEAD_BYTES ? r->length : LOCAL_HEAD_BYTES;

	if (!sim.plan.pair[qp->pair].heads || one_sided(r))
		return;
	if (qp->head_length != length || !bytes_are(r->number, 0, qp->head, length))
		fail("request %u: its receive was taken by %u other bytes", r->number,
		     qp->head_length);
}

static void check_message(struct qp *qp, uint32_t number, const struct arrival *arrival)
{
	struct process *p = qp->process;
	const uint8_t *bytes = block_bytes(p, block_of_receive(number));
	struct request *r = message_of(arrival, bytes);

	check_lives(qp, r);
	check_order(r, false);
	if (arrival->length != r->length || arrival->is_write != one_sided(r))
		fail("request %u arrives as something else", r->number);
	if (!takes_receive(r))
		fail("request %u takes a receive", r->number);
	if (arrival->invalidates != (r->opcode == IBV_WR_SEND_WITH_INV) ||
	    (arrival->invalidates && arrival->imm != r->key))
		fail("request %u arrives with another key, or without one", r->number);
	if (arrival->invalidates && !binding_ended(r->target))
		fail("request %u arrives, but the window that it names is bound", r->number);
	if (one_sided(r) && r->length && !r->placed)
		fail("request %u: immediate data before the data", r->number);
	if (!one_sided(r) &&
	    (r->length > receives[number].length || !bytes_are(r->number, 0, bytes, r->length)))
		fail("request %u arrives with other bytes than were posted", r->number);
	check_head(qp, r);
	executed(r);
	totals.receives++;
	totals.long_receives += receives[number].length > REGION_BLOCKS * BLOCK;
}

void oracle_received(struct qp *qp, uint32_t number, const struct arrival *arrival,
		     enum ibv_wc_status status)
{
	if (sim.in_child) {
		if (status == IBV_WC_SUCCESS)
			fail("QP 0x%x: a forked child receives a message", qp->qpn);
		return;
	}
	const struct receive_state *s = &receives[number];

	trace("QP 0x%x: receive %u completes, status %u", qp->qpn, number, status);
	if (!number || number >= receive_count || s->done)
		fail("receive %u completes twice", number);
	if (!sim.plan.hostile && status == IBV_WC_SUCCESS)
		check_message(qp, number, arrival);
	if (status == IBV_WC_WR_FLUSH_ERR && qp->state != IBV_QPS_ERR)
		fail("receive %u is flushed, but the QP isn't in ERR", number);
	if (status == IBV_WC_SUCCESS && qp->state == IBV_QPS_ERR)
		fail("receive %u succeeds, but the QP is in ERR", number);
	if (!sim.plan.hostile && status == IBV_WC_LOC_LEN_ERR && !sim.plan.long_sends)
		fail("receive %u is too short, and no message is that long", number);
	if (!sim.plan.hostile && status == IBV_WC_LOC_PROT_ERR && !qp->process->regions_hurt)
		fail("receive %u has no memory, and all memory is there", number);
	if (!sim.plan.hostile && status == IBV_WC_REM_INV_REQ_ERR && !arrival->invalidates)
		fail("receive %u fails for a key that the message doesn't name", number);
	oracle_receive_gone(number);
}

/* ------------------------------------------------------------------ completions */

static void check_success(struct qp *qp, const struct request *r)
{
	struct process *p = qp->process;
	const uint8_t *bytes = r->block == UINT32_MAX ? NULL : block_bytes(p, &p->block[r->block]);
	uint64_t old;

	if (!is_rc(r))
		return;
	/* The receiver was killed when the message was in its memory, before it reported it. */
	if (!r->executed && takes_receive(r) && sim.process[r->peer].dead &&
	    qp_peer(qp)->completing) {
		oracle_get(r->number)->executed = true;
		return;
	}
	if (r->bad || (!r->executed && !silent(r)))
		fail("request %u succeeds and wasn't executed", r->number);
	if (region_hurt(r->region))
		bytes = NULL; /* its memory has been given back meanwhile */
	if (r->opcode == IBV_WR_RDMA_READ && r->length && bytes &&
	    !bytes_are(r->number, 0, bytes, r->length))
		fail("request %u succeeds, but its memory hasn't the bytes read", r->number);
	if (bytes && is_atomic(r->opcode)) {
		memcpy(&old, bytes, sizeof(old));
		if (old != r->old)
			fail("request %u: an atomic's answer isn't what was there", r->number);
	}
	if (r->target_block != UINT32_MAX && r->opcode != IBV_WR_RDMA_READ && r->length != 8) {
		struct process *peer = &sim.process[r->peer];
		struct block *target = &peer->block[r->target_block];

		if (target->use == BLOCK_TARGET && target->request == r->number &&
		    block_region(peer, target)->state == REGION_LIVE &&
		    !bytes_are(r->number, 0, block_bytes(peer, target), r->length))
			fail("request %u succeeds, but its bytes aren't there", r->number);
	}
}

void oracle_moves(struct qp *qp)
{
	if (qp->life && !sim.in_child)
		qp->life->moved_at = sim.now;
}

/* Whether nothing has moved for the QP's time limit. */
static bool time_is_up(const struct qp *qp)
{
	uint64_t limit = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1);

	return sim.now - qp->life->moved_at >= limit;
}

/* Whether there is a cause for the error. */
static bool has_cause(const struct qp *qp, const struct request *r, enum ibv_wc_status status)
{
	const struct process *peer = &sim.process[r->peer];
	bool denied = sim.plan.copy_fails_at && sim.step >= sim.plan.copy_fails_at;

	if (r->wrong && status == r->wrong) {
		totals.flushes_refused++;
		return true;
	}
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		return qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE;
	case IBV_WC_LOC_PROT_ERR:
		return region_hurt(r->region) || denied || qp->process->regions_hurt;
	case IBV_WC_RETRY_EXC_ERR:
		return sim.disturbed & 1u << r->pair && time_is_up(qp);
	case IBV_WC_REM_ACCESS_ERR:
		if (r->opcode == IBV_WR_FLUSH)
			return !r->wrong && region_hurt(r->target);
		/* What may not be invalidated isn't answered. */
		return (r->bad && r->opcode != IBV_WR_SEND_WITH_INV) || denied ||
		       region_hurt(r->target) || binding_closed_to(r->target, r->life, r->seq);
	case IBV_WC_MW_BIND_ERR:
		return r->bad || region_hurt(r->region);
	case IBV_WC_REM_INV_REQ_ERR:
		return sim.plan.long_sends && !r->executed && r->opcode != IBV_WR_FLUSH;
	case IBV_WC_REM_OP_ERR:
		return peer->regions_hurt != 0;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return qp->attr.rnr_retry != 7 && qp_peer(qp)->starved;
	default:
		return false;
	}
}

/* A link that was lost before may have taken the answer with it. */
static void check_seen(const struct request *r)
{
	if (r->executed && takes_receive(r) && is_rc(r) && sim.process[r->peer].dead &&
	    !sim.plan.cut_at[0] && !sim.plan.halves && !sim.plan.late)
		fail("request %u fails, because its receiver was killed after it had seen it",
		     r->number);
}

static void check_error(struct qp *qp, const struct request *r, enum ibv_wc_status status)
{
	struct life *life = &lives[r->life];
	bool reads = r->opcode == IBV_WR_RDMA_READ || is_atomic(r->opcode);

	if (!has_cause(qp, r, status))
		fail("request %u (opcode %u) fails with status %u without a cause", r->number,
		     r->opcode, status);
	if (status == IBV_WC_WR_FLUSH_ERR)
		return;
	if (status == IBV_WC_RETRY_EXC_ERR)
		check_seen(r);
	if (life->failed && is_rc(r))
		fail("request %u fails with status %u after request %u did", r->number, status,
		     life->request[life->failed_seq]);
	/* Requests that the responder executed but couldn't acknowledge, and those whose answer
	 * found no memory, have been executed. */
	if (r->executed && status != IBV_WC_RETRY_EXC_ERR &&
	    !(reads && status == IBV_WC_LOC_PROT_ERR) && is_rc(r))
		fail("request %u fails with status %u and was executed", r->number, status);
	life->failed = true;
	life->refused = status != IBV_WC_RETRY_EXC_ERR && !(reads && status == IBV_WC_LOC_PROT_ERR);
	life->failed_seq = r->seq;
}

/* Fills the request's memory with garbage, so that a late read of it is detected. */
static void take_memory_back(struct process *p, struct request *r, bool success)
{
	if (r->block != UINT32_MAX && p->block[r->block].request == r->number &&
	    p->block[r->block].use == BLOCK_SEND) {
		block_spoil(p, &p->block[r->block]);
		p->block[r->block].use = BLOCK_FREE;
	}
	if (r->target_block == UINT32_MAX || !success)
		return;
	struct process *peer = &sim.process[r->peer];
	struct block *target = &peer->block[r->target_block];

	if (target->use == BLOCK_TARGET && target->request == r->number &&
	    (is_rc(r) || r->executed)) {
		block_spoil(peer, target);
		target->use = BLOCK_FREE;
	}
}

void oracle_completed(struct qp *qp, uint32_t number, enum ibv_wc_status status)
{
	if (sim.in_child) {
		totals.child_requests++;
		if (status == IBV_WC_SUCCESS && qp->type == IBV_QPT_RC)
			fail("QP 0x%x: a request succeeds in a forked child", qp->qpn);
		return;
	}
	struct request *r = oracle_get(number);
	struct life *life = &lives[r->life];
	bool gone = status == IBV_WC_GENERAL_ERR; /* RESET: no completion */

	trace("QP 0x%x: request %u (life %u, %u) completes, status %u", qp->qpn, number, r->life,
	      r->seq, status);
	if (r->completed)
		fail("request %u completes twice", number);
	if (life != qp->life || r->seq != life->completed)
		fail("request %u completes out of order", number);
	/* An error ends SQD: the QP is in SQE or ERR, and what was posted since is flushed. */
	if (life->drain != DRAIN_NOT && r->seq >= life->drain_posted && !gone &&
	    !(status == IBV_WC_WR_FLUSH_ERR && qp->state != IBV_QPS_SQD))
		fail("request %u completes, which was posted in SQD", number);
	life->completed++;
	r->completed = true;
	r->status = (uint8_t)status;
	totals.status[status < 32 ? status : 31]++;
	if (!sim.plan.hostile && status == IBV_WC_SUCCESS) {
		if (life->failed && is_rc(r))
			fail("request %u succeeds after an error", number);
		check_success(qp, r);
	} else if (!sim.plan.hostile && !gone) {
		check_error(qp, r, status);
	}
	take_memory_back(qp->process, r, status == IBV_WC_SUCCESS);
	windows_request_over(r, status);
}

/* ------------------------------------------------------------------ fork() */

void only_parent(const char *what)
{
	if (sim.in_child)
		fail("a forked child uses its parent's %s", what);
}

/* ------------------------------------------------------------------ SQD */

void oracle_drains(struct qp *qp)
{
	if (sim.in_child)
		return;
	totals.drains++;
	qp->life->drain = DRAIN_UNDER_WAY;
	qp->life->drain_posted = qp->life->posted;
}

void oracle_drained(struct qp *qp)
{
	if (sim.in_child)
		return;
	struct life *life = qp->life;

	if (life->drain == DRAIN_DONE)
		return; /* the event comes once */
	if (life->drain == DRAIN_NOT)
		fail("QP 0x%x is drained, but isn't in SQD", qp->qpn);
	for (uint32_t i = life->completed; i < life->posted; i++) {
		const struct request *r = &requests[life->request[i]];

		if ((r->executed || r->placed) && is_rc(r) && !sim.plan.hostile)
			fail("QP 0x%x is drained, request %u is executed and not completed",
			     qp->qpn, r->number);
	}
	trace("QP 0x%x is drained", qp->qpn);
	life->drain = DRAIN_DONE;
}

/* ------------------------------------------------------------------ borrowed memory */

void oracle_refused(struct qp *qp, uint32_t number)
{
	struct request *r = oracle_get(number);
	struct life *life = qp->life;

	if (r->executed || r->placed)
		fail("request %u is refused, and was executed", number);
	if (life->request[life->posted - 1] != number)
		fail("request %u is refused, and others follow it", number);
	life->posted--;
	r->completed = true;
	windows_request_over(r, IBV_WC_GENERAL_ERR);
	take_memory_back(qp->process, r, true);
}

/* ------------------------------------------------------------------ the end */

static bool is_open(const struct request *r)
{
	return !r->completed && !sim.process[r->process].dead && !lives[r->life].over;
}

static bool drains(const struct life *life)
{
	return life->drain == DRAIN_UNDER_WAY && !life->over && !sim.process[life->process].dead;
}

bool oracle_quiet(void)
{
	for (uint32_t i = 1; i < request_count; i++)
		if (is_open(&requests[i]))
			return false;
	for (uint32_t i = 1; i < life_count; i++)
		if (drains(&lives[i]))
			return false;
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 0; k < QPS; k++)
			if (!sim.plan.hostile && waits_for_bytes(&sim.process[i].qp[k]))
				return false;
	return true;
}

void oracle_print_open(void)
{
	for (uint32_t i = 0; i < sim.plan.processes; i++)
		for (uint32_t k = 0; k < QPS; k++)
			if (waits_for_bytes(&sim.process[i].qp[k]))
				printf("  QP 0x%x waits for bytes\n", sim.process[i].qp[k].qpn);
	for (uint32_t i = 1; i < life_count; i++)
		if (drains(&lives[i]))
			printf("  life %u of process %u isn't drained\n", i, lives[i].process);
	for (uint32_t i = 1; i < request_count; i++) {
		const struct request *r = &requests[i];

		if (is_open(r))
			printf("  request %u of process %u (pair %u, life %u, place %u, opcode %u, "
			       "%u bytes) is open\n",
			       i, r->process, r->pair, r->life, r->seq, r->opcode, r->length);
	}
}

bool oracle_others_quiet(uint32_t pair)
{
	for (uint32_t i = 1; i < request_count; i++)
		if (is_open(&requests[i]) && requests[i].pair != pair &&
		    !sim.plan.pair[requests[i].pair].starves)
			return false;
	return true;
}

void oracle_end(void)
{
	if (sim.plan.hostile)
		return; /* the process may have ended in the middle */
	for (uint32_t i = 0; i < sim.plan.processes; i++) {
		struct process *p = &sim.process[i];

		if (p->dead || p->stopped || !p->task[0].waiting || !p->sleeps)
			continue; /* it may be in the middle of an operation */
		for (uint32_t k = 0; k < HAZARDS; k++)
			if (atomic_load(&p->hazard[k]))
				fail("a hazard of process %u is left", i);
		for (uint32_t k = 0; k < QPS; k++) {
			if (p->qp[k].own_count)
				fail("an own hazard of process %u is left", i);
			if (p->qp[k].state == IBV_QPS_ERR && p->qp[k].held_bytes)
				fail("QP 0x%x is in ERR and holds %u bytes", p->qp[k].qpn,
				     p->qp[k].held_bytes);
		}
	}
}
