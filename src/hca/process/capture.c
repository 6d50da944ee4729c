/* SPDX-License-Identifier: BSD-2-Clause */
/* Captures of this process. See capture.h. */
#include "hca/process/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "hca/exec/datagram_fabric.h"
#include "hca/fabric/crossing.h"
#include "hca/fabric/membership.h"
#include "hca/mem/copy.h"
#include "hca/mem/hazard.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/roce/roce.h"
#include "hca/verbs/qp.h"
#include "net/tap.h"
#include "shm/bell.h"
#include "shm/tap.h"
#include "wire/ether.h"
#include "wire/flow.h"
#include "wire/frame.h"
#include "wire/lrh.h"

enum { RINGS_MAX = 8 }; /* concurrent captures; the daemon begins no more */

struct capture_ring {
	struct tap_writer writer;
	int bell;
	uint64_t id;
	uint32_t port; /* row + 1 of the port of a fabric that is captured; 0: all traffic is */
};

/* Made with the first capture, and never freed: a thread that has loaded hca.capture may still use
 * it. */
struct capture {
	struct net_tap net;
	struct hca *hca;
	struct lock lock;
	struct capture_ring ring[RINGS_MAX];
	unsigned int rings;
	uint8_t packet[WIRE_PACKET_MAX], frame[FRAME_MAX], ether[LIMIT_FRAME];
	uint8_t link[LRH_PACKET_MAX];
};

_Static_assert(FRAME_MAX <= TAP_PACKET_MAX && LIMIT_FRAME <= TAP_PACKET_MAX &&
		       LRH_PACKET_MAX <= TAP_PACKET_MAX,
	       "every packet has a place in a ring");

/* ------------------------------------------------------------------ writing to the rings */

static void capture_put_to(struct capture_ring *ring, const struct tap_packet *packet)
{
	int err = tap_write(&ring->writer, packet) ? bell_ring(ring->bell) : 0;

	if (err)
		log_debug("capture's bell: %s", strerror(-err));
}

/* To all rings but those of a fabric's port. */
static void capture_put_packet(struct capture *c, const struct tap_packet *packet)
{
	for (unsigned int i = 0; i < c->rings; i++)
		if (!c->ring[i].port)
			capture_put_to(&c->ring[i], packet);
}

/* Writes a packet to these rings. Its first `captured` bytes are in c->frame. */
static void capture_put(struct capture *c, uint64_t time_ns, size_t captured, size_t size, bool out,
			const char *comment)
{
	capture_put_packet(c, &(struct tap_packet){
				      .time_ns = time_ns,
				      .bytes = c->frame,
				      .captured = (uint32_t)captured,
				      .size = (uint32_t)size,
				      .direction = out ? TAP_OUT : TAP_IN,
				      .comment = comment,
			      });
}

/* ------------------------------------------------------------------ RoCE packets */

static void on_seen(const struct net_tap *tap, const struct net_seen *seen)
{
	struct capture *c = container_of(tap, struct capture, net);
	uint32_t kept = seen->size < WIRE_PACKET_MAX ? seen->size : WIRE_PACKET_MAX;
	char comment[TAP_COMMENT_MAX];

	if (seen->dropped)
		snprintf(comment, sizeof(comment), "dropped: %s", seen->dropped);
	lock_take(&c->lock);
	size_t size = frame_wrap(c->frame, seen->path, &seen->ip, seen->bytes, kept);

	capture_put(c, seen->time_ns, size, size + seen->size - kept, seen->out,
		    seen->dropped ? comment : NULL);
	lock_give(&c->lock);
}

/* ------------------------------------------------------------------ local packets */

/* The parts that all packets of one message have in common. */
struct message {
	struct capture *c;
	struct icrc_path path; /* of the packets */
	struct frame_ip ip;
	bool out;
	struct iovec local[LIMIT_SGE];
	int count; /* segments of `local`; negative: the memory can't be read */
	/* On a fabric. */
	bool has_link;
	struct route_query query; /* which way the packets go */
	struct lrh_fields link;
	uint8_t grh[GRH_SIZE];
	struct crossing at[RINGS_MAX]; /* the port of each ring */
};

