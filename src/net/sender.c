/* SPDX-License-Identifier: BSD-2-Clause */
/* Bursts of packets. See sender.h. */
#include "net/sender.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "wire/flow.h"
#include "wire/ip.h"

enum {
	BURST_MAX = 65507 - 40, /* bytes in one send, for IPv6 too */
	SEGMENTS_MAX = 64,	/* packets in one send; newer kernels take 128 */
	BUFFER = (BURST_MAX + WIRE_PACKET_MAX + 4095) / 4096 * 4096, /* whole pages */
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
		sender->socket[i].socket.fd = -1;
	sender->buffer = aligned_alloc(4096, BUFFER);
	return sender->buffer ? 0 : -ENOMEM;
}

void net_sender_leave(struct net_sender *sender)
{
	for (unsigned int i = 0; i < NET_SOCKETS; i++) {
		struct net_queue *s = &sender->socket[i];

		net_socket_close(&s->socket);
		/* Not freed: at the fork another thread of the parent may have been changing the
		 * list. */
		s->kept = NULL;
		s->kept_bytes = 0;
	}
	atomic_store_explicit(&sender->blocked, 0, memory_order_relaxed);
}

static void kept_free_first(struct net_queue *s)
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

/* Half of the places are for each family; the last one of each is for packets to this host. */
enum { PLACES = NET_SOCKETS / 2, PLACE_NEAR = PLACES - 1 };

int net_path_bind(struct net_sender *sender, struct net_path *path, uint32_t flow_label,
		  uint32_t local_qpn, uint32_t remote_qpn)
{
	uint16_t port = flow_source_port(flow_label ? flow_label
						    : flow_label_of_qps(local_qpn, remote_qpn));
	bool near = path->near && sender->near_port;
	unsigned int i =
		(near ? PLACE_NEAR : port % PLACE_NEAR) + (ip_is_v4(path->ip.source) ? 0 : PLACES);
	struct net_socket *s = &sender->socket[i].socket;

	if (s->fd < 0) {
		unsigned int flags =
			(sender->echo ? NET_SOCKET_ECHO : 0) | (near ? NET_SOCKET_SHARED : 0);
		int err = net_socket_open(s, path, near ? sender->near_port : port, flags);

		if (err)
			return err;
	}
	path->socket = (int16_t)i;
	path->ip.source_port = s->port;
	path->ip.destination_port = WIRE_PORT;
	return 0;
}

bool net_sender_has(const struct net_sender *sender, const struct icrc_path *path)
{
	static const uint8_t any[16];

	for (unsigned int i = 0; i < NET_SOCKETS; i++) {
		const struct net_socket *s = &sender->socket[i].socket;

		if (s->fd >= 0 && s->port == path->source_port &&
		    s->ipv4 == ip_is_v4(path->source) &&
		    (!memcmp(s->source, any, sizeof(any)) ||
		     !memcmp(s->source, path->source, sizeof(any))))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------ sending */

static struct net_socket *path_socket(struct net_sender *sender, const struct net_path *path)
{
	return &sender->socket[path->socket].socket;
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
		int err = net_socket_send(path_socket(sender, b->path), b->path, one.bytes,
					  one.size, 0);

		if (err == EAGAIN)
			return false;
		sender_show_packets(tap, now, one, err);
		if (err)
			sender_note_loss(sender, err, 1);
	}
	return true;
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

/* net_socket_send() of the burst; a short packet's call is timed periodically. */
static int send_timed(struct net_sender *sender, const struct burst *b)
{
	enum { SHORT = 256, EVERY = 16 };
	bool timed = b->size <= SHORT && !(++sender->calls.count % EVERY);
	uint64_t began = unlikely(timed) ? clock_ns() : 0;
	int err = net_socket_send(path_socket(sender, b->path), b->path, b->bytes, b->size,
				  b->count > 1 ? b->segment : 0);

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
	if (unlikely(err && b->count > 1 && net_socket_cannot_cut(err))) {
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
	struct net_queue *s = &sender->socket[i];

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
	struct net_queue *s = &sender->socket[i];

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

/* What the ICRC of the burst's next packet begins with. */
static uint32_t burst_begun(struct net_sender *sender, uint32_t size)
{
	const struct icrc_path *path = &sender->path->ip;

	return likely(sender->count && size == sender->segment)
		       ? net_begun_next(&sender->begun, path, size, sender->count)
		       : net_begun(&sender->begun, path, size, sender->count);
}

void net_add(struct net_sender *sender, uint32_t size)
{
	size += WIRE_ICRC;
	if (sender->count && (size > sender->segment || sender->end + size > BURST_MAX))
		begin_with(sender, size - WIRE_ICRC);
	if (!sender->count)
		sender->segment = size;
	packet_seal(sender->path, burst_begun(sender, size), sender->buffer + sender->end, size);
	sender->closed = size < sender->segment;
	sender->end += size;
	sender->count++;
}

void net_end(struct net_sender *sender)
{
	burst_flush(sender);
}
