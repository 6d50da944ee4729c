/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one client can do to others and to the daemon: die, not read, send invalid data, flood. And
 * links, which two processes share on purpose.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "proto/limits.h"
#include "raw.h"
#include "shm/link.h"
#include "shm/pub.h"

static long fds_before;

static int before(void **state)
{
	(void)state;
	raw_expect_count(&server, "clients", 0);
	fds_before = raw_daemon_fds(&server);
	return 0;
}

static int after(void **state)
{
	(void)state;
	raw_expect_count(&server, "clients", 0);
	raw_expect_fds_equal(&server, fds_before);
	return 0;
}

/* ------------------------------------------------------------------ attaching */

static int attach_result(int table, int doorbell)
{
	struct proto_attach_resp resp;
	int event_fd, fd = raw_connect(&server);
	int result = raw_attach_with(fd, table, doorbell, &resp, &event_fd);

	if (result == 0)
		close(event_fd);
	close(fd);
	return result;
}

static int sealed_file(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void attach_checks_its_descriptors(void **state)
{
	const int all = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
	const int each[] = {F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL};
	int good = raw_table(), bell = eventfd(0, EFD_NONBLOCK), blocking = eventfd(0, 0);
	int pair[2], null = open("/dev/null", O_RDWR), fd;

	(void)state;
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(attach_result(-1, -1), -EINVAL);
	assert_int_equal(attach_result(good, -1), -EINVAL);
	assert_int_equal(attach_result(null, bell), -EINVAL);
	assert_int_equal(attach_result(bell, good), -EINVAL);
	assert_int_equal(attach_result(good, pair[1]), -EINVAL);
	assert_int_equal(attach_result(good, null), -EINVAL);
	assert_int_equal(attach_result(good, blocking), -EINVAL);
	for (size_t i = 0; i < 4; i++) {
		fd = sealed_file(PUB_SIZE, all & ~each[i]);
		assert_int_equal(attach_result(fd, bell), -EINVAL);
		close(fd);
	}
	fd = sealed_file(PUB_SIZE - 4096, all);
	assert_int_equal(attach_result(fd, bell), -EINVAL);
	close(fd);
	assert_int_equal(attach_result(good, bell), 0);
	close(good);
	close(bell);
	close(blocking);
	close(null);
	close(pair[0]);
	close(pair[1]);
}

static void attach_twice_and_other_versions(void **state)
{
	struct proto_attach body = {.abi = PROTO_ABI + 1};
	struct raw_process p;
	struct proto_attach_resp resp;
	int fd = raw_connect(&server), event_fd;

	(void)state;
	assert_int_equal(raw_call(fd, PROTO_ATTACH, &body, sizeof(body), NULL, 0),
			 -EPROTONOSUPPORT);
	body = (struct proto_attach){.abi = PROTO_ABI, .flags = 1};
	assert_int_equal(raw_call(fd, PROTO_ATTACH, &body, sizeof(body), NULL, 0), -EINVAL);
	close(fd);
	raw_attach(&server, &p);
	assert_int_equal(raw_attach_with(p.fd, p.table, p.doorbell, &resp, &event_fd), -EINVAL);
	raw_detach(&p);
}

static void slots_age(void **state)
{
	static uint8_t seen[LIMIT_SLOTS];
	struct raw_process p;

	(void)state;
	for (int i = 0; i < 200; i++) {
		raw_attach(&server, &p);
		assert_in_range(p.resp.slot, 1, LIMIT_SLOTS - 1);
		assert_false(seen[p.resp.slot]);
		seen[p.resp.slot] = 1;
		raw_detach(&p);
	}
}

/* ------------------------------------------------------------------ death */

/* A child that makes objects and then only waits; returns after it has made them. */
static pid_t busy_child(int with_grandchild)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		struct raw_process p;

		raw_attach(&server, &p);
		for (int i = 0; i < 3; i++) {
			int ctx = raw_context(&server, &p);
			uint32_t pd = raw_pd(ctx), channel = raw_channel(ctx);
			uint32_t cq = raw_cq(ctx, (int32_t)channel);

			raw_srq(ctx, pd);
			raw_mr(ctx, pd, NULL);
			raw_qp(ctx, pd, cq, NULL);
			raw_ah(ctx, pd);
		}
		/* Holds all of its parent's sockets for a while longer. */
		if (with_grandchild && fork() == 0) {
			close(ready[0]);
			close(ready[1]);
			sleep(3);
			_exit(0);
		}
		if (write(ready[1], "1", 1) == 1)
			pause();
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return child;
}

