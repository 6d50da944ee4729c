/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that sends arbitrary packets to a live connection: the transport core with outstanding
 * requests of its own, and a struct tp_world whose calls fail now and then. An input is a setting,
 * then steps: post, a packet (derived from the expected one, or raw bytes), time that passes,
 * packets that are sent, draining, the end.
 *
 * An input fails when memory is accessed that wasn't granted by the call just before, when a
 * request completes twice, out of order or after an error, when a receive is taken twice or
 * completed without being taken, or when the core has packets to send without end.
 */
#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>

#include "counters.h"
#include "input.h"

enum {
	PLACES = 16,
	MEMORY = 8192,
	BASE = 0x10000,
	RKEY = 0x100,
	ROOM = 3000,
	READ_MAX = 1 << 22, /* longer requests would only take longer */
};

struct fuzz {
	struct input in;
	struct tp *tp;
	struct tp_request ring[PLACES];
	uint64_t now;
	uint32_t posted, completed, receives;
	uint32_t answering; /* the request that was answered last */
	uint32_t mtu, sq_psn, rq_psn;
	uint8_t *memory;
	uint8_t *early;
	uint8_t faults; /* how many of 256 calls fail */
	bool over, taken, draining, stopped;
	uint64_t granted_addr;
	uint32_t granted_length, granted_right;
};

UNTRACED static bool fails(struct fuzz *f)
{
	return f->faults && input_u8(&f->in) < f->faults;
}

static bool world_fetch(void *owner, uint32_t count, uint32_t offset, uint8_t *to, uint32_t n)
{
	struct fuzz *f = owner;

	MUST(count - f->completed < f->posted - f->completed && !f->stopped);
	MUST(n && n <= f->mtu && offset + (uint64_t)n <= f->ring[count % PLACES].length);
	memset(to, 0x55, n);
	return !fails(f);
}

static enum ibv_wc_status world_check(void *owner, uint32_t count)
{
	struct fuzz *f = owner;

	MUST(count - f->completed < f->posted - f->completed && !f->stopped);
	return fails(f) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
}

static bool world_deliver(void *owner, uint32_t count, uint32_t offset, const uint8_t *from,
			  uint32_t n, bool last)
{
	struct fuzz *f = owner;
	const struct tp_request *r = &f->ring[count % PLACES];

	/* The requests before it are complete; their events are pulled next. */
	MUST(count - f->completed < f->posted - f->completed && !f->stopped);
	f->answering = count;
	MUST(n <= f->mtu && offset + (uint64_t)n <= r->length);
	MUST(last == (offset + n == r->length));
	for (uint32_t i = 0; i < n; i++)
		*(volatile uint8_t *)f->memory = from[i]; /* reads every byte */
	return !fails(f);
}

static void stop(struct fuzz *f)
{
	f->stopped = true;
	tp_stop(f->tp, true);
}

static void completed(struct fuzz *f, uint32_t count, enum ibv_wc_status status)
{
	MUST(count == f->completed && count != f->posted && !f->over);
	f->completed++;
	if (status == IBV_WC_SUCCESS)
		return;
	f->over = true;
	stop(f);
}

static enum tp_take world_receive_take(void *owner, const struct tp_head *head, uint32_t *room)
{
	struct fuzz *f = owner;

	MUST(!f->taken && !f->stopped);
	(void)head;
	if (!f->receives)
		return TP_NO_RECEIVE;
	f->taken = true;
	*room = ROOM;
	return fails(f) ? TP_BAD_RECEIVE : TP_TAKEN;
}

static bool world_receive_place(void *owner, uint32_t offset, const uint8_t *from, uint32_t n,
				bool last)
{
	struct fuzz *f = owner;

	(void)last;
	MUST(f->taken && n && (uint64_t)offset + n <= ROOM && n <= f->mtu);
	for (uint32_t i = 0; i < n; i++)
		*(volatile uint8_t *)f->memory = from[i];
	return !fails(f);
}

static void received(struct fuzz *f, const struct tp_message *message, enum ibv_wc_status status)
{
	MUST(f->taken && f->receives && !f->stopped);
	MUST(status != IBV_WC_SUCCESS || message->is_write || message->length <= ROOM);
	f->taken = false;
	f->receives--;
}

