/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric's core: routes of datagrams, states of ports, keys, tables, counters, traps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net.h"

#include <errno.h>

enum { GET = 1, SET = 2, TRAP = 5, REPRESS = 7 };
enum { NODE_INFO = 0x11, SWITCH_INFO = 0x12, PORT_INFO = 0x15, PKEYS = 0x16, UNICAST = 0x19 };

static void directed_routes(void **state)
{
	struct net *net = net_create();
	uint8_t mad[256];

	(void)state;
	assert_int_equal(net_ask(net, "", GET, NODE_INFO, 0, NULL), 0);
	assert_int_equal(net->mad[64 + 2], FABRIC_CA);
	assert_int_equal(net->mad[6], 0); /* the hop pointer is back */
	assert_int_equal(net->mad[4] & 0x80, 0x80);
	assert_int_equal(net->from.source, 0xffff);
	assert_int_equal(net_ask(net, "\1", GET, NODE_INFO, 0, NULL), 0);
	assert_int_equal(net->mad[64 + 2], FABRIC_SWITCH);
	assert_int_equal(net->mad[64 + 36], 1); /* LocalPort */
	assert_int_equal(net_ask(net, "\1\7\1", GET, NODE_INFO, 0, NULL), 0);
	assert_true(octets_get64(net->mad + 64 + 12) == net->fabric.nodes[NODE_H3].guid);
	assert_int_equal(net->mad[192 + 1], 1); /* the return path */
	assert_int_equal(net->mad[192 + 2], 7);
	assert_int_equal(net->mad[192 + 3], 1);
	/* no cable, no such port, through an adapter, by another port than the own */
	assert_int_equal(net_ask(net, "\1\3", GET, NODE_INFO, 0, NULL), -1);
	assert_int_equal(net_ask(net, "\1\11", GET, NODE_INFO, 0, NULL), -1);
	assert_int_equal(net_ask(net, "\1\2\1", GET, NODE_INFO, 0, NULL), -1);
	assert_int_equal(net_ask(net, "\2", GET, NODE_INFO, 0, NULL), -1);
	/* too many hops */
	smp_make(mad, GET, NODE_INFO, 0, 0, NULL);
	mad[7] = 64;
	net->delivered = 0;
	net_send(net, NODE_H1, 1, 0xffff, 0, mad, 1);
	assert_int_equal(net->delivered, 0);
	net_free(net);
}

static void combined_route(void **state)
{
	struct net *net = net_create();
	uint8_t mad[256];

	(void)state;
	net_configure(net);
	smp_make(mad, GET, NODE_INFO, 0, 1, (const uint8_t *)"\1");
	octets_put16(mad + 32, LID_H2);
	net_send(net, NODE_H2, 1, LID_S2, 0, mad, 1);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(net->port, net_row(net, NODE_H2, 1));
	assert_true(octets_get64(net->mad + 64 + 12) == net->fabric.nodes[NODE_H3].guid);
	net_free(net);
}

static void states_of_ports(void **state)
{
	struct net *net = net_create();
	uint8_t data[64];

	(void)state;
	assert_int_equal(net_get(net, "\1", PORT_INFO, 7, data), 0);
	assert_int_equal(data[32] & 15, PORT_INIT);
	data[33] = 0;
	data[32] = PORT_ACTIVE; /* Init -> Active: not without Armed */
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0x1c);
	data[32] = PORT_ARMED;
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0);
	data[32] = PORT_ACTIVE;
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0);
	assert_int_equal(port_state(net_port(net, NODE_S1, 7)), PORT_ACTIVE);
	data[32] = PORT_INIT;
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0x1c);
	data[32] = PORT_DOWN; /* trains again at once */
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0);
	assert_int_equal(port_state(net_port(net, NODE_S1, 7)), PORT_INIT);
	assert_int_equal(
		net->fabric.counters[net_row(net, NODE_S1, 7)].errors_short[ERROR_LINK_DOWNED], 0);
	assert_int_equal(
		net->fabric.counters[net_row(net, NODE_S2, 7)].errors_short[ERROR_LINK_DOWNED], 1);
	data[33] = PHYSICAL_DISABLED << 4;
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0);
	assert_int_equal(port_state(net_port(net, NODE_S2, 7)), PORT_DOWN);
	assert_int_equal(net_ask(net, "\1\7", GET, NODE_INFO, 0, NULL), -1);
	data[32] = 0;
	data[33] = PHYSICAL_POLLING << 4;
	assert_int_equal(net_ask(net, "\1", SET, PORT_INFO, 7, data), 0);
	assert_int_equal(port_state(net_port(net, NODE_S2, 7)), PORT_INIT);
	assert_int_equal(net_ask(net, "\1", GET, PORT_INFO, 9, NULL), 0x1c);
	net_free(net);
}