static void death_frees_all(void **state)
{
	(void)state;
	pid_t child = busy_child(0);

	assert_int_equal(raw_count(&server, "clients"), 1);
	assert_int_equal(raw_count(&server, "contexts"), 3);
	assert_int_equal(raw_count(&server, "qp"), 3);
	assert_int_equal(raw_count(&server, "pinned_bytes"), 3 * 0x2000);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	raw_expect_count(&server, "clients", 0);
}

static void death_is_seen_though_a_child_holds_the_sockets(void **state)
{
	(void)state;
	pid_t child = busy_child(1);

	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* Long before the grandchild ends. */
	for (int i = 0; i < 200 && raw_count(&server, "clients"); i++)
		raw_nap();
	assert_int_equal(raw_count(&server, "clients"), 0);
}

static void many_deaths(void **state)
{
	pid_t child[20];

	(void)state;
	for (int i = 0; i < 20; i++)
		child[i] = busy_child(0);
	assert_int_equal(raw_count(&server, "clients"), 20);
	for (int i = 0; i < 20; i++)
		kill(child[i], SIGKILL);
	for (int i = 0; i < 20; i++)
		waitpid(child[i], NULL, 0);
	raw_expect_count(&server, "clients", 0);
}

static void a_closed_context_frees_its_own(void **state)
{
	struct raw_process p;

	(void)state;
	raw_attach(&server, &p);
	int a = raw_context(&server, &p), b = raw_context(&server, &p);

	raw_pd(a);
	raw_pd(b);
	raw_pd(b);
	assert_int_equal(raw_count(&server, "pd"), 3);
	close(b);
	raw_expect_count(&server, "pd", 1);
	raw_expect_count(&server, "contexts", 1);
	/* The process ends: its other context ends, too, although that connection is open. */
	raw_detach(&p);
	raw_expect_count(&server, "clients", 0);
	assert_int_equal(raw_receive(a, NULL, 0, NULL), -EPIPE);
	close(a);
}

/* ------------------------------------------------------------------ links */

static int ask_link(const struct raw_process *p, uint32_t slot)
{
	const struct proto_link body = {.slot = slot};

	return raw_call(p->fd, PROTO_LINK, &body, sizeof(body), NULL, 0);
}

static int same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static void close_three(const int *fds)
{
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

static void expect_link(const struct raw_process *p, const struct raw_process *peer,
			struct proto_event *event, int *fds)
{
	struct stat st;

	assert_int_equal(raw_event(p, event, fds), 0);
	assert_int_equal(event->type, PROTO_EVENT_LINK);
	assert_int_equal(event->slot, peer->resp.slot);
	assert_int_equal(event->pid, getpid());
	assert_int_equal(event->uid, geteuid());
	assert_true(same_file(fds[1], peer->table));
	/* The peer's doorbell rings. */
	assert_int_equal(eventfd_write(fds[2], 1), 0);
	eventfd_t value;

	assert_int_equal(eventfd_read(peer->doorbell, &value), 0);
	/* The link's memory can't be pulled away; the peer's table can't be written. */
	assert_int_equal(fstat(fds[0], &st), 0);
	assert_int_equal(st.st_size, LINK_SIZE);
	assert_int_equal(fcntl(fds[0], F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0) == MAP_FAILED);
	assert_int_equal(pwrite(fds[1], "x", 1, 0), -1);
}

static void two_processes_are_linked(void **state)
{
	struct raw_process a, b;
	struct proto_event ea, eb;
	int fa[3], fb[3];

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	assert_int_equal(ask_link(&a, b.resp.slot), 0);
	expect_link(&a, &b, &ea, fa);
	expect_link(&b, &a, &eb, fb);
	assert_true(ea.link_id == eb.link_id && ea.link_id != 0);
	assert_int_equal(ea.side + eb.side, 1);
	assert_true(same_file(fa[0], fb[0]));
	close_three(fa);
	close_three(fb);
	assert_int_equal(ask_link(&a, b.resp.slot), -EALREADY);
	assert_int_equal(ask_link(&b, a.resp.slot), -EALREADY);
	assert_int_equal(raw_count(&server, "links"), 2);
	raw_detach(&b);
	assert_int_equal(raw_event(&a, &ea, fa), 0);
	assert_int_equal(ea.type, PROTO_EVENT_LINK_DOWN);
	assert_int_equal(ea.slot, b.resp.slot);
	assert_true(ea.link_id == eb.link_id);
	assert_int_equal(ask_link(&a, b.resp.slot), -ENOENT);
	assert_int_equal(raw_count(&server, "links"), 0);
	raw_detach(&a);
}

/* Attaches with these regions; returns what the daemon says to them. */
static int attach_with_regions(struct raw_process *p, int regions)
{
	const struct proto_attach body = {.abi = PROTO_ABI};

	p->fd = raw_connect(&server);
	p->event_fd = -1;
	p->table = raw_table();
	p->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	const int fds[] = {p->table, p->doorbell, regions};

	return raw_attach_fds(p->fd, &body, fds, 3, &p->resp, &p->event_fd);
}

static void regions_must_be_sealed(void **state)
{
	const int most = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
	const int bad[] = {sealed_file(PUB_REGIONS_SIZE, most), raw_memory(PUB_REGIONS_SIZE - 4096),
			   raw_table(), eventfd(0, EFD_NONBLOCK)};
	struct raw_process p;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(attach_with_regions(&p, bad[i]), -EINVAL);
		raw_detach(&p);
		close(bad[i]);
	}
}

