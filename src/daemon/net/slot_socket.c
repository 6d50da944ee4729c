/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See slot_socket.h. No state.
 *
 * A process that has such a socket can set its options, so nothing here relies on them later. The
 * filter can't be removed (SO_LOCK_FILTER): whatever happens to the group's order, no process reads
 * another's packets.
 */
#include "daemon/net/slot_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/limits.h"
#include "wire/packet.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29 /* Linux 4.20 */
#endif
#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

/* PACKET_ROOM: what the kernel counts for the shortest packet, at least. It doubles ROOM_BYTES. */
enum { ROOM_BYTES = 8 << 20, DRAIN_MAX = 65536, PACKET_ROOM = 768 };
enum { DRAINED_MAX = 2 * ROOM_BYTES / PACKET_ROOM };

/* Offset of the word with the destination QPN: 4 bytes into the base transport header. */
enum { QPN_WORD = 4, UDP_HEADER = 8 };

/* A probe's opcode isn't used by any transport, so no process takes it for a message. */
enum { PROBE_OPCODE = 0xff, PROBE_WORDS = 5, PROBE_BYTES = 4 * PROBE_WORDS };

enum { LOOPBACK_IFINDEX = 1 }; /* in every network namespace */

static int slot_socket_set_option(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) < 0 ? -errno : 0;
}

/* ------------------------------------------------------------------ making */

static int set_options(int fd, bool ipv6)
{
	int err = slot_socket_set_option(fd, IPPROTO_UDP, UDP_GRO, 1);

	/* Only packets of the groups that this socket has joined (udp_group.h), not of those of any
	 * socket. */
	if (!err)
		err = slot_socket_set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	if (!err && ipv6)
		err = slot_socket_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
	/* A socket for both protocols gets both protocols' options. Packets must not be fragmented:
	 * then the identification of an IPv4 packet is 0, and the ICRC covers it. */
	if (!err)
		err = slot_socket_set_option(fd, IPPROTO_IP, IP_RECVTOS, 1);
	if (!err)
		err = slot_socket_set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	/* IPv6's tells an IPv4 packet's address, too, so one is enough: each takes a receiver 70 ns
	 * for each datagram. */
	if (!err)
		err = ipv6 ? slot_socket_set_option(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
			   : slot_socket_set_option(fd, IPPROTO_IP, IP_PKTINFO, 1);
	if (!err && ipv6)
		err = slot_socket_set_option(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
	/* RoCEv2 senders omit the UDP checksum, the kernel's Soft-RoCE among them, because the ICRC
	 * is stronger. Over IPv6 a socket must ask for such datagrams. */
	if (!err && ipv6)
		err = slot_socket_set_option(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
	if (!err && ipv6)
		err = slot_socket_set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	return err;
}

int slot_socket_make(bool ipv6)
{
	int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			IPPROTO_UDP);

	if (fd < 0)
		return -errno;
	int err = ipv6 ? slot_socket_set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) : 0;

	if (!err)
		err = set_options(fd, ipv6);
	if (err) {
		close(fd);
		return err;
	}
	slot_socket_room(fd, false);
	return fd;
}

int slot_socket_share(int fd, bool on)
{
	return slot_socket_set_option(fd, SOL_SOCKET, SO_REUSEPORT, on);
}

int slot_socket_bind(int fd, bool ipv6, bool shared)
{
	const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(WIRE_PORT)};
	const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(WIRE_PORT)};
	int err = slot_socket_share(fd, shared);

	if (err)
		return err;
	err = ipv6 ? bind(fd, (const struct sockaddr *)&six, sizeof(six))
		   : bind(fd, (const struct sockaddr *)&four, sizeof(four));
	return err < 0 ? -errno : 0;
}

int slot_socket_guard(void)
{
	int fd = slot_socket_make(false);

	if (fd < 0)
		return fd;
	int err = slot_socket_set_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, INT32_MAX);

	if (!err)
		err = slot_socket_bind(fd, false, true);
	if (!err)
		err = slot_socket_share(fd, false);
	if (err)
		close(fd);
	return err ? err : fd;
}

/* ------------------------------------------------------------------ filters */

int slot_socket_steer(int fd)
{
	/* The program sees the packet from its payload on. For a packet that is too short the
	 * result is 0, the daemon's place. */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, QPN_WORD),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, LIMIT_QP_BITS),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, LIMIT_SLOTS - 1),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) < 0
		       ? -errno
		       : 0;
}

