/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The socket group of port 4791: packets reach the socket of their QPN's slot and no other, also
 * when slots are allocated and freed, when the group grows, when it moves from one daemon to the
 * next, and when a process tampers with its socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/core/closer.h"
#include "daemon/core/server.h"
#include "daemon/net/slot_socket.h"
#include "daemon/net/slot_source.h"
#include "daemon/net/udp_slots.h"
#include "files.h"
#include "netns.h"

static struct wire wire;

/* A kernel without IPv6, if a test says so (the linker puts this in between). */
static bool no_ipv6;
int __wrap_slot_socket_make(bool ipv6);
int __real_slot_socket_make(bool ipv6);

int __wrap_slot_socket_make(bool ipv6)
{
	return ipv6 && no_ipv6 ? -EAFNOSUPPORT : __real_slot_socket_make(ipv6);
}

/* For processes of one user. */
static int slot_of(struct wire *of, uint32_t slot, bool returning)
{
	return udp_slots_slot(of, slot, 1000,
			      UDP_SLOTS_LOOPS | (returning ? UDP_SLOTS_RETURNING : 0));
}

static int set_up(void **state)
{
	(void)state;
	udp_slots_init(&wire, false, false);
	wire.loops[0] = true;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	udp_slots_close(&wire);
	no_ipv6 = false;
	return 0;
}

static int set_up_ipv4(void **state)
{
	no_ipv6 = true;
	return set_up(state);
}

/* ------------------------------------------------------------------ packets */

static int sender = -1, sender6 = -1;

