/* SPDX-License-Identifier: BSD-2-Clause */
/* Which interfaces get a device, and whose addresses it has: networks as tables. Also decoding what
 * the kernel says of interfaces. */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "daemon/net/reach.h"

/* One interface; its index is its position in the network, from 1. */
struct line {
	const char *name, *kind;
	unsigned int below; /* the interface it is made on, or the bridge or bond it is part of */
	const char *addresses; /* g: a global one; l: a link-local one */
	unsigned int flags;
	uint16_t type; /* 0: Ethernet */
	bool default_route;
};

#define ETHER(name, kind, below, addresses)               \
	{                                                 \
		name, kind, below, addresses, 0, 0, false \
	}
#define WITH_DEFAULT(name, kind, below, addresses)       \
	{                                                \
		name, kind, below, addresses, 0, 0, true \
	}
#define LO                                                             \
	{                                                              \
		"lo", "", 0, "g", IFF_LOOPBACK, ARPHRD_LOOPBACK, false \
	}

enum { LINES = 8 };

static const struct sample {
	const char *name;
	struct line lines[LINES];
	const char *chosen; /* names of the bases, in order */
	const char *bases;  /* of each interface, by their numbers */
} samples[] = {
	{"nothing but the loopback interface", {LO}, "", "1"},
	{"a card", {LO, ETHER("eth0", "", 0, "gl")}, "eth0", "12"},
	{"a card without addresses", {LO, ETHER("eth0", "", 0, "")}, "", "12"},
	{"a card that has a link-local address only",
	 {LO, ETHER("eth0", "", 0, "l")},
	 "eth0",
	 "12"},
	{"two cards, the default route's first",
	 {LO, ETHER("eth0", "", 0, "g"), WITH_DEFAULT("eth1", "", 0, "g")},
	 "eth1 eth0",
	 "123"},
	{"one with a whole address before one without",
	 {LO, ETHER("eth0", "", 0, "l"), ETHER("eth1", "", 0, "g")},
	 "eth1 eth0",
	 "123"},
	{"Docker's bridge with a container, before the card",
	 {LO, ETHER("docker0", "bridge", 0, "g"), ETHER("veth1", "veth", 2, "l"),
	  ETHER("eth0", "", 0, "gl")},
	 "eth0",
	 "1234"},
	{"and no card",
	 {LO, ETHER("docker0", "bridge", 0, "g"), ETHER("veth1", "veth", 2, "l")},
	 "docker0",
	 "123"},
	{"a cable with both ends here, before a card",
	 {LO, ETHER("dk0", "veth", 3, "g"), ETHER("dk1", "veth", 2, "l"),
	  ETHER("eth0", "veth", 0, "g")},
	 "eth0",
	 "1234"},
	{"and no card",
	 {LO, ETHER("eth0", "veth", 3, "g"), ETHER("far0", "veth", 2, "l")},
	 "eth0",
	 "123"},
	{"a cable into the bridge of a card",
	 {LO,
	  ETHER("veth0", "veth", 3, "g"),
	  {"veth1", "veth", 4, "", 0, 0, false},
	  ETHER("br0", "bridge", 0, ""),
	  ETHER("eth0", "", 4, "")},
	 "eth0",
	 "15355"},
	{"a container: its card is a veth", {LO, ETHER("eth0", "veth", 0, "gl")}, "eth0", "12"},
	{"or a macvlan on a card that isn't here",
	 {LO, ETHER("eth0", "macvlan", 0, "g")},
	 "eth0",
	 "12"},
	{"Calico: the hosts' ends of containers' cables",
	 {LO, ETHER("cali1", "veth", 0, "l"), ETHER("cali2", "veth", 0, "l"),
	  ETHER("eth0", "", 0, "g")},
	 "eth0",
	 "1234"},
	{"a VLAN on a card",
	 {LO, ETHER("eth0", "", 0, "l"), ETHER("eth0.5", "vlan", 2, "g")},
	 "eth0",
	 "122"},
	{"a VLAN on a card with the default route",
	 {LO, ETHER("a", "", 0, "g"), ETHER("b", "", 0, ""), WITH_DEFAULT("b.5", "vlan", 3, "g")},
	 "b a",
	 "1233"},
	{"a bridge on a card, with a guest",
	 {LO, ETHER("br0", "bridge", 0, "gl"), ETHER("tap0", "tun", 2, "l"),
	  ETHER("eth0", "", 2, "l"), ETHER("eth1", "", 2, "l")},
	 "eth0",
	 "14345"},
	{"a VLAN on a bridge on a bond",
	 {LO, ETHER("eth0", "", 4, ""), ETHER("eth1", "", 4, ""), ETHER("bond0", "bond", 5, "l"),
	  ETHER("br0", "bridge", 0, ""), ETHER("br0.7", "vlan", 5, "g")},
	 "bond0",
	 "144444"},
	{"WireGuard beside a card",
	 {LO, {"wg0", "wireguard", 0, "g", 0, ARPHRD_NONE, true}, ETHER("eth0", "", 0, "g")},
	 "eth0",
	 "123"},
	{"WireGuard beside a bridge for containers",
	 {LO,
	  {"wg0", "wireguard", 0, "g", 0, ARPHRD_NONE, false},
	  ETHER("docker0", "bridge", 0, "g")},
	 "wg0",
	 "123"},
	{"a tunnel on a card",
	 {LO, ETHER("eth0", "", 0, "g"), ETHER("flannel.1", "vxlan", 2, "gl")},
	 "eth0",
	 "123"},
	{"Open vSwitch: the card is a port of what has no address",
	 {LO, ETHER("ovs-system", "openvswitch", 0, ""), ETHER("eth0", "", 2, ""),
	  WITH_DEFAULT("br-ex", "openvswitch", 0, "gl"), ETHER("br-int", "openvswitch", 0, "g")},
	 "br-ex",
	 "13345"},
	{"dummy and VRF lead nowhere",
	 {LO, ETHER("dummy0", "dummy", 0, "g"), ETHER("blue", "vrf", 0, "g"),
	  ETHER("eth0", "", 3, "g")},
	 "eth0",
	 "1234"},
	{"a loop of masters",
	 {LO, ETHER("a", "bond", 3, "g"), ETHER("b", "bond", 2, "g")},
	 "",
	 NULL},
};

