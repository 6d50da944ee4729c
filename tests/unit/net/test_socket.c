/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a send names in its control messages, and what its socket has as defaults instead. The test
 * replaces sendmsg() and sendto(); options are set on real sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "net/socket.h"
#include "played_sends.h"

/* ------------------------------------------------------------------ the kernel, played */

static char named[256]; /* by the last send: "from 127.0.0.2, segment 24" */
static unsigned int sends;
static bool refuses_segment; /* a device that can't cut: refuses a send that has a segment */
static uint16_t segment_of;  /* the socket's option */

static void name(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void name(const char *format, ...)
{
	size_t used = strlen(named);
	va_list arguments;

	if (used)
		used += (size_t)snprintf(named + used, sizeof(named) - used, ", ");
	va_start(arguments, format);
	vsnprintf(named + used, sizeof(named) - used, format, arguments);
	va_end(arguments);
}

static void name_source(int family, const void *address, unsigned int ifindex)
{
	char text[INET6_ADDRSTRLEN];

	name("from %s", inet_ntop(family, address, text, sizeof(text)));
	if (ifindex)
		name("interface %u", ifindex);
}

/* Returns the segment that the message names, or -1. */
static int name_control(const struct cmsghdr *c)
{
	const void *data = CMSG_DATA(c);
	struct in6_pktinfo info6;
	struct in_pktinfo info4;
	uint16_t segment;

	switch (c->cmsg_level << 16 | c->cmsg_type) {
	case IPPROTO_IP << 16 | IP_PKTINFO:
		memcpy(&info4, data, sizeof(info4));
		name_source(AF_INET, &info4.ipi_spec_dst, (unsigned int)info4.ipi_ifindex);
		return -1;
	case IPPROTO_IPV6 << 16 | IPV6_PKTINFO:
		memcpy(&info6, data, sizeof(info6));
		name_source(AF_INET6, &info6.ipi6_addr, info6.ipi6_ifindex);
		return -1;
	case IPPROTO_IP << 16 | IP_TOS:
	case IPPROTO_IPV6 << 16 | IPV6_TCLASS:
		name("class %d", *(const int *)data);
		return -1;
	case IPPROTO_IP << 16 | IP_TTL:
	case IPPROTO_IPV6 << 16 | IPV6_HOPLIMIT:
		name("hops %d", *(const int *)data);
		return -1;
	case SOL_UDP << 16 | UDP_SEGMENT:
		memcpy(&segment, data, sizeof(segment));
		name("segment %u", segment);
		return segment;
	default:
		fail_msg("a control message of %d/%d", c->cmsg_level, c->cmsg_type);
		return -1;
	}
}

ssize_t __wrap_sys_sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct msghdr *m = (struct msghdr *)message;
	int option = 0, segment = -1;
	socklen_t size = sizeof(option);

	(void)flags;
	sends++;
	named[0] = '\0';
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		int it = name_control(c);

		segment = it >= 0 ? it : segment;
	}
	assert_int_equal(getsockopt(fd, SOL_UDP, UDP_SEGMENT, &option, &size), 0);
	segment_of = (uint16_t)option;
	if (refuses_segment && (segment >= 0 ? segment : option)) {
		errno = EIO;
		return -1;
	}
	return (ssize_t)m->msg_iov->iov_len;
}

/* ------------------------------------------------------------------ one socket */

static struct net_socket s;
static uint8_t bytes[4096];

/* A path between GIDs, as text. */
static struct net_path path_of(const char *source, const char *destination)
{
	struct net_path path = {.ifindex = 1};

	assert_int_equal(inet_pton(AF_INET6, source, path.ip.source), 1);
	assert_int_equal(inet_pton(AF_INET6, destination, path.ip.destination), 1);
	path.ip.destination_port = 4791;
	return path;
}

static struct net_path begin(const char *source, const char *destination)
{
	struct net_path path = path_of(source, destination);

	refuses_segment = false;
	sends = 0;
	assert_int_equal(net_socket_open(&s, &path, 0, 0), 0);
	assert_int_not_equal(s.port, 0);
	return path;
}

/* Expects what a send of `size` bytes in segments names. */
static void names(const struct net_path *path, uint32_t size, uint32_t segment, const char *what)
{
	assert_int_equal(net_socket_send(&s, path, bytes, size, segment), 0);
	assert_string_equal(named, what);
}

