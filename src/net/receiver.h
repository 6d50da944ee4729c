/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The receiver: takes datagrams off the slot's socket, several per system call and many packets in
 * each (UDP_GRO), checks their ICRC, and passes them on decoded, several at a time. Invalid packets
 * are counted by reason and dropped here.
 *
 * Owns its buffers; the caller owns the socket. Not thread-safe.
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

/* What is known about a packet besides its bytes: its sender, its destination address, IP
 * fields. */
struct net_from {
	struct icrc_path ip; /* source: the other host's address */
	uint32_t ifindex;
	uint8_t traffic_class; /* ECN in the lowest two bits */
	uint8_t hop_limit;
};

struct net_received {
	uint64_t packets, bytes;
	uint64_t bad_icrc;
	uint64_t malformed[PACKET_ERRORS];
};

/* Indices into struct net_receiver.published. */
enum {
	NET_CAME_PACKETS,
	NET_CAME_BYTES,
	NET_CAME_BAD_ICRC,
	NET_CAME_MALFORMED, /* plus enum packet_error - 1: malformed, by reason */
	NET_CAME_COUNTERS = NET_CAME_MALFORMED + PACKET_ERRORS - 1
};

/* A received packet, intact. */
struct net_packet {
	struct packet packet;
	const char *dropped;  /* why (a text with static lifetime); NULL: it wasn't */
	const uint8_t *bytes; /* BTH to ICRC */
	uint32_t size;
	uint16_t id; /* IPv4's identification */
};

/* So many packets are handed on together at most, and so many bytes (four packets of the largest
 * MTU), which stay in the nearest cache between the check of the ICRC and the copy to where the
 * payload belongs. */
enum { NET_RUN = 16, NET_RUN_BYTES = 20480 };

/* Handles a run: up to NET_RUN packets of one sender, in the order in which they came. Those that
 * the handler drops get `dropped`, which is NULL before. */
typedef void net_handler(void *arg, struct net_packet *run, unsigned int count,
			 const struct net_from *from);

struct net_receiver {
	int fd;
	uint8_t *buffers;
	/* The caller serialises net_receive() (roce: hca.engine), so no lock here guards these. */
	uint8_t found; /* consecutive receives that found packets, counted up to a few */
	bool many;     /* a prediction, renewed by each receive: several datagrams are queued */
	struct net_begun begun;
	struct net_received counters;
	_Atomic uint64_t *published; /* a copy of `counters` for other processes; NULL: none */
	net_tap_place tap;	     /* is given each received packet; NULL: none */
};

/* Prepares a receiver for the socket `fd`. 0 or -errno. */
int net_receiver_init(struct net_receiver *receiver, int fd);
void net_receiver_fini(struct net_receiver *receiver);

/* Whether the kernel is asked for the traffic class of each datagram that comes to the socket `fd`
 * (else it counts as 0), which takes it 80 ns. Any thread: not by a receiver, whose `fd` belongs to
 * its caller. */
void net_receiver_class(int fd, bool asked);

/*
 * Passes what is queued now to `handler`, some hundred KiB at most. Returns how many packets there
 * were, good or bad; 0: the socket was empty.
 */
unsigned int net_receive(struct net_receiver *receiver, net_handler *handler, void *arg);

#endif
