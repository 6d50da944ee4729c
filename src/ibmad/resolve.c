/* SPDX-License-Identifier: BSD-2-Clause */
/* From what names a port (the SM, oneself, a GUID, a GID, a string) to a LID or a directed route.
 */
#include "ibmad/ibmad.h"

#include "base/export.h"

#include <errno.h>
#include <string.h>

EXPORT int ib_resolve_smlid_via(ib_portid_t *sm_id, __attribute__((unused)) int timeout,
				const struct ibmad_port *srcport)
{
	uint8_t portinfo[IB_SMP_DATA_SIZE];
	ib_portid_t self = {0};
	int lid;

	memset(sm_id, 0, sizeof *sm_id);
	if (!smp_query_via(portinfo, &self, IB_ATTR_PORT_INFO, 0, 0, srcport))
		return -1;
	lid = mad_get_field(portinfo, 0, IB_PORT_SMLID_F);
	if (!IB_LID_VALID(lid)) {
		errno = ENXIO;
		return -1;
	}
	sm_id->sl = mad_get_field(portinfo, 0, IB_PORT_SMSL_F);
	return ib_portid_set(sm_id, lid, 0, 0);
}

EXPORT int ib_resolve_smlid(ib_portid_t *sm_id, int timeout)
{
	return ib_resolve_smlid_via(sm_id, timeout, &default_port);
}

/* Makes sure that `sm_id` leads to the SM. */
static int sm_resolve(ib_portid_t *sm_id, int timeout, const struct ibmad_port *port)
{
	return IB_LID_VALID(sm_id->lid) ? 0 : ib_resolve_smlid_via(sm_id, timeout, port);
}

EXPORT int ib_resolve_gid_via(ib_portid_t *portid, ibmad_gid_t gid, ib_portid_t *sm_id, int timeout,
			      const struct ibmad_port *srcport)
{
	uint8_t record[IB_SA_DATA_SIZE] = {0};
	ib_portid_t own_sm = {0};

	if (!sm_id)
		sm_id = &own_sm;
	if (sm_resolve(sm_id, timeout, srcport) < 0)
		return -1;
	portid->lid = ib_path_query_via(srcport, gid, gid, sm_id, record);
	return portid->lid < 0 ? -1 : 0;
}

EXPORT int ib_resolve_guid_via(ib_portid_t *portid, uint64_t *guid, ib_portid_t *sm_id, int timeout,
			       const struct ibmad_port *srcport)
{
	uint8_t record[IB_SA_DATA_SIZE] = {0};
	uint8_t nodeinfo[IB_SMP_DATA_SIZE];
	ib_portid_t own_sm = {0};
	ib_portid_t self = {0};
	ibmad_gid_t own_gid;

	if (!sm_id)
		sm_id = &own_sm;
	if (sm_resolve(sm_id, timeout, srcport) < 0)
		return -1;
	if (!smp_query_via(nodeinfo, &self, IB_ATTR_NODE_INFO, 0, 0, srcport))
		return -1;
	mad_set_field64(own_gid, 0, IB_GID_PREFIX_F, IB_DEFAULT_SUBN_PREFIX);
	mad_set_field64(own_gid, 0, IB_GID_GUID_F,
			mad_get_field64(nodeinfo, 0, IB_NODE_PORT_GUID_F));

	if (!mad_get_field64(portid->gid, 0, IB_GID_PREFIX_F))
		mad_set_field64(portid->gid, 0, IB_GID_PREFIX_F, IB_DEFAULT_SUBN_PREFIX);
	if (guid)
		mad_set_field64(portid->gid, 0, IB_GID_GUID_F, *guid);
	portid->lid = ib_path_query_via(srcport, own_gid, portid->gid, sm_id, record);
	if (portid->lid < 0)
		return -1;
	portid->sl = mad_get_field(record, 0, IB_SA_PR_SL_F);
	return 0;
}

