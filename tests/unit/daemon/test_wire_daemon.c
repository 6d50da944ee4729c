/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets and parks that processes get from a daemon, and what is left of them when it is
 * killed: every process keeps its packets, new ones get theirs. And the daemon's answers about
 * where a GID is. In a network namespace of the test's own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/call.h"
#include "netns.h"
#include "proto/limits.h"
#include "raw.h"
#include "shm/pub.h"

enum { PORT = 4791 };

/* ------------------------------------------------------------------ processes with a wire */

struct wired {
	struct raw_process p;
	int regions, wire, park; /* -1: none */
};

static void ask(struct wired *w, const struct proto_attach *body, int park)
{
	const int fds[] = {w->p.table, w->p.doorbell, w->regions, park};

	w->p.fd = raw_connect(&server);
	raw_attach_send(w->p.fd, body, fds, park < 0 ? 3 : 4);
}

static int answer(struct wired *w)
{
	struct {
		struct proto_reply head;
		struct proto_attach_resp resp;
	} reply;
	int fds[PROTO_MAX_FDS];
	unsigned int next = 1;

	w->wire = w->park = -1;
	ssize_t n = packet_receive(w->p.fd, &reply, sizeof(reply), fds, 0);

	assert_true(n >= (ssize_t)sizeof(reply.head));
	if (reply.head.result)
		return reply.head.result;
	assert_int_equal(n, sizeof(reply));
	w->p.resp = reply.resp;
	w->p.event_fd = fds[0];
	if (reply.resp.wire & PROTO_WIRE)
		w->wire = fds[next++];
	if (reply.resp.wire & PROTO_WIRE_PARK)
		w->park = fds[next++];
	/* Of no interest here. */
	assert_true(reply.resp.wire & PROTO_GROUPS);
	close(fds[next++]);
	w->p.resp.wire &= ~PROTO_GROUPS;
	assert_true(next == PROTO_MAX_FDS || fds[next] < 0);
	return 0;
}

static void begin(struct wired *w)
{
	static const struct proto_attach fresh = {.abi = PROTO_ABI, .flags = PROTO_ATTACH_LOOPS};

	*w = (struct wired){.p.table = raw_table(),
			    .p.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
			    .regions = raw_memory(PUB_REGIONS_SIZE)};
	ask(w, &fresh, -1);
}

static void attach(struct wired *w)
{
	begin(w);
	assert_int_equal(answer(w), 0);
}

/* Returns to the next daemon, with the sockets that it still has. */
static void go_back(struct wired *w, bool with_park)
{
	const struct proto_attach body = {.abi = PROTO_ABI,
					  .flags = PROTO_ATTACH_RETURN | PROTO_ATTACH_LOOPS,
					  .cookie = w->p.resp.cookie,
					  .slot = w->p.resp.slot,
					  .qpn_index = 1,
					  .key_index = 1};
	const uint32_t slot = w->p.resp.slot;
	struct wired old = *w;

	close(w->p.fd);
	close(w->p.event_fd);
	ask(w, &body, with_park ? w->park : -1);
	assert_int_equal(answer(w), 0);
	assert_int_equal(w->p.resp.slot, slot);
	assert_int_equal(raw_call(w->p.fd, PROTO_RETURNED, NULL, 0, NULL, 0), 0);
	/* The same sockets; a library keeps its own. */
	if (w->wire >= 0)
		close(w->wire);
	if (w->park >= 0)
		close(w->park);
	w->wire = old.wire;
	w->park = old.park;
}

static void end(struct wired *w)
{
	raw_detach(&w->p);
	close(w->regions);
	if (w->wire >= 0)
		close(w->wire);
	if (w->park >= 0)
		close(w->park);
}

/* Sends to a slot, whichever process has it. */
static void send_to_slot(uint32_t slot, uint32_t number)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
				       .sin_port = htons(PORT),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const uint32_t packet[3] = {htonl(0x0400ffff), htonl(slot << LIMIT_QP_BITS | 5), number};
	int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_int_equal(sendto(from, packet, sizeof(packet), 0, (const void *)&to, sizeof(to)),
			 sizeof(packet));
	close(from);
}

