/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended completion queues: polling by ibv_start_poll(), ibv_next_poll(), ibv_end_poll(), and
 * reading one field after another of the current completion.
 *
 * The current completion is a private copy that has left the ring (see struct cq_object), so
 * ibv_poll_cq() on the same CQ returns the one after it.
 */
#include <errno.h>
#include <time.h>

#include "base/cpu.h"
#include "base/refused.h"
#include "hca/engine/engine.h"
#include "hca/process/context.h"
#include "hca/verbs/completion.h"
#include "hca/verbs/cq.h"

static inline struct cq_object *object_of(struct ibv_cq_ex *ex)
{
	return cq_object_of(container_of(ex, struct cq, ex));
}

static int cq_ex_advance(struct cq_object *o)
{
	if (!cq_take(&o->cq, &o->current))
		return ENOENT;
	o->cq.ex.wr_id = o->current.wr_id;
	o->cq.ex.status = o->current.status;
	return 0;
}

/* Not analysed, nor is end_poll(): the program's two calls take the lock and give it back, and only
 * if it has several threads. */
static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr) NO_THREAD_SAFETY_ANALYSIS
{
	struct cq_object *o = object_of(ex);

	if (unlikely(attr && attr->comp_mask))
		return refused(EINVAL, "ibv_start_poll: comp_mask is 0x%x, and must be 0",
			       attr->comp_mask);
	if (!o->cq.single_threaded)
		lock_take(&o->turn);
	int err = cq_ex_advance(o);

	if (err) {
		engine_poll(o->cq.context->hca, &o->cq);
		err = cq_ex_advance(o);
	}
	if (err && !o->cq.single_threaded)
		lock_give(&o->turn);
	return err;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return cq_ex_advance(object_of(ex));
}

static void end_poll(struct ibv_cq_ex *ex) NO_THREAD_SAFETY_ANALYSIS
{
	struct cq_object *o = object_of(ex);

	if (!o->cq.single_threaded)
		lock_give(&o->turn);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.imm;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.wc_flags;
}

/* Local identifiers are InfiniBand's; an Ethernet port has none. */
static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return object_of(ex)->current.timestamp;
}

/* The device's clock is CLOCK_MONOTONIC; the wall clock's value at the completion is computed from
 * the current values of both. */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	struct timespec wall;

	clock_gettime(CLOCK_REALTIME, &wall);
	uint64_t age = now_ns() - object_of(ex)->current.timestamp;

	return (uint64_t)wall.tv_sec * 1000000000ull + wall.tv_nsec - age;
}

/* The VLAN tag that was taken out of a frame. Packets of RoCE queue pairs come without one: the
 * interface has removed it. */
static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	const struct cqe *cqe = &object_of(ex)->current;

	return cqe->is_frame ? (uint16_t)cqe->src_qp : 0;
}

/* The tag of the flow rule that took a frame; 0 is the value of packets without one. */
static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	const struct cqe *cqe = &object_of(ex)->current;

	return cqe->is_frame ? cqe->imm : 0;
}

static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct cqe *cqe = &object_of(ex)->current;

	*info = (struct ibv_wc_tm_info){.tag = cqe->tag, .priv = cqe->tag_priv};
}

void cq_ex_init(struct cq *cq)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
	ex->read_cvlan = read_cvlan;
	ex->read_flow_tag = read_flow_tag;
	ex->read_tm_info = read_tm_info;
}
