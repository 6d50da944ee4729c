/* SPDX-License-Identifier: BSD-2-Clause */
/* See migrate.h. */
#include "hca/verbs/migrate.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/refused.h"
#include "fabric/port_info.h"
#include "hca/engine/engine.h"
#include "hca/fabric/membership.h"
#include "hca/process/books.h"
#include "hca/process/hca.h"
#include "hca/verbs/event.h"
#include "hca/verbs/route.h"

int migrate_check(const struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct membership *membership = qp->hca->membership;
	struct ibv_ah_attr ah = attr->alt_ah_attr;
	struct route route;

	if (!membership)
		return 0;
	if ((mask & IBV_QP_PATH_MIG_STATE) && attr->path_mig_state != IBV_MIG_MIGRATED &&
	    attr->path_mig_state != IBV_MIG_REARM)
		return refused(EINVAL,
			       "ibv_modify_qp: path_mig_state is %d; a program asks for "
			       "IBV_MIG_MIGRATED or IBV_MIG_REARM, and the device decides "
			       "when the path is ARMED",
			       (int)attr->path_mig_state);
	if (!(mask & IBV_QP_ALT_PATH))
		return 0;
	ah.port_num = attr->alt_port_num;
	if (attr->alt_pkey_index >= FABRIC_PKEYS || attr->alt_timeout > 31)
		return refused(EINVAL,
			       "ibv_modify_qp: alt_pkey_index is %u, and %u at most; "
			       "alt_timeout is %u, and 31 at most",
			       attr->alt_pkey_index, (unsigned int)FABRIC_PKEYS - 1,
			       attr->alt_timeout);
	return route_find_on_fabric(membership, &ah, &route);
}

int migrate_check_state(const struct qp *qp, const struct ibv_qp_attr *attr, int mask, bool *goes)
{
	enum ibv_mig_state from = qp->attr.path_mig_state;
	bool has_path = mask & IBV_QP_ALT_PATH || qp->attr.alt_ah_attr.dlid;

	*goes = false;
	if (!qp->hca->membership || !(mask & IBV_QP_PATH_MIG_STATE))
		return 0;
	if (attr->path_mig_state == IBV_MIG_REARM) {
		if (!has_path)
			log_warn("ibv_modify_qp: IBV_MIG_REARM needs an alternate path");
		return has_path ? 0 : EINVAL;
	}
	*goes = from == IBV_MIG_ARMED;
	return from != IBV_MIG_REARM
		       ? 0
		       : refused(EINVAL, "ibv_modify_qp: the alternate path is still being armed "
					 "(IBV_MIG_REARM), and can't be migrated to yet");
}

void migrate_go(struct qp *qp)
{
	struct ibv_qp_attr *attr = &qp->attr;

	attr->ah_attr = attr->alt_ah_attr;
	attr->ah_attr.port_num = attr->port_num = attr->alt_port_num;
	attr->pkey_index = attr->alt_pkey_index;
	if (qp->type == IBV_QPT_RC)
		attr->timeout = attr->alt_timeout;
	attr->path_mig_state = IBV_MIG_MIGRATED;
	qp_publish(qp);
	qp->carrier->change(qp, IBV_QP_AV | IBV_QP_PATH_MIG_STATE);
	async_qp(qp, IBV_EVENT_PATH_MIG);
}

void migrate_refuse(struct qp *qp)
{
	log_info("QP 0x%x: the peer has migrated to a path that isn't the alternate one",
		 qp->ibv.qp_num);
	async_qp(qp, IBV_EVENT_PATH_MIG_ERR);
}

bool migrate_look(struct qp *qp, enum ibv_mig_state peer)
{
	if (qp->attr.path_mig_state == IBV_MIG_REARM && peer != IBV_MIG_MIGRATED) {
		qp->attr.path_mig_state = IBV_MIG_ARMED;
		qp_publish(qp);
		return peer == IBV_MIG_REARM;
	}
	if (qp->attr.path_mig_state == IBV_MIG_ARMED && peer == IBV_MIG_MIGRATED)
		migrate_go(qp);
	return false;
}

/* ------------------------------------------------------------------ paths of a connection manager
 */

/* The device's port with this LID, and, unless it is 0, this GID. 0; or the status. */
static uint32_t find_port(const struct node *node, const struct proto_alternate_resp *path,
			  struct ibv_qp_attr *attr)
{
	static const uint8_t none[16];
	struct ibv_gid_entry entry;
	uint32_t port = 1;

