/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sender: bursts of equal packets to one destination, which the kernel cuts apart
 * (UDP_SEGMENT), so that one system call carries up to 64 KiB. The caller writes each packet where
 * net_room() says; net_add() adds its ICRC and sends the burst when it is full or can't take the
 * packet.
 *
 * Owns a few UDP sockets (socket.h). None of them is connected: their packets have IPv4
 * identification 0, 1, 2, ... in a burst, which the ICRC covers. Several source ports spread the
 * QPs over a network's paths, and keep packets for different processes of a host apart in the
 * receiver's batches (GRO).
 *
 * No call waits. A socket whose buffer is full is *blocked*: it keeps the burst that found no room,
 * and later bursts, in order (at most NET_KEPT_MAX bytes; further packets are dropped and counted).
 * sender.wait() asks to be woken when the socket can be written to; the caller's event loop then
 * calls net_resume(), which sends what is kept. Until then net_blocked() is true, and a caller that
 * can wait (a connected QP, a queue of datagrams) begins no burst on that path.
 *
 *   state of a socket      left by                                      to
 *   open (keeps nothing)   a burst finds no room                        blocked
 *   blocked                net_resume() has sent all that is kept       open
 *
 * Not thread-safe: one caller at a time, from net_begin() to net_end(); net_resume() likewise.
 */
#ifndef VERBENA_NET_SENDER_H
#define VERBENA_NET_SENDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/begun.h"
#include "net/path.h"
#include "net/socket.h"
#include "net/tap.h"
#include "wire/packet.h"

enum {
	NET_SOCKETS = 32, /* a bit for each in struct net_sender.blocked */
	NET_KEPT_MAX = 1 << 20,
};

/* Indices into struct net_sender.published. */
enum {
	NET_SENT_PACKETS,
	NET_SENT_BYTES,
	NET_SENT_REFUSED,
	NET_SENT_NO_ROOM,
	NET_SENT_ERROR,
	NET_SENT_COUNTERS
};

/* A socket with the bursts that found no room in it. */
struct net_queue {
	struct net_socket socket;
	struct net_kept *kept, **last; /* in order */
	uint32_t kept_bytes;
};

struct net_counters {
	uint64_t packets, bytes;
	uint64_t refused; /* packets that the host rejected: no route, too long, forbidden */
	uint64_t no_room; /* packets dropped because NET_KEPT_MAX or memory was exhausted */
	int last_error;	  /* errno of the latest rejected packet */
};

/* How long a system call takes that sends one short packet: the shortest of a few calls, measured
 * again periodically. */
struct net_calls {
	uint32_t count;	     /* of such calls */
	uint32_t timed;	     /* of those, timed since `ns` was last set */
	uint64_t least;	     /* ns, the shortest of these */
	_Atomic uint32_t ns; /* 0: not known yet */
};

struct net_sender {
	struct net_queue socket[NET_SOCKETS];
	bool echo; /* packets to groups are looped back to this host; set before the first path */
	/* The source port of packets to this host, see net_path.near; set before the first path. 0:
	 * there is none. */
	uint16_t near_port;
	uint8_t *buffer;
	struct net_path *path; /* of the burst */
	uint32_t end;	       /* of the burst in the buffer */
	uint32_t segment;      /* bytes of its first packet */
	uint32_t count;
	/* Of the burst: its last packet was shorter, so it takes no more. Set by net_add(), cleared
	 * when a burst begins. */
	bool closed;
	struct net_begun begun;
	/* Called when a socket has become blocked, or still is: arranges that net_resume() is
	 * called once the socket can be written to. False: it can't be arranged. Called during
	 * net_room(), net_add(), net_end() and net_resume(). NULL: no socket ever is blocked;
	 * packets that find no room are dropped. */
	bool (*wait)(void *owner, unsigned int socket);
	void *owner;
	_Atomic uint32_t blocked; /* a bit for each socket that keeps packets */
	struct net_counters counters;
	struct net_calls calls;
	_Atomic uint64_t *published; /* a copy of `counters` for other processes; NULL: none */
	net_tap_place tap;	     /* is given each sent packet; NULL: none */
};

/* Prepares a sender. 0 or -errno. */
int net_sender_init(struct net_sender *sender);
void net_sender_fini(struct net_sender *sender);

/* In a forked child: closes the sockets, which are the parent's. */
void net_sender_leave(struct net_sender *sender);

/*
 * Chooses the path's source port: the one that RoCEv2 derives from the flow label (or, without one,
 * from the QPs' numbers), or another one where that isn't free on this host. The caller has filled
 * in the addresses. 0 or -errno.
 */
int net_path_bind(struct net_sender *sender, struct net_path *path, uint32_t flow_label,
		  uint32_t local_qpn, uint32_t remote_qpn);

/* Whether one of the sender's sockets has the source address and port. */
bool net_sender_has(const struct net_sender *sender, const struct icrc_path *path);

void net_begin(struct net_sender *sender, struct net_path *path);
/* Whether the next packet begins a burst, as far as this is known before the packet is written. */
bool net_between(const struct net_sender *sender);
/* How many packets of `size` bytes, without ICRC, make a full burst. */
uint32_t net_burst(uint32_t size);
/* Where the caller writes the next packet: WIRE_PACKET_MAX bytes. */
uint8_t *net_room(struct net_sender *sender);
/* Takes a packet of `size` bytes, BTH to padding, that was written there; adds four bytes of
 * ICRC. */
void net_add(struct net_sender *sender, uint32_t size);
/* Sends the current burst. */
void net_end(struct net_sender *sender);

/* Whether the path's socket is blocked. Callable from any thread, but reliable only in the thread
 * that uses the sender. */
static inline bool net_blocked(const struct net_sender *sender, const struct net_path *path)
{
	uint32_t blocked = atomic_load_explicit(&sender->blocked, memory_order_relaxed);

	return __builtin_expect(blocked != 0, 0) && blocked >> path->socket & 1;
}

/* Call when a blocked socket can be written to: sends what it keeps, as far as there is room. True:
 * it is open again; false: wait() was called once more. */
bool net_resume(struct net_sender *sender, unsigned int socket);

/* How long a system call takes that sends one short packet, ns; 0: not known. From any thread. */
static inline uint32_t net_call_ns(const struct net_sender *sender)
{
	return atomic_load_explicit(&sender->calls.ns, memory_order_relaxed);
}

#endif
