/* SPDX-License-Identifier: BSD-2-Clause */
/* The choice of a QP's carrier, and carrier_none. See carrier.h. No state. */
#include "hca/verbs/carrier.h"

#include <errno.h>

#include "hca/process/hca.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/route.h"

void carrier_ignores(struct qp *qp)
{
	(void)qp;
}

void carrier_ignores_former(struct hca *hca)
{
	(void)hca;
}

void carrier_ignores_request(struct qp *qp, struct send_wqe *wqe)
{
	(void)qp, (void)wqe;
}

void carrier_ignores_change(struct qp *qp, int mask)
{
	(void)qp, (void)mask;
}

void carrier_ignores_settling(struct hca *hca, uint32_t qpn, uint32_t peer_qpn, bool ends)
{
	(void)hca, (void)qpn, (void)peer_qpn, (void)ends;
}

static int none_connect(struct qp *qp, const struct route *route)
{
	(void)qp, (void)route;
	return EINVAL;
}

static void none_send_ready(struct qp *qp, enum ibv_qp_state from)
{
	(void)qp, (void)from;
}

static bool none_expire(struct qp *qp, uint64_t now, uint64_t *next)
{
	(void)qp, (void)now, (void)next;
	return false;
}

const struct carrier carrier_none = {
	.name = "none",
	.take_in_former = carrier_ignores_former,
	.connect = none_connect,
	.receive_ready = carrier_ignores,
	.send_ready = none_send_ready,
	.drain = carrier_ignores,
	.change = carrier_ignores_change,
	.stop = carrier_ignores,
	.disconnect = carrier_ignores,
	.receive_posted = carrier_ignores,
	.resume = carrier_ignores,
	.expire = none_expire,
	.post = carrier_ignores,
	.withdraw = carrier_ignores_request,
	.leave = carrier_ignores,
	.take_in = carrier_ignores,
	.linger = carrier_ignores,
	.settle = carrier_ignores_settling,
};

const struct carrier *carrier_choose(const struct hca *hca, enum ibv_qp_type type,
				     uint32_t peer_qpn, const struct route *route)
{
	if (type == IBV_QPT_UD || type == IBV_QPT_RAW_PACKET)
		return &carrier_datagram;
	if (route->roce)
		return &carrier_roce;
	if (type == IBV_QPT_XRC_SEND)
		return &carrier_xrc;
	return peer_qpn >> LIMIT_QP_BITS == hca->slot ? &carrier_self : &carrier_local;
}
