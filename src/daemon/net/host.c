/* SPDX-License-Identifier: BSD-2-Clause */
/* The host's interfaces. See host.h. No state. */
#include "daemon/net/host.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ addresses */

struct found {
	struct host_address address;
	bool loopback, v4;
	int order; /* position in the kernel's list */
};

static bool gid_from(const struct sockaddr *sa, uint8_t *gid)
{
	if (sa->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
		return true;
	}
	if (sa->sa_family != AF_INET)
		return false;
	memset(gid, 0, 10);
	memset(gid + 10, 0xff, 2);
	memcpy(gid + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	return true;
}

static int found_compare(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->loopback != y->loopback)
		return x->loopback - y->loopback;
	if (x->address.ifindex != y->address.ifindex)
		return x->address.ifindex < y->address.ifindex ? -1 : 1;
	if (x->v4 != y->v4)
		return y->v4 - x->v4;
	return x->order - y->order;
}

static void find_mac(const struct ifaddrs *all, const char *ifname, uint8_t mac[6])
{
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct sockaddr_ll *link = (const struct sockaddr_ll *)i->ifa_addr;

		if (link && link->sll_family == AF_PACKET && link->sll_halen == 6 &&
		    strcmp(i->ifa_name, ifname) == 0)
			memcpy(mac, link->sll_addr, 6);
	}
}

static void found_fill(struct found *f, const struct ifaddrs *all, const struct ifaddrs *i,
		       int order)
{
	/* An alias ("eth0:1") is an address of its interface. */
	snprintf(f->address.ifname, sizeof(f->address.ifname), "%.*s",
		 (int)strcspn(i->ifa_name, ":"), i->ifa_name);
	f->address.ifindex = if_nametoindex(f->address.ifname);
	find_mac(all, f->address.ifname, f->address.mac);
	f->loopback = i->ifa_flags & IFF_LOOPBACK;
	f->v4 = i->ifa_addr->sa_family == AF_INET;
	f->order = order;
}

/*
 * The address's flags: whether another host may have it, because duplicate address detection is
 * under way, or has failed. Packets can't be sent from such an address; when they can, the kernel
 * reports the address again.
 */
static unsigned int duplicate_flags(FILE *table, const struct ifaddrs *i)
{
	const struct sockaddr_in6 *sa = (const struct sockaddr_in6 *)i->ifa_addr;
	char line[128], hex[33], wanted[33], ifname[IF_NAMESIZE];
	unsigned int flags;

	if (!table || sa->sin6_family != AF_INET6)
		return 0;
	for (int n = 0; n < 16; n++)
		snprintf(wanted + 2 * n, 3, "%02x", sa->sin6_addr.s6_addr[n]);
	rewind(table);
	while (fgets(line, sizeof(line), table))
		if (sscanf(line, "%32s %*x %*x %*x %x %15s", hex, &flags, ifname) == 3 &&
		    !strcmp(hex, wanted) && !strcmp(ifname, i->ifa_name))
			return flags;
	return 0;
}

/* Appends an interface's address, unless it isn't one or can't be used. */
static void found_add(struct found *found, int *count, FILE *six, const struct ifaddrs *all,
		      const struct ifaddrs *i)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) ||
	    !gid_from(i->ifa_addr, found[*count].address.gid))
		return;
	unsigned int flags = duplicate_flags(six, i);

	if (flags & IFA_F_DADFAILED)
		return;
	found_fill(&found[*count], all, i, *count);
	/* An optimistic address may be used meanwhile. */
	found[*count].address.tentative = (flags & IFA_F_TENTATIVE) && !(flags & IFA_F_OPTIMISTIC);
	++*count;
}

int host_addresses(struct host_address **list)
{
	struct ifaddrs *all;
	int count = 0, places = 0;

	if (getifaddrs(&all) < 0)
		return -errno;
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		places++;
	struct found *found = calloc((size_t)places + 1, sizeof(*found));
	struct host_address *out = calloc((size_t)places + 1, sizeof(*out));
	FILE *six = fopen("/proc/self/net/if_inet6", "re"); /* NULL: no IPv6 */

	for (struct ifaddrs *i = all; found && out && i; i = i->ifa_next)
		found_add(found, &count, six, all, i);
	freeifaddrs(all);
	if (six)
		fclose(six);
	if (!found || !out) {
		free(found);
		free(out);
		return -ENOMEM;
	}
	qsort(found, (size_t)count, sizeof(*found), found_compare);
	for (int i = 0; i < count; i++)
		out[i] = found[i].address;
	free(found);
	*list = out;
	return count;
}

/* ------------------------------------------------------------------ identity of this host */

static bool is_card(const struct ifaddrs *i)
{
	static const uint8_t none[6];
	const struct sockaddr_ll *link = (const struct sockaddr_ll *)i->ifa_addr;

	return link && link->sll_family == AF_PACKET && link->sll_hatype == ARPHRD_ETHER &&
	       link->sll_halen == sizeof(none) && memcmp(link->sll_addr, none, sizeof(none)) != 0;
}

int host_card(const char *name, struct host_card *card)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) < 0)
		return -errno;
	card->ifindex = 0;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		const struct sockaddr_ll *link = (const struct sockaddr_ll *)i->ifa_addr;

		if (!is_card(i) || strcmp(name, i->ifa_name) != 0)
			continue;
		card->ifindex = (uint32_t)link->sll_ifindex;
		memcpy(card->mac, link->sll_addr, sizeof(card->mac));
	}
	freeifaddrs(all);
	return card->ifindex ? 0 : -ENODEV;
}

struct host_port host_port(const char *name)
{
	struct host_port port = {0};
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return port;
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &request) == 0)
		port.up = (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
	if (ioctl(fd, SIOCGIFMTU, &request) == 0)
		port.mtu = (uint32_t)request.ifr_mtu;
	close(fd);
	return port;
}

/* FNV-1a */
static uint64_t host_hash(uint64_t h, const void *data, size_t size)
{
	for (size_t i = 0; i < size; i++)
		h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull;
	return h;
}

static uint64_t hash_file(uint64_t h, const char *path)
{
	char text[128];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

	if (fd >= 0)
		close(fd);
	return n > 0 ? host_hash(h, text, (size_t)n) : h;
}

uint64_t host_number(void)
{
	struct stat st;
	uint64_t h = 0xcbf29ce484222325ull, before = h;

	h = hash_file(h, "/etc/machine-id");
	if (h == before)
		h = hash_file(h, "/proc/sys/kernel/random/boot_id");
	if (stat("/proc/self/ns/net", &st) == 0)
		h = host_hash(h, &st.st_ino, sizeof(st.st_ino));
	return h;
}

/* ------------------------------------------------------------------ changes */

int host_watch_open(void)
{
	const struct sockaddr_nl address = {.nl_family = AF_NETLINK,
					    .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR |
							 RTMGRP_IPV6_IFADDR};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* The messages aren't parsed, because the list is read anew. A full buffer (ENOBUFS) counts as a
 * change. */
void host_watch_drain(int fd)
{
	char buffer[8192];

	while (recv(fd, buffer, sizeof(buffer), 0) >= 0 || errno == EINTR || errno == ENOBUFS)
		;
}
