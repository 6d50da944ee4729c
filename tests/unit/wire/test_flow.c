/* SPDX-License-Identifier: BSD-2-Clause */
/* GIDs and socket addresses, flow labels and source ports, IP headers and the GRH of a receive. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/flow.h"
#include "wire/frame.h"
#include "wire/grh.h"

static const uint8_t v4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 7};
static const uint8_t v4_peer[16] = {[10] = 0xff, 0xff, 192, 0, 2, 8};
static const uint8_t v6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 7};
static const uint8_t v6_peer[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 8};
static const uint8_t local[16] = {0xfe, 0x80, [15] = 9};

static const uint8_t v4_group[16] = {[10] = 0xff, 0xff, 224, 1, 2, 3};
static const uint8_t v4_last[16] = {[10] = 0xff, 0xff, 239, 255, 255, 255};
static const uint8_t v4_class_e[16] = {[10] = 0xff, 0xff, 240, 0, 0, 1};
static const uint8_t v6_group[16] = {0xff, 0x0e, [15] = 1};

static void there_and_back(const uint8_t gid[16], int family, socklen_t size, const char *text)
{
	struct sockaddr_storage address;
	const void *raw = family == AF_INET
				  ? (const void *)&((struct sockaddr_in *)&address)->sin_addr
				  : (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
	uint8_t back[16];
	uint16_t port;
	char name[INET6_ADDRSTRLEN];

	assert_int_equal(flow_address(gid, 4791, 3, family, &address), size);
	assert_int_equal(address.ss_family, family);
	assert_string_equal(inet_ntop(family, raw, name, sizeof(name)), text);
	assert_true(flow_gid((struct sockaddr *)&address, back, &port));
	assert_memory_equal(back, gid, 16);
	assert_int_equal(port, 4791);
}

static void test_addresses(void **state)
{
	struct sockaddr_storage address;
	struct sockaddr_in6 *in6 = (void *)&address;
	const struct sockaddr other = {.sa_family = AF_UNIX};
	uint8_t gid[16];
	uint16_t port;

	(void)state;
	there_and_back(v4, AF_INET, sizeof(struct sockaddr_in), "192.0.2.7");
	there_and_back(v4, AF_INET6, sizeof(struct sockaddr_in6), "::ffff:192.0.2.7");
	there_and_back(v6, AF_INET6, sizeof(struct sockaddr_in6), "2001:db8::7");
	assert_int_equal(flow_address(v6, 4791, 3, AF_INET, &address), 0);
	flow_address(v6, 4791, 3, AF_INET6, &address);
	assert_int_equal(in6->sin6_scope_id, 0);
	assert_int_equal(flow_address(local, 4791, 3, AF_INET6, &address), sizeof(*in6));
	assert_int_equal(in6->sin6_scope_id, 3);
	assert_int_equal(flow_address(local, 4791, 0, AF_INET6, &address), 0);
	assert_false(flow_gid(&other, gid, &port));
}

static void test_link_local(void **state)
{
	static const uint8_t last[16] = {0xfe, 0xbf}, site[16] = {0xfe, 0xc0};

	(void)state;
	assert_true(flow_is_link_local(local));
	assert_true(flow_is_link_local(last));
	assert_false(flow_is_link_local(site));
	assert_false(flow_is_link_local(v4));
	assert_false(flow_is_link_local(v6));
}

/* Worked out by hand from the rule's definition. */
static void test_source_ports(void **state)
{
	(void)state;
	assert_int_equal(flow_source_port(0), 0xc000);
	assert_int_equal(flow_source_port(0x3fff), 0xffff);
	assert_int_equal(flow_source_port(0xfc000), 0xc03f);
	assert_int_equal(flow_source_port(0x12345), 0xc000 | (0x2345 ^ 0x04));
	assert_int_equal(flow_source_port(0xfffff), 0xc000 | (0x3fff ^ 0x3f));
	assert_int_equal(flow_label_of_qps(0x11, 0x12), 0x132);
	/* the product is 0xab0a74ef03a6: 0xf03a6, 0x0a74e and 0xab laid over one another */
	assert_int_equal(flow_label_of_qps(0xabcdef, 0xfedcba), 0xf03a6 ^ 0x0a74e ^ 0xab);
	assert_int_equal(flow_label_of_qps(0xfedcba, 0xabcdef), 0xf03a6 ^ 0x0a74e ^ 0xab);
	assert_true(flow_label_of_qps(0xffffff, 0xffffff) <= 0xfffff);
}

static uint16_t get16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

