/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets of two kernel rxe peers (golden/): the codec decodes each, finds its ICRC correct, and
 * encodes the fields to the same bytes.
 */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>
#include <cmocka.h>

#include "wire/icrc.h"
#include "wire/packet.h"

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, UDP = 8 };

/* Totals over all captures, which would show a codec that skips packets. */
struct seen {
	int packets, with_id, ipv6;
	int opcodes[256];
};

struct datagram {
	struct icrc_path path;
	uint16_t id;
	bool is_ipv6;
	const uint8_t *packet;
	size_t size;
};

static uint16_t get16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

static void map_ipv4(uint8_t gid[16], const uint8_t *address)
{
	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 12, address, 4);
}

/* False: not a RoCEv2 packet. */
static bool parse(const uint8_t *frame, size_t size, struct datagram *d)
{
	const uint8_t *ip = frame + ETHERNET, *udp;

	if (size < ETHERNET + IPV4 + UDP)
		return false;
	d->is_ipv6 = get16(frame + 12) == 0x86dd;
	if (d->is_ipv6 ? size < ETHERNET + IPV6 + UDP : get16(frame + 12) != 0x0800)
		return false;
	udp = ip + (d->is_ipv6 ? IPV6 : IPV4);
	if (ip[d->is_ipv6 ? 6 : 9] != IPPROTO_UDP || get16(udp + 2) != WIRE_PORT)
		return false;
	if (d->is_ipv6) {
		memcpy(d->path.source, ip + 8, 16);
		memcpy(d->path.destination, ip + 24, 16);
		d->id = 0;
	} else {
		assert_int_equal(ip[0], 0x45);
		map_ipv4(d->path.source, ip + 12);
		map_ipv4(d->path.destination, ip + 16);
		d->id = get16(ip + 4);
	}
	d->path.source_port = get16(udp);
	d->path.destination_port = get16(udp + 2);
	d->packet = udp + UDP;
	d->size = get16(udp + 4) - UDP;
	assert_true(d->packet + d->size <= frame + size);
	return true;
}

/* Its ICRC is another one, see wire/icrc.h. */
static bool is_flush(const struct datagram *d)
{
	return d->packet[0] == (PACKET_RC | OP_FLUSH);
}

static void check_icrc(const struct datagram *d)
{
	uint16_t id;

	if (is_flush(d)) {
		assert_false(icrc_matches(&d->path, d->packet, d->size, &id));
		assert_true(icrc_matches_doubled(&d->path, d->packet, d->size, &id));
		assert_int_equal(id, d->id);
		return;
	}
	const uint8_t *at = d->packet + d->size - WIRE_ICRC;
	uint32_t there = at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;

	assert_int_equal(icrc_packet(icrc_begin(&d->path, d->size, d->id), d->packet, d->size),
			 there);
	assert_true(icrc_matches(&d->path, d->packet, d->size, &id));
	assert_int_equal(id, d->id);
}

static void check_encoder(const struct datagram *d, const struct packet *p)
{
	uint8_t bytes[WIRE_PACKET_MAX];
	uint32_t n = packet_encode(p, bytes);

	memcpy(bytes + n, p->payload, p->length);
	memset(bytes + n + p->length, 0, packet_padding(p->length));
	icrc_write(icrc_begin(&d->path, d->size, d->id), bytes, d->size);
	if (is_flush(d))
		icrc_double(bytes, d->size);
	assert_memory_equal(bytes, d->packet, d->size);
}

static void check_file(const char *name, struct seen *seen)
{
	char path[4096], error[PCAP_ERRBUF_SIZE];
	struct pcap_pkthdr *header;
	const uint8_t *frame;

	snprintf(path, sizeof(path), "%s/tests/unit/wire/golden/%s", getenv("VERBENA_SOURCE_DIR"),
		 name);

	pcap_t *capture = pcap_open_offline(path, error);

	if (!capture)
		fail_msg("%s", error);
	while (pcap_next_ex(capture, &header, &frame) == 1) {
		struct datagram d;
		struct packet p;

		assert_int_equal(header->caplen, header->len);
		if (!parse(frame, header->caplen, &d))
			continue;
		assert_int_equal(packet_decode(d.packet, d.size, &p), PACKET_OK);
		check_icrc(&d);
		check_encoder(&d, &p);
		seen->packets++;
		seen->with_id += d.id != 0;
		seen->ipv6 += d.is_ipv6;
		seen->opcodes[p.opcode]++;
	}
	pcap_close(capture);
}

static void test_golden(void **state)
{
	struct seen seen = {0};
	char room[32];

	(void)state;
	if (!getenv("VERBENA_SOURCE_DIR"))
		fail_msg("VERBENA_SOURCE_DIR isn't set (ctest sets it)");
	check_file("rxe-cm-req.pcap", &seen);
	check_file("rxe-misc-session.pcap", &seen);
	check_file("rxe-rc-session.pcap", &seen);
	check_file("rxe-placement.pcap", &seen);
	print_message("%d packets, %d with an identification, %d over IPv6\n", seen.packets,
		      seen.with_id, seen.ipv6);
	assert_int_equal(seen.packets, 235);
	assert_int_equal(seen.with_id, 218);
	assert_int_equal(seen.ipv6, 17);
	for (int opcode = 0; opcode < 256; opcode++)
		if (seen.opcodes[opcode])
			print_message("%4d %s\n", seen.opcodes[opcode],
				      packet_opcode_name(opcode, room));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
