/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share: the subnet's tables, requests, and the manager itself. */
#ifndef VERBENA_SM_INTERNAL_H
#define VERBENA_SM_INTERNAL_H

#include "fabric/octets.h"
#include "fabric/port_info.h"
#include "mad/header.h"
#include "sm/sm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SM_NONE UINT32_MAX /* no such row */
#define SM_HOPS_MAX 63u
#define SM_PKEY_BLOCK 32u
#define SM_UNICAST_BLOCK 64u
#define SM_MULTICAST_BLOCK 32u
#define SM_MULTICAST_LIDS 1024u /* groups that a subnet may have */
#define SM_POSITIONS 16u	/* masks of 16 ports each, in multicast tables */
#define SM_PREFIX 0xfe80000000000000ull
#define SM_LIFE_TIME 18 /* 4.096 us * 2^18, about a second: of packets and subnet timeouts */

enum {
	SMP_DESCRIPTION = 0x10,
	SMP_NODE_INFO = 0x11,
	SMP_SWITCH_INFO = 0x12,
	SMP_GUID_INFO = 0x14,
	SMP_PORT_INFO = 0x15,
	SMP_PKEYS = 0x16,
	SMP_SL_TO_VL = 0x17,
	SMP_ARBITRATION = 0x18,
	SMP_UNICAST = 0x19,
	SMP_MULTICAST = 0x1b,
	SMP_MANAGER = 0x20,
	SMP_NOTICE = 0x02,
};
enum { SMP_DATA = 64, SMP_INITIAL_PATH = 128, SMP_HOP_COUNT = 7, SMP_M_KEY = 24 };
enum { SMP_SOURCE_LID = 32, SMP_DESTINATION_LID = 34 };

enum { SM_CA = 1, SM_SWITCH = 2, SM_ROUTER = 3 };

enum { CAN_BE_SM = 1u << 1, CAN_TRAP = 1u << 3, CAN_REREGISTER = 1u << 25 };
enum { CAN_MULTICAST_TOP = 1u << 30 };

/* The subnet ----------------------------------------------------------------------------------- */

/* Of a P_Key table: 32 entries. */
struct sm_pkey_block {
	uint16_t keys[SM_PKEY_BLOCK];
	bool is_known;
};

struct sm_port {
	uint8_t info[INFO_BYTES]; /* PortInfo as the port last answered */
	uint32_t node;
	uint32_t peer; /* the port at the other end of the cable; SM_NONE: not known */
	uint8_t number;
	bool has_info;
	bool is_asked;		     /* what is behind it */
	bool is_fresh;		     /* it has answered in this sweep (change.c) */
	uint8_t *sl_to_vl;	     /* 8 bytes for each ingress port; NULL: not read */
	uint8_t *arbitration;	     /* 4 blocks of 64 bytes; NULL: not read */
	struct sm_pkey_block *pkeys; /* NULL: none is known */
	uint16_t pkey_blocks;
};

/* What a switch's tables hold, as far as this manager knows, and what they are to hold. It goes
 * from one sweep's subnet to the next. */
struct sm_tables {
	uint8_t *unicast; /* `blocks` of 64 LIDs */
	uint8_t *wanted;
	bool *is_known; /* by block */
	uint32_t blocks;
	uint16_t *multicast; /* [position][1,024]; NULL: none was written */
	bool multicast_known[SM_POSITIONS][SM_MULTICAST_LIDS / SM_MULTICAST_BLOCK];
};

/* A switch, or a port of an adapter: each has one LID. */
struct sm_node {
	uint64_t guid, port_guid, system_guid;
	uint8_t info[40]; /* NodeInfo */
	uint8_t description[64];
	uint8_t switch_info[20];
	uint8_t path[SM_HOPS_MAX + 1]; /* from the manager's port: [1] to [hops] */
	uint8_t hops;
	uint8_t type;
	uint8_t ports;	     /* of a switch, without port 0; of an adapter's port: 0 */
	uint8_t number;	     /* an adapter's port */
	uint8_t entry;	     /* the port by which it was found */
	uint32_t first_port; /* row of a switch's port 0, or of the adapter's port */
	uint32_t place;	     /* of a switch: in `switches` */
	uint16_t lid;	     /* that it is to have: the first of 2^lmc */
	uint8_t lmc;
	bool has_description;
	bool has_switch_info;
	bool is_lost;		  /* it stopped answering during the sweep */
	bool is_silent;		  /* it doesn't answer readings, which nothing depends on */
	bool is_rebooted;	  /* it hasn't got what the last sweep gave it */
	bool is_changed;	  /* it is to be looked at (change.c) */
	bool is_reached;	  /* a way leads to it (change.c) */
	struct sm_tables *tables; /* of a switch */
	uint8_t *guids;		  /* GUIDInfo, GUIDCap entries of 8 bytes; NULL: not read */
	uint32_t guids_known;	  /* a bit for each block of 8 */
};

