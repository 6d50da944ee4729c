/* SPDX-License-Identifier: BSD-2-Clause */
/* Delays, cables that carry less, speeds up to XDR, traps of each kind, multicast datagrams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net.h"

#include <errno.h>

enum { GET = 1, SET = 2, REPRESS = 7, PORT_INFO = 0x15, PERFORMANCE = 0x04, SA = 0x03 };
#define GROUP 0xc005u

/* Delay ---------------------------------------------------------------------------------------- */

/* A request waits before it is executed, and its answer before it is delivered. */
static void a_delay_both_ways(void **state)
{
	struct net *net = net_create();
	uint8_t data[64];

	(void)state;
	net_port(net, NODE_S1, 1)->delay_ns = 1000;
	net_port(net, NODE_S2, 7)->cable_delay_ns = 200;
	net_port(net, NODE_H1, 1)->delay_ns = 30;
	assert_int_equal(net_get(net, "\1\7", PORT_INFO, 1, data), -1);
	assert_int_equal(net->postponed, 1);
	assert_int_equal(net->delay_ns, 1200);
	assert_int_equal(net->delivered, 0);
	fabric_arrive(&net->fabric, &net->late, 2000);
	assert_int_equal(net->postponed, 2);
	assert_int_equal(net->delay_ns, 30);
	assert_int_equal(net->delivered, 0);
	fabric_arrive(&net->fabric, &net->late, 2000);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(net->mad[3], 0x81);
	assert_int_equal(net->postponed, 2);
	net_free(net);
}

static void a_delay_of_a_set(void **state)
{
	struct net *net = net_create();
	uint8_t data[64];

	(void)state;
	assert_int_equal(net_get(net, "\1", PORT_INFO, 2, data), 0);
	data[32] = PORT_ARMED;
	data[33] = 0;
	net_port(net, NODE_S1, 1)->delay_ns = 5;
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 2, data), -1);
	assert_int_equal(port_state(net_port(net, NODE_S1, 2)), PORT_INIT);
	fabric_arrive(&net->fabric, &net->late, 2000);
	assert_int_equal(port_state(net_port(net, NODE_S1, 2)), PORT_ARMED);
	assert_int_equal(net->delivered, 2);
	net_free(net);
}

/* Rates ---------------------------------------------------------------------------------------- */

static const struct fabric_speed hdr = {.basic = 4, .ext = 4};
static const struct fabric_speed edr = {.basic = 4, .ext = 2};
static const struct fabric_speed qdr = {.basic = 4};
static const struct fabric_speed xdr = {.basic = 4, .ext = 8, .ext2 = 1};

static void a_cable_that_carries_less(void **state)
{
	struct net *net = net_create();
	uint32_t row = net_row(net, NODE_S1, 7);
	struct fabric_port *port = net_port(net, NODE_S1, 7);
	uint64_t downed;

	(void)state;
	net_configure(net);
	downed = net->fabric.counters[row].errors[ERROR_LINK_DOWNED];
	assert_int_equal(fabric_rate_set(&net->fabric, row, 1, edr, 5), 0);
	assert_int_equal(port->info[INFO_WIDTH_ACTIVE], 1);
	assert_int_equal(octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]), 2);
	assert_int_equal(port->info[INFO_WIDTH_ENABLED], port->info[INFO_WIDTH_SUPPORTED]);
	assert_int_equal(port_state(port), PORT_INIT);
	assert_int_equal(port_state(net_port(net, NODE_S2, 7)), PORT_INIT);
	assert_int_equal(net_port(net, NODE_S2, 7)->info[INFO_WIDTH_ACTIVE], 1);
	assert_true(net->fabric.counters[row].errors[ERROR_LINK_DOWNED] == downed + 1);
	fabric_expire(&net->fabric, 5);
	assert_int_equal(octets_get16(net->mad + 64 + 4), 128);
	/* It stays so when the link trains again. */
	fabric_cable_set(&net->fabric, row, true, 6);
	fabric_cable_set(&net->fabric, row, false, 6);
	assert_int_equal(port->info[INFO_WIDTH_ACTIVE], 1);
	assert_int_equal(fabric_rate_set(&net->fabric, row, 2, qdr, 7), 0);
	assert_int_equal(octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]), 0);
	assert_int_equal(octet_high(port->info[INFO_SPEED_ACTIVE_ENABLED]), 4);
	assert_int_equal(fabric_rate_set(&net->fabric, row, 0, hdr, 8), 0);
	assert_int_equal(port->info[INFO_WIDTH_ACTIVE], 2);
	assert_int_equal(octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]), 4);
	assert_int_equal(fabric_rate_set(&net->fabric, row, 8, hdr, 9), -EINVAL);
	assert_int_equal(fabric_rate_set(&net->fabric, row, 3, hdr, 9), -EINVAL);
	assert_int_equal(fabric_rate_set(&net->fabric, row, 2, xdr, 9), -EINVAL);
	assert_int_equal(port_state(port), PORT_INIT);
	assert_int_equal(fabric_rate_set(&net->fabric, net_row(net, NODE_S1, 3), 2, hdr, 9),
			 -ENOTCONN);
	net_free(net);
}

