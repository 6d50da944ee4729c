/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets in. See receiver.h. */
#include "net/receiver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/sys.h"
#include "wire/flow.h"

enum {
	DATAGRAMS = 4, /* per system call: a burst or two; the rest stays in the kernel */
	STREAM = 4,    /* so many consecutive receives with packets: more are queued */
	BULK = 8,      /* so many packets at once: more are likely to follow */
	DATAGRAM_MAX = 65536,
	CONTROL = 256,
};

int net_receiver_init(struct net_receiver *receiver, int fd)
{
	memset(receiver, 0, sizeof(*receiver));
	receiver->fd = fd;
	receiver->buffers = mmap(NULL, (size_t)DATAGRAMS * DATAGRAM_MAX, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (receiver->buffers == MAP_FAILED) {
		receiver->buffers = NULL;
		return -errno;
	}
	return 0;
}

void net_receiver_fini(struct net_receiver *receiver)
{
	if (receiver->buffers)
		munmap(receiver->buffers, (size_t)DATAGRAMS * DATAGRAM_MAX);
}

/* ------------------------------------------------------------------ beside a datagram */

/* A socket for IPv4 only has no IPv6 options. */
void net_receiver_class(int fd, bool asked)
{
	int value = asked;

	if (setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &value, sizeof(value)) < 0)
		log_debug("IP_RECVTOS: %s", strerror(errno));
	setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &value, sizeof(value));
}

static void gid_map_ipv4(uint8_t *gid, const struct in_addr *address)
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, address, 4);
}

static void read_ipv4(struct net_from *from, const struct cmsghdr *c)
{
	struct in_pktinfo info;

	if (c->cmsg_type == IP_PKTINFO) {
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		gid_map_ipv4(from->ip.destination, &info.ipi_addr);
		from->ifindex = (uint32_t)info.ipi_ifindex;
	} else if (c->cmsg_type == IP_TOS) {
		from->traffic_class = *CMSG_DATA(c);
	} else if (c->cmsg_type == IP_TTL) {
		from->hop_limit = *CMSG_DATA(c);
	}
}

static void read_ipv6(struct net_from *from, const struct cmsghdr *c)
{
	struct in6_pktinfo info;
	int value;

	if (c->cmsg_type == IPV6_PKTINFO) {
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		memcpy(from->ip.destination, &info.ipi6_addr, 16);
		from->ifindex = info.ipi6_ifindex;
		return;
	}
	memcpy(&value, CMSG_DATA(c), sizeof(value));
	if (c->cmsg_type == IPV6_TCLASS)
		from->traffic_class = (uint8_t)value;
	else if (c->cmsg_type == IPV6_HOPLIMIT)
		from->hop_limit = (uint8_t)value;
}

/* Bytes of each packet in the datagram but the last: `size` unless there are several packets. */
static uint32_t read_control(struct net_from *from, struct msghdr *m, uint32_t size)
{
	int segment = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == IPPROTO_IP)
			read_ipv4(from, c);
		else if (c->cmsg_level == IPPROTO_IPV6)
			read_ipv6(from, c);
		else if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO)
			memcpy(&segment, CMSG_DATA(c), sizeof(segment));
	}
	return segment > 0 ? (uint32_t)segment : size;
}

/* ------------------------------------------------------------------ packets */

