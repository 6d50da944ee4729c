/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire: the host's sockets on the RoCEv2 port, one for each slot (design decision 8).
 *
 * They are one SO_REUSEPORT group. A classic BPF program on it reads the slot out of a packet's
 * destination QPN; the kernel then delivers to the socket at that *place* of the group, in the
 * order in which the sockets were bound. A place must never shift, so nothing that was bound is
 * ever closed while a process is attached: sockets are bound in steps, from 0 up to the highest
 * slot that was ever needed. Place 0 is the daemon's own (QPN 0 and 1), and so is the last one.
 *
 * The first is bound to a port that must be free, and a guard that gets no packets keeps the port
 * taken but while others of the group are bound: no other program, not even of the same user (a
 * second daemon, for example), joins the group and shifts its places.
 *
 * What a process can do that has the socket of its slot (measured on Linux 6.18,
 * tests/unit/daemon/test_wire.c): SO_LOCK_FILTER keeps it from changing the socket's filter and
 * from attaching a program to the group. It doesn't keep it from taking the program off
 * (SO_DETACH_REUSEPORT_BPF), nor from leaving the group (connect(), SO_BINDTODEVICE), after which
 * the last socket of the group has its place, nor from being found before the group (connect() and
 * its undoing), after which nobody gets anything. It reads nobody's packets by any of these,
 * because of the filters; but others can lose theirs. So the program is attached anew whenever a
 * process comes or goes; the last place is never given out; and a packet is sent through a place
 * before it is given out. Where that doesn't arrive, the slot goes without the wire, `verbena
 * status` says so, and the group is made anew when nobody is attached.
 *
 * Datagrams to multicast groups come to each socket that is a member (mcast.h), past the program
 * and the places. A process can make its socket a member of any group; so could it attach a queue
 * pair, which needs no privilege either.
 *
 * A process may have left a copy of its socket with another one when it ended. So a place that
 * somebody of another user had gets another socket before it is given out: the old one leaves the
 * group, and the last one of the group takes its place.
 *
 * A socket that nobody has takes in next to nothing.
 */
#ifndef VERBENA_DAEMON_NET_UDP_SLOTS_H
#define VERBENA_DAEMON_NET_UDP_SLOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/net/park.h"
#include "proto/limits.h"

/* One more than there are slots: the last place is nobody's. */
enum { UDP_SLOTS_PLACES = LIMIT_SLOTS + 1 };

/* It was never given out; the last daemon may have given it to anybody. */
#define UDP_SLOTS_NOBODY ((uid_t)-1)
#define UDP_SLOTS_SOMEBODY ((uid_t)-2)

struct wire {
	int fd[UDP_SLOTS_PLACES];
	uid_t owner[UDP_SLOTS_PLACES]; /* whose processes may have it; UDP_SLOTS_NOBODY,
					  UDP_SLOTS_SOMEBODY */
	uint32_t count;		       /* places; 0: the wire isn't open */
	int guard;		       /* see slot_socket_guard(); -1: none */
	bool off;		       /* by configuration */
	bool managed;		       /* a service manager keeps the park, too (activation.h) */
	bool ipv6;
	bool broken; /* somebody changed the order of the places */
	bool leaving;
	bool unproved; /* packets through loopback don't arrive: places can't be tried */
	struct park park;
	char owner_text[64]; /* who has the port, and when that was looked up */
	uint64_t owner_at_ms;
	char why[192]; /* it isn't open, or not for all: a sentence; empty: nothing to say */
};

void udp_slots_init(struct wire *wire, bool off, bool managed);
/* The sockets are closed here; processes that have some keep them, and the park. */
void udp_slots_close(struct wire *wire);

/*
 * A process that returns brought `park`, which is taken over on success. 0; -EALREADY there are
 * sockets; -EINVAL it isn't one, or what is in it isn't right; -errno.
 */
int udp_slots_adopt(struct wire *wire, int park);

/* Opens it, unless it is open. 0; -ENODEV off by configuration; -EADDRINUSE others have the port;
 * -errno. wire->why tells. */
int udp_slots_open(struct wire *wire);

/*
 * The socket of a slot that is given out now, to a process of this user; stays the wire's.
 * `returning`: its process has it already. Errors as those of udp_slots_open().
 */
int udp_slots_slot(struct wire *wire, uint32_t slot, uid_t uid, bool returning);
/* This daemon ends, its processes perhaps don't: their sockets stay as they are. */
void udp_slots_leave(struct wire *wire);
/* The slot's process is gone. */
void udp_slots_slot_done(struct wire *wire, uint32_t slot);
/* Nobody has a slot any more: what somebody broke can be made anew. */
void udp_slots_all_done(struct wire *wire);

#endif
