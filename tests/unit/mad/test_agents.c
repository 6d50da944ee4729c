/* SPDX-License-Identifier: BSD-2-Clause */
/* src/mad: agents, transaction ids, responses, timeouts and copies, between two ports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire.h"

#include <errno.h>

#define GET (1ull << 1)
#define SET (1ull << 2)
#define PMA 0x04
#define VENDOR 0x32
#define OUI 0x001405

static int begin(void **state)
{
	(void)state;
	wire_begin();
	return 0;
}

static int end(void **state)
{
	(void)state;
	wire_end();
	return 0;
}

static void registration_is_exclusive_on_the_port(void **state)
{
	struct mad_file other;
	struct umad_reg_attr attr = {
		.mgmt_class = PMA, .mgmt_class_version = 1, .method_mask = {SET}};
	uint32_t agent;

	(void)state;
	assert_int_equal(wire_register(LEFT, PMA, 1, 0, GET | SET, 0, &agent), 0);
	assert_int_equal(agent, 0);
	mad_file_open(&other, &wire_ends[LEFT].port, NULL);
	assert_int_equal(mad_file_register(&other, 1, &attr, &agent), -EINVAL);
	attr.method_mask[0] = 1ull << 5; /* another method */
	assert_int_equal(mad_file_register(&other, 1, &attr, &agent), 0);
	attr.mgmt_class_version = 2; /* another version */
	attr.method_mask[0] = GET;
	assert_int_equal(mad_file_register(&other, 1, &attr, &agent), 0);
	assert_int_equal(agent, 1);
	/* The other port is another world, and what is given back is free. */
	assert_int_equal(wire_register(RIGHT, PMA, 1, 0, GET, 0, &agent), 0);
	assert_int_equal(mad_file_unregister(&wire_ends[LEFT].file, 0), 0);
	assert_int_equal(mad_file_unregister(&wire_ends[LEFT].file, 0), -EINVAL);
	attr.mgmt_class_version = 1;
	assert_int_equal(mad_file_register(&other, 1, &attr, &agent), 0);
	mad_file_close(&other);
	assert_int_equal(wire_register(LEFT, PMA, 1, 0, GET, 0, &agent), 0);
}

static void registration_knows_classes(void **state)
{
	static const struct {
		uint8_t mgmt_class, version, rmpp;
		uint32_t oui;
		int result;
	} cases[] = {
		{0x00, 1, 0, 0, -EINVAL}, {0x50, 1, 0, 0, -EINVAL}, {0x80, 1, 0, 0, -EINVAL},
		{0x81, 1, 0, 0, 0},	  {0x01, 1, 0, 0, 0},	    {0x04, 0x83, 0, 0, -EINVAL},
		{0x03, 2, 1, 0, 0},	  {0x03, 2, 2, 0, -EINVAL}, {0x04, 1, 1, 0, -EINVAL},
		{0x32, 1, 0, 0, -EINVAL}, {0x32, 1, 0, OUI, 0},	    {0x32, 1, 0, OUI, -EINVAL},
		{0x32, 1, 1, OUI + 1, 0}, {0x06, 1, 1, 0, 0},	    {0x10, 1, 1, 0, 0},
	};
	uint32_t agent;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(wire_register(LEFT, cases[i].mgmt_class, cases[i].version,
					       cases[i].rmpp, GET, cases[i].oui, &agent),
				 cases[i].result);
	wire_ends[RIGHT].port.is_infiniband = false;
	assert_int_equal(wire_register(RIGHT, 0x01, 1, 0, 0, 0, &agent), -EPROTONOSUPPORT);
	/* Clients without methods are as many as there is room for. */
	for (int i = 0; i < UMAD_CA_MAX_AGENTS; i++)
		assert_int_equal(wire_register(RIGHT, PMA, 1, 0, 0, 0, &agent), 0);
	assert_int_equal(wire_register(RIGHT, PMA, 1, 0, 0, 0, &agent), -ENOMEM);
}

static void unknown_flags_are_named(void **state)
{
	struct umad_reg_attr attr = {.mgmt_class = PMA, .mgmt_class_version = 1, .flags = 6};
	uint32_t agent;

	(void)state;
	assert_int_equal(mad_file_register(&wire_ends[LEFT].file, 1, &attr, &agent), -EINVAL);
	assert_int_equal(attr.flags, UMAD_USER_RMPP);
}

/* What the server got is answered with `method`. */
static void answer(uint32_t agent, uint8_t method)
{
	struct message *request = &wire_ends[RIGHT].got[wire_ends[RIGHT].count - 1];

	request->mad[3] = method;
	assert_int_equal(wire_send(RIGHT, agent, request->mad, MAD_BYTES, 0, 0), 0);
}