static void source_is_bound(void **state)
{
	struct net_path path = begin("::ffff:127.0.0.1", "::ffff:127.0.0.1");
	struct net_path other = path_of("::ffff:127.0.0.2", "::ffff:127.0.0.1");

	(void)state;
	names(&path, 24, 0, "");
	names(&other, 24, 0, "from 127.0.0.2");
	names(&path, 24, 0, "");
	net_socket_close(&s);
}

static void ipv6_source_is_bound(void **state)
{
	struct net_path path = path_of("::1", "::1");

	(void)state;
	if (net_socket_open(&s, &path, 0, 0))
		skip(); /* no IPv6 here */
	struct net_path other = path_of("fd00::1", "::1");

	names(&path, 24, 0, "");
	names(&other, 24, 0, "from fd00::1");
	net_socket_close(&s);
}

/* An address that isn't the host's, or not yet: the socket is bound to none. */
static void foreign_source_is_named(void **state)
{
	struct net_path path = begin("::ffff:192.0.2.77", "::ffff:127.0.0.1");

	(void)state;
	names(&path, 24, 0, "from 192.0.2.77");
	net_socket_close(&s);
}

/* An interface is named with the source, whatever the socket is bound to. */
static void interface_is_named(void **state)
{
	struct net_path path = begin("::ffff:127.0.0.1", "::ffff:127.0.0.1");
	struct net_path group = path_of("::ffff:127.0.0.1", "::ffff:224.1.2.3");

	(void)state;
	names(&group, 24, 0, "from 127.0.0.1, interface 1");
	names(&path, 24, 0, "");
	net_socket_close(&s);
	path = begin("::ffff:127.0.0.1", "::ffff:224.1.2.3"); /* opened for a group */
	names(&path, 24, 0, "from 127.0.0.1, interface 1");
	net_socket_close(&s);
}

static void attributes_are_named(void **state)
{
	struct net_path path = begin("::ffff:127.0.0.1", "::ffff:127.0.0.1");

	(void)state;
	path.traffic_class = 8;
	path.hop_limit = 7;
	names(&path, 24, 0, "class 8, hops 7");
	net_socket_close(&s);
}

/* ------------------------------------------------------------------ segments */

/* A segment that sends in a row have named becomes the socket's. */
static void learns(const struct net_path *path, uint32_t size, uint32_t segment)
{
	char text[32];

	snprintf(text, sizeof(text), "segment %u", segment);
	for (unsigned int i = 0; i < NET_SOCKET_ALIKE; i++)
		names(path, size, segment, text);
	names(path, size, segment, "");
}

static void segment_is_learnt(void **state)
{
	struct net_path path = begin("::ffff:127.0.0.1", "::ffff:127.0.0.1");

	(void)state;
	for (unsigned int i = 0; i < 2 * NET_SOCKET_ALIKE; i++) {
		names(&path, 44, 24, "segment 24"); /* not so many of one size in a row */
		if (i % (NET_SOCKET_ALIKE - 1) == 0)
			names(&path, 40, 20, "segment 20");
		names(&path, 20, 0, "");
	}
	learns(&path, 4000, 1000);
	assert_int_equal(segment_of, 1000);
	names(&path, 900, 0, ""); /* one packet that isn't cut */
	names(&path, 1000, 0, "");
	names(&path, 1001, 0, "segment 0"); /* one that would be */
	names(&path, 44, 24, "segment 24");
	names(&path, 3500, 1000, "");
	names(&path, 1001, 0, "segment 0");
	learns(&path, 44, 24);
	learns(&path, 100, 0);
	assert_int_equal(segment_of, 0);
	net_socket_close(&s);
}

/* The socket has a segment, and then sends on a path whose device can't cut. */
static void device_cannot_cut(void **state)
{
	struct net_path path = begin("::ffff:127.0.0.1", "::ffff:127.0.0.1");

	(void)state;
	learns(&path, 44, 24);
	refuses_segment = true;
	assert_int_equal(net_socket_send(&s, &path, bytes, 44, 24), EIO);
	sends = 0;
	names(&path, 24, 0, "");
	assert_int_equal(sends, 2);
	assert_int_equal(segment_of, 0);
	names(&path, 24, 0, "");
	assert_int_equal(sends, 3);
	refuses_segment = false; /* another path */
	for (unsigned int i = 0; i < 3 * NET_SOCKET_ALIKE; i++)
		names(&path, 44, 24, "segment 24");
	net_socket_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(source_is_bound),	   cmocka_unit_test(ipv6_source_is_bound),
		cmocka_unit_test(foreign_source_is_named), cmocka_unit_test(interface_is_named),
		cmocka_unit_test(attributes_are_named),	   cmocka_unit_test(segment_is_learnt),
		cmocka_unit_test(device_cannot_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
