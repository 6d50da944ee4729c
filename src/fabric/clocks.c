/* SPDX-License-Identifier: BSD-2-Clause */
/* See clocks.h. All accesses to the shared words are atomic and relaxed: no data is passed by them.
 */
#include "fabric/clocks.h"
#include "fabric/internal.h"

#define TICK_NS 1000u
#define HEADER_WORDS 24u /* the bits are followed by the clocks at a multiple of 192 bytes */

/* How often a store is tried again that another process's store has overtaken. */
#define TRIES 64

size_t clocks_bytes(uint32_t ports)
{
	size_t words = (ports / 64u + HEADER_WORDS) / HEADER_WORDS * HEADER_WORDS;

	return words * sizeof(uint64_t) + (size_t)ports * sizeof(struct clock);
}

void clocks_locate(struct clocks *clocks, void *memory, uint32_t ports, uint32_t slow)
{
	size_t bits = clocks_bytes(ports) - (size_t)ports * sizeof(struct clock);

	*clocks = (struct clocks){
		.touched = memory,
		.clock = (void *)((uint8_t *)memory + bits),
		.ports = ports,
		.slow = slow ? slow : 1,
		.faults_only = !slow,
	};
}

/* Ways ----------------------------------------------------------------------------------------- */

/* Mb/s of data on a lane: what the line's code takes is subtracted. */
static uint32_t lane_data_mbps(const struct fabric_port *port)
{
	static const uint32_t ext[] = {0, 13636, 25000, 25000, 50000, 50000, 50000, 50000};
	uint8_t basic = octet_high(port->info[INFO_SPEED_ACTIVE_ENABLED]);
	uint8_t active = octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]);

	if (port_ext2_active(port))
		return 200000;
	if (active)
		return active < sizeof ext / sizeof ext[0] ? ext[active] : 100000;
	return basic >= 4 ? 8000 : basic >= 2 ? 4000 : 2000;
}

uint32_t port_data_mbps(const struct fabric_port *port)
{
	static const uint8_t lanes[] = {[1] = 1, [2] = 4, [4] = 8, [8] = 12, [16] = 2};
	uint8_t width = port->info[INFO_WIDTH_ACTIVE];
	uint32_t count = width < sizeof lanes ? lanes[width] : 0;

	return (count ? count : 1) * lane_data_mbps(port);
}

uint32_t clocks_way_add(const struct clocks *clocks, struct clocks_way *way,
			const struct fabric *fabric, const struct route_hop *hop, uint32_t before)
{
	const struct fabric_port *in = &fabric->ports[hop->ingress];
	bool has_rate = !clocks->faults_only || in->is_limited;
	uint64_t latency = clocks->faults_only ? in->delay_ns : port_delay_ns(in);

	if ((!has_rate && !latency) || way->hops == way->room)
		return before;
	latency *= clocks->slow;
	way->hop[way->hops] = (struct clocks_hop){
		.port = hop->egress,
		.mbps = has_rate ? port_data_mbps(&fabric->ports[hop->egress]) : 0,
		.before = before,
		.vl = hop->vl % FABRIC_VLS,
		.latency_ns = latency < CLOCKS_WAIT_MAX_NS ? latency : CLOCKS_WAIT_MAX_NS,
	};
	return way->hops++;
}

void clocks_way_set(const struct clocks *clocks, struct clocks_way *way,
		    const struct fabric *fabric, const struct fabric_route *route)
{
	uint32_t before = FABRIC_NONE;

	way->hops = 0;
	for (uint32_t i = 0; route->result == ROUTE_OK && i < route->hops; i++)
		before = clocks_way_add(clocks, way, fabric, &route->hop[i], before);
}

/* Clocks --------------------------------------------------------------------------------------- */

static uint64_t clock_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t clock_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A value that is beyond the limit isn't a clock's. */
static uint64_t clock_believe(uint64_t value, uint64_t limit)
{
	return value <= limit ? value : 0;
}

static uint64_t clock_load(const uint64_t *word, uint64_t limit)
{
	return clock_believe(__atomic_load_n(word, __ATOMIC_RELAXED), limit);
}