/*
 * The filter sees the UDP header, too. A packet for a group passes, because each socket that has
 * joined gets it, whatever its place.
 *
 * A packet that this host has sent comes by the loopback interface, whatever the addresses; one for
 * a group as a copy that is marked. Its source address doesn't show that: IPv6 lets every program
 * send from the address of another host (IPV6_FREEBIND). Of packets that were sent as one
 * (UDP_SEGMENT) the filter sees the first only; so a probe has its own length, too.
 */
int slot_socket_filter(int fd, uint32_t slot, bool loops)
{
	enum { OWN_PART = 9 };
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_IFINDEX),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LOOPBACK_IFINDEX, 2, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_LOOPBACK, 4, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UDP_HEADER + PROBE_BYTES, 0, 2),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, UDP_HEADER),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROBE_OPCODE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, 0), /* the last of OWN_PART */
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, UDP_HEADER + QPN_WORD),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, WIRE_MULTICAST_QPN),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WIRE_MULTICAST_QPN, 2, 0),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, LIMIT_QP_BITS),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	const size_t skipped = loops ? OWN_PART : 0;
	const struct sock_fprog program = {
		(unsigned short)(sizeof(code) / sizeof(code[0]) - skipped), code + skipped};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0 ? -errno
											   : 0;
}

int slot_socket_lock(int fd)
{
	return slot_socket_set_option(fd, SOL_SOCKET, SO_LOCK_FILTER, 1);
}

/* Binding it to an interface (one that doesn't exist) removes the socket from the group. A socket
 * that its process has bound to an interface left the group then. */
void slot_socket_retire(int fd)
{
	slot_socket_set_option(fd, SOL_SOCKET, SO_BINDTOIFINDEX, INT32_MAX);
}

/* ------------------------------------------------------------------ handing out */

void slot_socket_room(int fd, bool much)
{
	int bytes = much ? ROOM_BYTES : 1; /* the kernel rounds up */

	/* Without the privilege the size is limited to net.core.{r,w}mem_max. */
	if (slot_socket_set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes))
		slot_socket_set_option(fd, SOL_SOCKET, SO_RCVBUF, bytes);
	if (much && slot_socket_set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, bytes))
		slot_socket_set_option(fd, SOL_SOCKET, SO_SNDBUF, bytes);
}

/* No more than the socket can have room for: what comes meanwhile, from a program that sends
 * without end, must not hold up the daemon. */
void slot_socket_drain(int fd)
{
	enum { AT_ONCE = 64, CALLS = DRAINED_MAX / AT_ONCE };
	struct mmsghdr packets[AT_ONCE] = {0};

	for (int i = 0; i < CALLS; i++) {
		int n = recvmmsg(fd, packets, AT_ONCE, MSG_DONTWAIT | MSG_TRUNC, NULL);

		if (n < 0 && (errno == EAGAIN || errno == EBADF))
			return;
	}
}

void slot_socket_reset(int fd)
{
	socklen_t size = sizeof(int);
	int domain = 0;

	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
	slot_socket_share(fd, true);
	set_options(fd, domain == AF_INET6);
	slot_socket_set_option(fd, SOL_SOCKET, SO_BROADCAST, 0);
	slot_socket_set_option(fd, SOL_SOCKET, SO_TIMESTAMPNS, 0);
	slot_socket_set_option(fd, SOL_SOCKET, SO_BUSY_POLL, 0);
	slot_socket_set_option(fd, SOL_SOCKET, SO_PEEK_OFF, -1);
	slot_socket_set_option(fd, IPPROTO_UDP, UDP_SEGMENT, 0);
	slot_socket_set_option(fd, IPPROTO_UDP, UDP_CORK, 0);
	slot_socket_set_option(fd, IPPROTO_IP, IP_TOS, 0);
	slot_socket_set_option(fd, IPPROTO_IP, IP_RECVERR, 0);
	if (domain == AF_INET6)
		slot_socket_set_option(fd, IPPROTO_IPV6, IPV6_RECVERR, 0);
}

/* Loopback usually delivers before send() returns; on a busy processor a kernel thread delivers a
 * little later. False: nothing arrives. */
static bool slot_socket_wait_packet(int fd, uint64_t until)
{
	uint64_t now = clock_ns();
	struct pollfd watch = {.fd = fd, .events = POLLIN};

	return now < until && poll(&watch, 1, (int)((until - now) / 1000000) + 1) != 0;
}

