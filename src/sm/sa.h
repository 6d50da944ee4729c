/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Subnet administration: queries about the last sweep's tables, multicast groups, services and
 * subscriptions. A query is a record and a mask that says which of its components count; answers
 * are the records that agree with it.
 */
#ifndef VERBENA_SM_SA_H
#define VERBENA_SM_SA_H

#include "sm/internal.h"

enum {
	SA_CLASS_PORT_INFO = 0x01,
	SA_NOTICE = 0x02,
	SA_INFORM = 0x03,
	SA_NODE = 0x11,
	SA_PORT = 0x12,
	SA_SL_TO_VL = 0x13,
	SA_SWITCH = 0x14,
	SA_UNICAST = 0x15,
	SA_MULTICAST = 0x17,
	SA_MANAGER = 0x18,
	SA_INFORM_RECORD = 0xf3,
	SA_LINK = 0x20,
	SA_GUIDS = 0x30,
	SA_SERVICE = 0x31,
	SA_PKEYS = 0x33,
	SA_PATH = 0x35,
	SA_ARBITRATION = 0x36,
	SA_MEMBER = 0x38,
	SA_MULTI_PATH = 0x3a,
};

enum {
	SA_OK = 0,
	SA_BAD_VERSION = 0x0004,
	SA_UNSUPPORTED = 0x000c, /* method and attribute together */
	SA_NO_RESOURCES = 0x0100,
	SA_INVALID = 0x0200,
	SA_NO_RECORDS = 0x0300,
	SA_TOO_MANY = 0x0400,
	SA_INVALID_GID = 0x0500,
	SA_INSUFFICIENT = 0x0600, /* components */
};

enum { SA_HEADER = 56, SA_RECORD_MAX = 200, SA_KEY = 36, SA_RECORD_WORDS = 44, SA_MASK = 48 };
enum { SA_GET = 0x01, SA_SET = 0x02, SA_REPORT = 0x06, SA_REPORT_RESPONSE = 0x86 };
enum { SA_GET_TABLE = 0x12, SA_GET_MULTI = 0x14, SA_DELETE = 0x15 };

/* Queries that name this key see all members of groups; OpenSM's default, and saquery's. */
#define SA_KEY_TRUSTED 1u

/* A query, and the answer that grows: `bytes` of records behind the header. */
struct sa_query {
	struct sm *sm;
	const struct sm_subnet *subnet;
	const struct sm_peer *from;
	const struct sa_layout *layout;
	uint64_t mask;
	uint8_t method;
	uint32_t modifier;
	bool is_trusted;
	uint8_t record[SA_RECORD_MAX]; /* of the query */
	const uint8_t *extra;	       /* what the query has behind that */
	size_t extra_bytes;
	uint8_t *answer; /* SA_HEADER bytes, then records */
	size_t bytes, room;
	uint32_t count;
	uint16_t status;
};

/*
 * An attribute: the bytes of a record in an answer, its components as numbers of bits in their
 * order (each is a bit of the mask, beginning with the lowest), and what makes its records.
 */
struct sa_layout {
	uint16_t attribute;
	uint8_t bytes;
	const uint8_t *bits;
	uint8_t components;
	/* Get and GetTable. */
	void (*get)(struct sa_query *query);
	/* Set and Delete; NULL: not supported. They add the record of the answer. */
	void (*set)(struct sa_query *query);
	void (*remove)(struct sa_query *query);
	void (*multi)(struct sa_query *query); /* GetMulti */
};

/* Adds a record without looking at the mask. */
void sa_add(struct sa_query *query, const uint8_t *record);
/* Adds it if it agrees with the query in all components of the mask that aren't in `except`. */
void sa_offer(struct sa_query *query, const uint8_t *record, uint64_t except);
/* A component of the query as a number of up to 32 bits. */
uint32_t sa_component(const struct sa_query *query, unsigned int component);
static inline bool sa_has(const struct sa_query *query, unsigned int component)
{
	return query->mask >> component & 1;
}

void sa_receive(struct sm *sm, const struct sm_peer *from, const uint8_t *mad, size_t bytes);

/* records.c */
void sa_nodes(struct sa_query *query);
void sa_ports(struct sa_query *query);
void sa_switches(struct sa_query *query);
void sa_unicast(struct sa_query *query);
void sa_multicast(struct sa_query *query);
void sa_managers(struct sa_query *query);
void sa_links(struct sa_query *query);
void sa_guids(struct sa_query *query);
void sa_pkeys(struct sa_query *query);
void sa_lanes(struct sa_query *query);
void sa_arbitration(struct sa_query *query);
void sa_class_port_info(struct sa_query *query);
/* alias.c */
void sa_guids_set(struct sa_query *query);
void sa_guids_remove(struct sa_query *query);
/* path.c */
void sa_paths(struct sa_query *query);
void sa_multi_paths(struct sa_query *query);
/* The rate of a port's link as the administration's code; 0: none. */
uint8_t port_rate(const struct sm_port *port);
/* Chooses by selector (0 greater, 1 less, 2 exactly, 3 the largest) and wish, of what is possible
 * at most; codes are compared by `worth`. Returns the code, 0: impossible. */
uint8_t sa_select(uint8_t selector, uint8_t wish, uint8_t most, uint32_t (*worth)(uint8_t code));
uint32_t rate_worth(uint8_t code);
uint32_t plain_worth(uint8_t code);
/* members.c */
void sa_members(struct sa_query *query);
void sa_member_join(struct sa_query *query);
void sa_member_leave(struct sa_query *query);
struct sm_group *sm_group_find(const struct sm *sm, const uint8_t mgid[16]);
int groups_begin(struct sm *sm);
void groups_end(struct sm *sm);
/* The subnet changed: members that are gone leave, and trees are made anew. */
void groups_follow(struct sm *sm);
/* services.c */
void sa_services(struct sa_query *query);
void sa_service_set(struct sa_query *query);
void sa_service_remove(struct sa_query *query);
void services_expire(struct sm *sm);
uint64_t services_deadline(const struct sm *sm);
/* notice.c */
void sa_inform_set(struct sa_query *query);
void sa_informs(struct sa_query *query);
void report_acknowledge(struct sm *sm, const uint8_t *mad);

#endif