/* The ones' complement sum over what a checksum covers, it included, is all ones. */
static uint32_t fold(const uint8_t *bytes, size_t size, uint32_t sum)
{
	for (size_t i = 0; i < size; i++)
		sum += i & 1 ? bytes[i] : bytes[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void test_grh_v4(void **state)
{
	static const uint8_t zeros[20];
	const struct ip_fields ip = {.source = v4,
				     .destination = v4_peer,
				     .id = 0x1234,
				     .traffic_class = 0x62,
				     .hop_limit = 63};
	uint8_t grh[GRH_SIZE];

	(void)state;
	memset(grh, 0xa5, sizeof(grh));
	grh_write(grh, &ip, 124);
	assert_memory_equal(grh, zeros, 20);
	assert_memory_equal(grh + 20, "\x45\x62\x00\x98\x12\x34\x40\x00\x3f\x11", 10);
	assert_int_equal(fold(grh + 20, 20, 0), 0xffff);
	assert_memory_equal(grh + 32, "\xc0\x00\x02\x07\xc0\x00\x02\x08", 8);
}

static void test_grh_v6(void **state)
{
	const struct ip_fields ip = {.source = v6,
				     .destination = v6_peer,
				     .flow_label = 0xabcde,
				     .traffic_class = 0x62,
				     .hop_limit = 63};
	uint8_t grh[GRH_SIZE];

	(void)state;
	memset(grh, 0xa5, sizeof(grh));
	grh_write(grh, &ip, 124);
	assert_memory_equal(grh, "\x66\x2a\xbc\xde\x00\x84\x11\x3f", 8);
	assert_memory_equal(grh + 8, v6, 16);
	assert_memory_equal(grh + 24, v6_peer, 16);
}

static void check_frame(const uint8_t *source, const uint8_t *destination, size_t size)
{
	struct icrc_path path = {.source_port = 0xc123, .destination_port = WIRE_PORT};
	uint8_t packet[64], frame[FRAME_MAX];
	uint16_t id;

	memcpy(path.source, source, 16);
	memcpy(path.destination, destination, 16);
	for (size_t i = 0; i < size; i++)
		packet[i] = 0xf0 + i;

	uint32_t ip = ip_is_v4(source) ? 20 : 40;
	const uint8_t *udp = frame + ip;

	assert_int_equal(frame_make(frame, &path, NULL, packet, size), ip + 8 + size + 4);
	if (ip == 20) {
		assert_int_equal(get16(frame + 2), ip + 8 + size + 4);
		assert_int_equal(fold(frame, 20, 0), 0xffff);
	} else {
		assert_int_equal(get16(frame + 4), 8 + size + 4);
	}
	assert_int_equal(get16(udp), 0xc123);
	assert_int_equal(get16(udp + 2), WIRE_PORT);
	assert_int_equal(get16(udp + 4), 8 + size + 4);
	assert_int_not_equal(get16(udp + 6), 0);
	/* the pseudo header: addresses, protocol, length */
	uint32_t addresses = ip == 20 ? 8 : 32;

	assert_int_equal(fold(udp - addresses, addresses + 8 + size + 4, 17 + 8 + size + 4),
			 0xffff);
	assert_memory_equal(udp + 8, packet, size);
	assert_true(icrc_matches(&path, udp + 8, size + 4, &id));
	assert_int_equal(id, 0);

	const struct frame_ip as_received = {.id = 0x4711, .traffic_class = 3, .hop_limit = 9};
	uint8_t again[FRAME_MAX];

	frame_wrap(again, &path, &as_received, udp + 8, size + 4);
	assert_memory_equal(again + ip + 8, udp + 8, size + 4);
	assert_int_equal(again[ip == 20 ? 8 : 7], 9);
	if (ip == 20)
		assert_int_equal(get16(again + 4), 0x4711);
}

static void test_groups(void **state)
{
	struct sockaddr_storage address;
	const struct sockaddr_in6 *in6 = (const void *)&address;

	(void)state;
	assert_true(flow_is_multicast(v4_group) && flow_is_multicast(v4_last));
	assert_true(flow_is_multicast(v6_group));
	assert_false(flow_is_multicast(v4) || flow_is_multicast(v4_class_e));
	assert_false(flow_is_multicast(v6) || flow_is_multicast(local));
	/* They say nothing of an interface, so that goes with them. */
	assert_int_equal(flow_address(v6_group, 4791, 3, AF_INET6, &address), sizeof(*in6));
	assert_int_equal(in6->sin6_scope_id, 3);
	assert_int_equal(flow_address(v6_group, 4791, 0, AF_INET6, &address), sizeof(*in6));
	assert_int_equal(flow_address(v6_group, 4791, 3, AF_INET, &address), 0);
	there_and_back(v4_group, AF_INET, sizeof(struct sockaddr_in), "224.1.2.3");
}

static void test_frames(void **state)
{
	(void)state;
	for (size_t size = 12; size <= 61; size++) {
		check_frame(v4, v4_peer, size);
		check_frame(v6, v6_peer, size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),    cmocka_unit_test(test_link_local),
		cmocka_unit_test(test_source_ports), cmocka_unit_test(test_grh_v4),
		cmocka_unit_test(test_grh_v6),	     cmocka_unit_test(test_frames),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
