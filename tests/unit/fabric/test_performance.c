/* SPDX-License-Identifier: BSD-2-Clause */
/* The performance management agent: samples, service levels, causes of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net.h"

enum { GET = 1, SET = 2 };
enum { SAMPLES_CONTROL = 0x10, SAMPLES_RESULT = 0x11, SAMPLES_EXTENDED = 0x1e };
enum { RCV_DETAILS = 0x15, FLOW_ERRORS = 0x1b, XMIT_SL = 0x36, RCV_SL = 0x37 };
enum { CLASS_INFO = 0x01 };

/* A request of H1 to a LID; what H1 gets is in net->mad. Returns its status, -1: no answer. */
static int ask(struct net *net, uint16_t lid, uint8_t sl, uint8_t method, uint8_t attribute,
	       const uint8_t data[192], uint64_t now_ms)
{
	uint8_t mad[256] = {1, 0x04, 1, method, [17] = attribute};
	struct fabric_address to = {
		.destination = lid,
		.source_qp = 1,
		.destination_qp = 1,
		.qkey = 0x80010000u,
		.sl = sl,
	};
	unsigned int before = net->delivered;

	memcpy(mad + 64, data, 192);
	fabric_send(&net->fabric, net_row(net, NODE_H1, 1), &to, mad, now_ms);
	return net->delivered == before ? -1 : octets_get16(net->mad + 4);
}

static void what_is_offered(void **state)
{
	struct net *net = net_create();
	const uint8_t data[192] = {0};

	(void)state;
	net_configure(net);
	assert_int_equal(ask(net, LID_S1, 0, GET, CLASS_INFO, data, 1), 0);
	assert_int_equal(octets_get16(net->mad + 66), 0x9300);
	assert_int_equal(ask(net, LID_H3, 0, GET, CLASS_INFO, data, 1), 0);
	assert_int_equal(octets_get16(net->mad + 66), 0x9200);
	assert_int_equal(ask(net, LID_S1, 0, GET, 0x17, data, 1), 0x0c); /* by opcode */
	net_free(net);
}

/* Which SL the packets had, at both ends of a cable; what a manager selects is reset. */
static void words_by_service_level(void **state)
{
	struct net *net = net_create();
	uint8_t data[192] = {[1] = 1};

	(void)state;
	net_configure(net);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask(net, LID_H3, 5, GET, CLASS_INFO, data, 1), 0);
	assert_int_equal(ask(net, LID_S1, 0, GET, RCV_SL, data, 1), 0);
	assert_int_equal(octets_get32(net->mad + 68 + 4 * 5), 3 * 72);
	assert_int_equal(octets_get32(net->mad + 68), 72); /* this request */
	assert_int_equal(ask(net, LID_S1, 2, GET, XMIT_SL, data, 1), 0);
	assert_int_equal(octets_get32(net->mad + 68 + 4 * 5), 3 * 72); /* the answers */
	octets_put16(data + 2, 1 << 5);
	assert_int_equal(ask(net, LID_S1, 0, SET, RCV_SL, data, 1), 0);
	assert_int_equal(octets_get32(net->mad + 68 + 4 * 5), 0);
	assert_true(octets_get32(net->mad + 68) > 72);
	data[1] = 255;
	assert_int_equal(ask(net, LID_S1, 0, GET, XMIT_SL, data, 1), 0);
	/* to H1, to S2 and, at S2, not this switch's */
	assert_int_equal(octets_get32(net->mad + 68 + 4 * 5), 6 * 72);
	data[1] = 9;
	assert_int_equal(ask(net, LID_S1, 0, GET, XMIT_SL, data, 1), 0x1c);
	net_free(net);
}

/* SMPs use lane 15, which has no service level. */
static void management_has_no_level(void **state)
{
	struct net *net = net_create();

	(void)state;
	assert_int_equal(net_ask(net, "\1", GET, 0x11, 0, NULL), 0);
	for (unsigned int sl = 0; sl < 2 * FABRIC_SLS; sl++)
		assert_int_equal(
			net->fabric.sl_words[net_row(net, NODE_S1, 1) * 2 * FABRIC_SLS + sl], 0);
	net_free(net);
}

static void control_make(uint8_t data[192], uint8_t port, uint32_t start_us, uint32_t interval_us)
{
	memset(data, 0, 192);
	data[1] = port;
	octets_put32(data + 28, start_us);
	octets_put32(data + 32, interval_us);
	octets_put16(data + 36, 0xbeef);
	for (unsigned int i = 0; i < 5; i++)
		octets_put16(data + 38 + 2 * i, (uint16_t)(i + 1));
}

