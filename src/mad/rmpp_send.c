/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long messages that are sent: segments of one MAD each, each with the class's header; the peer's
 * ACKs say how many arrived and how many more may be sent. The first segment is sent alone.
 */
#include "mad/internal.h"

static int message_offset(const struct mad_send *send)
{
	return class_data_offset(header_class(send->mad));
}

/* Bytes of data behind the class's header. */
static uint32_t message_data_bytes(const struct mad_send *send)
{
	size_t offset = (size_t)message_offset(send);

	return send->bytes > offset ? (uint32_t)(send->bytes - offset) : 0;
}

static void ack_set_deadline(struct mad_send *send, uint64_t now_ms)
{
	uint32_t timeout = send->header.timeout_ms;

	send->deadline_ms = now_ms + (timeout && timeout < RMPP_ACK_MS ? timeout : RMPP_ACK_MS);
}

void rmpp_begin(struct mad_send *send, uint64_t now_ms)
{
	uint32_t in_one = (uint32_t)(MAD_BYTES - message_offset(send));
	uint32_t data = message_data_bytes(send);

	send->state = SEND_SEGMENTS;
	send->segments = data ? (data + in_one - 1) / in_one : 1;
	send->window = 1;
	ack_set_deadline(send, now_ms);
	rmpp_segments_send(send);
}

void rmpp_begin_again(struct mad_send *send, uint64_t now_ms)
{
	send->sent = send->acked;
	ack_set_deadline(send, now_ms);
}

/* One segment. Payload lengths count what is behind the RMPP header, the class's header included.
 */
static void segment_send(struct mad_send *send, uint32_t number)
{
	struct mad_port *port = send->file->port;
	uint32_t offset = (uint32_t)message_offset(send);
	uint32_t in_one = MAD_BYTES - offset;
	uint32_t data = message_data_bytes(send);
	uint32_t begin = (number - 1) * in_one;
	uint32_t bytes = data - begin < in_one ? data - begin : in_one;
	uint32_t padding = send->segments * in_one - data;
	uint32_t length = 0;
	uint8_t flags = RMPP_ACTIVE;
	uint8_t mad[MAD_BYTES] = {0};

	memcpy(mad, send->mad, offset);
	memcpy(mad + offset, send->mad + offset + begin, bytes);
	if (number == send->segments) {
		flags |= RMPP_LAST;
		length = RMPP_SEGMENT_BYTES - padding;
	}
	if (number == 1) {
		flags |= RMPP_FIRST;
		length = send->segments * RMPP_SEGMENT_BYTES - padding;
	}
	rmpp_write(mad, RMPP_DATA, flags, number, length);
	port->system->functions->transmit(port, send->file->agents[send->agent].qpn,
					  &send->header.addr, mad);
}

void rmpp_segments_send(struct mad_send *send)
{
	while (send->sent < send->segments && send->sent < send->window)
		segment_send(send, ++send->sent);
}

void rmpp_abort(struct mad_port *port, int qpn, const struct ib_mad_addr *to, const uint8_t *mad,
		uint8_t type, uint8_t status)
{
	uint8_t answer[MAD_BYTES] = {0};

	memcpy(answer, mad, (size_t)class_data_offset(header_class(mad)));
	answer[3] ^= METHOD_RESPONSE;
	rmpp_write(answer, type, RMPP_ACTIVE, 0, 0);
	answer[27] = status;
	port->system->functions->transmit(port, qpn, to, answer);
}

/* What is wrong with an ACK for this message; 0: nothing. */
static uint8_t ack_check(const struct mad_send *send, const uint8_t *mad)
{
	uint32_t segment = header_get32(mad, OFFSET_RMPP_SEGMENT);
	uint32_t window = header_get32(mad, OFFSET_RMPP_LENGTH);

	if (window < segment)
		return RMPP_STATUS_WINDOW_SMALL;
	if (segment > send->segments || segment > send->window)
		return RMPP_STATUS_SEGMENT_ACK;
	return 0;
}

static void ack_apply(struct mad_send *send, const uint8_t *mad, uint64_t now_ms)
{
	uint32_t segment = header_get32(mad, OFFSET_RMPP_SEGMENT);
	uint32_t window = header_get32(mad, OFFSET_RMPP_LENGTH);

	if (segment < send->acked || window < send->window)
		return; /* an old one */
	if (segment > send->acked) {
		send->acked = segment;
		if (send->sent < segment)
			send->sent = segment;
		send->retries_left = send->header.retries;
	}
	send->window = window;
	if (send->acked == send->segments) {
		send_acknowledged(send, now_ms);
		return;
	}
	ack_set_deadline(send, now_ms);
	rmpp_segments_send(send);
}

void rmpp_feedback(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
		   const uint8_t *mad, uint64_t now_ms)
{
	struct mad_send *send = send_find(file, agent, from, mad);
	int qpn = file->agents[agent].qpn;
	uint8_t wrong;

	if (!send || send->state != SEND_SEGMENTS)
		return;
	if (mad[24] != RMPP_VERSION)
		wrong = RMPP_STATUS_VERSION;
	else if (rmpp_type(mad) == RMPP_ACK)
		wrong = ack_check(send, mad);
	else
		wrong = rmpp_type(mad) > RMPP_ABORT ? RMPP_STATUS_TYPE : 0;
	if (wrong)
		rmpp_abort(file->port, qpn, from, mad, RMPP_ABORT, wrong);
	if (wrong || rmpp_type(mad) != RMPP_ACK)
		send_free(send); /* the program isn't told, as by Linux */
	else
		ack_apply(send, mad, now_ms);
}
