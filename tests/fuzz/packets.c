/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fuzz target: arbitrary datagrams. Any bytes are either a packet or refused; a packet's fields
 * encode to its bytes again; an ICRC that is accepted is correct; and a capture's blocks fit.
 *
 * Input: one byte of flags, 16 of a path and an identification, then the datagram.
 */
#include <stdio.h>
#include <stdlib.h>

#include "input.h"
#include "wire/flow.h"
#include "wire/frame.h"
#include "wire/grh.h"
#include "wire/pcapng.h"

enum { IS_V6 = 1, MEND_ICRC = 2, WHOLE_WORDS = 4 };

static void read_path(struct input *in, bool is_v6, struct icrc_path *path, uint16_t *id)
{
	uint8_t bytes[16];

	input_bytes(in, bytes, sizeof(bytes));
	*path = (struct icrc_path){.source = {[10] = 0xff, 0xff},
				   .destination = {[10] = 0xff, 0xff},
				   .source_port = bytes[8] << 8 | bytes[9],
				   .destination_port = WIRE_PORT};
	if (is_v6)
		path->source[0] = path->destination[0] = 0xfe;
	memcpy(path->source + 12, bytes, 4);
	memcpy(path->destination + 12, bytes + 4, 4);
	*id = is_v6 ? 0 : bytes[10] << 8 | bytes[11];
}

/* Clears BTH's, DETH's and XRCETH's reserved bits, which the codec doesn't keep. */
static void clear_reserved(uint8_t *bytes, uint8_t opcode)
{
	uint8_t *feth = bytes + WIRE_BTH;

	bytes[4] &= 0xc0;
	bytes[8] &= 0x80;
	if (packet_layout(opcode) & HAS_DETH)
		bytes[WIRE_BTH + 4] = 0;
	if (packet_layout(opcode) & HAS_XRC) {
		bytes[WIRE_BTH] = 0;
		feth += 4;
	}
	if (packet_layout(opcode) & HAS_FETH) {
		memset(feth, 0, 3);
		feth[3] &= WIRE_FETH_BITS;
	}
}

static void check_fields(const uint8_t *bytes, size_t size, const struct packet *p)
{
	uint32_t headers = packet_headers_size(p->opcode);
	uint8_t again[WIRE_HEADERS_MAX], expected[WIRE_HEADERS_MAX];
	char room[32];

	MUST(p->opcode == bytes[0] && packet_layout(p->opcode));
	MUST(p->length <= WIRE_MTU_MAX && p->payload == bytes + headers);
	MUST(headers + p->length + packet_padding(p->length) + WIRE_ICRC == size);
	MUST(!p->length || packet_layout(p->opcode) & HAS_PAYLOAD);
	MUST(!(p->psn >> 24 | p->dest_qpn >> 24 | p->src_qpn >> 24 | p->srqn >> 24 | p->msn >> 24));
	MUST(packet_encode(p, again) == headers);
	memcpy(expected, bytes, headers);
	clear_reserved(expected, p->opcode);
	MUST(!memcmp(again, expected, headers));
	MUST(!strchr(packet_opcode_name(p->opcode, room), '?'));
}

static uint32_t icrc_there(const uint8_t *bytes, size_t size)
{
	const uint8_t *at = bytes + size - WIRE_ICRC;

	return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

static bool icrc_right(const struct icrc_path *path, const uint8_t *bytes, size_t size, uint16_t id)
{
	return icrc_packet(icrc_begin(path, size, id), bytes, size) == icrc_there(bytes, size);
}

static void check_icrc(const struct icrc_path *path, uint8_t *bytes, size_t size, uint16_t id)
{
	uint16_t found;

	if (icrc_matches(path, bytes, size, &found))
		MUST(icrc_right(path, bytes, size, found));
	else
		MUST(!icrc_right(path, bytes, size, id) && !icrc_right(path, bytes, size, 0));
	icrc_write(icrc_begin(path, size, id), bytes, size);
	MUST(icrc_matches(path, bytes, size, &found) && found == id);
}

static void check_capture(const struct icrc_path *path, const uint8_t *bytes, size_t size)
{
	uint8_t frame[FRAME_MAX], *grh = malloc(GRH_SIZE);
	size_t n = frame_make(frame, path, NULL, bytes, size - WIRE_ICRC);
	size_t head = n - size;
	const struct pcapng_packet packet = {
		.bytes = frame, .captured = n, .size = n, .comment = "datagram", .dropped = 1};
	const struct ip_fields ip = {.source = path->source, .destination = path->destination};
	uint16_t id;

	MUST(head == UDP_HEADER + (ip_is_v4(path->destination) ? 20 : 40));
	MUST(!memcmp(frame + head, bytes, size - WIRE_ICRC));
	MUST(icrc_matches(path, frame + head, size, &id) && id == 0);

	uint8_t *block = malloc(PCAPNG_ROOM + n), *small = malloc(n);

	MUST(pcapng_packet(block, PCAPNG_ROOM + n, &packet) > n);
	MUST(pcapng_packet(small, n, &packet) == 0);
	free(small);
	grh_write(grh, &ip, size);
	free(grh);
	free(block);
}

static void check_address(const struct icrc_path *path, int family)
{
	struct sockaddr_storage address;
	uint8_t gid[16];
	uint16_t port;

	if (!flow_address(path->source, path->source_port, 1, family, &address))
		return;
	MUST(flow_gid((const struct sockaddr *)&address, gid, &port));
	MUST(!memcmp(gid, path->source, 16) && port == path->source_port);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint8_t flags = input_u8(&in);
	struct icrc_path path;
	struct packet p;
	uint16_t id;

	read_path(&in, flags & IS_V6, &path, &id);
	check_address(&path, AF_INET);
	check_address(&path, AF_INET6);

	/* In a block of its own, so that reads beyond it are detected. */
	size_t n = (in.end - in.at) & (flags & WHOLE_WORDS ? ~(size_t)3 : ~(size_t)0);
	uint8_t *bytes = malloc(n ? n : 1);

	memcpy(bytes, in.at, n);
	if (flags & MEND_ICRC && n >= WIRE_BTH + WIRE_ICRC)
		icrc_write(icrc_begin(&path, n, id), bytes, n);

	enum packet_error error = packet_decode(bytes, n, &p);

	MUST(error < PACKET_ERRORS && packet_error_name(error));
	if (error == PACKET_OK) {
		check_fields(bytes, n, &p);
		check_capture(&path, bytes, n);
	}
	if (n >= WIRE_BTH + WIRE_ICRC)
		check_icrc(&path, bytes, n, id);
	free(bytes);
	return 0;
}
