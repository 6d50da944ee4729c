/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams between nodes of a fabric. The forwarding tables say where one goes (fabric/ways.h); it
 * is taken there as between processes of one host (local/local_datagram.c). No state.
 */
#include "hca/exec/datagram_fabric.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "fabric/port_info.h"
#include "hca/exec/datagram_send.h"
#include "hca/exec/fanout.h"
#include "hca/exec/mcast.h"
#include "hca/fabric/membership.h"
#include "hca/fabric/ways.h"
#include "hca/local/link.h"
#include "hca/local/local_datagram.h"
#include "hca/process/hca.h"
#include "hca/verbs/pace.h"
#include "hca/verbs/qp.h"

/* Bytes of headers, and of what follows the payload. */
enum { LRH_BTH_DETH_ICRC = 8 + 12 + 8 + 4, GRH_OF_FABRIC = 40, IMM_OF_FABRIC = 4 };

/* ------------------------------------------------------------------ addresses */

/* What send_wqe.ud.ifindex is on a fabric. */
static uint32_t address_pack(const struct ibv_ah_attr *attr)
{
	return attr->dlid | (uint32_t)attr->port_num << 16 |
	       (uint32_t)(attr->src_path_bits & 0x7f) << 24;
}

struct way_address datagram_way(const struct qp *qp, const struct send_wqe *wqe)
{
	return (struct way_address){
		.lid = wqe->ud.ifindex & 0xffff,
		.port = wqe->ud.ifindex >> 16 & 0xff,
		.path_bits = wqe->ud.ifindex >> 24,
		.sl = wqe->ud.to.sl,
		.pkey_index = (uint8_t)qp->attr.pkey_index,
	};
}

int datagram_address(const struct membership *membership, struct ah *ah,
		     const struct ibv_ah_attr *attr)
{
	struct ibv_gid_entry gid;
	int err = node_query_gid(membership->node, attr->port_num,
				 attr->is_global ? attr->grh.sgid_index : 0, &gid);

	if (err) {
		log_warn("an address handle can't use GID %u of port %u: there is none",
			 attr->grh.sgid_index, attr->port_num);
		return EINVAL;
	}
	if (attr->dlid >= LID_MULTICAST && !attr->is_global) {
		log_warn("an address handle of a group (LID 0x%x) needs its GID (is_global = 1)",
			 attr->dlid);
		return EINVAL;
	}
	ah->to = (struct record_ud){.flow_label = attr->grh.flow_label,
				    .hop_limit = attr->grh.hop_limit,
				    .traffic_class = attr->grh.traffic_class,
				    .lid_flags = attr->is_global ? RECORD_UD_GRH : 0,
				    .sl = attr->sl & 15};
	memcpy(ah->to.sgid, gid.gid.raw, sizeof(ah->to.sgid));
	memcpy(ah->to.dgid, attr->grh.dgid.raw, sizeof(ah->to.dgid));
	ah->carrier = &datagram_fabric;
	ah->ifindex = address_pack(attr);
	return 0;
}

/* ------------------------------------------------------------------ sending */

static uint32_t datagram_words(const struct send_wqe *wqe)
{
	return (LRH_BTH_DETH_ICRC + (wqe->ud.to.lid_flags & RECORD_UD_GRH ? GRH_OF_FABRIC : 0) +
		(wqe->opcode == IBV_WR_SEND_WITH_IMM ? IMM_OF_FABRIC : 0) + wqe->length + 3) /
	       4;
}

/* Whether the process at the link's other end is on the node where the way ends. */
static bool way_meets(const struct qp *qp, const struct way *way, const struct link *link)
{
	const struct node *node = qp->hca->membership->node;
	const struct pub_header *header = &link->peer->header;

	return header->fabric == node->fabric && header->node == node->tables.ports[way->end].node;
}

/* Writes what the receiver needs of the packet's headers into the request. */
static void datagram_label(const struct qp *qp, struct send_wqe *wqe,
			   const struct way_address *address) REQUIRES(qp->lock)
{
	const struct node *node = qp->hca->membership->node;
	const struct fabric_port *port = &node->tables.ports[node_port_row(node, address->port)];
	uint16_t bits = address->path_bits & ((1u << port_lmc(port)) - 1);

	wqe->ud.to.slid = port_lid(port) | bits;
	node_query_pkey(node, address->port, address->pkey_index, &wqe->ud.to.pkey);
	/* All bits that may be path bits: the receiver's port knows its LMC. */
	wqe->ud.to.lid_flags = (wqe->ud.to.lid_flags & RECORD_UD_GRH) | (address->lid & 0x7f);
}

