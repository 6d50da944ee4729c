/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The actions of the two ends of victim.h, one function for each kind. Numbers are taken from the
 * input so that valid ones are likely: a small byte is near the expected value.
 */
#include "play.h"

#include <stdio.h>
#include <stdlib.h>

#include "hca/engine/engine.h"
#include "hca/local/link.h"
#include "hca/local/local_conn.h"
#include "hca/mem/mapped.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/srq.h"
#include "tagged.h"
#include "victim.h"
#include "wire/packet.h"

/* 0 for most bytes, otherwise a small difference or any number. */
static uint32_t off_by(struct input *in)
{
	uint8_t b = input_u8(in);

	if (b < 192)
		return 0;
	return b < 248 ? (uint32_t)(b - 220) : input_u32(in);
}

/* An address of the victim's, near a region or anything. */
static uint64_t victim_address(struct input *in, unsigned int region)
{
	uint64_t base = victim.mr[region].iova;
	uint8_t b = input_u8(in);

	if (b < 128)
		return base + (uint64_t)b * 64;
	if (b < 224)
		return base + REGION_BYTES - (b - 128);
	return b < 248 ? base - (b - 223) : input_u64(in);
}

static uint64_t peer_address(struct input *in)
{
	uint8_t b = input_u8(in);

	if (b < 192)
		return PEER_BASE + (uint64_t)b * 64;
	return b < 240 ? PEER_BASE + PEER_BYTES - (b - 192) : input_u64(in);
}

static uint32_t length(struct input *in)
{
	static const uint32_t usual[] = {0,    1,    7,	   8,	 64,	RING_PAYLOAD_MAX - 16,
					 4096, 8160, 8161, 8159, 16384, REGION_BYTES};
	uint8_t b = input_u8(in);

	if (b < 128)
		return b;
	return b < 240 ? usual[b % (sizeof(usual) / sizeof(usual[0]))] : input_u32(in);
}

/* ------------------------------------------------------------------ records */

/* A record at the position where the victim expects one, as a correct producer writes it. */
static void put(const struct ring_header *head, const void *payload, uint32_t size)
{
	struct ring_header *h = ring_reserve(&victim.tx, size);

	if (!h)
		return;
	h->kind = head->kind;
	h->flags = head->flags;
	h->dst = head->dst;
	h->src = head->src;
	h->msn = head->msn;
	h->ack = head->ack;
	h->imm = head->imm;
	h->length = head->length;
	if (size)
		memcpy((uint8_t *)h + RING_HEADER, payload, size);
	if (h->kind & REC_CARRIES && ring_spare(size) >= sizeof(struct record_ack))
		record_carry(h, size, (struct record_ack){head->dst, head->src, head->ack});
	ring_commit(&victim.tx, h, size);
}

static struct ring_header head_for(struct input *in, unsigned int qp)
{
	const struct qp *q = victim.qp[qp];
	const struct send_wqe *oldest =
		q->sq.acked != q->sq.next ? sq_at(&q->sq, q->sq.acked) : NULL;
	uint32_t arrived = q->local ? (uint32_t)q->local->core.arrived_msn : RECORD_MSN;
	uint32_t next = q->local ? (uint32_t)q->local->core.next_msn : RECORD_MSN;
	uint8_t kind = input_u8(in);
	bool response = kind % (REC_KINDS + 1) >= REC_ACK;

	return (struct ring_header){
		.kind = kind < 200   ? kind % (REC_KINDS + 1)
			: kind < 240 ? kind % (REC_KINDS + 1) | REC_CARRIES
			: kind < 248 ? REC_LEAVE + kind % 2
			: kind < 252 ? REC_FRAME
			: kind < 254 ? REC_XRC | (REC_SEND + kind % 2)
				     : REC_XRC_PACKET + kind % 2,
		.flags = input_u8(in),
		.dst = record_address(q->ibv.qp_num, q->epoch) + off_by(in),
		.src = record_address(peer_qpn(qp), PEER_EPOCH) + off_by(in),
		.msn = (response && oldest ? oldest->msn : arrived) + off_by(in),
		.ack = (oldest ? oldest->msn : next) + off_by(in),
		.imm = input_u8(in),
	};
}

