/* SPDX-License-Identifier: BSD-2-Clause */
/* libibumad with a backend of the test's: which port is meant, lists, sending and receiving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "umad/backend.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT(...)           \
	{                   \
		__VA_ARGS__ \
	}
#define NO_PORT PORT(0, 0, NULL, 0, false)

/* Devices with their ports' ports: state, phys_state, link layer, GUID, IsSMDisabled. */
static const struct {
	const char *name;
	unsigned node_type;
	struct {
		unsigned state, phys;
		const char *layer;
		int guid; /* 0: one of its own; -1: none */
		bool smi_is_disabled;
	} ports[3]; /* numbers 0 to 2; without a layer: none */
} devices[] = {
	{"zeta", 1, {NO_PORT, PORT(4, 5, "Ethernet", 0, false)}},
	{"mike",
	 1,
	 {NO_PORT, PORT(1, 2, "InfiniBand", 0, false), PORT(2, 5, "InfiniBand", 0, false)}},
	{"alpha",
	 1,
	 {NO_PORT, PORT(1, 3, "InfiniBand", 0, false), PORT(4, 5, "InfiniBand", 0, false)}},
	{"off", 1, {NO_PORT, PORT(1, 3, "InfiniBand", 0, false)}},
	{"switch", 2, {PORT(4, 5, "InfiniBand", 0, false)}},
	/* One port's two devices, whose names sort either way; a GSI without an SMI; no GUID. */
	{"a_gsi", 1, {NO_PORT, PORT(4, 5, "InfiniBand", 7000, true)}},
	{"b_smi",
	 1,
	 {NO_PORT, PORT(1, 2, "InfiniBand", 7000, false), PORT(2, 5, "InfiniBand", 0, false)}},
	{"c_smi", 1, {NO_PORT, PORT(4, 5, "InfiniBand", 7001, false)}},
	{"d_gsi", 1, {NO_PORT, PORT(2, 5, "InfiniBand", 7001, true)}},
	{"lone_gsi", 1, {NO_PORT, PORT(4, 5, "InfiniBand", 7002, true)}},
	{"nameless", 1, {NO_PORT, PORT(4, 5, "InfiniBand", -1, false)}},
	{"nameless2", 1, {NO_PORT, PORT(4, 5, "InfiniBand", -1, false)}},
};

#define OF_THE_FIRST_TESTS 4
#define ALL ((int)(sizeof devices / sizeof *devices))

static int visible = OF_THE_FIRST_TESTS; /* of the devices */
static int pair[2];
static char opened[64];

static int test_list(char names[][UMAD_CA_NAME_LEN], int max)
{
	int count = visible < max ? visible : max;

	for (int i = 0; i < count; i++)
		strcpy(names[i], devices[i].name);
	return count;
}

static uint64_t guid_of(int device, int port)
{
	int guid = devices[device].ports[port].guid;

	return guid ? (guid > 0 ? guid : 0) : 100 * device + port;
}

static int test_query(const char *name, struct umad_ca *ca)
{
	for (int i = 0; i < (int)(sizeof devices / sizeof *devices); i++) {
		if (strcmp(devices[i].name, name))
			continue;
		strcpy(ca->ca_name, name);
		ca->node_type = devices[i].node_type;
		for (int k = 0; k < 3; k++) {
			if (!devices[i].ports[k].layer)
				continue;
			ca->ports[k] = calloc(1, sizeof *ca->ports[k]);
			ca->ports[k]->portnum = k;
			ca->ports[k]->state = devices[i].ports[k].state;
			ca->ports[k]->phys_state = devices[i].ports[k].phys;
			ca->ports[k]->port_guid = htobe64(guid_of(i, k));
			if (devices[i].ports[k].smi_is_disabled)
				ca->ports[k]->capmask = htobe32(0x400);
			ca->ports[k]->pkeys = calloc(4, sizeof(uint16_t));
			ca->ports[k]->pkeys_size = 4;
			strcpy(ca->ports[k]->link_layer, devices[i].ports[k].layer);
			ca->numports = k;
		}
		return 0;
	}
	return -ENOENT;
}

static int test_open(const char *name, int port)
{
	snprintf(opened, sizeof opened, "%s %d", name, port);
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) ? -errno : pair[0];
}

static int test_close(int fd)
{
	close(pair[1]);
	return close(fd) ? -errno : 0;
}

static int test_register(int fd, int qpn, struct umad_reg_attr *attr, uint32_t *agent)
{
	(void)fd;
	if (attr->mgmt_class == 0x20)
		return -EINVAL;
	*agent = (uint32_t)(qpn * 10 + attr->rmpp_version);
	return 0;
}

static int test_unregister(int fd, uint32_t agent)
{
	(void)fd;
	return agent ? -EINVAL : 0;
}

static int test_send(int fd, const void *packet, size_t bytes)
{
	return write(fd, packet, bytes) < 0 ? -errno : 0;
}

