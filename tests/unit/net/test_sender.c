/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A full socket: no call of the sender waits, kept packets are sent in order once the socket can be
 * written to, paths with other sockets continue, and packets that can't be kept are dropped and
 * counted. The test replaces the kernel's part (sendmsg() and sendto(), and any wait).
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "net/sender.h"
#include "played_sends.h"
#include "wire/ip.h"

enum { SIZE = 1000, SENT_MAX = 4096 };

/* ------------------------------------------------------------------ the kernel, played */

static int full_fd;	       /* this socket has no room; -1: each has */
static unsigned int room_left; /* for so many sends, though */
static bool no_cutting;	       /* bursts of several packets are refused */
static uint8_t sent[SENT_MAX]; /* the first byte of each packet, in order */
static unsigned int sent_count, waits, waits_asked;
static unsigned int asked_for; /* the socket that wait() named last */
static bool can_wait;

ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *message, int flags)
{
	const struct iovec *all = message->msg_iov;

	(void)flags;
	if (fd == full_fd && !room_left) {
		errno = EAGAIN;
		return -1;
	}
	if (no_cutting && all->iov_len > SIZE + WIRE_ICRC) {
		errno = EIO;
		return -1;
	}
	if (fd == full_fd)
		room_left--;
	for (size_t at = 0; at < all->iov_len; at += SIZE + WIRE_ICRC)
		sent[sent_count++] = ((const uint8_t *)all->iov_base)[at];
	return (ssize_t)all->iov_len;
}

int __wrap_sys_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_sys_poll(struct pollfd *fds, nfds_t count, int ms)
{
	(void)fds, (void)count;
	waits += ms != 0;
	return 0;
}

static bool wait_for_room(void *owner, unsigned int socket)
{
	assert_ptr_equal(owner, sent);
	asked_for = socket;
	waits_asked++;
	return can_wait;
}

/* ------------------------------------------------------------------ one sender, two paths */

static struct net_sender sender;
static struct net_path path, other;

static void path_make(struct net_path *p, uint32_t flow_label)
{
	*p = (struct net_path){.ip.source = {[10] = 0xff, 0xff, 127, 0, 0, 1},
			       .ip.destination = {[10] = 0xff, 0xff, 127, 0, 0, 1},
			       .socket = -1};
	assert_int_equal(net_path_bind(&sender, p, flow_label, 1, 2), 0);
}

static int start(void **state)
{
	(void)state;
	full_fd = -1;
	room_left = sent_count = waits = waits_asked = 0;
	no_cutting = false;
	can_wait = true;
	assert_int_equal(net_sender_init(&sender), 0);
	sender.wait = wait_for_room;
	sender.owner = sent;
	path_make(&path, 1);
	path_make(&other, 2);
	assert_int_not_equal(path.socket, other.socket);
	return 0;
}

static int end(void **state)
{
	(void)state;
	net_sender_fini(&sender);
	return 0;
}

static void fill_up(void)
{
	full_fd = sender.socket[path.socket].socket.fd;
}

/* What the caller's event loop does when the socket can be written to. */
static bool drain(unsigned int sends)
{
	room_left = sends;
	return net_resume(&sender, (unsigned int)path.socket);
}

/* Packets whose first bytes are from, from + 1, ... to - 1. */
static void add(struct net_path *on, unsigned int from, unsigned int to)
{
	net_begin(&sender, on);
	for (unsigned int i = from; i < to; i++) {
		uint8_t *at = net_room(&sender);

		memset(at, 0, SIZE);
		at[0] = (uint8_t)i;
		net_add(&sender, SIZE);
	}
	net_end(&sender);
}

static void sent_are(unsigned int from, unsigned int to)
{
	assert_int_equal(sent_count, to - from);
	for (unsigned int i = 0; i < sent_count; i++)
		assert_int_equal(sent[i], (uint8_t)(from + i));
}

/* ------------------------------------------------------------------ tests */