static void send_from(int from, uint32_t qpn, uint32_t number)
{
	const struct sockaddr_in four = {.sin_family = AF_INET,
					 .sin_port = htons(WIRE_PORT),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct sockaddr_in6 six = {.sin6_family = AF_INET6,
					 .sin6_port = htons(WIRE_PORT),
					 .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	/* The reserved bits above the QPN are ignored. */
	const uint32_t packet[] = {htonl(0x0400ffff), htonl(0xff000000 | qpn), htonl(number), 0};
	ssize_t n = from == sender6 ? sendto(from, packet, sizeof(packet), 0, (const void *)&six,
					     sizeof(six))
				    : sendto(from, packet, sizeof(packet), 0, (const void *)&four,
					     sizeof(four));

	assert_int_equal(n, sizeof(packet));
}

static void send_to(uint32_t qpn, uint32_t number)
{
	send_from(sender, qpn, number);
}

/* The number of the next packet in the socket; -1: there is none. */
static long next(int fd)
{
	uint32_t packet[4];
	ssize_t n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);

	if (n < 0) {
		assert_int_equal(errno, EAGAIN);
		return -1;
	}
	assert_int_equal(n, sizeof(packet));
	return ntohl(packet[2]);
}

static uint32_t qpn_of(uint32_t slot, uint32_t index)
{
	return slot << LIMIT_QP_BITS | index;
}

static void expect_delivery(uint32_t slot)
{
	static uint32_t number;

	number++;
	send_to(qpn_of(slot, 0), number);
	assert_int_equal(next(wire.fd[slot]), number);
	if (no_ipv6)
		return;
	send_from(sender6, qpn_of(slot, LIMIT_QPS_PER_SLOT - 1), number + 1000000);
	assert_int_equal(next(wire.fd[slot]), number + 1000000);
}

static void expect_empty(void)
{
	for (uint32_t i = 0; i < wire.count; i++)
		assert_int_equal(next(wire.fd[i]), -1);
}

/* ------------------------------------------------------------------ delivery */

static void delivers_by_qpn(void **state)
{
	(void)state;
	for (uint32_t slot = 1; slot < 40; slot++)
		assert_true(slot_of(&wire, slot, false) >= 0);
	assert_int_equal(wire.count, 48);
	assert_false(wire.unproved);
	for (uint32_t slot = 1; slot < 40; slot++)
		expect_delivery(slot);
	send_to(1, 77); /* the general services QP */
	assert_int_equal(next(wire.fd[0]), 77);
	expect_empty();
	/* A slot without a process: the socket that the kernel picks instead doesn't accept the
	 * packet. */
	for (uint32_t i = 0; i < 64; i++)
		send_to(qpn_of(900, i), i);
	expect_empty();
}

static void all_slots(void **state)
{
	(void)state;
	if (!files_may_be(8 * UDP_SLOTS_PLACES)) /* the sockets may have a part of the limit */
		skip();
	assert_true(slot_of(&wire, LIMIT_SLOTS - 1, false) >= 0);
	assert_int_equal(wire.count, UDP_SLOTS_PLACES);
	assert_int_equal(slot_of(&wire, LIMIT_SLOTS, false), -EINVAL);
	assert_int_equal(slot_of(&wire, 0, false), -EINVAL);
	assert_int_equal(slot_of(&wire, 1, false), wire.fd[1]);
	for (uint32_t slot = 2; slot < LIMIT_SLOTS - 1; slot += 7)
		assert_true(slot_of(&wire, slot, false) >= 0);
	expect_delivery(1);
	expect_delivery(2);
	expect_delivery(9);
	expect_delivery(LIMIT_SLOTS - 1);
	expect_empty();
}

/* The park leaves the user descriptors to send: when it would have too many it ends, the wire
 * stays. */
static void the_park_has_a_limit(void **state)
{
	(void)state;
	wire.park_most = 48;
	assert_true(slot_of(&wire, 40, false) >= 0);
	assert_int_equal(wire.count, 48);
	assert_int_equal(wire.park.parked, 48);
	assert_true(slot_of(&wire, 60, false) >= 0);
	assert_true(wire.count > 48);
	assert_true(wire.park.in < 0);
	expect_delivery(40);
	expect_delivery(60);
	expect_empty();
}

/* Two packets that were sent as one: the first is as short as a probe and has its opcode. */
static void send_behind_a_probe(uint32_t slot)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
				       .sin_port = htons(WIRE_PORT),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const uint32_t packets[10] = {htonl(0xff00ffff),
				      htonl(qpn_of(slot, 1)), [5] = htonl(0x0400ffff),
				      htonl(qpn_of(slot, 1))};
	int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), segment = 20;

	assert_int_equal(setsockopt(from, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)), 0);
	assert_int_equal(sendto(from, packets, sizeof(packets), 0, (const void *)&to, sizeof(to)),
			 sizeof(packets));
	close(from);
}

/* Any program can send to the port from this host's addresses: a process doesn't get it, unless it
 * asked for it. It gets another socket than one that hasn't. */
static void this_hosts_packets(void **state)
{
	(void)state;
	wire.loops[0] = false;
	assert_true(udp_slots_slot(&wire, 5, 1000, 0) >= 0);
	assert_false(wire.unproved || wire.broken);
	for (uint32_t i = 0; i < 20; i++) {
		send_to(qpn_of(5, 1), i);
		send_from(sender6, qpn_of(5, 1), i);
		send_behind_a_probe(5);
		send_to(1, i);
	}
	expect_empty();
	int fd = dup(wire.fd[5]);

	udp_slots_slot_done(&wire, 5);
	assert_true(slot_of(&wire, 5, false) >= 0);
	expect_delivery(5);
	assert_int_equal(next(fd), -1);
	udp_slots_slot_done(&wire, 5);
	assert_true(udp_slots_slot(&wire, 5, 1000, 0) >= 0);
	send_to(qpn_of(5, 1), 1);
	expect_empty();
	close(fd);
}

static void packets_that_are_too_short(void **state)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
				       .sin_port = htons(WIRE_PORT),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	(void)state;
	assert_true(slot_of(&wire, 3, false) >= 0);
	for (size_t size = 0; size < 8; size++)
		assert_int_equal(sendto(sender, "12345678", size, 0, (const void *)&to, sizeof(to)),
				 size);
	expect_empty();
	expect_delivery(3);
}

