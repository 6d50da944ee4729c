/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time that a queue pair's messages need on their way: on a fabric with link speed and
 * contention (fabric/clocks.h; `verbena fabric up --timing`) all of them, on other fabrics those
 * that cross a cable with a fault (`verbena fabric delay`, `rate`). A queue pair has a struct
 * transit only when its messages need time.
 *
 * A message is sent piece by piece: each when the port is done with the one before, which is then
 * in the past, unless this process is late. A process that is late catches up: it takes the pieces
 * through the clocks as of the time at which it was to do so. When all pieces are sent, it is known
 * when the message is there (`due`). A READ or an atomic operation is a request, and pieces that
 * come back; it is due when these are here. Any other request of a reliable queue pair is
 * acknowledged when it is there: its completion waits until that is back (`answered`). What a
 * request is lost by takes no time (no way, a fault).
 *
 * A datagram to a group passes all cables of its tree, and is due when the last copy is there.
 *
 * Used under qp.lock. This room uses no other room of the HCA.
 */
#ifndef VERBENA_HCA_FABRIC_TRANSIT_H
#define VERBENA_HCA_FABRIC_TRANSIT_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/clocks.h"
#include "hca/fabric/node.h"

/* Maps the clocks of the node's fabric. With clocks that are mapped, maps those of the next
 * verbena-fabric in their place. 0 or -errno. */
int transit_map(const struct node *node, struct clocks *clocks);
void transit_unmap(struct clocks *clocks);

/* A message: where it goes (`lid` 0: nowhere, and in no time), and bytes on the wire. */
struct transit_load {
	uint16_t lid;
	uint8_t port; /* number */
	uint8_t sl, pkey_index;
	uint64_t bytes, answer;
	bool is_acked; /* when it is there */
};

struct transit;

/* NULL: no memory. */
struct transit *transit_new(const struct node *node, const struct clocks *clocks);
/* NULL is allowed. */
void transit_free(struct transit *transit);
/* Whether messages need time yet: on a fabric where only faults take time, one of the ways that
 * were found since its tables changed last does. */
bool transit_is_needed(const struct transit *transit);
/* Nothing is under way any more. */
void transit_clear(struct transit *transit);

/* The queue was empty until now (ns). */
void transit_begin(struct transit *transit, uint64_t now);
/* When the next piece may be sent, ns. */
uint64_t transit_next(const struct transit *transit);
struct transit_times {
	uint64_t due;	   /* when it is there: not before those sent before it */
	uint64_t answered; /* when its sender knows that, likewise */
};

/* Sends a piece of the message, the same one until it has been sent. True: it has. */
bool transit_send(struct transit *transit, const struct transit_load *load, uint64_t now,
		  struct transit_times *times);

#endif
