/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's keys for a region of any kind: when it is made, and when the process returns to a
 * new daemon. See mr.h. No state. */
#include "client/daemon.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"

int mr_ask_keys(struct daemon_conn *conn, const struct mr *mr, struct ib_uverbs_reg_mr_resp *resp)
{
	uint32_t pd = pd_of(mr->ibv.pd)->handle;

	if (mr->null_region)
		return daemon_alloc_null_mr(conn, pd, resp);
	if (mr->dm)
		return daemon_reg_dm_mr(conn,
					&(struct proto_reg_dm_mr){.pd = pd,
								  .dm = mr->dm,
								  .offset = mr->dm_offset,
								  .length = mr->ibv.length,
								  .access = mr->access},
					resp);
	return daemon_reg_mr(conn, pd, mr->base, mr->ibv.length, mr->iova, mr->access, mr->reach,
			     resp);
}
