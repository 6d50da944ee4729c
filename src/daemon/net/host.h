/* SPDX-License-Identifier: BSD-2-Clause */
/* The host's interfaces and their addresses, and a notice when they change. */
#ifndef VERBENA_DAEMON_NET_HOST_H
#define VERBENA_DAEMON_NET_HOST_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

/* One address in the form of a GID (IPv4 as ::ffff:a.b.c.d). */
struct host_address {
	uint8_t gid[16];
	uint32_t ifindex;
	uint8_t mac[6]; /* the interface's; zero: it has none */
	char ifname[IF_NAMESIZE];
	bool tentative; /* the kernel still finds out whether another host has it */
};

/*
 * Lists the addresses of all interfaces that are up: the loopback's last, otherwise by interface
 * index; within an interface IPv4 before IPv6, then in the kernel's order. *list is the caller's to
 * free. Returns their number or -errno.
 */
int host_addresses(struct host_address **list);

/* The Ethernet interface `name`. Returns 0; -ENODEV: there is none. */
struct host_card {
	uint8_t mac[6];
	uint32_t ifindex;
};
int host_card(const char *name, struct host_card *card);

/* Whether the interface carries packets now, and its MTU in bytes (0: there is no such
 * interface). */
struct host_port {
	bool up;
	uint32_t mtu;
};
struct host_port host_port(const char *name);

/* A number that differs between hosts and network namespaces and is constant until the next boot at
 * least. For hosts without a card. */
uint64_t host_number(void);

/* host_watch_open(): a non-blocking netlink socket that becomes readable when addresses or
 * interfaces change, or -errno. host_watch_drain() discards its messages. */
int host_watch_open(void);
void host_watch_drain(int fd);

#endif