/* Makes `h` the next piece of the message that the QP pulls, if it pulls one. */
static bool aim_at_pull(struct input *in, unsigned int qp, struct ring_header *h)
{
	const struct local_conn *conn = victim.qp[qp]->local;

	if (!conn || conn->core.responder != LOCAL_WAIT_DATA)
		return false;
	const struct local_held *first =
		container_of(conn->core.held.next, struct local_held, node);
	uint32_t left = first->header.length - conn->core.stream_done;

	h->msn = first->header.msn + off_by(in);
	h->imm = conn->core.stream_done + off_by(in);
	h->length = left < RING_PAYLOAD_MAX ? left : RING_PAYLOAD_MAX;
	return true;
}

/* A payload that fits the kind, or any bytes. Returns its size. */
static uint32_t fill_payload(struct input *in, unsigned int qp, struct ring_header *h,
			     uint8_t *payload)
{
	unsigned int region = input_u8(in) % (REGIONS + 1);
	uint32_t rkey = victim.mr[region % REGIONS].ibv.rkey + off_by(in), n;
	struct record_remote remote = {.addr = victim_address(in, region % REGIONS), .rkey = rkey};
	struct record_segment segment;
	struct record_atomic atomic;
	struct record_ud ud;

	h->length = length(in);
	switch (h->kind) {
	case REC_SEND_REF:
		n = 1 + input_u8(in) % 40;
		for (uint32_t i = 0; i < n; i++) {
			segment = (struct record_segment){peer_address(in), length(in), 0x100};
			memcpy(payload + i * sizeof(segment), &segment, sizeof(segment));
			if (!i && n == 1)
				h->length = segment.length;
		}
		return n * (uint32_t)sizeof(segment);
	case REC_WRITE_DATA:
		n = h->length < RING_PAYLOAD_MAX - sizeof(remote)
			    ? h->length
			    : RING_PAYLOAD_MAX - (uint32_t)sizeof(remote);
		remote.reserved = n + off_by(in);
		memcpy(payload, &remote, sizeof(remote));
		h->length += off_by(in);
		return n + (uint32_t)sizeof(remote);
	case REC_READ_REQ:
		memcpy(payload, &remote, sizeof(remote));
		return sizeof(remote);
	case REC_ATOMIC_REQ:
		atomic = (struct record_atomic){.addr = remote.addr,
						.rkey = rkey,
						.operation = input_u8(in) & 7,
						.compare_add = input_u8(in),
						.swap = input_u8(in)};
		memcpy(payload, &atomic, sizeof(atomic));
		return sizeof(atomic);
	case REC_UD:
		ud = (struct record_ud){.qkey = 0x11111111 + off_by(in), .dgid = {input_u8(in)}};
		if (ud.dgid[0] >= 128) { /* RoCE over IPv4 */
			ud.dgid[0] = 0;
			ud.dgid[10] = ud.dgid[11] = 0xff;
			memcpy(ud.sgid, ud.dgid, sizeof(ud.sgid));
		} else if (ud.dgid[0] >= 120) { /* a group: the QP's, or another */
			uint8_t other = ud.dgid[0] == 120;

			memcpy(ud.dgid, victim_group, sizeof(ud.dgid));
			ud.dgid[15] += other;
			h->dst = WIRE_MULTICAST_QPN;
		}
		memcpy(payload, &ud, sizeof(ud));
		n = h->length < 4096 ? h->length : 4096;
		return n + (uint32_t)sizeof(ud);
	case REC_SEND:
		if (victim.tagged && qp == QP_RC_SRQ)
			tagged_message(in, payload);
		break;
	case REC_SEND_DATA:
		if (aim_at_pull(in, qp, h))
			break;
		/* fall through */
	case REC_READ_DATA:
		h->imm = input_u8(in) & 1 ? h->imm * RING_PAYLOAD_MAX : input_u32(in);
		break;
	default:
		break;
	}
	return h->length < RING_PAYLOAD_MAX ? h->length : RING_PAYLOAD_MAX;
}

