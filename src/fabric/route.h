/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a packet goes, by the forwarding tables: pure functions that read tables only, also of
 * another process (tables.h, `epoch` says when a result is out of date).
 */
#ifndef VERBENA_FABRIC_ROUTE_H
#define VERBENA_FABRIC_ROUTE_H

#include "fabric/fabric.h"

#define ROUTE_HOPS_MAX 64u

/* Why a packet stops. The port that counts it is in struct fabric_route. */
enum route_result {
	ROUTE_OK,
	ROUTE_NO_LID,	      /* the source or destination LID isn't valid */
	ROUTE_NO_ENTRY,	      /* the table has no port for it, or one that isn't there */
	ROUTE_LOOPING,	      /* it would leave by the port by which it came */
	ROUTE_LOOP,	      /* more hops than a route may have */
	ROUTE_INACTIVE,	      /* the port isn't Active, or has no link */
	ROUTE_VL,	      /* no virtual lane for its SL */
	ROUTE_MTU,	      /* longer than a link on the way allows */
	ROUTE_PARTITION_XMIT, /* the egress port's partition enforcement */
	ROUTE_PARTITION_RCV,  /* the ingress port's */
	ROUTE_NOT_THERE,      /* it ends at a port that hasn't got the LID */
	ROUTE_OFF,	      /* a node without power */
	ROUTE_DROPPED,	      /* by a fault; no walk finds it, but packets are counted so */
	ROUTE_RESULTS,
};

struct route_query {
	uint32_t port;	      /* the end port that sends */
	uint16_t destination; /* LID */
	uint16_t pkey;	      /* for partition enforcement */
	uint8_t sl;
	uint8_t mtu;  /* of the packet, 1 to 5 (256 to 4096); 0: doesn't matter */
	bool is_vl15; /* management of the subnet: links in Init carry it, SLs don't matter */
};

/* A hop: out of `egress` by lane `vl` into `ingress`. Lane 15 has no service level. */
struct route_hop {
	uint32_t egress, ingress;
	uint8_t vl, sl;
};

struct fabric_route {
	enum route_result result;
	uint32_t end;	/* the end port that was reached, or where the packet stopped */
	uint32_t blame; /* the port that counts its loss; FABRIC_NONE: none does */
	uint8_t mtu;	/* the smallest on the way, 1 to 5 */
	bool is_lossy;	/* a fault on the way may drop packets */
	bool is_slow;	/* a fault on the way, `delay` or `rate`, takes data's time */
	bool is_arming; /* a port by which data comes in is Armed, so that data makes it Active */
	uint64_t delay_ns; /* sum of the delays of its cables */
	uint32_t hops;
	struct route_hop hop[ROUTE_HOPS_MAX];
};

/* Follows a unicast packet. Writes all of `route`. */
void fabric_route_find(const struct fabric *fabric, const struct route_query *query,
		       struct fabric_route *route);

/*
 * Follows a multicast packet through the switches' tables. `visit` is called for each hop, nearest
 * first, and returns false where the copy is lost; `reached` for each end port that gets a copy,
 * with the sum of the faults' delays on its way. The sender gets one if the switch that it is at
 * has it in the group. A switch without an entry uses its default multicast ports.
 */
struct route_visitor {
	bool (*visit)(void *context, const struct route_hop *hop);
	void (*reached)(void *context, uint32_t end_port, uint64_t delay_ns);
	void *context;
};
void route_multicast(const struct fabric *fabric, const struct route_query *query,
		     const struct route_visitor *visitor);

/* What a result means, in words for people. */
const char *route_result_text(enum route_result result);

/* Adds a message of data that took the route to the counters of its ports; `words` of 4 bytes. */
void route_count(struct fabric *fabric, const struct fabric_route *route, uint64_t packets,
		 uint64_t words);
/* The same for the hops of a multicast packet. */
void route_count_multicast(struct fabric *fabric, const struct fabric_route *route,
			   uint64_t packets, uint64_t words);
/* Counts packets that were lost as the result says. */
void route_count_loss(struct fabric *fabric, const struct fabric_route *route, uint32_t packets);

#endif
