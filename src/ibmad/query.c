/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of the management classes. */
#include "ibmad/ibmad.h"

#include "base/export.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Requests to QP 1 have the well-known Q_Key, unless the program gave another. */
static void destination_set_qp1(ib_portid_t *to)
{
	to->qp = 1;
	if (!to->qkey)
		to->qkey = IB_DEFAULT_QP1_QKEY;
}

static bool method_has_response(int method)
{
	return method == IB_MAD_METHOD_GET || method == IB_MAD_METHOD_SET ||
	       method == IB_MAD_METHOD_TRAP;
}

/* Subnet management ---------------------------------------------------------------------------- */

EXPORT void smp_mkey_set(struct ibmad_port *srcport, uint64_t mkey)
{
	srcport->smp_mkey = mkey;
}

EXPORT uint64_t smp_mkey_get(const struct ibmad_port *srcport)
{
	return srcport->smp_mkey;
}

/* An SMP by directed route, unless `to` has a LID and no directed part. */
static uint8_t *smp_exchange(int method, void *data, ib_portid_t *to, unsigned attrid, unsigned mod,
			     unsigned timeout, int *rstatus, const struct ibmad_port *port)
{
	bool is_directed =
		to->lid <= 0 || to->drpath.drslid == 0xffff || to->drpath.drdlid == 0xffff;
	ib_rpc_t rpc = {
		.mgtclass = is_directed ? IB_SMI_DIRECT_CLASS : IB_SMI_CLASS,
		.method = method,
		.attr = {.id = attrid, .mod = mod},
		.timeout = timeout,
		.datasz = IB_SMP_DATA_SIZE,
		.dataoffs = IB_SMP_DATA_OFFS,
		.mkey = port->smp_mkey,
	};
	uint8_t *result;

	TRACE("attr 0x%x mod 0x%x route %s", attrid, mod, portid2str(to));
	to->sl = 0;
	to->qp = 0;
	result = mad_rpc(port, &rpc, to, data, data);
	if (rstatus)
		*rstatus = rpc.rstatus;
	return result;
}

EXPORT uint8_t *smp_query_status_via(void *rcvbuf, ib_portid_t *portid, unsigned attrid,
				     unsigned mod, unsigned timeout, int *rstatus,
				     const struct ibmad_port *srcport)
{
	return smp_exchange(IB_MAD_METHOD_GET, rcvbuf, portid, attrid, mod, timeout, rstatus,
			    srcport);
}

EXPORT uint8_t *smp_set_status_via(void *data, ib_portid_t *portid, unsigned attrid, unsigned mod,
				   unsigned timeout, int *rstatus, const struct ibmad_port *srcport)
{
	return smp_exchange(IB_MAD_METHOD_SET, data, portid, attrid, mod, timeout, rstatus,
			    srcport);
}

EXPORT uint8_t *smp_query_via(void *buf, ib_portid_t *id, unsigned attrid, unsigned mod,
			      unsigned timeout, const struct ibmad_port *srcport)
{
	return smp_query_status_via(buf, id, attrid, mod, timeout, NULL, srcport);
}

EXPORT uint8_t *smp_set_via(void *buf, ib_portid_t *id, unsigned attrid, unsigned mod,
			    unsigned timeout, const struct ibmad_port *srcport)
{
	return smp_set_status_via(buf, id, attrid, mod, timeout, NULL, srcport);
}

EXPORT uint8_t *smp_query(void *buf, ib_portid_t *id, unsigned attrid, unsigned mod,
			  unsigned timeout)
{
	return smp_query_via(buf, id, attrid, mod, timeout, &default_port);
}

EXPORT uint8_t *smp_set(void *buf, ib_portid_t *id, unsigned attrid, unsigned mod, unsigned timeout)
{
	return smp_set_via(buf, id, attrid, mod, timeout, &default_port);
}

/* Subnet administration ------------------------------------------------------------------------ */

/* Components of records, see the specification's tables of component masks. */
#define PATH_DGID_AND_SGID (1ull << 2 | 1ull << 3)
#define NODE_PORT_GUID (1ull << 8)

/* One MAD each way: a response of more segments ends with ENOSPC. */
EXPORT uint8_t *sa_rpc_call(const struct ibmad_port *srcport, void *rcvbuf, ib_portid_t *portid,
			    ib_sa_call_t *sa, unsigned timeout)
{
	ib_rpc_t rpc = {
		.mgtclass = IB_SA_CLASS,
		.method = sa->method,
		.attr = {.id = sa->attrid, .mod = sa->mod},
		.mask = sa->mask,
		.timeout = timeout,
		.datasz = IB_SA_DATA_SIZE,
		.dataoffs = IB_SA_DATA_OFFS,
		.trid = sa->trid,
	};
	uint8_t *result;

	TRACE("attr 0x%x mod 0x%x route %s", sa->attrid, sa->mod, portid2str(portid));
	if (portid->lid <= 0) {
		IBWARN("only lid routes are supported");
		return NULL;
	}
	destination_set_qp1(portid);
	result = mad_rpc_rmpp(srcport, &rpc, portid, NULL, rcvbuf);
	sa->recsz = rpc.recsz;
	return result;
}

