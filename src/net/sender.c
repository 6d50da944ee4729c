/* SPDX-License-Identifier: BSD-2-Clause */
/* Bursts of packets. See sender.h. */
#include "net/sender.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/sys.h"
#include "wire/flow.h"
#include "wire/ip.h"

enum {
	BURST_MAX = 65507 - 40, /* bytes in one send, for IPv6 too */
	SEGMENTS_MAX = 64,	/* packets in one send; newer kernels take 128 */
	BUFFER = (BURST_MAX + WIRE_PACKET_MAX + 4095) / 4096 * 4096, /* whole pages */
	SEND_BUFFER = 4 << 20,					     /* the system may allow less */
};

/* Equal packets to one destination; the last one may be shorter. */
struct burst {
	struct net_path *path;
	uint8_t *bytes;
	uint32_t size, segment, count;
};

/* A burst that found no room, or the rest of it. */
struct net_kept {
	struct net_kept *next;
	struct net_path path;
	struct burst burst; /* of that path; its bytes follow: */
	uint32_t size;
	uint8_t bytes[];
};

_Static_assert(NET_SOCKETS <= 32, "a bit for each in struct net_sender.blocked");

int net_sender_init(struct net_sender *sender)
{
	memset(sender, 0, sizeof(*sender));
	for (unsigned int i = 0; i < NET_SOCKETS; i++)
		sender->socket[i].fd = -1;
	sender->buffer = aligned_alloc(4096, BUFFER);
	return sender->buffer ? 0 : -ENOMEM;
}

void net_sender_leave(struct net_sender *sender)
{
	for (unsigned int i = 0; i < NET_SOCKETS; i++) {
		struct net_socket *s = &sender->socket[i];

		if (s->fd >= 0)
			sys_close(s->fd);
		s->fd = -1;
		/* Not freed: at the fork another thread of the parent may have been changing the
		 * list. */
		s->kept = NULL;
		s->kept_bytes = 0;
	}
	atomic_store_explicit(&sender->blocked, 0, memory_order_relaxed);
}

static void kept_free_first(struct net_socket *s)
{
	struct net_kept *kept = s->kept;

	s->kept = kept->next;
	s->kept_bytes -= kept->size;
	free(kept);
}

void net_sender_fini(struct net_sender *sender)
{
	for (unsigned int i = 0; i < NET_SOCKETS; i++)
		while (sender->socket[i].kept)
			kept_free_first(&sender->socket[i]);
	net_sender_leave(sender);
	free(sender->buffer);
}

/* ------------------------------------------------------------------ sockets */

static int sender_set_option(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

static int socket_options(int fd, bool ipv4, bool echo)
{
	/* No fragmentation: RoCE forbids it, and only with this option is the identification 0. */
	int err = ipv4 ? sender_set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
		       : sender_set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);

	if (!err && !ipv4)
		err = sender_set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (!err)
		err = ipv4 ? sender_set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, echo)
			   : sender_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, echo);
	if (err)
		return -errno;
	sender_set_option(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER);
	if (sender_set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, SEND_BUFFER) < 0 && errno != EPERM)
		log_debug("SO_SNDBUFFORCE: %s", strerror(errno));
	sender_set_option(fd, SOL_SOCKET, SO_RCVBUF, 0); /* nothing is received here */
	return 0;
}

/* Binds to `port`, or to any port if that is taken. */
static int bind_near(int fd, bool ipv4, uint16_t port)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const struct sockaddr *at = ipv4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t size = ipv4 ? sizeof(v4) : sizeof(v6);

	if (bind(fd, at, size) == 0)
		return 0;
	if (errno != EADDRINUSE || !port)
		return -errno;
	return bind_near(fd, ipv4, 0);
}

static int sender_bound_port(int fd, uint16_t *port)
{
	struct sockaddr_storage at = {0};
	socklen_t size = sizeof(at);
	uint8_t gid[16];

	if (getsockname(fd, (struct sockaddr *)&at, &size) < 0)
		return -errno;
	if (!flow_gid((struct sockaddr *)&at, gid, port))
		return -EAFNOSUPPORT;
	return 0;
}