static void samples_of_an_interval(void **state)
{
	struct net *net = net_create();
	uint8_t data[192];

	(void)state;
	net_configure(net);
	control_make(data, 1, 5000, 20000);
	assert_int_equal(ask(net, LID_S1, 0, SET, SAMPLES_CONTROL, data, 100), 0);
	assert_int_equal(net->mad[64 + 11], SAMPLING_STARTED);
	assert_int_equal(octets_get32(net->mad + 64 + 4), 0x09249249);
	assert_int_equal(fabric_deadline(&net->fabric), 105);
	fabric_expire(&net->fabric, 105);
	assert_int_equal(fabric_deadline(&net->fabric), 125);
	control_make(data, 1, 0, 1);
	/* In the interval: this Set, which changes nothing, and its answer. */
	assert_int_equal(ask(net, LID_S1, 0, SET, SAMPLES_CONTROL, data, 110), 0);
	assert_int_equal(net->mad[64 + 11], SAMPLING_RUNS);
	assert_int_equal(octets_get32(net->mad + 64 + 32), 20000);
	fabric_expire(&net->fabric, 125);
	assert_int_equal(fabric_deadline(&net->fabric), UINT64_MAX);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask(net, LID_S1, 0, GET, SAMPLES_RESULT, data, 130), 0);
	assert_int_equal(octets_get16(net->mad + 64), 0xbeef);
	assert_int_equal(octets_get16(net->mad + 66), SAMPLING_DONE);
	assert_int_equal(octets_get32(net->mad + 68), 72);
	assert_int_equal(octets_get32(net->mad + 72), 72);
	assert_int_equal(octets_get32(net->mad + 76), 1);
	assert_int_equal(octets_get32(net->mad + 80), 1);
	assert_int_equal(octets_get32(net->mad + 84), 0);
	assert_int_equal(ask(net, LID_S1, 0, GET, SAMPLES_EXTENDED, data, 130), 0);
	assert_int_equal(octets_get32(net->mad + 68), 0x80000000u);
	assert_true(octets_get64(net->mad + 64 + 8) == 72);
	/* Another port of the node has no samples, and another node neither. */
	control_make(data, 2, 0, 0);
	assert_int_equal(ask(net, LID_S1, 0, GET, SAMPLES_CONTROL, data, 130), 0);
	assert_int_equal(octets_get16(net->mad + 64 + 36), 0);
	assert_int_equal(ask(net, LID_H3, 0, GET, SAMPLES_RESULT, data, 130), 0);
	assert_int_equal(octets_get16(net->mad + 64), 0);
	control_make(data, 255, 0, 0);
	assert_int_equal(ask(net, LID_S1, 0, SET, SAMPLES_CONTROL, data, 130), 0x1c);
	net_free(net);
}

/* A process that died in the middle may have left any bytes. */
static void damaged_samplers(void **state)
{
	struct net *net = net_create();
	struct fabric again;

	(void)state;
	net->fabric.samplers[0] = (struct fabric_sampler){
		.node = 4711, .is_used = 1, .status = SAMPLING_RUNS, .end_ms = 5};
	net->fabric.samplers[1] = (struct fabric_sampler){
		.node = NODE_S1, .is_used = 1, .status = SAMPLING_RUNS, .port = 200};
	assert_int_equal(fabric_open(&again, &net_functions, net, net->memory, net->bytes), 0);
	assert_int_equal(fabric_deadline(&again), UINT64_MAX);
	fabric_expire(&again, 10);
	net_free(net);
}

static void flow_control_is_watched(void **state)
{
	struct net *net = net_create();
	uint8_t data[192] = {[1] = 7};

	(void)state;
	net_configure(net);
	fabric_error_add(&net->fabric, net_row(net, NODE_S1, 7), ERROR_FLOW_CONTROL, 9);
	fabric_expire(&net->fabric, 1);
	assert_int_equal(octets_get16(net->mad + 64 + 4), 131);
	assert_int_equal(octets_get16(net->mad + 64 + 12), LID_S1);
	assert_int_equal(net->mad[64 + 14], 7);
	assert_int_equal(ask(net, LID_S1, 0, GET, FLOW_ERRORS, data, 2), 0);
	assert_int_equal(net->mad[68], 0xc0); /* two bits: saturated */
	data[3] = 1;
	assert_int_equal(ask(net, LID_S1, 0, SET, FLOW_ERRORS, data, 2), 0);
	assert_int_equal(net->mad[68], 0);
	net_free(net);
}

static void causes_of_errors(void **state)
{
	struct net *net = net_create();
	uint8_t data[192] = {[1] = 1};

	(void)state;
	net_configure(net);
	assert_int_equal(ask(net, 40, 0, GET, CLASS_INFO, data, 1), -1); /* no entry */
	assert_int_equal(ask(net, LID_S1, 0, GET, RCV_DETAILS, data, 1), 0);
	assert_int_equal(octets_get16(net->mad + 68 + 6), 1); /* DLID mapping */
	data[3] = 1 << 3;
	assert_int_equal(ask(net, LID_S1, 0, SET, RCV_DETAILS, data, 1), 0);
	assert_int_equal(octets_get16(net->mad + 68 + 6), 0);
	/* What never happens here can be read all the same. */
	for (uint8_t attribute = 0x30; attribute <= 0x35; attribute++)
		assert_int_equal(ask(net, LID_S1, 0, GET, attribute, data, 1), 0);
	net_free(net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_offered),
		cmocka_unit_test(words_by_service_level),
		cmocka_unit_test(management_has_no_level),
		cmocka_unit_test(samples_of_an_interval),
		cmocka_unit_test(damaged_samplers),
		cmocka_unit_test(flow_control_is_watched),
		cmocka_unit_test(causes_of_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