static ssize_t test_receive(int fd, void *packet, size_t bytes)
{
	struct ib_user_mad header;
	ssize_t there = recv(fd, &header, sizeof header, MSG_PEEK | MSG_TRUNC);

	if (there < 0)
		return -errno;
	if ((size_t)there > bytes) {
		header.length = (uint32_t)there;
		memcpy(packet, &header, sizeof header);
		return -ENOSPC;
	}
	return read(fd, packet, bytes);
}

static const struct umad_backend backend = {
	.devices_list = test_list,
	.device_query = test_query,
	.port_open = test_open,
	.port_close = test_close,
	.agent_register = test_register,
	.agent_unregister = test_unregister,
	.packet_send = test_send,
	.packet_receive = test_receive,
};

static void open_is(const char *name, int port, const char *expected)
{
	int fd = umad_open_port(name, port);

	if (!expected) {
		assert_int_equal(fd, -ENODEV);
		return;
	}
	assert_true(fd >= 0);
	assert_string_equal(opened, expected);
	umad_close_port(fd);
}

static void the_best_port_is_chosen(void **state)
{
	(void)state;
	backend_choose(&backend);
	open_is(NULL, 0, "alpha 2"); /* the only Active one of link layer InfiniBand */
	open_is("mike", 0, "mike 2");
	open_is("zeta", 0, NULL);
	open_is("zeta", 1, "zeta 1"); /* what is named isn't judged */
	open_is("off", 0, NULL);
	open_is(NULL, 1, "mike 1");
	visible = 2;
	open_is(NULL, 0, "mike 2"); /* its link is up */
	visible = 1;
	open_is(NULL, 0, NULL);
	visible = OF_THE_FIRST_TESTS + 1;
	open_is("switch", 0, "switch 0");
	visible = OF_THE_FIRST_TESTS;
}

static void devices_are_described(void **state)
{
	char names[8][UMAD_CA_NAME_LEN];
	struct umad_device_node *list;
	__be64 guids[3];
	umad_port_t port;
	umad_ca_t ca;

	(void)state;
	backend_choose(&backend);
	assert_int_equal(umad_get_cas_names(names, 8), 4);
	assert_string_equal(names[0], "alpha");
	assert_string_equal(names[3], "zeta");
	assert_int_equal(umad_get_cas_names(names, 2), 2);
	list = umad_get_ca_device_list();
	assert_string_equal(list->ca_name, "zeta"); /* the backend's order */
	assert_int_equal(umad_sort_ca_device_list(&list, 4), 0);
	assert_string_equal(list->ca_name, "alpha");
	umad_free_ca_device_list(list);
	assert_int_equal(umad_get_ca("alpha", &ca), 0);
	assert_int_equal(ca.numports, 2);
	assert_null(ca.ports[0]);
	umad_release_ca(&ca);
	assert_int_equal(umad_get_ca("nothing", &ca), -ENOENT);
	assert_int_equal(umad_get_port(NULL, 0, &port), 0);
	assert_int_equal(port.portnum, 2);
	assert_int_equal(port.pkeys_size, 4);
	umad_release_port(&port);
	assert_int_equal(umad_get_port("alpha", 3, &port), -EIO);
	assert_int_equal(umad_get_ca_portguids("alpha", guids, 3), 3);
	assert_true(guids[0] == 0 && guids[2] == htobe64(202));
	assert_int_equal(umad_get_ca_portguids("alpha", guids, 2), -ENOMEM);
}

static void pair_is(const struct umad_ca_pair *pair, const char *smi, unsigned smi_port,
		    const char *gsi, unsigned gsi_port)
{
	assert_string_equal(pair->smi_name, smi);
	assert_int_equal(pair->smi_preferred_port, smi_port);
	assert_string_equal(pair->gsi_name, gsi);
	assert_int_equal(pair->gsi_preferred_port, gsi_port);
}

static void devices_are_paired(void **state)
{
	struct umad_ca_pair pairs[16];

	(void)state;
	backend_choose(&backend);
	visible = ALL;
	/* By name: a_gsi with b_smi, alpha, c_smi with d_gsi, lone_gsi, mike, off, switch, zeta. */
	assert_int_equal(umad_get_smi_gsi_pairs(pairs, 16), 8);
	pair_is(&pairs[0], "b_smi", 0, "a_gsi", 0);
	pair_is(&pairs[1], "alpha", 0, "alpha", 0);
	pair_is(&pairs[2], "c_smi", 0, "d_gsi", 0);
	pair_is(&pairs[3], "", 0, "lone_gsi", 0);
	pair_is(&pairs[6], "switch", 0, "switch", 0);
	pair_is(&pairs[7], "zeta", 0, "zeta", 0);
	/* Room for one: its other half is still found. */
	memset(pairs, 0x55, sizeof pairs);
	assert_int_equal(umad_get_smi_gsi_pairs(pairs, 1), 1);
	pair_is(&pairs[0], "b_smi", 0, "a_gsi", 0);
	assert_int_equal(pairs[1].smi_preferred_port, 0x55555555);
	visible = 0;
	assert_int_equal(umad_get_smi_gsi_pairs(pairs, 16), 0);
	visible = OF_THE_FIRST_TESTS;
}