static void a_refused_set_changes_nothing(void **state)
{
	struct net *net = net_create();
	uint8_t before[64], data[64];

	(void)state;
	assert_int_equal(net_get(net, "\1\2", PORT_INFO, 1, before), 0);
	memcpy(data, before, 64);
	data[32] = data[33] = 0;
	octets_put16(data + INFO_LID, 9);
	octets_put16(data + INFO_SM_LID, 1);
	data[INFO_MTU_SM_SL] = 6 << 4; /* beyond the capacity */
	assert_int_equal(net_ask(net, "\1\2", SET, PORT_INFO, 1, data), 0x1c);
	assert_memory_equal(net->mad + 64, before, 64);
	data[INFO_MTU_SM_SL] = 4 << 4;
	assert_int_equal(net_ask(net, "\1\2", SET, PORT_INFO, 1, data), 0);
	assert_int_equal(port_lid(net_port(net, NODE_H2, 1)), 9);
	assert_int_equal(net->events[EVENT_LID_CHANGE], 1);
	assert_int_equal(net->events[EVENT_SM_CHANGE], 1);
	data[INFO_REREGISTER_TIMEOUT] = 0x80 | 18;
	assert_int_equal(net_ask(net, "\1\2", SET, PORT_INFO, 1, data), 0);
	assert_int_equal(net->mad[64 + INFO_REREGISTER_TIMEOUT], 0x80 | 18);
	assert_int_equal(net->events[EVENT_CLIENT_REREGISTER], 1);
	assert_int_equal(net->events[EVENT_LID_CHANGE], 1);
	net_free(net);
}

static void management_key(void **state)
{
	struct net *net = net_create();
	struct fabric_port *port = net_port(net, NODE_H2, 1);
	uint8_t mad[256];

	(void)state;
	net_configure(net);
	octets_put64(port->info + INFO_M_KEY, 0x1234);
	octets_put16(port->info + INFO_LEASE, 2);
	port->info[INFO_PROTECT_LMC] = 1 << 6;
	assert_int_equal(net_ask(net, "\1\2", GET, PORT_INFO, 1, NULL), 0);
	assert_true(octets_get64(net->mad + 64) == 0); /* hidden */
	port->info[INFO_PROTECT_LMC] = 2 << 6;
	assert_int_equal(net_ask(net, "\1\2", GET, PORT_INFO, 1, NULL), -1);
	assert_int_equal(octets_get16(port->info + INFO_M_KEY_VIOLATIONS), 1);
	/* the trap reaches H1, which the SM is on */
	net->delivered = 0;
	fabric_expire(&net->fabric, 1000);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(net->mad[3], TRAP);
	assert_int_equal(octets_get16(net->mad + 64 + 4), 256);
	/* with the key, and after the lease */
	smp_make(mad, GET, PORT_INFO, 1, 2, (const uint8_t *)"\1\2");
	octets_put64(mad + 24, 0x1234);
	net_send(net, NODE_H1, 1, 0xffff, 0, mad, 1001);
	assert_int_equal(net->mad[3], 0x81);
	assert_true(octets_get64(net->mad + 64) == 0x1234);
	octets_put64(mad + 24, 1);
	net->delivered = 0;
	net_send(net, NODE_H1, 1, 0xffff, 0, mad, 2000);
	net_send(net, NODE_H1, 1, 0xffff, 0, mad, 3999);
	assert_int_equal(net->delivered, 0);
	net_send(net, NODE_H1, 1, 0xffff, 0, mad, 4000);
	assert_int_equal(net->delivered, 1);
	net_free(net);
}