static enum step datagram_lose(struct qp *qp, struct send_wqe *wqe, struct way *way,
			       const struct way_address *address) REQUIRES(qp->lock)
{
	way_count_lost(qp->ways, way, address, wqe->length, datagram_words(wqe));
	return datagram_sent(qp, wqe);
}

/* Whether a copy comes to the node of the process at the link's other end. */
static bool tree_meets(const struct link *link, void *arg)
{
	const struct pub_header *header = &link->peer->header;
	const struct node *node = link->hca->membership->node;
	uint32_t row = *(const volatile uint32_t *)&header->node; /* the peer may change it */

	return header->fabric == node->fabric && row < node->tables.header->nodes &&
	       tree_reaches(arg, row);
}

/* A way on which a fault takes time: whether the datagram, and those behind it, wait for that. */
static bool datagram_holds(struct qp *qp, const struct send_wqe *wqe) REQUIRES(qp->lock)
{
	return !(wqe->flags & SEND_BEGUN) && !qp->ud_wait.since && pace_timed_hold(qp);
}

/* To a group: counted once, when it begins. */
static enum step fabric_send_to_group(struct qp *qp, struct send_wqe *wqe,
				      const struct iovec *local, int count,
				      const struct way_address *address) REQUIRES(qp->lock)
{
	struct tree *tree = ways_find_tree(qp->ways, address, wqe->length, wqe->flags & SEND_BEGUN);

	if (!tree)
		return datagram_sent(qp, wqe);
	if (unlikely(tree_is_slow(tree)) && datagram_holds(qp, wqe))
		return STEP_WAIT;
	if (!(wqe->flags & SEND_BEGUN)) {
		datagram_label(qp, wqe, address);
		tree_count(tree, datagram_words(wqe));
	}
	const struct audience audience = {tree_meets, tree};

	return mcast_fan_out(qp, wqe, local, count, &audience);
}

static enum step fabric_send_datagram(struct qp *qp, struct send_wqe *wqe,
				      const struct iovec *local, int count) REQUIRES(qp->lock)
{
	struct way_address address = datagram_way(qp, wqe);

	if (address.lid >= LID_MULTICAST)
		return fabric_send_to_group(qp, wqe, local, count, &address);
	struct way *way = ways_find(qp->ways, &address);
	uint32_t slot = wqe->ud.remote_qpn >> LIMIT_QP_BITS;

	if (unlikely(way->is_slow) && datagram_holds(qp, wqe))
		return STEP_WAIT;
	if (unlikely(!way_passes(qp->ways, way, wqe->length)))
		return datagram_lose(qp, wqe, way, &address);
	struct link *link = slot && slot < LIMIT_SLOTS ? link_get_datagram(qp->hca, slot) : NULL;

	/* Its packet reaches the adapter, which hasn't got the QP. */
	if (unlikely(!link || link_is_gone(link) ||
		     (link_is(link, LINK_UP) && !way_meets(qp, way, link))))
		return datagram_lose(qp, wqe, way, &address);
	datagram_label(qp, wqe, &address);
	uint32_t words = datagram_words(wqe);
	enum step step = local_datagram_send(qp, wqe, link, local, count);

	if (likely(step == STEP_DONE))
		flow_count(way->flow, 1, words);
	return step;
}

static void fabric_skip_datagram(struct qp *qp, struct send_wqe *wqe) REQUIRES(qp->lock)
{
	if (datagram_way(qp, wqe).lid >= LID_MULTICAST)
		fanout_skip(qp, wqe);
	else
		local_datagram_skip(qp, wqe);
}

const struct datagram_carrier datagram_fabric = {
	.name = "fabric",
	.send = fabric_send_datagram,
	.skip = fabric_skip_datagram,
};

void datagram_report(const struct qp *qp, const struct record_ud *ud, const struct arrival *arrival,
		     bool is_pkey)
{
	struct membership *membership = qp->hca->membership;
	uint32_t row = node_port_row(membership->node, qp->attr.port_num);
	struct proto_fabric_violation violation = {
		.port = row,
		.is_pkey = is_pkey,
		.key = is_pkey ? ud->pkey : ud->qkey,
		.source_qp = arrival->src_qpn,
		.destination_qp = qp->ibv.qp_num,
		.source = ud->slid,
		.sl = ud->sl & 15,
		.has_grh = (ud->lid_flags & RECORD_UD_GRH) != 0,
	};

	if (row == FABRIC_NONE)
		return;
	violation.destination = port_lid(&membership->node->tables.ports[row]);
	memcpy(violation.sgid, ud->sgid, sizeof(violation.sgid));
	memcpy(violation.dgid, ud->dgid, sizeof(violation.dgid));
	membership_report(membership, &violation);
}
