/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of a fabric as tables in one piece of memory: nodes, ports, counters, forwarding
 * tables. Rows name one another by index, never by address, so that the memory may be a file that
 * the next process maps (`verbena-fabric --resume`), and that other processes map read-only.
 *
 * All tables have their final size from the start. A table that a subnet manager writes is stored
 * as the difference (exclusive or) from its default, so that pages that were never written are
 * zero and take no memory.
 *
 * One process and thread writes. Everything that is read from here is used as an index only after
 * it was checked, since a process may have been killed between two stores. Flags are bytes, of
 * which any that isn't zero means yes: a `bool` that holds another value than 0 and 1 is undefined.
 */
#ifndef VERBENA_FABRIC_TABLES_H
#define VERBENA_FABRIC_TABLES_H

#include <stdint.h>

#define FABRIC_NONE UINT32_MAX /* no such row */

#define FABRIC_MAGIC "verbena-fabric"
#define FABRIC_LAYOUT 5 /* changes with any structure here */

/* What each node's tables hold; the capacities that management agents report. */
#define FABRIC_LFT_ENTRIES 49152u /* unicast LIDs */
#define FABRIC_MFT_ENTRIES 1024u  /* multicast LIDs, from 0xC000 */
#define FABRIC_MFT_POSITIONS 16u  /* ports in one mask of a multicast table */
#define FABRIC_PKEYS 64u	  /* of a port */
#define FABRIC_GUIDS 32u	  /* of an end port */
#define FABRIC_VLARB_ENTRIES 8u	  /* of each priority */
#define FABRIC_VLS 8u
#define FABRIC_SLS 16u
#define FABRIC_SL_TO_VL_BYTES 8u /* a nibble for each SL, as in the attribute */
#define FABRIC_PORTS_MAX 254u	 /* of a node */
#define FABRIC_NODES_MAX 49151u
#define FABRIC_TRAPS 256u
#define FABRIC_SAMPLERS 64u /* nodes whose traffic is sampled at once */
#define FABRIC_SAMPLES 15u  /* counters of a sampler */

enum fabric_node_type { FABRIC_CA = 1, FABRIC_SWITCH = 2, FABRIC_ROUTER = 3 };

enum fabric_port_state { PORT_DOWN = 1, PORT_INIT = 2, PORT_ARMED = 3, PORT_ACTIVE = 4 };
enum fabric_port_physical {
	PHYSICAL_SLEEP = 1,
	PHYSICAL_POLLING = 2,
	PHYSICAL_DISABLED = 3,
	PHYSICAL_LINK_UP = 5,
};

/* The tables, in the order in which they lie in memory. */
enum fabric_table {
	TABLE_NODES,	  /* struct fabric_node */
	TABLE_PORTS,	  /* struct fabric_port */
	TABLE_COUNTERS,	  /* struct fabric_counters, by port */
	TABLE_TRAPS,	  /* struct fabric_trap */
	TABLE_PKEYS,	  /* FABRIC_PKEYS of each port; first entry stored ^ 0xffff; host order */
	TABLE_GUIDS,	  /* FABRIC_GUIDS of each end port; entry 0 isn't used; host order */
	TABLE_VLARB,	  /* by port: low priority, then high: pairs of VL and weight, ^ default */
	TABLE_SL_TO_VL,	  /* [egress][ingress] of a switch, [port] of an adapter: 8 bytes, ^ default
			   */
	TABLE_UNICAST,	  /* by switch: a byte for each LID, ^ 0xff */
	TABLE_MULTICAST,  /* by switch: [position][MLID - 0xC000], masks of 16 ports; host order */
	TABLE_CONGESTION, /* struct fabric_congestion, by node */
	TABLE_SL_WORDS,	  /* by port: words sent by each SL, then received by each; saturate */
	TABLE_LANE_WAITS, /* by port: ticks that each lane has waited for credits; saturate */
	TABLE_SAMPLERS,	  /* struct fabric_sampler */
	TABLE_ADDRESSES,  /* struct fabric_ip, by end port */
	TABLE_NAMES,	  /* texts that end with a zero byte */
	TABLES,
};