static void reuse_drains(void **state)
{
	(void)state;
	int fd = slot_of(&wire, 5, false);

	assert_true(fd >= 0);
	for (uint32_t i = 0; i < 100; i++)
		send_to(qpn_of(5, 1), i);
	udp_slots_slot_done(&wire, 5);
	send_to(qpn_of(5, 1), 200);
	assert_int_equal(slot_of(&wire, 5, false), fd);
	assert_int_equal(next(fd), -1);
	expect_delivery(5);
}

static int by_connect(int fd)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
				       .sin_port = htons(9),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return connect(fd, (const struct sockaddr *)&to, sizeof(to));
}

/* A process of another user gets the slot while the former one still has a copy of its socket. */
static void another_user_gets_another_socket(void **state)
{
	enum { SLOTS = 30, ROUNDS = 50 };
	int old[ROUNDS];

	(void)state;
	for (uint32_t slot = 1; slot < SLOTS; slot++)
		assert_true(udp_slots_slot(&wire, slot, 1000, UDP_SLOTS_LOOPS) >= 0);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t slot = 1 + i * 7 % (SLOTS - 1);

		old[i] = dup(wire.fd[slot]);
		if (i % 3 == 1)
			assert_int_equal(by_connect(old[i]), 0);
		udp_slots_slot_done(&wire, slot);
		assert_true(udp_slots_slot(&wire, slot, 1001 + i, UDP_SLOTS_LOOPS) >= 0);
		assert_in_range(wire.count, SLOTS + 1, 64);
		for (uint32_t k = 1; k < SLOTS; k++)
			expect_delivery(k);
	}
	/* The same user gets the same socket again and again. */
	int fd = dup(wire.fd[3]);

	udp_slots_slot_done(&wire, 3);
	assert_true(udp_slots_slot(&wire, 3, wire.owner[3], UDP_SLOTS_LOOPS) >= 0);
	expect_delivery(3);
	send_to(qpn_of(3, 9), 5);
	assert_int_equal(next(fd), 5);
	close(fd);
	/* The next daemon finds them as they are now. */
	int kept = dup(wire.park.out);

	udp_slots_close(&wire);
	assert_int_equal(udp_slots_adopt(&wire, kept), 0);
	for (uint32_t k = 1; k < SLOTS; k++)
		expect_delivery(k);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		assert_int_equal(next(old[i]), -1);
		close(old[i]);
	}
}

/* A daemon that ends leaves the packets in living processes' sockets. */
static void leaving_takes_nothing(void **state)
{
	(void)state;
	int fd = dup(slot_of(&wire, 5, false));

	for (uint32_t i = 0; i < 50; i++)
		send_to(qpn_of(5, 1), i);
	udp_slots_leave(&wire);
	udp_slots_slot_done(&wire, 5);
	udp_slots_all_done(&wire);
	udp_slots_close(&wire);
	for (uint32_t i = 50; i < 100; i++)
		send_to(qpn_of(5, 1), i);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(next(fd), i);
	close(fd);
}

/* How many of many packets an unowned socket keeps. */
static void nobodys_socket_keeps_little(void **state)
{
	uint32_t kept = 0;

	(void)state;
	int fd = slot_of(&wire, 5, false);

	udp_slots_slot_done(&wire, 5);
	for (uint32_t i = 0; i < 1000; i++)
		send_to(qpn_of(5, 1), i);
	while (next(fd) >= 0)
		kept++;
	assert_in_range(kept, 0, 16);
	assert_true(slot_of(&wire, 5, false) >= 0);
	for (uint32_t i = 0; i < 100; i++)
		send_to(qpn_of(5, 1), i);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(next(fd), i);
}

/* ------------------------------------------------------------------ sources */

static int bound_anywhere(int family)
{
	const struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	const struct sockaddr_in four = {.sin_family = AF_INET};
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1, off = 0;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
	if (family == AF_INET6)
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)), 0);
	assert_int_equal(family == AF_INET6 ? bind(fd, (const void *)&six, sizeof(six))
					    : bind(fd, (const void *)&four, sizeof(four)),
			 0);
	return fd;
}

