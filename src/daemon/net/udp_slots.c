/* SPDX-License-Identifier: BSD-2-Clause */
/* See udp_slots.h. Only the daemon's thread calls it. */
#include "daemon/net/udp_slots.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/core/activation.h"
#include "daemon/core/loop.h"
#include "daemon/net/slot_socket.h"
#include "daemon/net/udp_group.h"

enum { STEP = 16, OWNER_MS = 1000, FILES_SHARE = 4 };

/* How long a probe's packet may take. It is there at once unless the kernel's thread for packets
 * gets no processor, which takes tens of milliseconds on a loaded machine; a daemon that then took
 * the group for broken would refuse the wire to all new programs. The daemon waits meanwhile, so it
 * is patient once only: a process that breaks the group again and again costs it little. */
enum { PROBE_QUICK_MS = 20, PROBE_PATIENT_MS = 1000, PROBE_REUSED_MS = 5 };

static void udp_slots_log_fault(struct wire *wire, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void udp_slots_log_fault(struct wire *wire, const char *format, ...)
{
	char text[sizeof(wire->why)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (strcmp(text, wire->why) != 0)
		log_info("%s", text);
	memcpy(wire->why, text, sizeof(text));
}

static uint32_t park_most(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur / 2 > UDP_SLOTS_PLACES)
		return UDP_SLOTS_PLACES;
	return (uint32_t)(limit.rlim_cur / 2);
}

void udp_slots_init(struct wire *wire, bool off, bool managed)
{
	*wire = (struct wire){
		.off = off, .managed = managed, .guard = -1, .park_most = park_most()};
	park_init(&wire->park);
	if (off)
		snprintf(wire->why, sizeof(wire->why), "it is turned off (wire = off, --wire off)");
}

static void let_in(struct wire *wire, bool yes)
{
	if (wire->guard >= 0)
		close(wire->guard);
	wire->guard = yes ? -1 : slot_socket_guard();
	if (!yes && wire->guard < 0)
		log_info("UDP port %d isn't guarded: %s", WIRE_PORT, strerror(-wire->guard));
}

static void close_sockets(struct wire *wire)
{
	let_in(wire, true);
	while (wire->count)
		close(wire->fd[--wire->count]);
}

void udp_slots_close(struct wire *wire)
{
	close_sockets(wire);
	park_close(&wire->park);
}

/* ------------------------------------------------------------------ binding */

static int udp_slots_add_socket(struct wire *wire)
{
	int fd = slot_socket_make(wire->ipv6);

	if (fd < 0)
		return fd;
	uint32_t place = wire->count;
	/* The filter comes before the bind, so that no packet for another slot gets in. */
	bool loops = !place && wire->loops[0];
	int err = slot_socket_filter(fd, place, loops);

	if (!err)
		err = slot_socket_bind(fd, wire->ipv6, place > 0);
	/* A group begins with a socket that is bound to a free port, and becomes shared
	 * afterwards. */
	if (!err && !place)
		err = slot_socket_share(fd, true);
	if (err) {
		close(fd);
		return err;
	}
	wire->owner[place] = UDP_SLOTS_NOBODY;
	wire->loops[place] = loops;
	wire->fd[wire->count++] = fd;
	return 0;
}

/* The sockets in the park have become useless: empties and closes it. */
static void end_park(struct wire *wire)
{
	park_clear(&wire->park);
	park_close(&wire->park);
	if (wire->managed)
		activation_forget();
}

/* A failure isn't fatal: the sockets only won't outlive this daemon. An incomplete park would be
 * useless, so it is ended. */
static void udp_slots_park(struct wire *wire)
{
	int err = 0;

	if (wire->park.in >= 0)
		err = wire->count > wire->park_most ? -ETOOMANYREFS
						    : park_put(&wire->park, wire->fd, wire->count);
	if (!err)
		return;
	log_warn("the sockets of UDP port %d can't be kept for the next daemon: %s%s", WIRE_PORT,
		 strerror(-err),
		 err == -ETOOMANYREFS ? " (see the limit of open files, prlimit(1))" : "");
	end_park(wire);
}

/* A place has another socket: the park gets the whole set anew. */
static void udp_slots_repark(struct wire *wire)
{
	if (wire->park.in < 0 || park_replace(&wire->park, wire->fd, wire->count) == 0)
		return;
	/* There is no room for both sets. A daemon that is killed now leaves none. */
	park_clear(&wire->park);
	udp_slots_park(wire);
}

/* Closes the socket of a place, which has left the group: the last one takes its place, as it does
 * in the kernel. */
static void udp_slots_close_place(struct wire *wire, uint32_t place)
{
	close(wire->fd[place]);
	wire->fd[place] = wire->fd[--wire->count];
	wire->is_member[place] = wire->is_member[wire->count];
	wire->is_member[wire->count] = false;
	wire->owner[place] = UDP_SLOTS_NOBODY;
	wire->loops[place] = false;
}

/* Programs need descriptors, too: the sockets may use one FILES_SHARE-th of them. */
static bool udp_slots_may_have(uint32_t count)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) < 0 || count <= limit.rlim_cur / FILES_SHARE;
}