/* Two adapters and one cable of that speed. */
static void pair_build(struct fabric *fabric, void **memory, struct fabric_plan_cable cable)
{
	const struct fabric_plan_node nodes[] = {{.name = "A", .type = FABRIC_CA, .ports = 1},
						 {.name = "B", .type = FABRIC_CA, .ports = 1}};
	const struct fabric_plan plan = {
		.nodes = nodes, .cables = &cable, .node_count = 2, .cable_count = 1};
	struct fabric_refusal refusal;
	size_t bytes;

	cable.node[1] = 1;
	cable.port[0] = cable.port[1] = 1;
	bytes = fabric_layout(&plan, &refusal);
	assert_true(bytes > 0);
	*memory = calloc(1, bytes);
	assert_non_null(*memory);
	fabric_build(fabric, &net_functions, NULL, *memory, &plan);
}

static void speeds_of_cables(void **state)
{
	static const struct {
		struct fabric_speed cable;
		uint8_t basic, ext, ext2;
		uint16_t capabilities2; /* of these three bits */
	} rows[] = {
		{{0}, 4, 4, 0, CAPABILITY2_HDR},
		{{.basic = 1}, 1, 0, 0, 0},
		{{.ext = 2}, 4, 2, 0, 0},
		{{.ext = 8}, 4, 8, 0, CAPABILITY2_HDR | CAPABILITY2_NDR},
		{{.ext2 = 1}, 4, 8, 1, CAPABILITY2_HDR | CAPABILITY2_NDR | CAPABILITY2_XDR},
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const uint16_t mask = CAPABILITY2_HDR | CAPABILITY2_NDR | CAPABILITY2_XDR;
		struct fabric fabric;
		const struct fabric_port *port;
		void *memory;

		pair_build(&fabric, &memory,
			   (struct fabric_plan_cable){
				   .speed = rows[i].cable, .mtu = 4, .delay_ns = 77});
		port = &fabric.ports[1];
		assert_int_equal(octet_high(port->info[INFO_SPEED_ACTIVE_ENABLED]), rows[i].basic);
		assert_int_equal(octet_high(port->info[INFO_EXT_ACTIVE_SUPPORTED]), rows[i].ext);
		assert_int_equal(port_ext2_active(port), rows[i].ext2);
		assert_int_equal(octets_get16(port->info + INFO_CAPABILITIES2) & mask,
				 rows[i].capabilities2);
		assert_int_equal(port_mtu(port), 4);
		assert_int_equal(octet_low(port->info[INFO_INIT_REPLY_MTU_CAP]), 4);
		assert_int_equal(port_delay_ns(port), 77);
		/* Nothing of the cable is lost with the node's power. */
		fabric_power_set(&fabric, 1, false, 1);
		fabric_power_set(&fabric, 1, true, 2);
		assert_int_equal(port_ext2_active(port), rows[i].ext2);
		assert_int_equal(port_mtu(port), 4);
		free(memory);
	}
}

