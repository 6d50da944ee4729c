/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long messages of peers: segments are collected, in any order within the window, until the last
 * one is there with all before it. A finished message is remembered for a while, because its last
 * ACK may be lost. What peers can make a file hold is limited (mad.h), with equal shares for the
 * hosts that want more than there is.
 */
#include "mad/internal.h"

#include <stdlib.h>

#define STATUS_RESOURCES 1 /* of a STOP */

/* What the receive counts for. */
static size_t receive_holds(const struct mad_receive *receive, enum mad_holding what)
{
	return what == MAD_HELD_MESSAGES ? 1 : receive->bytes;
}

void rmpp_receive_free(struct mad_file *file, struct mad_receive *receive)
{
	for (enum mad_holding what = 0; what < MAD_HOLDINGS; what++)
		file->held[what] -= receive_holds(receive, what);
	list_del(&receive->node);
	free(receive->data);
	free(receive);
}

/* Whether two segments are of one message. Peers without LIDs differ by their GIDs only. */
static bool receive_is_of(const struct mad_receive *receive, uint32_t agent,
			  const struct ib_mad_addr *from, const uint8_t *mad)
{
	const struct ib_mad_addr *known = &receive->from;

	return receive->agent == agent && known->lid == from->lid && known->qpn == from->qpn &&
	       !known->grh_present == !from->grh_present &&
	       (!from->grh_present || !memcmp(known->gid, from->gid, sizeof known->gid)) &&
	       header_tid(receive->first) == header_tid(mad) &&
	       header_class(receive->first) == header_class(mad) &&
	       header_method(receive->first) == header_method(mad);
}

static struct mad_receive *receive_find(struct mad_file *file, uint32_t agent,
					const struct ib_mad_addr *from, const uint8_t *mad)
{
	list_for_each(node, &file->receives) {
		struct mad_receive *receive = container_of(node, struct mad_receive, node);

		if (receive_is_of(receive, agent, from, mad))
			return receive;
	}
	return NULL;
}

/* Limits --------------------------------------------------------------------------------------- */

static const size_t held_max[MAD_HOLDINGS] = {
	[MAD_HELD_MESSAGES] = MAD_RECEIVES_MAX,
	[MAD_HELD_BYTES] = MAD_RECEIVES_BYTES_MAX,
};

/* Whether both come from one host. A host can't choose its LID, but its QP, and what a GRH says. */
static bool host_is_same(const struct ib_mad_addr *a, const struct ib_mad_addr *b)
{
	return a->lid == b->lid && (a->lid || !memcmp(a->gid, b->gid, sizeof a->gid));
}

static size_t host_holds(const struct mad_file *file, const struct ib_mad_addr *host,
			 enum mad_holding what)
{
	size_t holds = 0;

	list_for_each(node, &file->receives) {
		const struct mad_receive *receive = container_of(node, struct mad_receive, node);

		if (host_is_same(&receive->from, host))
			holds += receive_holds(receive, what);
	}
	return holds;
}

static struct mad_receive *remembered_find(struct mad_file *file)
{
	list_for_each(node, &file->receives) {
		struct mad_receive *receive = container_of(node, struct mad_receive, node);

		if (receive->is_complete)
			return receive;
	}
	return NULL;
}

/* The oldest message of the host that holds most, if that is more than `share`. */
static struct mad_receive *greediest_find(struct mad_file *file, enum mad_holding what,
					  size_t share)
{
	struct mad_receive *found = NULL;

	list_for_each(node, &file->receives) {
		struct mad_receive *receive = container_of(node, struct mad_receive, node);
		size_t holds = receive_holds(receive, what);

		if (holds)
			holds = host_holds(file, &receive->from, what);
		if (holds <= share)
			continue;
		share = holds;
		found = receive;
	}
	return found;
}

/* The peer is told that there is no room for its message. */
static void receive_refuse(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
			   const uint8_t *mad)
{
	rmpp_abort(file->port, file->agents[agent].qpn, from, mad, RMPP_STOP, STATUS_RESOURCES);
}