	while (port <= node->ports &&
	       !port_has_lid(&node->tables.ports[node_port_row(node, port)], path->local_lid))
		port++;
	if (port > node->ports)
		return PROTO_ALTERNATE_LID;
	attr->alt_port_num = attr->alt_ah_attr.port_num = (uint8_t)port;
	attr->alt_ah_attr.src_path_bits = path->local_lid & 0x7f;
	if (!memcmp(path->local_gid, none, sizeof(none)))
		return 0;
	for (uint32_t i = 0; node_query_gid(node, port, i, &entry) != EINVAL; i++)
		if (!memcmp(entry.gid.raw, path->local_gid, sizeof(none))) {
			attr->alt_ah_attr.grh.sgid_index = (uint8_t)i;
			return 0;
		}
	return PROTO_ALTERNATE_GID;
}

/* The P_Key is that of the primary path. False: the alternate path's port hasn't got it. */
static bool find_pkey(const struct node *node, const struct qp *qp, struct ibv_qp_attr *attr)
	REQUIRES(qp->lock)
{
	uint16_t wanted, has;

	if (node_query_pkey(node, qp->attr.port_num, qp->attr.pkey_index, &wanted))
		return false;
	for (uint16_t i = 0; !node_query_pkey(node, attr->alt_port_num, i, &has); i++)
		if (has == wanted) {
			attr->alt_pkey_index = i;
			return true;
		}
	return false;
}

static uint32_t load_locked(struct qp *qp, struct ibv_qp_attr *attr) REQUIRES(qp->lock)
{
	const int mask = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
	const struct ibv_ah_attr *now = &qp->attr.ah_attr;
	bool goes;

	if (qp->type != IBV_QPT_RC && qp->type != IBV_QPT_UC)
		return PROTO_ALTERNATE_QPN;
	if (now->dlid == attr->alt_ah_attr.dlid && now->port_num == attr->alt_port_num)
		return PROTO_ALTERNATE_IS_CURRENT;
	if (!find_pkey(qp->hca->membership->node, qp, attr) ||
	    qp_state_check(qp->type, qp->state, qp->state, mask) || migrate_check(qp, attr, mask) ||
	    migrate_check_state(qp, attr, mask, &goes))
		return PROTO_ALTERNATE_REJECTED;
	qp_copy_attr(&qp->attr, attr, mask);
	qp_publish(qp);
	qp->carrier->change(qp, mask);
	return PROTO_ALTERNATE_LOADED;
}

static uint32_t migrate_load(struct hca *hca, const struct proto_alternate_resp *path)
{
	struct ibv_qp_attr attr = {
		.path_mig_state = IBV_MIG_REARM,
		.alt_timeout = path->ack_timeout & 31,
		.alt_ah_attr = {.dlid = path->remote_lid,
				.sl = path->sl,
				.static_rate = path->rate,
				.is_global = path->is_global,
				.grh = {.flow_label = path->flow_label,
					.hop_limit = path->hop_limit,
					.traffic_class = path->traffic_class}},
	};

	memcpy(attr.alt_ah_attr.grh.dgid.raw, path->remote_gid, sizeof(path->remote_gid));
	if (!hca->membership)
		return PROTO_ALTERNATE_REJECTED;
	uint32_t status = find_port(hca->membership->node, path, &attr);

	if (status)
		return status;
	if (!path->remote_lid || path->remote_lid >= LID_MULTICAST)
		return PROTO_ALTERNATE_LID;
	status = PROTO_ALTERNATE_QPN;
	lock_take(&hca->engine);
	struct qp *qp = hca->qps[path->qpn & (LIMIT_QPS_PER_SLOT - 1)];

	if (qp && qp->ibv.qp_num == path->qpn) {
		lock_take(&qp->lock);
		status = load_locked(qp, &attr);
		lock_give(&qp->lock);
	}
	engine_leave(hca);
	return status;
}

void migrate_serve(struct hca *hca)
{
	struct proto_alternate_resp path = {0};
	uint32_t status = 0;

	if (!work_take(&hca->control_work, CONTROL_ALTERNATE))
		return;
	for (;;) {
		books_enter(hca);
		int err = daemon_alternate(&hca->conn, path.qpn, status, &path);

		books_leave(hca);
		if (err)
			return; /* no more; or the daemon has ended, and its connections with it */
		status = migrate_load(hca, &path);
		log_info("QP 0x%x: alternate path to LID %u from the connection manager: status %u",
			 path.qpn, path.remote_lid, status);
	}
}
