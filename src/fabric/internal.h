/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share. */
#ifndef VERBENA_FABRIC_INTERNAL_H
#define VERBENA_FABRIC_INTERNAL_H

#include "fabric/fabric.h"
#include "fabric/port_info.h"
#include "fabric/route.h"

#include <string.h>

enum { METHOD_IS_GET = 1, METHOD_IS_SET = 2, METHOD_IS_TRAP = 5, METHOD_IS_REPRESS = 7 };
enum { METHOD_RESPONSE_BIT = 0x80, METHOD_IS_GET_RESPONSE = 0x81 };
enum { CLASS_IS_SMP = 0x01, CLASS_IS_DIRECTED = 0x81, CLASS_IS_PERFORMANCE = 0x04 };
enum { CLASS_IS_CONGESTION = 0x21 };

/* Status of an answer. */
enum {
	ANSWER_OK = 0,
	ANSWER_BUSY = 0x01,
	ANSWER_VERSION = 0x04,
	ANSWER_UNSUPPORTED = 0x0c, /* method and attribute together */
	ANSWER_INVALID = 0x1c,	   /* a field or the modifier */
};

enum {
	MAD_AT_CLASS = 1,
	MAD_AT_VERSION = 2,
	MAD_AT_METHOD = 3,
	MAD_AT_STATUS = 4,
	MAD_AT_HOP_POINTER = 6,
	MAD_AT_HOP_COUNT = 7,
	MAD_AT_TID = 8,
	MAD_AT_ATTRIBUTE = 16,
	MAD_AT_MODIFIER = 20,
	MAD_AT_M_KEY = 24,
	MAD_AT_SOURCE_LID = 32,
	MAD_AT_DESTINATION_LID = 34,
	MAD_AT_DATA = 64,
	MAD_AT_INITIAL_PATH = 128,
	MAD_AT_RETURN_PATH = 192,
};

#define ATTRIBUTE_NOTICE 0x0002
#define QKEY_GENERAL 0x80010000u

/* What an agent made of a datagram. */
enum agent_result {
	AGENT_ANSWERS,	/* the datagram is the answer now */
	AGENT_SILENT,	/* it was dropped, or needs no answer */
	AGENT_NOT_MINE, /* it is for a program */
};

/* A request to an agent, and the answer that it becomes. */
struct agent_request {
	struct fabric *fabric;
	const struct fabric_datagram *from;
	uint32_t node;
	uint32_t port;	   /* by which it came */
	uint32_t end_port; /* that has the LID */
	uint8_t method;
	uint16_t attribute;
	uint32_t modifier;
	uint8_t *data; /* the attribute, within the MAD */
	uint8_t *mad;
};

enum agent_result sma_process(struct agent_request *request);
enum agent_result pma_process(struct agent_request *request);
enum agent_result congestion_process(struct agent_request *request);

/* Attributes of the subnet management agent: each reads, and writes where the method is Set. They
 * return the answer's status. */
uint16_t port_info_answer(struct agent_request *request);
uint16_t switch_info_answer(struct agent_request *request);
uint16_t guid_info_answer(struct agent_request *request);
uint16_t pkey_table_answer(struct agent_request *request);
uint16_t sl_to_vl_answer(struct agent_request *request);
uint16_t arbitration_answer(struct agent_request *request);
uint16_t unicast_answer(struct agent_request *request);
uint16_t multicast_answer(struct agent_request *request);

/* Bits of what a port that can do `width` or `speed` supports. */
uint8_t widths_upto(uint8_t width);
struct fabric_speed speeds_upto(struct fabric_speed speed);

/* Routes may have changed. */
void fabric_touch(struct fabric *fabric);

/* Trains or ends the link of a port's cable, as the states of both ends and of the cable allow.
 * `is_failure`: an end of the link is one that counts. */
void link_settle(struct fabric *fabric, uint32_t port, bool is_failure);
/* The port's link goes down. `blames_peer`: only the peer counts it, since this end meant it. */
void link_drop(struct fabric *fabric, uint32_t port, bool blames_peer);

/* Forgets all that managers wrote to a node, and its counters. */
void node_tables_clear(struct fabric *fabric, uint32_t node);

/* NodeDescription: 64 bytes at most, the rest zero. */
void description_store(struct fabric_node *node, const char *text);

