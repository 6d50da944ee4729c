/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A subnet manager with its subnet administration, as a state machine: it does no I/O, reads no
 * clock and starts no threads. Times are arguments, in milliseconds of a clock that doesn't go
 * back; datagrams go out through a function of the caller's and come in by sm_receive().
 *
 *   sm_create(), sm_start()   a manager for one port
 *   sm_receive()              a datagram that reached an agent of the port
 *   sm_expire()               what is due; sm_deadline() says when that is next
 *
 * How it works: a sweep discovers the subnet by directed routes with many requests under way at
 * once, decides with other managers which one is the master, gives LIDs, writes partition keys and
 * forwarding tables (only blocks that differ from what was written before), and takes all ports to
 * Active. Traps, and switches that report a change when they are asked now and then, start the next
 * one. In between it answers the administration's queries from the tables of the last sweep.
 *
 * Memory is allocated by malloc(); a manager that gets none gives up the sweep, or answers that it
 * has no resources. One thread at a time may use a manager. `send` must not call back.
 */
#ifndef VERBENA_SM_SM_H
#define VERBENA_SM_SM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SM_MAD_BYTES 256u
/* The longest answer of the subnet administration; what would be longer is refused. */
#define SM_MESSAGE_BYTES_MAX (8u << 20)
#define SM_WINDOW_MAX 1024u

/* The other end of a datagram. Numbers are in host order. */
struct sm_peer {
	uint16_t lid; /* 0xffff: by the directed route in the datagram */
	uint32_t qpn; /* 0 or 1, or of the subscriber to notices */
	uint32_t qkey;
	uint16_t pkey_index;
	uint8_t sl;
	bool has_grh;
	uint8_t gid[16];
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
};

struct sm_functions {
	/* Sends `bytes` of a datagram, or of a long message with an RMPP header. `timeout_ms`: how
	 * long a response is awaited; 0: there is none. */
	void (*send)(void *context, const struct sm_peer *to, const uint8_t *mad, size_t bytes,
		     uint32_t timeout_ms);
	/* A sentence for the log. */
	void (*say)(void *context, const char *text);
};

/* SMInfo's numbers. */
enum sm_state { SM_NOT_ACTIVE = 0, SM_DISCOVERING = 1, SM_STANDBY = 2, SM_MASTER = 3 };

enum sm_routing {
	SM_MIN_HOP, /* all shortest paths, balanced */
	SM_UP_DOWN, /* paths that never go up again after they went down: free of deadlock */
};

struct sm_options {
	uint8_t priority; /* 0 to 15 */
	enum sm_routing routing;
	uint32_t window;	/* requests under way at once; 0: 64 */
	uint32_t timeout_ms;	/* of a request; 0: 200 */
	uint32_t retries;	/* further copies of a request */
	uint32_t sweep_ms;	/* between light sweeps; 0: 10,000 */
	uint32_t poll_ms;	/* between a standby's questions to the master; 0: 2,000 */
	uint32_t poll_failures; /* that make the master dead; 0: 3 */
	uint64_t m_key;		/* that ports get; 0: none */
	uint16_t m_key_lease_s; /* until a port forgets its protection; 0: never */
	uint8_t m_key_protect;	/* 0 to 3: what is refused without the key */
	uint8_t enforce;	/* SM_ENFORCE_IN and _OUT: partitions, on switch ports */
	bool has_qos;		/* SL to VL tables and VL arbitration are written */
	uint8_t lmc;		/* 0 to 7: each port of an adapter gets 2^lmc LIDs */
};

/* PortInfo's bits: switch ports refuse packets from, and to, the end port behind them. */
enum { SM_ENFORCE_IN = 0x08, SM_ENFORCE_OUT = 0x04 };

/* Who is a member of a partition. */
enum sm_member_kind {
	SM_MEMBER_PORT, /* the one with the GUID */
	SM_MEMBER_ALL,
	SM_MEMBER_ADAPTERS,
	SM_MEMBER_SWITCHES,
	SM_MEMBER_ROUTERS,
	SM_MEMBER_SELF, /* the manager's port */
};

