/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_udp.h. */
#include "daemon/cm/cm_udp.h"

#include <string.h>

#include "base/list.h"
#include "base/log.h"
#include "daemon/cm/cm_service.h"
#include "daemon/core/server.h"
#include "daemon/net/mcast.h"
#include "daemon/net/slot_socket.h"
#include "wire/packet.h"

enum { PKEY_MASK = 0x7fff };

void cm_udp_init(struct cm_udp *wire, struct server *server)
{
	*wire = (struct cm_udp){.watch.fd = -1};
	cm_capture_init(&wire->capture, server);
}

/* ------------------------------------------------------------------ receiving */

/*
 * Whether a message comes from where it says, as far as this host can tell: one from an address of
 * this host was sent by this daemon itself, which sends such messages in tests only. Any program
 * can send to the port, also from these addresses.
 */
static bool cm_udp_is_honest(const struct cm_udp *wire, const struct net_from *from)
{
	return !mcast_has_address(wire->service->server, from->ip.source) ||
	       (wire->service->force_wire && net_sender_has(&wire->sender, &from->ip));
}

/* Returns NULL, or why the packet is dropped. */
static const char *cm_udp_take(struct cm_udp *wire, const struct packet *packet,
			       const struct net_from *from)
{
	struct cm_path path = {.ifindex = from->ifindex,
			       .traffic_class = from->traffic_class & 0xfc};

	if (packet->opcode != (PACKET_UD | OP_SEND_ONLY) || packet->dest_qpn != MAD_GSI_QPN ||
	    packet->src_qpn != MAD_GSI_QPN || packet->length != MAD_SIZE) {
		wire->counters.not_mads++;
		return "no management datagram of ours";
	}
	if (packet->qkey != MAD_GSI_QKEY || (packet->pkey & PKEY_MASK) != PKEY_MASK) {
		wire->counters.bad_key++;
		return "another P_Key or Q_Key";
	}
	if (!cm_udp_is_honest(wire, from)) {
		wire->counters.forged++;
		return "from an address of this host, but not from this daemon";
	}
	wire->counters.taken++;
	memcpy(path.local, from->ip.destination, 16);
	memcpy(path.remote, from->ip.source, 16);
	cm_service_take(wire->service, &path, packet->payload);
	return NULL;
}

static void cm_udp_take_run(void *arg, struct net_packet *run, unsigned int count,
			    const struct net_from *from)
{
	for (unsigned int i = 0; i < count; i++)
		run[i].dropped = cm_udp_take(arg, &run[i].packet, from);
}

static void on_packets(struct watch *watch, uint32_t events)
{
	struct cm_udp *wire = container_of(watch, struct cm_udp, watch);

	(void)events;
	net_receive(&wire->receiver, cm_udp_take_run, wire);
	cm_service_run(wire->service);
}

/* ------------------------------------------------------------------ sending */

/* The headers of QP 1's next packet. */
static struct packet mad_headers(struct cm_udp *wire)
{
	return (struct packet){
		.opcode = PACKET_UD | OP_SEND_ONLY,
		.pkey = WIRE_PKEY,
		.dest_qpn = MAD_GSI_QPN,
		.src_qpn = MAD_GSI_QPN,
		.qkey = MAD_GSI_QKEY,
		.psn = wire->psn++ & 0xffffff,
		.length = MAD_SIZE,
	};
}

void cm_udp_show_local(struct cm_udp *wire, const struct cm_path *path, const uint8_t mad[MAD_SIZE])
{
	const struct packet headers = mad_headers(wire);

	cm_capture_show(&wire->capture, &headers, path->local, path->remote, path->traffic_class,
			mad);
}

void cm_udp_send(struct cm_udp *wire, const struct cm_path *to, const uint8_t mad[MAD_SIZE])
{
	const struct packet packet = mad_headers(wire);
	struct net_path path = {
		.ip.destination_port = WIRE_PORT,
		.ifindex = to->ifindex,
		.traffic_class = to->traffic_class,
		.socket = -1,
	};

	memcpy(path.ip.source, to->local, 16);
	memcpy(path.ip.destination, to->remote, 16);
	if (!wire->service || net_path_bind(&wire->sender, &path, 0, MAD_GSI_QPN, MAD_GSI_QPN)) {
		wire->counters.unsent++;
		return;
	}
	net_begin(&wire->sender, &path);
	uint8_t *room = net_room(&wire->sender);
	uint32_t size = packet_encode(&packet, room);

	memcpy(room + size, mad, MAD_SIZE);
	net_add(&wire->sender, size + MAD_SIZE);
	net_end(&wire->sender);
}

/* ------------------------------------------------------------------ life */

void cm_udp_open(struct cm_udp *wire, struct cm_service *service, int socket)
{
	if (wire->service)
		return;
	wire->watch = (struct watch){.fd = -1, .stranger = true, .ready = on_packets};
	int err = net_sender_init(&wire->sender);

	if (err)
		goto out;
	err = net_receiver_init(&wire->receiver, socket);
	if (err)
		goto out_sender;
	slot_socket_room(socket, true);
	err = loop_add(&service->server->loop, &wire->watch, socket, EPOLLIN);
	if (err)
		goto out_receiver;
	atomic_store(&wire->sender.tap, &wire->capture.net);
	atomic_store(&wire->receiver.tap, &wire->capture.net);
	wire->service = service;
	return;

out_receiver:
	net_receiver_fini(&wire->receiver);
out_sender:
	net_sender_fini(&wire->sender);
out:
	log_warn("no connections with other hosts: %s", strerror(-err));
}

void cm_udp_close(struct cm_udp *wire)
{
	if (!wire->service)
		return;
	loop_remove(&wire->service->server->loop, &wire->watch);
	net_receiver_fini(&wire->receiver);
	net_sender_fini(&wire->sender);
	wire->service = NULL;
}