struct sm_subnet {
	struct sm_node *nodes;
	struct sm_port *ports;
	uint32_t node_count, node_room, port_count, port_room;
	uint32_t *index; /* hash of port GUIDs: row + 1 */
	uint32_t index_room;
	uint32_t *switches; /* rows of nodes, by GUID */
	uint32_t switch_count;
	uint32_t *by_lid; /* row + 1 of a node; 0xC000 entries */
	uint16_t top_lid;
	uint32_t link_count;
	uint32_t faults;       /* requests that failed */
	uint32_t tree_root;    /* place of the switch where multicast trees begin */
	uint32_t *tree_order;  /* places of switches, nearest to the root first */
	uint32_t *tree_parent; /* by place: the row of the port that leads to the root */
	uint32_t tree_count;   /* switches in the tree */
};

struct sm_subnet *subnet_create(void);
void subnet_free(struct sm_subnet *subnet);
/* The row of the node with the port GUID, or SM_NONE. */
uint32_t subnet_find(const struct sm_subnet *subnet, uint64_t port_guid);
/* Adds a node by its NodeInfo; SM_NONE: no memory. */
uint32_t subnet_node_add(struct sm_subnet *subnet, const uint8_t info[40]);
/* The row of a node's port, or SM_NONE. */
uint32_t subnet_port(const struct sm_subnet *subnet, uint32_t node, unsigned int number);
uint32_t subnet_by_lid(const struct sm_subnet *subnet, uint16_t lid);
/* The node behind a port, or SM_NONE. */
uint32_t subnet_peer_node(const struct sm_subnet *subnet, uint32_t port);
/* The port that has the node's PortInfo as an end of a route. */
struct sm_port *subnet_end(const struct sm_subnet *subnet, uint32_t node);
/* The row of the switch's port to which an adapter's port is joined, or SM_NONE. */
uint32_t subnet_attachment(const struct sm_subnet *subnet, uint32_t node);
void sm_tables_free(struct sm_tables *tables);
/* Sorts the switches, and makes the table of LIDs. */
int subnet_close(struct sm_subnet *subnet);
/* Whether both ends of a port's cable can carry data. */
bool subnet_port_is_linked(const struct sm_subnet *subnet, uint32_t port);

/* How many LIDs the node has. */
static inline uint32_t sm_lid_count(const struct sm_node *node)
{
	return 1u << node->lmc;
}

static inline bool sm_node_has_lid(const struct sm_node *node, uint16_t lid)
{
	return node->lid && lid >= node->lid && lid - node->lid < (int)sm_lid_count(node);
}

static inline uint8_t sm_port_state(const struct sm_port *port)
{
	return octet_low(port->info[INFO_SPEED_SUPPORTED_STATE]);
}

static inline uint32_t sm_port_capabilities(const struct sm_port *port)
{
	return octets_get32(port->info + INFO_CAPABILITIES);
}

/* Requests ------------------------------------------------------------------------------------- */

enum sm_job_kind {
	JOB_NODE, /* NodeInfo of what is behind a port; node SM_NONE: the manager's own */
	JOB_SWITCH,
	JOB_SWITCH_CLEAR, /* takes the switch's notice of a change */
	JOB_PORT,
	JOB_MANAGER, /* SMInfo of a port that has a manager */
	JOB_PKEYS,
	JOB_PORT_SET,
	JOB_SWITCH_SET,
	JOB_UNICAST,
	JOB_MULTICAST,
	JOB_SL_TO_VL_SET,
	JOB_ARBITRATION_SET,
	JOB_ACTIVATE,
	JOB_LIGHT,
	JOB_POLL,
	JOB_HANDOVER,
	JOB_ACKNOWLEDGE,
	JOB_GUIDS_SET,
	/* Readings, see read.c. */
	JOB_DESCRIPTION,
	JOB_GUIDS,
	JOB_SL_TO_VL,
	JOB_ARBITRATION,
	JOBS,
};

