/* SPDX-License-Identifier: BSD-2-Clause */
/* See path.h. */
#include "hca/fabric/path.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "fabric/internal.h"
#include "fabric/port_info.h"

/* Bytes of headers, and of what follows the payload. */
enum {
	LRH_BTH_ICRC = 8 + 12 + 4,
	BYTES_GRH = 40,
	BYTES_RETH = 16,
	BYTES_ATOMIC = 28,
	BYTES_ATOMIC_ANSWER = 8,
	BYTES_IMM = 4, /* or a key to invalidate */
	BYTES_AETH = 4,
	BYTES_XRC = 4, /* of each request packet */
};

/* ------------------------------------------------------------------ the peer's half */

#define WORD_IS_SET (1ull << 63)
#define WORD_IS_GLOBAL (1ull << 62)
#define WORD_STATE_SHIFT 48

static uint64_t word_of(const struct ibv_ah_attr *ah, uint8_t port, uint16_t pkey_index,
			enum ibv_mig_state state)
{
	return WORD_IS_SET | (ah->is_global ? WORD_IS_GLOBAL : 0) | ah->dlid |
	       (uint64_t)(ah->sl & 15) << 16 | (uint64_t)port << 24 | (uint64_t)pkey_index << 32 |
	       (uint64_t)state << WORD_STATE_SHIFT;
}

static enum ibv_mig_state word_state(uint64_t word)
{
	return (enum ibv_mig_state)(word >> WORD_STATE_SHIFT & 3);
}

uint64_t path_word(const struct ibv_qp_attr *attr)
{
	return word_of(&attr->ah_attr, attr->ah_attr.port_num, attr->pkey_index,
		       attr->path_mig_state);
}

uint64_t path_word_alternate(const struct ibv_qp_attr *attr)
{
	if (!attr->alt_ah_attr.dlid)
		return 0;
	return word_of(&attr->alt_ah_attr, attr->alt_port_num, attr->alt_pkey_index,
		       attr->path_mig_state);
}

/* ------------------------------------------------------------------ a path's life */

struct path *path_new(struct membership *membership, uint32_t qpn, const struct ibv_qp_attr *attr)
{
	struct path *path = calloc(1, sizeof(*path));

	if (!path)
		return NULL;
	path->epoch = &membership->node->tables.header->epoch;
	path->membership = membership;
	path->qpn = qpn;
	path->dice = clock_ns() | 1;
	path_change(path, attr);
	return path;
}

struct path *path_new_xrc(struct membership *membership, uint32_t qpn,
			  const struct ibv_qp_attr *attr)
{
	struct path *path = path_new(membership, qpn, attr);

	if (path)
		path->is_xrc = true;
	return path;
}

void path_change(struct path *path, const struct ibv_qp_attr *attr)
{
	const struct ibv_ah_attr *ah = &attr->ah_attr;

	path->mtu_shift = 7 + attr->path_mtu;
	path->header = LRH_BTH_ICRC + (ah->is_global ? BYTES_GRH : 0);
	path->port = node_port_row(path->membership->node, ah->port_num);
	path->peer_qpn = attr->dest_qp_num;
	path->destination = ah->dlid;
	path->pkey_index = attr->pkey_index;
	path->sl = ah->sl & 15;
	path->is_ahead = attr->path_mig_state == IBV_MIG_MIGRATED &&
			 (path->is_ahead || path->mig_state == IBV_MIG_ARMED);
	path->mig_state = attr->path_mig_state;
	path->seen = *path->epoch - 1; /* not walked yet */
	path->tallied = 0;
}

void path_free(struct path *path)
{
	if (!path)
		return;
	flow_end(&path->membership->flows, path->there);
	flow_end(&path->membership->flows, path->back);
	flow_end(&path->membership->flows, path->dropped);
	flow_end(&path->membership->flows, path->dropped_back);
	free(path);
}

/* ------------------------------------------------------------------ walking */