/* The packet of `size` bytes in c->packet, to the rings of ports that it crosses. */
static void capture_show_link(struct message *m, size_t size)
{
	struct capture *c = m->c;

	for (unsigned int i = 0; i < c->rings; i++) {
		if (!m->at[i].is_there)
			continue;
		m->link.vl = m->at[i].vl;
		size_t bytes = lrh_wrap(c->link, &m->link, c->packet, size);

		capture_put_to(&c->ring[i], &(struct tap_packet){
						    .time_ns = net_tap_time(&c->net),
						    .bytes = c->link,
						    .captured = (uint32_t)bytes,
						    .size = (uint32_t)bytes,
						    .direction = m->at[i].is_out ? TAP_OUT : TAP_IN,
						    .kind = TAP_LINK,
					    });
	}
}

/* Shows one packet, whose payload begins at byte `offset` of the message's segments. */
static void capture_show(struct message *m, struct packet *packet, uint32_t offset)
{
	struct capture *c = m->c;

	if (m->has_link)
		packet->pkey = m->query.pkey;
	uint32_t headers = packet_encode(packet, c->packet);
	uint32_t padding = packet_padding(packet->length);

	if (packet->length && (m->count < 0 || !copy_gather(c->packet + headers, m->local, m->count,
							    offset, packet->length)))
		return; /* the program has unmapped the memory meanwhile */
	memset(c->packet + headers + packet->length, 0, padding);
	if (m->has_link)
		capture_show_link(m, headers + packet->length + padding);
	size_t size = frame_make(c->frame, &m->path, &m->ip, c->packet,
				 headers + packet->length + padding);

	capture_put(c, net_tap_time(&c->net), size, size, m->out, "local");
}

static void message_set_path(struct message *m, const uint8_t *source, const uint8_t *destination,
			     uint32_t flow_label, uint32_t source_qpn, uint32_t destination_qpn)
{
	uint32_t label = flow_label ? flow_label : flow_label_of_qps(source_qpn, destination_qpn);

	memcpy(m->path.source, source, 16);
	memcpy(m->path.destination, destination, 16);
	m->path.source_port = flow_source_port(label);
	m->path.destination_port = WIRE_PORT;
}

/* ---- on a fabric: its packets as a link has them */

static void message_set_grh(struct message *m, const uint8_t sgid[16], const uint8_t dgid[16],
			    const struct ibv_global_route *grh)
{
	m->grh[0] = grh->traffic_class >> 4;
	m->grh[1] = (uint8_t)(grh->traffic_class << 4 | (grh->flow_label >> 16 & 15));
	m->grh[2] = (uint8_t)(grh->flow_label >> 8);
	m->grh[3] = (uint8_t)grh->flow_label;
	m->grh[7] = grh->hop_limit;
	memcpy(m->grh + 8, sgid, 16);
	memcpy(m->grh + 24, dgid, 16);
	m->link.grh = m->grh;
}

/* m->query and the link's header are filled in but for the lane. */
static void message_find_ports(struct message *m, const struct fabric *tables)
{
	const struct capture *c = m->c;

	m->has_link = true;
	for (unsigned int i = 0; i < c->rings; i++)
		if (c->ring[i].port && c->ring[i].port <= tables->header->ports)
			m->at[i] = crossing_find(tables, &m->query, c->ring[i].port - 1);
}

/* Of a connected QP: its requests' packets (m->out), or their answers'. */
static void message_set_link(struct message *m, struct qp *qp, struct capture_way way)
	REQUIRES(qp->lock)
{
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	const struct fabric *tables;
	uint8_t gid[2][16];
	bool is_global;

	if (!way.path || !way.peer ||
	    !path_query_of(way.path, way.peer, !m->out, ah->src_path_bits, &m->query,
			   &m->link.source, &is_global))
		return;
	tables = &qp->hca->membership->node->tables;
	m->link.destination = m->query.destination;
	m->link.sl = m->query.sl;
	if (is_global) {
		uint32_t to = fabric_lid_find(tables, m->query.destination);

		fabric_gid_get(tables, m->query.port, 0, gid[0]);
		fabric_gid_get(tables, to != FABRIC_NONE ? to : m->query.port, 0, gid[1]);
		message_set_grh(m, gid[0], m->out ? ah->grh.dgid.raw : gid[1], &ah->grh);
	}
	message_find_ports(m, tables);
}

