/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages that are sent, their responses and timeouts; datagrams that arrive. */
#include "mad/agents.h"

#include <errno.h>
#include <stdlib.h>

#define BASE_VERSION 1

void send_free(struct mad_send *send)
{
	list_del(&send->node);
	free(send);
}

/* Whether the agent leaves RMPP to us. */
static bool agent_has_rmpp(const struct mad_agent *agent)
{
	return agent->rmpp_version && !agent->has_user_rmpp;
}

static bool mad_is_long(const struct mad_agent *agent, const uint8_t *mad)
{
	return agent_has_rmpp(agent) && (rmpp_flags(mad) & RMPP_ACTIVE);
}

/* Peers ---------------------------------------------------------------------------------------- */

/* Whether `from` is where the message went. Directed routes have no addresses to compare. */
static bool peer_is_same(const struct mad_send *send, const struct ib_mad_addr *from)
{
	const struct ib_mad_addr *to = &send->header.addr;

	if (header_class(send->mad) == CLASS_SMI_DIRECTED)
		return true;
	if (!to->grh_present != !from->grh_present)
		return false;
	if (to->grh_present)
		return !memcmp(to->gid, from->gid, sizeof to->gid);
	return to->lid == from->lid;
}

struct mad_send *send_find(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
			   const uint8_t *mad)
{
	list_for_each(node, &file->sends) {
		struct mad_send *send = container_of(node, struct mad_send, node);

		if (send->agent == agent && header_tid(send->mad) == header_tid(mad) &&
		    header_class(send->mad) == header_class(mad) && peer_is_same(send, from))
			return send;
	}
	return NULL;
}

/* Sending -------------------------------------------------------------------------------------- */

void send_transmit(struct mad_send *send)
{
	struct mad_port *port = send->file->port;

	if (send->segments)
		rmpp_segments_send(send);
	else
		port->system->functions->transmit(port, send->file->agents[send->agent].qpn,
						  &send->header.addr, send->mad);
}

/* When to send again or give up. The last wait is the one that the program has, too. */
static void send_set_deadline(struct mad_send *send, uint64_t now_ms)
{
	uint32_t timeout = send->header.timeout_ms;
	uint32_t early = timeout / 4 < MAD_TIMEOUT_EARLY_MS ? timeout / 4 : MAD_TIMEOUT_EARLY_MS;

	send->deadline_ms = now_ms + timeout - (send->retries_left ? 0 : early);
}

void send_acknowledged(struct mad_send *send, uint64_t now_ms)
{
	if (!send->header.timeout_ms) {
		send_free(send);
		return;
	}
	send->state = SEND_RESPONSE;
	send_set_deadline(send, now_ms);
}

void send_fail(struct mad_send *send)
{
	struct mad_file *file = send->file;
	struct ib_user_mad header = send->header;

	header.status = ETIMEDOUT;
	header.length = sizeof header + MAD_HEADER_BYTES;
	file->port->system->functions->deliver(file->reader, &header, send->mad, MAD_HEADER_BYTES);
	send_free(send);
}

/* Whether the transaction can't be told from one that is under way. */
static bool send_is_duplicate(struct mad_file *file, const struct ib_user_mad *header,
			      const uint8_t *mad)
{
	bool is_response = header_is_response(mad);

	list_for_each(node, &file->sends) {
		const struct mad_send *send = container_of(node, struct mad_send, node);

		if (header_tid(send->mad) != header_tid(mad) ||
		    header_class(send->mad) != header_class(mad) ||
		    header_is_response(send->mad) != is_response)
			continue;
		if (!is_response || peer_is_same(send, &header->addr))
			return true;
	}
	return false;
}

/* Checks what a program wrote, before anything is made of it. */
static int packet_check(const struct mad_file *file, const struct ib_user_mad *header,
			const uint8_t *mad, size_t bytes)
{
	const struct mad_agent *agent;

	if (header->agent_id >= UMAD_CA_MAX_AGENTS)
		return -EINVAL;
	agent = &file->agents[header->agent_id];
	if (!agent->is_registered)
		return -EIO;
	if (bytes <= MAD_BYTES)
		return 0;
	/* Longer than a MAD: only as a message of the class, in segments that are ours. */
	if (!mad_is_long(agent, mad) || !class_has_rmpp(header_class(mad)))
		return -EINVAL;
	return bytes <= MAD_MESSAGE_BYTES_MAX ? 0 : -EINVAL;
}