static struct interface interfaces[LINES];
static struct host_address addresses[LINES * 2];

static bool is_made_on(const char *kind)
{
	return !strcmp(kind, "vlan") || !strcmp(kind, "macvlan") || !strcmp(kind, "vxlan");
}

/* A cable's end that names the other end. */
static bool is_pair(const struct sample *sample, const struct line *line)
{
	return line->below && !strcmp(line->kind, "veth") &&
	       !strcmp(sample->lines[line->below - 1].kind, "veth");
}

static void add_address(struct network *network, uint32_t ifindex, char form)
{
	struct host_address *a = &network->addresses[network->address_count++];

	*a = (struct host_address){.ifindex = ifindex};
	a->gid[0] = form == 'l' ? 0xfe : 0xfd;
	a->gid[1] = form == 'l' ? 0x80 : 0;
	a->gid[15] = (uint8_t)ifindex;
}

static void build(const struct sample *sample, struct network *network)
{
	*network = (struct network){.interfaces = interfaces, .addresses = addresses};
	for (unsigned int i = 0; i < LINES && sample->lines[i].name; i++) {
		const struct line *line = &sample->lines[i];
		struct interface *to = &interfaces[network->interface_count++];

		*to = (struct interface){.ifindex = i + 1,
					 .flags = IFF_UP | line->flags,
					 .type = line->type ? line->type : ARPHRD_ETHER};
		strcpy(to->ifname, line->name);
		strcpy(to->kind, line->kind);
		*(is_made_on(line->kind) || is_pair(sample, line) ? &to->lower : &to->master) =
			line->below;
		for (const char *form = line->addresses; *form; form++)
			add_address(network, i + 1, *form);
		if (line->default_route)
			network->default_ifindex = i + 1;
	}
	network_settle(network);
}

static void check_choice(const struct sample *sample, const struct network *network)
{
	const struct interface *chosen[LINES];
	unsigned int count = network_choose(network, REACH_NONE, chosen, LINES);
	char names[128] = "";

	for (unsigned int i = 0; i < count; i++) {
		strcat(names, i ? " " : "");
		strcat(names, chosen[i]->ifname);
	}
	assert_string_equal(names, sample->chosen);
}

static void networks(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
		const struct sample *sample = &samples[i];
		struct network network;

		print_message("%s\n", sample->name);
		build(sample, &network);
		for (uint32_t n = 0; sample->bases && n < network.interface_count; n++)
			assert_int_equal(network_base(&network, n + 1)->ifindex,
					 sample->bases[n] - '0');
		if (sample->bases)
			check_choice(sample, &network);
	}
}

/* While a device of a higher kind exists, those of a lower kind get none. */
static void nothing_less(void **state)
{
	const struct sample sample = {"", {LO, ETHER("docker0", "bridge", 0, "g")}, "", ""};
	const struct interface *chosen[LINES];
	struct network network;

	(void)state;
	build(&sample, &network);
	assert_int_equal(network_choose(&network, REACH_NONE, chosen, LINES), 1);
	assert_int_equal(network_choose(&network, REACH_CARD, chosen, LINES), 0);
	assert_int_equal(network_choose(&network, REACH_NONE, chosen, 0), 0);
}

/* ------------------------------------------------------------------ decoding */

struct packet {
	_Alignas(NLMSG_ALIGNTO) uint8_t bytes[1024];
	size_t size;
	struct nlmsghdr *header;
};