/* Both processes get the other's regions, or neither does: a process that may access another's
 * memory must show its hazards. */
static void regions_are_given_both_ways(void **state)
{
	int regions[] = {raw_memory(PUB_REGIONS_SIZE), raw_memory(PUB_REGIONS_SIZE)};
	struct raw_process a, b, without;
	struct proto_event event;
	int fds[PROTO_MAX_FDS];

	(void)state;
	assert_int_equal(attach_with_regions(&a, regions[0]), 0);
	assert_int_equal(attach_with_regions(&b, regions[1]), 0);
	raw_attach(&server, &without);
	assert_int_equal(ask_link(&a, b.resp.slot), 0);
	assert_int_equal(raw_event_all(&a, &event, fds), 0);
	assert_true(same_file(fds[3], regions[1]));
	close_three(fds);
	close(fds[3]);
	assert_int_equal(raw_event_all(&b, &event, fds), 0);
	assert_true(same_file(fds[3], regions[0]));
	close_three(fds);
	close(fds[3]);
	assert_int_equal(ask_link(&a, without.resp.slot), 0);
	assert_int_equal(raw_event(&a, &event, fds), 0); /* it asserts that there are none */
	close_three(fds);
	assert_int_equal(raw_event(&without, &event, fds), 0);
	close_three(fds);
	raw_detach(&without);
	raw_detach(&b);
	raw_detach(&a);
	close(regions[0]);
	close(regions[1]);
}

static int give_up_link(const struct raw_process *p, uint32_t slot, uint64_t id)
{
	const struct proto_unlink body = {.slot = slot, .link_id = id};

	return raw_call(p->fd, PROTO_UNLINK, &body, sizeof(body), NULL, 0);
}

static void a_link_is_given_up(void **state)
{
	struct raw_process a, b, c;
	struct proto_event ea, eb;
	int fa[3], fb[3];

	(void)state;
	raw_attach(&server, &a);
	raw_attach(&server, &b);
	raw_attach(&server, &c);
	assert_int_equal(give_up_link(&a, b.resp.slot, 1), -ENOENT);
	assert_int_equal(give_up_link(&a, UINT32_MAX, 1), -ENOENT);
	for (int round = 0; round < 3; round++) {
		uint64_t id;

		assert_int_equal(ask_link(&a, b.resp.slot), 0);
		expect_link(&a, &b, &ea, fa);
		expect_link(&b, &a, &eb, fb);
		id = ea.link_id;
		close_three(fa);
		close_three(fb);
		/* Neither a link to itself nor one that has ended. */
		assert_int_equal(give_up_link(&c, b.resp.slot, id), -ENOENT);
		assert_int_equal(give_up_link(&a, c.resp.slot, id), -ENOENT);
		assert_int_equal(give_up_link(&a, b.resp.slot, id - 1), -ENOENT);
		assert_int_equal(raw_count(&server, "links"), 2);
		assert_int_equal(give_up_link(&a, b.resp.slot, id), 0);
		assert_int_equal(give_up_link(&b, a.resp.slot, id), -ENOENT);
		assert_int_equal(raw_count(&server, "links"), 0);
		assert_int_equal(raw_event(&b, &eb, fb), 0);
		assert_int_equal(eb.type, PROTO_EVENT_LINK_DOWN);
		assert_int_equal(eb.slot, a.resp.slot);
		assert_true(eb.link_id == id);
	}
	raw_detach(&a);
	raw_detach(&b);
	raw_detach(&c);
}

