/* SPDX-License-Identifier: BSD-2-Clause */
/* See stage.h. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint8_t stage_payload[WIRE_MTU_MAX];

const struct ibv_qp_attr stage_attr = {
	.sq_psn = SQ_PSN,
	.rq_psn = RQ_PSN,
	.max_rd_atomic = 4,
	.max_dest_rd_atomic = 4,
	.timeout = 14,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 12,
};

static void say(struct stage *s, const char *format, ...)
{
	size_t used = strlen(s->said);
	va_list args;

	assert_true(used + 128 < sizeof(s->said));
	va_start(args, format);
	if (used)
		used += (size_t)snprintf(s->said + used, sizeof(s->said) - used, ", ");
	vsnprintf(s->said + used, sizeof(s->said) - used, format, args);
	va_end(args);
}

static bool world_fetch(void *owner, uint32_t count, uint32_t offset, uint8_t *to, uint32_t n)
{
	(void)count, (void)offset;
	memset(to, 0xee, n);
	return !((struct stage *)owner)->no_fetch;
}

static bool world_deliver(void *owner, uint32_t count, uint32_t offset, const uint8_t *from,
			  uint32_t n, bool last)
{
	struct stage *s = owner;

	(void)from;
	say(s, "deliver %u %u+%u%s", count, offset, n, last ? " last" : "");
	return !s->no_deliver;
}

static enum ibv_wc_status world_check(void *owner, uint32_t count)
{
	const struct stage *s = owner;

	(void)count;
	return s->bad_segments ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
}

static enum tp_access world_aim(void *owner, uint32_t srqn)
{
	struct stage *s = owner;

	say(s, "aim %u", srqn);
	if (srqn == s->elsewhere)
		return TP_ACCESS_ELSEWHERE;
	return srqn == s->no_srq ? TP_ACCESS_REFUSED : TP_ACCESS_OK;
}

static enum tp_take world_receive_take(void *owner, const struct tp_head *head, uint32_t *room)
{
	struct stage *s = owner;

	(void)head;
	if (!s->receives)
		return TP_NO_RECEIVE;
	s->receives--;
	say(s, "take");
	*room = s->room;
	return s->bad_receive ? TP_BAD_RECEIVE : TP_TAKEN;
}

static bool world_receive_place(void *owner, uint32_t offset, const uint8_t *from, uint32_t n,
				bool last)
{
	struct stage *s = owner;

	(void)from;
	say(s, "place %u+%u%s", offset, n, last ? " last" : "");
	return !s->no_place;
}

static void world_receive_back(void *owner)
{
	struct stage *s = owner;

	s->receives++;
	say(s, "back");
}

static uint32_t world_receives_left(void *owner)
{
	struct stage *s = owner;

	return s->counts_receives ? s->receives : UINT32_MAX;
}

static enum tp_access world_access(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				   uint32_t right)
{
	struct stage *s = owner;

	(void)rkey, (void)right;
	if (s->access != TP_ACCESS_OK)
		return s->access;
	return addr + length <= MEMORY ? TP_ACCESS_OK : TP_ACCESS_REFUSED;
}

static bool world_write(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from, uint32_t n,
			bool last)
{
	struct stage *s = owner;

	(void)rkey, (void)from;
	say(s, "write %llu+%u%s", (unsigned long long)addr, n, last ? " last" : "");
	return !s->no_memory;
}

static bool world_read(void *owner, uint64_t addr, uint32_t rkey, uint8_t *to, uint32_t n)
{
	struct stage *s = owner;

	(void)rkey;
	memset(to, 0xdd, n);
	say(s, "read %llu+%u", (unsigned long long)addr, n);
	return !s->no_memory;
}

static bool world_atomic(void *owner, uint64_t addr, uint32_t rkey, bool is_swap,
			 uint64_t compare_add, uint64_t swap, uint64_t *old)
{
	struct stage *s = owner;

	(void)rkey;
	say(s, "atomic %llu", (unsigned long long)addr);
	*old = s->word;
	if (!is_swap)
		s->word += compare_add;
	else if (s->word == compare_add)
		s->word = swap;
	return !s->no_memory;
}

static enum tp_access world_store(void *owner, uint64_t addr, uint32_t rkey, const uint8_t *from)
{
	struct stage *s = owner;

	(void)rkey, (void)from;
	say(s, "store %llu", (unsigned long long)addr);
	if (addr % 8)
		return TP_ACCESS_INVALID;
	return s->no_memory ? TP_ACCESS_REFUSED : TP_ACCESS_OK;
}

static enum tp_access world_flush(void *owner, uint64_t addr, uint32_t length, uint32_t rkey,
				  uint8_t feth)
{
	struct stage *s = owner;

	(void)rkey;
	say(s, "flush %llu+%u %u/%u", (unsigned long long)addr, length, packet_flush_type(feth),
	    packet_flush_level(feth));
	return s->access;
}

static bool world_invalidate(void *owner, uint32_t rkey)
{
	struct stage *s = owner;

	say(s, "invalidate %u", rkey);
	return s->access == TP_ACCESS_OK;
}

static const struct tp_world world = {
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

/* What an owner does with an event: errors take its QP to the error state. */
static void on_event(struct stage *s, const struct tp_event *e)
{
	const struct tp_message *m = &e->message;

	switch (e->kind) {
	case TP_ESTABLISHED:
		say(s, "established");
		return;
	case TP_COMPLETED:
		say(s, "done %u %d", e->count, e->status);
		if (e->status != IBV_WC_SUCCESS && s->tp->type == IBV_QPT_RC)
			tp_stop(s->tp, true);
		return;
	case TP_DRAINED:
		say(s, "drained");
		return;
	case TP_RECEIVED:
		say(s, "receive %u %d%s%s%s", m->length, e->status, m->has_imm ? " imm" : "",
		    m->is_write ? " write" : "", m->solicited ? " solicited" : "");
		if (s->stops_at_receive)
			tp_stop(s->tp, true);
		return;
	case TP_REFUSED:
		say(s, "refused %d", e->async);
		tp_stop(s->tp, true);
	}
}