static void message_begin(struct packet *p, uint16_t type, int ifindex)
{
	p->header = (struct nlmsghdr *)(p->bytes + p->size);
	*p->header = (struct nlmsghdr){.nlmsg_len = NLMSG_LENGTH(sizeof(struct ifinfomsg)),
				       .nlmsg_type = type};
	*(struct ifinfomsg *)NLMSG_DATA(p->header) = (struct ifinfomsg){
		.ifi_index = ifindex, .ifi_type = ARPHRD_ETHER, .ifi_flags = IFF_UP};
	p->size += NLMSG_ALIGN(p->header->nlmsg_len);
}

static struct rtattr *attribute(struct packet *p, uint16_t type, const void *data, size_t size)
{
	struct rtattr *a = (struct rtattr *)(p->bytes + p->size);

	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(size);
	memcpy(RTA_DATA(a), data, size);
	p->size += RTA_ALIGN(a->rta_len);
	p->header->nlmsg_len += RTA_ALIGN(a->rta_len);
	return a;
}

static void kind(struct packet *p, const char *name)
{
	uint8_t inside[64] = {0};
	struct rtattr *a = (struct rtattr *)inside;

	a->rta_type = IFLA_INFO_KIND;
	a->rta_len = (uint16_t)RTA_LENGTH(strlen(name) + 1);
	strcpy(RTA_DATA(a), name);
	attribute(p, IFLA_LINKINFO | NLA_F_NESTED, inside, RTA_ALIGN(a->rta_len));
}

static void messages(void **state)
{
	struct packet p = {0};
	struct interface list[4];
	unsigned int count = 0;
	uint32_t two = 2, nine = 9;

	(void)state;
	message_begin(&p, RTM_NEWLINK, 2);
	attribute(&p, IFLA_IFNAME, "eth0", 5);
	message_begin(&p, RTM_NEWLINK, 3);
	attribute(&p, IFLA_IFNAME, "eth0.5", 7);
	attribute(&p, IFLA_LINK, &two, sizeof(two));
	attribute(&p, IFLA_MASTER, &nine, sizeof(nine));
	kind(&p, "vlan");
	message_begin(&p, RTM_NEWLINK, 4);
	attribute(&p, IFLA_IFNAME, "a-name-without-end", 18);
	attribute(&p, IFLA_LINK, &two, sizeof(two));
	attribute(&p, IFLA_LINK_NETNSID, &nine, sizeof(nine));
	kind(&p, "veth");
	assert_int_equal(interfaces_decode(p.bytes, p.size, list, 4, &count), 0);
	assert_int_equal(count, 3);
	assert_string_equal(list[0].ifname, "eth0");
	assert_string_equal(list[0].kind, "");
	assert_int_equal(list[0].flags, IFF_UP);
	assert_int_equal(list[1].lower, 2);
	assert_int_equal(list[1].master, 9);
	assert_string_equal(list[1].kind, "vlan");
	/* The name is cut, and the other namespace's number has no meaning here. */
	assert_int_equal(strlen(list[2].ifname), IF_NAMESIZE - 1);
	assert_int_equal(list[2].lower, 0);
	count = 0;
	assert_int_equal(interfaces_decode(p.bytes, p.size, list, 2, &count), -ENOBUFS);
}

static void ends(void **state)
{
	struct packet p = {0};
	struct interface list[1];
	unsigned int count = 0;

	(void)state;
	message_begin(&p, NLMSG_DONE, 0);
	assert_int_equal(interfaces_decode(p.bytes, p.size, list, 1, &count), 1);
	p = (struct packet){0};
	message_begin(&p, NLMSG_ERROR, 0);
	assert_int_equal(interfaces_decode(p.bytes, p.size, list, 1, &count), -EPROTO);
	/* One that is too short to be an interface, and half a message. */
	p = (struct packet){0};
	message_begin(&p, RTM_NEWLINK, 1);
	p.header->nlmsg_len = NLMSG_LENGTH(4);
	assert_int_equal(interfaces_decode(p.bytes, p.size, list, 1, &count), 0);
	assert_int_equal(interfaces_decode(p.bytes, 7, list, 1, &count), 0);
	assert_int_equal(count, 0);
}

/* What this host's kernel says is understood. */
static void this_host(void **state)
{
	struct network network;

	(void)state;
	assert_int_equal(network_read(&network), 0);
	assert_true(network.interface_count > 0);
	for (unsigned int i = 0; i < network.interface_count; i++) {
		const struct interface *interface = &network.interfaces[i];

		assert_int_equal(if_nametoindex(interface->ifname), interface->ifindex);
		assert_ptr_equal(network_find(&network, interface->ifindex), interface);
		assert_non_null(network_base(&network, interface->ifindex));
	}
	assert_null(network_find(&network, 0));
	network_free(&network);
}

/* Without a descriptor nothing is known, which isn't the same as a host without interfaces. */
static void no_descriptors(void **state)
{
	struct rlimit limit, none;
	struct network network;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){0, limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	int err = network_read(&network);

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(err, -EMFILE);
	assert_int_equal(network.interface_count, 0);
	assert_null(network.addresses);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(networks),  cmocka_unit_test(nothing_less),
		cmocka_unit_test(messages),  cmocka_unit_test(ends),
		cmocka_unit_test(this_host), cmocka_unit_test(no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
