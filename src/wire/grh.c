/* SPDX-License-Identifier: BSD-2-Clause */
/* A datagram's GRH, see grh.h. */
#include "wire/grh.h"

#include <string.h>

void grh_write(uint8_t to[GRH_SIZE], const struct ip_fields *ip, size_t size)
{
	uint8_t *header = to;

	if (ip_is_v4(ip->destination)) {
		header = to + GRH_SIZE - IP_V4_HEADER;
		memset(to, 0, GRH_SIZE - IP_V4_HEADER);
	}
	ip_write(header, ip, size);
	ip_checksum(header);
}
