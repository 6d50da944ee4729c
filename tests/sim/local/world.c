/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulator's implementation of the core's interface: src/hca/local/core/world.h. A switch to
 * another thread is possible in each call that accesses shared state. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim_local.h"

/* ------------------------------------------------------------------ the link */

enum world_link world_link(const struct local_qp *lq)
{
	task_yield("world_link");
	switch (qp_of(lq)->link->state) {
	case SIM_LINK_UP:
		return WORLD_LINK_UP;
	case SIM_LINK_COMING:
		return WORLD_LINK_COMING;
	default:
		return WORLD_LINK_DOWN;
	}
}

bool world_link_taken(const struct local_qp *lq)
{
	task_yield("world_link_taken");
	return link_peer_came(qp_of(lq)->link);
}

bool world_link_copies(const struct local_qp *lq)
{
	return qp_of(lq)->link->copies;
}

bool world_link_guarded(struct local_qp *lq)
{
	const struct link *link = qp_of(lq)->link;

	task_yield("world_link_guarded");
	return link->copies && link->state == SIM_LINK_UP && link->shared->installed[!link->side];
}

bool world_link_prefers_ring(const struct local_qp *lq, uint32_t length)
{
	(void)lq;
	return sim.plan.by_ring && length > RING_PAYLOAD_MAX;
}

struct ring_header *world_ring_reserve(struct local_qp *lq, uint32_t payload)
{
	task_yield("world_ring_reserve");
	return link_begin(qp_of(lq)->link, payload);
}

/* Has the record carry the acknowledgement that another QP owes the peer's process. */
static void carry_owed(const struct qp *qp, struct ring_header *h, uint32_t payload)
{
	struct qp *owing = qp->link->owing;

	if (!owing || owing == qp || !local_qp_owes(&owing->lq) ||
	    ring_spare(payload) < sizeof(struct record_ack))
		return;
	if (!owing->connected || owing->link != qp->link)
		fail("QP 0x%x carries an acknowledgement of one that has ended", qp->qpn);
	task_yield("carry_owed");
	record_carry(h, payload, local_qp_take_owed(&owing->lq));
	task_yield("carry_owed, taken");
	totals.carried++;
}

void world_ring_commit(struct local_qp *lq, struct ring_header *h, uint32_t payload)
{
	struct qp *qp = qp_of(lq);

	/* Requests are in order; SEND_DATA answers PULL. */
	if (h->kind < REC_ACK && h->kind != REC_SEND_DATA)
		oracle_sent(oracle_get((uint32_t)sq_at(&qp->sq, qp->sq.next)->wr_id), h);
	if (h->kind == REC_WRITE_DATA || h->kind == REC_SEND_DATA)
		oracle_moves(qp);
	task_yield("world_ring_commit");
	carry_owed(qp, h, payload);
	link_send(qp->link, h, payload);
}

void world_ring_abandon(struct local_qp *lq, uint32_t payload)
{
	link_abandon(qp_of(lq)->link, payload);
}

void world_ring_control(struct local_qp *lq, const struct ring_header *h, const void *payload,
			uint32_t size)
{
	task_yield("world_ring_control");
	if (h->kind == REC_NAK && h->imm == IBV_WC_RNR_RETRY_EXC_ERR)
		oracle_no_receive(qp_of(lq));
	link_control(qp_of(lq)->link, h, payload, size);
}

void world_ring_notify(struct local_qp *lq)
{
	link_notify(qp_of(lq)->link);
}

void world_ring_wait(struct local_qp *lq)
{
	link_wait(qp_of(lq)->link, qp_of(lq)->index);
}

bool world_may_gather(const struct local_qp *lq)
{
	return qp_of(lq)->link->state == SIM_LINK_UP && rng_chance(&sim.rng, 300);
}

bool world_gathers(struct local_qp *lq)
{
	struct link *link = qp_of(lq)->link;

	link_wait(link, qp_of(lq)->index);
	engine_kick(link->process);
	totals.gathered++;
	return true;
}

/* ------------------------------------------------------------------ published entries */

/* Returns the peer's published entry. The entry of a dead process stays as it was, and mappings
 * stay as long as the QP's lock is held. */
static const struct qp *seen(struct local_qp *lq, const char *where)
{
	task_yield(where);
	return qp_peer(qp_of(lq));
}