static enum path_fault path_fails(struct path *path, enum path_fault fault,
				  enum route_result result, uint32_t at)
{
	path->result = result;
	path->at = at;
	return fault;
}

/* The port of the peer's process that its QP uses, or FABRIC_NONE: it isn't on this fabric. */
static uint32_t peer_port(const struct path *path, const struct pub *peer, uint64_t word)
{
	const struct fabric *tables = &path->membership->node->tables;
	uint32_t row = *(const volatile uint32_t *)&peer->header.node; /* the peer may change it */

	if (peer->header.fabric != path->membership->node->fabric || row >= tables->header->nodes ||
	    !(word & WORD_IS_SET) || tables->nodes[row].type == FABRIC_SWITCH)
		return FABRIC_NONE;
	return fabric_port_row(tables, row, word >> 24 & 0xff);
}

/* Which way the peer's answers go. A peer that hasn't learned yet that this QP has migrated will
 * have migrated when it answers. */
static uint64_t peer_word(struct path *path, const struct pub *peer)
{
	const struct pub_qp *entry = &peer->qp[path->peer_qpn & (LIMIT_QPS_PER_SLOT - 1)];
	uint64_t word = atomic_load_explicit(&entry->path, memory_order_relaxed);

	path->is_ahead &= word_state(word) != IBV_MIG_MIGRATED;
	return path->is_ahead ? atomic_load_explicit(&entry->alternate, memory_order_relaxed)
			      : word;
}

/* What takes its place for XRC, where `end` is the port that the requests come to. */
static uint64_t xrc_word(const struct path *path, uint32_t end)
{
	const struct fabric *tables = &path->membership->node->tables;
	uint16_t pkey = partition_key_get(tables, path->port, path->pkey_index);
	unsigned int index = 0;

	partition_key_matches(tables, end, pkey, &index);
	return WORD_IS_SET | (path->header > LRH_BTH_ICRC ? WORD_IS_GLOBAL : 0) |
	       port_lid(&tables->ports[path->port]) | (uint64_t)path->sl << 16 |
	       (uint64_t)tables->ports[end].number << 24 | (uint64_t)index << 32;
}

enum ibv_mig_state path_peer_state(struct path *path, const struct pub *peer)
{
	if (path->is_xrc)
		return IBV_MIG_MIGRATED;
	const struct pub_qp *entry = &peer->qp[path->peer_qpn & (LIMIT_QPS_PER_SLOT - 1)];
	enum ibv_mig_state state =
		word_state(atomic_load_explicit(&entry->path, memory_order_relaxed));

	path->is_ahead &= state != IBV_MIG_MIGRATED;
	return state;
}

bool path_meets_alternate(const struct path *path, const struct pub *peer,
			  const struct ibv_qp_attr *attr)
{
	const struct node *node = path->membership->node;
	const struct pub_qp *entry = &peer->qp[path->peer_qpn & (LIMIT_QPS_PER_SLOT - 1)];
	uint64_t word = atomic_load_explicit(&entry->path, memory_order_relaxed);
	uint32_t from = peer_port(path, peer, word), own = node_port_row(node, attr->alt_port_num);

	return from != FABRIC_NONE && own != FABRIC_NONE &&
	       port_has_lid(&node->tables.ports[from], attr->alt_ah_attr.dlid) &&
	       port_has_lid(&node->tables.ports[own], word & 0xffff);
}

static enum path_fault path_walk_back(struct path *path, uint32_t from, uint64_t word,
				      uint16_t pkey, struct fabric_route *route)
{
	const struct route_query query = {
		.port = from,
		.destination = word & 0xffff,
		.sl = word >> 16 & 15,
		.pkey = pkey,
	};

	fabric_route_find(&path->membership->node->tables, &query, route);
	membership_arm(path->membership, route);
	flow_choose(&path->membership->flows, &path->back, route, query.sl);
	path->header_back = LRH_BTH_ICRC + (word & WORD_IS_GLOBAL ? BYTES_GRH : 0);
	if (route->result != ROUTE_OK)
		return path_fails(path, PATH_NO_WAY_BACK, route->result, route->end);
	if (route->end != path->port)
		return path_fails(path, PATH_NO_WAY_BACK, ROUTE_NOT_THERE, route->end);
	return PATH_OPEN;
}