/* A LID, and what follows its number. */
static int lid_parse(ib_portid_t *portid, const char *text, char **rest)
{
	long lid = strtol(text, rest, 0);

	if (!IB_LID_VALID(lid)) {
		errno = EINVAL;
		return -1;
	}
	return ib_portid_set(portid, (int)lid, 0, 0);
}

static int route_parse(ib_portid_t *portid, char *text, int drslid)
{
	if (str2drpath(&portid->drpath, text, drslid, 0) >= 0)
		return 0;
	errno = EINVAL;
	return -1;
}

/* "LID,route": by LID to a switch, and on from there by a directed route that begins here. */
static int combined_parse(ib_portid_t *portid, char *text, const struct ibmad_port *port)
{
	ib_portid_t self = {0};
	char *rest;

	if (lid_parse(portid, text, &rest) < 0)
		return -1;
	if (ib_resolve_self_via(&self, NULL, NULL, port) < 0)
		return -1;
	return route_parse(portid, *rest ? rest + 1 : rest, self.lid);
}

EXPORT int ib_resolve_portid_str_via(ib_portid_t *portid, char *addr_str, enum MAD_DEST dest,
				     ib_portid_t *sm_id, const struct ibmad_port *srcport)
{
	ibmad_gid_t gid;
	uint64_t guid;

	memset(portid, 0, sizeof *portid);
	switch (dest) {
	case IB_DEST_LID:
		return lid_parse(portid, addr_str, NULL);
	case IB_DEST_DRPATH:
		return route_parse(portid, addr_str, 0);
	case IB_DEST_GUID:
		guid = strtoull(addr_str, NULL, 0);
		if (guid)
			return ib_resolve_guid_via(portid, &guid, sm_id, 0, srcport);
		break;
	case IB_DEST_DRSLID:
		return combined_parse(portid, addr_str, srcport);
	case IB_DEST_GID:
		if (inet_pton(AF_INET6, addr_str, gid) > 0)
			return ib_resolve_gid_via(portid, gid, sm_id, 0, srcport);
		break;
	default:
		IBWARN("bad dest_type %d", dest);
	}
	errno = EINVAL;
	return -1;
}

EXPORT int ib_resolve_portid_str(ib_portid_t *portid, char *addr_str, enum MAD_DEST dest,
				 ib_portid_t *sm_id)
{
	return ib_resolve_portid_str_via(portid, addr_str, dest, sm_id, &default_port);
}

EXPORT int ib_resolve_self_via(ib_portid_t *portid, int *portnum, ibmad_gid_t *gid,
			       const struct ibmad_port *srcport)
{
	uint8_t nodeinfo[IB_SMP_DATA_SIZE];
	uint8_t portinfo[IB_SMP_DATA_SIZE];
	ib_portid_t self = {0};

	if (!smp_query_via(nodeinfo, &self, IB_ATTR_NODE_INFO, 0, 0, srcport))
		return -1;
	if (!smp_query_via(portinfo, &self, IB_ATTR_PORT_INFO, 0, 0, srcport))
		return -1;
	portid->lid = mad_get_field(portinfo, 0, IB_PORT_LID_F);
	portid->sl = mad_get_field(portinfo, 0, IB_PORT_SMSL_F);
	if (portnum)
		*portnum = mad_get_field(nodeinfo, 0, IB_NODE_LOCAL_PORT_F);
	if (gid) {
		mad_set_field64(*gid, 0, IB_GID_PREFIX_F,
				mad_get_field64(portinfo, 0, IB_PORT_GID_PREFIX_F));
		mad_set_field64(*gid, 0, IB_GID_GUID_F,
				mad_get_field64(nodeinfo, 0, IB_NODE_PORT_GUID_F));
	}
	return 0;
}

EXPORT int ib_resolve_self(ib_portid_t *portid, int *portnum, ibmad_gid_t *gid)
{
	return ib_resolve_self_via(portid, portnum, gid, &default_port);
}
