/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that share an XRC domain and are killed: what each has, and how a queue pair is
 * connected. For xrc_kill.c and xrc_five.c, whose processes come and go, so that rig.h isn't for
 * them.
 */
#ifndef VERBENA_E2E_XRC_SIDE_H
#define VERBENA_E2E_XRC_SIDE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SIDE_SOON_MS = 120000, SIDE_PSN = 0x4321, SIDE_RECEIVES = 256 };

/* How failures name this process. */
extern char side_name[32];
/* Says what was wrong, and ends the process; with RIG_HOLD it stays, for a debugger. */
_Noreturn void side_fail(int line, const char *format, ...);

#define MUST(condition)                                                \
	do {                                                           \
		if (!(condition))                                      \
			side_fail(__LINE__, "not so: %s", #condition); \
	} while (0)

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* of requests and receives */
	struct ibv_mr *mr;
	uint8_t *buf; /* SIDE_RECEIVES places of `place` bytes, and `more` bytes */
	uint32_t place;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	union ibv_gid gid;
};

uint64_t side_clock_ms(void);
/* Waits until the word isn't 0; its value. */
uint32_t side_await(_Atomic uint32_t *word);
/* Whether the process ended with 0; kills it if it doesn't end. */
bool side_ended_well(pid_t pid);

/* Opens the first device, and makes all but the domain and what is in it. */
void side_open(struct side *s, uint32_t place, uint32_t more);
/* Opens the domain of the file, and makes an SRQ in it. */
void side_share(struct side *s, const char *file);
/* Posts a receive into a place; its number is the receive's wr_id. */
void side_offer(struct side *s, uint64_t place);
/* Posts all receives; the SRQ's number. */
uint32_t side_srq_ready(struct side *s);

/* A target queue pair of the domain: a new one, or the one with this number. */
struct ibv_qp *side_target_make(struct side *s);
struct ibv_qp *side_target_open(struct side *s, uint32_t qpn);
struct ibv_qp *side_initiator_make(struct side *s, uint32_t depth);
void side_to_init(struct ibv_qp *qp);
/* From INIT, connected to the other end's queue pair. */
void side_target_to_rtr(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid);
void side_initiator_to_rts(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid);
/* Ends all but queue pairs. */
void side_close(struct side *s);

#endif