static void links_to_nobody(void **state)
{
	struct raw_process p;

	(void)state;
	raw_attach(&server, &p);
	assert_int_equal(ask_link(&p, p.resp.slot), -EINVAL);
	assert_int_equal(ask_link(&p, 0), -ENOENT);
	assert_int_equal(ask_link(&p, LIMIT_SLOTS - 1), -ENOENT);
	assert_int_equal(ask_link(&p, LIMIT_SLOTS), -ENOENT);
	assert_int_equal(ask_link(&p, UINT32_MAX), -ENOENT);
	raw_detach(&p);
}

/* A process that doesn't read its events has many peers; it misses no event, and no other process
 * waits for it. */
static void a_process_that_reads_late(void **state)
{
	enum { PEERS = 150 };
	static struct raw_process peer[PEERS];
	struct raw_process slow;
	struct proto_event event;
	int fds[3], links = 0, downs = 0;

	(void)state;
	raw_attach(&server, &slow);
	for (int i = 0; i < PEERS; i++) {
		raw_attach(&server, &peer[i]);
		assert_int_equal(ask_link(&peer[i], slow.resp.slot), 0);
		assert_int_equal(raw_event(&peer[i], &event, fds), 0);
		close_three(fds);
	}
	for (int i = 0; i < PEERS; i += 2)
		raw_detach(&peer[i]);
	raw_expect_count(&server, "clients", 1 + PEERS / 2);
	while (links + downs < PEERS) {
		struct pollfd p = {.fd = slow.event_fd, .events = POLLIN};

		if (poll(&p, 1, 3000) != 1)
			break;
		assert_int_equal(raw_event(&slow, &event, fds), 0);
		close_three(fds);
		links += event.type == PROTO_EVENT_LINK;
		downs += event.type == PROTO_EVENT_LINK_DOWN;
	}
	/* Some links of ended processes were never reported: neither up nor down. */
	assert_int_equal(links - downs, PEERS / 2);
	raw_detach(&slow);
	for (int i = 1; i < PEERS; i += 2) {
		assert_int_equal(raw_event(&peer[i], &event, fds), 0);
		assert_int_equal(event.type, PROTO_EVENT_LINK_DOWN);
		raw_detach(&peer[i]);
	}
}

static void a_process_that_closed_its_event_socket(void **state)
{
	struct raw_process deaf, p;

	(void)state;
	raw_attach(&server, &deaf);
	raw_attach(&server, &p);
	close(deaf.event_fd);
	deaf.event_fd = open("/dev/null", O_RDONLY);
	for (int i = 0; i < RAW_NAPS && ask_link(&p, deaf.resp.slot) != -ENOENT; i++)
		raw_nap();
	assert_int_equal(ask_link(&p, deaf.resp.slot), -ENOENT);
	raw_detach(&deaf);
	raw_detach(&p);
}

/* ------------------------------------------------------------------ nonsense and floods */

static int list_works(int fd)
{
	struct proto_list_devices_resp list;

	return raw_call(fd, PROTO_LIST_DEVICES, NULL, 0, &list, sizeof(list)) == 0 &&
	       list.count == 1;
}

static void packets_of_any_size(void **state)
{
	static uint8_t packet[100000];
	int fd = raw_connect(&server);

	(void)state;
	for (size_t size = 1; size < sizeof(packet); size = size * 3 / 2 + 1) {
		memset(packet, (int)size, size);
		assert_int_equal(raw_send(fd, packet, size, NULL, 0), 0);
		assert_true(raw_receive(fd, NULL, 0, NULL) < 0);
	}
	assert_true(list_works(fd));
	/* An empty packet looks like the end. */
	assert_int_equal(raw_send(fd, packet, 0, NULL, 0), 0);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EPIPE);
	close(fd);
}

static void random_packets(void **state)
{
	uint32_t packet[128];
	struct raw_process p;

	(void)state;
	srand(7);
	raw_attach(&server, &p);
	int ctx = raw_context(&server, &p), fds[] = {p.fd, ctx};

	for (int i = 0; i < 20000; i++) {
		uint32_t words = 2 + (uint32_t)rand() % 40;

		for (uint32_t w = 0; w < words; w++)
			packet[w] = rand() % 3 ? (uint32_t)rand() % 64 : (uint32_t)rand();
		packet[0] = (uint32_t)rand() % (i % 2 ? 48 : 0x86);
		packet[1] = words | 512u << 16;
		assert_int_equal(raw_send(fds[i % 2], packet, words * 4, NULL, 0), 0);
		raw_receive(fds[i % 2], NULL, 0, NULL);
	}
	assert_true(list_works(ctx));
	close(ctx);
	raw_detach(&p);
}