/* Stores, if *word still is what it was; else *word becomes what is there. */
static bool clock_store(uint64_t *word, uint64_t *was, uint64_t value)
{
	return __atomic_compare_exchange_n(word, was, value, false, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

/* Puts it forward; returns what it was. */
static uint64_t clock_raise(uint64_t *word, uint64_t value, uint64_t limit)
{
	uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED);

	for (int i = 0; i < TRIES && clock_believe(was, limit) < value; i++)
		if (clock_store(word, &was, value))
			break;
	return clock_believe(was, limit);
}

/* Takes `ns` of the port's time, from `base` on. Returns when they begin. *busy: until when the
 * pieces before it have taken the port's time. */
static uint64_t wire_take(uint64_t *wire, uint64_t base, uint64_t ns, uint64_t limit,
			  uint64_t *busy)
{
	uint64_t was = __atomic_load_n(wire, __ATOMIC_RELAXED);
	uint64_t begin = clock_later(clock_believe(was, limit), base);

	for (int i = 0; i < TRIES && !clock_store(wire, &was, begin + ns); i++)
		begin = clock_later(clock_believe(was, limit), base);
	*busy = clock_believe(was, limit);
	return begin;
}

static uint64_t wire_ns(uint32_t bytes, uint32_t mbps, uint32_t slow)
{
	return mbps ? ((uint64_t)bytes * 8000 * slow + mbps - 1) / mbps : 0;
}

static void wait_count(const struct clocks *clocks, uint32_t port, uint8_t vl, uint64_t ns)
{
	uint64_t bit = 1ull << port % 64;

	__atomic_fetch_add(&clocks->clock[port].lane[vl].waited, ns, __ATOMIC_RELAXED);
	if (!(__atomic_load_n(&clocks->touched[port / 64], __ATOMIC_RELAXED) & bit))
		__atomic_fetch_or(&clocks->touched[port / 64], bit, __ATOMIC_RELAXED);
}

/* A piece on its way. */
struct piece {
	uint64_t base;	/* when it is sent */
	uint64_t since; /* when the port that comes next has something to send */
	uint64_t limit; /* of what clocks are believed */
};

/* By one port; `head`: when the first bit is there. Returns when it leaves. */
static uint64_t port_pass(const struct clocks *clocks, const struct clocks_hop *hop,
			  const struct piece *piece, uint64_t head, uint64_t ns)
{
	struct clock *clock = &clocks->clock[hop->port];
	uint64_t credits = clock_load(&clock->lane[hop->vl].stalled, piece->limit);
	uint64_t busy;
	uint64_t taken = wire_take(&clock->wire, piece->base, ns, piece->limit, &busy);
	uint64_t begin = clock_later(clock_later(head, credits), taken);
	uint64_t idle =
		clock_later(clock_raise(&clock->sent, begin + ns, piece->limit), piece->since);

	/* A process that has taken the port's time before may not have raised `sent` yet: the port
	 * sends its piece all the same, and doesn't wait. */
	idle = clock_later(idle, busy);
	if (idle < begin)
		wait_count(clocks, hop->port, hop->vl, begin - idle);
	return begin;
}

/* The piece leaves by the port of a hop, and its time is noted there. Returns how long that takes.
 */
static uint64_t hop_pass(const struct clocks *clocks, struct clocks_way *way,
			 struct clocks_hop *hop, struct piece piece, uint32_t bytes)
{
	struct clocks_hop *before = hop->before < way->hops ? &way->hop[hop->before] : NULL;
	uint64_t ns = wire_ns(bytes, hop->mbps, clocks->slow), head = piece.base;

	if (before)
		piece.since = head = before->begin;
	hop->begin = port_pass(clocks, hop, &piece, head, ns);
	/* The port before it has credits again when the piece leaves its buffer. */
	if (before)
		clock_raise(&clocks->clock[before->port].lane[before->vl].stalled, hop->begin,
			    piece.limit);
	hop->done = clock_later(before ? before->done : 0, hop->begin + ns);
	hop->flight = (before ? before->flight : 0) + hop->latency_ns;
	return ns;
}

struct clocks_passage clocks_pass(const struct clocks *clocks, struct clocks_way *way,
				  uint32_t bytes, uint64_t since, uint64_t ready, uint64_t now)
{
	uint64_t base = clock_earlier(ready, now);
	struct piece piece = {base, clock_earlier(since, base), now + CLOCKS_WAIT_MAX_NS};
	struct clocks_passage passage = {base, base};

	for (uint32_t i = 0; i < way->hops; i++) {
		struct clocks_hop *hop = &way->hop[i];
		uint64_t ns = hop_pass(clocks, way, hop, piece, bytes);

		passage.free = clock_later(passage.free, i ? hop->begin : hop->begin + ns);
		passage.arrived = clock_later(passage.arrived, hop->done + hop->flight);
	}
	passage.free = clock_earlier(passage.free, piece.limit) + (ready - base);
	passage.arrived += ready - base;
	return passage;
}

uint64_t clocks_wait_ticks(const struct clocks *clocks, uint32_t port, uint8_t vl)
{
	uint64_t bits = __atomic_load_n(&clocks->touched[port / 64], __ATOMIC_RELAXED);

	if (!(bits >> port % 64 & 1))
		return 0;
	return __atomic_load_n(&clocks->clock[port].lane[vl].waited, __ATOMIC_RELAXED) / TICK_NS /
	       clocks->slow;
}
