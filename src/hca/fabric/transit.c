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

#define ACKNOWLEDGEMENT_BYTES 30u

/* ------------------------------------------------------------------ the memory */

int transit_map(const struct node *node, struct clocks *clocks)
{
	const struct fabric_header *header = node->tables.header;
	size_t bytes = clocks_bytes(header->ports);
	void *old = clocks->slow ? clocks->touched : NULL;
	struct stat st;
	int file;

	int result = node_ask_clocks(&file);

	if (result == -ENODATA && !header->slow)
		return 0; /* an older verbena-fabric: its faults take no time */
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
	uint64_t needed;	  /* the epoch of the last walk that found a way which takes time */
	uint64_t since;		  /* since when there has been something to send */
	uint64_t next;		  /* when the next piece may be sent */
	uint64_t next_back;	  /* ... by the other end */
	uint64_t arrived;	  /* when all is there that has been sent */
	uint64_t answered;	  /* ... and all acknowledgements and answers are back */
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

void transit_free(struct transit *transit)
{
	if (!transit)
		return;
	free(transit->there.hop);
	free(transit->back.hop);
	free(transit);
}

void transit_clear(struct transit *transit)
{
	transit->has_begun = false;
	transit->next = transit->next_back = transit->arrived = transit->answered = 0;
}

bool transit_is_needed(const struct transit *transit)
{
	if (!transit->clocks->faults_only)
		return true;
	/* [P1], pairs with [P2] */
	uint64_t epoch = __atomic_load_n(&transit->node->tables.header->epoch, __ATOMIC_ACQUIRE);

	return transit->needed == epoch;
}

/* Makes room for so many hops. Without memory the hops that have no room take no time. */
static void way_reserve(struct clocks_way *way, uint32_t hops)
{
	struct clocks_hop *grown;

	way->hops = 0;
	if (hops <= way->room)
		return;
	grown = realloc(way->hop, hops * sizeof(*grown));
	if (!grown)
		return;
	way->hop = grown;
	way->room = hops;
}

/* ------------------------------------------------------------------ the tree of a group */

/* A walk under way. */
struct tree_passage {
	struct transit *transit;
	uint32_t hops, most; /* of the tree; for how many there is room */
	uint32_t *reached; /* by hop of the tree: the node behind it; NULL: they are only counted */
	uint32_t *behind;  /* ... the hop of the way that the hops behind it follow */
};

/* The hop of the way that a hop from this node follows. The walk is depth first, so the node isn't
 * far back. */
static uint32_t tree_before(const struct tree_passage *walk, uint32_t node)
{
	for (uint32_t i = walk->hops; i--;)
		if (walk->reached[i] == node)
			return walk->behind[i];
	return FABRIC_NONE;
}

static bool tree_hop_pass(void *context, const struct route_hop *hop)
{
	struct tree_passage *walk = context;
	struct transit *transit = walk->transit;
	const struct fabric *tables = &transit->node->tables;

	if (walk->reached && walk->hops == walk->most)
		return false;
	if (walk->reached) {
		uint32_t before = tree_before(walk, tables->ports[hop->egress].node);

		walk->reached[walk->hops] = tables->ports[hop->ingress].node;
		walk->behind[walk->hops] =
			clocks_way_add(transit->clocks, &transit->there, tables, hop, before);
	}
	walk->hops++;
	return true;
}

static void tree_ignore(void *context, uint32_t end_port, uint64_t delay_ns)
{
	(void)context;
	(void)end_port;
	(void)delay_ns;
}

/* Walks it twice, since the tables may change meanwhile: the second time for as many hops as there
 * is room for. */
static void transit_walk_tree(struct transit *transit, const struct route_query *query)
{
	const struct fabric *tables = &transit->node->tables;
	struct tree_passage walk = {.transit = transit};
	const struct route_visitor visitor = {tree_hop_pass, tree_ignore, &walk};

	route_multicast(tables, query, &visitor);
	way_reserve(&transit->there, walk.hops);
	walk.reached = calloc((size_t)walk.hops * 2 + 1, sizeof(*walk.reached));
	if (!walk.reached)
		return;
	walk.behind = walk.reached + walk.hops;
	walk.most = walk.hops;
	walk.hops = 0;
	route_multicast(tables, query, &visitor);
	free(walk.reached);
}

/* ------------------------------------------------------------------ ways */

static void transit_walk(struct transit *transit, uint32_t port, const struct transit_load *load)
{
	const struct fabric *tables = &transit->node->tables;
	struct route_query query = {
		.port = port,
		.destination = load->lid,
		.pkey = partition_key_get(tables, port, load->pkey_index),
		.sl = load->sl,
	};
	struct fabric_route route;

	transit->there.hops = transit->back.hops = 0;
	if (load->lid >= LID_MULTICAST) {
		transit_walk_tree(transit, &query);
		return;
	}
	fabric_route_find(tables, &query, &route);
	way_reserve(&transit->there, route.hops);
	clocks_way_set(transit->clocks, &transit->there, tables, &route);
	if (route.result != ROUTE_OK)
		return;
	query.port = route.end;
	query.destination = port_lid(&tables->ports[port]);
	fabric_route_find(tables, &query, &route);
	way_reserve(&transit->back, route.hops);
	clocks_way_set(transit->clocks, &transit->back, tables, &route);
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
		if (transit->there.hops || transit->back.hops)
			transit->needed = epoch;
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

/* When the sender knows that the message is there. */
static uint64_t send_answer(struct transit *transit, const struct transit_load *load, uint64_t at,
			    uint64_t now)
{
	uint64_t begin = transit->arrived, back = begin;

	if (load->is_acked && transit->back.hops)
		back = clocks_pass(transit->clocks, &transit->back, ACKNOWLEDGEMENT_BYTES, begin,
				   begin, at)
			       .arrived;
	if (back > now + CLOCKS_WAIT_MAX_NS)
		back = now + CLOCKS_WAIT_MAX_NS;
	if (back > transit->answered)
		transit->answered = back;
	return transit->answered;
}

bool transit_send(struct transit *transit, const struct transit_load *load, uint64_t now,
		  struct transit_times *times)
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
	times->due = transit->arrived;
	times->answered = send_answer(transit, load, at, now);
	return true;
}