/* QPs tend to have the same hop limit, and setting it with each burst takes time. Groups have a
 * limit of their own. */
static uint8_t usual_hop_limit(int fd, bool ipv4, uint8_t wanted)
{
	int level = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;

	if (wanted &&
	    sender_set_option(fd, level, ipv4 ? IP_TTL : IPV6_UNICAST_HOPS, wanted) == 0 &&
	    sender_set_option(fd, level, ipv4 ? IP_MULTICAST_TTL : IPV6_MULTICAST_HOPS, wanted) ==
		    0)
		return wanted;
	return 0;
}

static int socket_open(struct net_socket *s, bool ipv4, bool echo, uint16_t port, uint8_t hop_limit)
{
	int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	int err = socket_options(fd, ipv4, echo);

	if (!err)
		err = bind_near(fd, ipv4, port);
	if (!err)
		err = sender_bound_port(fd, &s->port);
	if (err) {
		sys_close(fd);
		return err;
	}
	s->hop_limit = usual_hop_limit(fd, ipv4, hop_limit);
	s->fd = fd;
	s->ipv4 = ipv4;
	return 0;
}

int net_path_bind(struct net_sender *sender, struct net_path *path, uint32_t flow_label,
		  uint32_t local_qpn, uint32_t remote_qpn)
{
	uint16_t port = flow_source_port(flow_label ? flow_label
						    : flow_label_of_qps(local_qpn, remote_qpn));
	bool ipv4 = ip_is_v4(path->ip.source);
	/* Half of the places are for each family. */
	unsigned int i = port % (NET_SOCKETS / 2) + (ipv4 ? 0 : NET_SOCKETS / 2);
	struct net_socket *s = &sender->socket[i];

	if (s->fd < 0) {
		int err = socket_open(s, ipv4, sender->echo, port, path->hop_limit);

		if (err)
			return err;
	}
	path->socket = (int16_t)i;
	path->ip.source_port = s->port;
	path->ip.destination_port = WIRE_PORT;
	return 0;
}

/* ------------------------------------------------------------------ sending */

/* The control messages of a send. */
struct control {
	_Alignas(struct cmsghdr)
		uint8_t bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 3 * CMSG_SPACE(sizeof(int))];
	struct msghdr message;
};

static void *control_add(struct control *c, int level, int type, size_t size)
{
	struct cmsghdr *at = (struct cmsghdr *)(c->bytes + c->message.msg_controllen);

	at->cmsg_level = level;
	at->cmsg_type = type;
	at->cmsg_len = CMSG_LEN(size);
	c->message.msg_controllen += CMSG_SPACE(size);
	return CMSG_DATA(at);
}

static void control_ipv4(struct control *c, const struct net_path *path, uint8_t hop_limit)
{
	struct in_pktinfo from = {0};

	memcpy(&from.ipi_spec_dst, path->ip.source + 12, 4);
	if (flow_is_multicast(path->ip.destination))
		from.ipi_ifindex = (int)path->ifindex;
	memcpy(control_add(c, IPPROTO_IP, IP_PKTINFO, sizeof(from)), &from, sizeof(from));
	if (path->traffic_class)
		*(int *)control_add(c, IPPROTO_IP, IP_TOS, sizeof(int)) = path->traffic_class;
	if (hop_limit)
		*(int *)control_add(c, IPPROTO_IP, IP_TTL, sizeof(int)) = hop_limit;
}

static void control_ipv6(struct control *c, const struct net_path *path, uint8_t hop_limit)
{
	struct in6_pktinfo from = {0};

	memcpy(&from.ipi6_addr, path->ip.source, 16);
	if (flow_is_link_local(path->ip.destination) || flow_is_multicast(path->ip.destination))
		from.ipi6_ifindex = path->ifindex;
	memcpy(control_add(c, IPPROTO_IPV6, IPV6_PKTINFO, sizeof(from)), &from, sizeof(from));
	if (path->traffic_class)
		*(int *)control_add(c, IPPROTO_IPV6, IPV6_TCLASS, sizeof(int)) =
			path->traffic_class;
	if (hop_limit)
		*(int *)control_add(c, IPPROTO_IPV6, IPV6_HOPLIMIT, sizeof(int)) = hop_limit;
}