/* LinkSpeedExtEnabled2: what may be written, and that the next training obeys. */
static void extended_speeds_2(void **state)
{
	struct fabric fabric;
	struct net net = {0};
	void *memory;
	uint8_t mad[256];

	(void)state;
	pair_build(&fabric, &memory, (struct fabric_plan_cable){.speed = {.ext2 = 1}});
	fabric.context = &net;
	smp_make(mad, SET, PORT_INFO, 1u << 31 | 1, 1, (const uint8_t *)"\1");
	memcpy(mad + 64, fabric.ports[1].info, 64);
	mad[64 + 32] &= 0xf0; /* no change of state */
	mad[64 + 33] = 0;
	mad[64 + INFO_EXT2] = 2; /* there is no such speed */
	fabric_send(&fabric, 0, &(struct fabric_address){.destination = 0xffff}, mad, 1);
	assert_int_equal(octets_get16(net.mad + 4), 0x801c);
	mad[64 + INFO_EXT2] = 6; /* none */
	mad[64 + 32] |= PORT_DOWN;
	fabric_send(&fabric, 0, &(struct fabric_address){.destination = 0xffff}, mad, 1);
	assert_int_equal(port_ext2_enabled(&fabric.ports[1]), 0);
	assert_int_equal(port_ext2_active(&fabric.ports[1]), 0);
	assert_int_equal(octet_high(fabric.ports[1].info[INFO_EXT_ACTIVE_SUPPORTED]), 8);
	mad[64 + INFO_EXT2] = 7; /* all */
	fabric_send(&fabric, 0, &(struct fabric_address){.destination = 0xffff}, mad, 1);
	assert_int_equal(port_ext2_active(&fabric.ports[1]), 1);
	free(memory);
}

/* Traps ---------------------------------------------------------------------------------------- */

/* The last notice that H1 got; it is repressed. */
static const uint8_t *trap_take(struct net *net, uint16_t number, uint16_t issuer)
{
	static uint8_t notice[64];
	uint8_t mad[256];

	net->delivered = 0;
	fabric_expire(&net->fabric, net->fabric.now_ms);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(net->mad[3], 5);
	memcpy(notice, net->mad + 64, 64);
	assert_int_equal(octets_get16(notice + 4), number);
	assert_int_equal(octets_get16(notice + 6), issuer);
	memcpy(mad, net->mad, 256);
	mad[3] = REPRESS;
	net_send(net, NODE_H1, 1, net->from.source, 0, mad, net->fabric.now_ms);
	assert_true(fabric_deadline(&net->fabric) == UINT64_MAX);
	return notice;
}

static void general_send(struct net *net, uint32_t node, uint16_t lid, uint32_t qkey,
			 uint16_t pkey_index, bool has_grh)
{
	uint8_t mad[256] = {1, SA, 2, GET};
	struct fabric_address to = {
		.destination = lid,
		.source_qp = 1,
		.destination_qp = 1,
		.qkey = qkey,
		.pkey_index = pkey_index,
		.sl = 3,
		.has_grh = has_grh,
		.grh = {[8] = 0xfe, [24] = 0xfe, [39] = 9},
	};

	fabric_send(&net->fabric, net_row(net, node, node >= NODE_H1), &to, mad, 10);
}

static void a_trap_of_each_kind(void **state)
{
	struct net *net = net_create();
	const uint8_t *notice;
	uint8_t mad[256];

	(void)state;
	net_configure(net);
	net->fabric.now_ms = 10;
	fabric_error_add(&net->fabric, net_row(net, NODE_S2, 7), ERROR_LOCAL_INTEGRITY, 1);
	notice = trap_take(net, 129, LID_S2);
	assert_int_equal(octets_get16(notice + 12), LID_S2);
	assert_int_equal(notice[14], 7);
	assert_int_equal(notice[0], 0x81); /* generic, urgent */
	assert_int_equal(notice[3], FABRIC_SWITCH);
	fabric_error_add(&net->fabric, net_row(net, NODE_H3, 1), ERROR_BUFFER_OVERRUN, 1);
	notice = trap_take(net, 130, LID_H3);
	assert_int_equal(notice[14], 1);
	assert_int_equal(notice[3], FABRIC_CA);
	fabric_description_set(&net->fabric, NODE_H4, "new", 10);
	notice = trap_take(net, 144, LID_H4);
	assert_int_equal(notice[0], 0x84); /* informational */
	assert_int_equal(notice[15], 1);
	assert_int_equal(octets_get16(notice + 20), 1);
	fabric_system_guid_set(&net->fabric, NODE_S2, 0x1234567890u, 10);
	notice = trap_take(net, 145, LID_S2);
	assert_int_equal(octets_get16(notice + 12), LID_S2);
	assert_true(octets_get64(notice + 16) == 0x1234567890u);
	/* M_Key */
	octets_put64(net_port(net, NODE_H3, 1)->info + INFO_M_KEY, 77);
	smp_make(mad, SET, 0x16, 0, 255, NULL);
	octets_put64(mad + 24, 5);
	net_send(net, NODE_H2, 1, LID_H3, 0, mad, 10);
	octets_put64(net_port(net, NODE_H3, 1)->info + INFO_M_KEY, 0); /* else a repress needs it */
	notice = trap_take(net, 256, LID_H3);
	assert_int_equal(notice[0], 0x82); /* security */
	assert_int_equal(octets_get16(notice + 12), LID_H2);
	assert_int_equal(notice[16], SET);
	assert_int_equal(octets_get16(notice + 18), 0x16);
	assert_true(octets_get64(notice + 24) == 5);
	net_free(net);
}