static void datagram_set_link(struct message *m, const struct qp *qp, const struct send_wqe *wqe)
	REQUIRES(qp->lock)
{
	const struct node *node = qp->hca->membership->node;
	const struct way_address address = datagram_way(qp, wqe);
	const struct record_ud *to = &wqe->ud.to;
	const struct ibv_global_route grh = {.flow_label = to->flow_label,
					     .hop_limit = to->hop_limit,
					     .traffic_class = to->traffic_class};

	m->query = (struct route_query){.port = node_port_row(node, address.port),
					.destination = address.lid,
					.sl = address.sl,
					.pkey = to->pkey};
	m->link = (struct lrh_fields){
		.source = to->slid, .destination = address.lid, .sl = address.sl};
	if (to->lid_flags & RECORD_UD_GRH)
		message_set_grh(m, to->sgid, to->dgid, &grh);
	if (m->query.port != FABRIC_NONE)
		message_find_ports(m, &node->tables);
}

/* Prepares a message of a connected QP: its requests (`out`), or the answers to them. */
static void message_init(struct message *m, struct qp *qp, const struct send_wqe *wqe, bool out,
			 const struct hazard_scope *holds, struct capture_way way)
	REQUIRES(qp->lock)
{
	const struct ibv_global_route *grh = &qp->attr.ah_attr.grh;
	uint32_t here = qp->ibv.qp_num, there = qp->attr.dest_qp_num;

	m->out = out;
	m->ip = (struct frame_ip){.traffic_class = grh->traffic_class,
				  .hop_limit = ip_hop_limit(grh->hop_limit)};
	if (out)
		message_set_path(m, qp->sgid, grh->dgid.raw, grh->flow_label, here, there);
	else
		message_set_path(m, grh->dgid.raw, qp->sgid, 0, there, here);
	m->count = sq_segments(qp, wqe, 0, m->local, holds);
	message_set_link(m, qp, way);
}

/* Returns the capture, locked, or NULL if it has just ended. Not analysed, nor are the hooks below,
 * which give the lock back through a structure. */
static struct capture *capture_enter(struct hca *hca) NO_THREAD_SAFETY_ANALYSIS
{
	struct capture *c = atomic_load_explicit(&hca->capture, memory_order_acquire);

	if (c)
		lock_take(&c->lock);
	return c;
}

/* The packets' opcodes of one message: of its first packet, of those in the middle, of the last
 * one, and of a packet that is first and last. */
struct operations {
	uint8_t first, middle, last, only;
};

static const struct operations send_operations = {OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST,
						  OP_SEND_ONLY};
static const struct operations send_imm_operations = {OP_SEND_FIRST, OP_SEND_MIDDLE,
						      OP_SEND_LAST_IMM, OP_SEND_ONLY_IMM};
static const struct operations send_inv_operations = {
	OP_SEND_FIRST, OP_SEND_MIDDLE, OP_SEND_LAST_INVALIDATE, OP_SEND_ONLY_INVALIDATE};
static const struct operations write_operations = {OP_WRITE_FIRST, OP_WRITE_MIDDLE, OP_WRITE_LAST,
						   OP_WRITE_ONLY};
static const struct operations write_imm_operations = {OP_WRITE_FIRST, OP_WRITE_MIDDLE,
						       OP_WRITE_LAST_IMM, OP_WRITE_ONLY_IMM};
static const struct operations read_operations = {OP_READ_RESPONSE_FIRST, OP_READ_RESPONSE_MIDDLE,
						  OP_READ_RESPONSE_LAST, OP_READ_RESPONSE_ONLY};

/* Shows `length` bytes in packets of the path MTU, from PSN packet->psn on. */
static void show_pieces(struct message *m, struct packet *packet, const struct operations *as,
			uint32_t length, uint32_t mtu)
{
	uint8_t transport = packet_transport(packet->opcode);
	bool solicited = packet->solicited, asks = packet->ack_request;
	uint32_t offset = 0;

	do {
		uint32_t left = length - offset;
		bool first = !offset, last = left <= mtu;

		packet->opcode = transport | (first && last ? as->only
					      : first	    ? as->first
					      : last	    ? as->last
							    : as->middle);
		packet->length = last ? left : mtu;
		packet->solicited = last && solicited;
		packet->ack_request = last && asks;
		capture_show(m, packet, offset);
		packet->psn = (packet->psn + 1) & 0xffffff;
		offset += packet->length;
	} while (offset < length);
}

