/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests and responses as bytes: the MAD's headers, and the umad header with the address. */
#include <infiniband/umad.h>

#include "ibmad/ibmad.h"

#include "base/export.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* What stands for "the beginning (or the end) of the directed route is the route's end". */
#define PERMISSIVE_LID 0xffff

#define RESPONSE_TIME_NONE 0x1f

/*
 * Transaction ids have 32 bits, because the kernel replaces the upper ones, and begin anywhere, so
 * that a process isn't taken for an earlier one. They are never 0, which means "choose one".
 */
EXPORT uint64_t mad_trid(void)
{
	static _Atomic uint32_t last;
	uint32_t none = 0;
	uint32_t id;

	if (!atomic_load(&last)) {
		struct timespec now;

		clock_gettime(CLOCK_REALTIME, &now);
		atomic_compare_exchange_strong(&last, &none,
					       (uint32_t)(now.tv_nsec ^ now.tv_sec * 0x9e3779b1u ^
							  (uint32_t)getpid() << 16));
	}
	do
		id = atomic_fetch_add(&last, 1) + 1;
	while (!id);
	return id;
}

int class_version(int mgmt_class)
{
	switch (mgmt_class) {
	case IB_SA_CLASS:
	case IB_CC_CLASS:
		return 2;
	case IB_SMI_CLASS:
	case IB_SMI_DIRECT_CLASS:
	case IB_PERFORMANCE_CLASS:
	case IB_DEVICE_MGMT_CLASS:
	case IB_BOARD_MGMT_CLASS:
		return 1;
	default:
		return mad_is_vendor_range1(mgmt_class) || mad_is_vendor_range2(mgmt_class);
	}
}

/* The directed route: hops and LIDs. A response's path is the one that the request came by. */
static int route_encode(void *mad, const ib_rpc_t *rpc, ib_dr_path_t *route, bool is_response)
{
	if (!route) {
		IBWARN("a directed-route MAD needs a route");
		return -1;
	}
	if (route->cnt < 0 || route->cnt >= IB_SUBNET_PATH_HOPS_MAX) {
		IBWARN("a directed route can't have %d hops", route->cnt);
		return -1;
	}
	mad_set_field(mad, 0, IB_DRSMP_HOPCNT_F, route->cnt);
	mad_set_field(mad, 0, IB_DRSMP_HOPPTR_F, is_response ? route->cnt + 1 : 0);
	mad_set_field(mad, 0, IB_DRSMP_STATUS_F, rpc->rstatus);
	mad_set_field(mad, 0, IB_DRSMP_DIRECTION_F, is_response);
	mad_set_field(mad, 0, IB_DRSMP_DRDLID_F, route->drdlid ? route->drdlid : PERMISSIVE_LID);
	mad_set_field(mad, 0, IB_DRSMP_DRSLID_F, route->drslid ? route->drslid : PERMISSIVE_LID);
	mad_set_array(mad, 0, is_response ? IB_DRSMP_RPATH_F : IB_DRSMP_PATH_F, route->p);
	return 0;
}

/* Writes the MAD into `buf` (256 bytes, zero where nothing is written). Returns its end, or NULL.
 */