/* The errno of binding a socket of this or another user to the port, at 127.0.0.1. */
static int bind_as(uid_t uid, int port)
{
	const struct sockaddr_in name = {.sin_family = AF_INET,
					 .sin_port = htons((uint16_t)port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int status, on = 1;
	pid_t child = fork();

	if (!child) {
		if (uid && setresuid(uid, uid, uid) < 0)
			_exit(255);
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
		_exit(bind(fd, (const void *)&name, sizeof(name)) < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status);
}

/* A source port is one that no other user can send from. */
static void a_source_port_is_the_users_alone(void **state)
{
	int fd = bound_anywhere(AF_INET6), port = slot_source_port(fd), on = 1;

	(void)state;
	assert_true(port > 0);
	assert_int_equal(bind_as(0, port), 0);
	int other = bind_as(1234, port);

	if (other != 255) /* no such user in this namespace */
		assert_int_equal(other, EADDRINUSE);
	/* Beside these, another user's socket could have the port. */
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &on, sizeof(on)), 0);
	assert_int_equal(slot_source_port(fd), -EINVAL);
	close(fd);
	fd = bound_anywhere(AF_INET);
	assert_int_equal(slot_source_port(fd), -EINVAL);
	close(fd);
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(slot_source_port(fd), -EINVAL);
	close(fd);
	assert_int_equal(slot_source_port(STDIN_FILENO), -EINVAL);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void wait_for_closing(void)
{
	while (!closer_is_idle())
		sched_yield();
}

/* A process's port stays taken for a while after its end: its last packets may still be read. */
static void a_source_port_outlives_its_process(void **state)
{
	static struct server server;
	int fd[SOURCES_KEPT + 1];

	(void)state;
	assert_int_equal(loop_init(&server.loop), 0);
	slot_sources_init(&server);
	for (uint32_t i = 0; i < SOURCES_KEPT; i++) {
		fd[i] = bound_anywhere(AF_INET6);
		slot_source_keep(&server, i, 1000, fd[i]);
	}
	wait_for_closing();
	assert_true(is_open(fd[0]));
	/* One more than are kept: the oldest is given up. */
	fd[SOURCES_KEPT] = bound_anywhere(AF_INET6);
	slot_source_keep(&server, SOURCES_KEPT, 1000, fd[SOURCES_KEPT]);
	wait_for_closing();
	assert_false(is_open(fd[0]));
	assert_true(is_open(fd[1]) && is_open(fd[SOURCES_KEPT]));
	/* After their time all are. */
	while (server.sources.count)
		assert_true(loop_round(&server.loop, 20) >= 0);
	wait_for_closing();
	assert_false(is_open(fd[1]) || is_open(fd[SOURCES_KEPT]));
	slot_sources_close(&server);
	loop_fini(&server.loop);
}

/* ------------------------------------------------------------------ the port's owner */

static void second_group(void **state)
{
	static struct wire other;

	(void)state;
	udp_slots_init(&other, false, false);
	assert_true(slot_of(&wire, 1, false) >= 0);
	assert_int_equal(slot_of(&other, 1, false), -EADDRINUSE);
	assert_int_equal(other.count, 0);
	assert_non_null(strstr(other.why, "UDP port 4791 is used by a program of user"));
	/* Growing the group removes the filter for a moment only. */
	assert_true(slot_of(&wire, 30, false) >= 0);
	assert_int_equal(slot_of(&other, 1, false), -EADDRINUSE);
	expect_delivery(1);
	expect_delivery(30);
	udp_slots_close(&wire);
	assert_true(slot_of(&other, 1, false) >= 0);
	assert_string_equal(other.why, "");
	udp_slots_close(&other);
}

static void nobody_joins(void **state)
{
	(void)state;
	assert_true(slot_of(&wire, 1, false) >= 0);
	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		int fd = __real_slot_socket_make(ipv6);

		assert_true(fd >= 0);
		int err = slot_socket_bind(fd, ipv6, true);

		close(fd);
		assert_int_equal(err, -EADDRINUSE);
	}
}

/* The daemon leaves most of its descriptor limit to programs. */
static void few_descriptors(void **state)
{
	struct rlimit before, few;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){60, before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(slot_of(&wire, 1, false), -EMFILE);
	assert_int_equal(wire.count, 0);
	assert_non_null(strstr(wire.why, "Too many open files"));
	few.rlim_cur = 80;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_true(slot_of(&wire, 14, false) >= 0);
	assert_int_equal(slot_of(&wire, 15, false), -EMFILE);
	expect_delivery(14);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_true(slot_of(&wire, 15, false) >= 0);
	assert_string_equal(wire.why, "");
	expect_delivery(15);
}

static void off_by_configuration(void **state)
{
	(void)state;
	udp_slots_init(&wire, true, false);
	assert_int_equal(slot_of(&wire, 1, false), -ENODEV);
	assert_string_equal(wire.why, "it is turned off (wire = off, --wire off)");
}

/* ------------------------------------------------------------------ the next daemon */

static void parked(void **state)
{
	static struct wire next_one;

	(void)state;
	assert_true(slot_of(&wire, 4, false) >= 0);
	assert_true(slot_of(&wire, 40, false) >= 0);
	int kept = dup(wire.park.out), own = dup(wire.fd[4]);

	send_to(qpn_of(4, 1), 1);
	udp_slots_close(&wire);
	send_to(qpn_of(4, 1), 2);
	/* Twice: reading the park leaves it unchanged, and the second daemon adds to it. */
	udp_slots_init(&next_one, false, false);
	assert_int_equal(udp_slots_adopt(&next_one, dup(kept)), 0);
	udp_slots_close(&next_one);
	assert_int_equal(udp_slots_adopt(&wire, kept), 0);
	assert_int_equal(wire.count, 48);
	assert_true(slot_of(&wire, 4, true) >= 0);
	assert_int_equal(next(wire.fd[4]), 1);
	assert_int_equal(next(own), 2);
	assert_true(slot_of(&wire, 1, false) >= 0);
	assert_true(slot_of(&wire, 41, false) >= 0);
	assert_true(slot_of(&wire, 60, false) >= 0);
	kept = dup(wire.park.out);
	udp_slots_close(&wire);
	assert_int_equal(udp_slots_adopt(&wire, kept), 0);
	assert_int_equal(wire.count, 64);
	static const uint32_t slots[] = {1, 4, 40, 41, 60};

	for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++)
		expect_delivery(slots[i]);
	expect_empty();
	close(own);
}

