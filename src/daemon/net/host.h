/* SPDX-License-Identifier: BSD-2-Clause */
/* What the daemon needs to know of the host: its interfaces' addresses, and when they change. */
#ifndef VERBENA_DAEMON_NET_HOST_H
#define VERBENA_DAEMON_NET_HOST_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

/* One address in the form of a GID (IPv4 as ::ffff:a.b.c.d). */
struct host_address {
	uint8_t gid[16];
	uint32_t ifindex;
	uint8_t mac[6]; /* the interface's; zeros: it has none */
	char ifname[IF_NAMESIZE];
};

/*
 * The addresses of all interfaces that are up: loopback's last, otherwise by interface index;
 * within an interface IPv6 before IPv4, then as the kernel lists them. *list is the caller's to
 * free. Returns their number or -errno.
 */
int host_addresses(struct host_address **list);

/*
 * The Ethernet interface `name`, or if that is NULL the one whose address names this host: the
 * lowest index of those that are up (a real card rather than a bridge that came later), else of
 * all. -ENODEV: none.
 */
struct host_card {
	uint8_t mac[6];
	uint32_t ifindex;
	char ifname[IF_NAMESIZE];
};
int host_card(const char *name, struct host_card *card);

/* Whether an interface carries packets now, and its MTU in bytes (0: there is no such interface).
 */
struct host_port {
	bool up;
	uint32_t mtu;
};
struct host_port host_port(const char *name);

/* Eight bytes that differ from host to host and namespace to namespace, the same until the next
 * boot at least. For hosts without a card. */
uint64_t host_number(void);

/* A non-blocking netlink socket that becomes readable when addresses or interfaces change. */
int host_watch_open(void);
void host_watch_drain(int fd);

#endif
