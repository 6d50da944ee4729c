/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers that a tag-matching SRQ puts into, and expects at the start of, messages. */
#ifndef _TM_TYPES_H
#define _TM_TYPES_H

#include <stdint.h>

#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ibv_tmh_op {
	IBV_TMH_NO_TAG = 0,
	IBV_TMH_RNDV = 1,
	IBV_TMH_FIN = 2,
	IBV_TMH_EAGER = 3,
};

/* At the start of every message. */
struct ibv_tmh {
	uint8_t opcode; /* enum ibv_tmh_op */
	uint8_t reserved[3];
	__be32 app_ctx;
	__be64 tag;
};

/* Follows in a rendezvous message: where the receiver finds the data. */
struct ibv_rvh {
	__be64 va;
	__be32 rkey;
	__be32 len;
};

#ifdef __cplusplus
}
#endif

#endif /* _TM_TYPES_H */