/* ------------------------------------------------------------------ a daemon that is killed */

enum { TAKEN = 5, RENEWED = 3 };

/* The daemon: gives a slot to another user's process, which gets another socket. */
static _Noreturn void renew_under_trace(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	_exit(udp_slots_slot(&wire, RENEWED, 1001, UDP_SLOTS_LOOPS) < 0);
}

/* Kills it at the stop `at` before or after a system call. Returns whether it came that far. */
static bool kill_at(pid_t pid, unsigned int at)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (unsigned int i = 0; i < at; i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			assert_int_equal(WEXITSTATUS(status), 0);
			return false;
		}
		assert_true(WIFSTOPPED(status));
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return true;
}

/* The process of slot TAKEN lives on: it has its socket and the park. */
static bool killed_at(unsigned int at)
{
	udp_slots_init(&wire, false, false);
	assert_true(slot_of(&wire, TAKEN, false) >= 0);
	assert_true(slot_of(&wire, RENEWED, false) >= 0);
	udp_slots_slot_done(&wire, RENEWED);
	int kept = dup(wire.park.out), own = dup(wire.fd[TAKEN]);
	pid_t pid = fork();

	if (!pid)
		renew_under_trace();
	udp_slots_close(&wire);
	bool killed = kill_at(pid, at);

	/* Twice: the next daemon may be killed as well, after it repaired the park. */
	int again = dup(kept);

	udp_slots_init(&wire, false, false);
	assert_int_equal(udp_slots_adopt(&wire, kept), 0);
	udp_slots_close(&wire);
	udp_slots_init(&wire, false, false);
	assert_int_equal(udp_slots_adopt(&wire, again), 0);
	assert_true(slot_of(&wire, TAKEN, true) >= 0);
	expect_delivery(TAKEN);
	send_to(qpn_of(TAKEN, 1), 1);
	assert_int_equal(next(own), 1);
	for (uint32_t slot = 1; slot < 20; slot++) {
		if (slot != TAKEN)
			assert_true(slot_of(&wire, slot, false) >= 0);
		expect_delivery(slot);
	}
	close(own);
	udp_slots_close(&wire);
	return killed;
}

