/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tag matching, for tests of the rig: end A sends, end B has a tag-matching SRQ. Both have a buffer
 * of TM_SLOTS slots. A writes messages into slots; B posts slots as ordinary receives and as tagged
 * buffers.
 */
#ifndef VERBENA_E2E_TAGS_H
#define VERBENA_E2E_TAGS_H

#include <infiniband/tm_types.h>

#include "faults.h"

enum {
	TM_SLOT = 32768,
	TM_SLOTS = 64,
	TM_TAGS = 32,
	TM_RECEIVES = 256,
	TM_TMH = sizeof(struct ibv_tmh),
	TM_HEADERS = sizeof(struct ibv_tmh) + sizeof(struct ibv_rvh),
};

struct tm_end {
	struct end end;	      /* B: srq matches tags, rcq is `cq` */
	struct ibv_cq_ex *cq; /* B */
	uint32_t unexpected;  /* B: what the program has counted */
};

struct tm_options {
	uint32_t tags;	   /* default TM_TAGS */
	bool own_queue;	   /* B's QP has a send queue of its own */
	bool few_receives; /* A posts none for FIN, B no ordinary ones */
	bool no_rts;	   /* B's QP stays in RTR */
};

/* A completion of B's, as the extended CQ reports it. */
struct tm_wc {
	uint64_t id, tag;
	uint32_t priv, length, imm;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	unsigned int flags;
};

/* Both ends, connected; A has posted receives for FIN, B ordinary ones with the ids 1000 on, into
 * the slots 32 on. */
void tm_open(struct tm_end *tm, struct rig *rig, const struct tm_options *opt);
void tm_close(struct tm_end *tm);

static inline uint8_t *tm_at(struct tm_end *tm, unsigned int slot)
{
	return tm->end.buf + (size_t)slot * TM_SLOT;
}

/* B: posts `length` bytes of the slot with the tag; the buffer's id is the slot. Returns its
 * handle. The operation has no completion. `flags`: IBV_OPS_TM_SYNC, with tm.unexpected. */
uint32_t tm_add(struct tm_end *tm, unsigned int slot, uint32_t length, uint64_t tag, uint64_t mask,
		int flags);
/* B: one operation; returns the verb's result. */
int tm_op(struct tm_end *tm, struct ibv_ops_wr *wr);
void tm_sync(struct tm_end *tm);
/* B: waits for the next completion; requires its id, status, opcode and flags. */
struct tm_wc tm_next_at(struct tm_end *tm, const char *file, int line);
#define tm_next(tm) tm_next_at(tm, __FILE__, __LINE__)
struct tm_wc tm_expect_at(struct tm_end *tm, uint64_t id, enum ibv_wc_opcode opcode,
			  unsigned int flags, const char *file, int line);
#define tm_expect(tm, id, opcode, flags) tm_expect_at(tm, id, opcode, flags, __FILE__, __LINE__)
/* B: requires that a matched message is complete, in one completion or in two. */
struct tm_wc tm_expect_data(struct tm_end *tm, uint64_t id, uint64_t tag, uint32_t length);
/* B: whether the CQ has a completion within RIG_NEVER_MS. */
bool tm_any(struct tm_end *tm, struct tm_wc *out);

/* A: writes a header into the slot; posts `length` bytes of it; both with `data` bytes after the
 * header that pattern_holds() of `seed`. */
void tm_header(struct tm_end *tm, unsigned int slot, enum ibv_tmh_op op, uint64_t tag,
	       uint32_t priv);
void tm_post(struct tm_end *tm, unsigned int slot, uint32_t length);
void tm_eager(struct tm_end *tm, unsigned int slot, uint64_t tag, uint32_t data, uint32_t seed);
/* A: a rendezvous with `data` bytes in slot `from`. */
void tm_rendezvous(struct tm_end *tm, unsigned int slot, uint64_t tag, unsigned int from,
		   uint32_t data, uint32_t seed);
/* A: waits until the last request has completed. */
void tm_sent(struct tm_end *tm, unsigned int slot);
/* A: FIN of the rendezvous in this slot has come. */
void tm_fin(struct tm_end *tm, unsigned int slot);

#endif