uint64_t world_peer_word(struct local_qp *lq)
{
	const struct qp *peer = seen(lq, "world_peer_word");

	return qp_of(lq)->link->state == SIM_LINK_UP ? peer->word : 0;
}

uint32_t world_peer_partner(struct local_qp *lq)
{
	return seen(lq, "world_peer_partner")->partner;
}

uint32_t world_peer_rq_psn(struct local_qp *lq)
{
	return seen(lq, "world_peer_rq_psn")->rq_psn;
}

void world_publish_taken(struct local_qp *lq, uint32_t msn)
{
	task_yield("world_publish_taken");
	qp_of(lq)->taken = pub_taken(msn, lq->sender_epoch, lq->epoch);
}

uint64_t world_peer_taken(struct local_qp *lq)
{
	const struct qp *peer = seen(lq, "world_peer_taken");

	return peer->process->dead ? peer->taken : 0;
}

uint32_t world_peer_pd(struct local_qp *lq)
{
	return seen(lq, "world_peer_pd")->pd;
}

uint32_t world_peer_receives(struct local_qp *lq, uint32_t none)
{
	const struct qp *peer = seen(lq, "world_peer_receives");

	return pub_qp_access(peer->word) & PUB_QP_COUNTS ? peer->receives : none;
}

bool world_peer_region(struct local_qp *lq, uint32_t rkey, struct mr_view *view)
{
	const struct link *link = qp_of(lq)->link;

	task_yield("world_peer_region");
	if (!link->copies && !link->self)
		return false;
	const struct entry *e = entry_find(link->peer, rkey);

	if (!e)
		return false;
	*view = (struct mr_view){.start = e->start,
				 .length = e->length,
				 .offset = e->offset,
				 .access = e->access,
				 .pd = e->pd,
				 .window_qpn = e->window_qpn,
				 .region = rkey,
				 .file_serial = e->file_serial};
	return true;
}

void world_fence(struct local_qp *lq)
{
	(void)lq;
	task_yield("world_fence");
}

bool world_peer_runs(const struct local_qp *lq)
{
	const struct process *peer = qp_of(lq)->link->peer;

	return !peer->dead && !peer->stopped;
}

bool world_peer_may_copy(const struct local_qp *lq)
{
	const struct link *link = qp_of(lq)->link;

	task_yield("world_peer_may_copy");
	return link->copies && (link->state == SIM_LINK_UP || !link_peer_left(link));
}

uint32_t world_ring_mark(const struct local_qp *lq)
{
	return qp_of(lq)->link->rx.pos;
}

bool world_ring_unread(const struct local_qp *lq, uint32_t mark)
{
	return ring_unread_since(&qp_of(lq)->link->rx, mark);
}

/* ------------------------------------------------------------------ ways through a fabric */

/* The model of a fabric: now and then the next few requests of a QP are lost. */
enum world_way world_route_admits(struct local_qp *lq, const struct send_wqe *wqe)
{
	struct qp *qp = qp_of(lq);

	(void)wqe;
	task_yield("world_route_admits");
	if (!qp->losses && rng_chance(&sim.rng, sim.plan.lose))
		qp->losses = 1 + rng_below(&sim.rng, 8);
	if (!qp->losses)
		return WORLD_WAY_OPEN;
	qp->losses--;
	sim.disturbed |= 1u << qp->pair;
	totals.losses++;
	return WORLD_WAY_LOST;
}

void world_route_lost(struct local_qp *lq, const struct send_wqe *wqe)
{
	(void)wqe;
	trace("a request of QP 0x%x is lost", lq->qpn);
}

void world_route_begins(struct local_qp *lq, const struct send_wqe *wqe)
{
	(void)lq, (void)wqe;
}

void world_route_withdraws(struct local_qp *lq, const struct send_wqe *wqe)
{
	(void)lq, (void)wqe;
}

void world_route_answered(struct local_qp *lq, const struct send_wqe *wqe,
			  enum ibv_wc_status status)
{
	(void)lq, (void)wqe, (void)status;
}

/* Now and then there is another path, which loses nothing at first. */
bool world_route_migrates(struct local_qp *lq)
{
	task_yield("world_route_migrates");
	if (!rng_chance(&sim.rng, 300))
		return false;
	qp_of(lq)->losses = 0;
	trace("QP 0x%x migrates", lq->qpn);
	return true;
}