/* Binds sockets until there are `count` places. */
static int udp_slots_grow(struct wire *wire, uint32_t count)
{
	int err = 0;

	if (!udp_slots_may_have(count))
		return -EMFILE;
	let_in(wire, true);
	/* A process may have changed the option of its socket. */
	for (uint32_t i = 0; i < wire->count; i++)
		slot_socket_share(wire->fd[i], true);
	while (!err && wire->count < count)
		err = udp_slots_add_socket(wire);
	if (wire->count > 1) {
		int steer = slot_socket_steer(wire->fd[0]);

		err = err ? err : steer;
		udp_slots_park(wire);
		let_in(wire, false);
	}
	return err;
}

/* The result is kept for OWNER_MS, because looking it up takes long where there are many sockets,
 * and many programs may ask at once. */
static const char *owner_of_port(struct wire *wire)
{
	uint64_t now = now_ms();

	if (!wire->owner_at_ms || now - wire->owner_at_ms > OWNER_MS)
		slot_socket_owner(wire->owner_text, sizeof(wire->owner_text));
	wire->owner_at_ms = now;
	return wire->owner_text;
}

static void explain_error(struct wire *wire, int err)
{
	if (err == -EADDRINUSE)
		udp_slots_log_fault(wire,
				    "UDP port %d is used by %s: only this host can be reached",
				    WIRE_PORT, owner_of_port(wire));
	else
		udp_slots_log_fault(wire, "UDP port %d can't be opened: %s", WIRE_PORT,
				    strerror(-err));
}

/* ------------------------------------------------------------------ opening */

static void try_loopback(struct wire *wire)
{
	wire->unproved = slot_socket_probe(wire->fd[0], wire->fd[1], 1, PROBE_QUICK_MS) != 0;
	if (wire->unproved)
		log_info("the loopback interface doesn't deliver: the order of the sockets of UDP "
			 "port %d can't be tried",
			 WIRE_PORT);
}

static int open_group(struct wire *wire)
{
	int err;

	wire->ipv6 = true;
	err = udp_slots_grow(wire, STEP);
	if (err == -EAFNOSUPPORT || err == -EADDRNOTAVAIL) {
		close_sockets(wire);
		wire->ipv6 = false;
		err = udp_slots_grow(wire, STEP);
	}
	if (err)
		goto out_sockets;
	err = park_make(&wire->park);
	if (!err)
		udp_slots_park(wire);
	if (!err && wire->managed && wire->park.out >= 0)
		activation_store(wire->park.out);
	if (err)
		log_warn("no place to keep the sockets for the next daemon: %s", strerror(-err));
	try_loopback(wire);
	wire->broken = false;
	wire->why[0] = 0;
	log_info("UDP port %d is open, for IPv4%s", WIRE_PORT, wire->ipv6 ? " and IPv6" : "");
	return 0;

out_sockets:
	close_sockets(wire);
	explain_error(wire, err);
	return err;
}

/* Whether all are sockets of one kind, on the port. */
static bool udp_slots_is_group(struct wire *wire)
{
	for (uint32_t i = 0; i < wire->count; i++) {
		bool ipv6;

		if (!slot_socket_is_one(wire->fd[i], &ipv6))
			return false;
		if (!i)
			wire->ipv6 = ipv6;
		if (ipv6 != wire->ipv6)
			return false;
	}
	return wire->count > 1;
}

