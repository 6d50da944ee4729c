/* SPDX-License-Identifier: BSD-2-Clause */
/* Where packets go: both addresses, the ports, and what an address handle says of the way. */
#ifndef VERBENA_NET_PATH_H
#define VERBENA_NET_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/icrc.h"

struct net_path {
	struct icrc_path ip; /* the source port is that of `socket` */
	uint32_t ifindex;    /* for link-local addresses and groups */
	uint8_t hop_limit;   /* 0: the host's own */
	uint8_t traffic_class;
	bool one_by_one; /* the way doesn't take what the kernel would cut into packets */
	int16_t socket;	 /* which of the sender's; -1: none yet */
};

#endif
