/* SPDX-License-Identifier: BSD-2-Clause */
/* Flow rules' specifications against frames, checksums, and the hash that spreads frames. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include "wire/steer.h"
#include "wire/toeplitz.h"

/* ------------------------------------------------------------------ frames */

struct bytes {
	uint8_t at[256];
	size_t n;
};

static void add(struct bytes *b, const char *hex)
{
	int digits = 0, value = 0;

	for (; *hex; hex++) {
		if (*hex == ' ')
			continue;
		value = value * 16 + (*hex <= '9' ? *hex - '0' : *hex - 'a' + 10);
		if (++digits % 2 == 0) {
			b->at[b->n++] = (uint8_t)value;
			value = 0;
		}
	}
}

#define MACS "020000000001 020000000002"
#define UDP_HEADER "04d2 162e 0010 0000 0102030405060708"

static struct bytes frame_of(const char *hex)
{
	struct bytes b = {.n = 0};

	add(&b, hex);
	return b;
}

static struct bytes udp_v4(void)
{
	return frame_of(MACS "0800"
			     "45 10 0024 0001 4000 40 11 0000 01010101 02020202" UDP_HEADER);
}

static struct bytes udp_v6(void)
{
	/* with a destination options header */
	return frame_of(MACS "86dd"
			     "6123 4567 0018 3c 09"
			     "a0a10000000000000000000000000001 b0b10000000000000000000000000002"
			     "11 00 010400000000" UDP_HEADER);
}

/* ------------------------------------------------------------------ specifications */

struct list {
	uint8_t at[STEER_BYTES];
	size_t n;
	unsigned int count;
};

/* Adds a specification: value and mask in hexadecimal. */
static void spec(struct list *list, uint32_t type, const char *value, const char *mask)
{
	struct bytes v = frame_of(value), m = frame_of(mask);
	struct ib_uverbs_flow_spec_hdr header = {.type = type,
						 .size = (uint16_t)(sizeof(header) + v.n + m.n)};

	memcpy(list->at + list->n, &header, sizeof(header));
	memcpy(list->at + list->n + sizeof(header), v.at, v.n);
	memcpy(list->at + list->n + sizeof(header) + v.n, m.at, m.n);
	list->n += header.size;
	list->count++;
}

static int check(const struct list *list)
{
	struct steer_actions actions;
	const char *why;

	return steer_check(list->at, list->n, list->count, &actions, &why);
}

static bool matches(const struct list *list, const struct bytes *frame)
{
	struct ether_frame parsed;

	assert_int_equal(check(list), 0);
	ether_parse(frame->at, frame->n, &parsed);
	return steer_matches(list->at, list->n, &parsed);
}

/* One specification against one frame. */
static bool one(uint32_t type, const char *value, const char *mask, struct bytes frame)
{
	struct list list = {.n = 0};

	spec(&list, type, value, mask);
	return matches(&list, &frame);
}

#define NO_ETH "000000000000 000000000000 0000 0000"
#define FULL_ETH "ffffffffffff ffffffffffff ffff 0000"

static void ethernet(void **state)
{
	struct bytes tagged = frame_of(MACS "8100 6123 0800");

	(void)state;
	assert_true(one(IBV_FLOW_SPEC_ETH, MACS "0800 0000", FULL_ETH, udp_v4()));
	assert_false(one(IBV_FLOW_SPEC_ETH, MACS "86dd 0000", FULL_ETH, udp_v4()));
	assert_false(
		one(IBV_FLOW_SPEC_ETH, "020000000003 020000000002 0800 0000", FULL_ETH, udp_v4()));
	assert_true(one(IBV_FLOW_SPEC_ETH, NO_ETH, NO_ETH, udp_v4()));
	/* The type is that behind the tags. */
	assert_true(one(IBV_FLOW_SPEC_ETH, MACS "0800 0000", FULL_ETH, tagged));
	assert_true(one(IBV_FLOW_SPEC_ETH, "000000000000 000000000000 0000 0123",
			"000000000000 000000000000 0000 0fff", tagged));
	assert_false(one(IBV_FLOW_SPEC_ETH, "000000000000 000000000000 0000 0124",
			 "000000000000 000000000000 0000 0fff", tagged));
	assert_false(
		one(IBV_FLOW_SPEC_ETH, NO_ETH, "000000000000 000000000000 0000 0fff", udp_v4()));
	assert_false(one(IBV_FLOW_SPEC_ETH, NO_ETH, NO_ETH, frame_of("0102030405")));
}