/* Makes room for what `host` is to hold in addition. Never ends an unfinished message of `host`.
 * False: no other host holds more than it would. */
static bool room_make(struct mad_file *file, const struct ib_mad_addr *host, enum mad_holding what,
		      size_t more)
{
	while (file->held[what] + more > held_max[what]) {
		struct mad_receive *victim =
			what == MAD_HELD_MESSAGES ? remembered_find(file) : NULL;

		if (!victim)
			victim = greediest_find(file, what, host_holds(file, host, what) + more);
		if (!victim)
			return false;
		if (!victim->is_complete)
			receive_refuse(file, victim->agent, &victim->from, victim->first);
		rmpp_receive_free(file, victim);
	}
	return true;
}

/* Segments ------------------------------------------------------------------------------------- */

static struct mad_receive *receive_create(struct mad_file *file, uint32_t agent,
					  const struct ib_mad_addr *from, const uint8_t *mad,
					  uint64_t now_ms)
{
	struct mad_receive *receive = NULL;

	if (room_make(file, from, MAD_HELD_MESSAGES, 1))
		receive = calloc(1, sizeof *receive);
	if (!receive)
		return NULL;
	receive->agent = agent;
	receive->from = *from;
	memcpy(receive->first, mad, MAD_BYTES);
	receive->deadline_ms = now_ms + RMPP_RECEIVE_MS;
	receive->window = 1;
	list_add_tail(&file->receives, &receive->node);
	file->held[MAD_HELD_MESSAGES]++;
	return receive;
}

/* Tells the peer what came, and what it may send. */
static void ack_send(struct mad_file *file, const struct mad_receive *receive)
{
	uint8_t mad[MAD_BYTES] = {0};

	memcpy(mad, receive->first, (size_t)class_data_offset(header_class(receive->first)));
	mad[3] ^= METHOD_RESPONSE;
	rmpp_write(mad, RMPP_ACK, RMPP_ACTIVE, receive->acked, receive->window);
	file->port->system->functions->transmit(file->port, file->agents[receive->agent].qpn,
						&receive->from, mad);
}

/* Makes room for a segment. */
static bool receive_reserve(struct mad_file *file, struct mad_receive *receive, uint32_t number,
			    size_t in_one)
{
	size_t most = MAD_MESSAGE_BYTES_MAX / in_one + 1; /* the last one may be short */
	size_t capacity = receive->capacity ? receive->capacity : 4;
	size_t bytes;
	uint8_t *data;

	if (number <= receive->capacity)
		return true;
	if (number > most)
		return false;
	while (capacity < number)
		capacity *= 2;
	if (capacity > most)
		capacity = most;
	bytes = MAD_BYTES + capacity * in_one;
	if (!room_make(file, &receive->from, MAD_HELD_BYTES, bytes - receive->bytes))
		return false;
	data = realloc(receive->data, bytes);
	if (!data)
		return false;
	file->held[MAD_HELD_BYTES] += bytes - receive->bytes;
	receive->data = data;
	receive->capacity = capacity;
	receive->bytes = bytes;
	return true;
}

/* Marks a segment as arrived. Returns false if it was already. */
static bool receive_mark(struct mad_receive *receive, uint32_t number)
{
	if (number <= receive->acked)
		return false;
	if (number > receive->acked + 1) {
		uint64_t bit = 1ull << (number - receive->acked - 2);
		bool is_new = !(receive->early & bit);

		receive->early |= bit;
		return is_new;
	}
	receive->acked++;
	while (receive->early & 1) {
		receive->acked++;
		receive->early >>= 1;
	}
	receive->early >>= 1;
	return true;
}