static void chosen_is(const char *name, int port, unsigned enforce, const char *smi,
		      unsigned smi_port, const char *gsi, unsigned gsi_port)
{
	struct umad_ca_pair pair;

	assert_int_equal(umad_get_smi_gsi_pair_by_ca_name(name, port, &pair, enforce), 0);
	pair_is(&pair, smi, smi_port, gsi, gsi_port);
}

static void none_is_chosen(const char *name, int port, unsigned enforce)
{
	struct umad_ca_pair pair;

	errno = 0;
	assert_int_equal(umad_get_smi_gsi_pair_by_ca_name(name, port, &pair, enforce), -ENODEV);
	assert_int_equal(errno, ENODEV);
	pair_is(&pair, "", 0, "", 0);
}

static void the_pair_of_a_device_is_chosen(void **state)
{
	(void)state;
	backend_choose(&backend);
	visible = ALL;
	chosen_is(NULL, 0, 0, "b_smi", 2, "a_gsi", 1);	  /* b_smi's port 1 is down */
	chosen_is("b_smi", 1, 0, "b_smi", 1, "a_gsi", 1); /* it is named */
	chosen_is("d_gsi", 0, 1, "c_smi", 1, "d_gsi", 1);
	chosen_is("alpha", 0, 1, "alpha", 2, "alpha", 2);
	chosen_is("alpha", 1, 1, "alpha", 1, "alpha", 1);
	chosen_is("switch", 0, 1, "switch", 0, "switch", 0);
	chosen_is("lone_gsi", 0, 0, "", 0, "lone_gsi", 1);
	none_is_chosen("lone_gsi", 0, 1);
	none_is_chosen("off", 0, 0);
	none_is_chosen("alpha", 3, 0);
	none_is_chosen("alpha", 200, 0);
	none_is_chosen("nameless", 0, 0);
	none_is_chosen("nothing", 0, 0);
	assert_int_equal(umad_get_smi_gsi_pair_by_ca_name("alpha", 0, NULL, 0), -1);
	visible = OF_THE_FIRST_TESTS;
}

static void a_port_with_subnet_management_is_opened(void **state)
{
	int fd;

	(void)state;
	backend_choose(&backend);
	visible = ALL;
	assert_int_equal(umad_open_smi_port("lone_gsi", 1), -ENODEV);
	assert_int_equal(umad_open_smi_port("lone_gsi", 0), -ENODEV);
	fd = umad_open_smi_port("c_smi", 1);
	assert_true(fd >= 0);
	assert_string_equal(opened, "c_smi 1");
	umad_close_port(fd);
	fd = umad_open_smi_port(NULL, 0);
	assert_true(fd >= 0);
	assert_string_equal(opened, "alpha 2");
	umad_close_port(fd);
	visible = OF_THE_FIRST_TESTS;
}

static void messages_pass(void **state)
{
	uint8_t buffer[64 + 512] = {0};
	struct ib_user_mad *packet = (struct ib_user_mad *)(void *)buffer;
	int length = 256;
	int fd;

	(void)state;
	backend_choose(&backend);
	fd = umad_open_port(NULL, 0);
	assert_int_equal(umad_register(fd, 0x81, 1, 0, NULL), 0);
	assert_int_equal(umad_register(fd, 0x03, 2, 1, NULL), 11);
	assert_int_equal(umad_register(fd, 0x20, 1, 0, NULL), -EPERM);
	assert_int_equal(umad_unregister(fd, 0), 0);
	assert_int_equal(umad_unregister(fd, 3), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(umad_recv(fd, buffer, &length, 0), -EAGAIN);
	assert_int_equal(umad_recv(fd, buffer, &length, 1), -ETIMEDOUT);
	assert_int_equal(errno, ETIMEDOUT);
	assert_int_equal(umad_send(fd, 7, buffer, 256, 100, 3), 0);
	assert_int_equal(read(pair[1], buffer, sizeof buffer), 64 + 256);
	assert_int_equal(packet->agent_id, 7);
	assert_int_equal(packet->timeout_ms, 100);
	assert_int_equal(packet->retries, 3);
	/* A message that is too long stays, and its length is known. */
	assert_int_equal(write(pair[1], buffer, 64 + 400), 64 + 400);
	assert_int_equal(umad_recv(fd, buffer, &length, -1), -ENOSPC);
	assert_int_equal(length, 400);
	assert_int_equal(umad_recv(fd, buffer, &length, 0), 7);
	assert_int_equal(length, 400);
	shutdown(pair[1], SHUT_RDWR);
	assert_int_equal(umad_send(fd, 7, buffer, 256, 0, 0), -EIO);
	umad_close_port(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_port_is_chosen),
		cmocka_unit_test(devices_are_described),
		cmocka_unit_test(devices_are_paired),
		cmocka_unit_test(the_pair_of_a_device_is_chosen),
		cmocka_unit_test(a_port_with_subnet_management_is_opened),
		cmocka_unit_test(messages_pass),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
