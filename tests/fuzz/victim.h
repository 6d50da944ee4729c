/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process with queue pairs and regions, and the other end of its link, which the fuzzer plays:
 * the real HCA with a fake daemon that grants every request, without an engine thread. Time and the
 * peer's memory are simulated, so that an input always has the same result.
 *
 * Memory: regions with gaps between them. No byte may change in the gaps, in a region without local
 * write access, and in one of a protection domain that no QP has.
 */
#ifndef VERBENA_TESTS_FUZZ_VICTIM_H
#define VERBENA_TESTS_FUZZ_VICTIM_H

#include "fake_daemon.h"
#include "hca/local/link.h"
#include "hca/local/record.h"
#include "hca/mem/mr.h"
#include "hca/mem/pd.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/ah.h"
#include "hca/verbs/qp.h"
#include "input.h"

enum { REGION_LOCAL, REGION_REMOTE, REGION_CONST, REGION_FOREIGN, REGIONS };
enum { QP_RC, QP_RC_SRQ, QP_UC, QP_UD, QP_RC_PLAIN, QPS };
enum { REGION_BYTES = 32768, PEER_BYTES = 65536 };
#define PEER_EPOCH (PUB_QP_EPOCH_START + 1)
#define PEER_BASE 0x100000u /* address of the peer's memory in its address space */

struct victim {
	struct hca *hca;
	struct context *context;
	struct pd pd[2];
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	bool tagged; /* the SRQ matches tags (tagged.h) */
	struct qp *qp[QPS];
	struct mr mr[REGIONS];
	bool registered[REGIONS];
	struct ah ah;
	struct link *link;
	uint32_t seen;	    /* the engine's memory */
	uint64_t posted;    /* work requests; number and wr_id of the last one */
	uint32_t completed; /* bytes of `ended` in use */

	/* the peer */
	struct pub *table;
	struct pub_regions *regions;
	struct link_memory *memory;
	struct ring_tx tx;
	struct ring_rx rx;
	bool can_vm;
	uint8_t vm_mode; /* how process_vm_* answers, see victim.c */
	uint64_t now;
	uint64_t link_id;
};

extern struct victim victim;
/* To which its UD QP is attached. */
extern const uint8_t victim_group[16];

void victim_open(struct input *in);
/* Ends everything, and checks that nothing is left and that no protected byte has changed. */
void victim_close(void);

/* An action; the input chooses among those of `actions` (count of them). */
typedef void action_fn(struct input *in);

action_fn act_record, act_raw, act_post_send, act_post_recv, act_poll, act_round, act_time,
	act_consume, act_serve, act_table_qp, act_table_mr, act_table_raw, act_header, act_modify,
	act_region, act_link;

void victim_play(struct input *in, action_fn *const *actions, unsigned int count);

#endif