struct sm_job {
	uint32_t node;
	uint16_t block; /* of a table, or another port */
	uint8_t port;
	uint8_t kind; /* enum sm_job_kind */
};

/* How a kind of request is made and what follows from it. */
struct sm_job_type {
	uint16_t attribute;
	uint8_t method;
	/* Writes modifier and data. False: it isn't needed any more. */
	bool (*build)(struct sm *sm, const struct sm_job *job, uint8_t *mad);
	void (*done)(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
	/* No answer came. NULL: the node counts as lost. */
	void (*failed)(struct sm *sm, const struct sm_job *job);
};

extern const struct sm_job_type sm_job_types[JOBS];

struct sm_slot {
	struct sm_job job;
	uint64_t deadline_ms;
	uint32_t tid; /* 0: free */
	uint32_t copies;
	uint32_t next, previous; /* of those under way, the oldest first; or free ones */
};

struct sm_requests {
	struct sm_slot *slots;
	uint32_t window, under_way;
	uint32_t first, last, first_free; /* SM_NONE: none */
	uint32_t serial;
	struct sm_job *queue; /* [head, head + count) modulo room */
	size_t head, count, room;
};

int requests_init(struct sm_requests *requests, uint32_t window);
void requests_free(struct sm_requests *requests);
/* Queues a request; what can't be queued counts as a fault of the sweep. */
void job_add(struct sm *sm, enum sm_job_kind kind, uint32_t node, unsigned int port,
	     unsigned int block);
/* Sends what the window allows. */
void jobs_send(struct sm *sm);
/* Whether the datagram was an answer that somebody waits for. */
bool jobs_answer(struct sm *sm, const uint8_t *mad);
void jobs_expire(struct sm *sm);
uint64_t jobs_deadline(const struct sm *sm);
/* Forgets all requests. */
void jobs_drop(struct sm *sm);
static inline bool jobs_idle(const struct sm_requests *requests)
{
	return !requests->under_way && !requests->count;
}
/* The node counts as lost, and the sweep as faulty. */
void job_lost(struct sm *sm, const struct sm_job *job);

/* Makers and takers of requests, by the file that has them: discover.c, configure.c, forward.c,
 * elect.c, partition.c, alias.c, qos.c, read.c. */
bool node_info_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void node_info_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void node_info_failed(struct sm *sm, const struct sm_job *job);
bool plain_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void switch_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool switch_clear_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void switch_clear_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad,
		       uint16_t status);
bool port_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void port_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void manager_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void manager_failed(struct sm *sm, const struct sm_job *job);
bool pkeys_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void pkeys_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool port_set_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void port_set_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool switch_set_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void switch_set_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool unicast_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void unicast_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool multicast_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void multicast_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool activate_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void activate_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void light_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void light_failed(struct sm *sm, const struct sm_job *job);
bool poll_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void poll_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void poll_failed(struct sm *sm, const struct sm_job *job);
bool handover_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void handover_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void handover_failed(struct sm *sm, const struct sm_job *job);
void acknowledge_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
void description_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool guids_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void guids_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool lanes_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void lanes_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
bool arbitration_build(struct sm *sm, const struct sm_job *job, uint8_t *mad);
void arbitration_done(struct sm *sm, const struct sm_job *job, const uint8_t *mad, uint16_t status);
/* A reading that fails is no fault of the sweep; its node is read no more. */
void reading_failed(struct sm *sm, const struct sm_job *job);

/* The manager ---------------------------------------------------------------------------------- */

/*
 * What a sweep is doing. Each phase ends when no request is queued or under way.
 *   IDLE       -> DISCOVER (of all, or of what changed), LIGHT, POLL
 *   DISCOVER   -> CONFIGURE (master), HANDOVER (a better manager is there), IDLE (standby)
 *   CONFIGURE  -> ACTIVATE
 *   ACTIVATE   -> READ
 *   READ       -> IDLE; a new sweep may end it at any time
 *   LIGHT, POLL, HANDOVER -> IDLE
 */
enum sm_phase {
	PHASE_IDLE,
	PHASE_DISCOVER,
	PHASE_CONFIGURE,
	PHASE_ACTIVATE,
	PHASE_READ,
	PHASE_LIGHT,
	PHASE_POLL,
	PHASE_HANDOVER,
	PHASES,
};