bool world_route_look(struct local_qp *lq)
{
	(void)lq;
	task_yield("world_route_look");
	return rng_chance(&sim.rng, 100);
}

void world_route_explain(const struct local_qp *lq, char *text, size_t size)
{
	(void)lq;
	snprintf(text, size, "the simulated fabric loses it");
}

/* ------------------------------------------------------------------ hazards */

static bool any_free(void *arg)
{
	const struct process *p = arg;

	for (uint32_t i = 0; i < HAZARDS; i++)
		if (!atomic_load(&p->hazard[i]))
			return true;
	return false;
}

static world_hazard *hazard_set(struct qp *qp, uint64_t key)
{
	struct process *p = qp->process;

	only_parent("hazards");
	task_yield("before a hazard");
	while (!any_free(p))
		task_wait(any_free, p, UINT64_MAX, "waits for a place for a hazard");
	for (uint32_t i = 0; i < HAZARDS; i++)
		if (!atomic_load(&p->hazard[i])) {
			atomic_store(&p->hazard[i], (uint64_t)qp->link->peer->slot << 32 | key);
			task_yield("hazard is set");
			return &p->hazard[i];
		}
	abort();
}

world_hazard *world_hazard_region(struct local_qp *lq, uint32_t rkey)
{
	return hazard_set(qp_of(lq), rkey);
}

world_hazard *world_hazard_region_inner(struct local_qp *lq, uint32_t rkey)
{
	return hazard_set(qp_of(lq), rkey);
}

world_hazard *world_hazard_qp(struct local_qp *lq)
{
	struct qp *qp = qp_of(lq);

	return hazard_set(qp, qp_hazard(qp->attr.dest_qp_num));
}

void world_hazard_clear(world_hazard *hazard)
{
	atomic_store(hazard, 0);
	task_yield("hazard is cleared");
}

/* ------------------------------------------------------------------ memory of this process */

uint32_t world_memory_mark(struct local_qp *lq)
{
	return qp_of(lq)->own_count;
}

void world_memory_release(struct local_qp *lq, uint32_t mark)
{
	qp_of(lq)->own_count = mark;
	task_yield("memory is released");
}

static void hold_key(struct qp *qp, uint32_t rkey)
{
	if (qp->own_count == OWN_HAZARDS)
		fail("too many own hazards");
	qp->own_hazards[qp->own_count++] = rkey;
}

static int segments(struct qp *qp, const struct ibv_sge *sge, uint32_t count, uint32_t access,
		    struct iovec *out)
{
	int n = 0;

	for (uint32_t i = 0; i < count; i++)
		if (sge[i].length)
			hold_key(qp, sge[i].lkey);
	task_yield("looks keys up");
	for (uint32_t i = 0; i < count; i++) {
		if (!sge[i].length)
			continue;
		uint64_t at =
			entry_resolve(qp->process, sge[i].addr, sge[i].length, sge[i].lkey, access);

		if (!at)
			return -EFAULT;
		out[n++] = (struct iovec){(void *)(uintptr_t)at, sge[i].length};
		task_yield("looked a key up");
	}
	return n;
}

int world_request_segments(struct local_qp *lq, const struct send_wqe *wqe, uint32_t access,
			   struct iovec *out)
{
	if (wqe->flags & SEND_BORROWED) {
		for (uint32_t i = 0; i < wqe->num_sge; i++)
			out[i] = (struct iovec){(void *)(uintptr_t)wqe->sge[i].addr,
						wqe->sge[i].length};
		return (int)wqe->num_sge;
	}
	if (wqe->flags & SEND_INLINE) {
		out[0] = (struct iovec){(void *)wqe->data, wqe->length};
		return wqe->length != 0;
	}
	return segments(qp_of(lq), wqe->sge, wqe->num_sge, access, out);
}

/* Receives have one segment here. */
int world_receive_segments(struct local_qp *lq, const struct recv_wqe *wqe, uint32_t length,
			   struct iovec *out)
{
	struct ibv_sge first = wqe->sge[0];

	if (length < first.length)
		first.length = length;
	return segments(qp_of(lq), &first, 1, IBV_ACCESS_LOCAL_WRITE, out);
}

