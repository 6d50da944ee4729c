/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * See tap.h. Each capture has a ring of bytes that its socket is fed from. A block is put into it
 * as a whole or not at all, so that the file stays readable. One thread: the server's.
 */
#include "fabricd/tap.h"

#include "fabricd/packet.h"
#include "wire/pcapng.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES (1u << 20)

struct tap {
	struct list node; /* on server.taps */
	struct watched watched;
	uint32_t port;
	size_t first, count; /* of the ring: bytes that wait */
	uint64_t lost;
	uint8_t ring[RING_BYTES];
};

/* The ring ------------------------------------------------------------------------------------- */

/* A block as a whole, or nothing: then false. */
static bool ring_put(struct tap *tap, const uint8_t *block, size_t bytes)
{
	size_t at = (tap->first + tap->count) % RING_BYTES;
	size_t some = RING_BYTES - at < bytes ? RING_BYTES - at : bytes;

	if (RING_BYTES - tap->count < bytes)
		return false;
	memcpy(tap->ring + at, block, some);
	memcpy(tap->ring, block + some, bytes - some);
	tap->count += bytes;
	return true;
}

static void tap_free(struct server *server, struct tap *tap)
{
	server_unwatch(server, &tap->watched);
	list_del(&tap->node);
	free(tap);
	server->fabric.is_tapped = !list_empty(&server->taps);
}

/* Sends what the socket takes; the client's end of the connection ends the capture. */
static void tap_ready(struct server *server, struct watched *watched, uint32_t events)
{
	struct tap *tap = container_of(watched, struct tap, watched);
	char none[64];
	ssize_t n = events & (EPOLLIN | EPOLLHUP | EPOLLERR)
			    ? recv(watched->fd, none, sizeof none, MSG_DONTWAIT)
			    : 1;

	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		tap_free(server, tap);
		return;
	}
	while (tap->count) {
		size_t some =
			RING_BYTES - tap->first < tap->count ? RING_BYTES - tap->first : tap->count;

		n = send(watched->fd, tap->ring + tap->first, some, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0)
			break;
		tap->first = (tap->first + (size_t)n) % RING_BYTES;
		tap->count -= (size_t)n;
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		tap_free(server, tap);
	else if (!tap->count)
		server_watch_change(server, watched, EPOLLIN);
}

/* Captures ------------------------------------------------------------------------------------- */

bool taps_have_room(const struct server *server)
{
	unsigned int count = 0;

	list_for_each(node, &server->taps)
		count++;
	return count < TAPS_AT_ONCE;
}

static void tap_put_head(struct server *server, struct tap *tap)
{
	const struct fabric_port *port = &server->fabric.ports[tap->port];
	uint8_t block[PCAPNG_ROOM];
	char name[300];
	size_t bytes;

	snprintf(name, sizeof name, "%s/%u", fabric_node_name(&server->fabric, port->node),
		 port->number);
	bytes = pcapng_section(block, sizeof block, "verbena-fabric");
	ring_put(tap, block, bytes);
	bytes = pcapng_interface(block, sizeof block, PCAPNG_ERF, 0, name, NULL);
	ring_put(tap, block, bytes);
}

int tap_begin(struct server *server, uint32_t port)
{
	struct tap *tap = taps_have_room(server) ? calloc(1, sizeof *tap) : NULL;
	int ends[2] = {-1, -1};

	if (tap && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
		ends[0] = ends[1] = -1;
	if (!tap || ends[0] < 0 ||
	    server_watch(server, &tap->watched, ends[0], EPOLLIN | EPOLLOUT) < 0) {
		if (ends[0] >= 0) {
			close(ends[0]);
			close(ends[1]);
		}
		free(tap);
		return -1;
	}
	tap->watched.ready = tap_ready;
	tap->port = port;
	list_add_tail(&server->taps, &tap->node);
	server->fabric.is_tapped = true;
	tap_put_head(server, tap);
	return ends[1];
}

void taps_close(struct server *server)
{
	list_for_each(node, &server->taps)
		tap_free(server, container_of(node, struct tap, node));
}

/* `record` has room for the header before the packet. */
static void tap_note(struct server *server, struct tap *tap, uint8_t *record, size_t bytes,
		     bool is_out)
{
	uint8_t block[PCAPNG_ROOM + PCAPNG_ERF_BYTES + PACKET_BYTES_MAX];
	struct timespec now;
	size_t block_bytes;
	struct pcapng_packet packet = {
		.bytes = record,
		.captured = (uint32_t)(PCAPNG_ERF_BYTES + bytes),
		.size = (uint32_t)(PCAPNG_ERF_BYTES + bytes),
		.direction = is_out ? PCAPNG_OUT : PCAPNG_IN,
		.dropped = tap->lost,
	};

	clock_gettime(CLOCK_REALTIME, &now);
	packet.time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	pcapng_erf(record, packet.time_ns, bytes, packet.direction);
	block_bytes = pcapng_packet(block, sizeof block, &packet);
	if (!ring_put(tap, block, block_bytes)) {
		tap->lost++;
		return;
	}
	tap->lost = 0;
	server_watch_change(server, &tap->watched, EPOLLIN | EPOLLOUT);
}

void taps_note(void *context, const struct fabric_datagram *datagram, uint32_t egress,
	       uint32_t ingress, uint8_t vl)
{
	struct server *server = context;
	uint8_t record[PCAPNG_ERF_BYTES + PACKET_BYTES_MAX];
	size_t bytes = 0;

	list_for_each(node, &server->taps) {
		struct tap *tap = container_of(node, struct tap, node);

		if (tap->port != egress && tap->port != ingress)
			continue;
		if (!bytes)
			bytes = packet_make(datagram, vl, record + PCAPNG_ERF_BYTES);
		tap_note(server, tap, record, bytes, tap->port == egress);
	}
}