void act_record(struct input *in)
{
	unsigned int qp = input_u8(in) % QPS;
	uint8_t payload[RING_PAYLOAD_MAX] = {0};
	struct ring_header h = head_for(in, qp);
	uint32_t size = fill_payload(in, qp, &h, payload);
	uint8_t spoil = input_u8(in);

	if (spoil >= 224) { /* as much as the header says, or not */
		h.length = input_u32(in);
		size = spoil == 255 ? 0 : size;
	}
	if (!victim.memory)
		return;
	put(&h, payload, size);
	if (spoil == 254) /* an impossible length of the record */
		((struct ring_header *)ring_at(victim.tx.slots,
					       victim.tx.pos - ring_slots_for(size)))
			->slots = (uint16_t)input_u32(in);
	if (input_u8(in) & 1)
		completions_take();
}

void act_raw(struct input *in)
{
	uint8_t bytes[64], n = input_u8(in) % sizeof(bytes), where = input_u8(in);
	uint32_t at = input_u32(in);

	input_bytes(in, bytes, sizeof(bytes) < n ? sizeof(bytes) : n);
	/* Near the ring's next position, the counters, or anywhere. */
	if (where < 128)
		at = (uint32_t)(ring_at(victim.tx.slots, victim.tx.pos) -
				(uint8_t *)victim.memory) +
		     at % 256;
	else if (where < 192)
		at %= sizeof(victim.memory->ctl);
	at %= (uint32_t)LINK_SIZE - n;
	memcpy((uint8_t *)victim.memory + at, bytes, n);
}

void act_consume(struct input *in)
{
	atomic_store(&victim.memory->ctl[0].consumed, victim.link->tx.pos + off_by(in));
	atomic_store(&victim.memory->ctl[1].want_space, input_u8(in) & 1);
}

/* Answers the victim's record, as a correct peer would, or nearly so. */
static void serve_one(struct input *in, const struct ring_header *asked)
{
	struct ring_header h = {.dst = asked->src,
				.src = asked->dst,
				.msn = asked->msn + off_by(in),
				.ack = asked->msn,
				.flags = REC_LAST};
	uint8_t payload[RING_PAYLOAD_MAX] = {0};

	switch (asked->kind) {
	case REC_READ_REQ:
		h.kind = REC_READ_DATA;
		h.length = asked->length < RING_PAYLOAD_MAX ? asked->length : RING_PAYLOAD_MAX;
		break;
	case REC_ATOMIC_REQ:
		h.kind = REC_ATOMIC_RESP;
		h.length = 8;
		break;
	case REC_SEND_REF:
		h.kind = input_u8(in) & 1 ? REC_PULL : REC_ACK;
		break;
	case REC_PULL:
		h.kind = REC_SEND_DATA;
		for (unsigned int i = 0; i < QPS; i++)
			if (victim.qp[i]->ibv.qp_num == record_qpn(asked->src))
				aim_at_pull(in, i, &h);
		break;
	case REC_SEND:
	case REC_WRITE_IMM:
	case REC_WRITE_DATA:
		h.kind = REC_ACK;
		h.flags = REC_ACKS;
		h.ack = asked->msn + 1;
		break;
	default:
		return;
	}
	put(&h, payload, h.length);
}

void act_serve(struct input *in)
{
	struct ring_header h;
	uint32_t room;
	int error = 0;

	for (int i = 0; i < 64 && ring_peek(&victim.rx, &h, &room, &error); i++) {
		serve_one(in, &h);
		ring_pop(&victim.rx, &h);
	}
	ring_publish(&victim.rx);
}

/* ------------------------------------------------------------------ the table */

