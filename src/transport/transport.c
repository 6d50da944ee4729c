/* SPDX-License-Identifier: BSD-2-Clause */
/* The transport core's entry points (transport.h): they check the state and call the requester or
 * the responder. */
#include "transport/transport.h"

#include <assert.h>
#include <string.h>

#include "base/cpu.h"
#include "transport/state.h"

size_t tp_size(void)
{
	return sizeof(struct tp);
}

static uint8_t tp_transport(enum ibv_qp_type type)
{
	if (type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV)
		return PACKET_XRC;
	return type == IBV_QPT_UC ? PACKET_UC : PACKET_RC;
}

void tp_init(struct tp *tp, enum ibv_qp_type type, const struct tp_world *world, void *owner,
	     struct tp_request *requests, uint32_t max_requests)
{
	memset(tp, 0, sizeof(*tp));
	tp->world = world;
	tp->owner = owner;
	tp->type = type;
	tp->transport = tp_transport(type);
	tp->responder = &tp->own;
	requester_init(tp, requests, max_requests);
}

void tp_keep_early(struct tp *tp, void *memory)
{
	tp->early.memory = memory;
}

void tp_receive_ready(struct tp *tp, const struct tp_path *path, const struct ibv_qp_attr *attr)
{
	tp->path = *path;
	tp->mtu_shift = (uint8_t)__builtin_ctz(path->mtu);
	early_start(&tp->early, path->mtu);
	responder_start(tp, attr);
}

static bool is_response(uint8_t operation)
{
	return operation >= OP_READ_RESPONSE_FIRST && operation <= OP_ATOMIC_ACKNOWLEDGE;
}

/* Whether a QP of this type takes the packet: an end of XRC is requester or responder only. */
static bool tp_takes(const struct tp *tp, const struct packet *packet)
{
	bool response = is_response(packet_operation(packet->opcode));

	if (packet_transport(packet->opcode) != tp->transport)
		return false;
	return tp->transport != PACKET_XRC || response == (tp->type == IBV_QPT_XRC_SEND);
}

void tp_share(struct tp *tp, void *memory)
{
	struct responder *shared = memory;

	*shared = tp->own;
	tp->responder = shared;
}

void tp_responder_at(struct tp *tp, void *memory)
{
	early_forget(&tp->early);
	memset(&tp->own, 0, sizeof(tp->own)); /* neither active nor owing anything */
	tp->responder = memory ? memory : &tp->own;
}

uint32_t tp_srq_of(const struct tp *tp, const struct packet *packet)
{
	return tp_takes(tp, packet) ? responder_srq_of(tp, packet) : 0;
}

bool tp_owes(const struct tp *tp)
{
	const struct responder *r = tp->responder;

	return r->nak_owed || r->give != r->made || r->going_on || tp->events.waiting;
}

void tp_send_ready(struct tp *tp, const struct ibv_qp_attr *attr)
{
	requester_start(tp, attr);
}

void tp_change(struct tp *tp, const struct ibv_qp_attr *attr, int mask)
{
	struct requester *q = &tp->requester;
	struct responder *r = tp->responder;

	if (mask & IBV_QP_MIN_RNR_TIMER)
		r->rnr_timer = attr->min_rnr_timer & AETH_VALUE;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		r->answers_max = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		requester_limit_answers(tp, attr);
	if (mask & IBV_QP_TIMEOUT) {
		q->timeout = attr->timeout & 31;
		q->timer_at = TP_NEVER; /* the next packet starts the new timer */
	}
	if (mask & IBV_QP_RETRY_CNT)
		q->retry_cnt = q->retries = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		q->rnr_retry = q->rnr_retries = attr->rnr_retry;
}

void tp_ask(struct tp *tp)
{
	requester_ask(tp);
}

void tp_acknowledge_all(struct tp *tp)
{
	responder_acknowledge_all(tp);
}

void tp_drain(struct tp *tp)
{
	requester_drain(tp);
}

void tp_resume(struct tp *tp)
{
	if (tp->requester.state != REQUESTER_BREAKS)
		tp->requester.state = REQUESTER_SENDS;
}

void tp_stop(struct tp *tp, bool keep_answer)
{
	requester_stop(tp);
	responder_stop(tp, keep_answer);
	tp->events.waiting = 0;
}

void tp_post(struct tp *tp)
{
	tp->requester.posted++;
}