static void world_receive_back(void *owner)
{
	struct fuzz *f = owner;

	MUST(f->taken);
	f->taken = false;
}

static uint32_t world_receives_left(void *owner)
{
	struct fuzz *f = owner;

	return f->receives & 0x80 ? UINT32_MAX : f->receives - f->taken;
}

static enum tp_access world_access(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				   uint32_t right)
{
	struct fuzz *f = owner;

	f->granted_length = 0;
	if (fails(f))
		return TP_ACCESS_REFUSED;
	if (right == IBV_ACCESS_REMOTE_ATOMIC && (addr & 7))
		return TP_ACCESS_INVALID;
	if (length && (rkey != RKEY || addr < BASE || addr - BASE > MEMORY ||
		       length > MEMORY - (addr - BASE)))
		return TP_ACCESS_REFUSED;
	f->granted_addr = addr;
	f->granted_length = length;
	f->granted_right = right;
	return TP_ACCESS_OK;
}

/* The memory in a block of the granted size, so that AddressSanitizer detects other accesses. */
static uint8_t *granted(struct fuzz *f, uint64_t addr, uint32_t n, uint32_t rkey, uint32_t right)
{
	MUST(n && rkey == RKEY && right == f->granted_right);
	MUST(addr >= f->granted_addr && addr + n <= f->granted_addr + f->granted_length);
	return f->memory + (addr - BASE);
}

static bool world_write(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from, uint32_t n,
			bool last)
{
	struct fuzz *f = owner;

	(void)last;
	MUST(!f->stopped);
	memcpy(granted(f, addr, n, rkey, IBV_ACCESS_REMOTE_WRITE), from, n);
	return !fails(f);
}

static bool world_read(void *owner, uint64_t addr, uint32_t rkey, uint8_t *to, uint32_t n)
{
	struct fuzz *f = owner;

	memcpy(to, granted(f, addr, n, rkey, IBV_ACCESS_REMOTE_READ), n);
	return !fails(f);
}

static bool world_atomic(void *owner, uint64_t addr, uint32_t rkey, bool is_swap,
			 uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	struct fuzz *f = owner;
	uint8_t *word = granted(f, addr, 8, rkey, IBV_ACCESS_REMOTE_ATOMIC);

	(void)is_swap, (void)compare_add;
	memcpy(old, word, 8);
	memcpy(word, &swap, 8);
	return !fails(f);
}

static enum tp_access world_store(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from)
{
	struct fuzz *f = owner;

	memcpy(granted(f, addr, 8, rkey, IBV_ACCESS_REMOTE_WRITE), from, 8);
	return fails(f) ? TP_ACCESS_REFUSED : addr % 8 ? TP_ACCESS_INVALID : TP_ACCESS_OK;
}

static enum tp_access world_flush(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				  uint8_t feth)
{
	struct fuzz *f = owner;

	(void)addr, (void)length;
	MUST(!f->stopped && packet_feth(packet_flush_type(feth), packet_flush_level(feth)) == feth);
	return fails(f) ? TP_ACCESS_INVALID : rkey == RKEY ? TP_ACCESS_OK : TP_ACCESS_REFUSED;
}

static bool world_invalidate(void *owner, uint32_t rkey)
{
	(void)rkey;
	return !fails(owner);
}