void act_table_qp(struct input *in)
{
	uint8_t index = input_u8(in), how = input_u8(in);
	struct pub_qp *e = &victim.table->qp[index % (TABLE_QPS + 1)];

	if (how < 64 && index % QPS == index) {
		peer_publish(index);
		return;
	}
	if (how < 160) {
		uint64_t word = atomic_load(&e->state);

		word = (word & ~0xffull) | input_u8(in) % 9;
		if (how >= 128) /* what it lets others do */
			word ^= (uint64_t)(input_u8(in) % 16) << 16;
		atomic_store(&e->state, word + ((uint64_t)off_by(in) << 32));
		return;
	}
	atomic_store(&e->state, input_u64(in));
	atomic_store(&e->peer, how & 1 ? victim.qp[index % QPS]->ibv.qp_num : input_u64(in));
	atomic_store(&e->pd, how & 2 ? 7 : input_u32(in));
	atomic_store(&e->rq_psn, how & 4 ? 0 : input_u32(in));
}

void act_table_mr(struct input *in)
{
	uint8_t index = input_u8(in) % (TABLE_MRS + 1), how = input_u8(in);
	struct pub_mr *e = &victim.regions->mr[index];
	uint32_t rkey = (uint32_t)index << LIMIT_KEY_TAG_BITS | 1;

	atomic_store(&e->start, how & 1 ? PEER_BASE : input_u64(in));
	atomic_store(&e->length, how & 2 ? length(in) : input_u64(in));
	atomic_store(&e->offset, how & 4 ? 0 : input_u64(in));
	atomic_store(&e->pd, how & 8 ? 7 : input_u32(in));
	atomic_store(&e->rkey_access,
		     how & 16 ? rkey | (uint64_t)input_u8(in) << 32 : input_u64(in));
}

void act_table_raw(struct input *in)
{
	uint8_t bytes[32], n = input_u8(in) % sizeof(bytes);
	uint32_t at = input_u32(in);

	input_bytes(in, bytes, n);
	if (at & 1)
		memcpy((uint8_t *)&victim.table->qp + at / 2 % (TABLE_QPS * sizeof(struct pub_qp)),
		       bytes, n);
	else
		memcpy((uint8_t *)&victim.regions->mr +
			       at / 2 % (TABLE_MRS * sizeof(struct pub_mr)),
		       bytes, n);
}

void act_header(struct input *in)
{
	uint8_t what = input_u8(in);
	struct pub_header *h = &victim.table->header;

	if (what < 64) {
		atomic_store(&h->asleep, what & 1);
		atomic_store(&h->armed_cqs, what >> 1 & 1);
		atomic_store(&h->armed[0], what >> 2 & 1);
	} else if (what < 128) /* names one of the victim's regions, as seen by the victim */
		atomic_store(&victim.regions->hazard[what % PUB_HAZARDS].target,
			     (uint64_t)FAKE_SLOT << 32 |
				     (victim.mr[input_u8(in) % REGIONS].ibv.rkey + off_by(in)));
	else if (what < 160)
		atomic_store(&victim.regions->hazard[what % PUB_HAZARDS].target, input_u64(in));
	else if (what < 176)
		victim.vm_mode = input_u8(in);
	else if (what < 192)
		fake_daemon.peer_state = "RSDTZ"[input_u8(in) % 6];
	else if (what < 208)
		h->magic = input_u64(in);
	else if (what < 216)
		h->version = input_u32(in);
	else
		input_bytes(in, (uint8_t *)victim.regions + what % 32, 8);
}

/* ------------------------------------------------------------------ the victim's program */

int fill_sges(struct input *in, struct ibv_sge *sge, unsigned int usual)
{
	int n = input_u8(in) % 4;

	for (int i = 0; i < n; i++) {
		uint8_t b = input_u8(in);
		unsigned int region = b < 192 ? usual : b % REGIONS;

		sge[i] = (struct ibv_sge){.addr = victim_address(in, region),
					  .length = length(in),
					  .lkey = victim.mr[region].ibv.lkey + off_by(in)};
	}
	return n;
}