static void killed_at_each_system_call(void **state)
{
	unsigned int at = 0;

	(void)state;
	while (killed_at(at))
		at++;
	assert_true(at > 20); /* the socket was replaced */
}

static void no_group_beside_survivors(void **state)
{
	(void)state;
	int own = dup(slot_of(&wire, 4, false)), kept = dup(wire.park.out);

	udp_slots_close(&wire);
	assert_int_equal(slot_of(&wire, 1, false), -EADDRINUSE);
	close(own);
	assert_int_equal(slot_of(&wire, 1, false), -EADDRINUSE); /* those in the park */
	close(kept);
	assert_true(slot_of(&wire, 1, false) >= 0);
}

static void expect_refused(int fd)
{
	assert_true(udp_slots_adopt(&wire, fd) < 0);
	assert_int_equal(wire.count, 0);
	close(fd);
	assert_true(slot_of(&wire, 1, false) >= 0);
	udp_slots_close(&wire);
}

static void what_is_no_park(void **state)
{
	struct park fake;
	int pair[2];

	(void)state;
	expect_refused(dup(STDERR_FILENO));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	expect_refused(pair[0]);
	assert_int_equal(write(pair[1], "x", 1), -1);
	close(pair[1]);
	/* One with sockets that aren't on the port. */
	assert_int_equal(park_make(&fake), 0);
	expect_refused(dup(fake.out));
	int fds[] = {sender, sender};

	assert_int_equal(park_put(&fake, fds, 2), 0);
	expect_refused(dup(fake.out));
	park_close(&fake);
}

/* ------------------------------------------------------------------ tampering */

static void locked_filter(void **state)
{
	struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	const struct sock_fprog program = {1, code};
	int off = 0;

	(void)state;
	int fd = slot_of(&wire, 2, false);

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
			 -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &off, sizeof(off)), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &off, sizeof(off)), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(
		setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)),
		-1);
	assert_int_equal(errno, EPERM);
}

/* A process that detaches the program gets no other process's packets, and the program is
 * restored. */
static void detached_program(void **state)
{
	int off = 0;

	(void)state;
	int fd = slot_of(&wire, 2, false);

	assert_true(slot_of(&wire, 3, false) >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &off, sizeof(off)), 0);
	for (uint32_t i = 0; i < 200; i++)
		send_to(qpn_of(3, i), i);
	assert_int_equal(next(fd), -1);
	slot_socket_drain(wire.fd[3]);
	assert_true(slot_of(&wire, 4, false) >= 0);
	expect_delivery(3);
	expect_delivery(2);
}

/* Takes a packet for port 4791 and hands it to `to` late. */
static void forward_late(int from, const struct sockaddr_in *to)
{
	uint8_t packet[64];
	ssize_t n = recv(from, packet, sizeof(packet), 0);

	usleep(200000);
	sendto(from, packet, (size_t)n, 0, (const void *)to, sizeof(*to));
	_exit(0);
}