/* The message is complete: the first segment's header and all data. */
static void receive_finish(struct mad_file *file, struct mad_receive *receive, uint64_t now_ms)
{
	size_t offset = (size_t)class_data_offset(header_class(receive->first));
	size_t in_one = MAD_BYTES - offset;
	size_t bytes = offset + receive->acked * in_one;
	uint8_t *message = receive->data;

	/* A length that can't be is taken as that of a full segment. */
	if (receive->last_length < RMPP_SEGMENT_BYTES &&
	    RMPP_SEGMENT_BYTES - receive->last_length <= in_one)
		bytes -= RMPP_SEGMENT_BYTES - receive->last_length;
	receive->is_complete = true;
	receive->deadline_ms = now_ms + RMPP_REMEMBER_MS;
	receive->data = NULL;
	receive->capacity = 0;
	file->held[MAD_HELD_BYTES] -= receive->bytes;
	receive->bytes = 0;
	memcpy(message, receive->first, offset);
	message_deliver(file, receive->agent, &receive->from, message, bytes);
	free(message);
}

/* A segment that is new: where it belongs, and what follows from it. */
static void receive_add(struct mad_file *file, struct mad_receive *receive, const uint8_t *mad,
			uint64_t now_ms)
{
	uint32_t number = header_get32(mad, OFFSET_RMPP_SEGMENT);
	size_t offset = (size_t)class_data_offset(header_class(mad));
	size_t in_one = MAD_BYTES - offset;

	memcpy(receive->data + offset + (number - 1) * in_one, mad + offset, in_one);
	if (rmpp_flags(mad) & RMPP_LAST) {
		receive->last = number;
		receive->last_length = header_get32(mad, OFFSET_RMPP_LENGTH);
	}
	if (receive->last && receive->acked >= receive->last) {
		receive->acked = receive->last;
		ack_send(file, receive);
		receive_finish(file, receive, now_ms);
	} else if (receive->acked == receive->window) {
		receive->window += RMPP_WINDOW;
		ack_send(file, receive);
	}
}

/* What is wrong with a segment; 0: nothing. */
static uint8_t segment_check(const uint8_t *mad)
{
	bool is_first = rmpp_flags(mad) & RMPP_FIRST;

	if (mad[24] != RMPP_VERSION)
		return RMPP_STATUS_VERSION;
	if (is_first != (header_get32(mad, OFFSET_RMPP_SEGMENT) == 1))
		return RMPP_STATUS_SEGMENT;
	return header_get32(mad, OFFSET_RMPP_SEGMENT) ? 0 : RMPP_STATUS_SEGMENT;
}

void rmpp_data(struct mad_file *file, uint32_t agent, const struct ib_mad_addr *from,
	       const uint8_t *mad, uint64_t now_ms)
{
	uint32_t number = header_get32(mad, OFFSET_RMPP_SEGMENT);
	size_t in_one = MAD_BYTES - (size_t)class_data_offset(header_class(mad));
	int qpn = file->agents[agent].qpn;
	struct mad_receive *receive;
	uint8_t wrong = segment_check(mad);

	if (wrong) {
		rmpp_abort(file->port, qpn, from, mad, RMPP_ABORT, wrong);
		return;
	}
	receive = receive_find(file, agent, from, mad);
	if (!receive && number == 1) {
		receive = receive_create(file, agent, from, mad, now_ms);
		if (!receive)
			receive_refuse(file, agent, from, mad);
	}
	if (!receive || number > receive->window)
		return;
	if (receive->is_complete) {
		ack_send(file, receive);
		return;
	}
	if (!receive_reserve(file, receive, number, in_one)) {
		receive_refuse(file, agent, from, mad);
		rmpp_receive_free(file, receive);
		return;
	}
	if (receive_mark(receive, number))
		receive_add(file, receive, mad, now_ms);
	else
		ack_send(file, receive); /* the peer repeats: it lacks an ACK */
}

void rmpp_receives_expire(struct mad_file *file, uint64_t now_ms)
{
	list_for_each(node, &file->receives) {
		struct mad_receive *receive = container_of(node, struct mad_receive, node);

		if (receive->deadline_ms > now_ms)
			continue;
		if (!receive->is_complete)
			rmpp_abort(file->port, file->agents[receive->agent].qpn, &receive->from,
				   receive->first, RMPP_ABORT, RMPP_STATUS_TOO_LONG);
		rmpp_receive_free(file, receive);
	}
}