static void routes_of_data(void **state)
{
	struct net *net = net_create();
	struct route_query query = {.destination = LID_H4, .pkey = 0xffff, .mtu = 4};
	struct fabric_route route;

	(void)state;
	net_configure(net);
	query.port = net_row(net, NODE_H1, 1);
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_OK);
	assert_int_equal(route.hops, 3);
	assert_int_equal(route.hop[1].egress, net_row(net, NODE_S1, 8));
	assert_int_equal(route.end, net_row(net, NODE_H4, 1));
	query.destination = 7;
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_NO_ENTRY);
	assert_int_equal(route.blame, net_row(net, NODE_S1, 1));
	query.destination = LID_H4;
	/* a circle */
	net_configure_table(net, NODE_S2, (const uint8_t[]){0, 7, 7, 0, 8, 1, 7});
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_LOOP);
	/* back by the port by which it came */
	net_configure_table(net, NODE_S2, (const uint8_t[]){0, 7, 7, 0, 8, 1, 8});
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_LOOPING);
	net_configure_table(net, NODE_S2, (const uint8_t[]){0, 7, 7, 0, 8, 1, 2});
	octet_set_high(&net_port(net, NODE_S1, 8)->info[INFO_MTU_SM_SL], 3);
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_MTU);
	query.mtu = 3;
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_OK);
	assert_int_equal(route.mtu, 3);
	/* partitions */
	net_port(net, NODE_S1, 1)->info[INFO_VLS_ENFORCE] |= ENFORCE_IN;
	query.pkey = 0x1234;
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_PARTITION_RCV);
	query.pkey = 0xffff;
	fabric_cable_set(&net->fabric, net_row(net, NODE_S1, 8), true, 5);
	fabric_route_find(&net->fabric, &query, &route);
	assert_int_equal(route.result, ROUTE_INACTIVE);
	route_count_loss(&net->fabric, &route, 3);
	assert_int_equal(
		net->fabric.counters[net_row(net, NODE_S1, 8)].errors_short[ERROR_XMIT_DISCARDS],
		3);
	net_free(net);
}

static void lmc_and_self(void **state)
{
	struct net *net = net_create();
	struct route_query query = {.pkey = 0xffff};
	struct fabric_route route;

	(void)state;
	net_configure(net);
	octets_put16(net_port(net, NODE_H1, 1)->info + INFO_LID, 8);
	net_port(net, NODE_H1, 1)->info[INFO_PROTECT_LMC] = 2;
	query.port = net_row(net, NODE_H1, 1);
	for (query.destination = 8; query.destination < 12; query.destination++) {
		fabric_route_find(&net->fabric, &query, &route);
		assert_int_equal(route.result, ROUTE_OK);
		assert_int_equal(route.hops, 0);
	}
	fabric_route_find(&net->fabric, &query, &route); /* 12 */
	assert_int_not_equal(route.result, ROUTE_OK);
	net_free(net);
}

static void counters_and_their_reset(void **state)
{
	struct net *net = net_create();
	uint32_t row = net_row(net, NODE_S1, 1);
	uint8_t mad[256] = {1, 0x04, 1, GET, [17] = 0x12, [65] = 1};

	(void)state;
	net_configure(net);
	fabric_counters_clear(&net->fabric, row);
	fabric_error_add(&net->fabric, row, ERROR_SYMBOL, 70000);
	net_send(net, NODE_H1, 1, LID_S1, 1, mad, 1);
	assert_int_equal(net->mad[3], 0x81);
	assert_int_equal(octets_get16(net->mad + 64 + 4), 0xffff); /* saturated */
	assert_int_equal(octets_get32(net->mad + 64 + 28), 72);	   /* this request */
	assert_true(net->fabric.counters[row].errors[ERROR_SYMBOL] == 70000);
	mad[3] = SET;
	octets_put16(mad + 66, 0x0001); /* symbol errors only */
	net_send(net, NODE_H1, 1, LID_S1, 1, mad, 1);
	assert_int_equal(octets_get16(net->mad + 64 + 4), 0);
	assert_true(octets_get32(net->mad + 64 + 28) > 0);
	mad[65] = 255; /* all of the switch's */
	mad[3] = GET;
	net_send(net, NODE_H1, 1, LID_S1, 1, mad, 1);
	assert_int_equal(octets_get16(net->mad + 4), 0);
	net_send(net, NODE_H1, 1, LID_H3, 1, mad, 1); /* an adapter has no such selection */
	assert_int_equal(octets_get16(net->mad + 4), 0x1c);
	net_free(net);
}

static void traps_until_repressed(void **state)
{
	struct net *net = net_create();
	uint64_t deadline;
	uint8_t mad[256];

	(void)state;
	net_configure(net);
	fabric_cable_set(&net->fabric, net_row(net, NODE_S1, 8), true, 100);
	fabric_expire(&net->fabric, 100);
	assert_int_equal(net->delivered, 2); /* S1's and S2's */
	assert_int_equal(octets_get16(net->mad + 64 + 4), 128);
	assert_int_equal(net->fabric.nodes[NODE_S1].switch_info_flags & 4, 4);
	deadline = fabric_deadline(&net->fabric);
	assert_true(deadline > 100 && deadline < 6000);
	/* OpenSM's answer: the same with another method */
	memcpy(mad, net->mad, 256);
	mad[3] = REPRESS;
	net_send(net, NODE_H1, 1, net->from.source, 0, mad, 200);
	net->delivered = 0;
	fabric_expire(&net->fabric, deadline);
	assert_int_equal(net->delivered, 1);
	for (int i = 0; i < 20; i++)
		fabric_expire(&net->fabric, deadline + 10000u * (unsigned)i);
	assert_true(fabric_deadline(&net->fabric) == UINT64_MAX); /* given up */
	net_free(net);
}