static int bound_socket(uint16_t port, struct sockaddr_in *name)
{
	socklen_t size = sizeof(*name);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	*name = (struct sockaddr_in){.sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(bind(fd, (void *)name, size), 0);
	assert_int_equal(getsockname(fd, (void *)name, &size), 0);
	return fd;
}

/* The kernel's thread for packets got no processor for a while. */
static void a_probe_waits(void **state)
{
	struct sockaddr_in name, port;
	int slot = bound_socket(0, &name), late = bound_socket(4791, &port);
	int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(slot_socket_probe(from, slot, 3, 1), -ENOENT);
	slot_socket_drain(late);
	pid_t child = fork();

	if (!child)
		forward_late(late, &name);
	assert_int_equal(slot_socket_probe(from, slot, 3, 60000), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(from);
	close(late);
	close(slot);
}

/* When a socket leaves the group, the last place, which is unowned, moves to its place: other
 * sockets keep theirs. */
static void left_group(int (*leave)(int fd))
{
	int fd = slot_of(&wire, 2, false);

	for (uint32_t slot = 1; slot < 15; slot++)
		assert_true(slot == 2 || slot_of(&wire, slot, false) >= 0);
	assert_int_equal(wire.count, 16);
	assert_int_equal(leave(fd), 0);
	for (uint32_t slot = 1; slot < 15; slot++)
		if (slot != 2)
			expect_delivery(slot);
	assert_int_equal(next(fd), -1);
	/* The next process at the slot gets the socket that is there now. */
	udp_slots_slot_done(&wire, 2);
	assert_true(slot_of(&wire, 2, false) >= 0);
	for (uint32_t slot = 1; slot < 15; slot++)
		expect_delivery(slot);
	/* When two have left, the places aren't known any more. That is detected when a slot is
	 * allocated again, and for later slots. */
	assert_int_equal(leave(wire.fd[2]), 0);
	assert_int_equal(leave(wire.fd[3]), 0);
	udp_slots_slot_done(&wire, 3);
	assert_int_equal(slot_of(&wire, 3, false), -ENODEV);
	assert_non_null(strstr(wire.why, "slot 3 gets nothing"));
	assert_int_equal(slot_of(&wire, 20, false), -ENODEV);
	for (uint32_t slot = 4; slot < 13; slot++)
		expect_delivery(slot);
}

/* The former owner of a slot's socket takes what comes to it; returns its process. */
static pid_t thief_begin(int fd)
{
	char buffer[64];
	pid_t thief = fork();

	if (thief)
		return thief;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
}

/* A process of the same user that had the slot may take the packet by which its socket is tested:
 * the next process gets another socket, and the wire goes on. */
static void taken_by_former_owner(void **state)
{
	enum { ROUNDS = 20 };

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		int kept = dup(slot_of(&wire, 2, false));
		pid_t thief = thief_begin(kept);

		udp_slots_slot_done(&wire, 2);
		assert_true(slot_of(&wire, 2, false) >= 0);
		assert_int_equal(wire.why[0], 0);
		kill(thief, SIGKILL);
		assert_int_equal(waitpid(thief, NULL, 0), thief);
		close(kept);
		slot_socket_drain(wire.fd[2]);
		expect_delivery(2);
		udp_slots_slot_done(&wire, 2);
	}
}

static int by_disconnect(int fd)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};

	return connect(fd, &none, sizeof(none));
}

/* Then the kernel finds this socket before the group: no process gets a packet. */
static int by_both(int fd)
{
	return by_connect(fd) || by_disconnect(fd);
}

static void first_in_the_list(void **state)
{
	(void)state;
	int fd = slot_of(&wire, 2, false);

	assert_true(slot_of(&wire, 3, false) >= 0);
	assert_int_equal(by_both(fd), 0);
	send_to(qpn_of(3, 1), 1);
	long got = next(wire.fd[3]);

	printf("after connect() and its undoing others get %s\n", got == 1 ? "theirs" : "nothing");
	assert_int_equal(next(fd), -1);
	/* A process that comes then gets an error, unless the state has changed. */
	assert_true((slot_of(&wire, 4, false) >= 0) == (got == 1));
	assert_int_equal(wire.broken, got != 1);
	udp_slots_all_done(&wire);
	assert_int_equal(wire.count == 0, got != 1);
}