static void a_request_finds_its_response(void **state)
{
	uint8_t mad[MAD_BYTES];
	uint32_t client, server;
	struct message *got;

	(void)state;
	assert_int_equal(wire_register(LEFT, PMA, 1, 0, 0, 0, &client), 0);
	assert_int_equal(wire_register(RIGHT, PMA, 1, 0, GET, 0, &server), 0);
	wire_header(mad, PMA, 1, 0x01, 77);
	memset(mad + 24, 0x5a, sizeof mad - 24);
	/* What is shorter than a MAD is filled with zeros. */
	assert_int_equal(wire_send(LEFT, client, mad, 100, 200, 3), 0);
	wire_run(0);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	got = &wire_ends[RIGHT].got[0];
	assert_int_equal(got->bytes, MAD_BYTES);
	assert_int_equal(got->header.status, 0);
	assert_int_equal(got->header.agent_id, server);
	assert_int_equal(be16toh(got->header.addr.lid), LID(LEFT));
	assert_int_equal(got->mad[99], 0x5a);
	assert_int_equal(got->mad[100], 0);
	/* The upper half of the transaction id is the agent's. */
	assert_memory_not_equal(got->mad + 8, "\0\0\0\0", 4);
	assert_memory_equal(got->mad + 12, "\0\0\0\x4d", 4);
	answer(server, 0x81);
	wire_run(0);
	assert_int_equal(wire_ends[LEFT].count, 1);
	assert_memory_equal(wire_ends[LEFT].got[0].mad + 8, got->mad + 8, 8);
	/* A second answer has no request, and no timeout comes. */
	answer(server, 0x81);
	wire_run(10000);
	assert_int_equal(wire_ends[LEFT].count, 1);
	assert_int_equal(wire_ends[LEFT].sent, 1);
}

static void responses_come_in_any_order(void **state)
{
	uint8_t mad[MAD_BYTES] = {0};
	uint32_t client, server;

	(void)state;
	assert_int_equal(wire_register(LEFT, PMA, 1, 0, 0, 0, &client), 0);
	assert_int_equal(wire_register(RIGHT, PMA, 1, 0, GET, 0, &server), 0);
	for (uint32_t tid = 1; tid <= 3; tid++) {
		wire_header(mad, PMA, 1, 0x01, tid);
		assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 200, 0), 0);
	}
	wire_run(0);
	assert_int_equal(wire_ends[RIGHT].count, 3);
	/* The second is answered; the first and the third time out. */
	wire_ends[RIGHT].got[1].mad[3] = 0x81;
	assert_int_equal(wire_send(RIGHT, server, wire_ends[RIGHT].got[1].mad, MAD_BYTES, 0, 0), 0);
	wire_run(1000);
	assert_int_equal(wire_ends[LEFT].count, 3);
	for (int i = 0; i < 3; i++) {
		static const uint8_t order[] = {2, 1, 3};

		assert_int_equal(wire_ends[LEFT].got[i].mad[15], order[i]);
		assert_int_equal(wire_ends[LEFT].got[i].header.status, i ? ETIMEDOUT : 0);
	}
}

static void a_repress_is_a_traps_response(void **state)
{
	uint8_t mad[MAD_BYTES];
	uint32_t client, server;

	(void)state;
	assert_int_equal(wire_register(LEFT, 0x01, 1, 0, 0, 0, &client), 0);
	assert_int_equal(wire_register(RIGHT, 0x01, 1, 0, 1ull << 5, 0, &server), 0);
	wire_header(mad, 0x01, 1, 0x05, 5);
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 200, 3), 0);
	wire_run(0);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	answer(server, 0x07);
	wire_run(1000);
	assert_int_equal(wire_ends[LEFT].count, 1);
	assert_int_equal(wire_ends[LEFT].got[0].header.status, 0);
}

static void a_timeout_comes_after_all_copies(void **state)
{
	uint8_t mad[MAD_BYTES];
	uint32_t client, server;
	struct message *got;

	(void)state;
	assert_int_equal(wire_register(LEFT, PMA, 1, 0, 0, 0, &client), 0);
	assert_int_equal(wire_register(RIGHT, PMA, 1, 0, GET, 0, &server), 0);
	wire_header(mad, PMA, 1, 0x01, 1);
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 200, 3), 0);
	/* The same transaction can't be told from it; another can. */
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 200, 3), -EINVAL);
	mad[15] = 2;
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 0, 0), 0);
	wire_run(794);
	assert_int_equal(wire_ends[RIGHT].count, 4 + 1);
	assert_int_equal(wire_ends[LEFT].count, 0);
	wire_run(2);
	assert_int_equal(wire_ends[LEFT].count, 1);
	got = &wire_ends[LEFT].got[0];
	assert_int_equal(got->header.status, ETIMEDOUT);
	assert_int_equal(got->bytes, 24);
	assert_int_equal(got->header.agent_id, client);
	assert_memory_equal(got->mad + 12, "\0\0\0\1", 4);
	assert_true(mad_port_deadline(&wire_ends[LEFT].port) == UINT64_MAX);
	mad[15] = 1;
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 200, 3), 0);
}

