/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of multicast groups: in which processes of the host queue pairs are attached to which
 * group. A sender reads it with each datagram to a group, so it needs no call to the daemon.
 *
 * It is one memory file, made by the daemon and mapped read-only by each process (it is sealed,
 * F_SEAL_FUTURE_WRITE and the others). A place has a group's GID and a bit for each slot. A hash of
 * the GID selects a bucket of places; a place whose bits are all 0 may be used for another group.
 *
 * Written by: the daemon's thread only. It sets a slot's bit before it answers the process that
 * attaches, so a sender that sends after that answer reaches this process, too.
 * Read by: senders, at any time, without a lock. No sender relies on what it reads: a datagram for
 * a group that its receiver isn't attached to is dropped by the receiver. A place that changes its
 * group has, in between, a GID that no group has. So all accesses are relaxed: the daemon writes
 * what a sender must see before it answers, and the system calls of the answer order the two.
 *
 * The table also has a number that changes with the host's addresses (`addresses`): the daemon's
 * answers about its own addresses (PROTO_ROUTE) are valid while the number stays the same. A
 * process reads the number before it asks the daemon. A new table begins with a random number.
 *
 * And it has these addresses themselves, the GIDs of all devices (`own`): the source of a datagram
 * of this host must be one of them. The daemon changes the addresses first and the number then
 * [G3]; a receiver reads the number [G4] before it looks for a GID, so an answer that it keeps with
 * that number is never older than the number. While an address is being written a receiver may read
 * half of it: that answer is kept with the old number.
 *
 * Of each device's port it has the length of the longest datagram (`datagram_bytes`), which follows
 * the interface's MTU: a process reads it as it starts a datagram.
 *
 * And it has the source port of each slot's packets to its own host, for the processes that send
 * such packets (PROTO_SOURCE). The daemon sets a port before it answers the process, and clears it
 * before another socket can be bound to that port.
 *
 * The file also holds the table of XRC target queue pairs (xrc.h).
 * The flow rules of raw packet queue pairs are in the same file (flows.h).
 *
 * The next daemon makes a new table, which lacks the processes that haven't returned yet. Senders
 * use the old table as well until the new one is `settled`.
 */
#ifndef VERBENA_SHM_GROUPS_H
#define VERBENA_SHM_GROUPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"
#include "shm/flow_rules.h"
#include "shm/xrc.h"

#define GROUPS_MAGIC 0x766267726f757073ull
#define GROUPS_VERSION 5u

/* GIDs of the host: a device has LIMIT_GIDS at most, devices share addresses. */
enum { GROUPS_OWN = 2048 };

/* The most devices that a daemon may have. */
enum { GROUPS_DEVICES = 64 };

/* Twice as many places as there may be groups: the buckets fill unevenly. */
enum { GROUPS_WAYS = 64, GROUPS_BUCKETS = 2 * LIMIT_MCAST_GROUPS / GROUPS_WAYS };
enum { GROUPS_PLACES = GROUPS_BUCKETS * GROUPS_WAYS, GROUPS_WORDS = LIMIT_SLOTS / 64 };

struct groups_gid {
	_Atomic uint64_t word[2]; /* 0, 0: this place and those after it have never been used */
};

struct groups_slots {
	_Atomic uint64_t word[GROUPS_WORDS];
};

struct groups {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t settled; /* all processes of the last daemon are back, or have ended */
	uint64_t seed; /* of the hash; random, so no user can choose GIDs of one bucket */
	_Atomic uint64_t addresses;
	_Atomic uint32_t own_count;
	/* By device: the active MTU, bytes; 0: the daemon hasn't looked at the port yet */
	_Atomic uint32_t datagram_bytes[GROUPS_DEVICES];
	_Alignas(4096) struct groups_gid own[GROUPS_OWN];
	_Alignas(4096) _Atomic uint16_t source_port[LIMIT_SLOTS]; /* 0: the slot sends none */
	_Alignas(4096) struct groups_gid gid[GROUPS_PLACES];
	_Alignas(4096) struct groups_slots slots[GROUPS_PLACES];
	_Alignas(4096) struct xrc_table xrc;
	_Alignas(4096) struct flow_rules flows;
};

#define GROUPS_SIZE sizeof(struct groups)

/* ORs the slots of the processes attached to the group into `slots`. False: the group has none. */
bool groups_find(const struct groups *groups, const uint8_t gid[16], uint64_t slots[GROUPS_WORDS]);

/* An address of the host, and the value of groups.addresses for which that is known; 0: nothing
 * is. */
struct groups_known {
	uint64_t addresses;
	uint8_t gid[16];
};

/* The number that changes with the host's addresses; to be read before groups_is_own(). */
uint64_t groups_addresses(const struct groups *groups);
/* Whether the host has this address. */
bool groups_is_own(const struct groups *groups, const uint8_t gid[16]);

/* Whether the GID is a loopback address, which any host has. */
bool groups_is_loopback(const uint8_t gid[16]);

/* Daemon only. Sets the addresses of the host, `count` GIDs, and changes the number. GIDs beyond
 * GROUPS_OWN are left out. */
void groups_set_own(struct groups *groups, const uint8_t (*gids)[16], uint32_t count);

/* Daemon only. Sets the slot's bit in the group of this multicast GID. 0, or -ENOMEM: the group's
 * bucket is full. */
int groups_set(struct groups *groups, const uint8_t gid[16], uint32_t slot);
/* Daemon only. Clears the bit, if it is set. */
void groups_clear(struct groups *groups, const uint8_t gid[16], uint32_t slot);

#endif