static int by_device(int fd)
{
	return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
}

static void connected(void **state)
{
	(void)state;
	left_group(by_connect);
}

static void disconnected(void **state)
{
	(void)state;
	left_group(by_disconnect);
}

static void bound_to_device(void **state)
{
	(void)state;
	left_group(by_device);
}

/* Options that would harm the socket's next owner, or the group when it grows. */
static void options_are_reset(void **state)
{
	int off = 0, on = 1, big = 1000;
	socklen_t size = sizeof(int);

	(void)state;
	int fd = slot_of(&wire, 2, false);

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &off, sizeof(off)), 0);
	assert_int_equal(setsockopt(fd, IPPROTO_UDP, UDP_GRO, &off, sizeof(off)), 0);
	assert_int_equal(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &big, sizeof(big)), 0);
	assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on)), 0);
	assert_true(slot_of(&wire, 30, false) >= 0);
	udp_slots_slot_done(&wire, 2);
	assert_int_equal(slot_of(&wire, 2, false), fd);
	assert_int_equal(getsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, &size), 0);
	assert_int_equal(on, 1);
	assert_int_equal(getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &big, &size), 0);
	assert_int_equal(big, 0);
	expect_delivery(2);
	expect_delivery(30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(delivers_by_qpn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(all_slots, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_park_has_a_limit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(packets_that_are_too_short, set_up, tear_down),
		cmocka_unit_test_setup_teardown(this_hosts_packets, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_source_port_is_the_users_alone, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_source_port_outlives_its_process, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(reuse_drains, set_up, tear_down),
		cmocka_unit_test_setup_teardown(another_user_gets_another_socket, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(leaving_takes_nothing, set_up, tear_down),
		/* The same where there is IPv4 only: the kernel keeps its lists differently. */
		cmocka_unit_test_setup_teardown(delivers_by_qpn, set_up_ipv4, tear_down),
		cmocka_unit_test_setup_teardown(all_slots, set_up_ipv4, tear_down),
		cmocka_unit_test_setup_teardown(another_user_gets_another_socket, set_up_ipv4,
						tear_down),
		cmocka_unit_test_setup_teardown(second_group, set_up_ipv4, tear_down),
		cmocka_unit_test_setup_teardown(nobody_joins, set_up_ipv4, tear_down),
		cmocka_unit_test_setup_teardown(parked, set_up_ipv4, tear_down),
		cmocka_unit_test_setup_teardown(connected, set_up_ipv4, tear_down),
		cmocka_unit_test_setup_teardown(nobodys_socket_keeps_little, set_up, tear_down),
		cmocka_unit_test_setup_teardown(second_group, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nobody_joins, set_up, tear_down),
		cmocka_unit_test_setup_teardown(few_descriptors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(off_by_configuration, set_up, tear_down),
		cmocka_unit_test_setup_teardown(parked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_group_beside_survivors, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_no_park, set_up, tear_down),
		cmocka_unit_test_setup_teardown(killed_at_each_system_call, set_up, tear_down),
		cmocka_unit_test_setup_teardown(locked_filter, set_up, tear_down),
		cmocka_unit_test_setup_teardown(detached_program, set_up, tear_down),
		cmocka_unit_test_setup_teardown(connected, set_up, tear_down),
		cmocka_unit_test_setup_teardown(disconnected, set_up, tear_down),
		cmocka_unit_test_setup_teardown(first_in_the_list, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_probe_waits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(bound_to_device, set_up, tear_down),
		cmocka_unit_test_setup_teardown(taken_by_former_owner, set_up, tear_down),
		cmocka_unit_test_setup_teardown(options_are_reset, set_up, tear_down),
	};
	int err = netns_enter(1);

	if (err) {
		fprintf(stderr, "skipped: no network namespace of our own: %s\n", strerror(-err));
		return 77;
	}
	sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	sender6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