void pull_events(struct stage *s)
{
	struct tp_event e;

	while (tp_next_event(s->tp, &e))
		on_event(s, &e);
}

static struct stage *begin(enum ibv_qp_type type, const struct ibv_qp_attr *attr, bool keeps)
{
	static const struct tp_path path = {
		.mtu = MTU, .local_qpn = 0x11, .remote_qpn = 0x22, .pkey = WIRE_PKEY};
	struct stage *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->tp = malloc(tp_size());
	assert_non_null(s->tp);
	s->now = 1000000000;
	s->room = 1024;
	tp_init(s->tp, type, &world, s, s->ring, PLACES);
	if (keeps) {
		s->early = malloc(TP_EARLY_BYTES);
		assert_non_null(s->early);
		tp_keep_early(s->tp, s->early);
	}
	tp_receive_ready(s->tp, &path, attr);
	if (type != IBV_QPT_XRC_RECV)
		tp_send_ready(s->tp, attr);
	return s;
}

struct stage *stage_with(enum ibv_qp_type type, const struct ibv_qp_attr *attr)
{
	return begin(type, attr, false);
}

struct stage *stage_keeping(void)
{
	return stage_keeping_as(IBV_QPT_RC);
}

struct stage *stage_keeping_as(enum ibv_qp_type type)
{
	return begin(type, &stage_attr, true);
}

void peer_drops(struct stage *s)
{
	s->tp->requester.repairs_failed = TP_REPAIRS_MAX;
}

struct stage *stage_begin(enum ibv_qp_type type)
{
	return stage_with(type, &stage_attr);
}

void stage_end(struct stage *s)
{
	assert_string_equal(s->said, ""); /* nothing unexpected was recorded */
	free(s->tp);
	free(s->early);
	free(s);
}

void post(struct stage *s, enum ibv_wr_opcode opcode, uint32_t length, uint8_t flags)
{
	s->ring[s->posted++ % PLACES] = (struct tp_request){
		.opcode = (uint8_t)opcode,
		.length = length,
		.flags = flags,
		.remote_addr = 1000,
		.rkey = 77,
	};
	tp_post(s->tp);
}

/* As from the network: through the encoder and the decoder. */
void arrives(struct stage *s, struct packet p)
{
	uint8_t bytes[WIRE_PACKET_MAX] = {0};
	struct packet decoded;

	if (s->tp->type == IBV_QPT_UC)
		p.opcode |= PACKET_UC;
	else if (s->tp->type != IBV_QPT_RC)
		p.opcode |= PACKET_XRC;
	p.pkey = WIRE_PKEY;
	p.dest_qpn = 0x11;
	uint32_t size = packet_encode(&p, bytes) + p.length + packet_padding(p.length);

	assert_int_equal(packet_decode(bytes, size + WIRE_ICRC, &decoded), PACKET_OK);
	decoded.icrc_doubled = p.icrc_doubled;
	tp_packet(s->tp, &decoded, s->now);
	pull_events(s);
}

void acknowledges(struct stage *s, uint32_t psn, uint8_t syndrome, uint32_t msn)
{
	ARRIVES(s, .opcode = OP_ACKNOWLEDGE, .psn = psn, .syndrome = syndrome, .msn = msn);
}

void sends(struct stage *s, uint8_t operation, uint32_t psn)
{
	assert_true(tp_ready(s->tp, s->now));
	uint32_t size = tp_next(s->tp, s->now, s->sent);

	pull_events(s);
	assert_int_not_equal(size, 0);
	assert_int_equal(packet_decode(s->sent, size + WIRE_ICRC, &s->out), PACKET_OK);
	assert_int_equal(packet_operation(s->out.opcode), operation);
	assert_int_equal(s->out.psn, psn);
	assert_int_equal(s->out.dest_qpn, 0x22);
}

void sends_nothing(struct stage *s)
{
	assert_int_equal(tp_next(s->tp, s->now, s->sent), 0);
	pull_events(s);
	assert_false(tp_ready(s->tp, s->now));
}

void says(struct stage *s, const char *what)
{
	assert_string_equal(s->said, what);
	s->said[0] = '\0';
}

void passes(struct stage *s, uint64_t ns)
{
	uint64_t until = s->now + ns;

	while (tp_deadline(s->tp) <= until) {
		s->now = tp_deadline(s->tp);
		tp_expire(s->tp, s->now);
		pull_events(s);
		assert_true(tp_deadline(s->tp) > s->now);
		if (tp_ready(s->tp, s->now))
			return; /* a packet is to be sent, which the test examines */
	}
	s->now = until;
}