static void traps_of_keys(void **state)
{
	struct net *net = net_create();
	const uint8_t *notice;

	(void)state;
	net_configure(net);
	net->fabric.pkeys[(size_t)net_row(net, NODE_H2, 1) * FABRIC_PKEYS + 1] = 0x8005;
	general_send(net, NODE_H2, LID_H3, 0x80010000, 1, true);
	notice = trap_take(net, 257, LID_H3);
	assert_int_equal(octets_get16(notice + 12), LID_H2);
	assert_int_equal(octets_get16(notice + 14), LID_H3);
	assert_int_equal(octets_get32(notice + 16), 0x8005);
	assert_int_equal(octets_get32(notice + 20), 3u << 28 | 1);
	assert_int_equal(octets_get32(notice + 24), 1);
	assert_int_equal(notice[28], 0xfe);
	assert_int_equal(notice[44 + 15], 9);
	general_send(net, NODE_H2, LID_H3, 5, 0, false);
	notice = trap_take(net, 258, LID_H3);
	assert_int_equal(octets_get32(notice + 16), 5);
	assert_int_equal(notice[28], 0);
	/* The switch doesn't let it pass: which port, which packet. */
	net_port(net, NODE_S1, 2)->info[INFO_VLS_ENFORCE] |= ENFORCE_IN;
	general_send(net, NODE_H2, LID_H3, 0x80010000, 1, false);
	notice = trap_take(net, 259, LID_S1);
	assert_int_equal(octets_get16(notice + 10), 0x3f);
	assert_int_equal(octets_get16(notice + 12), LID_H2);
	assert_int_equal(octets_get16(notice + 14), LID_H3);
	assert_int_equal(octets_get16(notice + 16), 0x8005);
	assert_int_equal(octets_get32(notice + 18), 3u << 28 | 1);
	assert_int_equal(octets_get16(notice + 58), LID_S1);
	assert_int_equal(notice[60], 2);
	assert_true(net->fabric.counters[net_row(net, NODE_S1, 2)].errors[ERROR_RCV_CONSTRAINT] ==
		    1);
	net_free(net);
}

/* Multicast ------------------------------------------------------------------------------------ */

static void member_set(struct net *net, uint32_t node, unsigned int port)
{
	net->fabric.multicast[net->fabric.nodes[node].multicast + (GROUP - LID_MULTICAST)] |=
		(uint16_t)(1u << port);
}

/* A datagram to the group; returns how many agents got it. */
static unsigned int group_send(struct net *net, uint32_t node, uint8_t class, bool has_grh)
{
	uint8_t mad[256] = {1, class, class == SA ? 2 : 1, GET, [17] = 1, [65] = 1};
	struct fabric_address to = {
		.destination = GROUP,
		.source_qp = 1,
		.destination_qp = 1,
		.qkey = 0x80010000u,
		.has_grh = has_grh,
		.grh = {[24] = 0xff, [25] = 0x12, [39] = 1},
	};

	net->delivered = 0;
	fabric_send(&net->fabric, net_row(net, node, node >= NODE_H1), &to, mad, 10);
	return net->delivered;
}

