/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The runs in which the receiver hands a datagram's packets on: each intact packet once, in order,
 * no run longer than it may be, and the tap sees every packet in order, dropped or not. The test
 * replaces the kernel's part (recvmsg).
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/receiver.h"

enum { PACKETS_MAX = 64, PORT = 50000, DATAGRAM_MAX = 65536 };

static const struct icrc_path path = {
	.source = {[10] = 0xff, 0xff, 127, 0, 0, 1},
	.destination = {[10] = 0xff, 0xff, 127, 0, 0, 2},
	.source_port = PORT,
	.destination_port = WIRE_PORT,
};

/* ------------------------------------------------------------------ the kernel, played */

static uint8_t datagram[DATAGRAM_MAX];
static uint32_t datagram_size, packet_size;

static void *control_put(struct msghdr *m, size_t *used, int level, int type, size_t size)
{
	struct cmsghdr *c = (struct cmsghdr *)((uint8_t *)m->msg_control + *used);

	*used += CMSG_SPACE(size);
	assert_true(*used <= m->msg_controllen);
	*c = (struct cmsghdr){CMSG_LEN(size), level, type};
	return CMSG_DATA(c);
}

ssize_t __wrap_sys_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_sys_recvmsg(int fd, struct msghdr *m, int flags)
{
	const struct sockaddr_in from = {.sin_family = AF_INET,
					 .sin_port = htons(PORT),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct in_pktinfo to = {.ipi_addr.s_addr = htonl(INADDR_LOOPBACK + 1)};
	const int segment = (int)packet_size;
	size_t used = 0;

	(void)fd, (void)flags;
	memcpy(m->msg_name, &from, sizeof(from));
	memcpy(m->msg_iov->iov_base, datagram, datagram_size);
	memcpy(control_put(m, &used, IPPROTO_IP, IP_PKTINFO, sizeof(to)), &to, sizeof(to));
	memcpy(control_put(m, &used, SOL_UDP, UDP_GRO, sizeof(int)), &segment, sizeof(int));
	m->msg_controllen = used;
	m->msg_flags = 0;
	return (ssize_t)datagram_size;
}

/* ------------------------------------------------------------------ datagrams */

static uint8_t *packet_at(unsigned int i)
{
	return datagram + (size_t)i * packet_size;
}

/* A datagram of so many packets, whose PSNs are 0, 1, 2, ... */
static void datagram_make(unsigned int packets, uint32_t payload)
{
	struct packet p = {
		.opcode = PACKET_RC | OP_SEND_MIDDLE, .pkey = WIRE_PKEY, .length = payload};

	packet_size = WIRE_BTH + payload + WIRE_ICRC;
	datagram_size = packets * packet_size;
	assert_true(datagram_size <= DATAGRAM_MAX);
	memset(datagram, 7, datagram_size);
	for (p.psn = 0; p.psn < packets; p.psn++) {
		packet_encode(&p, packet_at(p.psn));
		icrc_write(icrc_begin(&path, packet_size, (uint16_t)p.psn), packet_at(p.psn),
			   packet_size);
	}
}

/* ------------------------------------------------------------------ what comes out */

static uint32_t handed[PACKETS_MAX], seen[PACKETS_MAX];
static const char *why[PACKETS_MAX];
static unsigned int handed_count, seen_count, runs;
static const char odd[] = "odd";

static void take_run(void *arg, struct net_packet *run, unsigned int count,
		     const struct net_from *from)
{
	uint32_t bytes = 0;

	assert_ptr_equal(arg, handed);
	assert_memory_equal(from->ip.destination, path.destination, 16);
	assert_in_range(count, 1, NET_RUN);
	for (unsigned int i = 0; i < count; i++) {
		assert_null(run[i].dropped);
		assert_int_equal(run[i].packet.payload[0], 7);
		assert_int_equal(run[i].id, run[i].packet.psn);
		handed[handed_count++] = run[i].packet.psn;
		bytes += run[i].size;
		if (run[i].packet.psn % 2)
			run[i].dropped = odd;
	}
	assert_true(count == 1 || bytes <= NET_RUN_BYTES);
	runs++;
}

static void see(const struct net_tap *tap, const struct net_seen *s)
{
	(void)tap;
	assert_int_equal(s->size, packet_size);
	why[seen_count] = s->dropped;
	seen[seen_count++] = s->bytes[9] << 16 | s->bytes[10] << 8 | s->bytes[11];
}

static unsigned int receive(struct net_receiver *receiver)
{
	static const struct net_tap tap = {.seen = see};

	handed_count = seen_count = runs = 0;
	assert_int_equal(net_receiver_init(receiver, -1), 0);
	receiver->tap = &tap;
	unsigned int n = net_receive(receiver, take_run, handed);

	net_receiver_fini(receiver);
	return n;
}

/* ------------------------------------------------------------------ tests */

static void all_come(unsigned int packets, uint32_t payload)
{
	struct net_receiver receiver;

	datagram_make(packets, payload);
	assert_int_equal(receive(&receiver), packets);
	assert_int_equal(handed_count, packets);
	assert_int_equal(seen_count, packets);
	for (unsigned int i = 0; i < packets; i++) {
		assert_int_equal(handed[i], i);
		assert_int_equal(seen[i], i);
		assert_ptr_equal(why[i], i % 2 ? odd : NULL);
	}
}

static void short_runs(void **state)
{
	(void)state;
	for (unsigned int packets = 1; packets <= PACKETS_MAX; packets++) {
		all_come(packets, 16);
		assert_int_equal(runs, (packets + NET_RUN - 1) / NET_RUN);
	}
}

static void long_packets(void **state)
{
	(void)state;
	for (unsigned int packets = 1; packets <= 15; packets++) {
		all_come(packets, 4096);
		assert_true(runs < packets || packets == 1);
	}
}

/* Two packets of each place are spoilt: one has another version, the other a wrong ICRC. */
static void bad_packets(void **state)
{
	struct net_receiver receiver;

	(void)state;
	for (unsigned int bad = 0; bad < 39; bad++) {
		datagram_make(40, 16);
		packet_at(bad)[1] |= 1;
		packet_at(bad + 1)[20] ^= 1;
		assert_int_equal(receive(&receiver), 40);
		assert_int_equal(handed_count, 38);
		assert_int_equal(seen_count, 40);
		for (unsigned int i = 0; i < 38; i++)
			assert_int_equal(handed[i], i < bad ? i : i + 2);
		for (unsigned int i = 0; i < 40; i++) {
			assert_int_equal(seen[i], i);
			if (i == bad || i == bad + 1)
				assert_true(why[i] && why[i] != odd);
			else
				assert_ptr_equal(why[i], i % 2 ? odd : NULL);
		}
		assert_int_equal(receiver.counters.bad_icrc, 1);
		assert_int_equal(receiver.counters.malformed[PACKET_BAD_VERSION], 1);
	}
}

static bool came_doubled;

static void take_flush(void *arg, struct net_packet *run, unsigned int count,
		       const struct net_from *from)
{
	(void)arg, (void)from;
	assert_int_equal(count, 1);
	assert_int_equal(run[0].id, 0);
	came_doubled = run[0].packet.icrc_doubled;
	handed_count++;
}

/* Soft-RoCE's ICRC is taken for FLUSH of RC only, and known as such. */
static void doubled_icrc(void **state)
{
	static const uint8_t opcodes[] = {PACKET_RC | OP_FLUSH, PACKET_RC | OP_FLUSH,
					  PACKET_RC | OP_READ_REQUEST, PACKET_XRC | OP_FLUSH};
	struct net_receiver receiver;

	(void)state;
	for (unsigned int i = 0; i < 4; i++) {
		struct packet p = {.opcode = opcodes[i], .pkey = WIRE_PKEY};

		packet_size = datagram_size = packet_encode(&p, datagram) + WIRE_ICRC;
		icrc_write(icrc_begin(&path, packet_size, 0), datagram, packet_size);
		if (i)
			icrc_double(datagram, packet_size);
		handed_count = 0;
		assert_int_equal(net_receiver_init(&receiver, -1), 0);
		net_receive(&receiver, take_flush, NULL);
		net_receiver_fini(&receiver);
		assert_int_equal(handed_count, i < 2);
		assert_true(i >= 2 || came_doubled == (i == 1));
		assert_int_equal(receiver.counters.bad_icrc, i >= 2);
	}
}

static int option(int fd, int level, int name)
{
	int value = -1;
	socklen_t size = sizeof(value);

	assert_int_equal(getsockopt(fd, level, name, &value, &size), 0);
	return value;
}

/* Of a socket for both protocols, both protocols' options. */
static void the_class_is_asked_for_when_it_is_needed(void **state)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	if (fd < 0)
		skip(); /* no IPv6 */
	for (int asked = 1; asked >= 0; asked--) {
		net_receiver_class(fd, asked);
		assert_int_equal(option(fd, IPPROTO_IP, IP_RECVTOS), asked);
		assert_int_equal(option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS), asked);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_runs),
		cmocka_unit_test(long_packets),
		cmocka_unit_test(bad_packets),
		cmocka_unit_test(doubled_icrc),
		cmocka_unit_test(the_class_is_asked_for_when_it_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
