/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers and layouts of <rdma/rdma_cma.h> and <infiniband/ib.h>, which belong to the programs'
 * library and aren't needed to build the daemon. */
#ifndef VERBENA_DAEMON_CM_CM_NUMBERS_H
#define VERBENA_DAEMON_CM_CM_NUMBERS_H

#include <stdint.h>

/* enum rdma_cm_event_type */
enum cm_report {
	REPORT_ADDR_RESOLVED,
	REPORT_ADDR_ERROR,
	REPORT_ROUTE_RESOLVED,
	REPORT_ROUTE_ERROR,
	REPORT_CONNECT_REQUEST,
	REPORT_CONNECT_RESPONSE,
	REPORT_CONNECT_ERROR,
	REPORT_UNREACHABLE,
	REPORT_REJECTED,
	REPORT_ESTABLISHED,
	REPORT_DISCONNECTED,
	REPORT_DEVICE_REMOVAL,
	REPORT_MULTICAST_JOIN,
	REPORT_MULTICAST_ERROR,
	REPORT_ADDR_CHANGE,
	REPORT_TIMEWAIT_EXIT,
};

enum { CM_AF_IB = 27 };

/* struct sockaddr_ib; network order but for the family. */
struct cm_sockaddr_ib {
	uint16_t family, pkey;
	uint32_t flow_info;
	uint8_t gid[16];
	uint64_t service_id, service_mask, scope;
};

#endif
