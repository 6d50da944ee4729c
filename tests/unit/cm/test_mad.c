/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of the CM: those that two kernel peers sent (tests/unit/wire/golden) decode to what the
 * programs had asked for and encode to the same bytes; anything else decodes or is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pcap/pcap.h>
#include <cmocka.h>

#include "cm/mad.h"
#include "wire/packet.h"

enum { ETHERNET = 14, UDP = 8 };

struct seen {
	int messages[CM_MESSAGES];
};

/* The MAD in a frame; NULL: there is none. */
static const uint8_t *find_mad(const uint8_t *frame, size_t size)
{
	size_t ip = frame[12] == 0x86 ? 40 : 20, at = ETHERNET + ip + UDP;
	struct packet p;

	if ((frame[12] != 0x86 && frame[12] != 0x08) || size < at ||
	    frame[ETHERNET + (ip == 40 ? 6 : 9)] != 17 ||
	    (frame[at - 6] << 8 | frame[at - 5]) != WIRE_PORT ||
	    packet_decode(frame + at, size - at, &p) != PACKET_OK || p.dest_qpn != MAD_GSI_QPN)
		return NULL;
	assert_int_equal(p.qkey, MAD_GSI_QKEY);
	assert_int_equal(p.length, MAD_SIZE);
	return p.payload;
}

static void check_request(const struct cm_mad *mad)
{
	struct cm_ip ip;
	uint8_t header[CM_IP_HEADER];

	assert_int_equal(mad->ca_guid, 0x505400fffe770001ull);
	assert_int_equal(mad->service_id >> 16, 0x0106);
	assert_int_equal(mad->remote_timeout, 20);
	assert_int_equal(mad->local_timeout, 20);
	assert_int_equal(mad->max_retries, 15);
	assert_int_equal(mad->retry_count, 7);
	assert_int_equal(mad->rnr_retry, 7);
	assert_int_equal(mad->mtu, 3);
	assert_int_equal(mad->pkey, 0xffff);
	assert_int_equal(mad->primary.ack_timeout, 19);
	assert_int_equal(mad->primary.hop_limit, 64);
	assert_true(cm_ip_decode(mad->private_data, &ip));
	assert_memory_equal(ip.source, mad->primary.local_gid, 16);
	assert_memory_equal(ip.destination, mad->primary.remote_gid, 16);
	cm_ip_encode(&ip, header);
	assert_memory_equal(header, mad->private_data, CM_IP_HEADER);
}

static void check_mad(const uint8_t *bytes, struct seen *seen)
{
	uint8_t again[MAD_SIZE];
	struct cm_mad mad;

	assert_int_equal(cm_mad_decode(bytes, &mad), CM_MAD_OK);
	cm_mad_encode(&mad, again);
	assert_memory_equal(again, bytes, MAD_SIZE);
	seen->messages[mad.message]++;
	assert_int_not_equal(mad.local_id, 0);
	if (mad.message == CM_REQ)
		check_request(&mad);
	if (mad.message == CM_REJ)
		assert_int_equal(mad.reason, CM_REJECT_TIMEOUT);
	if (mad.message == CM_REP)
		assert_int_equal(mad.ca_guid, 0x505400fffe770002ull);
	if (mad.message == CM_SIDR_REP)
		assert_int_equal(mad.qkey, 0x01234567);
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
		const uint8_t *mad = find_mad(frame, header->caplen);

		if (mad)
			check_mad(mad, seen);
	}
	pcap_close(capture);
}

static void test_golden(void **state)
{
	static const int expected[CM_MESSAGES] = {
		[CM_REQ] = 6,  [CM_REJ] = 1,  [CM_REP] = 3,	 [CM_RTU] = 3,
		[CM_DREQ] = 3, [CM_DREP] = 3, [CM_SIDR_REQ] = 1, [CM_SIDR_REP] = 1,
	};
	struct seen seen = {0};

	(void)state;
	check_file("rxe-cm-req.pcap", &seen);
	check_file("rxe-misc-session.pcap", &seen);
	check_file("rxe-rc-session.pcap", &seen);
	for (int i = 0; i < CM_MESSAGES; i++)
		if (seen.messages[i] != expected[i])
			fail_msg("%d of %s, not %d", seen.messages[i], cm_message_name(i),
				 expected[i]);
}

static uint32_t random_state = 1;