static void expect_packets(const struct wired *w)
{
	static uint32_t number;
	uint32_t got[3] = {0};

	assert_true(w->wire >= 0);
	send_to_slot(w->p.resp.slot, ++number);
	assert_int_equal(recv(w->wire, got, sizeof(got), MSG_DONTWAIT), sizeof(got));
	assert_int_equal(got[1], htonl(w->p.resp.slot << LIMIT_QP_BITS | 5));
	assert_int_equal(got[2], number);
	assert_int_equal(recv(w->wire, got, sizeof(got), MSG_DONTWAIT), -1);
}

static void expect_status(const char *path, const char *wanted)
{
	json_t *status = raw_ctl(&server, "{\"op\":\"status\"}");
	const char *text =
		json_string_value(json_object_get(json_object_get(status, "wire"), path));

	assert_non_null(text);
	if (!strstr(text, wanted))
		fail_msg("status says %s: \"%s\"", path, text);
	json_decref(status);
}

/* ------------------------------------------------------------------ sockets */

static void each_has_its_own(void **state)
{
	struct wired w[20];

	(void)state;
	expect_status("state", "closed");
	for (int i = 0; i < 20; i++) {
		attach(&w[i]);
		assert_int_equal(w[i].p.resp.wire, PROTO_WIRE | PROTO_WIRE_IPV6 | PROTO_WIRE_PARK);
	}
	expect_status("state", "open");
	for (int i = 0; i < 20; i++)
		expect_packets(&w[i]);
	for (int i = 0; i < 20; i++)
		end(&w[i]);
}

/* Allocates slots until the first one is allocated again. */
static void a_slot_is_given_out_again(void **state)
{
	struct wired first, stays, w;
	uint32_t rounds = 0;

	(void)state;
	attach(&first);
	attach(&stays);
	const uint32_t slot = first.p.resp.slot;

	for (uint32_t i = 0; i < 20; i++)
		send_to_slot(slot, i);
	end(&first);
	raw_expect_count(&server, "clients", 1);
	for (uint32_t i = 0; i < 20; i++)
		send_to_slot(slot, i);
	for (;; rounds++) {
		attach(&w);
		if (w.p.resp.slot == slot)
			break;
		expect_packets(&w);
		end(&w);
		assert_true(rounds < 2 * LIMIT_SLOTS);
	}
	assert_in_range(rounds, LIMIT_SLOTS / 2, 2 * LIMIT_SLOTS);
	expect_packets(&w); /* and nothing else was there */
	expect_packets(&stays);
	end(&w);
	end(&stays);
}

static void a_second_daemon_has_none(void **state)
{
	struct raw_daemon first;
	struct wired one, two;

	(void)state;
	attach(&one);
	first = server;
	raw_daemon_start(&server);
	attach(&two);
	assert_int_equal(two.p.resp.wire, 0);
	expect_status("state", "closed");
	expect_status("why", "UDP port 4791 is used by a program of user");
	end(&two);
	raw_expect_count(&server, "clients", 0);
	raw_daemon_stop(&server);
	server = first;
	expect_packets(&one);
	end(&one);
}

/* ------------------------------------------------------------------ the next daemon */