/* A port of a node as its management sees it: a switch's by number, an adapter's. */
struct fabric_port *port_at(struct fabric *fabric, uint32_t row);

/* Moves a datagram by LID, with counters. False: it was lost. */
bool datagram_by_lid(struct fabric *fabric, struct fabric_datagram *datagram);
/* Moves it over one cable. */
bool datagram_cross(struct fabric *fabric, struct fabric_datagram *datagram, uint32_t egress);

/* Counting. */
void traffic_count(struct fabric *fabric, const struct route_hop *hop, uint64_t packets,
		   uint64_t words, bool is_multicast);
void detail_count(struct fabric *fabric, uint32_t port, enum fabric_detail detail);

/* Tables. */
uint8_t *sl_to_vl_row(const struct fabric *fabric, uint32_t egress, uint32_t ingress);
uint16_t partition_key_get(const struct fabric *fabric, uint32_t port, unsigned int index);
bool partition_key_matches(const struct fabric *fabric, uint32_t port, uint16_t pkey,
			   unsigned int *index);
/* Counts a violation of a key in PortInfo, up to what fits there. */
void violation_count(struct fabric_port *port, int offset);

/* Sampling (samples.c): what PortSamplesControl and the results read and write. */
uint16_t samples_control_answer(struct agent_request *request);
uint16_t samples_result_answer(struct agent_request *request);
void samplers_expire(struct fabric *fabric);
/* Finds out when something is due next, and notes what is due at some time. */
void deadline_find(struct fabric *fabric);
void deadline_note(struct fabric *fabric, uint64_t at_ms);
uint64_t samplers_deadline(const struct fabric *fabric);
/* Drops what a process that died left half written. */
void samplers_check(struct fabric *fabric);

/* Attributes of single causes, lanes and service levels (pma_details.c). */
uint16_t pma_detail_answer(struct agent_request *request);
/* Which ports a request of class 4 is about: one, or all of a switch. */
struct port_selection {
	uint32_t first, count;
};
bool pma_ports_select(const struct agent_request *request, struct port_selection *selection);

/* Attributes of class 4. */
enum {
	PM_CLASS_PORT_INFO = 0x01,
	PM_SAMPLES_CONTROL = 0x10,
	PM_SAMPLES_RESULT = 0x11,
	PM_COUNTERS = 0x12,
	PM_RCV_DETAILS = 0x15,
	PM_XMIT_DETAILS = 0x16,
	PM_FLOW_CONTROL = 0x18,
	PM_VL_FLOW_ERRORS = 0x1b,
	PM_VL_XMIT_WAIT = 0x1c,
	PM_COUNTERS_EXTENDED = 0x1d,
	PM_SAMPLES_RESULT_EXTENDED = 0x1e,
	PM_EXTENDED_SPEEDS = 0x1f,
	PM_VL_CONGESTION = 0x30,
	PM_RCV_CONGESTION = 0x31,
	PM_SL_RCV_FECN = 0x32,
	PM_SL_RCV_BECN = 0x33,
	PM_XMIT_CONGESTION = 0x34,
	PM_VL_XMIT_CONGESTION_TIME = 0x35,
	PM_XMIT_DATA_SL = 0x36,
	PM_RCV_DATA_SL = 0x37,
};

/* Traps of an end port to its SM. */
void trap_link_state(struct fabric *fabric, uint32_t port);
void trap_threshold(struct fabric *fabric, uint32_t port, uint16_t number);
void trap_local_change(struct fabric *fabric, uint32_t end_port, uint8_t changes);
void trap_bad_m_key(struct agent_request *request);
void trap_bad_key(struct fabric *fabric, uint32_t end_port, uint16_t number, uint32_t key,
		  const struct fabric_address *from);
/* A switch's port didn't let a packet pass, for its partition. */
void trap_bad_partition(struct fabric *fabric, uint32_t port, uint16_t pkey,
			const struct fabric_address *from);
void trap_system_guid(struct fabric *fabric, uint32_t end_port);
/* The SM has it. */
void trap_repress(struct fabric *fabric, uint32_t end_port, const uint8_t *mad);

/* The changes that trap 144 announces. */
enum { CHANGE_CAPABILITIES = 0x80, CHANGE_DESCRIPTION = 1, CHANGE_WIDTH = 2, CHANGE_SPEED = 4 };

#endif
