/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of multicast groups: in which processes of the host queue pairs are attached to which
 * group. A sender looks there with each datagram to a group, so that it asks nobody.
 *
 * One memory file, made by the daemon and mapped by each process that is attached, read-only (it is
 * sealed, F_SEAL_FUTURE_WRITE and the others). A place has a group's GID and a bit for each slot. A
 * group's place is one of those of a bucket, by a hash of its GID; a place whose bits are all 0 may
 * be used for another group.
 *
 * Written by: the daemon's thread only. It sets a slot's bit before it answers the process that
 * attaches, so whoever sends after that was said sends to this process, too.
 * Read by: senders, at any time, without a lock. Nothing that they find there is relied upon: a
 * datagram for a group that its receiver isn't attached to is dropped by the receiver. A place that
 * changes its group has a GID meanwhile that no group has. So all accesses are relaxed: what a
 * sender must see, the daemon has written before it answered, and the answer's system calls order
 * that.
 *
 * Beside the groups stands a number that changes with the host's addresses (`addresses`): what the
 * daemon said of its own addresses (PROTO_ROUTE) holds as long as the number stays. It is read
 * before the daemon is asked. A new table begins with a random one. And there are these addresses
 * themselves, the GIDs of all devices: what a datagram of this host gives as its source is one of
 * them. The daemon changes them first and the number then [G3]; a receiver reads the number [G4]
 * before it looks for a GID, so an answer that it keeps with that number is never older. While an
 * address is being written a receiver may find half of it: that answer is kept with the old number.
 *
 * The next daemon makes a new table, which lacks those who haven't returned yet, until it says
 * `settled`: until then senders take the old one as well.
 */
#ifndef VERBENA_SHM_GROUPS_H
#define VERBENA_SHM_GROUPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

#define GROUPS_MAGIC 0x766267726f757073ull
#define GROUPS_VERSION 3u

/* GIDs of the host: a device has LIMIT_GIDS at most, devices share addresses. */
enum { GROUPS_OWN = 2048 };

/* Twice as many places as there may be groups: the buckets fill unevenly. */
enum { GROUPS_WAYS = 64, GROUPS_BUCKETS = 2 * LIMIT_MCAST_GROUPS / GROUPS_WAYS };
enum { GROUPS_PLACES = GROUPS_BUCKETS * GROUPS_WAYS, GROUPS_WORDS = LIMIT_SLOTS / 64 };

struct groups_gid {
	_Atomic uint64_t word[2]; /* 0, 0: nobody has ever had this place, nor those after it */
};

struct groups_slots {
	_Atomic uint64_t word[GROUPS_WORDS];
};

struct groups {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t settled; /* all processes of the last daemon are back, or have ended */
	uint64_t seed;		  /* random: nobody chooses GIDs that fall into one bucket */
	_Atomic uint64_t addresses;
	_Atomic uint32_t own_count;
	_Alignas(4096) struct groups_gid own[GROUPS_OWN];
	_Alignas(4096) struct groups_gid gid[GROUPS_PLACES];
	_Alignas(4096) struct groups_slots slots[GROUPS_PLACES];
};

#define GROUPS_SIZE sizeof(struct groups)

/* Adds (by "or") the slots that a group has to `slots`. False: it has none. */
bool groups_find(const struct groups *groups, const uint8_t gid[16], uint64_t slots[GROUPS_WORDS]);

/* An address that the host has, and the number of its addresses at which that was so; 0: none. */
struct groups_known {
	uint64_t addresses;
	uint8_t gid[16];
};

/* The number of the host's addresses; to be read before groups_is_own(). */
uint64_t groups_addresses(const struct groups *groups);
/* Whether the host has this address. */
bool groups_is_own(const struct groups *groups, const uint8_t gid[16]);

/* The daemon's. All addresses of the host, `count` GIDs; those beyond GROUPS_OWN are
 * left out. Changes the number, too. */
void groups_set_own(struct groups *groups, const uint8_t (*gids)[16], uint32_t count);

/* The daemon's. `gid` is a multicast one. 0; -ENOMEM the group's bucket is full. */
int groups_set(struct groups *groups, const uint8_t gid[16], uint32_t slot);
/* Does nothing when it isn't set. */
void groups_clear(struct groups *groups, const uint8_t gid[16], uint32_t slot);

#endif
