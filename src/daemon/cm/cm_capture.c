/* SPDX-License-Identifier: BSD-2-Clause */
/* See cm_capture.h. Frames are made on the stack of the loop thread, which runs all of this; none
 * is made while there is no capture. */
#include "daemon/cm/cm_capture.h"

#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "daemon/core/capture.h"
#include "shm/tap.h"
#include "wire/flow.h"
#include "wire/frame.h"

_Static_assert(FRAME_MAX <= TAP_PACKET_MAX, "every packet has a place in a ring");

/* A packet of the sender or the receiver. */
static void cm_capture_seen(const struct net_tap *tap, const struct net_seen *seen)
{
	const struct cm_capture *capture = container_of(tap, struct cm_capture, net);
	uint32_t kept = seen->size < WIRE_PACKET_MAX ? seen->size : WIRE_PACKET_MAX;
	char comment[TAP_COMMENT_MAX];
	uint8_t frame[FRAME_MAX];

	if (!capture_is_on(capture->server))
		return;
	if (seen->dropped)
		snprintf(comment, sizeof(comment), "dropped: %s", seen->dropped);

	size_t size = frame_wrap(frame, seen->path, &seen->ip, seen->bytes, kept);
	const struct tap_packet packet = {
		.time_ns = seen->time_ns,
		.bytes = frame,
		.captured = (uint32_t)size,
		.size = (uint32_t)(size + seen->size - kept),
		.direction = seen->out ? TAP_OUT : TAP_IN,
		.comment = seen->dropped ? comment : NULL,
	};

	capture_write(capture->server, &packet);
}

void cm_capture_init(struct cm_capture *capture, struct server *server)
{
	*capture = (struct cm_capture){.net.seen = cm_capture_seen, .server = server};
}

void cm_capture_show(const struct cm_capture *capture, const struct packet *headers,
		     const uint8_t source[16], const uint8_t destination[16], uint8_t traffic_class,
		     const void *payload)
{
	const struct frame_ip ip = {.traffic_class = traffic_class, .hop_limit = ip_hop_limit(0)};
	uint32_t label = flow_label_of_qps(headers->src_qpn, headers->dest_qpn);
	struct icrc_path path = {.source_port = flow_source_port(label),
				 .destination_port = WIRE_PORT};
	uint8_t bytes[WIRE_PACKET_MAX], frame[FRAME_MAX];

	if (!capture_is_on(capture->server))
		return;
	memcpy(path.source, source, 16);
	memcpy(path.destination, destination, 16);

	uint32_t size = packet_encode(headers, bytes), padding = packet_padding(headers->length);

	memcpy(bytes + size, payload, headers->length);
	memset(bytes + size + headers->length, 0, padding);

	size_t whole = frame_make(frame, &path, &ip, bytes, size + headers->length + padding);
	const struct tap_packet packet = {
		.time_ns = net_tap_time(&capture->net),
		.bytes = frame,
		.captured = (uint32_t)whole,
		.size = (uint32_t)whole,
		.direction = TAP_OUT,
		.comment = "local",
	};

	capture_write(capture->server, &packet);
}
