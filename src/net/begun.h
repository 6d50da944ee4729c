/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ICRC of packets' headers, kept: it depends on the path, the packet's size and its place in
 * its burst, and packets of a path come in two sizes at a time (the first of an RDMA WRITE has a
 * header more than those that follow; requests and acknowledgements).
 *
 * No locks: each has one user. All zeros is a valid beginning.
 */
#ifndef VERBENA_NET_BEGUN_H
#define VERBENA_NET_BEGUN_H

#include <stdint.h>

#include "wire/icrc.h"

enum { NET_BEGUN_SIZES = 2, NET_BEGUN_PLACES = 64 };

struct net_begun {
	struct net_begun_size {
		struct icrc_path path;
		uint32_t size; /* of such packets; 0: none yet */
		uint32_t count;
		uint32_t begun[NET_BEGUN_PLACES]; /* for identifications 0 to count - 1 */
	} kept[NET_BEGUN_SIZES];
	uint32_t last; /* which was used last */
};

/* What icrc_begin() says of a packet of `size` bytes with identification `place`. */
uint32_t net_begun(struct net_begun *all, const struct icrc_path *path, uint32_t size,
		   uint32_t place);

#endif