static uint32_t mtu_of(const struct qp *qp) REQUIRES(qp->lock)
{
	return 1u << sq_mtu_shift(qp);
}

static void show_read_request(struct message *m, struct packet *packet, const struct send_wqe *wqe)
{
	packet->opcode |= OP_READ_REQUEST;
	packet->dma_length = wqe->length;
	capture_show(m, packet, 0);
}

static void show_atomic_request(struct message *m, struct packet *packet,
				const struct send_wqe *wqe)
{
	bool swap = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	packet->opcode |= swap ? OP_COMPARE_SWAP : OP_FETCH_ADD;
	packet->swap_add = swap ? wqe->atomic.swap : wqe->atomic.compare_add;
	packet->compare = swap ? wqe->atomic.compare_add : 0;
	capture_show(m, packet, 0);
}

static void show_flush_request(struct message *m, struct packet *packet, const struct send_wqe *wqe)
{
	packet->opcode |= OP_FLUSH;
	packet->feth = (uint8_t)wqe->atomic.swap;
	packet->dma_length = (uint32_t)wqe->atomic.compare_add;
	capture_show(m, packet, 0);
}

static uint8_t capture_transport(const struct qp *qp)
{
	return qp->type == IBV_QPT_RC ? PACKET_RC : qp->type == IBV_QPT_UC ? PACKET_UC : PACKET_XRC;
}

void capture_show_request(struct qp *qp, const struct send_wqe *wqe,
			  struct capture_way way) NO_THREAD_SAFETY_ANALYSIS
{
	HAZARD_SCOPE(holds, qp);
	struct message m = {.c = capture_enter(qp->hca)};
	struct packet packet = {
		.opcode = capture_transport(qp),
		.solicited = wqe->flags & SEND_SOLICITED,
		.ack_request = qp_is_reliable(qp),
		.pkey = WIRE_PKEY,
		.dest_qpn = qp->attr.dest_qp_num,
		.psn = wqe->psn,
		.srqn = wqe->srqn,
		.addr = wqe->remote_addr,
		.rkey = wqe->rkey,
		.dma_length = wqe->length,
		.imm = wqe->imm,
	};

	if (!m.c)
		return;
	message_init(&m, qp, wqe, true, &holds, way);
	switch (wqe->opcode) {
	case IBV_WR_RDMA_READ:
		show_read_request(&m, &packet, wqe);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		show_atomic_request(&m, &packet, wqe);
		break;
	case IBV_WR_ATOMIC_WRITE:
		packet.opcode |= OP_ATOMIC_WRITE;
		packet.length = wqe->length;
		capture_show(&m, &packet, 0);
		break;
	case IBV_WR_FLUSH:
		show_flush_request(&m, &packet, wqe);
		break;
	case IBV_WR_RDMA_WRITE:
		show_pieces(&m, &packet, &write_operations, wqe->length, mtu_of(qp));
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		show_pieces(&m, &packet, &write_imm_operations, wqe->length, mtu_of(qp));
		break;
	case IBV_WR_SEND_WITH_IMM:
		show_pieces(&m, &packet, &send_imm_operations, wqe->length, mtu_of(qp));
		break;
	case IBV_WR_SEND_WITH_INV:
		show_pieces(&m, &packet, &send_inv_operations, wqe->length, mtu_of(qp));
		break;
	default:
		show_pieces(&m, &packet, &send_operations, wqe->length, mtu_of(qp));
	}
	lock_give(&m.c->lock);
}

/* The AETH syndrome that leads to this completion at the requester; negative: there was no
 * answer. */
static int syndrome_of(enum ibv_wc_status status, uint8_t rnr_timer)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return AETH_ACK | AETH_NO_CREDITS;
	case IBV_WC_REM_INV_REQ_ERR:
		return AETH_NAK | NAK_INVALID_REQUEST;
	case IBV_WC_REM_ACCESS_ERR:
		return AETH_NAK | NAK_REMOTE_ACCESS;
	case IBV_WC_REM_OP_ERR:
		return AETH_NAK | NAK_REMOTE_OPERATION;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return AETH_RNR_NAK | (rnr_timer & AETH_VALUE);
	default:
		return -1;
	}
}