int mad_file_send(struct mad_file *file, const void *packet, size_t bytes, uint64_t now_ms)
{
	struct ib_user_mad header;
	const struct mad_agent *agent;
	struct mad_send *send;
	size_t room;
	int result;

	if (bytes < sizeof header + MAD_RMPP_BYTES)
		return -EINVAL;
	memcpy(&header, packet, sizeof header);
	bytes -= sizeof header;
	result = packet_check(file, &header, (const uint8_t *)packet + sizeof header, bytes);
	if (result)
		return result;
	agent = &file->agents[header.agent_id];
	room = bytes > MAD_BYTES ? bytes : MAD_BYTES;
	send = calloc(1, sizeof *send + room);
	if (!send)
		return -ENOMEM;
	send->file = file;
	send->agent = header.agent_id;
	send->header = header;
	send->retries_left = header.retries;
	send->bytes = bytes;
	memcpy(send->mad, (const uint8_t *)packet + sizeof header, bytes);
	if (!header_is_response(send->mad))
		header_set32(send->mad, OFFSET_TID, agent->tid_high);
	if (send_is_duplicate(file, &header, send->mad)) {
		free(send);
		return -EINVAL;
	}
	list_add_tail(&file->sends, &send->node);
	if (mad_is_long(agent, send->mad) && class_has_rmpp(header_class(send->mad))) {
		rmpp_begin(send, now_ms);
		return 0;
	}
	send_transmit(send);
	send_acknowledged(send, now_ms);
	return 0;
}

/* Receiving ------------------------------------------------------------------------------------ */

void message_deliver(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
		     const uint8_t *mad, size_t bytes)
{
	struct ib_user_mad header = {
		.agent_id = agent,
		.length = (uint32_t)(sizeof header + bytes),
		.addr = *from,
	};

	if (header_is_response(mad)) {
		struct mad_send *send = send_find(file, agent, from, mad);

		if (!send)
			return;
		send_free(send);
	}
	file->port->system->functions->deliver(file->reader, &header, mad, bytes);
}

/* Answers a request that no agent wants: a peer needn't wait for its timeout. */
static void request_refuse(struct mad_port *port, int qpn, const struct ib_mad_addr *from,
			   const uint8_t *mad)
{
	uint8_t answer[MAD_BYTES];
	uint16_t status = STATUS_UNSUPPORTED;

	if (header_method(mad) != METHOD_GET && header_method(mad) != METHOD_SET)
		return;
	memcpy(answer, mad, sizeof answer);
	if (header_class(mad) == CLASS_SMI_DIRECTED)
		status |= STATUS_DIRECTION;
	answer[3] = METHOD_GET_RESPONSE;
	answer[OFFSET_STATUS] = status >> 8;
	answer[OFFSET_STATUS + 1] = status & 0xff;
	port->system->functions->transmit(port, qpn, from, answer);
}

/* Whether a datagram may be what it claims on this QP. */
static bool mad_is_valid(int qpn, const uint8_t *mad)
{
	bool is_smi = header_class(mad) == CLASS_SMI || header_class(mad) == CLASS_SMI_DIRECTED;

	if (mad[0] != BASE_VERSION || is_smi != !qpn)
		return false;
	return header_class(mad) != CLASS_CM || header_method(mad) == METHOD_SEND;
}

void mad_port_receive(struct mad_port *port, int qpn, const struct ib_mad_addr *from,
		      const uint8_t *mad, uint64_t now_ms)
{
	struct mad_file *file;
	uint32_t agent;

	if (!mad_is_valid(qpn, mad))
		return;
	file = agent_find(port, qpn, mad, &agent);
	if (!file) {
		request_refuse(port, qpn, from, mad);
		return;
	}
	if (!mad_is_long(&file->agents[agent], mad))
		message_deliver(file, agent, from, mad, MAD_BYTES);
	else if (rmpp_type(mad) == RMPP_DATA)
		rmpp_data(file, agent, from, mad, now_ms);
	else
		rmpp_feedback(file, agent, from, mad, now_ms);
}

/* Time ----------------------------------------------------------------------------------------- */

/* The send's time is over: once more, or the program hears of it. */
static void send_expire(struct mad_send *send, uint64_t now_ms)
{
	if (!send->retries_left) {
		send_fail(send);
		return;
	}
	send->retries_left--;
	if (send->state == SEND_RESPONSE) {
		send_set_deadline(send, now_ms);
		if (send->segments)
			return; /* the peer has all of it */
	} else {
		rmpp_begin_again(send, now_ms);
	}
	send_transmit(send);
}

void mad_port_expire(struct mad_port *port, uint64_t now_ms)
{
	list_for_each(node, &port->files) {
		struct mad_file *file = container_of(node, struct mad_file, node);

		list_for_each(at, &file->sends) {
			struct mad_send *send = container_of(at, struct mad_send, node);

			if (send->deadline_ms <= now_ms)
				send_expire(send, now_ms);
		}
		rmpp_receives_expire(file, now_ms);
	}
}

uint64_t mad_port_deadline(const struct mad_port *port)
{
	uint64_t first = UINT64_MAX;

	list_for_each(node, &port->files) {
		const struct mad_file *file = container_of(node, struct mad_file, node);

		list_for_each(at, &file->sends) {
			const struct mad_send *send = container_of(at, struct mad_send, node);

			if (send->deadline_ms < first)
				first = send->deadline_ms;
		}
		list_for_each(at, &file->receives) {
			const struct mad_receive *receive =
				container_of(at, struct mad_receive, node);

			if (receive->deadline_ms < first)
				first = receive->deadline_ms;
		}
	}
	return first;
}