struct sm_lid {
	uint64_t guid; /* 0: free */
	uint16_t lid;  /* the first of 2^lmc; 0: none any more */
	uint8_t lmc;
};

/* Another manager, as it last answered. */
struct sm_other {
	uint32_t node; /* in the subnet of the sweep */
	uint64_t guid;
	uint8_t priority, state;
};

struct sm_partition {
	uint64_t guid;
	uint16_t pkey;
	enum sm_member_kind kind;
};

/* A further GUID of a port, at `index` of its GUIDInfo. */
struct sm_alias {
	uint64_t guid, port_guid;
	uint16_t index;
};

/* What a rule looks at. */
struct sm_qos_path {
	uint16_t pkey, qos_class;
	uint64_t source, target, service;
};

struct sm_member {
	uint64_t guid; /* of the port */
	uint8_t gid[16];
	uint8_t state; /* JoinState: 1 full, 2 non-member, 4 and 8 send only */
	bool has_proxy;
};

struct sm_group {
	uint8_t record[52]; /* MCMemberRecord without port and state */
	uint16_t lid;	    /* from 0xC000 */
	bool is_permanent;
	bool is_dirty; /* its tree is to be made anew */
	struct sm_member *members;
	uint32_t count, room;
	uint8_t (*masks)[32]; /* by place of the switch: a bit for each port; NULL: no tree */
	uint32_t mask_count;
};

struct sm_service {
	uint8_t record[176];
	uint64_t end_ms; /* of the lease; UINT64_MAX: none */
};

struct sm_subscription {
	struct sm_peer peer;
	uint8_t subscriber[16]; /* GID */
	uint8_t inform[36];	/* InformInfo */
	uint16_t number;
};

/* A report that a subscriber hasn't acknowledged. */
struct sm_report {
	uint8_t mad[SM_MAD_BYTES];
	struct sm_peer peer;
	uint64_t deadline_ms;
	uint32_t copies;
	bool is_used;
};

#define SM_OTHERS_MAX 64u
#define SM_SERVICES_MAX 4096u
#define SM_SUBSCRIPTIONS_MAX 4096u
#define SM_REPORTS_MAX 256u
#define SM_MEMBERS_MAX 65536u
#define SM_ALIASES_MAX 16384u
#define SM_CHANGED_MAX 64u

struct sm {
	const struct sm_functions *functions;
	void *context;
	struct sm_options options;
	struct sm_counts counts;
	uint64_t now_ms;
	enum sm_state state;
	enum sm_phase phase;
	struct sm_requests requests;
	struct sm_subnet *work;	  /* of the sweep under way; requests are about it */
	struct sm_subnet *subnet; /* of the last sweep that was written; may be `work` */
	bool is_started;
	bool wants_sweep;  /* another whole sweep is due when this one has ended */
	bool is_partial;   /* the sweep under way is one of what changed */
	bool is_first;	   /* it became the master by this sweep: clients register anew */
	bool has_handover; /* the master has given way to this one */
	bool is_settled;
	uint64_t sweep_ms; /* when the next light or repeated sweep is due */
	uint64_t poll_ms;  /* when a standby asks the master again */
	uint64_t began_ms; /* of the sweep */
	uint32_t repeated; /* sweeps in a row that had faults */
	uint32_t failures; /* questions in a row that the master hasn't answered */
	uint64_t own_guid;
	uint16_t own_lid;
	uint32_t activity;
	uint64_t changed[SM_CHANGED_MAX]; /* port GUIDs of nodes that are to be looked at */
	uint32_t changed_count;
	struct sm_other others[SM_OTHERS_MAX];
	uint32_t other_count;
	uint64_t master_guid; /* that a standby asks */
	uint32_t master_node;
	uint64_t previous_master; /* that is told that this one has taken over */

	struct sm_lid *lids; /* hash */
	uint32_t lid_count, lid_room;
	uint8_t lid_used[0xc000 / 8];
	bool lids_changed;

	struct sm_partition *partitions;
	uint32_t partition_count;
	struct sm_qos_lanes lanes;
	struct sm_qos_rule *qos_rules;
	uint32_t qos_rule_count;
	struct sm_alias *aliases; /* by port GUID and index */
	uint32_t alias_count;
	uint64_t alias_deletions; /* so far */
	bool has_dirty_guids;