int slot_socket_probe(int from, int fd, uint32_t slot, unsigned int patience_ms)
{
	const struct sockaddr_in four = {.sin_family = AF_INET,
					 .sin_port = htons(WIRE_PORT),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6,
				   .sin6_port = htons(WIRE_PORT),
				   .sin6_addr.s6_addr = {[10] = 0xff, 0xff, 127, 0, 0, 1}};
	/* With random bytes by which the packet is recognized. */
	uint32_t sent[PROBE_WORDS] = {htonl((uint32_t)PROBE_OPCODE << 24 | 0xffff),
				      htonl(slot << LIMIT_QP_BITS)};
	uint32_t got[PROBE_WORDS];
	socklen_t size = sizeof(int);
	int domain = 0;
	ssize_t n;

	if (getrandom(&sent[3], 8, 0) != 8 ||
	    getsockopt(from, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0)
		return -EAGAIN;
	n = domain == AF_INET6
		    ? sendto(from, sent, sizeof(sent), MSG_DONTWAIT, (void *)&six, sizeof(six))
		    : sendto(from, sent, sizeof(sent), MSG_DONTWAIT, (void *)&four, sizeof(four));
	if (n != (ssize_t)sizeof(sent))
		return -EAGAIN;
	uint64_t until = clock_ns() + patience_ms * 1000000ull;

	/* Other packets may have arrived meanwhile. */
	for (int i = 0; i < DRAIN_MAX; i++) {
		n = recv(fd, got, sizeof(got), MSG_DONTWAIT | MSG_TRUNC);
		if (n < 0 && errno != EINTR && !slot_socket_wait_packet(fd, until))
			return -ENOENT;
		if (n == (ssize_t)sizeof(got) && !memcmp(sent, got, sizeof(got)))
			return 0;
	}
	return -ENOENT;
}

/* ------------------------------------------------------------------ sockets from processes, and
 * the port's owner */

static uint64_t namespace_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) < 0 ? 0 : cookie;
}

static bool is_here(int fd)
{
	int own = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool here = own >= 0 && namespace_of(own) == namespace_of(fd);

	if (own >= 0)
		close(own);
	return here;
}

static int slot_socket_get_option(int fd, int name)
{
	socklen_t size = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0 ? -1 : value;
}

bool slot_socket_is_retired(int fd)
{
	return slot_socket_get_option(fd, SO_BINDTOIFINDEX) == INT32_MAX;
}

bool slot_socket_is_udp(int fd, bool *ipv6)
{
	int domain = slot_socket_get_option(fd, SO_DOMAIN);

	*ipv6 = domain == AF_INET6;
	return slot_socket_get_option(fd, SO_TYPE) == SOCK_DGRAM &&
	       slot_socket_get_option(fd, SO_PROTOCOL) == IPPROTO_UDP &&
	       (domain == AF_INET || domain == AF_INET6) && is_here(fd);
}

uint16_t slot_socket_port(int fd, bool ipv6, bool *anywhere)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} name = {0};
	socklen_t size = sizeof(name);

	if (getsockname(fd, &name.any, &size) < 0)
		return 0;
	*anywhere = ipv6 ? IN6_IS_ADDR_UNSPECIFIED(&name.six.sin6_addr)
			 : name.four.sin_addr.s_addr == htonl(INADDR_ANY);
	return ntohs(ipv6 ? name.six.sin6_port : name.four.sin_port);
}

bool slot_socket_is_one(int fd, bool *ipv6)
{
	bool anywhere;

	return slot_socket_is_udp(fd, ipv6) && slot_socket_port(fd, *ipv6, &anywhere) == WIRE_PORT;
}

/* Lines of /proc/net/udp: "  sl: address:port address:port state queues timer retransmits uid
 * timeout inode ..." A socket of the kernel's own has no inode. */
static bool slot_socket_find_owner(const char *path, unsigned int *uid, unsigned long *inode)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file)) {
		unsigned int port;

		found = sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*s %*s %*s %*s %*s %u %*s %lu", &port,
			       uid, inode) == 3 &&
			port == WIRE_PORT;
	}
	if (file)
		fclose(file);
	return found;
}

void slot_socket_owner(char *text, size_t size)
{
	unsigned int uid = 0;
	unsigned long inode = 0;

	if (!slot_socket_find_owner("/proc/self/net/udp6", &uid, &inode) &&
	    !slot_socket_find_owner("/proc/self/net/udp", &uid, &inode))
		snprintf(text, size, "somebody");
	else if (!inode)
		snprintf(text, size, "the kernel (rdma_rxe)");
	else
		snprintf(text, size, "a program of user %u", uid);
}
