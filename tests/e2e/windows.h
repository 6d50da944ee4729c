/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of memory windows have in common: requests on windows, and accesses through them.
 * B has the windows, and A reaches them, unless it is said otherwise. */
#ifndef VERBENA_E2E_WINDOWS_H
#define VERBENA_E2E_WINDOWS_H

#include <errno.h>
#include <string.h>

#include "faults.h"

enum { PART = 4096, PART_BYTES = 8192, SEED = 91, OLD = 0x55, REUSED = 0xaa };
enum {
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	BINDABLE = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
};

/* The region itself grants peers nothing. */
static const struct end_options bindable = {.mr_access = BINDABLE, .all_signaled = true};

static inline struct ibv_mw *mw_make(struct end *end, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(end->pd, type);

	if (!mw)
		rig_fail(end->rig, __FILE__, __LINE__, "no window: %s", strerror(errno));
	CHECK(end->rig, mw->pd == end->pd && mw->context == end->rig->ctx && mw->type == type);
	return mw;
}

/* ------------------------------------------------------------------ requests */

static inline struct ibv_send_wr bind_request(const struct end *end, struct ibv_mw *mw,
					      uint32_t rkey, size_t offset, size_t length,
					      unsigned int access)
{
	return (struct ibv_send_wr){
		.wr_id = 1,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = mw,
			    .rkey = rkey,
			    .bind_info = {.mr = end->mr,
					  .addr = (uintptr_t)end->buf + offset,
					  .length = length,
					  .mw_access_flags = access}},
	};
}

static inline struct ibv_send_wr invalidate_request(uint32_t rkey)
{
	return (struct ibv_send_wr){.wr_id = 2,
				    .opcode = IBV_WR_LOCAL_INV,
				    .send_flags = IBV_SEND_SIGNALED,
				    .invalidate_rkey = rkey};
}

static inline int post_one(struct end *end, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, &wr, &bad);
}

/* Posts the request and waits for its completion. */
static inline void request_done(struct end *end, struct ibv_send_wr wr, enum ibv_wc_status status)
{
	OK(end->rig, post_one(end, wr));
	struct ibv_wc wc = wc_expect(end, end->scq, wr.wr_id, status);

	if (status == IBV_WC_SUCCESS)
		CHECK_EQ(end->rig, wc.opcode,
			 wr.opcode == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV);
}

/* Binds a type 2 window to the part of the buffer, with the key's next tag. */
static inline uint32_t part_bind(struct end *end, struct ibv_mw *mw, uint32_t old,
				 unsigned int access)
{
	uint32_t rkey = ibv_inc_rkey(old);

	request_done(end, bind_request(end, mw, rkey, PART, PART_BYTES, access), IBV_WC_SUCCESS);
	return rkey;
}

static inline void invalidate(struct end *end, uint32_t rkey)
{
	request_done(end, invalidate_request(rkey), IBV_WC_SUCCESS);
}

/* What binds a type 1 window to `length` bytes from PART on, or unbinds it. */
static inline struct ibv_mw_bind type_1_bind(const struct end *end, size_t length)
{
	return (struct ibv_mw_bind){.wr_id = 3,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = {.mr = end->mr,
						  .addr = (uintptr_t)end->buf + PART,
						  .length = length,
						  .mw_access_flags = length ? REMOTE : 0}};
}

static inline void bind_type_1(struct end *end, struct ibv_mw *mw, size_t length)
{
	struct ibv_mw_bind bind = type_1_bind(end, length);
	uint32_t old = mw->rkey;

	OK(end->rig, ibv_bind_mw(end->qp, mw, &bind));
	CHECK_EQ(end->rig, mw->rkey, ibv_inc_rkey(old));
	CHECK_EQ(end->rig, wc_expect(end, end->scq, 3, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
}

/* Gives B's value to A, whose requests use it as their rkey from now on. */
static inline void key_pass(struct end *end, uint32_t rkey)
{
	uint32_t theirs;

	rig_swap(end->rig, &rkey, &theirs, sizeof(rkey));
	if (end->rig->role == RIG_A)
		end->peer.rkey = theirs;
}

/* A's access to `length` bytes at `remote` completes with `status`. */
static inline void reach(struct end *end, enum ibv_wr_opcode opcode, size_t remote, uint32_t length,
			 enum ibv_wc_status status)
{
	OK(end->rig, end_send(end, opcode, 7, 0, length, remote));
	wc_expect(end, end->scq, 7, status);
}

static inline void refused(struct end *end, enum ibv_wr_opcode opcode, size_t remote,
			   uint32_t length)
{
	if (end->rig->role == RIG_A)
		reach(end, opcode, remote, length, IBV_WC_REM_ACCESS_ERR);
	else
		event_expect(end->rig, IBV_EVENT_QP_ACCESS_ERR, end->qp);
}

static inline struct ibv_send_wr send_inv_request(const struct end *end, uint32_t length,
						  uint32_t rkey, struct ibv_sge *sge)
{
	struct ibv_send_wr wr;

	end_request((struct end *)end, IBV_WR_SEND_WITH_INV, 5, 0, length, 0, &wr, sge);
	wr.invalidate_rkey = rkey;
	return wr;
}

#endif