EXPORT uint8_t *sa_call(void *rcvbuf, ib_portid_t *portid, ib_sa_call_t *sa, unsigned timeout)
{
	return sa_rpc_call(&default_port, rcvbuf, portid, sa, timeout);
}

/* `buf` has IB_SA_DATA_SIZE bytes, and the record afterwards. Returns the destination's LID. */
EXPORT int ib_path_query_via(const struct ibmad_port *srcport, ibmad_gid_t srcgid,
			     ibmad_gid_t destgid, ib_portid_t *sm_id, void *buf)
{
	ib_sa_call_t call = {
		.method = IB_MAD_METHOD_GET,
		.attrid = IB_SA_ATTR_PATHRECORD,
		.mask = PATH_DGID_AND_SGID,
	};
	uint8_t *record;

	memset(buf, 0, IB_SA_PR_RECSZ);
	mad_encode_field(buf, IB_SA_PR_DGID_F, destgid);
	mad_encode_field(buf, IB_SA_PR_SGID_F, srcgid);
	record = sa_rpc_call(srcport, buf, sm_id, &call, 0);
	if (!record) {
		IBWARN("sa call path_query failed");
		return -1;
	}
	return mad_get_field(record, 0, IB_SA_PR_DLID_F);
}

EXPORT int ib_path_query(ibmad_gid_t srcgid, ibmad_gid_t destgid, ib_portid_t *sm_id, void *buf)
{
	return ib_path_query_via(&default_port, srcgid, destgid, sm_id, buf);
}

EXPORT int ib_node_query_via(const struct ibmad_port *srcport, uint64_t guid, ib_portid_t *sm_id,
			     void *buf)
{
	ib_sa_call_t call = {
		.method = IB_MAD_METHOD_GET,
		.attrid = IB_SA_ATTR_NODERECORD,
		.mask = NODE_PORT_GUID,
	};

	memset(buf, 0, IB_SA_NR_RECSZ);
	mad_encode_field(buf, IB_SA_NR_PORT_GUID_F, &guid);
	if (sa_rpc_call(srcport, buf, sm_id, &call, 0))
		return 0;
	IBWARN("sa call node_query failed");
	return -1;
}

/* Performance management ----------------------------------------------------------------------- */

/* A failure's errno survives: ETIMEDOUT without an answer, EIO with a bad status. */
static uint8_t *pma_exchange(int method, void *data, ib_portid_t *to, unsigned timeout, unsigned id,
			     const struct ibmad_port *port)
{
	ib_rpc_v1_t rpc = {
		.mgtclass = IB_PERFORMANCE_CLASS | IB_MAD_RPC_VERSION1,
		.method = method,
		.attr.id = id,
		.timeout = timeout,
		.datasz = IB_PC_DATA_SZ,
		.dataoffs = IB_PC_DATA_OFFS,
	};

	if (!to->qp)
		to->qp = 1;
	if (!to->qkey)
		to->qkey = IB_DEFAULT_QP1_QKEY;
	return mad_rpc(port, (ib_rpc_t *)(void *)&rpc, to, data, data);
}

EXPORT uint8_t *pma_query_via(void *rcvbuf, ib_portid_t *dest, int port, unsigned timeout,
			      unsigned id, const struct ibmad_port *srcport)
{
	TRACE("lid %u port %d", dest->lid, port);
	if (dest->lid == -1) {
		IBWARN("only lid routed is supported");
		return NULL;
	}
	/* PortSelect is at the same place in all attributes. */
	mad_set_field(rcvbuf, 0, IB_PC_PORT_SELECT_F, port);
	return pma_exchange(IB_MAD_METHOD_GET, rcvbuf, dest, timeout, id, srcport);
}

EXPORT uint8_t *performance_reset_via(void *rcvbuf, ib_portid_t *dest, int port, unsigned mask,
				      unsigned timeout, unsigned id,
				      const struct ibmad_port *srcport)
{
	TRACE("lid %u port %d mask 0x%x", dest->lid, port, mask);
	if (dest->lid == -1) {
		IBWARN("only lid routed is supported");
		return NULL;
	}
	if (!mask)
		mask = ~0u;
	memset(rcvbuf, 0, IB_PC_DATA_SZ);
	mad_set_field(rcvbuf, 0, IB_PC_PORT_SELECT_F, port);
	mad_set_field(rcvbuf, 0, IB_PC_COUNTER_SELECT_F, mask);
	if (id == IB_GSI_PORT_COUNTERS_EXT)
		mad_set_field(rcvbuf, 0, IB_PC_EXT_COUNTER_SELECT2_F, mask >> 16);
	else
		mad_set_field(rcvbuf, 0, IB_PC_COUNTER_SELECT2_F, mask >> 16);
	return pma_exchange(IB_MAD_METHOD_SET, rcvbuf, dest, timeout, id, srcport);
}

/* Vendor classes ------------------------------------------------------------------------------- */

