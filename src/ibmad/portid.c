/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports and directed routes as text, and back. */
#include "ibmad/ibmad.h"
#include "ibmad/text.h"

#include "base/export.h"

#include <string.h>

/* The port by which a directed route enters its last hop; 0: the route is empty; -1: a LID leads.
 */
EXPORT int portid2portnum(ib_portid_t *portid)
{
	if (portid->lid > 0)
		return -1;
	return portid->drpath.cnt ? portid->drpath.p[portid->drpath.cnt - 1] : 0;
}

EXPORT char *drpath2str(ib_dr_path_t *path, char *dstr, size_t dstr_size)
{
	struct text text = text_begin(dstr, (int)dstr_size);

	text_append(&text, "slid %u; dlid %u; %d", path->drslid, path->drdlid, path->p[0]);
	for (int i = 1; i <= path->cnt && i < IB_SUBNET_PATH_HOPS_MAX; i++)
		text_append(&text, ",%d", path->p[i]);
	return dstr;
}

EXPORT char *portid2str(ib_portid_t *portid)
{
	static _Thread_local char buf[1024];
	struct text text = text_begin(buf, sizeof buf);
	char gid[INET6_ADDRSTRLEN];

	if (portid->lid > 0) {
		text_append(&text, "Lid %d", portid->lid);
		if (portid->grh_present && inet_ntop(AF_INET6, portid->gid, gid, sizeof gid))
			text_append(&text, " Gid %s", gid);
		if (!portid->drpath.cnt)
			return buf;
		text_append(&text, " ");
	}
	text_append(&text, "DR path ");
	drpath2str(&portid->drpath, text.at, text.room);
	return buf;
}

/* Reads "0,1,3". Returns the number of hops, one less than the numbers; -1: no route. */
EXPORT int str2drpath(ib_dr_path_t *path, char *routepath, int drslid, int drdlid)
{
	const char *at = routepath;

	path->drdlid = drdlid ? drdlid : 0xffff;
	path->drslid = drslid ? drslid : 0xffff;
	path->cnt = -1;
	while (at && *at) {
		if (path->cnt + 1 >= IB_SUBNET_PATH_HOPS_MAX) {
			path->cnt = -1;
			return -1;
		}
		path->p[++path->cnt] = (uint8_t)atoi(at);
		at = strchr(at, ',');
		if (at)
			at++;
	}
	return path->cnt;
}