static void nothing_waits(void **state)
{
	(void)state;
	fill_up();
	add(&path, 0, 3);
	assert_int_equal(waits, 0);
	assert_int_equal(sent_count, 0);
	assert_true(net_blocked(&sender, &path));
	assert_int_equal(waits_asked, 1);
	assert_int_equal(asked_for, path.socket);

	/* Another socket isn't blocked by this one. */
	assert_false(net_blocked(&sender, &other));
	add(&other, 7, 9);
	sent_are(7, 9);
	sent_count = 0;

	assert_false(drain(0)); /* a wake-up without room: asks again */
	assert_int_equal(waits_asked, 2);
	assert_true(net_blocked(&sender, &path));

	assert_true(drain(1));
	assert_false(net_blocked(&sender, &path));
	sent_are(0, 3);
	assert_int_equal(sender.counters.no_room, 0);
	assert_int_equal(sender.counters.packets, 5);
}

/* Packets sent while the socket is blocked stay behind the kept ones, even if there is room by
 * then: an acknowledgement that can't wait (a QP ends) isn't lost. */
static void in_order(void **state)
{
	(void)state;
	fill_up();
	add(&path, 0, 2);
	room_left = 1000;
	add(&path, 2, 3);
	assert_int_equal(sent_count, 0);
	assert_false(drain(1));
	sent_are(0, 2);
	assert_true(drain(1));
	sent_are(0, 3);
	add(&path, 3, 4);
	sent_are(0, 3);
	assert_true(net_blocked(&sender, &path)); /* full again */
	assert_true(drain(1));
	sent_are(0, 4);
}

/* Where each packet is a call of its own, only part of a burst may find room. */
static void one_by_one(void **state)
{
	(void)state;
	no_cutting = true;
	fill_up();
	room_left = 2;
	add(&path, 0, 5);
	sent_are(0, 2);
	assert_true(net_blocked(&sender, &path));
	assert_false(drain(1));
	sent_are(0, 3);
	assert_true(drain(2));
	sent_are(0, 5);
	assert_int_equal(sender.counters.packets, 5);
	assert_int_equal(sender.counters.no_room, 0);
}

static void bounded(void **state)
{
	unsigned int packets = 0;

	(void)state;
	fill_up();
	while (!sender.counters.no_room && packets < SENT_MAX) {
		add(&path, packets, packets + 10);
		packets += 10;
	}
	assert_int_equal(sender.counters.no_room, 10);
	assert_in_range(sender.socket[path.socket].kept_bytes, NET_KEPT_MAX / 2, NET_KEPT_MAX);
	assert_int_equal(waits_asked, 1);
	assert_true(drain(SENT_MAX));
	sent_are(0, packets - 10);
	assert_int_equal(sender.socket[path.socket].kept_bytes, 0);
}

/* Without wait(): packets that find no room are lost at once, and counted. */
static void without_waiting(void **state)
{
	(void)state;
	can_wait = false;
	fill_up();
	add(&path, 0, 3);
	assert_int_equal(waits, 0);
	assert_false(net_blocked(&sender, &path));
	assert_int_equal(sender.counters.no_room, 3);
	sender.wait = NULL;
	add(&path, 0, 3);
	assert_int_equal(sender.counters.no_room, 6);
	full_fd = -1;
	add(&path, 3, 5);
	sent_are(3, 5);
}

/* wait() fails later: kept packets are counted as dropped, and the socket is open. */
static void waiting_fails(void **state)
{
	(void)state;
	fill_up();
	add(&path, 0, 3);
	can_wait = false;
	assert_true(drain(0));
	assert_int_equal(sender.counters.no_room, 3);
	assert_false(net_blocked(&sender, &path));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_waits, start, end),
		cmocka_unit_test_setup_teardown(in_order, start, end),
		cmocka_unit_test_setup_teardown(one_by_one, start, end),
		cmocka_unit_test_setup_teardown(bounded, start, end),
		cmocka_unit_test_setup_teardown(without_waiting, start, end),
		cmocka_unit_test_setup_teardown(waiting_fails, start, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