static void show_atomic_answer(struct message *m, struct packet *packet)
{
	uint64_t original;

	if (m->count < 0 || !copy_gather(&original, m->local, m->count, 0, sizeof(original)))
		return;
	packet->opcode = packet_transport(packet->opcode) | OP_ATOMIC_ACKNOWLEDGE;
	packet->original = original;
	capture_show(m, packet, 0);
}

static void show_answer(struct qp *qp, const struct send_wqe *wqe, struct capture_way way,
			uint32_t msn, int syndrome) NO_THREAD_SAFETY_ANALYSIS
{
	HAZARD_SCOPE(holds, qp);
	struct message m = {.c = capture_enter(qp->hca)};
	uint32_t last = (wqe->psn + sq_packets(qp, wqe) - 1) & 0xffffff;
	bool good = (syndrome & AETH_KIND) == AETH_ACK;
	struct packet packet = {
		.opcode = capture_transport(qp) | OP_ACKNOWLEDGE,
		.pkey = WIRE_PKEY,
		.dest_qpn = qp->ibv.qp_num,
		.psn = good ? last : wqe->psn,
		.syndrome = (uint8_t)syndrome,
		.msn = msn & 0xffffff,
	};

	if (!m.c)
		return;
	message_init(&m, qp, wqe, false, &holds, way);
	if (good && wqe->opcode == IBV_WR_RDMA_READ) {
		packet.psn = wqe->psn;
		show_pieces(&m, &packet, &read_operations, wqe->length, mtu_of(qp));
	} else if (good && (wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			    wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)) {
		show_atomic_answer(&m, &packet);
	} else {
		if (good && (wqe->opcode == IBV_WR_ATOMIC_WRITE || wqe->opcode == IBV_WR_FLUSH))
			packet.opcode = capture_transport(qp) | OP_READ_RESPONSE_ONLY;
		capture_show(&m, &packet, 0);
	}
	lock_give(&m.c->lock);
}

void capture_show_answer(struct qp *qp, const struct send_wqe *wqe, struct capture_way way,
			 uint32_t msn, enum ibv_wc_status status, uint8_t rnr_timer)
{
	int syndrome = syndrome_of(status, rnr_timer);

	if (qp_is_reliable(qp) && syndrome >= 0)
		show_answer(qp, wqe, way, status == IBV_WC_SUCCESS ? msn : msn - 1, syndrome);
}

void capture_show_rnr(struct qp *qp, const struct send_wqe *wqe, struct capture_way way,
		      uint32_t msn, uint8_t rnr_timer)
{
	show_answer(qp, wqe, way, msn, AETH_RNR_NAK | (rnr_timer & AETH_VALUE));
}

void capture_show_datagram(struct qp *qp, const struct send_wqe *wqe) NO_THREAD_SAFETY_ANALYSIS
{
	HAZARD_SCOPE(holds, qp);
	const struct record_ud *to = &wqe->ud.to;
	struct message m = {.c = capture_enter(qp->hca), .out = true};
	struct packet packet = roce_datagram_packet(qp, wqe);

	if (!m.c)
		return;
	m.ip = (struct frame_ip){.traffic_class = to->traffic_class,
				 .hop_limit = ip_hop_limit(to->hop_limit)};
	message_set_path(&m, to->sgid, to->dgid, to->flow_label, qp->ibv.qp_num,
			 wqe->ud.remote_qpn);
	m.count = sq_segments(qp, wqe, 0, m.local, &holds);
	if (qp->hca->membership)
		datagram_set_link(&m, qp, wqe);
	capture_show(&m, &packet, 0);
	lock_give(&m.c->lock);
}

/* ------------------------------------------------------------------ frames */

static void capture_put_frame(struct capture *c, uint32_t device, const uint8_t *frame,
			      uint32_t length, enum tap_direction direction, const char *comment)
{
	capture_put_packet(c, &(struct tap_packet){
				      .time_ns = net_tap_time(&c->net),
				      .bytes = frame,
				      .captured = length,
				      .size = length,
				      .direction = direction,
				      .comment = comment,
				      .kind = TAP_FRAME,
				      .device = (uint8_t)device,
			      });
}

