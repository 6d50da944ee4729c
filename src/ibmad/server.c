/* SPDX-License-Identifier: BSD-2-Clause */
/* Servers: sending without waiting, receiving, answering. */
#include <infiniband/umad.h>

#include "ibmad/ibmad.h"

#include "base/export.h"

#include <errno.h>
#include <string.h>

EXPORT void *mad_alloc(void)
{
	return umad_alloc(1, umad_size() + IB_MAD_SIZE);
}

EXPORT void mad_free(void *umad)
{
	umad_free(umad);
}

/* Sends what `umad` holds, without retries. */
static int agent_send(struct ibmad_port *port, int mgmt_class, void *umad, int timeout)
{
	if (umad_send(port->fd, port->class_agents[mgmt_class], umad, IB_MAD_SIZE, timeout, 0) >= 0)
		return 0;
	IBWARN("send failed; %s", strerror(errno));
	return -1;
}

EXPORT int mad_send_via(ib_rpc_t *rpc, ib_portid_t *dport, ib_rmpp_hdr_t *rmpp, void *data,
			struct ibmad_port *srcport)
{
	void *umad = mad_alloc();
	int result = -1;

	if (!umad)
		return -1;
	if (mad_build_pkt(umad, rpc, dport, rmpp, data) >= 0)
		result = agent_send(srcport, rpc->mgtclass & 0xff, umad,
				    mad_get_timeout(srcport, rpc->timeout));
	mad_free(umad);
	return result;
}

EXPORT int mad_send(ib_rpc_t *rpc, ib_portid_t *dport, ib_rmpp_hdr_t *rmpp, void *data)
{
	return mad_send_via(rpc, dport, rmpp, data, &default_port);
}

EXPORT void *mad_receive_via(void *umad, int timeout, struct ibmad_port *srcport)
{
	void *packet = umad ? umad : mad_alloc();
	int length = IB_MAD_SIZE;

	if (!packet)
		return NULL;
	if (umad_recv(srcport->fd, packet, &length, mad_get_timeout(srcport, timeout)) >= 0)
		return packet;
	TRACE("recv failed: %s", strerror(errno));
	if (!umad)
		mad_free(packet);
	return NULL;
}

EXPORT void *mad_receive(void *umad, int timeout)
{
	return mad_receive_via(umad, timeout, &default_port);
}

/* What a response to the MAD has in common with it. */
static ib_rpc_t response_to(void *mad, uint32_t status)
{
	ib_rpc_t rpc = {
		.mgtclass = mad_get_field(mad, 0, IB_MAD_MGMTCLASS_F),
		.method = mad_get_field(mad, 0, IB_MAD_METHOD_F),
		.attr.id = mad_get_field(mad, 0, IB_MAD_ATTRID_F),
		.attr.mod = mad_get_field(mad, 0, IB_MAD_ATTRMOD_F),
		.trid = mad_get_field64(mad, 0, IB_MAD_TRID_F),
		.rstatus = status,
	};

	if (rpc.method == IB_MAD_METHOD_SET)
		rpc.method = IB_MAD_METHOD_GET;
	if (rpc.method != IB_MAD_METHOD_SEND)
		rpc.method |= IB_MAD_RESPONSE;
	if (rpc.mgtclass == IB_SA_CLASS)
		rpc.recsz = mad_get_field(mad, 0, IB_SA_ATTROFFS_F);
	if (mad_is_vendor_range2(rpc.mgtclass))
		rpc.oui = mad_get_field(mad, 0, IB_VEND2_OUI_F);
	return rpc;
}

/* Answers what `umad` holds; the data in it are the answer's. Without `portid`: to its sender. */
EXPORT int mad_respond_via(void *umad, ib_portid_t *portid, uint32_t rstatus,
			   struct ibmad_port *srcport)
{
	ib_mad_addr_t *from = umad_get_mad_addr(umad);
	ib_rpc_t rpc = response_to(umad_get_mad(umad), rstatus);
	ib_portid_t sender = {
		.lid = ntohs(from->lid),
		.qp = ntohl(from->qpn),
		.qkey = ntohl(from->qkey),
		.sl = from->sl,
	};

	if (!portid)
		portid = &sender;
	if (class_is_smi(rpc.mgtclass))
		portid->qp = 0;
	else if (!portid->qp)
		portid->qp = 1;
	if (!portid->qkey && portid->qp == 1)
		portid->qkey = IB_DEFAULT_QP1_QKEY;

	if (mad_build_pkt(umad, &rpc, portid, NULL, NULL) < 0)
		return -1;
	if (ibdebug > 1)
		xdump(stderr, "mad respond pkt\n", umad_get_mad(umad), IB_MAD_SIZE);
	return agent_send(srcport, rpc.mgtclass, umad, mad_get_timeout(srcport, 0));
}

EXPORT int mad_respond(void *umad, ib_portid_t *portid, uint32_t rstatus)
{
	return mad_respond_via(umad, portid, rstatus, &default_port);
}
