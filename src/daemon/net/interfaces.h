/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's interfaces as the kernel describes them (RTM_GETLINK): what each is made of, and what
 * it lies above. reach.h decides from these which of them get a device. No state.
 */
#ifndef VERBENA_DAEMON_NET_INTERFACES_H
#define VERBENA_DAEMON_NET_INTERFACES_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INTERFACE_KIND = 16 };

/* The best address that an interface has, or one above it. */
enum addressed {
	ADDRESSED_NOT,
	ADDRESSED_LINK,	 /* link-local ones only */
	ADDRESSED_WHOLE, /* one that has a meaning beyond the link */
};

struct interface {
	uint32_t ifindex;
	uint32_t flags;	 /* IFF_* */
	uint32_t master; /* ifindex of the bridge or bond that it is part of; 0: none */
	uint32_t lower;	 /* ifindex of the interface that it is made on (a VLAN's card), in
			  * this network namespace; 0: none */
	uint16_t type;	 /* ARPHRD_* */
	char kind[INTERFACE_KIND]; /* the driver's name for a virtual one ("bridge"); empty: a card
				    */
	char ifname[IF_NAMESIZE];
	/* Set by network_settle() of reach.h. */
	uint32_t base;		  /* ifindex of the interface whose device has its addresses */
	enum addressed addressed; /* of a base */
};

/* Lists all interfaces, by index. *list is the caller's to free. Returns their number or -errno. */
int interfaces_read(struct interface **list);

/* Decodes the messages of one packet of the kernel's answer. Appends interfaces to list[*count...],
 * at most `places` in all. Returns 1: that was the last; 0: there is more; -errno. */
int interfaces_decode(const void *packet, size_t size, struct interface *list, unsigned int places,
		      unsigned int *count);

/* The interface by which packets to hosts far away leave (that of the default route); 0: none. */
uint32_t interfaces_default(void);

#endif
