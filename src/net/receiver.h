/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets in: takes datagrams off the slot's socket, several with a system call and many packets in
 * each (UDP_GRO), checks their ICRC, and hands them on decoded. What isn't a right packet is
 * counted by its reason and dropped here.
 *
 * Owns its buffers; the socket is its caller's. Not thread-safe.
 */
#ifndef VERBENA_NET_RECEIVER_H
#define VERBENA_NET_RECEIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/begun.h"
#include "net/tap.h"
#include "wire/icrc.h"
#include "wire/packet.h"

/* Beside a packet: who sent it, to which of our addresses, and how. */
struct net_from {
	struct icrc_path ip; /* source: the other host */
	uint32_t ifindex;
	uint8_t traffic_class; /* ECN in the lowest two bits */
	uint8_t hop_limit;
};

struct net_received {
	uint64_t packets, bytes;
	uint64_t bad_icrc;
	uint64_t malformed[PACKET_ERRORS];
};

/* Places of struct net_receiver.published. */
enum {
	NET_CAME_PACKETS,
	NET_CAME_BYTES,
	NET_CAME_BAD_ICRC,
	NET_CAME_MALFORMED, /* by enum packet_error, from the first on that is one */
	NET_CAME_COUNTERS = NET_CAME_MALFORMED + PACKET_ERRORS - 1
};

/* Returns NULL, or why the packet was dropped (a text that stays). */
typedef const char *net_handler(void *arg, const struct packet *packet,
				const struct net_from *from);

struct net_receiver {
	int fd;
	uint8_t *buffers;
	uint8_t found; /* looks in a row that found something, counted up to a few */
	bool many;     /* more than one packet is likely to be there */
	struct net_begun begun;
	struct net_received counters;
	_Atomic uint64_t *published; /* a copy of `counters` for others; NULL: nobody reads it */
	net_tap_place tap;	     /* sees what arrived; NULL: nobody */
};

/* 0 or -errno. */
int net_receiver_init(struct net_receiver *receiver, int fd);
void net_receiver_fini(struct net_receiver *receiver);

/*
 * Hands on what is there now, some hundred KiB at most. Returns how many packets there were, good
 * or bad; 0: the socket was empty.
 */
unsigned int net_receive(struct net_receiver *receiver, net_handler *handler, void *arg);

#endif