static void survivors_keep_theirs(void **state)
{
	struct wired w[6], fresh, more[20];

	(void)state;
	for (int i = 0; i < 6; i++)
		attach(&w[i]);
	end(&w[1]);
	end(&w[4]);
	raw_expect_count(&server, "clients", 4);
	raw_daemon_replace(&server);
	expect_packets(&w[3]);
	/* A new process waits for the sockets, and delays no other. */
	begin(&fresh);
	go_back(&w[2], true);
	assert_int_equal(answer(&fresh), 0);
	expect_packets(&fresh);
	go_back(&w[0], true);
	go_back(&w[3], false);
	expect_packets(&w[5]);
	for (int i = 0; i < 20; i++)
		attach(&more[i]);
	/* And the next daemon, which knows only one process that hadn't returned to the last. */
	end(&fresh);
	for (int i = 0; i < 20; i += 2)
		end(&more[i]);
	raw_daemon_replace(&server);
	go_back(&w[5], true);
	attach(&fresh);
	for (int i = 1; i < 20; i += 2) {
		go_back(&more[i], true);
		expect_packets(&more[i]);
	}
	go_back(&w[0], true);
	go_back(&w[2], true);
	go_back(&w[3], true);
	for (int i = 0; i < 6; i++)
		if (i != 1 && i != 4)
			expect_packets(&w[i]);
	expect_packets(&fresh);
	end(&fresh);
	for (int i = 0; i < 6; i++)
		if (i != 1 && i != 4)
			end(&w[i]);
	for (int i = 1; i < 20; i += 2)
		end(&more[i]);
}

/* A process that returns late, because it or its machine has other things to do, is waited for. */
static void they_come_late(void **state)
{
	struct wired old, fresh;

	(void)state;
	attach(&old);
	raw_daemon_replace(&server);
	begin(&fresh);
	struct pollfd answered = {.fd = fresh.p.fd, .events = POLLIN};

	assert_int_equal(poll(&answered, 1, 2000), 0);
	go_back(&old, true);
	assert_int_equal(answer(&fresh), 0);
	expect_packets(&fresh);
	expect_packets(&old);
	end(&old);
	end(&fresh);
}

static void nobody_brings_them(void **state)
{
	struct wired old, fresh;

	(void)state;
	attach(&old);
	raw_daemon_replace(&server);
	begin(&fresh);
	go_back(&old, false);
	assert_int_equal(answer(&fresh), 0);
	assert_int_equal(fresh.p.resp.wire, 0);
	expect_packets(&old);
	end(&old);
	end(&fresh);
	raw_expect_count(&server, "clients", 0);
	attach(&fresh);
	expect_packets(&fresh);
	end(&fresh);
}