static uint32_t stored_icrc(const uint8_t *packet, uint32_t size)
{
	const uint8_t *at = packet + size - WIRE_ICRC;

	return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

/*
 * A burst of this library has identifications 0, 1, 2, ..., and probably arrives as it was sent, so
 * that one is tried first. Any other identification is found from the ICRC, see icrc.h.
 */
static bool icrc_right(struct net_receiver *receiver, const struct net_from *from,
		       const uint8_t *packet, uint32_t size, uint32_t place, uint16_t *id)
{
	const struct icrc_path *path = &from->ip;
	struct net_begun *begun = &receiver->begun;

	*id = (uint16_t)place;
	if (place && icrc_packet(net_begun(begun, path, size, place), packet, size) ==
			     stored_icrc(packet, size))
		return true;
	return icrc_matches_begun(path, net_begun(begun, path, size, 0), packet, size, id);
}

/* Shows a packet to the tap, once it is known whether it was dropped. */
static void receiver_show_packet(struct net_receiver *receiver, const struct net_from *from,
				 const struct net_packet *p)
{
	const struct net_tap *tap = net_tap_at(&receiver->tap);

	if (likely(!tap))
		return;
	const struct net_seen seen = {
		.path = &from->ip,
		.time_ns = net_tap_time(tap),
		.ip = {.id = p->id,
		       .traffic_class = from->traffic_class,
		       .hop_limit = from->hop_limit},
		.bytes = p->bytes,
		.size = p->size,
		.dropped = p->dropped,
	};

	net_tap_call(tap, &seen);
}

/* Decodes and checks a packet. Returns NULL, or why it is dropped. */
static const char *receiver_judge(struct net_receiver *receiver, const struct net_from *from,
				  struct net_packet *p, uint32_t place)
{
	enum packet_error error = packet_decode(p->bytes, p->size, &p->packet);

	receiver->counters.packets++;
	if (unlikely(error != PACKET_OK)) {
		receiver->counters.malformed[error]++;
		return packet_error_name(error);
	}
	if (likely(icrc_right(receiver, from, p->bytes, p->size, place, &p->id)))
		return NULL;
	p->packet.icrc_doubled = p->packet.opcode == (PACKET_RC | OP_FLUSH) &&
				 icrc_matches_doubled(&from->ip, p->bytes, p->size, &p->id);
	if (p->packet.icrc_doubled)
		return NULL;
	receiver->counters.bad_icrc++;
	return "its ICRC is wrong";
}

static void receiver_hand_on(struct net_receiver *receiver, struct net_packet *run,
			     unsigned int count, const struct net_from *from, net_handler *handler,
			     void *arg)
{
	if (count)
		handler(arg, run, count, from);
	for (unsigned int i = 0; i < count; i++)
		receiver_show_packet(receiver, from, &run[i]);
}

/* Takes a datagram's packets, of `segment` bytes but for the last one. Returns their number. */
static unsigned int receiver_take_packets(struct net_receiver *receiver,
					  const struct net_from *from, const uint8_t *bytes,
					  uint32_t size, uint32_t segment, net_handler *handler,
					  void *arg)
{
	struct net_packet run[NET_RUN];
	unsigned int n = 0, count = 0;
	uint32_t begin = 0;

	for (uint32_t at = 0; at < size; at += segment, n++) {
		struct net_packet *p = &run[count];

		p->bytes = bytes + at;
		p->size = size - at < segment ? size - at : segment;
		p->id = 0;
		p->dropped = receiver_judge(receiver, from, p, n);
		bool bad = p->dropped;

		if (likely(!bad) && ++count < NET_RUN && at + 2 * segment <= begin + NET_RUN_BYTES)
			continue;
		receiver_hand_on(receiver, run, count, from, handler, arg);
		if (unlikely(bad))
			receiver_show_packet(receiver, from, p);
		count = 0;
		begin = at + segment;
	}
	receiver_hand_on(receiver, run, count, from, handler, arg);
	return n;
}

static unsigned int receiver_take_batch(struct net_receiver *receiver, const uint8_t *bytes,
					struct mmsghdr *m, net_handler *handler, void *arg)
{
	struct net_from from = {.ip.destination_port = WIRE_PORT};

	if (m->msg_hdr.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		receiver->counters.malformed[PACKET_TOO_LONG]++;
		return 1;
	}
	flow_gid(m->msg_hdr.msg_name, from.ip.source, &from.ip.source_port);
	uint32_t segment = read_control(&from, &m->msg_hdr, m->msg_len);
	unsigned int n =
		receiver_take_packets(receiver, &from, bytes, m->msg_len, segment, handler, arg);

	receiver->counters.bytes += m->msg_len;
	return n ? n : 1; /* an empty datagram counts as one packet */
}

static void receiver_publish_counters(const struct net_receiver *receiver)
{
	const struct net_received *c = &receiver->counters;
	_Atomic uint64_t *to = receiver->published;

	if (!to)
		return;
	atomic_store_explicit(&to[NET_CAME_PACKETS], c->packets, memory_order_relaxed);
	atomic_store_explicit(&to[NET_CAME_BYTES], c->bytes, memory_order_relaxed);
	atomic_store_explicit(&to[NET_CAME_BAD_ICRC], c->bad_icrc, memory_order_relaxed);
	for (int i = PACKET_OK + 1; i < PACKET_ERRORS; i++)
		atomic_store_explicit(&to[NET_CAME_MALFORMED + i - 1], c->malformed[i],
				      memory_order_relaxed);
}

/* Room for a datagram and its control messages. */
struct place {
	struct sockaddr_storage name;
	struct iovec bytes;
	_Alignas(struct cmsghdr) uint8_t control[CONTROL];
};

static void place_message(const struct net_receiver *receiver, struct place *at, unsigned int i,
			  struct msghdr *m)
{
	at->bytes = (struct iovec){receiver->buffers + (size_t)i * DATAGRAM_MAX, DATAGRAM_MAX};
	*m = (struct msghdr){.msg_name = &at->name,
			     .msg_namelen = sizeof(at->name),
			     .msg_iov = &at->bytes,
			     .msg_iovlen = 1,
			     .msg_control = at->control,
			     .msg_controllen = CONTROL};
}

/* Receives datagrams: their number, or -1. Asks for several where the last receive found several
 * or many packets, or each of the last few found some; otherwise there is usually none or one, and
 * to look for a second one takes 100 ns before the first one is handled. A message and the
 * acknowledgement that travels with it are one datagram. */
static int receiver_recvmmsg(const struct net_receiver *receiver, struct mmsghdr *m,
			     struct place *at)
{
	if (!receiver->many) {
		place_message(receiver, at, 0, &m->msg_hdr);
		ssize_t n = sys_recvmsg(receiver->fd, &m->msg_hdr, MSG_DONTWAIT);

		m->msg_len = n > 0 ? (unsigned int)n : 0;
		return n < 0 ? -1 : 1;
	}
	for (unsigned int i = 0; i < DATAGRAMS; i++)
		place_message(receiver, &at[i], i, &m[i].msg_hdr);
	return sys_recvmmsg(receiver->fd, m, DATAGRAMS, MSG_DONTWAIT, NULL);
}

unsigned int net_receive(struct net_receiver *receiver, net_handler *handler, void *arg)
{
	struct mmsghdr m[DATAGRAMS];
	struct place at[DATAGRAMS];
	unsigned int packets = 0;
	int n = receiver_recvmmsg(receiver, m, at);

	if (n < 0) {
		receiver->many = false;
		receiver->found = 0;
		if (unlikely(errno != EAGAIN && errno != EINTR))
			log_debug("wire: receiving: %s", strerror(errno));
		return 0;
	}
	for (int i = 0; i < n; i++)
		packets += receiver_take_batch(receiver, at[i].bytes.iov_base, &m[i], handler, arg);
	receiver->found += receiver->found < STREAM;
	receiver->many = n > 1 || packets >= BULK || receiver->found == STREAM;
	if (packets)
		receiver_publish_counters(receiver);
	return packets;
}