/* IPoIB's group of a partition. */
struct sm_ipoib {
	uint16_t pkey; /* without bit 15 */
	uint8_t mtu, rate, level, scope, traffic_class;
	uint32_t qkey, flow_label;
};

#define SM_LEVELS 16u
#define SM_LANES 15u

/* Which lane a service level has, and the weights of lanes (0: none) at low and high priority. */
struct sm_qos_lanes {
	uint8_t lane[SM_LEVELS];
	uint8_t low[SM_LANES], high[SM_LANES];
	uint8_t high_limit; /* of 4 KiB at high priority before others get a turn; 255: no limit */
};

/* Paths that agree with all that isn't 0 get the service level. */
struct sm_qos_rule {
	uint16_t pkey;
	uint64_t source, target; /* port GUIDs */
	bool has_class, has_service;
	uint16_t qos_class;
	uint64_t service_first, service_last;
	uint8_t level;
};

/* What a manager has done since it was created. */
struct sm_counts {
	uint64_t sweeps; /* also those of what changed: `partial_sweeps` */
	uint64_t partial_sweeps, light_sweeps, requests, repeats, timeouts, refused;
	uint64_t unicast_blocks, multicast_blocks;
	uint64_t queries; /* of the administration */
	uint64_t traps;
};

struct sm;

/* NULL: no memory. */
struct sm *sm_create(const struct sm_functions *functions, void *context,
		     const struct sm_options *options);
void sm_free(struct sm *sm);

/* The first of the 2^lmc LIDs that an end port had. Before sm_start(). */
void sm_lid_restore(struct sm *sm, uint64_t guid, uint16_t lid, uint8_t lmc);
/* Calls `visit` for all LIDs that ports have or had, if one was given since the last call. */
void sm_lids_save(struct sm *sm,
		  void (*visit)(void *context, uint64_t guid, uint16_t lid, uint8_t lmc),
		  void *context);

/* Settings, before sm_start(). All return 0, -ENOMEM, or -EINVAL: it can't be so. */

/* Makes end ports members of a partition. `pkey` has bit 15 for full membership. Without any call,
 * all ports are full members of the default partition; after one, limited members, but for the
 * manager's own port and for what is said of 0x7fff. */
int sm_partition_add(struct sm *sm, uint16_t pkey, enum sm_member_kind kind, uint64_t guid);
/* Makes IPoIB's broadcast group of a partition, or gives it other properties. */
int sm_ipoib_add(struct sm *sm, const struct sm_ipoib *ipoib);
/* The first rule that agrees counts. */
int sm_qos_rule_add(struct sm *sm, const struct sm_qos_rule *rule);
/* Lets the manager write SL to VL tables and VL arbitration. */
void sm_qos_lanes_set(struct sm *sm, const struct sm_qos_lanes *lanes);

void sm_start(struct sm *sm, uint64_t now_ms);
/* A datagram, or with RMPP a whole message, that came for QP 0 or 1 of the port. */
void sm_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad, size_t bytes,
		uint64_t now_ms);
void sm_expire(struct sm *sm, uint64_t now_ms);
uint64_t sm_deadline(const struct sm *sm);
/* Sweeps the whole subnet as soon as what is under way has ended. */
void sm_sweep_request(struct sm *sm, uint64_t now_ms);

enum sm_state sm_state_get(const struct sm *sm);
const char *sm_state_text(enum sm_state state);
/* Whether the last sweep has ended without faults and nothing is under way. */
bool sm_is_settled(const struct sm *sm);
const struct sm_counts *sm_counts_get(const struct sm *sm);
/* Ports that answer, switches, and links of the last sweep. */
void sm_subnet_sizes(const struct sm *sm, uint32_t *ends, uint32_t *switches, uint32_t *links);

#endif