static void ip(void **state)
{
	(void)state;
	assert_true(one(IBV_FLOW_SPEC_IPV4, "01010101 02020202", "ffffffff ffffff00", udp_v4()));
	assert_false(one(IBV_FLOW_SPEC_IPV4, "01010102 02020202", "ffffffff ffffff00", udp_v4()));
	assert_true(one(IBV_FLOW_SPEC_IPV4, "01010101 02020202 11 10 40 02",
			"ffffffff ffffffff ff ff ff ff", udp_v4()));
	assert_false(one(IBV_FLOW_SPEC_IPV4, "01010101 02020202 06 00 00 00",
			 "00000000 00000000 ff 00 00 00", udp_v4()));
	assert_false(one(IBV_FLOW_SPEC_IPV4, "00000000 00000000", "00000000 00000000", udp_v6()));
	assert_true(one(IBV_FLOW_SPEC_IPV6,
			"a0a10000000000000000000000000001 b0b10000000000000000000000000002"
			"00034567 11 12 09 00",
			"ffffffffffffffffffffffffffffffff ffffffffffffffffffffffffffffffff"
			"000fffff ff ff ff 00",
			udp_v6()));
	assert_false(one(IBV_FLOW_SPEC_IPV6,
			 "a0a10000000000000000000000000001 b0b10000000000000000000000000002"
			 "00034567 11 13 09 00",
			 "ffffffffffffffffffffffffffffffff ffffffffffffffffffffffffffffffff"
			 "000fffff ff ff ff 00",
			 udp_v6()));
}

static void ports(void **state)
{
	struct bytes later = udp_v4();

	(void)state;
	/* The destination comes first. */
	assert_true(one(IBV_FLOW_SPEC_UDP, "162e 04d2", "ffff ffff", udp_v4()));
	assert_true(one(IBV_FLOW_SPEC_UDP, "162e 04d2", "ffff ffff", udp_v6()));
	assert_false(one(IBV_FLOW_SPEC_UDP, "04d2 162e", "ffff ffff", udp_v4()));
	assert_false(one(IBV_FLOW_SPEC_TCP, "0000 0000", "0000 0000", udp_v4()));
	later.at[14 + 7] = 3; /* a later fragment has no ports */
	assert_false(one(IBV_FLOW_SPEC_UDP, "162e 04d2", "ffff ffff", later));
	later.at[14 + 7] = 0;
	later.at[14 + 9] = 50;
	assert_true(one(IBV_FLOW_SPEC_ESP, "04d2162e 00100000", "ffffffff ffffffff", later));
	later.n = 14 + 20 + 3;
	assert_false(one(IBV_FLOW_SPEC_ESP, "04d2162e 00100000", "ffffffff ffffffff", later));
}

#define V4(protocol) "45 00 0060 0000 0000 40 " protocol " 0000 0a000001 0a000002"

static void tunnels(void **state)
{
	struct bytes vxlan = frame_of(
		MACS "0800" V4("11") "1111 12b5 0050 0000 08000000 012345 00"
				     "060000000001 060000000002 0800" V4("06") "0007 0008");
	struct bytes gre = frame_of(
		MACS "0800" V4("2f") "a000 0800 0000 0000 00001234" V4("11") "0007 0008 0008 0000");
	struct list list = {.n = 0};

	(void)state;
	assert_true(one(IBV_FLOW_SPEC_VXLAN_TUNNEL, "00012345", "ffffffff", vxlan));
	assert_false(one(IBV_FLOW_SPEC_VXLAN_TUNNEL, "00012346", "ffffffff", vxlan));
	assert_true(one(IBV_FLOW_SPEC_GRE, "2000 0800 00001234", "2000 ffff ffffffff", gre));
	assert_false(one(IBV_FLOW_SPEC_GRE, "2000 0800 00001235", "2000 ffff ffffffff", gre));
	assert_false(one(IBV_FLOW_SPEC_GRE, "0000 0000 00000000", "0000 0000 00000000", vxlan));
	assert_true(one(IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER, "0008 0007", "ffff ffff", gre));
	spec(&list, IBV_FLOW_SPEC_VXLAN_TUNNEL, "00012345", "ffffffff");
	spec(&list, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, "060000000001 000000000000 0000 0000",
	     "ffffffffffff 000000000000 0000 0000");
	spec(&list, IBV_FLOW_SPEC_TCP | IBV_FLOW_SPEC_INNER, "0008 0000", "ffff 0000");
	assert_true(matches(&list, &vxlan));
	assert_false(matches(&list, &gre));
}