void capture_show_frame(struct qp *qp, const struct send_wqe *wqe, const struct iovec *local,
			int count, bool leaves)
{
	struct capture *c = atomic_load_explicit(&qp->hca->capture, memory_order_acquire);

	if (!c)
		return;
	lock_take(&c->lock);
	if (wqe->length <= sizeof(c->ether) &&
	    copy_gather(c->ether, local, count, 0, wqe->length)) {
		if (wqe->flags & SEND_CHECKSUMS)
			ether_checksums_fill(c->ether, wqe->length);
		capture_put_frame(c, qp->context->device_index, c->ether, wqe->length, TAP_OUT,
				  leaves ? NULL : "local");
	}
	lock_give(&c->lock);
}

void capture_show_frame_came(struct hca *hca, uint32_t device, const uint8_t *frame,
			     uint32_t length)
{
	struct capture *c = atomic_load_explicit(&hca->capture, memory_order_acquire);

	if (!c)
		return;
	lock_take(&c->lock);
	capture_put_frame(c, device, frame, length, TAP_IN, NULL);
	lock_give(&c->lock);
}

/* ------------------------------------------------------------------ adding, removing rings */

static struct capture *capture_make(struct hca *hca)
{
	struct capture *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->hca = hca;
	c->net.seen = on_seen;
	lock_init(&c->lock, RANK_CAPTURE);
	return c;
}

static void switch_on(struct hca *hca, struct capture *c)
{
	if (hca->roce) {
		if (c)
			roce_hear_class(hca->roce);
		atomic_store(&hca->roce->tx.tap, c ? &c->net : NULL);
		atomic_store(&hca->roce->rx.tap, c ? &c->net : NULL);
	}
	atomic_store(&hca->capture, c);
}

/* Maps a ring whose pages all exist from now on: writing to it can't fail for want of memory. */
static struct tap_memory *ring_map(int fd)
{
	if (sys_fallocate(fd, 0, 0, TAP_SIZE) < 0)
		return NULL;
	void *at = mmap(NULL, TAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static bool ring_add(struct capture *c, const struct proto_event *event, int *fds)
{
	struct tap_memory *memory = fds[0] < 0 || fds[1] < 0 ? NULL : ring_map(fds[0]);
	bool room = false;

	if (!memory)
		return false;
	lock_take(&c->lock);
	room = c->rings < RINGS_MAX;
	if (room) {
		struct capture_ring *ring = &c->ring[c->rings++];

		tap_writer_init(&ring->writer, memory, event->value);
		ring->id = event->link_id;
		ring->port = event->port;
		ring->bell = fds[1];
		fds[1] = -1;
		switch_on(c->hca, c);
	}
	lock_give(&c->lock);
	if (!room)
		munmap(memory, TAP_SIZE);
	return room;
}

void capture_begin(struct hca *hca, const struct proto_event *event, int *fds)
{
	struct capture *c = atomic_load(&hca->captures);

	if (!c)
		atomic_store(&hca->captures, c = capture_make(hca));
	if (!c || !ring_add(c, event, fds))
		log_warn("this process can't be captured: %s", strerror(errno));
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
}

static void ring_drop(struct capture *c, unsigned int i)
{
	munmap(c->ring[i].writer.memory, TAP_SIZE);
	sys_close(c->ring[i].bell);
	c->ring[i] = c->ring[--c->rings];
}

/* Ends the capture *id; `id` NULL: all captures. */
static void capture_end_ring(struct hca *hca, const uint64_t *id)
{
	struct capture *c = atomic_load(&hca->captures);

	if (!c)
		return;
	lock_take(&c->lock);
	for (unsigned int i = 0; i < c->rings; i++)
		if (!id || c->ring[i].id == *id)
			ring_drop(c, i--);
	if (!c->rings)
		switch_on(hca, NULL);
	lock_give(&c->lock);
}

void capture_end(struct hca *hca, uint64_t id)
{
	capture_end_ring(hca, &id);
}

void capture_end_all(struct hca *hca)
{
	capture_end_ring(hca, NULL);
}

void capture_leave(struct hca *hca)
{
	struct capture *c = atomic_load(&hca->captures);

	if (!c)
		return;
	lock_init(&c->lock, RANK_CAPTURE);
	capture_end_all(hca);
}
