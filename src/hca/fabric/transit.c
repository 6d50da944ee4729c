/* SPDX-License-Identifier: BSD-2-Clause */
/* See transit.h. */
#include "hca/fabric/transit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "base/sys.h"
#include "fabric/internal.h"

/* What a process that is late catches up with: one that was stopped has sent nothing meanwhile. */
#define LATE_MAX_NS 5000000000ull

/* ------------------------------------------------------------------ the memory */

int transit_map(const struct node *node, struct clocks *clocks)
{
	const struct fabric_header *header = node->tables.header;
	size_t bytes = clocks_bytes(header->ports);
	void *old = clocks->slow ? clocks->touched : NULL;
	struct stat st;
	int file;

	if (!header->slow)
		return 0;
	int result = node_ask_clocks(&file);

	if (result)
		return result;
	void *memory = MAP_FAILED;

	if (fstat(file, &st) < 0)
		result = -errno;
	else if ((size_t)st.st_size != bytes)
		result = -EIO;
	if (!result)
		memory = mmap(old, bytes, PROT_READ | PROT_WRITE,
			      MAP_SHARED | (old ? MAP_FIXED : 0), file, 0);
	if (!result && memory == MAP_FAILED)
		result = -errno;
	sys_close(file);
	if (!result && !old)
		clocks_locate(clocks, memory, header->ports, header->slow);
	return result;
}

void transit_unmap(struct clocks *clocks)
{
	if (clocks->slow)
		munmap(clocks->touched, clocks_bytes(clocks->ports));
	clocks->slow = 0;
}

/* ------------------------------------------------------------------ a queue pair's */

struct transit {
	const struct node *node;
	const struct clocks *clocks;
	uint64_t key;  /* of `there` and `back`; 0: not walked yet */
	uint64_t seen; /* the fabric's epoch before the walk */
	struct clocks_way there, back;
	uint64_t since;		  /* since when there has been something to send */
	uint64_t next;		  /* when the next piece may be sent */
	uint64_t next_back;	  /* ... by the other end */
	uint64_t arrived;	  /* when all is there that has been sent */
	uint64_t left, left_back; /* bytes of the message under way */
	bool has_begun;		  /* a message is under way */
};

struct transit *transit_new(const struct node *node, const struct clocks *clocks)
{
	struct transit *transit = calloc(1, sizeof(*transit));

	if (transit) {
		transit->node = node;
		transit->clocks = clocks;
	}
	return transit;
}

void transit_clear(struct transit *transit)
{
	transit->has_begun = false;
	transit->next = transit->next_back = transit->arrived = 0;
}

/* Only the first cable. */
static void route_to_group(const struct fabric *tables, uint32_t port, struct fabric_route *route)
{
	route->result = tables->ports[port].cable == FABRIC_NONE ? ROUTE_INACTIVE : ROUTE_OK;
	route->hops = 1;
	route->hop[0] = (struct route_hop){.egress = port, .ingress = tables->ports[port].cable};
}

static void transit_walk(struct transit *transit, uint32_t port, const struct transit_load *load)
{
	const struct fabric *tables = &transit->node->tables;
	uint32_t slow = transit->clocks->slow;
	struct route_query query = {
		.port = port,
		.destination = load->lid,
		.pkey = partition_key_get(tables, port, load->pkey_index),
		.sl = load->sl,
	};
	struct fabric_route route;

	transit->back.hops = 0;
	if (load->lid >= LID_MULTICAST)
		route_to_group(tables, port, &route);
	else
		fabric_route_find(tables, &query, &route);
	clocks_way_set(&transit->there, tables, slow, &route);
	if (route.result != ROUTE_OK || load->lid >= LID_MULTICAST)
		return;
	query.port = route.end;
	query.destination = port_lid(&tables->ports[port]);
	fabric_route_find(tables, &query, &route);
	clocks_way_set(&transit->back, tables, slow, &route);
}

/* Has the ways for this message, as the tables are now. */
static void transit_find(struct transit *transit, const struct transit_load *load)
{
	uint64_t key = load->lid | (uint64_t)load->port << 16 | (uint64_t)load->sl << 24 |
		       (uint64_t)load->pkey_index << 32 | 1ull << 63;
	/* [P1], pairs with [P2] */
	uint64_t epoch = __atomic_load_n(&transit->node->tables.header->epoch, __ATOMIC_ACQUIRE);
	uint32_t port = load->lid ? node_port_row(transit->node, load->port) : FABRIC_NONE;

	if (port == FABRIC_NONE) {
		transit->key = 0;
		transit->there.hops = transit->back.hops = 0;
	} else if (transit->key != key || transit->seen != epoch) {
		transit_walk(transit, port, load);
		transit->key = key;
		transit->seen = epoch;
	}
}

void transit_begin(struct transit *transit, uint64_t now)
{
	transit->since = now;
	if (transit->next < now)
		transit->next = now;
}

uint64_t transit_next(const struct transit *transit)
{
	return transit->next;
}

static uint32_t piece_of(uint64_t *left)
{
	uint32_t bytes = *left < CLOCKS_PIECE ? (uint32_t)*left : CLOCKS_PIECE;

	*left -= bytes;
	return bytes;
}

static void arrival_note(struct transit *transit, uint64_t at, uint64_t now)
{
	if (at > now + CLOCKS_WAIT_MAX_NS)
		at = now + CLOCKS_WAIT_MAX_NS;
	if (at > transit->arrived)
		transit->arrived = at;
}

/* A piece of the request, `at` the time when it is sent, which may be past. */
static void send_there(struct transit *transit, uint64_t at, uint64_t now)
{
	struct clocks_passage passage =
		clocks_pass(transit->clocks, &transit->there, piece_of(&transit->left),
			    transit->since, transit->next, at);

	transit->next = passage.free;
	arrival_note(transit, passage.arrived, now);
	/* The other end begins to answer when it has all. */
	if (!transit->left && transit->next_back < passage.arrived)
		transit->next_back = passage.arrived;
}

/* A piece of the answer. The next one, and the next message, are sent when the other end is about
 * to send. */
static void send_back(struct transit *transit, uint64_t at, uint64_t now)
{
	uint64_t begin = transit->next_back;
	struct clocks_passage passage = clocks_pass(
		transit->clocks, &transit->back, piece_of(&transit->left_back), begin, begin, at);

	transit->next_back = passage.free;
	if (passage.free > begin)
		transit->next += passage.free - begin;
	transit->since = transit->next; /* its port has had nothing to send meanwhile */
	arrival_note(transit, passage.arrived, now);
}

bool transit_send(struct transit *transit, const struct transit_load *load, uint64_t now,
		  uint64_t *due)
{
	if (!transit->has_begun) {
		transit->has_begun = true;
		transit->left = load->bytes;
		transit->left_back = load->answer;
	}
	if (transit->next + LATE_MAX_NS < now)
		transit->next = now - LATE_MAX_NS;
	uint64_t at = transit->next < now ? transit->next : now;

	transit_find(transit, load);
	if (transit->left)
		send_there(transit, at, now);
	else if (transit->left_back)
		send_back(transit, at, now);
	if (transit->left || transit->left_back)
		return false;
	transit->has_begun = false;
	arrival_note(transit, at, now);
	*due = transit->arrived;
	return true;
}