static void labels(void **state)
{
	struct bytes plain = frame_of(MACS "8847 00011040 00012140" V4("11") "0007 0008 0008 0000");
	struct bytes in_udp =
		frame_of(MACS "0800" V4("11") "1111 19eb 0050 0000 00033140" V4("06") "0007 0008");
	struct list list = {.n = 0};

	(void)state;
	assert_true(one(IBV_FLOW_SPEC_MPLS, "00011000", "fffff000", plain));
	assert_false(one(IBV_FLOW_SPEC_MPLS, "00012000", "fffff000", plain));
	assert_true(one(IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_INNER, "0008 0007", "ffff ffff", plain));
	assert_false(one(IBV_FLOW_SPEC_MPLS, "00033000", "fffff000", in_udp));
	spec(&list, IBV_FLOW_SPEC_UDP, "0000 0000", "0000 0000");
	spec(&list, IBV_FLOW_SPEC_MPLS, "00033000", "fffff000");
	assert_true(matches(&list, &in_udp));
	assert_false(matches(&list, &plain));
}

static void refused(void **state)
{
	struct list list = {.n = 0};

	(void)state;
	spec(&list, IBV_FLOW_SPEC_UDP, "0000 0000", "0000 0000");
	list.n--;
	assert_int_equal(check(&list), -EINVAL);
	list.n++;
	list.count = 0;
	assert_int_equal(check(&list), -EINVAL);
	list.count = 2;
	assert_int_equal(check(&list), -EINVAL);
	list.count = 1;
	assert_int_equal(check(&list), 0);
	spec(&list, IBV_FLOW_SPEC_TCP, "0000 0000", "0000 0000");
	assert_int_equal(check(&list), -EINVAL);
	list = (struct list){.n = 0};
	spec(&list, IBV_FLOW_SPEC_ETH, "0000 0000", "0000 0000");
	assert_int_equal(check(&list), -EINVAL);
	list = (struct list){.n = 0};
	spec(&list, 0x77, "0000 0000", "0000 0000");
	assert_int_equal(check(&list), -EOPNOTSUPP);
	list = (struct list){.n = 0};
	spec(&list, IBV_FLOW_SPEC_ACTION_HANDLE, "00000000", "00000000");
	assert_int_equal(check(&list), -EOPNOTSUPP);
	list = (struct list){.n = 0};
	spec(&list, IBV_FLOW_SPEC_GRE | IBV_FLOW_SPEC_INNER, "0000000000000000",
	     "0000000000000000");
	assert_int_equal(check(&list), -EOPNOTSUPP);
}

/* ------------------------------------------------------------------ checksums, hash */

static void checksums(void **state)
{
	struct bytes frame = udp_v4();

	(void)state;
	assert_false(ether_checksums_right(frame.at, frame.n));
	ether_checksums_fill(frame.at, frame.n);
	assert_true(ether_checksums_right(frame.at, frame.n));
	/* Padding isn't covered. */
	assert_true(ether_checksums_right(frame.at, frame.n + 10));
	frame.at[frame.n - 1] ^= 1;
	assert_false(ether_checksums_right(frame.at, frame.n));
	frame.at[frame.n - 1] ^= 1;
	frame.at[14 + 8]--;
	assert_false(ether_checksums_right(frame.at, frame.n));
	frame.at[14 + 8]++;
	assert_false(ether_checksums_right(frame.at, frame.n - 1));
	memset(frame.at + 14 + 20 + 6, 0, 2); /* UDP without a checksum */
	assert_true(ether_checksums_right(frame.at, frame.n));
}

/* The examples that Microsoft publishes with the definition of receive side scaling. */
static void hashes(void **state)
{
	struct bytes key = frame_of("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b4"
				    "77cb2da38030f20c6a42b73bbeac01fa");
	struct bytes v4 = frame_of("420995bb a18e6450 0aea 06e6");
	struct bytes tcp = frame_of(MACS "0800 45 00 0028 0000 0000 40 06 0000 420995bb a18e6450"
					 "0aea 06e6");
	struct ether_frame parsed;

	(void)state;
	assert_int_equal(toeplitz_hash(key.at, v4.at, 8), 0x323e8fc2);
	assert_int_equal(toeplitz_hash(key.at, v4.at, 12), 0x51ccc178);
	ether_parse(tcp.at, tcp.n, &parsed);
	assert_int_equal(
		toeplitz_frame(key.at, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, &parsed),
		0x323e8fc2);
	assert_int_equal(toeplitz_frame(key.at,
					IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 |
						IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP,
					&parsed),
			 0x51ccc178);
	assert_int_equal(toeplitz_frame(key.at, IBV_RX_HASH_SRC_IPV6, &parsed), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ethernet),  cmocka_unit_test(ip),     cmocka_unit_test(ports),
		cmocka_unit_test(tunnels),   cmocka_unit_test(labels), cmocka_unit_test(refused),
		cmocka_unit_test(checksums), cmocka_unit_test(hashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