static const struct ib_uverbs_cmd_hdr list_request = {
	.command = PROTO_LIST_DEVICES, .in_words = 2, .out_words = 1024};

/* Sends `count` descriptors. While the daemon's thread closes earlier ones, the daemon may have no
 * room for these: then the answer is -EMFILE and the connection's last, and a new connection may
 * find no room either. Returns the connection. */
static int send_unwanted(int fd, const int *fds, unsigned int count)
{
	for (;;) {
		int err = raw_send(fd, &list_request, sizeof(list_request), fds, count);

		if (!err)
			err = raw_receive(fd, NULL, 0, NULL);
		if (err == -EMFILE || (err == -EINVAL && count <= PROTO_MAX_FDS))
			return fd;
		assert_int_equal(err, -EPIPE);
		close(fd);
		fd = raw_connect(&server);
	}
}

static void descriptors_nobody_asked_for(void **state)
{
	/* Not `fd`: packets that stay in the socket would keep its other end open. */
	int fds[60], fd = raw_connect(&server), null = open("/dev/null", O_RDWR);

	(void)state;
	for (int i = 0; i < 60; i++)
		fds[i] = null;
	for (int round = 0; round < 200; round++)
		for (unsigned int count = 1; count <= 60; count += 7)
			fd = send_unwanted(fd, fds, count);
	close(null);
	close(fd);
	raw_expect_fds_equal(&server, fds_before);
	fd = raw_connect(&server);
	assert_true(list_works(fd));
	close(fd);
}

/* A request whose descriptors the daemon has no room for stays in its socket. The client gets an
 * answer, and then the end: its next request must not wait for ever. */
static void descriptors_without_room(void **state)
{
	int fd = raw_connect(&server), null = open("/dev/null", O_RDWR);
	const int fds[] = {null, null, null, null};
	struct rlimit room, full;

	(void)state;
	assert_true(list_works(fd)); /* no accept() comes after it */
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, NULL, &room), 0);
	full = (struct rlimit){.rlim_cur = 3, .rlim_max = room.rlim_max};
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &full, NULL), 0);
	assert_int_equal(raw_send(fd, &list_request, sizeof(list_request), fds, 4), 0);
	assert_int_equal(raw_receive(fd, NULL, 0, NULL), -EMFILE);
	assert_int_equal(raw_send(fd, &list_request, sizeof(list_request), NULL, 0), -EPIPE);
	close(null);
	close(fd);
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &room, NULL), 0);
	fd = raw_connect(&server);
	assert_true(list_works(fd));
	close(fd);
}

/* The daemon stops reading its requests; others are served, and the daemon doesn't grow. */
static void a_client_that_never_reads(void **state)
{
	const struct ib_uverbs_cmd_hdr list = {
		.command = PROTO_LIST_DEVICES, .in_words = 2, .out_words = 1024};
	int mute[20], other = raw_connect(&server), full = 0;

	(void)state;
	assert_true(list_works(other));
	long rss = raw_daemon_rss(&server);

	for (int i = 0; i < 20; i++) {
		mute[i] = raw_connect(&server);
		fcntl(mute[i], F_SETFL, O_NONBLOCK);
	}
	for (int round = 0; round < 20000 && full < 20; round++) {
		full = 0;
		for (int i = 0; i < 20; i++)
			full += raw_send(mute[i], &list, sizeof(list), NULL, 0) == -EAGAIN;
		if (round % 100 == 0)
			assert_true(list_works(other));
	}
	assert_int_equal(full, 20);
	assert_true(list_works(other));
	assert_true(raw_daemon_rss(&server) - rss < 4096);
	/* A client that begins to read gets all answers. */
	int answers = 0;

	fcntl(mute[0], F_SETFL, 0);
	while (answers < 200) {
		assert_int_equal(raw_receive(mute[0], NULL, 0, NULL), 0);
		answers++;
	}
	for (int i = 0; i < 20; i++)
		close(mute[i]);
	assert_true(list_works(other));
	close(other);
}