struct fabric_header {
	char magic[16];
	uint32_t layout;
	uint32_t is_complete; /* stored last by fabric_build() */
	uint64_t bytes;	      /* of the memory */
	uint32_t nodes, switches, ports, end_ports;
	uint32_t name_bytes;
	uint32_t multicast_words; /* masks in TABLE_MULTICAST */
	uint64_t at[TABLES];	  /* offsets of the tables */
	/* Increased, with release, after each change that can change where a packet goes. */
	uint64_t epoch;
	uint64_t sl_to_vl_rows;
	uint32_t first_node; /* the first row in the topology: where programs attach by default */
	uint32_t trap_tid;   /* the last one that a trap had */
	uint64_t mads, mads_dropped;
	/* How many times slower than adapters links are (clocks.h); 0: data takes no time. Never
	 * changes once the fabric serves. */
	uint32_t slow;
	uint32_t reserved;
	char title[256]; /* which topology it is, for people */
};

struct fabric_node {
	uint64_t guid, system_guid;
	uint32_t name;	       /* offset in TABLE_NAMES */
	uint32_t first_port;   /* row of port 0; an adapter's is not there: its first is port 1 */
	uint32_t switch_index; /* FABRIC_NONE: no switch */
	uint32_t sl_to_vl;     /* its first row in TABLE_SL_TO_VL */
	uint32_t multicast;    /* its first mask in TABLE_MULTICAST */
	uint32_t vendor_id, revision;
	uint16_t device_id;
	uint8_t type;  /* enum fabric_node_type */
	uint8_t ports; /* without port 0 */
	uint8_t has_enhanced_port0;
	uint8_t is_off;		   /* without power: no port has a link, and nothing answers */
	uint8_t is_mute;	   /* its management agents answer nothing */
	uint8_t switch_info_flags; /* bit 2 of byte 11: PortStateChange */
	uint16_t linear_top, multicast_top;
	uint8_t default_port, default_primary, default_not_primary;
	uint8_t life_time;
	char description[64]; /* NodeDescription, not always terminated */
};

/*
 * A port. `info` is its PortInfo as a subnet manager reads it; for an external port of a switch
 * without what port 0 has for the whole node. M_Key, LID and so on are read by the functions of
 * attribute.h.
 */
struct fabric_port {
	uint8_t info[64];
	uint64_t guid; /* end ports only */
	uint32_t node;
	uint32_t cable;		  /* the port at the other end of the cable; FABRIC_NONE: none */
	uint32_t lease_end_ms[2]; /* when the M_Key's protection ends: low, high; 0: not running */
	uint32_t drop_ppm;	  /* of packets that arrive, by `verbena fabric drop` */
	uint32_t delay_ns;	  /* added to each packet that arrives, by `verbena fabric delay` */
	uint32_t error_rates;	  /* index + 1 of a row of rates in the process; 0: none */
	uint8_t number;		  /* 0: a switch's own port */
	uint8_t is_end_port;
	uint8_t is_cut;		 /* by `verbena fabric link down`: the cable carries nothing */
	uint8_t has_issm;	 /* a program has the port's issm file open */
	uint32_t end_port;	 /* index among the end ports, for TABLE_GUIDS; FABRIC_NONE: none */
	uint32_t cable_delay_ns; /* added, too: by the topology */
	uint16_t drop_attribute; /* MADs with this attribute only; 0: all */
	/* What the cable still carries, by `verbena fabric rate`: bits as in what is enabled. `is`:
	 * there is such a limit. */
	uint8_t is_limited, limit_width, limit_speed, limit_ext, limit_ext2;
	uint8_t reserved;
};

/* The IP address of an end port, in place of IPoIB: from the topology. */
struct fabric_ip {
	uint8_t address[16]; /* IPv4: mapped (::ffff:10.0.0.3) */
	uint8_t version;     /* 4 or 6; 0: the port has none */
	uint8_t prefix;	     /* bits of the network */
	uint8_t reserved[6];
};