void act_post_recv(struct input *in)
{
	unsigned int qp = input_u8(in) % (QPS + 1);
	struct ibv_sge sge[4];
	struct ibv_recv_wr wr = {.wr_id = victim.posted + 1, .sg_list = sge}, *bad;

	wr.num_sge = fill_sges(in, sge, REGION_LOCAL);
	if (victim.posted >= 60000)
		return;
	int err = qp == QPS ? srq_post(victim.srq, &wr, &bad)
			    : rq_post(&victim.qp[qp]->ibv, &wr, &bad);

	victim.posted += !err;
}

void act_post_send(struct input *in)
{
	struct qp *qp = victim.qp[input_u8(in) % QPS];
	uint8_t op = input_u8(in) % 7;
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.wr_id = victim.posted + 1,
				 .sg_list = sge,
				 .opcode = (enum ibv_wr_opcode)op,
				 .send_flags = input_u8(in) & 0xf},
			   *bad;
	uint64_t address = peer_address(in);
	uint32_t rkey =
		0x101 + (input_u8(in) % 4 ? 0 : input_u8(in) % TABLE_MRS * 256) + off_by(in);

	wr.num_sge = fill_sges(in, sge, REGION_LOCAL);
	if (wr.send_flags & IBV_SEND_INLINE) /* the program's own addresses must be right */
		for (int i = 0; i < wr.num_sge; i++)
			sge[i] = (struct ibv_sge){.addr = (uintptr_t)region_at(REGION_LOCAL),
						  .length = sge[i].length % 64};
	if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = rkey;
		wr.num_sge = 1;
		sge[0] = (struct ibv_sge){.addr = victim.mr[REGION_LOCAL].iova,
					  .length = 8,
					  .lkey = victim.mr[REGION_LOCAL].ibv.lkey};
	} else if (qp->type != IBV_QPT_UD) {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = rkey;
	}
	if (qp->type == IBV_QPT_UD) {
		wr.wr.ud.ah = &victim.ah.ibv;
		wr.wr.ud.remote_qpn = peer_qpn(QP_UD) + off_by(in);
		wr.wr.ud.remote_qkey = 0x11111111;
	}
	if (victim.posted >= 60000)
		return;
	/* Requests before *bad are posted; one that completes at once counts as posted, too. */
	victim.posted++;
	if (sq_post(&qp->ibv, &wr, &bad))
		victim.posted--;
}

void act_poll(struct input *in)
{
	for (unsigned int n = input_u8(in) % 16 + 1; n; n--)
		completions_take();
}

void act_round(struct input *in)
{
	(void)in;
	engine_round(victim.hca, &victim.seen);
	mapped_serve(victim.hca); /* the control thread's */
}

void act_time(struct input *in)
{
	victim.now += 1ull << input_u8(in) % 37;
	engine_round(victim.hca, &victim.seen);
}

void act_modify(struct input *in)
{
	unsigned int index = input_u8(in) % QPS;
	uint8_t b = input_u8(in);
	struct ibv_qp_attr attr = {.qp_state = b % (IBV_QPS_ERR + 1)};

	qp_modify(&victim.qp[index]->ibv, &attr, IBV_QP_STATE);
	if (attr.qp_state == IBV_QPS_RESET)
		qp_connect(index, b < 192 ? IBV_QPS_RTS : IBV_QPS_RTR);
}

void act_region(struct input *in)
{
	unsigned int region = input_u8(in) % REGIONS;

	if (victim.registered[region])
		region_deregister(region);
	else
		region_register(region);
}

void act_link(struct input *in)
{
	uint8_t how = input_u8(in);

	victim.can_vm = how & 1;
	if (how & 8)
		victim.vm_mode = how >> 4;
	if (how & 2)
		link_end();
	if (how & 4)
		link_make();
}
