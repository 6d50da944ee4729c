/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses of the family AF_IB: a port's GID, and what part of a service id is meant. */
#ifndef INFINIBAND_IB_H
#define INFINIBAND_IB_H

#include <endian.h>
#include <linux/types.h>
#include <string.h>

#ifndef AF_IB
#define AF_IB 27
#endif
#ifndef PF_IB
#define PF_IB AF_IB
#endif

struct ib_addr {
	union {
		__u8 uib_addr8[16];
		__be16 uib_addr16[8];
		__be32 uib_addr32[4];
		__be64 uib_addr64[2];
	} ib_u;
#define sib_addr8 ib_u.uib_addr8
#define sib_addr16 ib_u.uib_addr16
#define sib_addr32 ib_u.uib_addr32
#define sib_addr64 ib_u.uib_addr64
#define sib_raw ib_u.uib_addr8
#define sib_subnet_prefix ib_u.uib_addr64[0]
#define sib_interface_id ib_u.uib_addr64[1]
};

struct sockaddr_ib {
	unsigned short int sib_family;
	__be16 sib_pkey;
	__be32 sib_flowinfo;
	struct ib_addr sib_addr;
	__be64 sib_sid;
	__be64 sib_sid_mask; /* the bits of sib_sid that count */
	__u64 sib_scope_id;
};

/* All zero: any address. */
static inline int ib_addr_any(const struct ib_addr *a)
{
	return !a->sib_subnet_prefix && !a->sib_interface_id;
}

static inline int ib_addr_loopback(const struct ib_addr *a)
{
	return !a->sib_subnet_prefix && a->sib_interface_id == htobe64(1);
}

static inline void ib_addr_set(struct ib_addr *addr, __be32 w1, __be32 w2, __be32 w3, __be32 w4)
{
	const __be32 words[4] = {w1, w2, w3, w4};

	memcpy(addr->sib_addr32, words, sizeof(words));
}

/* As memcmp(). */
static inline int ib_addr_cmp(const struct ib_addr *a1, const struct ib_addr *a2)
{
	return memcmp(a1->sib_raw, a2->sib_raw, sizeof(a1->sib_raw));
}

#endif