EXPORT uint8_t *ib_vendor_call_via(void *data, ib_portid_t *portid, ib_vendor_call_t *call,
				   struct ibmad_port *srcport)
{
	bool is_range1 = mad_is_vendor_range1(call->mgmt_class);
	ib_rpc_v1_t rpc = {
		.mgtclass = call->mgmt_class | IB_MAD_RPC_VERSION1,
		.method = call->method,
		.attr = {.id = call->attrid, .mod = call->mod},
		.datasz = is_range1 ? IB_VENDOR_RANGE1_DATA_SIZE : IB_VENDOR_RANGE2_DATA_SIZE,
		.dataoffs = is_range1 ? IB_VENDOR_RANGE1_DATA_OFFS : IB_VENDOR_RANGE2_DATA_OFFS,
		.oui = is_range1 ? 0 : call->oui,
	};
	ib_rpc_t *request = (ib_rpc_t *)(void *)&rpc;

	TRACE("route %s data %p", portid2str(portid), data);
	if (portid->lid <= 0)
		return NULL;
	if (!is_range1 && !mad_is_vendor_range2(call->mgmt_class))
		return NULL;
	destination_set_qp1(portid);
	if (!method_has_response(call->method))
		return mad_send_via(request, portid, NULL, data, srcport) < 0 ? NULL : data;
	rpc.timeout = call->timeout;
	return mad_rpc_rmpp(srcport, request, portid, NULL, data);
}

EXPORT uint8_t *ib_vendor_call(void *data, ib_portid_t *portid, ib_vendor_call_t *call)
{
	return ib_vendor_call_via(data, portid, call, &default_port);
}

/* Baseboard management ------------------------------------------------------------------------- */

EXPORT uint8_t *bm_call_via(void *data, ib_portid_t *portid, ib_bm_call_t *call,
			    struct ibmad_port *srcport)
{
	struct {
		uint64_t bkey;
		uint8_t reserved[IB_BM_DATA_OFFS - IB_BM_BKEY_OFFS - sizeof(uint64_t)];
		uint8_t data[IB_BM_DATA_SZ];
	} body = {.bkey = htobe64(call->bkey)};
	ib_rpc_t rpc = {
		.mgtclass = IB_BOARD_MGMT_CLASS,
		.method = call->method,
		.attr = {.id = call->attrid, .mod = call->mod},
		.datasz = IB_BM_BKEY_AND_DATA_SZ,
		.dataoffs = IB_BM_BKEY_OFFS,
	};

	TRACE("route %s data %p", portid2str(portid), data);
	if (portid->lid <= 0) {
		IBWARN("only lid routes are supported");
		return NULL;
	}
	memcpy(body.data, data, sizeof body.data);
	destination_set_qp1(portid);
	if (method_has_response(call->method)) {
		rpc.timeout = call->timeout;
		if (!mad_rpc(srcport, &rpc, portid, &body, &body))
			return NULL;
	} else if (mad_send_via(&rpc, portid, NULL, &body, srcport) < 0) {
		return NULL;
	}
	memcpy(data, body.data, sizeof body.data);
	return data;
}

/* Congestion control --------------------------------------------------------------------------- */

static void *cc_exchange(ib_rpc_cc_t *rpc, void *payload, void *rcvbuf, ib_portid_t *to,
			 int *rstatus, const struct ibmad_port *port)
{
	bool is_log = rpc->attr.id == IB_CC_ATTR_CONGESTION_LOG;
	void *result;

	TRACE("attr 0x%x mod 0x%x route %s", rpc->attr.id, rpc->attr.mod, portid2str(to));
	rpc->mgtclass = IB_CC_CLASS;
	rpc->datasz = is_log ? IB_CC_LOG_DATA_SZ : IB_CC_DATA_SZ;
	rpc->dataoffs = is_log ? IB_CC_LOG_DATA_OFFS : IB_CC_DATA_OFFS;
	destination_set_qp1(to);
	result = mad_rpc(port, (ib_rpc_t *)(void *)rpc, to, payload, rcvbuf);
	if (rstatus)
		*rstatus = rpc->rstatus;
	return result;
}

EXPORT void *cc_query_status_via(void *rcvbuf, ib_portid_t *portid, unsigned attrid, unsigned mod,
				 unsigned timeout, int *rstatus, const struct ibmad_port *srcport,
				 uint64_t cckey)
{
	ib_rpc_cc_t rpc = {
		.method = IB_MAD_METHOD_GET,
		.attr = {.id = attrid, .mod = mod},
		.timeout = timeout,
		.cckey = cckey,
	};

	return cc_exchange(&rpc, rcvbuf, rcvbuf, portid, rstatus, srcport);
}

EXPORT void *cc_config_status_via(void *payload, void *rcvbuf, ib_portid_t *portid, unsigned attrid,
				  unsigned mod, unsigned timeout, int *rstatus,
				  const struct ibmad_port *srcport, uint64_t cckey)
{
	ib_rpc_cc_t rpc = {
		.method = IB_MAD_METHOD_SET,
		.attr = {.id = attrid, .mod = mod},
		.timeout = timeout,
		.cckey = cckey,
	};

	return cc_exchange(&rpc, payload, rcvbuf, portid, rstatus, srcport);
}