static void partitions_and_queue_keys(void **state)
{
	struct net *net = net_create();
	uint8_t mad[256] = {1, 0x03, 2, GET};
	struct fabric_address to = {.destination = LID_H3, .source_qp = 1, .destination_qp = 1};

	(void)state;
	net_configure(net);
	to.qkey = 0x80010000;
	fabric_send(&net->fabric, net_row(net, NODE_H1, 1), &to, mad, 1);
	assert_int_equal(net->delivered, 1);
	to.qkey = 5;
	fabric_send(&net->fabric, net_row(net, NODE_H1, 1), &to, mad, 1);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(octets_get16(net_port(net, NODE_H3, 1)->info + INFO_Q_KEY_VIOLATIONS), 1);
	to.qkey = 0x80010000;
	to.pkey_index = 3; /* an empty entry */
	fabric_send(&net->fabric, net_row(net, NODE_H1, 1), &to, mad, 1);
	assert_int_equal(net->delivered, 1);
	assert_int_equal(octets_get16(net_port(net, NODE_H3, 1)->info + INFO_P_KEY_VIOLATIONS), 1);
	net_free(net);
}

static void power_and_epoch(void **state)
{
	struct net *net = net_create();
	uint64_t epoch;
	uint8_t data[64];

	(void)state;
	net_configure(net);
	assert_int_equal(net_get(net, "\1", UNICAST, 0, data), 0);
	assert_int_equal(data[LID_H4], 8);
	assert_int_equal(data[60], 0xff);
	epoch = net->fabric.header->epoch;
	assert_int_equal(net_ask(net, "\1", SET, UNICAST, 0, data), 0);
	assert_true(net->fabric.header->epoch == epoch); /* as it was */
	data[LID_H4] = 7;
	assert_int_equal(net_ask(net, "\1", SET, UNICAST, 0, data), 0);
	assert_true(net->fabric.header->epoch > epoch);
	fabric_power_set(&net->fabric, NODE_S1, false, 1);
	assert_int_equal(port_state(net_port(net, NODE_H1, 1)), PORT_DOWN);
	assert_int_equal(net->events[EVENT_PORT_ERROR], 2);
	fabric_power_set(&net->fabric, NODE_S1, true, 1);
	assert_int_equal(port_state(net_port(net, NODE_H1, 1)), PORT_INIT);
	assert_int_equal(net_get(net, "\1", UNICAST, 0, data), 0);
	assert_int_equal(data[LID_H4], 0xff);
	assert_int_equal(fabric_cable_set(&net->fabric, net_row(net, NODE_S1, 3), true, 1),
			 -ENOTCONN);
	net_free(net);
}

static void opened_again(void **state)
{
	struct net *net = net_create();
	struct fabric again;

	(void)state;
	net_configure(net);
	assert_int_equal(fabric_open(&again, &net_functions, net, net->memory, net->bytes), 0);
	assert_string_equal(fabric_node_name(&again, NODE_H3), "H3");
	assert_int_equal(fabric_open(&again, &net_functions, net, net->memory, net->bytes - 4096),
			 -EINVAL);
	net->fabric.ports[3].cable = 0;
	assert_int_equal(fabric_open(&again, &net_functions, net, net->memory, net->bytes),
			 -EINVAL);
	net->fabric.header->is_complete = 0;
	assert_int_equal(fabric_open(&again, &net_functions, net, net->memory, net->bytes),
			 -EINVAL);
	net_free(net);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(directed_routes),
		cmocka_unit_test(combined_route),
		cmocka_unit_test(states_of_ports),
		cmocka_unit_test(a_refused_set_changes_nothing),
		cmocka_unit_test(management_key),
		cmocka_unit_test(routes_of_data),
		cmocka_unit_test(lmc_and_self),
		cmocka_unit_test(counters_and_their_reset),
		cmocka_unit_test(traps_until_repressed),
		cmocka_unit_test(partitions_and_queue_keys),
		cmocka_unit_test(power_and_epoch),
		cmocka_unit_test(opened_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