	struct sm_group *groups[SM_MULTICAST_LIDS]; /* by MLID */
	bool has_dirty_groups;
	/* Blocks of multicast tables in which a group has ended. */
	bool freed_blocks[SM_MULTICAST_LIDS / SM_MULTICAST_BLOCK];
	struct sm_service *services;
	uint32_t service_count;
	struct sm_subscription *subscriptions;
	uint32_t subscription_count;
	uint16_t subscription_serial;
	struct sm_report *reports;
	uint32_t report_count; /* used */
	uint32_t report_tid;
	uint32_t mgid_serial;
};

void sm_say(struct sm *sm, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t sm_hash(uint64_t value);

/* Steps of a sweep: begin, end, and what follows (sweep.c). */
void sweep_begin(struct sm *sm);
void phase_enter(struct sm *sm, enum sm_phase phase);

/* discover.c */
void discover_begin(struct sm *sm);
/* Takes over from the last subnet what its nodes still have. */
void discover_inherit(struct sm *sm);
/* Asks a node for what it is asked first. */
void node_ask_more(struct sm *sm, uint32_t row);
/* change.c: sweeps of what changed. */
/* The node in that row of the last subnet is to be looked at; SM_NONE: all are. */
void change_note(struct sm *sm, uint32_t row);
/* The table with which the sweep begins; NULL: the whole subnet has to be swept. */
struct sm_subnet *changes_take(struct sm *sm);
/* Queues the next requests; false: discovery has ended. */
bool changes_step(struct sm *sm);
void change_cable_cut(struct sm *sm, uint32_t port);
/* A port has answered. */
void change_port_note(struct sm *sm, uint32_t port, uint8_t state_before);
/* elect.c: what the other managers mean for this one. */
enum sm_verdict { VERDICT_MASTER, VERDICT_STANDBY, VERDICT_HANDOVER };
enum sm_verdict election_decide(struct sm *sm);
/* Whether a better manager was found that hasn't taken over. */
bool election_is_open(const struct sm *sm);
/* The port in that row has no manager any more. */
void election_forget(struct sm *sm, uint32_t row);
void election_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad);
/* lids.c */
int sm_lids_assign(struct sm *sm, struct sm_subnet *subnet);
/* configure.c: requests that bring ports and switches where they belong. */
void configure_ports(struct sm *sm);
void activate_ports(struct sm *sm);
/* partition.c. The P_Keys of an end port: writes up to `room` entries. */
unsigned int partition_keys(const struct sm *sm, const struct sm_node *node, uint16_t *keys,
			    unsigned int room);
/* What PortInfo of the port in that row is to say about enforcement. */
uint8_t partition_enforcement(const struct sm *sm, uint32_t row);
void pkeys_configure(struct sm *sm, uint32_t row);
/* alias.c. Writes the GUIDs that ports haven't got yet. */
void aliases_configure(struct sm *sm);
void guids_read(struct sm *sm, uint32_t row);
/* The row of the node with the port GUID or alias GUID, or SM_NONE. */
uint32_t subnet_find_any(const struct sm *sm, const struct sm_subnet *subnet, uint64_t guid);
/* qos.c */
void qos_begin(struct sm *sm);
void qos_configure(struct sm *sm, uint32_t row);
uint8_t qos_level(const struct sm *sm, const struct sm_qos_path *path);
/* route.c: fills tables->wanted. */
int routes_make(struct sm *sm, struct sm_subnet *subnet);
/* forward.c */
void forward_unicast(struct sm *sm);
void forward_multicast(struct sm *sm);
uint16_t multicast_top(const struct sm *sm);
/* tree.c */
int trees_prepare(struct sm_subnet *subnet);
void group_tree_make(struct sm *sm, struct sm_group *group);
/* read.c: what isn't needed to bring the subnet up. */
void read_begin(struct sm *sm);
/* notice.c */
void notice_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad);
void notice_own(struct sm *sm, uint16_t trap, const uint8_t gid[16]);
void notices_forward(struct sm *sm, const uint8_t notice[80]);
void notices_expire(struct sm *sm);
uint64_t notices_deadline(const struct sm *sm);
/* Ports that came and went between two sweeps. */
void notices_compare(struct sm *sm, const struct sm_subnet *before, const struct sm_subnet *after);

static inline void gid_make(uint8_t gid[16], uint64_t guid)
{
	octets_put64(gid, SM_PREFIX);
	octets_put64(gid + 8, guid);
}

#endif
