/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A fabric of InfiniBand switches and channel adapters: their management agents (SMA, PMA, CC),
 * the ways of datagrams and data through them, and faults. It does no I/O, reads no clock, starts
 * no threads and allocates no memory: its state is in tables in memory that the caller brings
 * (tables.h), times are arguments, in milliseconds of a clock that doesn't go back, and what
 * reaches an agent of a program goes to a function of the caller's.
 *
 *   fabric_layout(), fabric_build()   from a plan (a topology) to tables
 *   fabric_open()                     tables that another process left behind
 *   fabric_send()                     a management datagram from a port
 *   fabric_expire()                   traps that are due
 *   fabric_*_set()                    faults, and what `verbena fabric` changes
 *   fabric_route_find()                      where a packet of data goes, by the tables (route.h)
 *
 * One thread at a time may use a fabric. `deliver` and `event` must not call back: the caller
 * queues what it gets.
 */
#ifndef VERBENA_FABRIC_FABRIC_H
#define VERBENA_FABRIC_FABRIC_H

#include "fabric/tables.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_MAD_BYTES 256u

/* Plans ---------------------------------------------------------------------------------------- */

struct fabric_plan_node {
	const char *name;	 /* unique */
	const char *description; /* NodeDescription; NULL: the name */
	uint64_t guid;		 /* of the node; 0: the next free one of its kind */
	uint64_t system_guid;	 /* 0: the node's */
	uint64_t port_guid;	 /* of port 1 (a switch: port 0); 0: follows from the node's */
	uint32_t vendor_id, revision;
	uint16_t device_id;
	uint8_t type;	     /* enum fabric_node_type */
	uint8_t ports;	     /* 1 to FABRIC_PORTS_MAX */
	bool has_base_port0; /* a switch whose port 0 isn't an enhanced one */
};

/* What a lane carries, as PortInfo has it. A faster one has the bits of the slower kinds, too. */
struct fabric_speed {
	uint8_t basic; /* LinkSpeedActive: 1 SDR, 2 DDR, 4 QDR; 0: follows from the others */
	uint8_t ext;   /* LinkSpeedExtActive: 1 FDR, 2 EDR, 4 HDR, 8 NDR */
	uint8_t ext2;  /* LinkSpeedExtActive2: 1 XDR */
};

/* A cable. Each port is in one at most. */
struct fabric_plan_cable {
	uint32_t node[2]; /* indexes of nodes */
	uint8_t port[2];
	uint8_t width;		   /* LinkWidthActive: 1 1x, 2 4x, 4 8x, 8 12x, 16 2x; 0: 4x */
	struct fabric_speed speed; /* all 0: HDR */
	uint8_t mtu;		   /* MTUCap of both ports: 1 to 5 (256 to 4096); 0: 5 */
	uint32_t delay_ns;	   /* added to what arrives at either end */
};

struct fabric_plan_ip {
	uint32_t node;
	uint8_t port; /* of an adapter; of a switch: 0 */
	struct fabric_ip ip;
};

struct fabric_plan {
	const char *title;
	const struct fabric_plan_node *nodes;
	const struct fabric_plan_cable *cables;
	const struct fabric_plan_ip *ips;
	uint32_t node_count, cable_count, ip_count;
	uint32_t first_node; /* where programs attach that name no node */
};

/* Why a plan can't be built. `text` names nodes and ports. */
struct fabric_refusal {
	char text[256];
};

/* The bytes of memory that the plan's tables take, a multiple of the page size; 0: refused. */
size_t fabric_layout(const struct fabric_plan *plan, struct fabric_refusal *refusal);

/* The fabric ----------------------------------------------------------------------------------- */

/* Where a datagram comes from or goes to. LIDs, QPs and keys are in host order. */
struct fabric_address {
	uint16_t source, destination; /* LIDs; 0xffff: the permissive one */
	uint32_t source_qp, destination_qp;
	uint32_t qkey;
	uint16_t pkey_index; /* of the port that sends, or that receives */
	uint8_t sl;
	bool has_grh;
	uint8_t grh[40]; /* flow label, class, hop limit and GIDs as in a GRH */
};