/* The awaited processes end: no process waits any longer, and there is a new group. */
static void the_awaited_end(void **state)
{
	struct wired old, fresh;
	int ends[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid_t child = fork();

	if (!child) {
		attach(&old);
		assert_int_equal(write(ends[1], "x", 1), 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ends[0], &byte, 1), 1);
	raw_daemon_replace(&server);
	begin(&fresh);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(answer(&fresh), 0);
	expect_packets(&fresh);
	end(&fresh);
	close(ends[0]);
	close(ends[1]);
}

static void only_who_returns_brings_one(void **state)
{
	static const struct proto_attach body = {.abi = PROTO_ABI};
	struct wired w, other;

	(void)state;
	attach(&w);
	other = w;
	ask(&other, &body, w.park);
	assert_int_equal(answer(&other), -EINVAL);
	close(other.p.fd);
	/* A descriptor that isn't a park has no effect. */
	raw_daemon_replace(&server);
	int park = w.park;

	w.park = w.p.table;
	go_back(&w, true);
	w.park = park;
	expect_packets(&w);
	end(&w);
}

/* ------------------------------------------------------------------ routes */

static const uint8_t *gid(const char *text)
{
	static uint8_t bytes[2][16];
	static int turn;
	uint8_t *out = bytes[turn ^= 1];

	assert_int_equal(inet_pton(AF_INET6, text, out), 1);
	return out;
}

/* The index of a GID, once it is there. */
static uint32_t index_of(int ctx, const char *text)
{
	struct proto_query_gid_resp resp;

	for (int tries = 0; tries < RAW_NAPS; tries++, raw_nap())
		for (uint32_t i = 0; i < 16; i++) {
			const struct proto_query_gid body = {.port = 1, .index = i};

			if (!raw_call(ctx, PROTO_QUERY_GID, &body, sizeof(body), &resp,
				      sizeof(resp)) &&
			    !memcmp(resp.gid, gid(text), 16))
				return i;
		}
	fail_msg("there is no GID %s", text);
	return 0;
}

/* The flags, or -errno. */
static int route(int ctx, uint32_t port, uint32_t from, const char *to)
{
	struct proto_route body = {.port = port, .sgid_index = from};
	struct proto_route_resp resp = {0};

	memcpy(body.dgid, gid(to), sizeof(body.dgid));
	int err = raw_call(ctx, PROTO_ROUTE, &body, sizeof(body), &resp, sizeof(resp));

	if (!err)
		assert_true(resp.ifindex > 0);
	return err ? err : (int)resp.flags;
}

static void routes(void **state)
{
	enum { LOCAL = PROTO_ROUTE_LOCAL, WIRE = PROTO_ROUTE_WIRE, GROUP = PROTO_ROUTE_GROUP };
	struct wired w;

	(void)state;
	if (system("ip address add 10.77.0.1/24 dev lo && ip -6 address add fd77::1/64 dev lo"))
		fail_msg("no addresses");
	attach(&w);
	int ctx = raw_context(&server, &w.p);
	uint32_t four = index_of(ctx, "::ffff:10.77.0.1"), six = index_of(ctx, "fd77::1");
	uint32_t lo = index_of(ctx, "::ffff:127.0.0.1");

	assert_int_equal(route(ctx, 1, four, "::ffff:10.77.0.1"), LOCAL | WIRE);
	assert_int_equal(route(ctx, 1, four, "fd77::1"), LOCAL);
	assert_int_equal(route(ctx, 1, six, "fd77::1"), LOCAL | WIRE);
	assert_int_equal(route(ctx, 1, lo, "::ffff:127.5.5.5"), LOCAL | WIRE);
	assert_int_equal(route(ctx, 1, lo, "::1"), LOCAL);
	/* The whole network of loopback is local, but none of this host's interfaces has that
	 * address. */
	assert_int_equal(route(ctx, 1, four, "::ffff:10.77.0.9"), WIRE);
	assert_int_equal(route(ctx, 1, lo, "::ffff:10.77.0.9"), 0);
	assert_int_equal(route(ctx, 1, four, "::ffff:10.78.0.1"), 0); /* no route */
	assert_int_equal(route(ctx, 1, six, "fd78::1"), 0);
	assert_int_equal(route(ctx, 1, four, "::ffff:224.0.0.1"), GROUP | WIRE);
	assert_int_equal(route(ctx, 1, six, "ff02::1"), GROUP | WIRE);
	assert_int_equal(route(ctx, 1, four, "ff02::1"), GROUP);
	assert_int_equal(route(ctx, 1, four, "::"), 0);
	assert_int_equal(route(ctx, 1, four, "::ffff:0.0.0.0"), 0);
	assert_int_equal(route(ctx, 1, 200, "::1"), -EINVAL);
	assert_int_equal(route(ctx, 2, four, "::1"), -EINVAL);
	assert_int_equal(route(ctx, 1, UINT32_MAX, "::1"), -EINVAL);
	close(ctx);
	end(&w);
}

/* Cached answers don't survive a change of the kernel's routes, however recent they are. */
static void routes_change(void **state)
{
	enum { WIRE = PROTO_ROUTE_WIRE };
	struct wired w;

	(void)state;
	if (system("ip address add 10.79.0.1/24 dev lo"))
		fail_msg("no address");
	attach(&w);
	int ctx = raw_context(&server, &w.p);
	uint32_t four = index_of(ctx, "::ffff:10.79.0.1");

	for (int i = 0; i < 20; i++) {
		assert_int_equal(route(ctx, 1, four, "::ffff:10.80.0.9"), 0);
		assert_int_equal(route(ctx, 1, four, "::ffff:10.80.0.9"), 0);
		assert_int_equal(system("ip route add 10.80.0.0/24 dev lo"), 0);
		assert_int_equal(route(ctx, 1, four, "::ffff:10.80.0.9"), WIRE);
		assert_int_equal(route(ctx, 1, four, "::ffff:10.80.0.9"), WIRE);
		assert_int_equal(route(ctx, 1, four, "::ffff:10.80.1.9"), 0);
		assert_int_equal(system("ip route del 10.80.0.0/24"), 0);
	}
	close(ctx);
	end(&w);
}

/* Asked once: the second question costs the daemon no socket. */
static void routes_are_remembered(void **state)
{
	struct wired w;

	(void)state;
	attach(&w);
	int ctx = raw_context(&server, &w.p);
	uint32_t lo = index_of(ctx, "::ffff:127.0.0.1");

	/* With no room for a descriptor the kernel can't be asked. */
	assert_int_equal(route(ctx, 1, lo, "::ffff:127.5.5.5"),
			 PROTO_ROUTE_LOCAL | PROTO_ROUTE_WIRE);
	struct rlimit old, none = {0};

	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, NULL, &old), 0);
	none.rlim_max = old.rlim_max;
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &none, NULL), 0);
	assert_int_equal(route(ctx, 1, lo, "::ffff:127.5.5.5"),
			 PROTO_ROUTE_LOCAL | PROTO_ROUTE_WIRE);
	assert_int_equal(route(ctx, 1, lo, "::ffff:127.5.5.6"), PROTO_ROUTE_LOCAL);
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &old, NULL), 0);
	close(ctx);
	end(&w);
}