/* The hop limit that a send must carry; 0: the socket's default is right. */
static uint8_t said_hop_limit(const struct net_socket *s, uint8_t wanted)
{
	if (!wanted && !s->hop_limit)
		return 0; /* the host's default, whatever it is */
	uint8_t hop_limit = ip_hop_limit(wanted);

	return hop_limit == s->hop_limit ? 0 : hop_limit;
}

/* Sends `size` bytes at `at` in one call, cut into segments of `segment` bytes unless that is 0.
 * Returns 0 or an errno; EAGAIN: the socket is full. */
static int send_bytes(struct net_sender *sender, const struct net_path *path, uint8_t *at,
		      uint32_t size, uint32_t segment)
{
	const struct net_socket *s = &sender->socket[path->socket];
	struct sockaddr_storage to;
	struct iovec bytes = {at, size};
	struct control c = {.message = {.msg_name = &to, .msg_iov = &bytes, .msg_iovlen = 1}};

	c.message.msg_control = c.bytes;
	c.message.msg_namelen = flow_address(path->ip.destination, path->ip.destination_port,
					     path->ifindex, s->ipv4 ? AF_INET : AF_INET6, &to);
	if (unlikely(!c.message.msg_namelen))
		return EHOSTUNREACH;
	uint8_t hop_limit = said_hop_limit(s, path->hop_limit);

	if (s->ipv4)
		control_ipv4(&c, path, hop_limit);
	else
		control_ipv6(&c, path, hop_limit);
	if (segment)
		*(uint16_t *)control_add(&c, SOL_UDP, UDP_SEGMENT, sizeof(uint16_t)) =
			(uint16_t)segment;
	return likely(sys_sendmsg(s->fd, &c.message, 0) >= 0) ? 0 : errno;
}

static bool sender_is_full(int err)
{
	return err == EAGAIN || err == ENOBUFS;
}

static const char *why_lost(int err, char *room, size_t size)
{
	if (sender_is_full(err))
		return "not sent: the socket's buffer is full";
	snprintf(room, size, "not sent: the host refuses it: %s", strerror(err));
	return room;
}

static uint32_t first_size(const struct burst *b)
{
	return b->size < b->segment ? b->size : b->segment;
}

/* Removes the first packet, which was sent or is lost. */
static void burst_skip(struct burst *b)
{
	uint32_t size = first_size(b);

	b->bytes += size;
	b->size -= size;
	b->count--;
}

/* Shows the packets of `b` to the tap. They were sent as segments of one send, or each by itself,
 * which decides their identifications. */
static void sender_show_packets(const struct net_tap *tap, uint64_t time_ns, struct burst b,
				int err)
{
	char why[128];

	for (uint16_t i = 0; unlikely(tap != NULL) && b.count; i++, burst_skip(&b)) {
		const struct net_seen seen = {
			.path = &b.path->ip,
			.time_ns = time_ns,
			.ip = {.id = ip_is_v4(b.path->ip.source) ? i : 0,
			       .traffic_class = b.path->traffic_class,
			       .hop_limit = ip_hop_limit(b.path->hop_limit)},
			.bytes = b.bytes,
			.size = first_size(&b),
			.out = true,
			.dropped = err ? why_lost(err, why, sizeof(why)) : NULL,
		};

		net_tap_call(tap, &seen);
	}
}

static void sender_note_loss(struct net_sender *sender, int err, uint32_t packets)
{
	if (sender_is_full(err)) {
		sender->counters.no_room += packets;
		return;
	}
	if (sender->counters.last_error != err)
		log_info("packets to another host can't be sent: %s", strerror(err));
	sender->counters.last_error = err;
	sender->counters.refused += packets;
}

/* Writes the ICRC of a packet whose size includes it. */
static void packet_seal(const struct net_path *path, uint32_t begun, uint8_t *packet, uint32_t size)
{
	icrc_write(begun, packet, size);
	if (unlikely(path->flush_doubled) && packet[0] == (PACKET_RC | OP_FLUSH))
		icrc_double(packet, size);
}