/* Copies `length` bytes of segments, `offset` into them, from or to `flat`. */
static bool move(const struct iovec *list, int count, size_t offset, uint8_t *flat, size_t length,
		 enum side_of_copy side, const char *where)
{
	for (int i = 0; i < count && length; i++) {
		if (offset >= list[i].iov_len) {
			offset -= list[i].iov_len;
			continue;
		}
		size_t n = list[i].iov_len - offset;

		n = n < length ? n : length;
		if (!memory_copy((uint64_t)(uintptr_t)list[i].iov_base + offset, flat, n, side,
				 where))
			return false;
		task_yield(where);
		flat += n;
		length -= n;
		offset = 0;
	}
	return true;
}

bool world_put_message(struct local_qp *lq, const struct send_wqe *wqe, void *to)
{
	WORLD_MEMORY(memory, lq);
	struct iovec local[LIMIT_SGE];
	int count = world_request_segments(lq, wqe, 0, local);

	return count >= 0 && world_gather(lq, to, local, count, 0, wqe->length);
}

bool world_gather(struct local_qp *lq, void *to, const struct iovec *from, int count, size_t offset,
		  size_t length)
{
	(void)lq;
	return move(from, count, offset, to, length, COPY_READS, "world_gather");
}

bool world_scatter(struct local_qp *lq, const struct iovec *to, int count, size_t offset,
		   const void *from, size_t length)
{
	(void)lq;
	return move(to, count, offset, (uint8_t *)(uintptr_t)from, length, COPY_WRITES,
		    "world_scatter");
}

bool world_reachable(const struct iovec *local, int count)
{
	for (int i = 0; i < count; i++)
		if (!memory_mapped((uint64_t)(uintptr_t)local[i].iov_base, local[i].iov_len))
			return false;
	return true;
}

bool world_imported(const struct iovec *list, int count)
{
	(void)list;
	(void)count;
	return false;
}

/* Returns the request that is executed here: the next one. */
static struct request *executing(struct qp *qp)
{
	return oracle_get((uint32_t)sq_at(&qp->sq, qp->sq.next)->wr_id);
}

uint64_t world_own_region(struct local_qp *lq, uint64_t addr, uint32_t length, uint32_t rkey,
			  uint32_t access)
{
	struct qp *qp = qp_of(lq);

	hold_key(qp, rkey);
	task_yield("world_own_region");
	uint64_t at = entry_resolve(qp->process, addr, length, rkey, access);

	return at ? at : window_resolve(qp, addr, length, rkey, access);
}

bool world_own_write(struct local_qp *lq, uint64_t at, const uint8_t *from, uint32_t n, bool last)
{
	uint8_t piece[RING_PAYLOAD_MAX];
	uint32_t offset;
	struct request *r = oracle_at(qp_of(lq), at, &offset);

	(void)last;
	memcpy(piece, from, n); /* copied first, because the peer may still change it */
	if (r)
		oracle_placing(r, offset, piece, n);
	if (!memory_copy(at, piece, n, COPY_WRITES, "world_own_write"))
		return false;
	if (r)
		oracle_moved(r, offset + n);
	task_yield("wrote");
	return true;
}

bool world_own_read(struct local_qp *lq, uint64_t at, uint8_t *to, uint32_t n)
{
	uint32_t offset;

	if (!n)
		return true;
	struct request *r = oracle_at(qp_of(lq), at, &offset);

	if (r)
		oracle_reading(r, offset, n);
	if (!memory_copy(at, to, n, COPY_READS, "world_own_read"))
		return false;
	if (r)
		oracle_moved(r, offset + n);
	return true;
}

static bool store(struct request *r, uint64_t at, uint64_t value)
{
	if (r)
		oracle_placing(r, 0, (const uint8_t *)&value, sizeof(value));
	if (!memory_copy(at, &value, sizeof(value), COPY_WRITES, "atomic write"))
		return false;
	if (r)
		oracle_moved(r, sizeof(value));
	return true;
}

static bool atomic_on(struct request *r, uint64_t at, const struct record_atomic *op, uint64_t *old,
		      const char *where)
{
	uint64_t value;

	task_yield(where);
	bool there = memory_mapped(at, 8);

	/* No switch of threads between these: it is one instruction. */
	if (!there || !memory_copy(at, &value, 8, COPY_READS, "atomic"))
		return false;
	*old = value;
	if (op->operation == RECORD_STORE)
		return store(r, at, op->swap);
	if (r)
		oracle_atomic(r, value);
	if (op->operation == RECORD_ADD)
		value += op->compare_add;
	else if (value == op->compare_add)
		value = op->swap;
	return memory_copy(at, &value, 8, COPY_WRITES, "atomic");
}