static void what_nobody_wants_is_refused(void **state)
{
	uint8_t mad[MAD_BYTES];
	uint32_t client;

	(void)state;
	assert_int_equal(wire_register(LEFT, VENDOR, 1, 0, 0, OUI, &client), 0);
	wire_header(mad, VENDOR, 1, 0x02, 9);
	memset(mad + 24, 0, sizeof mad - 24);
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 200, 0), 0);
	wire_run(0);
	assert_int_equal(wire_ends[LEFT].count, 1);
	assert_int_equal(wire_ends[LEFT].got[0].mad[3], 0x81);
	assert_memory_equal(wire_ends[LEFT].got[0].mad + 4, "\0\x0c", 2);
	mad[3] = 0x05; /* a trap isn't answered */
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 0, 0), 0);
	wire_run(0);
	assert_int_equal(wire_ends[RIGHT].sent, 1);
}

static void vendors_are_told_apart(void **state)
{
	uint8_t mad[MAD_BYTES];
	uint32_t client, one, two;

	(void)state;
	assert_int_equal(wire_register(LEFT, VENDOR, 1, 0, 0, OUI, &client), 0);
	assert_int_equal(wire_register(RIGHT, VENDOR, 1, 0, GET, OUI, &one), 0);
	assert_int_equal(wire_register(RIGHT, VENDOR, 1, 0, GET, OUI + 1, &two), 0);
	wire_header(mad, VENDOR, 1, 0x01, 9);
	memset(mad + 24, 0, sizeof mad - 24);
	memcpy(mad + 37, "\x00\x14\x06", 3);
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES, 0, 0), 0);
	wire_run(0);
	assert_int_equal(wire_ends[RIGHT].count, 1);
	assert_int_equal(wire_ends[RIGHT].got[0].header.agent_id, two);
}

static void what_a_program_writes_is_checked(void **state)
{
	uint8_t mad[2 * MAD_BYTES];
	uint32_t client;

	(void)state;
	memset(mad, 0, sizeof mad);
	wire_header(mad, PMA, 1, 0x01, 1);
	assert_int_equal(wire_register(LEFT, PMA, 1, 0, 0, 0, &client), 0);
	assert_int_equal(wire_send(LEFT, client, mad, 35, 0, 0), -EINVAL);
	assert_int_equal(wire_send(LEFT, client, mad, MAD_BYTES + 1, 0, 0), -EINVAL);
	assert_int_equal(wire_send(LEFT, 1, mad, MAD_BYTES, 0, 0), -EIO);
	assert_int_equal(wire_send(LEFT, 32, mad, MAD_BYTES, 0, 0), -EINVAL);
	assert_int_equal(wire_send(LEFT, client, mad, 36, 0, 0), 0);
}

static void nonsense_on_the_link_is_dropped(void **state)
{
	struct ib_mad_addr from = {.lid = htobe16(LID(LEFT))};
	uint8_t mad[MAD_BYTES];
	uint32_t server;

	(void)state;
	assert_int_equal(wire_register(RIGHT, PMA, 1, 0, GET | SET, 0, &server), 0);
	for (int round = 0; round < 200000; round++) {
		for (int i = 0; i < MAD_BYTES; i++)
			mad[i] = (uint8_t)random();
		mad_port_receive(&wire_ends[RIGHT].port, (int)(random() % 2), &from, mad, wire_now);
	}
	/* Classes of subnet management on QP 1 and others on QP 0 don't exist. */
	memset(mad, 0, sizeof mad);
	wire_header(mad, PMA, 1, 0x01, 1);
	wire_ends[RIGHT].sent = 0;
	mad_port_receive(&wire_ends[RIGHT].port, 0, &from, mad, wire_now);
	assert_int_equal(wire_ends[RIGHT].sent, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(registration_is_exclusive_on_the_port),
		TEST(registration_knows_classes),
		TEST(unknown_flags_are_named),
		TEST(a_request_finds_its_response),
		TEST(responses_come_in_any_order),
		TEST(a_repress_is_a_traps_response),
		TEST(a_timeout_comes_after_all_copies),
		TEST(what_nobody_wants_is_refused),
		TEST(vendors_are_told_apart),
		TEST(what_a_program_writes_is_checked),
		TEST(nonsense_on_the_link_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