/* Completes what the last daemon was doing when it was killed (udp_slot_renew()): a socket has left
 * the group and is still in the park, or the last one has the filter of the place that it was to
 * take. */
static void udp_slots_complete(struct wire *wire)
{
	bool changed = wire->park.unfinished;

	for (uint32_t i = 0; i < wire->count; i++)
		if (slot_socket_is_retired(wire->fd[i])) {
			udp_slots_close_place(wire, i--);
			changed = true;
		}
	if (wire->count)
		slot_socket_filter(wire->fd[wire->count - 1], wire->count - 1, false);
	if (changed)
		udp_slots_repark(wire);
}

int udp_slots_adopt(struct wire *wire, int out)
{
	if (wire->off || wire->count)
		return wire->off ? -ENODEV : -EALREADY;
	int n = park_take(&wire->park, out, wire->fd, UDP_SLOTS_PLACES);

	if (n < 0)
		return n;
	wire->count = (uint32_t)n;
	udp_slots_complete(wire);
	if (!udp_slots_is_group(wire)) {
		wire->park.out = -1; /* stays the caller's */
		udp_slots_close(wire);
		return -EINVAL;
	}
	slot_socket_steer(wire->fd[0]);
	slot_socket_filter(wire->fd[0], 0, wire->loops[0]);
	let_in(wire, false);
	/* All but the last, which is never given out. */
	for (uint32_t i = 0; i < wire->count; i++) {
		wire->owner[i] = i + 1 < wire->count ? UDP_SLOTS_SOMEBODY : UDP_SLOTS_NOBODY;
		wire->is_member[i] = i + 1 < wire->count;
	}
	wire->unproved = wire->broken = false;
	wire->why[0] = 0;
	log_info("the sockets of UDP port %d are those of the last daemon: %u places", WIRE_PORT,
		 wire->count);
	return 0;
}

/* ------------------------------------------------------------------ slots */

static uint32_t places_round_up(uint32_t places)
{
	places = (places + STEP - 1) / STEP * STEP;
	return places < UDP_SLOTS_PLACES ? places : UDP_SLOTS_PLACES;
}

/* Provides the place of this slot, and one more: the last is never given out. */
static int udp_slot_provide(struct wire *wire, uint32_t slot)
{
	uint32_t top = slot;

	for (uint32_t i = slot + 1; i < wire->count; i++)
		if (wire->owner[i] != UDP_SLOTS_NOBODY)
			top = i;
	if (top + 2 <= wire->count)
		return 0;
	int err = udp_slots_grow(wire, places_round_up(top + 2));

	if (!err && !wire->broken)
		wire->why[0] = 0;
	if (slot + 2 <= wire->count)
		return 0;
	explain_error(wire, err);
	return err;
}

/* Replaces the socket at this place by the last one, which no process has. */
static int udp_slot_renew(struct wire *wire, uint32_t slot)
{
	int old = wire->fd[slot];
	uint32_t last = wire->count - 1;
	int err = last > slot ? slot_socket_filter(wire->fd[last], slot, false) : -EINVAL;

	if (err)
		return err;
	slot_socket_retire(old);
	udp_slots_close_place(wire, slot);
	udp_slots_repark(wire);
	return udp_slot_provide(wire, slot);
}

/* Whether the slot's socket gets a packet for the slot; also if that can't be found out. */
static bool udp_slot_hears(const struct wire *wire, uint32_t slot, unsigned int patience_ms)
{
	int fd = wire->fd[slot];

	slot_socket_drain(fd);
	return wire->unproved || slot_socket_probe(wire->fd[0], fd, slot, patience_ms) != -ENOENT;
}

static int udp_slot_broken(struct wire *wire, uint32_t slot)
{
	wire->broken = true;
	udp_slots_log_fault(
		wire,
		"a program changed the order of the sockets of UDP port %d: slot %u gets nothing; "
		"end all programs that use the device, then it is made anew",
		WIRE_PORT, slot);
	slot_socket_room(wire->fd[slot], false);
	return -ENODEV;
}

/* Sets the filter of a place that was never given out, for good. */
static int udp_slot_lock(struct wire *wire, uint32_t slot, bool loops)
{
	int err = loops ? slot_socket_filter(wire->fd[slot], slot, true) : 0;

	return err ? err : slot_socket_lock(wire->fd[slot]);
}