static enum path_fault path_walk(struct path *path, const struct pub *peer,
				 struct fabric_route *route)
{
	const struct fabric *tables = &path->membership->node->tables;
	uint64_t word = path->is_xrc ? 0 : peer_word(path, peer);
	struct route_query query = {
		.port = path->port,
		.destination = path->destination,
		.sl = path->sl,
		.pkey = partition_key_get(tables, path->port, path->pkey_index),
	};

	fabric_route_find(tables, &query, route);
	membership_arm(path->membership, route);
	flow_choose(&path->membership->flows, &path->there, route, path->sl);
	if (route->result != ROUTE_OK)
		return path_fails(path, PATH_NO_WAY, route->result, route->end);
	if (path->is_xrc)
		word = xrc_word(path, route->end);
	uint32_t index = word >> 32 & 0xffff;

	if (peer_port(path, peer, word) != route->end || index >= FABRIC_PKEYS)
		return path_fails(path, PATH_NOT_THERE, ROUTE_OK, route->end);
	uint16_t pkey = partition_key_get(tables, route->end, index);

	if (!pkeys_match(query.pkey, pkey))
		return path_fails(path, PATH_PKEY, ROUTE_OK, route->end);
	uint8_t mtu = route->mtu;
	uint32_t loss = node_loss(path->membership->node, route);
	bool is_slow = route->is_slow;
	enum path_fault fault = path_walk_back(path, route->end, word, pkey, route);

	path->room = (128u << (route->mtu < mtu ? route->mtu : mtu)) + 1;
	path->drop_back = node_loss(path->membership->node, route);
	path->drop_ppm = loss + path->drop_back;
	path->is_slow = is_slow || route->is_slow;
	return fault;
}

void path_renew(struct path *path, const struct pub *peer)
{
	/* [P1], pairs with [P2] */
	uint64_t epoch = __atomic_load_n(path->epoch, __ATOMIC_ACQUIRE);
	struct fabric_route route;

	if (epoch == path->seen)
		return;
	path->seen = epoch;
	path->tallied = 0;
	path->drop_ppm = path->drop_back = 0;
	path->is_slow = false;
	path->fault = path_walk(path, peer, &route);
	if (path->fault != PATH_OPEN) {
		path->room = path->drop_ppm = 0;
		path->is_slow = false;
	}
	path->room_fast = path->drop_ppm || path->is_slow ? 0 : path->room;
}

bool path_admits_slow(struct path *path, uint32_t length)
{
	path->is_dropped = false;
	if (path_packet(path, length) >= path->room)
		return false;
	path->is_dropped = node_drops(&path->dice, path->drop_ppm);
	return !path->is_dropped;
}

/* ------------------------------------------------------------------ counting */

/* Packets with `length` bytes of payload together, and `extra` bytes of further headers. */
static struct tally tally_of(const struct path *path, uint32_t header, uint32_t length,
			     uint32_t extra)
{
	uint64_t packets = 1;

	if (length >> path->mtu_shift)
		packets = ((uint64_t)length + (1u << path->mtu_shift) - 1) >> path->mtu_shift;
	return (struct tally){packets,
			      packets * (header / 4) + extra / 4 + (uint32_t)((length + 3ull) / 4)};
}