bool world_own_atomic(struct local_qp *lq, uint64_t at, const struct record_atomic *op,
		      uint64_t *old)
{
	uint32_t offset;
	/* Within one process the requester executes the request; only a liar asks the responder. */
	bool by_requester = lq->self && !sim.plan.hostile;
	struct request *r = by_requester ? executing(qp_of(lq)) : oracle_at(qp_of(lq), at, &offset);

	return atomic_on(r, at, op, old, "world_own_atomic");
}

bool world_is_imported(uint64_t at)
{
	return region_imported(memory_place(at).serial);
}

/* ------------------------------------------------------------------ memory of the peer */

enum { SLOW_COPY_NS = 100000 };

static int copy_denied(struct qp *qp)
{
	struct process *peer = qp->link->peer;

	if (peer->dead)
		return -ESRCH;
	if (sim.plan.copy_fails_at && sim.step >= sim.plan.copy_fails_at)
		return -EPERM;
	return 0;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

/* The first steps of a one-sided copy to a region that was looked up. A copy through a window may
 * take long, so that its owner ends the window meanwhile. */
static int peer_copy_begins(struct local_qp *lq, const struct mr_view *view, const char *where)
{
	struct qp *qp = qp_of(lq);
	bool mapped = view->file_serial && !qp->link->peer->dead;
	/* Copying to mapped memory needs no permission. */
	int err = qp->link->self || mapped ? 0 : copy_denied(qp);

	if (view->access & PUB_MR_FOREIGN)
		fail("%s: a peer reaches for a region that was imported", where);
	/* The index of a window's key is none of a region's. */
	if (mapped && (view->region >> LIMIT_KEY_TAG_BITS) - 1 >= REGIONS)
		fail("%s: a window's memory is mapped, but not as its region", where);
	totals.mapped += mapped;
	totals.mapped_windows += mapped && view->pd & PUB_MR_WINDOW;
	task_yield(where);
	if (view->pd & PUB_MR_WINDOW && rng_chance(&sim.rng, 500))
		task_wait(never, NULL, sim.now + SLOW_COPY_NS, where);
	if (!err)
		oracle_meets(executing(qp), lq->peer_epoch);
	return err;
}

static int why_failed(struct qp *qp)
{
	return qp->link->peer->dead ? -ESRCH : -EFAULT;
}

int world_peer_put(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length)
{
	uint8_t flat[BLOCK];
	struct qp *qp = qp_of(lq);
	struct request *r = executing(qp);
	int err = peer_copy_begins(lq, view, "world_peer_put");

	if (err)
		return err;
	if (!move(local, count, 0, flat, length, COPY_READS, "world_peer_put"))
		return -EFAULT;
	oracle_placing(r, 0, flat, (uint32_t)length);
	if (length > 1 && !memory_copy(there, flat, length - 1, COPY_WRITES, "world_peer_put"))
		return why_failed(qp);
	task_yield("before the last byte");
	if (!memory_copy(there + length - 1, flat + length - 1, 1, COPY_WRITES, "world_peer_put"))
		return why_failed(qp);
	oracle_moved(r, (uint32_t)length);
	task_yield("put");
	return 0;
}

int world_peer_get(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		   const struct iovec *local, int count, size_t length)
{
	uint8_t flat[BLOCK];
	struct qp *qp = qp_of(lq);
	struct request *r = executing(qp);
	int err = peer_copy_begins(lq, view, "world_peer_get");

	if (err)
		return err;
	oracle_reading(r, 0, (uint32_t)length);
	if (!memory_copy(there, flat, length, COPY_READS, "world_peer_get"))
		return why_failed(qp);
	oracle_moved(r, (uint32_t)length);
	return move(local, count, 0, flat, length, COPY_WRITES, "world_peer_get") ? 0 : -EFAULT;
}

/* The request `i` places behind the next one. */
static struct request *following(const struct qp *qp, int i)
{
	return oracle_get((uint32_t)sq_at(&qp->sq, qp->sq.next + i)->wr_id);
}

int world_peer_get_several(struct local_qp *lq, const struct iovec *remote, int reads,
			   const struct iovec *local, int count, size_t length)
{
	uint8_t flat[BLOCK];
	struct qp *qp = qp_of(lq);
	int err = copy_denied(qp);
	size_t at = 0;

	task_yield("world_peer_get_several");
	if (err)
		return err;
	for (int i = 0; i < reads; at += remote[i++].iov_len) {
		size_t n = remote[i].iov_len;

		if (!memory_copy((uint64_t)(uintptr_t)remote[i].iov_base, flat, n, COPY_READS,
				 "world_peer_get_several"))
			return why_failed(qp);
		if (!move(local, count, at, flat, n, COPY_WRITES, "world_peer_get_several"))
			return -EFAULT;
	}
	if (at != length)
		fail("%d READs by one call are of %zu bytes, not of %zu", reads, at, length);
	/* They count if all could be copied. */
	for (int i = 0; i < reads; i++) {
		uint32_t n = (uint32_t)remote[i].iov_len;

		oracle_meets(following(qp, i), lq->peer_epoch);
		oracle_reading(following(qp, i), 0, n);
		oracle_moved(following(qp, i), n);
	}
	totals.together += reads;
	return 0;
}

bool world_peer_mapped(struct local_qp *lq, const struct mr_view *view)
{
	task_yield("world_peer_mapped");
	return view->file_serial && !qp_of(lq)->link->peer->dead;
}

int world_peer_atomic(struct local_qp *lq, const struct mr_view *view, uint64_t there,
		      const struct record_atomic *op, uint64_t *old)
{
	struct qp *qp = qp_of(lq);

	/* The region may be another one than world_peer_mapped() saw, or its mapping is being
	 * removed. */
	if (!view->file_serial || qp->link->peer->dead || rng_chance(&sim.rng, 100))
		return -EAGAIN;
	int err = peer_copy_begins(lq, view, "world_peer_atomic");

	if (err)
		return err;
	return atomic_on(executing(qp), there, op, old, "world_peer_atomic") ? 0 : why_failed(qp);
}

int world_peer_fetch(struct local_qp *lq, const struct mr_view *view, const struct iovec *remote,
		     int remote_count, const struct iovec *local, int count, size_t length)
{
	uint8_t flat[BLOCK];
	struct qp *qp = qp_of(lq);
	bool mapped = view->file_serial && !qp->link->peer->dead;
	int err = qp->link->self || mapped ? 0 : copy_denied(qp);

	totals.mapped += mapped;
	task_yield("world_peer_fetch");
	if (err)
		return err;
	for (int i = 0; i < remote_count; i++)
		if (region_imported(memory_place((uint64_t)(uintptr_t)remote[i].iov_base).serial))
			fail("a message is fetched from a region that was imported");
	if (!move(remote, remote_count, 0, flat, length, COPY_READS, "world_peer_fetch"))
		return why_failed(qp);
	return move(local, count, 0, flat, length, COPY_WRITES, "world_peer_fetch") ? 0 : -EFAULT;
}

/* ------------------------------------------------------------------ receives */

const struct recv_wqe *world_receive_take(struct local_qp *lq, struct receive *room)
{
	struct qp *qp = qp_of(lq);
	struct receive_queue *rq = qp->rq;
	const struct recv_wqe *wqe = NULL;

	if (rq->shared) {
		mutex_take(&rq->lock);
		if (rq->tail != rq->head)
			*room = rq->at[rq->tail++ % RECV_DEPTH], wqe = &room->wqe;
		mutex_give(&rq->lock);
	} else if (rq->tail != rq->head) {
		wqe = &rq->at[rq->tail++ % RECV_DEPTH].wqe;
	}
	qp->starved |= !wqe;
	qp->head_length = UINT32_MAX;
	totals.rnr += !wqe;
	return wqe;
}

/* As in the soft HCA, which takes the other way for what isn't ordinary; here also at random. */
enum receive_outcome world_receive_message(struct local_qp *lq, const struct ring_header *h,
					   const uint8_t *payload, struct receive *room,
					   const struct recv_wqe **wqe)
{
	struct qp *qp = qp_of(lq);
	struct receive_queue *rq = qp->rq;
	struct iovec place[LIMIT_SGE];

	if (world_head_bytes(lq) || rng_chance(&sim.rng, 30) || rq->tail == rq->head)
		return RECEIVE_OTHERWISE;
	WORLD_MEMORY(memory, lq);
	uint32_t tail = rq->tail;
	const struct receive *next = &rq->at[tail % RECV_DEPTH];

	if (h->length > next->wqe.length)
		return RECEIVE_OTHERWISE;
	*room = *next;
	*wqe = &room->wqe;
	int count = world_receive_segments(lq, *wqe, h->length, place);

	/* Another QP of the SRQ may have taken it meanwhile. */
	if (count < 0 || rq->tail != tail || rq->tail == rq->head)
		return RECEIVE_OTHERWISE;
	rq->tail++;
	totals.short_ways++;
	if (!world_scatter(lq, place, count, 0, payload, h->length))
		return RECEIVE_FAULTED;
	const struct arrival arrival = record_arrival(h);

	world_receive_complete(lq, *wqe, &arrival, IBV_WC_SUCCESS);
	return RECEIVE_COMPLETED;
}

uint32_t world_head_bytes(const struct local_qp *lq)
{
	return sim.plan.pair[qp_of((struct local_qp *)lq)->pair].heads ? LOCAL_HEAD_BYTES : 0;
}

/* Whether the message's tag matches no receive yet. Every third one matches when it is looked at
 * for the third time: the core looks twice before it waits, so a post must wake it. */
static bool matches_nothing(struct qp *qp, const uint8_t *head, uint32_t length)
{
	uint64_t first;

	if (!sim.plan.pair[qp->pair].tags || length < sizeof(first))
		return false;
	memcpy(&first, head, sizeof(first));
	if (qp->looked_at != first) {
		qp->looked_at = first;
		qp->looks = 0;
	}
	return first % 3 == 0 && qp->looks++ < 2;
}

const struct recv_wqe *world_receive_take_for(struct local_qp *lq, struct receive *room,
					      const uint8_t *head, uint32_t length)
{
	struct qp *qp = qp_of(lq);

	if (matches_nothing(qp, head, length)) {
		qp->starved = true;
		totals.rnr++;
		totals.unmatched++;
		return NULL;
	}
	const struct recv_wqe *wqe = world_receive_take(lq, room);

	if (wqe) {
		memcpy(qp->head, head, length);
		qp->head_length = length;
	}
	return wqe;
}

void world_receive_back(struct local_qp *lq, const struct recv_wqe *wqe)
{
	struct qp *qp = qp_of(lq);
	struct receive_queue *rq = qp->rq;

	if (!rq->shared) {
		if (rq->at[--rq->tail % RECV_DEPTH].wqe.wr_id != wqe->wr_id)
			fail("a receive is given back that isn't the last one taken");
		return;
	}
	mutex_take(&rq->lock);
	if (rq->head - rq->tail == RECV_DEPTH)
		fail("more receives are given back than there were");
	memcpy(&rq->at[--rq->tail % RECV_DEPTH], wqe,
	       sizeof(*wqe) + wqe->num_sge * sizeof(wqe->sge[0]));
	mutex_give(&rq->lock);
}

void world_receive_keep(struct local_qp *lq)
{
	(void)lq; /* its place is taken until its completion is polled */
}

void world_receive_complete(struct local_qp *lq, const struct recv_wqe *wqe,
			    const struct arrival *arrival, enum ibv_wc_status status)
{
	struct qp *qp = qp_of(lq);

	qp->completing = status == IBV_WC_SUCCESS;
	if (qp->completing)
		world_publish_taken(lq, lq->done_msn + 1);
	task_yield("world_receive_complete");
	qp->completing = false;
	qp->rq->done++;
	oracle_received(qp, (uint32_t)wqe->wr_id, arrival, status);
}

void world_receive_wait(struct local_qp *lq, bool waits)
{
	struct qp *qp = qp_of(lq);

	qp->receive_waits = waits && !qp->rq->shared;
	if (qp->rq->shared) {
		mutex_take(&qp->rq->lock);
		qp->rq->waiters[qp->index] = waits;
		mutex_give(&qp->rq->lock);
	}
	task_yield("world_receive_wait");
}

/* ------------------------------------------------------------------ completions and events */

void world_complete(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	struct qp *qp = qp_of(lq);

	if (wqe != sq_at(&qp->sq, qp->sq.acked))
		fail("QP 0x%x: a request completes that isn't the oldest", qp->qpn);
	qp_complete(qp, wqe, status);
	task_yield("world_complete");
}

void world_fail_request(struct local_qp *lq, struct send_wqe *wqe, enum ibv_wc_status status)
{
	struct qp *qp = qp_of(lq);

	qp->sq.next++;
	qp->sq.acked++;
	oracle_completed(qp, (uint32_t)wqe->wr_id, status);
	qp->state = qp->lq.state = IBV_QPS_SQE;
	qp_publish(qp);
	qp_flush_requests(qp);
}

void world_fail(struct local_qp *lq, int event)
{
	(void)event;
	qp_fail(qp_of(lq));
}

void world_drained(struct local_qp *lq)
{
	oracle_drained(qp_of(lq));
}

void world_established(struct local_qp *lq)
{
	(void)lq;
}

/* ------------------------------------------------------------------ storage */

struct local_held *world_hold(struct local_qp *lq, uint32_t size)
{
	struct qp *qp = qp_of(lq);
	struct process *p = qp->process;
	uint32_t bytes = (uint32_t)sizeof(struct local_held) + size;

	if (p->held_bytes + bytes > sim.plan.hold_bytes || rng_chance(&sim.rng, sim.plan.no_hold)) {
		totals.hold_refused++;
		trace("QP 0x%x: no storage for %u bytes", qp->qpn, size);
		return NULL;
	}
	totals.holds++;
	p->held_bytes += bytes;
	qp->held_bytes += bytes;
	qp->held_count++;
	if (qp->held_bytes > LOCAL_HELD_BYTES)
		fail("QP 0x%x holds %u bytes", qp->qpn, qp->held_bytes);
	struct local_held *held = malloc(bytes);

	if (!held)
		fail("no memory");
	return held;
}

void world_release(struct local_qp *lq, struct local_held *held)
{
	struct qp *qp = qp_of(lq);
	uint32_t bytes = (uint32_t)sizeof(struct local_held) + held->size;

	only_parent("storage");
	if (bytes > qp->held_bytes)
		fail("QP 0x%x gives back more than it holds", qp->qpn);
	qp->process->held_bytes -= bytes;
	qp->held_bytes -= bytes;
	qp->held_count--;
	free(held);
}

/* ------------------------------------------------------------------ timers */

static void timer_soon(struct process *p)
{
	p->timer_at = sim.now;
	engine_kick(p);
}

void world_watch(struct local_qp *lq)
{
	struct qp *qp = qp_of(lq);

	if (!qp->watched)
		timer_soon(qp->process);
	qp->watched = true;
}

void world_watch_receive(struct local_qp *lq)
{
	struct qp *qp = qp_of(lq);

	qp->watched_receive = true;
	timer_soon(qp->process);
}

void world_owe_ack(struct local_qp *lq)
{
	struct qp *qp = qp_of(lq);

	qp->process->acks[qp->index] = true;
	qp->link->owing = qp;
	task_yield("world_owe_ack");
}

/* ------------------------------------------------------------------ for people */

bool world_captures(const struct local_qp *lq)
{
	(void)lq;
	return false;
}

void world_capture_request(struct local_qp *lq, const struct send_wqe *wqe)
{
	(void)lq;
	(void)wqe;
}

void world_capture_answer(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn,
			  enum ibv_wc_status status)
{
	(void)lq;
	(void)wqe;
	(void)msn;
	(void)status;
}

void world_capture_rnr(struct local_qp *lq, const struct send_wqe *wqe, uint32_t msn)
{
	(void)lq;
	(void)wqe;
	(void)msn;
}

void world_count(struct local_qp *lq, unsigned int counter)
{
	(void)lq;
	(void)counter;
}

void world_log(const struct local_qp *lq, const char *format, ...)
{
	char line[160];
	va_list args;

	if (!sim.verbose)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	trace_print("QP 0x%x: %s", lq->qpn, line);
}

/* ------------------------------------------------------------------ XRC */

/* No QP here is of XRC: tests/e2e/xrc.c has it. */
bool world_current(struct local_qp *lq, const struct send_wqe *wqe)
{
	(void)lq, (void)wqe;
	return true;
}

bool world_peer_srq(struct local_qp *lq)
{
	(void)lq;
	return false;
}

enum world_srq world_srq_look(struct local_qp *lq)
{
	(void)lq;
	return WORLD_SRQ_THERE;
}

bool world_aim(struct local_qp *lq, uint32_t srqn)
{
	(void)lq, (void)srqn;
	return false;
}
