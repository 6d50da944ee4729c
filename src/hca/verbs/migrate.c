/* SPDX-License-Identifier: BSD-2-Clause */
/* See migrate.h. */
#include "hca/verbs/migrate.h"

#include <errno.h>

#include "base/log.h"
#include "hca/fabric/membership.h"
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
		return EINVAL; /* the device decides when it is ARMED */
	if (!(mask & IBV_QP_ALT_PATH))
		return 0;
	ah.port_num = attr->alt_port_num;
	if (attr->alt_pkey_index >= FABRIC_PKEYS || attr->alt_timeout > 31)
		return EINVAL;
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
	return from == IBV_MIG_REARM ? EINVAL : 0;
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
