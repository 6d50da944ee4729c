/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage: capture_sample FILE.pcapng
 * Writes a capture with a packet of every opcode, over IPv4 and IPv6, with several lengths, and
 * prints a line of each: what capture.py is to find in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"
#include "wire/pcapng.h"

static FILE *file;
static int number;

static void put_block(const uint8_t *block, size_t size)
{
	if (!size || fwrite(block, 1, size, file) != size) {
		fprintf(stderr, "capture_sample: can't write\n");
		exit(1);
	}
}

static struct icrc_path path_of(bool is_v6)
{
	struct icrc_path path = {.source = {[10] = 0xff, 0xff, 10, 77, 0, 2},
				 .destination = {[10] = 0xff, 0xff, 10, 77, 0, 3},
				 .source_port = 0xc0de,
				 .destination_port = WIRE_PORT};

	if (is_v6) {
		path.source[0] = path.destination[0] = 0xfd;
		path.source[1] = path.destination[1] = 0x77;
	}
	return path;
}

static void put_packet(uint8_t opcode, uint32_t length, bool is_v6)
{
	const struct packet p = {.opcode = opcode,
				 .solicited = number & 1,
				 .ack_request = number & 2,
				 .migreq = true,
				 .pkey = WIRE_PKEY,
				 .dest_qpn = 0x1000 + number,
				 .psn = (0xfffff0 + number) & 0xffffff,
				 .qkey = 0x11111111,
				 .src_qpn = 0x2000 + number,
				 .srqn = 0x3000 + number,
				 .addr = 0x7f0012345678,
				 .rkey = 0xbeef,
				 .dma_length = 1000000,
				 .swap_add = 1,
				 .compare = 2,
				 .syndrome = AETH_ACK | AETH_NO_CREDITS,
				 .msn = number,
				 .original = 3,
				 .imm = 0x44332211,
				 .length = packet_transport(opcode) == PACKET_CNP ? WIRE_CNP_PAYLOAD
					   : packet_layout(opcode) & HAS_PAYLOAD  ? length
										  : 0};
	const struct icrc_path path = path_of(is_v6);
	uint8_t bytes[WIRE_PACKET_MAX] = {0}, frame[FRAME_MAX], block[PCAPNG_ROOM + FRAME_MAX];
	uint32_t headers = packet_encode(&p, bytes);
	char comment[40], name[32];

	memset(bytes + headers, 0xee, p.length);
	snprintf(comment, sizeof(comment), "%s", packet_opcode_name(opcode, name));

	size_t size = frame_make(frame, &path, NULL, bytes,
				 headers + p.length + packet_padding(p.length));
	const struct pcapng_packet packet = {.interface = is_v6,
					     .time_ns = 1700000000000000001 + number,
					     .bytes = frame,
					     .captured = size,
					     .size = size,
					     .direction = number & 1 ? PCAPNG_IN : PCAPNG_OUT,
					     .comment = comment};

	put_block(block, pcapng_packet(block, sizeof(block), &packet));
	printf("%d\t%d\t%u\t%u\t%u\t%s\n", is_v6, opcode, p.dest_qpn, p.psn, p.length, comment);
	number++;
}

int main(int argc, char **argv)
{
	static const uint32_t lengths[] = {0, 1, 2, 3, 64, 1024, 4096};
	uint8_t block[PCAPNG_ROOM];

	file = argc == 2 ? fopen(argv[1], "wb") : NULL;
	if (!file) {
		fprintf(stderr, "usage: capture_sample FILE.pcapng\n");
		return 2;
	}
	put_block(block, pcapng_section(block, sizeof(block), "capture_sample"));
	put_block(block, pcapng_interface(block, sizeof(block), PCAPNG_RAW, 0, "verbena0", "IPv4"));
	put_block(block, pcapng_interface(block, sizeof(block), PCAPNG_RAW, 0, "verbena1", "IPv6"));
	for (int opcode = 0; opcode < 256; opcode++)
		for (size_t i = 0;
		     packet_layout(opcode) && i < sizeof(lengths) / sizeof(lengths[0]); i++)
			for (int is_v6 = 0; is_v6 < 2; is_v6++)
				put_packet(opcode, lengths[i], is_v6);
	return fclose(file) ? 1 : 0;
}
