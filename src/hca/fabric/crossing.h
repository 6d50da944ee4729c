/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a packet's way crosses a port of the fabric, for captures of that port (verbena capture
 * --port). Pure functions of the tables. */
#ifndef VERBENA_HCA_FABRIC_CROSSING_H
#define VERBENA_HCA_FABRIC_CROSSING_H

#include "fabric/route.h"

struct crossing {
	bool is_there;
	bool is_out; /* it leaves by the port; else it comes in */
	uint8_t vl;
};

/* `port`: its row. `query.destination` may be a group's. */
struct crossing crossing_find(const struct fabric *tables, const struct route_query *query,
			      uint32_t port);

#endif