static const struct tp_world world = {
	.fetch = world_fetch,
	.check = world_check,
	.deliver = world_deliver,
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

static void on_event(struct fuzz *f, const struct tp_event *e)
{
	switch (e->kind) {
	case TP_ESTABLISHED:
		return;
	case TP_COMPLETED:
		completed(f, e->count, e->status);
		return;
	case TP_DRAINED:
		MUST(f->draining);
		return;
	case TP_RECEIVED:
		received(f, &e->message, e->status);
		return;
	case TP_REFUSED:
		MUST(!f->stopped);
		stop(f);
	}
}

static void pull_events(struct fuzz *f)
{
	struct tp_event e;

	while (tp_next_event(f->tp, &e))
		on_event(f, &e);
	MUST(f->stopped || (int32_t)(f->answering - f->completed) <= 0);
}

/* ------------------------------------------------------------------ steps */

static void step_post(struct fuzz *f, bool is_uc)
{
	static const uint8_t opcodes[16] = {
		IBV_WR_SEND,
		IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_INV,
		IBV_WR_ATOMIC_WRITE,
		IBV_WR_FLUSH,
	};
	uint8_t what = input_u8(&f->in);
	uint32_t length = input_u32(&f->in);
	uint8_t kind = what & 7;

	/* The two newest opcodes take the place of others when the length says so. */
	if (length >> 28 == 0xf)
		kind = 8 + (what & 1);

	if (f->stopped || f->posted - f->completed == PLACES)
		return;
	f->ring[f->posted++ % PLACES] = (struct tp_request){
		.opcode = opcodes[is_uc ? what & 3 : kind],
		.flags = (what >> 3) & 7,
		.length = what & 0x80 ? length % READ_MAX : length % 5000,
		.remote_addr = BASE,
		.rkey = RKEY,
	};
	if ((kind == 5 || kind == 6 || kind == 8) && !is_uc)
		f->ring[(f->posted - 1) % PLACES].length = 8; /* atomics */
	if (kind == 9 && !is_uc)
		f->ring[(f->posted - 1) % PLACES].length = 0; /* FLUSH */
	tp_post(f->tp);
}

/* A packet derived from the expected one. */
static void step_packet(struct fuzz *f, bool is_uc)
{
	uint8_t bytes[WIRE_PACKET_MAX] = {0};
	uint8_t what = input_u8(&f->in), kind = input_u8(&f->in);
	int8_t near = (int8_t)input_u8(&f->in);
	static const uint32_t lengths[8] = {0, 1, 4, 8, 256, 257, 4096, 1024};
	uint32_t length = kind & 1 ? f->mtu : lengths[(kind >> 1) & 7];
	struct packet p = {
		.opcode = (uint8_t)((what & 0x1f) | (is_uc ? PACKET_UC : PACKET_RC)),
		.ack_request = what & 0x20,
		.solicited = what & 0x40,
		.becn = kind & 0x80,
		.pkey = WIRE_PKEY,
		.syndrome = input_u8(&f->in),
		.msn = input_u8(&f->in),
		.addr = BASE + (kind & 0x10 ? 8u * input_u8(&f->in) : 0),
		.rkey = RKEY,
		.feth = kind & WIRE_FETH_BITS,
		.dma_length = kind & 0x20 ? input_u32(&f->in) : length,
	};
	bool response = p.opcode >= OP_READ_RESPONSE_FIRST && p.opcode <= OP_ATOMIC_ACKNOWLEDGE;

	if (!packet_layout(p.opcode))
		return;
	if (packet_layout(p.opcode) & HAS_PAYLOAD)
		p.length = length;
	p.psn = ((response ? f->sq_psn : f->rq_psn) + (uint32_t)near) & 0xffffff;
	uint32_t size = packet_encode(&p, bytes) + p.length + packet_padding(p.length) + WIRE_ICRC;
	/* In a block of its exact size. */
	uint8_t *exact = malloc(size);
	struct packet decoded;

	if (!exact)
		abort();
	memcpy(exact, bytes, size);
	MUST(packet_decode(exact, size, &decoded) == PACKET_OK);
	tp_packet(f->tp, &decoded, f->now);
	pull_events(f);
	if (!response && near == 0)
		f->rq_psn++; /* the next expected one */
	free(exact);
}

static void step_raw(struct fuzz *f)
{
	uint32_t size = input_u8(&f->in);
	uint8_t *bytes = malloc(size + !size);
	struct packet p;

	if (!bytes)
		abort();
	input_bytes(&f->in, bytes, size);
	if (packet_decode(bytes, size, &p) == PACKET_OK)
		tp_packet(f->tp, &p, f->now);
	pull_events(f);
	free(bytes);
}

static void step_send(struct fuzz *f)
{
	uint8_t *packet = malloc(WIRE_PACKET_MAX);
	uint32_t wanted = input_u8(&f->in), size = 1;
	struct packet p;

	if (!packet)
		abort();
	for (uint32_t n = 0; n < wanted && size; n++) {
		size = tp_next(f->tp, f->now, packet);
		pull_events(f);
		MUST(size || !tp_ready(f->tp, f->now));
		MUST(!size || packet_decode(packet, size + WIRE_ICRC, &p) == PACKET_OK);
		if (size && p.opcode != OP_ACKNOWLEDGE && p.opcode != OP_ATOMIC_ACKNOWLEDGE &&
		    (p.opcode < OP_READ_RESPONSE_FIRST || p.opcode > OP_READ_RESPONSE_ONLY))
			f->sq_psn = p.psn;
	}
	free(packet);
}

static void step_time(struct fuzz *f)
{
	uint64_t deadline = tp_deadline(f->tp);

	f->now += (uint64_t)input_u8(&f->in) << (input_u8(&f->in) % 24);
	if (input_u8(&f->in) & 1 && deadline != TP_NEVER && deadline > f->now)
		f->now = deadline;
	tp_expire(f->tp, f->now);
	pull_events(f);
	MUST(tp_deadline(f->tp) > f->now);
}

static void step_state(struct fuzz *f)
{
	struct ibv_qp_attr attr = {.timeout = input_u8(&f->in) & 31,
				   .max_rd_atomic = 2,
				   .max_dest_rd_atomic = input_u8(&f->in)};

	switch (input_u8(&f->in) % 5) {
	case 0:
		f->draining = true;
		tp_drain(f->tp);
		pull_events(f);
		return;
	case 1:
		if (!f->stopped)
			tp_resume(f->tp);
		return;
	case 2:
		tp_change(f->tp, &attr, IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC);
		return;
	case 3:
		f->receives += 1 + (input_u8(&f->in) & 0x83);
		return;
	default:
		f->stopped = f->over = true;
		tp_stop(f->tp, input_u8(&f->in) & 1);
		f->taken = false;
	}
}

static void setting(struct fuzz *f, bool is_uc)
{
	struct ibv_qp_attr attr = {0};
	struct tp_path path = {.local_qpn = 1, .remote_qpn = 2, .pkey = WIRE_PKEY};
	uint8_t retries = input_u8(&f->in);

	f->mtu = path.mtu = 256u << (input_u8(&f->in) % 5);
	attr.sq_psn = f->sq_psn = 0xffff80 + input_u8(&f->in);
	attr.rq_psn = f->rq_psn = 0xffff80 + input_u8(&f->in);
	attr.max_rd_atomic = input_u8(&f->in) % 17;
	attr.max_dest_rd_atomic = input_u8(&f->in);
	attr.timeout = input_u8(&f->in) & 31;
	attr.retry_cnt = retries & 7;
	attr.rnr_retry = (retries >> 3) & 7;
	attr.min_rnr_timer = input_u8(&f->in) & 31;
	f->faults = retries & 0x80 ? input_u8(&f->in) : 0;
	f->receives = input_u8(&f->in);
	tp_init(f->tp, is_uc ? IBV_QPT_UC : IBV_QPT_RC, &world, f, f->ring, PLACES);
	tp_keep_early(f->tp, retries & 0x40 ? f->early : NULL);
	tp_receive_ready(f->tp, &path, &attr);
	tp_send_ready(f->tp, &attr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz f = {.in = {data, data + size}, .now = 1000000};
	bool is_uc = input_u8(&f.in) % 8 == 0;

	counters_draw(data, size);
	f.tp = malloc(tp_size());
	f.memory = calloc(1, MEMORY);
	f.early = malloc(TP_EARLY_BYTES);
	if (!f.tp || !f.memory || !f.early)
		abort();
	setting(&f, is_uc);
	while (input_left(&f.in)) {
		switch (input_u8(&f.in) % 8) {
		case 0:
			step_post(&f, is_uc);
			break;
		case 1:
			step_raw(&f);
			break;
		case 2:
			step_time(&f);
			break;
		case 3:
			step_state(&f);
			break;
		case 4:
			step_send(&f);
			break;
		default:
			step_packet(&f, is_uc);
		}
	}
	free(f.memory);
	free(f.early);
	free(f.tp);
	return 0;
}
