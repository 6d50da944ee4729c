/* SPDX-License-Identifier: BSD-2-Clause */
/* One end: the program that posts, and the HCA's part of the core's interface (struct tp_world).
 * Every call by the core is checked against what was posted at the other end (oracle.c). */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { RKEY = 0x1100, KEY_TO_INVALIDATE = 0x77 };

uint64_t area_address(const struct side *side)
{
	return 0x10000000ull * (side->index + 1u);
}

/* XRC: each SRQ's protection domain has keys of its own. */
static uint32_t rkey_of(const struct side *side, uint32_t srqn)
{
	return RKEY + side->index + 16 * srqn;
}

/* ------------------------------------------------------------------ requester's world */

/* Gives the former value. */
static bool is_atomic(const struct work *w)
{
	return w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_atomic_write(const struct work *w)
{
	return w->opcode == IBV_WR_ATOMIC_WRITE;
}

static bool is_flush(const struct work *w)
{
	return w->opcode == IBV_WR_FLUSH;
}

static bool world_fetch(void *owner, uint32_t count, uint32_t offset, uint8_t *to, uint32_t n)
{
	count -= SIM_FIRST;
	struct side *side = owner;
	const struct work *w = &side->works[count];

	SIM_MUST(side->sim, count >= side->completed && count < side->posted && !side->over,
		 "%c: fetches of request %u", 'A' + side->index, count);
	SIM_MUST(side->sim, n && offset <= w->length && n <= w->length - offset,
		 "%c: fetches %u bytes at %u of request %u", 'A' + side->index, n, offset, count);
	if (w->wrong == WRONG_FETCH && offset + n == w->length)
		return false;
	payload_fill(to, w->payload, offset, n);
	return true;
}

static enum ibv_wc_status world_check(void *owner, uint32_t count)
{
	(void)owner;
	(void)count;
	return IBV_WC_SUCCESS; /* the simulation's memory is never deregistered */
}

static bool world_deliver(void *owner, uint32_t count, uint32_t offset, const uint8_t *from,
			  uint32_t n, bool last)
{
	count -= SIM_FIRST;
	struct side *side = owner;
	struct work *w = &side->works[count];
	char name = 'A' + side->index;

	/* The requests before it are complete; their events are pulled next. */
	SIM_MUST(side->sim, count >= side->completed && count < side->posted && !side->over,
		 "%c: an answer to request %u", name, count);
	side->answering = count;
	SIM_MUST(side->sim, w->opcode == IBV_WR_RDMA_READ || is_atomic(w),
		 "%c: request %u has no answer", name, count);
	SIM_MUST(side->sim, offset == w->delivered && n <= w->length - offset,
		 "%c: %u bytes at %u of request %u, %u are there", name, n, offset, count,
		 w->delivered);
	SIM_MUST(side->sim, last == (offset + n == w->length), "%c: last of request %u", name,
		 count);
	if (w->wrong == WRONG_DELIVER && last)
		return false;
	w->delivered += n;
	if (w->opcode == IBV_WR_RDMA_READ) {
		if (n)
			memcpy(w->answer + offset, from, n);
	} else if (!side->sim->plan.hostile) {
		uint64_t value;

		memcpy(&value, from, 8);
		SIM_MUST(side->sim, n == 8 && w->executed && value == w->old,
			 "%c: atomic %u gives a wrong value", name, count);
	}
	return true;
}

static void stop(struct side *side)
{
	side->over = side->dead = true;
	tp_stop(side->tp, true);
}

/* ------------------------------------------------------------------ requester's events */

static void completed(struct side *side, uint32_t count, enum ibv_wc_status status)
{
	sim_trace(side->sim, "%c request %u completes, status %d", 'A' + side->index, count,
		  status);
	oracle_completion(side, count, status);
	side->completed++;
	sim_totals.errors[status & 31]++;
	free(side->works[count].answer);
	side->works[count].answer = NULL;
	if (status == IBV_WC_SUCCESS)
		return;
	side->failed = true;
	stop(side);
}

static void drained(struct side *side)
{
	SIM_MUST(side->sim, side->draining && !side->resume_at, "%c: drained unasked",
		 'A' + side->index);
	sim_totals.drained++;
	side->resume_at = side->sim->now + rng_below(&side->sim->rng, 500000) + 1;
}

/* ------------------------------------------------------------------ responder's world */

static bool is_send(const struct work *w)
{
	return work_wants_receive(w) && w->opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_write(const struct work *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* XRC: what is executed is for the SRQ that the request names. */
static void is_aimed(const struct side *side, const struct work *w)
{
	SIM_MUST(side->sim, side->aimed == w->srqn, "%c: executes for SRQ %u, request %u is for %u",
		 'A' + side->index, side->aimed, side->executing, w->srqn);
}

static enum tp_access world_aim(void *owner, uint32_t srqn)
{
	return processes_aim(owner, srqn);
}

static struct receive *receive_first(struct side *side)
{
	return &side->receives[side->receive_head % RECEIVES_MAX];
}

/* A receive may be chosen by a SEND's first bytes (a tag): they are the message's, as many as its
 * first packet has. A WRITE's immediate data has none. */
static void check_first_bytes(const struct side *side, const struct work *w,
			      const struct tp_head *head)
{
	uint32_t n = w->length < side->sim->plan.mtu ? w->length : side->sim->plan.mtu;

	SIM_MUST(side->sim, !head == is_write(w), "%c: first bytes of a request that has none",
		 'A' + side->index);
	if (head)
		SIM_MUST(side->sim,
			 head->length == n && head->whole == (n == w->length) &&
				 payload_is(head->bytes, w->payload, 0, n),
			 "%c: a receive is taken by %u bytes that aren't the first of the message",
			 'A' + side->index, head->length);
}

static enum tp_take world_receive_take(void *owner, const struct tp_head *head, uint32_t *room)
{
	struct side *side = owner;

	SIM_MUST(side->sim, !side->taken && !side->dead, "%c: takes a receive too many",
		 'A' + side->index);
	if (side->receive_head == side->receive_tail)
		return TP_NO_RECEIVE;
	side->taken = true;
	*room = receive_first(side)->room;
	if (side->sim->plan.hostile)
		return TP_TAKEN;
	const struct work *w = oracle_executing(side, work_wants_receive);

	is_aimed(side, w);
	check_first_bytes(side, w, head);
	if (w->wrong == WRONG_RECEIVE)
		return TP_BAD_RECEIVE;
	if (w->wrong == WRONG_LENGTH)
		*room = w->length - 1;
	return TP_TAKEN;
}

static bool world_receive_place(void *owner, uint32_t offset, const uint8_t *from, uint32_t n,
				bool last)
{
	struct side *side = owner;
	struct sim *sim = side->sim;

	SIM_MUST(sim, side->taken && !side->dead, "%c: places without a receive",
		 'A' + side->index);
	SIM_MUST(sim, offset + n <= receive_first(side)->room, "%c: places beyond the receive",
		 'A' + side->index);
	if (sim->plan.hostile)
		return true;
	struct work *w = oracle_executing(side, is_send);

	if (sim->plan.type == IBV_QPT_UC && !offset) /* the message before may have lost its end */
		side->executed_bytes = 0;
	SIM_MUST(sim, offset == side->executed_bytes, "%c: a SEND's bytes at %u, not %u",
		 'A' + side->index, offset, side->executed_bytes);
	SIM_MUST(sim, w->wrong == WRONG_LENGTH || last == (offset + n == w->length),
		 "%c: the SEND's last byte", 'A' + side->index);
	if (w->wrong == WRONG_PLACE && last)
		return false;
	SIM_MUST(sim, payload_is(from, w->payload, offset, n),
		 "%c: one of a SEND's bytes %u to %u is wrong", 'A' + side->index, offset,
		 offset + n - 1);
	side->executed_bytes += n;
	return true;
}

static void check_message(struct side *side, const struct tp_message *m)
{
	struct work *w = oracle_executing(side, work_wants_receive);
	uint32_t imm = w->opcode == IBV_WR_SEND_WITH_INV ? KEY_TO_INVALIDATE : w->imm;
	char name = 'A' + side->index;

	SIM_MUST(side->sim,
		 m->length == w->length && (!w->length || side->executed_bytes == w->length),
		 "%c: a message of %u bytes, should be %u, has %u", name, m->length, w->length,
		 side->executed_bytes);
	SIM_MUST(side->sim,
		 m->has_imm == (w->opcode == IBV_WR_SEND_WITH_IMM ||
				w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM),
		 "%c: immediate data", name);
	SIM_MUST(side->sim, m->has_invalidate == (w->opcode == IBV_WR_SEND_WITH_INV),
		 "%c: invalidates", name);
	SIM_MUST(side->sim, (!m->has_imm && !m->has_invalidate) || m->imm == imm,
		 "%c: immediate data %x, should be %x", name, m->imm, imm);
	SIM_MUST(side->sim,
		 m->is_write == is_write(w) && m->solicited == !!(w->flags & TP_SOLICITED),
		 "%c: kind of message", name);
	SIM_MUST(side->sim, w->wrong == WRONG_NOTHING, "%c: executes a faulty request", name);
	oracle_executed(side, w, true);
}

static bool receive_may_fail(uint8_t wrong, enum ibv_wc_status status)
{
	switch (wrong) {
	case WRONG_LENGTH:
		return status == IBV_WC_LOC_LEN_ERR;
	case WRONG_PLACE:
	case WRONG_RECEIVE:
		return status == IBV_WC_LOC_PROT_ERR;
	default:
		return wrong == WRONG_INVALIDATE && status == IBV_WC_REM_INV_REQ_ERR;
	}
}

static void received(struct side *side, const struct tp_message *message, enum ibv_wc_status status)
{
	SIM_MUST(side->sim, side->taken && !side->dead, "%c: a receive completes that wasn't taken",
		 'A' + side->index);
	side->taken = false;
	side->receive_head++;
	side->receives_done++;
	if (side->sim->plan.hostile)
		return;
	if (status == IBV_WC_SUCCESS) {
		check_message(side, message);
		return;
	}
	uint8_t wrong = oracle_executing(side, work_wants_receive)->wrong;

	SIM_MUST(side->sim, receive_may_fail(wrong, status), "%c: a receive fails with %d",
		 'A' + side->index, status);
}

static void world_receive_back(void *owner)
{
	struct side *side = owner;

	SIM_MUST(side->sim, side->taken, "%c: gives back what isn't taken", 'A' + side->index);
	side->taken = false;
}

static uint32_t world_receives_left(void *owner)
{
	const struct side *side = owner;

	if (side->plan->srq)
		return UINT32_MAX;
	return side->receive_tail - side->receive_head - side->taken;
}

static enum tp_access world_access(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				   uint32_t right)
{
	struct side *side = owner;
	uint64_t offset = addr - area_address(side);

	SIM_MUST(side->sim,
		 right == IBV_ACCESS_REMOTE_READ || right == IBV_ACCESS_REMOTE_WRITE ||
			 right == IBV_ACCESS_REMOTE_ATOMIC,
		 "right %u", right);
	if (right == IBV_ACCESS_REMOTE_ATOMIC && addr & 7)
		return TP_ACCESS_INVALID;
	side->granted_length = 0;
	if (length && (rkey != rkey_of(side, side->aimed) || offset > AREA_SIZE ||
		       length > AREA_SIZE - offset))
		return TP_ACCESS_REFUSED;
	side->granted_addr = addr;
	side->granted_length = length;
	side->granted_right = right;
	return TP_ACCESS_OK;
}

/* Checks that only the range that was granted last is accessed. */
static uint32_t granted(struct side *side, uint64_t addr, uint32_t n, uint32_t rkey, uint32_t right)
{
	SIM_MUST(side->sim,
		 n && rkey == rkey_of(side, side->aimed) && right == side->granted_right &&
			 addr >= side->granted_addr &&
			 addr + n <= side->granted_addr + side->granted_length,
		 "%c: memory that wasn't granted", 'A' + side->index);
	return (uint32_t)(addr - area_address(side));
}

static bool world_write(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from, uint32_t n,
			bool last)
{
	struct side *side = owner;
	uint32_t at = granted(side, addr, n, rkey, IBV_ACCESS_REMOTE_WRITE);
	struct sim *sim = side->sim;

	if (at >= AREA_WRITE)
		memcpy(side->memory + at, from, n);
	if (sim->plan.hostile)
		return true;
	struct work *w = oracle_executing(side, is_write);

	is_aimed(side, w);
	if (sim->plan.type == IBV_QPT_UC && at == w->offset)
		side->executed_bytes = 0;
	SIM_MUST(sim,
		 at == w->offset + side->executed_bytes && side->executed_bytes + n <= w->length,
		 "%c: writes at %u, request %u is at %u", 'A' + side->index, at, side->executing,
		 w->offset + side->executed_bytes);
	SIM_MUST(sim, payload_is(from, w->payload, side->executed_bytes, n),
		 "%c: one of a WRITE's bytes %u to %u is wrong", 'A' + side->index,
		 side->executed_bytes, side->executed_bytes + n - 1);
	side->executed_bytes += n;
	/* A WRITE in pieces (transport/requester.h) has a last byte in each. */
	bool ends = side->executed_bytes == w->length;
	bool may_be_piece = sim->plan.type == IBV_QPT_RC && w->opcode == IBV_WR_RDMA_WRITE &&
			    w->length <= TP_PIECES_MAX * n;

	SIM_MUST(sim, last == ends || (last && may_be_piece), "%c: the WRITE's last byte",
		 'A' + side->index);
	oracle_executed(side, w, ends && w->opcode == IBV_WR_RDMA_WRITE);
	return true;
}

static bool world_read(void *owner, uint64_t addr, uint32_t rkey, uint8_t *to, uint32_t n)
{
	struct side *side = owner;
	uint32_t at = granted(side, addr, n, rkey, IBV_ACCESS_REMOTE_READ);

	uint32_t constant = at >= AREA_WRITE ? 0 : n < AREA_WRITE - at ? n : AREA_WRITE - at;

	payload_fill(to, initial_seed(side), at, constant);
	if (n > constant)
		memcpy(to + constant, side->memory + at + constant, n - constant);
	return true;
}

static bool world_atomic(void *owner, uint64_t addr, uint32_t rkey, bool is_swap,
			 uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	struct side *side = owner;
	uint32_t at = granted(side, addr, 8, rkey, IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t value = 0;

	if (at < AREA_WRITE)
		return false;
	memcpy(&value, side->memory + at, 8);
	*old = value;
	value = !is_swap ? value + compare_add : value == compare_add ? swap : value;
	memcpy(side->memory + at, &value, 8);
	if (side->sim->plan.hostile)
		return true;
	struct work *w = oracle_executing(side, is_atomic);

	is_aimed(side, w);
	SIM_MUST(side->sim,
		 at == w->offset && compare_add == w->compare_add &&
			 is_swap == (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) &&
			 (!is_swap || swap == w->swap),
		 "%c: executes another atomic", 'A' + side->index);
	w->old = *old;
	oracle_executed(side, w, true);
	return true;
}

static enum tp_access world_store(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from)
{
	struct side *side = owner;
	uint32_t at = granted(side, addr, 8, rkey, IBV_ACCESS_REMOTE_WRITE);

	if (addr % 8)
		return TP_ACCESS_INVALID;
	if (at >= AREA_WRITE)
		memcpy(side->memory + at, from, 8);
	if (side->sim->plan.hostile)
		return TP_ACCESS_OK;
	struct work *w = oracle_executing(side, is_atomic_write);

	is_aimed(side, w);
	SIM_MUST(side->sim, at == w->offset && payload_is(from, w->payload, 0, 8),
		 "%c: executes another ATOMIC WRITE", 'A' + side->index);
	oracle_executed(side, w, true);
	return TP_ACCESS_OK;
}

static enum tp_access world_flush(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				  uint8_t feth)
{
	struct side *side = owner;

	if (rkey != rkey_of(side, side->aimed))
		return TP_ACCESS_REFUSED;
	if (side->sim->plan.hostile)
		return TP_ACCESS_OK;
	struct work *w = oracle_executing(side, is_flush);

	is_aimed(side, w);
	SIM_MUST(side->sim,
		 addr - area_address(side) == w->offset && length == w->compare_add &&
			 feth == w->swap,
		 "%c: executes another FLUSH", 'A' + side->index);
	oracle_executed(side, w, true);
	return TP_ACCESS_OK;
}

static bool world_invalidate(void *owner, uint32_t rkey)
{
	(void)owner;
	return rkey == KEY_TO_INVALIDATE;
}

const struct tp_world sim_world = {
	.fetch = world_fetch,
	.check = world_check,
	.deliver = world_deliver,
	.aim = world_aim,
	.receive_take = world_receive_take,
	.receive_place = world_receive_place,
	.receive_back = world_receive_back,
	.receives_left = world_receives_left,
	.access = world_access,
	.write = world_write,
	.read = world_read,
	.atomic = world_atomic,
	.store = world_store,
	.flush = world_flush,
	.invalidate = world_invalidate,
};

/* ------------------------------------------------------------------ events */

static void refused(struct side *side, int event)
{
	sim_trace(side->sim, "%c refuses, event %d", 'A' + side->index, event);
	SIM_MUST(side->sim, !side->dead, "%c: refuses twice", 'A' + side->index);
	stop(side);
}

static void on_event(struct side *side, const struct tp_event *e)
{
	switch (e->kind) {
	case TP_ESTABLISHED:
		return;
	case TP_COMPLETED:
		completed(side, e->count - SIM_FIRST, e->status);
		return;
	case TP_DRAINED:
		drained(side);
		return;
	case TP_RECEIVED:
		received(side, &e->message, e->status);
		return;
	case TP_REFUSED:
		refused(side, e->async);
	}
}

void side_pull_events(struct side *side)
{
	struct tp_event e;

	while (tp_next_event(side->tp, &e))
		on_event(side, &e);
	SIM_MUST(side->sim, side->over || side->answering <= side->completed,
		 "%c: an answer to request %u, and request %u isn't over", 'A' + side->index,
		 side->answering, side->completed);
}

/* ------------------------------------------------------------------ the program */

static uint32_t random_length(struct side *side)
{
	struct rng *rng = &side->sim->rng;
	uint32_t mtu = side->sim->plan.mtu;
	uint32_t usual[] = {0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu - 2};
	uint32_t length;

	if (rng_below(rng, 3))
		length = usual[rng_below(rng, 8)];
	else
		length = rng_below(rng, side->plan->max_length + 1);
	return length < side->plan->max_length ? length : side->plan->max_length;
}

static uint8_t random_opcode(struct side *side)
{
	static const uint8_t opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND_WITH_INV,
		IBV_WR_RDMA_READ,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_WRITE,
		IBV_WR_FLUSH,
	};
	uint32_t kinds = side->sim->plan.type == IBV_QPT_UC    ? 5
			 : side->plan->attr.max_rd_atomic == 0 ? 6
							       : 12;

	return opcodes[rng_below(&side->sim->rng, kinds)];
}

static void random_place(struct side *side, struct work *w)
{
	struct rng *rng = &side->sim->rng;
	uint32_t mtu = side->sim->plan.mtu;

	if (is_atomic(w)) {
		w->length = 8;
		w->offset = AREA_ATOMIC + 8 * rng_below(rng, 2);
	} else if (is_atomic_write(w)) {
		w->length = 8;
		w->offset = AREA_WRITE + 8 * rng_below(rng, 4);
	} else if (is_flush(w)) {
		w->length = 0;
		w->offset = AREA_WRITE + rng_below(rng, AREA_WRITE_SIZE);
		w->swap = packet_feth(IBV_FLUSH_GLOBAL, rng_below(rng, 2));
	} else if (is_write(w)) {
		w->length = w->length < AREA_WRITE_SIZE ? w->length : AREA_WRITE_SIZE;
		w->offset = AREA_WRITE + rng_below(rng, AREA_WRITE_SIZE - w->length + 1);
		if (rng_below(rng, 2)) /* so that READs and WRITEs overlap */
			w->offset = AREA_WRITE;
	} else if (rng_below(rng, 2)) {
		w->length = w->length < 3 * mtu ? w->length : 3 * mtu;
		w->offset = AREA_WRITE + rng_below(rng, 8);
	} else {
		w->offset = AREA_READ + rng_below(rng, AREA_READ_SIZE - w->length + 1);
	}
}

/* Faults to inject into the request. */
static void random_wrong(struct side *side, struct work *w)
{
	struct rng *rng = &side->sim->rng;
	bool remote = is_write(w) || work_wants_answer(w);

	if (side->sim->plan.processes && !rng_below(rng, 4)) {
		w->wrong = WRONG_SRQ;
		return;
	}
	switch (1 + rng_below(rng, 9)) {
	case WRONG_RKEY:
		w->wrong = remote && (w->length || is_flush(w)) ? WRONG_RKEY : WRONG_NOTHING;
		return;
	case WRONG_RANGE:
		w->wrong = remote && w->length && !is_atomic(w) ? WRONG_RANGE : WRONG_NOTHING;
		return;
	case WRONG_ALIGN:
		w->wrong = is_atomic(w) || is_atomic_write(w) ? WRONG_ALIGN : WRONG_NOTHING;
		return;
	case WRONG_FETCH:
		w->wrong = (!work_wants_answer(w) || is_atomic_write(w)) && w->length
				   ? WRONG_FETCH
				   : WRONG_NOTHING;
		return;
	case WRONG_DELIVER:
		w->wrong = w->opcode == IBV_WR_RDMA_READ || is_atomic(w) ? WRONG_DELIVER
									 : WRONG_NOTHING;
		return;
	case WRONG_LENGTH:
	case WRONG_PLACE:
		w->wrong =
			is_send(w) && w->length ? WRONG_LENGTH + rng_below(rng, 2) : WRONG_NOTHING;
		return;
	case WRONG_RECEIVE:
		w->wrong = is_send(w) ? WRONG_RECEIVE : WRONG_NOTHING;
		return;
	default:
		/* There is no NAK, so without a timeout the request never ends. */
		w->wrong = w->opcode == IBV_WR_SEND_WITH_INV && side->plan->attr.timeout
				   ? WRONG_INVALIDATE
				   : WRONG_NOTHING;
	}
}

static void random_work(struct side *side, struct work *w)
{
	struct rng *rng = &side->sim->rng;

	*w = (struct work){
		.opcode = random_opcode(side),
		.length = random_length(side),
		.flags = (rng_below(rng, 4) ? 0 : TP_FENCE),
		.imm = (uint32_t)rng_next(rng),
		.payload = (uint32_t)rng_next(rng),
		.compare_add = rng_below(rng, 3),
		.swap = rng_below(rng, 3),
	};
	if (work_wants_receive(w) && !rng_below(rng, 4))
		w->flags |= TP_SOLICITED;
	if (side->plan->unawaited && rng_chance(rng, side->plan->unawaited))
		w->flags |= TP_UNAWAITED;
	if (side->sim->plan.processes)
		w->srqn = 1 + rng_below(rng, side->sim->plan.processes);
	if (!is_send(w))
		random_place(side, w);
	if (rng_chance(rng, side->plan->errors))
		random_wrong(side, w);
	if (w->opcode == IBV_WR_RDMA_READ)
		w->answer = malloc(w->length + !w->length);
}

static void post_request(struct side *side)
{
	struct work *w = &side->works[side->posted];
	struct tp_request *r = &side->ring[(SIM_FIRST + side->posted) & (side->plan->depth - 1)];

	random_work(side, w);
	*r = (struct tp_request){
		.remote_addr = area_address(side->peer) + w->offset + (w->wrong == WRONG_ALIGN),
		.compare_add = w->compare_add,
		.swap = w->swap,
		.rkey = rkey_of(side->peer, w->srqn) + (w->wrong == WRONG_RKEY),
		.srqn = w->wrong == WRONG_SRQ ? PROCESSES_MAX + 1 : w->srqn,
		.length = w->length,
		.imm = w->imm,
		.opcode = w->opcode,
		.flags = w->flags,
	};
	if (w->wrong == WRONG_RANGE)
		r->remote_addr = area_address(side->peer) + AREA_SIZE - w->length + 1;
	if (w->opcode == IBV_WR_SEND_WITH_INV)
		r->rkey = KEY_TO_INVALIDATE + (w->wrong == WRONG_INVALIDATE);
	sim_trace(side->sim, "%c posts request %u: opcode %u, %u bytes, flags %u, wrong %u",
		  'A' + side->index, side->posted, w->opcode, w->length, w->flags, w->wrong);
	side->posted++;
	tp_post(side->tp);
}

static void post_receives(struct side *side)
{
	uint32_t n = 1 + rng_below(&side->sim->rng, 4);

	while (n-- && side->receive_tail - side->receive_head < side->plan->receives) {
		side->receives[side->receive_tail % RECEIVES_MAX].room =
			side->peer->plan->max_length;
		side->receive_tail++;
	}
}

static void drain_or_resume(struct side *side)
{
	if (side->resume_at && side->resume_at <= side->sim->now) {
		side->resume_at = 0;
		side->draining = false;
		tp_resume(side->tp);
	} else if (!side->draining && side->plan->drains && !rng_below(&side->sim->rng, 8)) {
		side->draining = true;
		tp_drain(side->tp);
		side_pull_events(side);
	}
}

void side_app(struct side *side)
{
	struct rng *rng = &side->sim->rng;

	if (side->over) {
		side->app_at = TP_NEVER;
		return;
	}
	drain_or_resume(side);
	if (side->plan->unawaited && side->tp && !rng_below(rng, 16))
		tp_ask(side->tp);
	if (side->index && side->sim->plan.processes)
		processes_die(side);
	if (!side->plan->late_receives || !rng_below(rng, 3))
		post_receives(side);
	for (uint32_t n = rng_below(rng, 4); n; n--)
		if (side->posted < side->plan->works &&
		    side->posted - side->completed < side->plan->depth)
			post_request(side);
	side->app_at =
		side->sim->now + 1 + rng_below(rng, side->plan->late_receives ? 400000 : 40000);
}

bool side_finished(const struct side *side)
{
	return side->over || (side->posted == side->plan->works && side->completed == side->posted);
}

/* The same in all runs. */
static const uint8_t *initial_memory(const struct side *side)
{
	static uint8_t *made[2];
	uint8_t **memory = &made[side->index];

	if (*memory)
		return *memory;
	*memory = malloc(AREA_WRITE_SIZE);
	if (!*memory)
		abort();
	for (uint32_t i = 0; i < AREA_WRITE_SIZE; i++)
		(*memory)[i] = initial_byte(side, AREA_WRITE + i);
	return *memory;
}

void side_begin(struct sim *sim, struct side *side, const struct side_plan *plan)
{
	struct tp_path path = {
		.mtu = sim->plan.mtu, .local_qpn = 17, .remote_qpn = 18, .pkey = WIRE_PKEY};

	side->plan = plan;
	side->memory = malloc(AREA_SIZE);
	if (!side->memory)
		abort();
	memcpy(side->memory + AREA_WRITE, initial_memory(side), AREA_WRITE_SIZE);
	memset(side->memory + AREA_ATOMIC, 0, AREA_ATOMIC_SIZE);
	if (sim->plan.processes && side->index) {
		processes_begin(side, &path);
		return;
	}
	side->tp = malloc(tp_size());
	side->early = plan->keeps ? malloc(TP_EARLY_BYTES) : NULL;
	if (!side->tp || (plan->keeps && !side->early))
		abort();
	tp_init(side->tp, sim->plan.processes ? IBV_QPT_XRC_SEND : sim->plan.type, &sim_world, side,
		side->ring, plan->depth);
	tp_realign(side->tp, SIM_FIRST);
	if (plan->keeps)
		tp_keep_early(side->tp, side->early);
	tp_receive_ready(side->tp, &path, &plan->attr);
	tp_send_ready(side->tp, &plan->attr);
}

void side_end(struct side *side)
{
	for (uint32_t i = 0; i < side->posted; i++)
		free(side->works[i].answer);
	free(side->memory);
	if (side->sim->plan.processes && side->index) {
		processes_end(side);
		return;
	}
	free(side->tp);
	free(side->early);
}