static struct tally tally_request(const struct path *path, enum ibv_wr_opcode opcode,
				  uint32_t length)
{
	uint32_t extra = 0;

	switch (opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		extra = BYTES_IMM;
		break;
	case IBV_WR_RDMA_WRITE:
		extra = BYTES_RETH;
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		extra = BYTES_RETH + BYTES_IMM;
		break;
	case IBV_WR_RDMA_READ:
		length = 0;
		extra = BYTES_RETH;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		length = 0;
		extra = BYTES_ATOMIC;
		break;
	default:
		break;
	}
	return tally_of(path, path->header + (path->is_xrc ? BYTES_XRC : 0), length, extra);
}

static struct tally tally_answer(const struct path *path, enum ibv_wr_opcode opcode,
				 uint32_t length)
{
	bool is_read = opcode == IBV_WR_RDMA_READ;
	uint32_t extra = BYTES_AETH;

	/* The first packet of a READ's answer and the last one have it. */
	if (is_read && length > 1u << path->mtu_shift)
		extra += BYTES_AETH;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		extra += BYTES_ATOMIC_ANSWER;
	return tally_of(path, path->header_back, is_read ? length : 0, extra);
}

void path_tally_slow(struct path *path, enum ibv_wr_opcode opcode, uint32_t length)
{
	path->request = tally_request(path, opcode, length);
	path->answer = tally_answer(path, opcode, length);
	path->tallied = path_tally_key(opcode, length);
}

static struct route_query path_query(const struct path *path, uint8_t mtu)
{
	return (struct route_query){
		.port = path->port,
		.destination = path->destination,
		.sl = path->sl,
		.mtu = mtu,
		.pkey = partition_key_get(&path->membership->node->tables, path->port,
					  path->pkey_index),
	};
}

bool path_query_of(struct path *path, const struct pub *peer, bool is_back, uint8_t own_bits,
		   struct route_query *query, uint16_t *source, bool *is_global)
{
	const struct fabric *tables = &path->membership->node->tables;
	const struct fabric_port *port = &tables->ports[path->port];
	struct fabric_route route;
	uint64_t word;

	*query = path_query(path, 0);
	*source = (uint16_t)(port_lid(port) | (own_bits & ((1u << port_lmc(port)) - 1)));
	*is_global = path->header > LRH_BTH_ICRC;
	if (!is_back)
		return true;
	if (path->is_xrc) {
		fabric_route_find(tables, query, &route);
		word = route.result == ROUTE_OK ? xrc_word(path, route.end) : 0;
	} else {
		word = peer_word(path, peer);
	}
	uint32_t index = word >> 32 & 0xffff;

	query->port = peer_port(path, peer, word);
	if (query->port != FABRIC_NONE && index < FABRIC_PKEYS)
		query->pkey = partition_key_get(tables, query->port, index);
	query->destination = word & 0xffff;
	query->sl = word >> 16 & 15;
	*source = path->destination;
	*is_global = word & WORD_IS_GLOBAL;
	return query->port != FABRIC_NONE;
}

/* A packet is longer than a link on the way allows: it goes as far as that link. */
static void path_count_too_long(struct path *path, const struct tally *tally)
{
	struct route_query query = path_query(path, (uint8_t)(path->mtu_shift - 7));
	struct fabric_route route;

	fabric_route_find(&path->membership->node->tables, &query, &route);
	struct proto_flow *flow = flow_take(&path->membership->flows, &route, path->sl);

	flow_count_lost(flow, tally->packets, tally->words);
	flow_end(&path->membership->flows, flow);
}

/* The first packet of a message, or the only one. */
static struct tally tally_first(const struct path *path, const struct tally *all, uint32_t header,
				uint32_t extra)
{
	if (all->packets == 1)
		return *all;
	return (struct tally){1, (header + (1u << path->mtu_shift) + extra) / 4};
}

/* One packet of the message is dropped on the way `route`; the others were counted before. */
static void dropped_count(struct path *path, struct proto_flow **flow, struct fabric_route *route,
			  uint8_t sl, const struct tally *packet)
{
	node_drop_choose(path->membership->node, &path->dice, route);
	flow_choose(&path->membership->flows, flow, route, sl);
	flow_count_lost(*flow, packet->packets, packet->words);
}