void tp_packet(struct tp *tp, const struct packet *packet, uint64_t now)
{
	struct responder *r = tp->responder;

	assert(!tp->events.waiting);
	tp->counters.packets_in++;
	if (unlikely(!tp_takes(tp, packet))) {
		tp->counters.dropped++;
		return;
	}
	if (unlikely(!r->established) && r->active) {
		r->established = true;
		if (tp->requester.state == REQUESTER_OFF)
			event_established(&tp->events);
	}
	if (tp->type == IBV_QPT_UC)
		responder_packet_uc(tp, packet);
	else if (is_response(packet_operation(packet->opcode)))
		requester_packet(tp, packet, now);
	else
		responder_packet(tp, packet);
}

bool tp_next_event(struct tp *tp, struct tp_event *event)
{
	if (unlikely(tp->responder->going_on) && !tp->events.waiting)
		responder_go_on(tp);
	if (!tp->events.waiting)
		return false;
	*event = event_pull(&tp->events);
	return true;
}

void tp_congested(struct tp *tp, uint64_t now)
{
	tp->counters.congested++;
	congestion_marked(&tp->congestion, now);
}

void tp_expire(struct tp *tp, uint64_t now)
{
	assert(!tp->events.waiting);
	requester_expire(tp, now);
}

uint64_t tp_deadline(const struct tp *tp)
{
	return requester_deadline(tp);
}

enum tp_need tp_need(const struct tp *tp, uint64_t now)
{
	const struct responder *r = tp->responder;

	if (r->nak_owed || r->give != r->made || requester_may_send(tp, now))
		return TP_SEND;
	return r->ack_owed ? TP_ACKNOWLEDGE : TP_NOTHING;
}

uint32_t tp_under_way(const struct tp *tp)
{
	return tp->requester.flight;
}

bool tp_flush_doubled(const struct tp *tp)
{
	return tp->requester.flush_doubled;
}

uint32_t tp_unsent(const struct tp *tp, uint32_t enough)
{
	return requester_unsent(tp, enough);
}

bool tp_acknowledges(const struct tp *tp)
{
	const struct responder *r = tp->responder;

	return r->ack_owed && !r->nak_owed && r->give == r->made;
}

void tp_realign(struct tp *tp, uint32_t count)
{
	struct requester *q = &tp->requester;

	assert(q->first == q->posted);
	q->first = q->cursor = q->begun = q->posted = count;
}

/* Responses go first, but a long READ doesn't hold back this side's requests. */
uint32_t tp_next(struct tp *tp, uint64_t now, uint8_t *to)
{
	struct responder *r = tp->responder;
	uint32_t size = 0;

	if (unlikely(r->turn >= TP_TURN)) {
		r->turn = 0;
		size = requester_next(tp, now, to);
	}
	if (!size && responder_may_send(r)) {
		size = responder_next(tp, to);
		r->turn += size != 0;
	}
	if (!size) {
		size = requester_next(tp, now, to);
		r->turn = 0;
	}
	tp->counters.packets_out += size != 0;
	return size;
}

uint32_t tp_next_response(struct tp *tp, uint8_t *to)
{
	uint32_t size = responder_may_send(tp->responder) ? responder_next(tp, to) : 0;

	tp->counters.packets_out += size != 0;
	return size;
}

uint32_t tp_next_request(struct tp *tp, uint64_t now, uint8_t *to)
{
	uint32_t size = requester_next(tp, now, to);

	tp->counters.packets_out += size != 0;
	return size;
}

const struct tp_counters *tp_counters(const struct tp *tp)
{
	return &tp->counters;
}

/* Table 45, in units of 10 us. */
uint64_t tp_rnr_ns(uint8_t code)
{
	static const uint16_t tens[32] = {
		[0] = 65535, 1,	   2,	 3,    4,    6,	    8,	   12,	  16,	 24,	32,
		48,	     64,   96,	 128,  192,  256,   384,   512,	  768,	 1024,	1536,
		2048,	     3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	};

	/* Code 0 stands for 655.36 ms, which is one more than the table's type holds. */
	return ((uint64_t)tens[code & 31] + !(code & 31)) * 10000;
}

/* The AETH's code for a number of receives, and back: 0, 1, 2, 3, 4, 6, 8, 12, 16, ... 32768. */
uint32_t credits_decode(uint8_t code)
{
	if (code < 2)
		return code;
	return (code & 1 ? 3u : 2u) << (code / 2 - 1);
}

uint8_t credits_encode(uint32_t receives)
{
	if (receives == UINT32_MAX)
		return AETH_NO_CREDITS;
	if (receives < 2)
		return (uint8_t)receives;
	if (receives >= 32768)
		return 30;
	uint32_t power = 31 - (uint32_t)__builtin_clz(receives);
	uint32_t half = receives >> (power - 1) & 1;

	return (uint8_t)(2 * power + half);
}
