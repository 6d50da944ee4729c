/* SPDX-License-Identifier: BSD-2-Clause */
/* The header in front of a MAD: its address and what became of it. Plain memory, no state. */
#include "umad/debug.h"

#include "base/export.h"

#include <endian.h>

static int debug_level;

EXPORT int umad_debug(int level)
{
	if (level >= 0)
		debug_level = level;
	return debug_level;
}

/* Always the form with a P_Key index. */
EXPORT size_t umad_size(void)
{
	return sizeof(struct ib_user_mad);
}

EXPORT void *umad_get_mad(void *umad)
{
	return ((struct ib_user_mad *)umad)->data;
}

EXPORT ib_mad_addr_t *umad_get_mad_addr(void *umad)
{
	return &((struct ib_user_mad *)umad)->addr;
}

EXPORT int umad_status(void *umad)
{
	return (int)((struct ib_user_mad *)umad)->status;
}

/* The address that is given has its flow label in host order. */
EXPORT int umad_set_grh(void *umad, void *mad_addr)
{
	ib_mad_addr_t *to = umad_get_mad_addr(umad);
	const ib_mad_addr_t *from = mad_addr;

	to->grh_present = from ? 1 : 0;
	if (!from)
		return 0;
	to->ib_gid = from->ib_gid;
	to->flow_label = htobe32((uint32_t)from->flow_label);
	to->hop_limit = from->hop_limit;
	to->traffic_class = from->traffic_class;
	return 0;
}

EXPORT int umad_set_addr_net(void *umad, __be16 dlid, __be32 dqp, int sl, __be32 qkey)
{
	ib_mad_addr_t *to = umad_get_mad_addr(umad);

	to->lid = dlid;
	to->qpn = dqp;
	to->sl = (uint8_t)sl;
	to->qkey = qkey;
	return 0;
}

EXPORT int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey)
{
	return umad_set_addr_net(umad, htobe16((uint16_t)dlid), htobe32(dqp), sl, htobe32(qkey));
}

EXPORT int umad_set_pkey(void *umad, int pkey_index)
{
	umad_get_mad_addr(umad)->pkey_index = (uint16_t)pkey_index;
	return 0;
}

EXPORT int umad_get_pkey(void *umad)
{
	return umad_get_mad_addr(umad)->pkey_index;
}

EXPORT void umad_addr_dump(ib_mad_addr_t *addr)
{
	char gid[2 * sizeof addr->gid + 1];

	for (size_t i = 0; i < sizeof addr->gid; i++)
		snprintf(gid + 2 * i, 3, "%02x", addr->gid[i]);
	UMAD_WARN("qpn %d qkey 0x%x lid %u sl %d\n"
		  "grh_present %d gid_index %d hop_limit %d traffic_class %d flow_label 0x%x "
		  "pkey_index 0x%x\n"
		  "Gid 0x%s",
		  be32toh(addr->qpn), be32toh(addr->qkey), be16toh(addr->lid), addr->sl,
		  addr->grh_present, addr->gid_index, addr->hop_limit, addr->traffic_class,
		  addr->flow_label, addr->pkey_index, gid);
}

EXPORT void umad_dump(void *umad)
{
	const struct ib_user_mad *packet = umad;

	UMAD_WARN("agent id %d status %x timeout %d", packet->agent_id, packet->status,
		  packet->timeout_ms);
	umad_addr_dump(umad_get_mad_addr(umad));
}
