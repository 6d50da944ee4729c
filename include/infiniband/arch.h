/* SPDX-License-Identifier: BSD-2-Clause */
/* 64-bit byte order conversion under the names that programs of old expect here. */
#ifndef INFINIBAND_ARCH_H
#define INFINIBAND_ARCH_H

#include <stdint.h>

/* A platform that has them as macros keeps its own. */
#ifndef ntohll
static inline uint64_t htonll(uint64_t host)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return __builtin_bswap64(host);
#else
	return host;
#endif
}

/* Swapping is its own inverse. */
static inline uint64_t ntohll(uint64_t net)
{
	return htonll(net);
}

#define htonll htonll
#define ntohll ntohll
#endif

#endif /* INFINIBAND_ARCH_H */
