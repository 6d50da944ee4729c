/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Link speed and contention: virtual clocks of the ports, in memory that all processes on the
 * fabric's nodes share. With `verbena fabric up --timing` all cables take time; else those only to
 * which a fault was given, `delay` or `rate`, and data that crosses none of them takes no time.
 * A sender takes its data through the clocks of the ports on its way, piece by piece, and learns
 * when the last bit would be at the other end; it holds its request back until then.
 *
 * The model:
 *   rate       a port sends a piece of CLOCKS_PIECE bytes or less in the time that the link's width
 *              and speed need for it, one piece after the other, in the order in which the senders
 *              came. So senders share a link, whichever ports of the switch they come by
 *   latency    each bit is at the cable's other end after the cable's delay; a switch passes a
 *              piece on while it still comes in
 *   credits    the buffer behind a cable has room, for each lane, for the piece that leaves it and
 *              for one more. So a port doesn't begin a piece on a lane before the one before it on
 *              this lane has begun to leave the next switch. A link that is too slow for what is
 *              sent to it thus slows the links before it, and what else comes by the same lanes
 *   sender     begins with a piece when its port is done with the sender's piece before it, and
 *              that one has begun to leave by the last port of the way: it has one piece in the
 *              buffers
 *   groups     a datagram to a group leaves each switch by all ports of its tree; it is there when
 *              its last copy is
 *
 * All times are ns of CLOCK_MONOTONIC, and `slow` times as long as they would be with adapters.
 *
 * The clocks don't have latencies: a port's time is accounted as of the moment at which a sender
 * sends, and the way's latency is added at its end. So a piece that is still on its way doesn't
 * keep others from using the port before it arrives.
 *
 * Which process writes what:
 *   the clocks       every process on a node, at any moment, without locks
 *   touched          likewise; only sets bits
 *   nothing else     the memory is made, zero, by verbena-fabric, which only reads `touched` and
 *                    `waited`
 * Any process may end at any moment. A clock is never held: it says until when a port is in use,
 * and that time passes without the help of any process. verbena-fabric isn't needed; when it is
 * started again, it makes new memory, which the processes map in place of the old one.
 *
 * What a hostile process can do: write any value at any moment. A value further ahead than
 * CLOCKS_WAIT_MAX_NS isn't believed. So it can make others wait that long, and no longer, for each
 * piece; can make ports seem free; and can make verbena-fabric count too much PortXmitWait. No
 * value is an index or an address, and no loop depends on a value.
 */
#ifndef VERBENA_FABRIC_CLOCKS_H
#define VERBENA_FABRIC_CLOCKS_H

#include "fabric/route.h"

#define CLOCKS_PIECE 16384u /* bytes on the wire that one sender sends before the next one does */
#define CLOCKS_WAIT_MAX_NS 60000000000ull
#define CLOCKS_SLOW_MAX 10000u

/* Of a port, as a sender. */
struct clock {
	uint64_t wire; /* until when the pieces that were accepted keep it busy */
	uint64_t sent; /* when the last bit of the last piece leaves it */
	uint64_t reserved[6];
	struct clock_lane {
		uint64_t stalled; /* until when there are no credits */
		uint64_t waited;  /* ns; in all, while it had something to send, and nothing was */
	} lane[FABRIC_VLS];
};

_Static_assert(sizeof(struct clock) == 192, "three cache lines");

/* The shared memory. `slow` 0: there is none. */
struct clocks {
	uint64_t *touched;   /* a bit for each port one of whose `waited` isn't 0 */
	struct clock *clock; /* by row of the port */
	uint32_t ports, slow;
	bool faults_only; /* a cable without a fault takes no time */
};

/* The bytes of the memory for so many ports; and where in it what is. `slow`: the header's, of
 * which 0 means that only faults take time. */
size_t clocks_bytes(uint32_t ports);
void clocks_locate(struct clocks *clocks, void *memory, uint32_t ports, uint32_t slow);

/* A way, or the tree of a group, with what the clocks need of its ports: those that take time. Of
 * no hops: no time passes. The caller brings the memory of `room` hops. */
struct clocks_way {
	uint32_t hops, room;
	struct clocks_hop {
		uint32_t port;
		uint32_t mbps;	 /* 0: the cable only delays */
		uint32_t before; /* the hop before it; FABRIC_NONE: none, it is the sender's */
		uint8_t vl;
		uint64_t latency_ns; /* slowed */
		/* Of the piece that passed last: when it began to leave by the port; until when it
		 * and those before it were busy; latencies up to the cable's other end. */
		uint64_t begin, done, flight;
	} * hop;
};

/* The way of a route. A packet that gets nowhere takes no time. */
void clocks_way_set(const struct clocks *clocks, struct clocks_way *way,
		    const struct fabric *fabric, const struct fabric_route *route);
/* Adds a hop behind the hop `before`. Returns its index, or `before` if it takes no time or there
 * is no room. */
uint32_t clocks_way_add(const struct clocks *clocks, struct clocks_way *way,
			const struct fabric *fabric, const struct route_hop *hop, uint32_t before);

/* Mb/s of data that a port's link carries; at least 1. */
uint32_t port_data_mbps(const struct fabric_port *port);

struct clocks_passage {
	uint64_t free;	  /* when the sender may send the next piece */
	uint64_t arrived; /* when the last bit is there */
};

/* A piece of `bytes` is sent at `ready`; `since`: since when the sender has had something to send,
 * without pause. Both results are at most `now` + CLOCKS_WAIT_MAX_NS + the way's own time. */
struct clocks_passage clocks_pass(const struct clocks *clocks, struct clocks_way *way,
				  uint32_t bytes, uint64_t since, uint64_t ready, uint64_t now);

/* What PortVLXmitWait is to have counted for the port's lane until now: microseconds, as
 * PortSamplesControl says (samples.c), of a fabric that isn't slowed. */
uint64_t clocks_wait_ticks(const struct clocks *clocks, uint32_t port, uint8_t vl);

#endif