/* Whether a new process of this user may have the socket that the last one at this slot had. */
static bool udp_slot_fits(const struct wire *wire, uint32_t slot, uid_t uid, bool loops)
{
	return wire->owner[slot] == UDP_SLOTS_NOBODY ||
	       (wire->owner[slot] == uid && wire->loops[slot] == loops && !wire->is_member[slot]);
}

/* Makes the socket what a new process gets. */
static int udp_slot_clean(struct wire *wire, uint32_t slot, bool loops)
{
	int err = wire->owner[slot] == UDP_SLOTS_NOBODY ? udp_slot_lock(wire, slot, loops) : 0;

	if (err)
		return err;
	udp_group_hear_all(wire->fd[slot], false);
	slot_socket_reset(wire->fd[slot]);
	slot_socket_room(wire->fd[slot], true);
	return 0;
}

static int udp_slot_renew_clean(struct wire *wire, uint32_t slot, bool loops)
{
	int err = udp_slot_renew(wire, slot);

	if (err)
		explain_error(wire, err);
	return err ? err : udp_slot_clean(wire, slot, loops);
}

/* Prepares the place for a new process; no process has it now. But a process of the same user that
 * had it may have kept a copy of the socket, and take packets from it, also the one by which it is
 * tested: only a socket that no process ever had tells that the order was changed. */
static int udp_slot_prepare(struct wire *wire, uint32_t slot, uid_t uid, bool loops)
{
	int err = udp_slot_fits(wire, slot, uid, loops) ? udp_slot_clean(wire, slot, loops)
							: udp_slot_renew_clean(wire, slot, loops);

	if (!err && wire->owner[slot] != UDP_SLOTS_NOBODY) {
		if (udp_slot_hears(wire, slot, PROBE_REUSED_MS))
			return 0;
		err = udp_slot_renew_clean(wire, slot, loops);
	}
	if (err || udp_slot_hears(wire, slot, wire->broken ? PROBE_QUICK_MS : PROBE_PATIENT_MS))
		return err;
	return udp_slot_broken(wire, slot);
}

int udp_slots_open(struct wire *wire)
{
	if (wire->off)
		return -ENODEV;
	return wire->count ? 0 : open_group(wire);
}

int udp_slots_slot(struct wire *wire, uint32_t slot, uid_t uid, unsigned int flags)
{
	int err = !slot || slot >= LIMIT_SLOTS ? -EINVAL : udp_slots_open(wire);

	if (!err)
		err = udp_slot_provide(wire, slot);
	if (err)
		return err;
	slot_socket_steer(wire->fd[0]);
	if (flags & UDP_SLOTS_RETURNING)
		slot_socket_room(wire->fd[slot], true);
	else
		err = udp_slot_prepare(wire, slot, uid, flags & UDP_SLOTS_LOOPS);
	if (err)
		return err;
	wire->owner[slot] = uid;
	wire->loops[slot] = flags & UDP_SLOTS_LOOPS;
	return wire->fd[slot];
}

int udp_slots_inherited(const struct wire *wire, uint32_t slot, uid_t uid)
{
	if (!slot || slot + 1 >= wire->count ||
	    (wire->owner[slot] != uid && wire->owner[slot] != UDP_SLOTS_SOMEBODY))
		return -ENODEV;
	return wire->fd[slot];
}

void udp_slots_leave(struct wire *wire)
{
	wire->leaving = true;
}

void udp_slots_slot_done(struct wire *wire, uint32_t slot)
{
	if (wire->leaving || slot + 1 >= wire->count)
		return;
	/* The groups that the last daemon joined by the socket end with it: to leave all groups of
	 * the host would take the longer the more there are, and any user may have thousands. A
	 * process can join groups by its socket itself; the datagrams are dropped, and come to
	 * processes of its user only. */
	if (wire->is_member[slot] && udp_slot_renew(wire, slot) != 0)
		log_debug("slot %u: its socket stays a member of groups", slot);
	udp_group_hear_all(wire->fd[slot], false);
	slot_socket_room(wire->fd[slot], false);
	slot_socket_drain(wire->fd[slot]);
	slot_socket_steer(wire->fd[0]);
}

void udp_slots_all_done(struct wire *wire)
{
	if (wire->broken && !wire->leaving) {
		end_park(wire);
		udp_slots_close(wire);
	}
	wire->broken = false;
}
