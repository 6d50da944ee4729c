/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire: the host's sockets on the RoCEv2 port, one for each slot.
 *
 * The sockets form one SO_REUSEPORT group. A classic BPF program on the group reads the slot out of
 * a packet's destination QPN; the kernel then delivers to the socket at that *place* of the group,
 * in the order in which the sockets were bound. A place must never shift, so no bound socket is
 * closed while a process is attached, and sockets are bound in steps, from 0 up to the highest slot
 * that was ever needed. Place 0 is the daemon's own (QPN 0 and 1), and so is the last one.
 *
 * The first socket is bound to a port that must be free. A guard, a socket that gets no packets,
 * makes the port look taken except while the daemon binds further sockets of the group: no other
 * program, not even of the same user (a second daemon, for example), can join the group and shift
 * its places.
 *
 * What a process can do with its slot's socket (measured on Linux 6.18,
 * tests/unit/daemon/test_wire.c): SO_LOCK_FILTER prevents changing the socket's filter, and
 * attaching a program to the group. It doesn't prevent detaching the group's program
 * (SO_DETACH_REUSEPORT_BPF), nor leaving the group (connect(), SO_BINDTODEVICE), after which the
 * last socket of the group has its place, nor being found before the group (connect() and its
 * undoing), after which no socket gets anything. By none of these can it read others' packets,
 * because of the filters; but others can lose theirs. So the program is attached anew whenever a
 * process comes or goes; the last place is never given out; and a packet is sent through a place
 * before it is given out. Where that doesn't arrive, the slot goes without the wire, `verbena
 * status` says so, and the group is made anew when no process is attached.
 *
 * Datagrams to multicast groups come to each socket that is a member (mcast.h), without the program
 * and the places. A process can make its socket a member of any group; it could as well attach a
 * queue pair, which needs no privilege either.
 *
 * Any program of the host can send to the port, by an ordinary socket and from the host's own
 * addresses. Processes of one host need no UDP between them, so the filter drops what this host
 * has sent itself, except at a process that wants its host's packets by UDP as well
 * (VERBENA_CARRIER=wire), which then checks their origin itself (slot_source.h).
 *
 * A process that ended may have left a copy of its socket with another process. So a place that
 * belonged to another user gets another socket before it is given out: the old one leaves the
 * group, and the last one of the group takes its place.
 *
 * The buffer of a socket without a process is minimal.
 */
#ifndef VERBENA_DAEMON_NET_UDP_SLOTS_H
#define VERBENA_DAEMON_NET_UDP_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/net/park.h"
#include "proto/limits.h"

/* One more than there are slots: the last place is never given out. */
enum { UDP_SLOTS_PLACES = LIMIT_SLOTS + 1 };

/* NOBODY: the place was never given out. SOMEBODY: the last daemon may have given it to any
 * user. */
#define UDP_SLOTS_NOBODY ((uid_t)-1)
#define UDP_SLOTS_SOMEBODY ((uid_t)-2)

/*
 * The sockets are open if `count` isn't 0. The flags are facts about them and about the host, which
 * hold at the same time; `off` and `managed` are set at the start. The daemon is one thread, so no
 * lock guards them.
 *   flag      set by                                     cleared by
 *   ipv6      open_group(), if the host has IPv6; the    open_group()
 *             family of adopted sockets
 *   broken    udp_slot_broken(): a slot's packets went   udp_slots_all_done(), which closes the
 *             to another place                           sockets first; opening, adopting
 *   unproved  try_loopback(), when the sockets are       opening, adopting
 *             opened
 *   leaving   udp_slots_leave()                          never: the daemon ends
 */
struct wire {
	int fd[UDP_SLOTS_PLACES];
	uid_t owner[UDP_SLOTS_PLACES]; /* the user whose processes may have it, or a value above */
	bool loops[UDP_SLOTS_PLACES];  /* its filter passes this host's own packets; the first
					  place's: set before the group is opened */
	/* The last daemon may have made it a member of groups: set by udp_slots_adopt(); the next
	 * process at the place gets another socket. Other memberships end with the queue pairs'. */
	bool is_member[UDP_SLOTS_PLACES];
	uint32_t count; /* places; 0: the wire isn't open */
	int guard;	/* see slot_socket_guard(); -1: none */
	bool off;	/* by configuration */
	bool managed;	/* a service manager keeps the park as well (activation.h) */
	bool ipv6;	/* the sockets are of IPv6, and take IPv4 as well */
	bool broken;	/* a process changed the order of the places */
	bool leaving;	/* the daemon ends: the sockets stay as they are */
	bool unproved;	/* packets through loopback don't arrive: places can't be tested */
	struct park park;
	uint32_t park_most;  /* places that the park may have, see udp_slots_init() */
	char owner_text[64]; /* which program has the port, looked up at owner_at_ms */
	uint64_t owner_at_ms;
	char why[192]; /* why it isn't open, or not for all: a sentence; or empty */
};

/*
 * `off`: never open it; `managed`: see struct wire. Call it before the limit of open files is
 * raised: the descriptors in the park count as the user's, and while a user has more of them in
 * sockets than its limit, none of its programs may send one, so none can attach. Half of the limit
 * is left to them. Root is no exception: in a container it lacks the capabilities that would lift
 * this.
 */
void udp_slots_init(struct wire *wire, bool off, bool managed);
/* Closes the sockets in the daemon; processes keep theirs, and the park. */
void udp_slots_close(struct wire *wire);

/*
 * Takes over `park`, which a process that is returning brought. Returns 0; -EALREADY: the wire is
 * open; -EINVAL: not a park, or one with wrong contents; -errno. On failure `park` stays the
 * caller's.
 */
int udp_slots_adopt(struct wire *wire, int park);

/* Opens the wire, unless it is open. Returns 0; -ENODEV: off by configuration; -EADDRINUSE: other
 * sockets have the port; -errno. On failure wire->why has the reason. */
int udp_slots_open(struct wire *wire);

/*
 * Gives out the socket of a slot to a process of this user; returns it (it stays the wire's), or
 * errors as udp_slots_open(). RETURNING: the process has the socket already; LOOPS: it wants what
 * this host sends, too.
 */
enum { UDP_SLOTS_RETURNING = 1, UDP_SLOTS_LOOPS = 2 };
int udp_slots_slot(struct wire *wire, uint32_t slot, uid_t uid, unsigned int flags);
/* The socket of a slot that a process of this user had, which stays the wire's; or -ENODEV. */
int udp_slots_inherited(const struct wire *wire, uint32_t slot, uid_t uid);
/* The daemon ends, but its processes may live on: from now on their sockets are left as they
 * are. */
void udp_slots_leave(struct wire *wire);
/* The slot's process has ended. */
void udp_slots_slot_done(struct wire *wire, uint32_t slot);
/* No process has a slot any more: a group whose order was changed is closed, to be made anew. */
void udp_slots_all_done(struct wire *wire);

#endif