enum fabric_event {
	EVENT_PORT_ACTIVE,
	EVENT_PORT_ERROR,
	EVENT_LID_CHANGE,
	EVENT_SM_CHANGE,
	EVENT_CLIENT_REREGISTER,
	EVENT_PKEY_CHANGE,
	EVENT_GID_CHANGE,
};

/* A datagram on its way. */
struct fabric_datagram {
	struct fabric_address address;
	uint32_t port;	   /* where it is: the port that sends it, or by which it came */
	uint64_t delay_ns; /* of the cables that it has crossed, still to be waited for */
	uint16_t pkey;	   /* of a datagram to QP 1 */
	uint8_t mad[FABRIC_MAD_BYTES];
};

struct fabric_functions {
	/* A datagram that no management agent of the fabric takes: it is for a program's agent. */
	void (*deliver)(void *context, uint32_t port, const struct fabric_address *from,
			const uint8_t *mad);
	/* A datagram has come to a node, `delay_ns` too early: the caller copies it and calls
	 * fabric_arrive() then. Never more than a second for each cable. */
	void (*postpone)(void *context, const struct fabric_datagram *datagram, uint64_t delay_ns);
	/* A datagram leaves `egress` for `ingress`, while the fabric's `is_tapped` is set. */
	void (*tap)(void *context, const struct fabric_datagram *datagram, uint32_t egress,
		    uint32_t ingress, uint8_t vl);
	/* What verbs programs on this end port are to be told. */
	void (*event)(void *context, uint32_t port, enum fabric_event event);
	/* A random number for the faults. */
	uint32_t (*random)(void *context);
};

struct fabric {
	const struct fabric_functions *functions;
	void *context;
	struct fabric_header *header;
	struct fabric_node *nodes;
	struct fabric_port *ports;
	struct fabric_counters *counters;
	struct fabric_trap *traps;
	uint16_t *pkeys;
	uint64_t *guids;
	uint8_t *vlarb;
	uint8_t *sl_to_vl;
	uint8_t *unicast;
	uint16_t *multicast;
	struct fabric_congestion *congestion;
	uint32_t *sl_words;
	uint16_t *lane_waits;
	struct fabric_sampler *samplers;
	struct fabric_ip *ips;
	const char *names;
	bool is_tapped;	 /* `tap` is to be called; false at first */
	uint64_t now_ms; /* of the call under way */
	uint64_t
		first_ms; /* nothing is due before: the least of what traps and samplers wait for */
};

/* Writes the tables of a plan that fabric_layout() accepted into zeroed memory, and opens them.
 * All cables come up: ports are in state Init. */
void fabric_build(struct fabric *fabric, const struct fabric_functions *functions, void *context,
		  void *memory, const struct fabric_plan *plan);

/* Opens tables that a process wrote which may have died at any instruction. Returns 0, or -EINVAL
 * if they aren't complete or another layout's. */
int fabric_open(struct fabric *fabric, const struct fabric_functions *functions, void *context,
		void *memory, size_t bytes);

/*
 * The same for a reader, which may have mapped the tables read-only while their process writes:
 * only functions that take a `const struct fabric` may be called then. Which rows there are, what
 * they are called and how they are cabled never changes, so that it is checked here once.
 */
int fabric_view(struct fabric *fabric, const void *memory, size_t bytes);

/* Finding -------------------------------------------------------------------------------------- */

const char *fabric_node_name(const struct fabric *fabric, uint32_t node);
/* The row of a node's port, or FABRIC_NONE. An adapter has no port 0. */
uint32_t fabric_port_row(const struct fabric *fabric, uint32_t node, unsigned int number);
/* The end port that stands for a port: itself, or port 0 of its switch. */
uint32_t fabric_end_port(const struct fabric *fabric, uint32_t port);

