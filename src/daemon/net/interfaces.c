/* SPDX-License-Identifier: BSD-2-Clause */
/* See interfaces.h. */
#include "daemon/net/interfaces.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The kernel fills packets of the reader's size, up to 32 KiB. */
enum { PACKET_BYTES = 32768, PLACES_FIRST = 64, PLACES_MAX = 65536 };

/* ------------------------------------------------------------------ decoding */

static uint32_t attribute_number(const struct rtattr *a)
{
	uint32_t number = 0;

	if (RTA_PAYLOAD(a) >= sizeof(number))
		memcpy(&number, RTA_DATA(a), sizeof(number));
	return number;
}

static void attribute_text(const struct rtattr *a, char *text, size_t size)
{
	size_t n = strnlen(RTA_DATA(a), RTA_PAYLOAD(a));

	if (n >= size)
		n = size - 1;
	memcpy(text, RTA_DATA(a), n);
	text[n] = 0;
}

static void take_kind(struct interface *interface, const struct rtattr *info)
{
	const struct rtattr *a = RTA_DATA(info);

	for (size_t left = RTA_PAYLOAD(info); RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) == IFLA_INFO_KIND)
			attribute_text(a, interface->kind, sizeof(interface->kind));
}

static void interface_decode(const struct nlmsghdr *header, struct interface *interface)
{
	const struct ifinfomsg *link = NLMSG_DATA(header);
	const struct rtattr *a = IFLA_RTA(link);
	bool is_elsewhere = false;

	*interface = (struct interface){.ifindex = (uint32_t)link->ifi_index,
					.flags = link->ifi_flags,
					.type = link->ifi_type};
	for (size_t left = IFLA_PAYLOAD(header); RTA_OK(a, left); a = RTA_NEXT(a, left))
		switch (a->rta_type & NLA_TYPE_MASK) {
		case IFLA_IFNAME:
			attribute_text(a, interface->ifname, sizeof(interface->ifname));
			break;
		case IFLA_MASTER:
			interface->master = attribute_number(a);
			break;
		case IFLA_LINK:
			interface->lower = attribute_number(a);
			break;
		case IFLA_LINK_NETNSID:
			is_elsewhere = true;
			break;
		case IFLA_LINKINFO:
			take_kind(interface, a);
			break;
		}
	/* The number is one of the other network namespace's. */
	if (is_elsewhere)
		interface->lower = 0;
}

int interfaces_decode(const void *packet, size_t size, struct interface *list, unsigned int places,
		      unsigned int *count)
{
	const struct nlmsghdr *header = packet;

	for (; NLMSG_OK(header, size); header = NLMSG_NEXT(header, size)) {
		if (header->nlmsg_type == NLMSG_DONE)
			return 1;
		if (header->nlmsg_type == NLMSG_ERROR)
			return -EPROTO;
		if (header->nlmsg_type != RTM_NEWLINK ||
		    header->nlmsg_len < NLMSG_LENGTH(sizeof(struct ifinfomsg)))
			continue;
		if (*count == places)
			return -ENOBUFS;
		interface_decode(header, &list[(*count)++]);
	}
	return 0;
}

/* ------------------------------------------------------------------ asking */

static int ask_links(int fd, struct interface *list, unsigned int places, unsigned int *count)
{
	static _Alignas(NLMSG_ALIGNTO) uint8_t packet[PACKET_BYTES];
	const struct {
		struct nlmsghdr header;
		struct ifinfomsg link;
	} question = {
		.header = {.nlmsg_len = sizeof(question),
			   .nlmsg_type = RTM_GETLINK,
			   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	};
	int done = 0;

	*count = 0;
	if (send(fd, &question, sizeof(question), 0) < 0)
		return -errno;
	while (!done) {
		ssize_t n = recv(fd, packet, sizeof(packet), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPROTO;
		done = interfaces_decode(packet, (size_t)n, list, places, count);
	}
	return done < 0 ? done : 0;
}

static int interface_compare(const void *a, const void *b)
{
	const struct interface *x = a, *y = b;

	return x->ifindex < y->ifindex ? -1 : x->ifindex > y->ifindex;
}

/* Returns 0; -ENOBUFS: there are more than `places`; -errno. */
static int read_some(struct interface *list, unsigned int places, unsigned int *count)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	int err = ask_links(fd, list, places, count);

	close(fd);
	return err;
}

int interfaces_read(struct interface **list)
{
	for (unsigned int places = PLACES_FIRST; places <= PLACES_MAX; places *= 4) {
		unsigned int count;
		struct interface *all = calloc(places, sizeof(*all));

		if (!all)
			return -ENOMEM;
		int err = read_some(all, places, &count);

		if (!err) {
			qsort(all, count, sizeof(*all), interface_compare);
			*list = all;
			return (int)count;
		}
		free(all);
		if (err != -ENOBUFS)
			return err;
	}
	return -ENOBUFS;
}

/* ------------------------------------------------------------------ the default route */

union far {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

/* The source address of packets to `to`; connecting a UDP socket sends nothing. */
static bool source_towards(const union far *to, socklen_t size, union far *source)
{
	int fd = socket(to->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && connect(fd, &to->any, size) == 0 &&
		     getsockname(fd, &source->any, &size) == 0;

	if (fd >= 0)
		close(fd);
	return found;
}

static uint32_t interface_with(const union far *address)
{
	struct ifaddrs *all;
	uint32_t ifindex = 0;

	if (getifaddrs(&all) < 0)
		return 0;
	for (const struct ifaddrs *i = all; i && !ifindex; i = i->ifa_next) {
		const union far *own = (const union far *)i->ifa_addr;

		if (!own || own->any.sa_family != address->any.sa_family)
			continue;
		if (own->any.sa_family == AF_INET
			    ? own->four.sin_addr.s_addr == address->four.sin_addr.s_addr
			    : IN6_ARE_ADDR_EQUAL(&own->six.sin6_addr, &address->six.sin6_addr))
			ifindex = if_nametoindex(i->ifa_name);
	}
	freeifaddrs(all);
	return ifindex;
}

uint32_t interfaces_default(void)
{
	/* Addresses that are reserved for documentation (RFC 5737, RFC 3849): only a default route
	 * leads there. */
	union far four = {.four = {.sin_family = AF_INET, .sin_port = htons(9)}}, source;
	union far six = {.six = {.sin6_family = AF_INET6, .sin6_port = htons(9)}};

	inet_pton(AF_INET, "203.0.113.1", &four.four.sin_addr);
	inet_pton(AF_INET6, "2001:db8::1", &six.six.sin6_addr);
	if (source_towards(&four, sizeof(four.four), &source) ||
	    source_towards(&six, sizeof(six.six), &source))
		return interface_with(&source);
	return 0;
}