EXPORT void *mad_encode(void *buf, ib_rpc_t *rpc, ib_dr_path_t *drpath, void *data)
{
	bool is_response = rpc->method & IB_MAD_RESPONSE;
	int mgmt_class = rpc->mgtclass & 0xff;

	if (rpc->dataoffs < 0 || rpc->datasz < 0 || rpc->dataoffs > IB_MAD_SIZE - rpc->datasz) {
		errno = EINVAL;
		return NULL;
	}
	if (!rpc->trid)
		rpc->trid = mad_trid();
	mad_set_field(buf, 0, IB_MAD_BASEVER_F, 1);
	mad_set_field(buf, 0, IB_MAD_MGMTCLASS_F, mgmt_class);
	mad_set_field(buf, 0, IB_MAD_CLASSVER_F,
		      mgmt_class == IB_SA_CLASS || mgmt_class == IB_CC_CLASS ? 2 : 1);
	mad_set_field(buf, 0, IB_MAD_METHOD_F, rpc->method);
	mad_set_field(buf, 0, IB_MAD_RESPONSE_F, is_response);
	mad_set_field64(buf, 0, IB_MAD_TRID_F, rpc->trid);
	mad_set_field(buf, 0, IB_MAD_ATTRID_F, rpc->attr.id);
	mad_set_field(buf, 0, IB_MAD_ATTRMOD_F, rpc->attr.mod);
	mad_set_field64(buf, 0, IB_MAD_MKEY_F, rpc->mkey);

	if (mgmt_class != IB_SMI_DIRECT_CLASS) {
		mad_set_field(buf, 0, IB_MAD_STATUS_F, rpc->rstatus);
	} else if (route_encode(buf, rpc, drpath, is_response) < 0) {
		errno = EINVAL;
		return NULL;
	}
	if (mgmt_class == IB_SA_CLASS)
		mad_set_field64(buf, 0, IB_SA_COMPMASK_F, rpc->mask);
	if (mgmt_class == IB_CC_CLASS)
		mad_set_field64(buf, 0, IB_CC_CCKEY_F, ((ib_rpc_cc_t *)(void *)rpc)->cckey);
	if (data)
		memcpy((char *)buf + rpc->dataoffs, data, rpc->datasz);
	if (mad_is_vendor_range2(mgmt_class))
		mad_set_field(buf, 0, IB_VEND2_OUI_F, rpc->oui);
	return (char *)buf + IB_MAD_SIZE;
}

/* Writes the destination into the umad header. */
static void address_encode(void *umad, int mgmt_class, const ib_portid_t *to)
{
	struct ib_mad_addr grh = {.grh_present = 1, .hop_limit = 0xff};

	if (mgmt_class == IB_SMI_CLASS)
		umad_set_addr(umad, to->lid, to->qp, 0, 0);
	else if (mgmt_class != IB_SMI_DIRECT_CLASS)
		umad_set_addr(umad, to->lid, to->qp, to->sl, to->qkey);
	else if (to->drpath.drslid != PERMISSIVE_LID && to->lid > 0)
		umad_set_addr(umad, to->lid, 0, 0,
			      0); /* by LID to where the directed part begins */
	else
		umad_set_addr(umad, PERMISSIVE_LID, 0, 0, 0);

	if (to->grh_present && !class_is_smi(mgmt_class)) {
		memcpy(grh.gid, to->gid, sizeof grh.gid);
		umad_set_grh(umad, &grh);
	} else {
		umad_set_grh(umad, NULL);
	}
	umad_set_pkey(umad, class_is_smi(mgmt_class) ? 0 : (int)to->pkey_idx);
}

/* Returns the MAD's length, 256, or -1. */
EXPORT int mad_build_pkt(void *umad, ib_rpc_t *rpc, ib_portid_t *dport, ib_rmpp_hdr_t *rmpp,
			 void *data)
{
	int mgmt_class = rpc->mgtclass & 0xff;
	char *mad = umad_get_mad(umad);
	char *end;

	address_encode(umad, mgmt_class, dport);
	end = mad_encode(mad, rpc, mgmt_class == IB_SMI_DIRECT_CLASS ? &dport->drpath : NULL, data);
	if (!end)
		return -1;
	if (rmpp && !class_is_smi(mgmt_class)) {
		mad_set_field(mad, 0, IB_SA_RMPP_VERS_F, 1);
		mad_set_field(mad, 0, IB_SA_RMPP_TYPE_F, rmpp->type);
		mad_set_field(mad, 0, IB_SA_RMPP_RESP_F, RESPONSE_TIME_NONE);
		mad_set_field(mad, 0, IB_SA_RMPP_FLAGS_F, rmpp->flags);
		mad_set_field(mad, 0, IB_SA_RMPP_STATUS_F, rmpp->status);
		mad_set_field(mad, 0, IB_SA_RMPP_D1_F, rmpp->d1.u);
		mad_set_field(mad, 0, IB_SA_RMPP_D2_F, rmpp->d2.u);
	}
	return (int)(end - mad);
}