static uint8_t random_byte(void)
{
	random_state = random_state * 1664525 + 1013904223;
	return random_state >> 24;
}

/* Each field has its bits: what all bytes decode to is encoded and decodes to the same. */
static void test_any_bytes(void **state)
{
	uint8_t bytes[MAD_SIZE], again[MAD_SIZE];
	struct cm_mad mad, twice;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		for (int j = 0; j < MAD_SIZE; j++)
			bytes[j] = i % 5 ? random_byte() : 0xff;
		bytes[0] = 1, bytes[1] = 7, bytes[2] = 2, bytes[3] = 3;
		bytes[16] = 0, bytes[17] = 0x10 + i % CM_MESSAGES;
		assert_int_equal(cm_mad_decode(bytes, &mad), CM_MAD_OK);
		cm_mad_encode(&mad, again);
		assert_int_equal(cm_mad_decode(again, &twice), CM_MAD_OK);
		assert_memory_equal(&mad, &twice, sizeof(mad));
		uint32_t size = cm_private_size(mad.message);

		assert_memory_equal(again + MAD_SIZE - size, bytes + MAD_SIZE - size, size);
	}
}

/* The places of a LAP's fields in the specification, which no kernel peer has sent here. */
static void test_lap(void **state)
{
	const struct cm_mad mad = {.message = CM_LAP,
				   .local_id = 0x01020304,
				   .remote_id = 0x05060708,
				   .qpn = 0x111213,
				   .remote_timeout = 20,
				   .alternate = {.local_lid = 0x2021,
						 .remote_lid = 0x2223,
						 .local_gid = {0xfe, 0x80, [15] = 1},
						 .remote_gid = {0xfe, 0x80, [15] = 2},
						 .flow_label = 0xabcde,
						 .traffic_class = 0x30,
						 .hop_limit = 0x31,
						 .rate = 16,
						 .sl = 5,
						 .subnet_local = 1,
						 .ack_timeout = 14}};
	static const uint8_t body[64] = {1,    2,	    3,	  4,	5,	  6,	7,
					 8,    [12] = 0x11, 0x12, 0x13, 0xa0,	  0,	0,
					 0,    0,	    0x20, 0x21, 0x22,	  0x23, 0xfe,
					 0x80, [39] = 1,    0xfe, 0x80, [55] = 2, 0xab, 0xcd,
					 0xe0, 0x30,	    0x31, 0x10, 0x58,	  0x70};
	uint8_t bytes[MAD_SIZE];
	struct cm_mad again;

	(void)state;
	cm_mad_encode(&mad, bytes);
	assert_memory_equal(bytes + MAD_HEADER, body, sizeof(body));
	assert_int_equal(cm_mad_decode(bytes, &again), CM_MAD_OK);
	assert_memory_equal(&again, &mad, sizeof(mad));
}

static void test_refused(void **state)
{
	const struct cm_mad right = {.message = CM_DREQ, .local_id = 1};
	static const struct {
		int at;
		uint8_t value;
		enum cm_mad_error error;
	} wrong[] = {
		{0, 2, CM_MAD_VERSION},	      {1, 3, CM_MAD_CLASS},
		{2, 1, CM_MAD_VERSION},	      {3, 1, CM_MAD_METHOD},
		{16, 1, CM_MAD_ATTRIBUTE},    {17, 0x0f, CM_MAD_ATTRIBUTE},
		{17, 0x1b, CM_MAD_ATTRIBUTE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint8_t bytes[MAD_SIZE];
		struct cm_mad mad;

		cm_mad_encode(&right, bytes);
		assert_int_equal(cm_mad_decode(bytes, &mad), CM_MAD_OK);
		bytes[wrong[i].at] = wrong[i].value;
		assert_int_equal(cm_mad_decode(bytes, &mad), wrong[i].error);
		assert_non_null(cm_mad_error_name(wrong[i].error));
	}
}

static void test_ip_header(void **state)
{
	uint8_t bytes[CM_IP_HEADER] = {0};
	struct cm_ip ip;

	(void)state;
	assert_false(cm_ip_decode(bytes, &ip));
	bytes[1] = 0x50;
	assert_false(cm_ip_decode(bytes, &ip));
	bytes[1] = 0x40;
	assert_true(cm_ip_decode(bytes, &ip));
	bytes[0] = 0x10;
	assert_false(cm_ip_decode(bytes, &ip));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),	  cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_lap),	  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_ip_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