/* Where the kernel can't cut (no checksum offload, an old kernel): sends each packet by itself,
 * with a new ICRC, since its identification differs. Returns as burst_try(). */
static bool try_one_by_one(struct net_sender *sender, struct burst *b)
{
	const struct net_tap *tap = net_tap_at(&sender->tap);

	for (; b->count; burst_skip(b)) {
		struct burst one = {b->path, b->bytes, first_size(b), b->segment, 1};

		packet_seal(b->path, icrc_begin(&b->path->ip, one.size, 0), one.bytes, one.size);
		uint64_t now = net_tap_time(tap);
		int err = send_bytes(sender, b->path, one.bytes, one.size, 0);

		if (err == EAGAIN)
			return false;
		sender_show_packets(tap, now, one, err);
		if (err)
			sender_note_loss(sender, err, 1);
	}
	return true;
}

static bool cannot_cut(int err)
{
	return err == EIO || err == EINVAL || err == EMSGSIZE || err == EOPNOTSUPP;
}

static void time_call(struct net_calls *calls, uint64_t took)
{
	enum { OF = 4 };

	if (!calls->timed || took < calls->least)
		calls->least = took;
	if (++calls->timed < OF)
		return;
	calls->timed = 0;
	atomic_store_explicit(&calls->ns, calls->least < UINT32_MAX ? calls->least : UINT32_MAX,
			      memory_order_relaxed);
}

/* send_bytes() of the burst; a short packet's call is timed periodically. */
static int send_timed(struct net_sender *sender, const struct burst *b)
{
	enum { SHORT = 256, EVERY = 16 };
	bool timed = b->size <= SHORT && !(++sender->calls.count % EVERY);
	uint64_t began = unlikely(timed) ? clock_ns() : 0;
	int err = send_bytes(sender, b->path, b->bytes, b->size, b->count > 1 ? b->segment : 0);

	if (unlikely(timed))
		time_call(&sender->calls, clock_ns() - began);
	return err;
}

/* Sends the burst; packets that the host rejects are lost. False: the socket is full, and `b` is
 * what hasn't been sent. */
static bool burst_try(struct net_sender *sender, struct burst *b)
{
	if (b->count > 1 && b->path->one_by_one)
		return try_one_by_one(sender, b);
	const struct net_tap *tap = net_tap_at(&sender->tap);
	uint64_t now = net_tap_time(tap);
	int err = send_timed(sender, b);

	if (unlikely(err == EAGAIN))
		return false;
	if (unlikely(err && b->count > 1 && cannot_cut(err))) {
		b->path->one_by_one = true;
		return try_one_by_one(sender, b);
	}
	sender_show_packets(tap, now, *b, err);
	if (unlikely(err))
		sender_note_loss(sender, err, b->count);
	return true;
}

/* ------------------------------------------------------------------ full sockets */

static void socket_block(struct net_sender *sender, unsigned int i, bool blocked)
{
	uint32_t all = atomic_load_explicit(&sender->blocked, memory_order_relaxed);

	all = blocked ? all | 1u << i : all & ~(1u << i);
	atomic_store_explicit(&sender->blocked, all, memory_order_relaxed);
}

static struct net_kept *kept_new(const struct burst *b)
{
	struct net_kept *kept = malloc(sizeof(*kept) + b->size);

	if (!kept)
		return NULL;
	kept->next = NULL;
	kept->path = *b->path;
	kept->burst = *b;
	kept->burst.path = &kept->path;
	kept->burst.bytes = kept->bytes;
	kept->size = b->size;
	memcpy(kept->bytes, b->bytes, b->size);
	return kept;
}

/* Keeps the burst until net_resume(). False: it can't be kept. */
static bool socket_keep(struct net_sender *sender, unsigned int i, const struct burst *b)
{
	struct net_socket *s = &sender->socket[i];

	if (!sender->wait || s->kept_bytes + b->size > NET_KEPT_MAX)
		return false;
	if (!s->kept && !sender->wait(sender->owner, i))
		return false;
	struct net_kept *kept = kept_new(b);

	if (!kept)
		return false; /* a net_resume() that finds nothing is harmless */
	if (!s->kept)
		s->last = &s->kept;
	*s->last = kept;
	s->last = &kept->next;
	s->kept_bytes += kept->size;
	socket_block(sender, i, true);
	return true;
}