static void too_many_contexts(void **state)
{
	enum { MAX = 1024 };
	static int ctx[MAX];
	struct raw_process p;

	(void)state;
	if (!files_may_be(2 * MAX))
		skip();
	raw_attach(&server, &p);
	const struct {
		struct ib_uverbs_get_context core;
		struct proto_get_context udata;
	} body = {.udata.cookie = p.resp.cookie};

	for (int i = 0; i < MAX; i++) {
		ctx[i] = raw_context(&server, &p);
		raw_pd(ctx[i]);
	}
	int fd = raw_connect(&server);

	assert_int_equal(raw_call(fd, IB_USER_VERBS_CMD_GET_CONTEXT, &body, sizeof(body), NULL, 0),
			 -ENOMEM);
	close(fd);
	for (int i = 0; i < MAX; i++)
		close(ctx[i]);
	raw_detach(&p);
}

/* ------------------------------------------------------------------ the control socket */

static void control_nonsense(void **state)
{
	static const char *const lines[] = {
		"\n",	   "{}\n",   "[]\n", "null\n", "{\"op\":7}\n", "{\"op\":\"boom\"}\n",
		"{\"op\"", "\"\\u0",
	};
	char longest[10000];

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		json_t *reply = raw_ctl(&server, lines[i]);

		assert_true(json_is_false(json_object_get(reply, "ok")));
		assert_true(json_is_string(json_object_get(reply, "error")));
		json_decref(reply);
	}
	memset(longest, '[', sizeof(longest));
	longest[sizeof(longest) - 1] = 0;
	json_decref(raw_ctl(&server, longest));
	assert_int_equal(raw_count(&server, "clients"), 0);
}

static void stop_needs_force_while_there_are_clients(void **state)
{
	struct raw_process p;

	(void)state;
	raw_attach(&server, &p);
	json_t *reply = raw_ctl(&server, "{\"op\":\"stop\"}\n");

	assert_true(json_is_false(json_object_get(reply, "ok")));
	json_decref(reply);
	assert_int_equal(raw_count(&server, "clients"), 1);
	raw_detach(&p);
}

/* Whether the daemon sleeps at one of many checks: a busy loop never does. */
static bool daemon_sleeps(void)
{
	for (int i = 0; i < 200; i++) {
		char path[64], text[256] = "";

		snprintf(path, sizeof(path), "/proc/%d/stat", server.pid);
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, sizeof(text) - 1);
		const char *state = n > 0 ? strrchr(text, ')') : NULL;

		close(fd);
		if (state && state[2] == 'S')
			return true;
		raw_nap();
	}
	return false;
}

/* The limit is lowered below the daemon's open descriptors: its spare descriptor doesn't help. */
static void no_descriptor_at_all(void **state)
{
	struct rlimit before_it, none = {.rlim_cur = 3, .rlim_max = 0};

	(void)state;
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, NULL, &before_it), 0);
	none.rlim_max = before_it.rlim_max;
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &none, NULL), 0);
	int fd = raw_connect(&server);

	raw_nap();
	bool sleeps = daemon_sleeps();

	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &before_it, NULL), 0);
	assert_true(sleeps);
	/* It continues when descriptors are available again: the waiting connection is served. */
	struct proto_attach_resp resp;
	int event_fd, table = raw_table(), bell = eventfd(0, EFD_NONBLOCK);

	assert_int_equal(raw_attach_with(fd, table, bell, &resp, &event_fd), 0);
	close(event_fd);
	close(table);
	close(bell);
	close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, before, after)
	const struct CMUnitTest tests[] = {
		TEST(attach_checks_its_descriptors),
		TEST(attach_twice_and_other_versions),
		TEST(slots_age),
		TEST(death_frees_all),
		TEST(death_is_seen_though_a_child_holds_the_sockets),
		TEST(many_deaths),
		TEST(a_closed_context_frees_its_own),
		TEST(two_processes_are_linked),
		TEST(regions_must_be_sealed),
		TEST(regions_are_given_both_ways),
		TEST(a_link_is_given_up),
		TEST(links_to_nobody),
		TEST(a_process_that_reads_late),
		TEST(a_process_that_closed_its_event_socket),
		TEST(packets_of_any_size),
		TEST(random_packets),
		TEST(descriptors_nobody_asked_for),
		TEST(descriptors_without_room),
		TEST(a_client_that_never_reads),
		TEST(too_many_contexts),
		TEST(control_nonsense),
		TEST(stop_needs_force_while_there_are_clients),
		TEST(no_descriptor_at_all),
	};

	return cmocka_run_group_tests(tests, raw_server_start, raw_server_stop);
}