static bool has_gid(int ctx, const char *text)
{
	uint8_t wanted[16];

	assert_int_equal(inet_pton(AF_INET6, text, wanted), 1);
	for (uint32_t i = 0; i < LIMIT_GIDS; i++) {
		const struct proto_query_gid body = {.port = 1, .index = i};
		struct proto_query_gid_resp resp;

		if (raw_call(ctx, PROTO_QUERY_GID, &body, sizeof(body), &resp, sizeof(resp)) == 0 &&
		    !memcmp(resp.gid, wanted, sizeof(wanted)))
			return true;
	}
	return false;
}

/* While duplicate address detection runs, an address can't be used for sending. */
static void a_tentative_address_is_no_gid(void **state)
{
	struct wired w;

	(void)state;
	if (system("ip link add dad0 type veth peer name dad1 && ip link set dad1 up && "
		   "ip link set dad0 up && "
		   "echo 1000 >/proc/sys/net/ipv6/conf/dad0/dad_transmits && "
		   "ip -6 address add fd79::1/64 dev dad0 && "
		   "ip -6 address add fd79::2/64 dev dad0 nodad"))
		fail_msg("no interfaces");
	attach(&w);
	int ctx = raw_context(&server, &w.p);

	for (int i = 0; i < RAW_NAPS && !has_gid(ctx, "fd79::2"); i++)
		raw_nap();
	assert_true(has_gid(ctx, "fd79::2"));
	assert_false(has_gid(ctx, "fd79::1"));
	/* The event that it is usable comes without a request. */
	assert_int_equal(system("echo 0 >/proc/sys/net/ipv6/conf/dad0/dad_transmits && "
				"ip -6 address add fd79::3/64 dev dad0"),
			 0);
	for (int i = 0; i < RAW_NAPS && !has_gid(ctx, "fd79::3"); i++)
		raw_nap();
	assert_true(has_gid(ctx, "fd79::3"));
	assert_int_equal(system("ip link del dad0"), 0);
	close(ctx);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_has_its_own, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(a_slot_is_given_out_again, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(a_second_daemon_has_none, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(survivors_keep_theirs, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(nobody_brings_them, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(they_come_late, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(the_awaited_end, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(only_who_returns_brings_one, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(routes, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(routes_change, raw_server_start, raw_server_stop),
		cmocka_unit_test_setup_teardown(routes_are_remembered, raw_server_start,
						raw_server_stop),
		cmocka_unit_test_setup_teardown(a_tentative_address_is_no_gid, raw_server_start,
						raw_server_stop),
	};
	int err = netns_enter(1);

	if (err) {
		fprintf(stderr, "skipped: no network namespace of our own: %s\n", strerror(-err));
		return 77;
	}
	raw_wire = 1;
	return cmocka_run_group_tests_name("wire of a daemon", tests, NULL, NULL);
}