/* GID `index` of an end port; one that it hasn't got: GID 0. */
void fabric_gid_get(const struct fabric *fabric, uint32_t end_port, unsigned int index,
		    uint8_t gid[16]);

/* The IP address of an end port; NULL: none. The end port that has the address (IPv4: mapped), or
 * FABRIC_NONE. The end port that has the LID among its own, likewise. */
const struct fabric_ip *fabric_ip_get(const struct fabric *fabric, uint32_t end_port);
uint32_t fabric_ip_find(const struct fabric *fabric, const uint8_t address[16]);
uint32_t fabric_lid_find(const struct fabric *fabric, uint16_t lid);

/* Datagrams ------------------------------------------------------------------------------------ */

/*
 * A port's QP 0 or QP 1 sends a datagram: to an agent of the fabric, whose answer comes back
 * before this returns, or to `deliver`. `to->source` is ignored: it follows from the port.
 * A datagram that can't get there is lost, and counted where it was discarded.
 */
void fabric_send(struct fabric *fabric, uint32_t port, const struct fabric_address *to,
		 const uint8_t *mad, uint64_t now_ms);

/* A datagram that was postponed is there now. */
void fabric_arrive(struct fabric *fabric, const struct fabric_datagram *datagram, uint64_t now_ms);

/* Sends the traps, and takes the samples, that are due; fabric_deadline(): when that is next,
 * UINT64_MAX: nothing is under way. */
void fabric_expire(struct fabric *fabric, uint64_t now_ms);
uint64_t fabric_deadline(const struct fabric *fabric);

/* What `verbena fabric` changes ---------------------------------------------------------------- */

/* A cable is cut or mended. -ENOTCONN: the port has none. */
int fabric_cable_set(struct fabric *fabric, uint32_t port, bool is_cut, uint64_t now_ms);
/*
 * The port's cable carries no more than this from now on, and the link trains again: it comes up
 * with the highest width and speed that are enabled and that the cable carries. `width` 0: all
 * again. -ENOTCONN: there is no cable; -EINVAL: no such width, or the ports can't do that.
 */
int fabric_rate_set(struct fabric *fabric, uint32_t port, uint8_t width, struct fabric_speed speed,
		    uint64_t now_ms);
/* A node loses its power, or gets it back with empty tables. */
void fabric_power_set(struct fabric *fabric, uint32_t node, bool is_on, uint64_t now_ms);
/* A program opened or closed the port's issm file. */
void fabric_issm_set(struct fabric *fabric, uint32_t port, bool is_open, uint64_t now_ms);
/* A node's description, as the kernel's node_desc: trap 144 follows. */
void fabric_description_set(struct fabric *fabric, uint32_t node, const char *text,
			    uint64_t now_ms);
/* A node's SystemImageGUID: trap 145 follows. */
void fabric_system_guid_set(struct fabric *fabric, uint32_t node, uint64_t guid, uint64_t now_ms);
/* Adds to a counter as the port itself would. */
void fabric_error_add(struct fabric *fabric, uint32_t port, enum fabric_error error,
		      uint32_t count);
/* Ticks for which a port had data on a lane, and no credits. */
void fabric_wait_add(struct fabric *fabric, uint32_t port, uint8_t vl, uint32_t ticks);
void fabric_counters_clear(struct fabric *fabric, uint32_t port);
/* Data has come in by a port: it is Active now if it was Armed, and its peer is. */
void fabric_data_came(struct fabric *fabric, uint32_t port);
/* An end port dropped a packet for its P_Key, or else for its Q_Key: counts that and sends the trap
 * 257 or 258. */
void fabric_violation_add(struct fabric *fabric, uint32_t end_port, bool is_pkey, uint32_t key,
			  const struct fabric_address *from, uint64_t now_ms);
/* A fault changed what routes report: epoch. */
void fabric_routes_changed(struct fabric *fabric);

#endif