/* What PortCounters keeps saturates; what PortCountersExtended keeps wraps; each is cleared by
 * itself. */
enum fabric_error {
	ERROR_SYMBOL,
	ERROR_LINK_RECOVERY,
	ERROR_LINK_DOWNED,
	ERROR_RCV,
	ERROR_RCV_REMOTE_PHYSICAL,
	ERROR_RCV_SWITCH_RELAY,
	ERROR_XMIT_DISCARDS,
	ERROR_XMIT_CONSTRAINT,
	ERROR_RCV_CONSTRAINT,
	ERROR_LOCAL_INTEGRITY,
	ERROR_BUFFER_OVERRUN,
	ERROR_QP1_DROPPED,
	ERROR_VL15_DROPPED,
	ERROR_XMIT_WAIT,
	/* What PortVLXmitFlowCtlUpdateErrors counts; PortCounters hasn't got it. */
	ERROR_FLOW_CONTROL,
	ERRORS,
	ERRORS_OF_PORT_COUNTERS = ERROR_FLOW_CONTROL,
};

/* PortRcvErrorDetails, then PortXmitDiscardDetails, in their order. */
enum fabric_detail {
	DETAIL_LOCAL_PHYSICAL,
	DETAIL_MALFORMED,
	DETAIL_BUFFER_OVERRUN,
	DETAIL_DLID_MAPPING,
	DETAIL_VL_MAPPING,
	DETAIL_LOOPING,
	DETAIL_INACTIVE,
	DETAIL_NEIGHBOR_MTU,
	DETAIL_LIFETIME,
	DETAIL_HOQ_LIFETIME,
	DETAILS,
};

/* In the order of PortCountersExtended; the first four are PortCounters', too. */
enum fabric_traffic {
	TRAFFIC_XMIT_WORDS,
	TRAFFIC_RCV_WORDS,
	TRAFFIC_XMIT_PACKETS,
	TRAFFIC_RCV_PACKETS,
	TRAFFIC_UNICAST_XMIT,
	TRAFFIC_UNICAST_RCV,
	TRAFFIC_MULTICAST_XMIT,
	TRAFFIC_MULTICAST_RCV,
	TRAFFICS,
};

struct fabric_counters {
	uint64_t traffic[TRAFFICS];
	uint64_t errors[ERRORS];       /* PortCountersExtended */
	uint32_t traffic_short[4];     /* PortCounters */
	uint32_t errors_short[ERRORS]; /* PortCounters */
	uint16_t details[DETAILS];
};

/* A notice that its SM hasn't repressed yet. */
struct fabric_trap {
	uint64_t next_ms; /* when it is sent again; 0: the row is free */
	uint64_t tid;
	uint32_t port; /* the end port that sends it */
	uint32_t sent;
	uint8_t notice[64];
	uint8_t reserved[40];
};

/* What a node's PortSamplesControl has set: counters of a port over a time. */
struct fabric_sampler {
	uint64_t start_ms, end_ms; /* of the interval */
	uint64_t value[FABRIC_SAMPLES];
	uint64_t before[FABRIC_SAMPLES]; /* the counters at the start */
	uint32_t node;
	uint32_t start, interval; /* in ticks, as written */
	uint16_t tag;
	uint16_t select[FABRIC_SAMPLES];
	uint8_t port;	/* number */
	uint8_t status; /* enum fabric_sampling */
	uint8_t is_used;
	uint8_t reserved[5];
};

enum fabric_sampling { SAMPLING_DONE = 0, SAMPLING_STARTED = 1, SAMPLING_RUNS = 2 };

/* Congestion control: what a manager wrote, as it reads it again. */
struct fabric_congestion {
	uint64_t key;
	uint16_t protect, lease, violations;
	uint16_t reserved;
	uint8_t switch_setting[76];
	uint8_t ca_setting[192];
	uint8_t control_table[132];    /* the one block that an adapter has */
	uint8_t switch_ports[8 * 128]; /* by 32 ports */
};

#endif
