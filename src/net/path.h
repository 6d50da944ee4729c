/* SPDX-License-Identifier: BSD-2-Clause */
/* The path of packets: both addresses, the ports, and the attributes of an address handle. */
#ifndef VERBENA_NET_PATH_H
#define VERBENA_NET_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/icrc.h"

struct net_path {
	struct icrc_path ip; /* the source port is that of `socket` */
	uint32_t ifindex;    /* for link-local addresses and groups */
	uint8_t hop_limit;   /* 0: the host's default */
	uint8_t traffic_class;
	bool near;	    /* packets (also) go to this host: they leave by sender.near_port */
	bool flush_doubled; /* FLUSH is sent with Soft-RoCE's ICRC, see wire/icrc.h */
	bool one_by_one; /* the path doesn't support UDP_SEGMENT: a burst failed; never cleared */
	int16_t socket;	 /* index of the sender's socket; -1: none yet */
};

#endif