static void datagrams_to_a_group(void **state)
{
	struct net *net = net_create();
	uint32_t row = net_row(net, NODE_S2, 1);

	(void)state;
	net_configure(net);
	member_set(net, NODE_S1, 2);
	member_set(net, NODE_S1, 7);
	member_set(net, NODE_S2, 7);
	member_set(net, NODE_S2, 1);
	member_set(net, NODE_S2, 2);
	/* H2 isn't told by itself unless it is a member: it is, and so are H3 and H4. */
	assert_int_equal(group_send(net, NODE_H2, SA, true), 3);
	assert_int_equal(group_send(net, NODE_H1, SA, true), 3); /* no member */
	assert_int_equal(group_send(net, NODE_H1, SA, false), 0);
	assert_true(net->fabric.counters[row].traffic[TRAFFIC_MULTICAST_XMIT] == 2);
	assert_true(net->fabric.counters[row].traffic[TRAFFIC_UNICAST_XMIT] == 0);
	assert_true(net->fabric.counters[row].traffic[TRAFFIC_XMIT_WORDS] == 2 * 82);
	/* Agents of the fabric answer for their own LID: H2, H3 and H4. */
	assert_int_equal(group_send(net, NODE_H1, PERFORMANCE, true), 3);
	assert_true(net->from.source == LID_H2 || net->from.source >= LID_H3);
	assert_int_equal(net->from.grh[8], 0xfe);
	assert_int_equal(net->port, net_row(net, NODE_H1, 1));
	/* A link that isn't active, and one that loses packets. */
	port_set_state(net_port(net, NODE_S2, 1), PORT_INIT);
	assert_int_equal(group_send(net, NODE_H1, SA, true), 2);
	net_port(net, NODE_S2, 7)->drop_ppm = 1000000;
	assert_int_equal(group_send(net, NODE_H1, SA, true), 1);
	net_free(net);
}

/* Switch ports 0 are members; tables that lead in a circle end. */
static void groups_at_switches(void **state)
{
	struct net *net = net_create();

	(void)state;
	net_configure(net);
	member_set(net, NODE_S1, 0);
	member_set(net, NODE_S1, 7);
	member_set(net, NODE_S2, 7);
	member_set(net, NODE_S2, 0);
	assert_int_equal(group_send(net, NODE_S1, SA, true), 2);
	assert_int_equal(group_send(net, NODE_H1, SA, true), 2);
	member_set(net, NODE_S1, 8);
	member_set(net, NODE_S2, 8);
	assert_true(group_send(net, NODE_H1, SA, true) < 20);
	net_free(net);
}

/* A switch without an entry sends to its default ports. */
static void default_multicast_ports(void **state)
{
	struct net *net = net_create();

	(void)state;
	net_configure(net);
	net->fabric.nodes[NODE_S1].default_primary = 2;
	net->fabric.nodes[NODE_S1].default_not_primary = 7;
	assert_int_equal(group_send(net, NODE_H1, SA, true), 1);
	assert_int_equal(net->port, net_row(net, NODE_H2, 1));
	assert_int_equal(group_send(net, NODE_H2, SA, true), 0); /* S2 has no entry */
	member_set(net, NODE_S2, 1);
	assert_int_equal(group_send(net, NODE_H2, SA, true), 1);
	assert_int_equal(net->port, net_row(net, NODE_H3, 1));
	net->fabric.nodes[NODE_S2].multicast_top = GROUP - 1;
	assert_int_equal(group_send(net, NODE_H2, SA, true), 0);
	net_free(net);
}

static void a_late_group(void **state)
{
	struct net *net = net_create();

	(void)state;
	net_configure(net);
	member_set(net, NODE_S1, 2);
	net_port(net, NODE_S1, 1)->delay_ns = 100;
	net_port(net, NODE_H2, 1)->delay_ns = 20;
	assert_int_equal(group_send(net, NODE_H1, SA, true), 0);
	assert_int_equal(net->delay_ns, 120);
	fabric_arrive(&net->fabric, &net->late, 11);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(net->port, net_row(net, NODE_H2, 1));
	net_free(net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_delay_both_ways),
		cmocka_unit_test(a_delay_of_a_set),
		cmocka_unit_test(a_cable_that_carries_less),
		cmocka_unit_test(speeds_of_cables),
		cmocka_unit_test(extended_speeds_2),
		cmocka_unit_test(a_trap_of_each_kind),
		cmocka_unit_test(traps_of_keys),
		cmocka_unit_test(datagrams_to_a_group),
		cmocka_unit_test(groups_at_switches),
		cmocka_unit_test(default_multicast_ports),
		cmocka_unit_test(a_late_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