static void burst_keep(struct net_sender *sender, const struct burst *b)
{
	const struct net_tap *tap = net_tap_at(&sender->tap);

	if (socket_keep(sender, (unsigned int)b->path->socket, b))
		return;
	sender_show_packets(tap, net_tap_time(tap), *b, EAGAIN);
	sender_note_loss(sender, EAGAIN, b->count);
}

static void burst_send(struct net_sender *sender)
{
	struct burst b = {sender->path, sender->buffer, sender->end, sender->segment,
			  sender->count};

	sender->counters.packets += b.count;
	sender->counters.bytes += b.size;
	/* A burst is queued behind kept ones, so that packets of a QP stay in order. */
	if (unlikely(net_blocked(sender, b.path) || !burst_try(sender, &b)))
		burst_keep(sender, &b);
}

/* ------------------------------------------------------------------ bursts */

static void sender_publish_counters(const struct net_sender *sender)
{
	const struct net_counters *c = &sender->counters;
	const uint64_t now[NET_SENT_COUNTERS] = {
		[NET_SENT_PACKETS] = c->packets,
		[NET_SENT_BYTES] = c->bytes,
		[NET_SENT_REFUSED] = c->refused,
		[NET_SENT_NO_ROOM] = c->no_room,
		[NET_SENT_ERROR] = (uint64_t)c->last_error,
	};

	for (int i = 0; sender->published && i < NET_SENT_COUNTERS; i++)
		atomic_store_explicit(&sender->published[i], now[i], memory_order_relaxed);
}

static void burst_flush(struct net_sender *sender)
{
	if (sender->count) {
		burst_send(sender);
		sender_publish_counters(sender);
	}
	sender->end = 0;
	sender->count = 0;
	sender->closed = false;
}

bool net_resume(struct net_sender *sender, unsigned int i)
{
	struct net_socket *s = &sender->socket[i];

	while (s->kept && burst_try(sender, &s->kept->burst))
		kept_free_first(s);
	while (s->kept && !sender->wait(sender->owner, i)) {
		sender_note_loss(sender, EAGAIN, s->kept->burst.count);
		kept_free_first(s);
	}
	if (!s->kept)
		socket_block(sender, i, false);
	sender_publish_counters(sender);
	return !s->kept;
}

void net_begin(struct net_sender *sender, struct net_path *path)
{
	sender->path = path;
	sender->end = 0;
	sender->count = 0;
	sender->closed = false;
}

bool net_between(const struct net_sender *sender)
{
	return !sender->count || sender->closed || sender->count == SEGMENTS_MAX ||
	       sender->end + sender->segment > BURST_MAX;
}

uint8_t *net_room(struct net_sender *sender)
{
	if (net_between(sender))
		burst_flush(sender);
	return sender->buffer + sender->end;
}

uint32_t net_burst(uint32_t size)
{
	uint32_t packets = BURST_MAX / (size + WIRE_ICRC);

	return packets < SEGMENTS_MAX ? packets : SEGMENTS_MAX;
}

/* Begins a new burst with a packet that doesn't fit the last one: it moves to the buffer's front,
 * where the memory is in the cache. */
static void begin_with(struct net_sender *sender, uint32_t size)
{
	const uint8_t *packet = sender->buffer + sender->end;

	burst_flush(sender);
	memmove(sender->buffer, packet, size);
}

void net_add(struct net_sender *sender, uint32_t size)
{
	size += WIRE_ICRC;
	if (sender->count && (size > sender->segment || sender->end + size > BURST_MAX))
		begin_with(sender, size - WIRE_ICRC);
	if (!sender->count)
		sender->segment = size;
	packet_seal(sender->path, net_begun(&sender->begun, &sender->path->ip, size, sender->count),
		    sender->buffer + sender->end, size);
	sender->closed = size < sender->segment;
	sender->end += size;
	sender->count++;
}

void net_end(struct net_sender *sender)
{
	burst_flush(sender);
}
