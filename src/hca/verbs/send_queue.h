/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings of posted send requests. */
#ifndef VERBENA_HCA_VERBS_SEND_QUEUE_H
#define VERBENA_HCA_VERBS_SEND_QUEUE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counter.h"
#include "hca/local/record.h"
#include "hca/verbs/queue_memory.h"

struct datagram_carrier;

enum send_flag { /* struct send_wqe.flags */
		 SEND_SIGNALED = 1,
		 SEND_SOLICITED = 2,
		 SEND_INLINE = 4,
		 SEND_FENCE = 8,
		 SEND_READS = 16,      /* counted in qp.reads_out */
		 SEND_BLOCKING = 32,   /* counted in qp.blocking_out */
		 SEND_ANSWERED = 64,   /* a READ's or atomic's data is in place */
		 SEND_BY_RING = 128,   /* a WRITE that the peer must execute: its pieces go into the
					  ring */
		 SEND_BEGUN = 256,     /* `psn` is set, and counted; to a group: qp.fanout is its */
		 SEND_SETTLED = 512,   /* counted in qp.settled_out */
		 SEND_BORROWED = 1024, /* inline, and in the program's memory: see sq_post() */
		 SEND_OFFLOADED = 2048, /* a tag-matching SRQ's own (verbs/tagged.h) */
		 SEND_CHECKSUMS = 4096, /* a frame whose checksums are computed: IBV_SEND_IP_CSUM */
};

/*
 * In place of an opcode that the QP's type lacks: the request completes with IBV_WC_LOC_QP_OP_ERR
 * when its turn comes, as an adapter completes it. No program posts this number.
 */
#define WR_LACKED IBV_WR_DRIVER1

/* The requests that their own QP executes, without the peer, when all before them have completed
 * (window_execute()). */
#define RUNS_HERE (1u << IBV_WR_BIND_MW | 1u << IBV_WR_LOCAL_INV | 1u << WR_LACKED)

static inline bool wr_runs_here(uint32_t opcode)
{
	return 1u << opcode & RUNS_HERE;
}

struct send_wqe {
	uint64_t wr_id;
	uint32_t length; /* bytes of payload */
	uint32_t msn;	 /* of the record that carries it, if it needed one */
	uint8_t opcode;	 /* enum ibv_wr_opcode */
	uint8_t num_sge;
	uint16_t flags; /* enum send_flag */
	uint32_t imm;	/* network order; or the rkey to invalidate */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t progress; /* bytes already streamed through the ring */
	union {
		struct { /* RC, UC and XRC */
			union {
				struct { /* FLUSH: the range's length; packet_feth() */
					uint64_t compare_add, swap;
				} atomic;
				/* IBV_WR_BIND_MW; `rkey` is the new key, `remote_addr` where it
				 * begins, `imm` names the window */
				struct {
					uint64_t length;
					uint32_t region; /* rkey; 0: none */
					uint32_t access;
				} bind;
			};
			/* Local carriers: of its first packet, had it been sent as packets. */
			uint32_t psn;
			uint32_t srqn; /* XRC: whose SRQ and process it is for */
		};
		struct {
			struct record_ud to; /* a copy: the AH may end before it is sent */
			uint32_t remote_qpn;
			uint32_t ifindex;
			const struct datagram_carrier *carrier; /* carrier.h */
			bool beyond; /* to a group: it also goes to other hosts */
		} ud;
	};
	union {
		struct ibv_sge sge[0];
		uint8_t data[0]; /* SEND_INLINE */
	};
};

#define SEND_QUEUE_START COUNTER_START(512) /* the first count of a queue */

/*
 * A ring of send WQEs under qp.lock. Free-running counts, freed <= acked <= next <= head; what is
 * freed is counted by threads that poll (qp.sends, places.h):
 *   [freed, acked)  executed, their completions not polled
 *   [acked, next)  executed, waiting for the peer's acknowledgement
 *   [next, head)   posted, not started
 *   [head, head + held)  posted, held back by a rate limit (pace.h)
 */
struct send_queue {
	struct queue_memory memory; /* of wqes */
	uint8_t *wqes;
	uint32_t stride; /* bytes */
	uint32_t mask;
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t head, next, acked;
	uint32_t held;
	uint32_t room;	/* requests up to this count find a free place (places.h) */
	bool said_full; /* in the log; for good, so that each queue says it once */
};

/* The count of the next request that is posted. */
static inline uint32_t sq_end(const struct send_queue *sq)
{
	return sq->head + sq->held;
}

/* In place of a completion's status, and none has it: the request is to be executed again later. */
#define WQE_LATER ((enum ibv_wc_status)0x7ffe)

/* The result of starting a request. */
enum step {
	STEP_DONE,
	STEP_WAIT,  /* it stays the next one to start */
	STEP_FAILED /* it has completed with an error; nothing after it is started */
};

/* Allocates a ring, in the domain `pd`, for the requests that `cap` allows. 0 or ENOMEM. */
int sq_init(struct send_queue *sq, const struct ibv_qp_cap *cap, struct ibv_pd *pd);
void sq_free(struct send_queue *sq);
static inline struct send_wqe *sq_at(const struct send_queue *sq, uint32_t count)
{
	return (struct send_wqe *)(sq->wqes + (size_t)(count & sq->mask) * sq->stride);
}

#endif