/* An answer is dropped on its way: the request came. */
static void path_count_answer_dropped(struct path *path, const struct tally *request,
				      enum ibv_wr_opcode opcode, uint32_t length)
{
	const struct fabric *tables = &path->membership->node->tables;
	struct tally answer = tally_answer(path, opcode, length);
	struct tally first = tally_first(path, &answer, path->header_back, BYTES_AETH);
	struct route_query query = path_query(path, 0);
	struct fabric_route route;

	flow_count(path->there, request->packets, request->words);
	fabric_route_find(tables, &query, &route);
	if (route.result != ROUTE_OK)
		return; /* the tables have changed meanwhile */
	query.port = route.end;
	query.destination = port_lid(&tables->ports[path->port]);
	query.sl = path->back->sl;
	fabric_route_find(tables, &query, &route);
	flow_count(path->back, answer.packets - 1, answer.words - first.words);
	dropped_count(path, &path->dropped_back, &route, query.sl, &first);
}

static void path_count_dropped(struct path *path, enum ibv_wr_opcode opcode, uint32_t length,
			       const struct tally *request)
{
	bool has_address = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct tally first = tally_first(path, request, path->header, has_address ? BYTES_RETH : 0);
	struct route_query query = path_query(path, 0);
	struct fabric_route route;

	if (node_drops_of(&path->dice, path->drop_back, path->drop_ppm)) {
		path_count_answer_dropped(path, request, opcode, length);
		return;
	}
	fabric_route_find(&path->membership->node->tables, &query, &route);
	flow_count(path->there, request->packets - 1, request->words - first.words);
	dropped_count(path, &path->dropped, &route, query.sl, &first);
}

/* The port at the end drops packets of another partition. */
static void path_report(const struct path *path)
{
	const struct fabric *tables = &path->membership->node->tables;
	struct proto_fabric_violation violation = {
		.port = path->at,
		.is_pkey = true,
		.key = partition_key_get(tables, path->port, path->pkey_index),
		.source_qp = path->qpn,
		.destination_qp = path->peer_qpn,
		.source = port_lid(&tables->ports[path->port]),
		.destination = path->destination,
		.sl = path->sl,
	};

	membership_report(path->membership, &violation);
}

void path_count_lost(struct path *path, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct tally tally = tally_request(path, opcode, length);
	uint32_t packet = path_packet(path, length);

	if (path->fault == PATH_OPEN && packet >= path->room)
		path_count_too_long(path, &tally);
	else if (path->fault == PATH_OPEN && path->is_dropped)
		path_count_dropped(path, opcode, length, &tally);
	else
		flow_count_lost(path->there, tally.packets, tally.words);
	if (path->fault == PATH_PKEY)
		path_report(path);
	if (path->fault == PATH_NO_WAY_BACK)
		flow_count_lost(path->back, 1, (path->header_back + BYTES_AETH) / 4);
}

/* ------------------------------------------------------------------ words */

static const char *fault_text(const struct path *path)
{
	switch (path->fault) {
	case PATH_NO_WAY:
	case PATH_NO_WAY_BACK:
		return route_result_text(path->result);
	case PATH_NOT_THERE:
		return "the QP belongs to no process on the node that it leads to";
	case PATH_PKEY:
		return "the P_Keys of the two QPs don't match";
	default:
		return "a packet is longer than a link on the way allows, or is dropped by a fault";
	}
}

void path_explain(const struct path *path, char *text, size_t size)
{
	const struct fabric *tables = &path->membership->node->tables;
	uint32_t at = path->fault == PATH_OPEN ? path->port : path->at;
	const struct fabric_port *port = &tables->ports[at];

	snprintf(text, size, "no way %s LID %u at %s port %u: %s",
		 path->fault == PATH_NO_WAY_BACK ? "back from" : "to", path->destination,
		 fabric_node_name(tables, port->node), port->number, fault_text(path));
}
