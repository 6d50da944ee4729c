/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues: a ring of completions with free-running counts of those produced (head) and
 * consumed (tail). Entries and counts change under cq.lock; a poller that finds the counts equal
 * returns without taking it.
 *
 * Arming: an armed CQ owes its channel one event, for a completion that is added after the arming.
 * The published table says of which CQs that is so (struct pub_header), because peers ring the
 * doorbell for these CQs' records even while a thread polls: a program that arms and then sleeps
 * must be woken at once.
 *
 * Overrun: a completion that finds the ring full is lost, and so is every later one; those that
 * were in the ring before can still be polled. The QPs that complete to the CQ fail; the engine
 * thread does that, since the thread that finds the ring full holds one of their locks. With
 * IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN the oldest entry is overwritten instead.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/refused.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/mem/pd.h"
#include "hca/process/books.h"
#include "hca/process/context.h"
#include "hca/process/hca.h"
#include "hca/verbs/channel.h"
#include "hca/verbs/completion.h"
#include "hca/verbs/cq.h"
#include "hca/verbs/event.h"

_Thread_local uint32_t cq_taken;
_Thread_local uint32_t cq_unanswered;

static inline bool cq_empty(const struct cq *cq)
{
	return atomic_load_explicit(&cq->head, memory_order_acquire) ==
	       atomic_load_explicit(&cq->tail, memory_order_relaxed);
}

static struct channel *cq_channel(const struct cq *cq)
{
	return container_of(cq->ibv.channel, struct channel, ibv);
}

/* Counts the CQ in the published table, if it is armed. */
static void count_armed(struct cq *cq, uint32_t arm, int change)
{
	if (arm != CQ_UNARMED)
		pub_count_armed(&cq->context->hca->pub->header, cq->arm_group,
				arm == CQ_ARMED ? PUB_ARMED_ANY : PUB_ARMED_SOLICITED, change);
}

static void set_armed(struct cq *cq, enum cq_arm arm) REQUIRES(cq->lock)
{
	uint32_t old = atomic_load_explicit(&cq->armed, memory_order_relaxed);

	if (arm == CQ_UNARMED)
		cq->held_back = 0;

	/* In this order a peer finds it armed in between. */
	count_armed(cq, arm, 1);
	count_armed(cq, old, -1);
	atomic_store_explicit(&cq->armed, arm, memory_order_relaxed);
}

void cq_raise(struct cq *cq)
{
	set_armed(cq, CQ_UNARMED);
	event_queue_push(&cq_channel(cq)->queue, cq, NULL, &cq->comp_reported);
}

/* The ring is full, or has overrun. True: there is room now; *raise: this is the first
 * overrun. */
static bool make_room(struct cq *cq, bool *raise) REQUIRES(cq->lock)
{
	if (cq_object_of(cq)->ignore_overrun) {
		atomic_fetch_add_explicit(&cq->tail, 1, memory_order_relaxed);
		return true;
	}
	*raise = !cq->overrun;
	cq->overrun = true;
	return false;
}

static bool push_overrun(struct cq *cq, bool raise)
{
	if (raise) {
		log_warn(
			"a CQ of %u entries overran: completions are lost, the CQ is unusable now; "
			"make it as large as the queues that complete to it",
			cq_depth(cq));
		async_cq(cq, IBV_EVENT_CQ_ERR);
	}
	/* With each completion that is lost, because its QP may have come here from RESET since the
	 * last one. */
	work_leave(&cq->context->hca->engine_work, ENGINE_OVERRUNS);
	engine_kick(cq->context->hca); /* fails the CQ's QPs */
	return false;
}

void cq_stamp(struct cqe *cqe)
{
	cqe->timestamp = now_ns();
}

bool cq_add_full(struct cq *cq, const struct cqe *cqe, bool solicited)
{
	bool raise = false, room = make_room(cq, &raise);

	lock_give(&cq->lock);
	return room ? cq_push(cq, cqe, solicited) : push_overrun(cq, raise);
}

void cq_add_armed(struct cq *cq, bool satisfies)
{
	bool event = false, first = false;

	if (satisfies || atomic_load_explicit(&cq->armed, memory_order_relaxed) == CQ_ARMED) {
		event = !cq->moderate_count || !cq_hold_back(cq, &first);
		if (event)
			set_armed(cq, CQ_UNARMED);
	}
	lock_give(&cq->lock);
	if (event)
		event_queue_push(&cq_channel(cq)->queue, cq, NULL, &cq->comp_reported);
	if (first)
		cq_moderation_begin(cq);
}

bool cq_push(struct cq *cq, const struct cqe *cqe, bool solicited)
{
	return cq_add(cq, cqe, solicited);
}

static inline void wc_fill(struct ibv_wc *wc, const struct cqe *cqe)
{
	*wc = (struct ibv_wc){
		.wr_id = cqe->wr_id,
		.status = cqe->status,
		.opcode = cqe->opcode,
		.vendor_err = cqe->vendor_err,
		.byte_len = cqe->byte_len,
		.imm_data = cqe->imm,
		.qp_num = cqe->qp_num,
		.src_qp = cqe->src_qp,
		.wc_flags = cqe->wc_flags,
		.slid = cqe->slid,
		.sl = cqe->sl,
		.dlid_path_bits = cqe->path_bits,
	};
}

/* The program has polled the completion. Called under the lock of its CQ. */
static inline void places_release(const struct cqe *cqe)
{
	struct places *places = cqe->places;

	if (unlikely(!places))
		return;
	if (cqe->opcode & IBV_WC_RECV)
		places_set(places, places_freed(places) + 1);
	else
		places_set(places, cqe->places_end);
}

static int take_batch(struct cq *cq, int count, struct ibv_wc *wc)
{
	lock_take(&cq->lock);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t n = atomic_load_explicit(&cq->head, memory_order_relaxed) - tail;

	if (n > (uint32_t)count)
		n = count;
	const struct cqe *ring = cq->ring;
	uint32_t mask = cq->mask;

	for (uint32_t i = 0; i < n; i++) {
		const struct cqe *cqe = &ring[(tail + i) & mask];

		places_release(cqe);
		wc_fill(&wc[i], cqe);
	}
	atomic_store_explicit(&cq->tail, tail + n, memory_order_relaxed);
	lock_give(&cq->lock);
	cq_taken += n;
	cq_unanswered = n ? n - 1 : 0;
	return n;
}

int cq_poll(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
	struct cq *cq = cq_of(ibv);

	if (unlikely(count <= 0))
		return 0;
	if (cq_empty(cq)) {
		engine_poll(cq->context->hca, cq);
		if (cq_empty(cq))
			return 0;
	}
	return take_batch(cq, count, wc);
}

bool cq_take(struct cq *cq, struct cqe *out)
{
	if (cq_empty(cq))
		return false;
	lock_take(&cq->lock);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	bool any = atomic_load_explicit(&cq->head, memory_order_relaxed) != tail;

	if (likely(any)) {
		*out = cq->ring[tail & cq->mask];
		places_release(out);
		atomic_store_explicit(&cq->tail, tail + 1, memory_order_relaxed);
	}
	lock_give(&cq->lock);
	cq_taken += any;
	return any;
}

int cq_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	struct cq *cq = cq_of(ibv);
	enum cq_arm want = solicited_only ? CQ_ARMED_SOLICITED : CQ_ARMED;

	if (!ibv->channel)
		return 0; /* without a channel there is no event */
	lock_take(&cq->lock);
	uint32_t old = atomic_load_explicit(&cq->armed, memory_order_relaxed);

	if (want > old)
		set_armed(cq, want);
	lock_give(&cq->lock);
	if (want > old) /* counted before [S2], which is in it */
		engine_release(cq->context->hca);
	return 0;
}

void cq_forget_qp(struct cq *cq, uint32_t qp_num)
{
	lock_take(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t kept = atomic_load_explicit(&cq->tail, memory_order_relaxed);

	for (uint32_t i = kept; i != head; i++) {
		const struct cqe *cqe = &cq->ring[i & cq->mask];

		if (cqe->qp_num == qp_num && !cqe_is_tagged(cqe)) {
			places_release(cqe);
			continue;
		}
		if (i != kept)
			cq->ring[kept & cq->mask] = *cqe;
		kept++;
	}
	atomic_store_explicit(&cq->head, kept, memory_order_release);
	lock_give(&cq->lock);
}

void cq_forget_places(struct cq *cq, const struct places *places)
{
	lock_take(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);

	for (uint32_t i = atomic_load_explicit(&cq->tail, memory_order_relaxed); i != head; i++) {
		struct cqe *cqe = &cq->ring[i & cq->mask];

		if (cqe->places == places)
			cqe->places = NULL;
	}
	lock_give(&cq->lock);
}

uint32_t cq_count_for(struct cq *cq, const struct places *places)
{
	uint32_t count = 0;

	lock_take(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);

	for (uint32_t i = atomic_load_explicit(&cq->tail, memory_order_relaxed); i != head; i++)
		count += cq->ring[i & cq->mask].places == places;
	lock_give(&cq->lock);
	return count;
}

/* ------------------------------------------------------------------ making, resizing, ending */

/* The CQ that a program gets which asks for one of `cqe` completions: 2^n - 1 of them fit in, as
 * with adapters (docs/behaviour.md). */
static uint32_t depth_for(uint32_t cqe)
{
	uint32_t depth = 1;

	while (depth < cqe)
		depth = depth << 1 | 1;
	return depth;
}

/* Allocates a ring for `depth` completions. Pages exist once they are used. 0 or ENOMEM. */
static int ring_make(struct queue_memory *ring, struct ibv_pd *domain, uint32_t depth)
{
	return queue_memory_make(ring, domain, ((size_t)depth + 1) * sizeof(struct cqe), QUEUE_CQ);
}

/* The parent domain that the attributes name, or NULL. */
static struct ibv_pd *domain_named(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL;
}

/* The bits that the attributes may have. 0 or a positive errno. */
static int check_cq_flags(const struct ibv_cq_init_attr_ex *attr)
{
	if (attr->wc_flags & ~(uint64_t)CQ_WC_FLAGS)
		return refused(EOPNOTSUPP,
			       "ibv_create_cq_ex: wc_flags is 0x%llx, and may have the "
			       "bits 0x%llx only",
			       (unsigned long long)attr->wc_flags, (unsigned long long)CQ_WC_FLAGS);
	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return refused(EINVAL, "ibv_create_cq_ex: comp_mask 0x%x has unknown bits",
			       attr->comp_mask);
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~(uint32_t)CQ_FLAGS))
		return refused(EOPNOTSUPP,
			       "ibv_create_cq_ex: flags is 0x%x, and may have the bits "
			       "0x%x only",
			       attr->flags, (unsigned int)CQ_FLAGS);
	return 0;
}

/* Checks the attributes: 0 or a positive errno. */
static int check_attributes(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	int err = check_cq_flags(attr);

	if (err)
		return err;
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) &&
	    (!attr->parent_domain || attr->parent_domain->context != context ||
	     !pd_of(attr->parent_domain)->parent_of)) {
		log_warn("ibv_create_cq_ex: parent_domain is none of this context's parent "
			 "domains");
		return EINVAL;
	}
	if (!attr->cqe || attr->cqe > LIMIT_CQE) {
		log_warn("a CQ of %u entries can't be made: 1 to %u can", attr->cqe, LIMIT_CQE);
		return EINVAL;
	}
	if (attr->comp_vector >= (uint32_t)context->num_comp_vectors) {
		log_warn("a CQ can't use completion vector %u: there are %d", attr->comp_vector,
			 context->num_comp_vectors);
		return EINVAL;
	}
	if (attr->channel && attr->channel->context != context) {
		log_warn("a CQ can't use the completion channel of another context");
		return EINVAL;
	}
	return 0;
}

static void object_init(struct cq_object *o, struct ibv_context *context,
			const struct ibv_cq_init_attr_ex *attr, struct queue_memory ring,
			uint32_t depth)
{
	struct ibv_pd *domain = domain_named(attr);
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct cq *cq = &o->cq;

	cq->ibv.context = context;
	cq->ibv.channel = attr->channel;
	cq->ibv.cq_context = attr->cq_context;
	cq->ibv.cqe = depth;
	cq->comp_vector = attr->comp_vector;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	cq_ex_init(cq);
	lock_init(&cq->lock, RANK_CQ);
	lock_bias(&cq->lock);
	cq->domain = domain;
	/* ibv_alloc_td(3): what is made under a thread domain has no locks against several of the
	 * program's threads. */
	cq->single_threaded =
		flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED || (domain && pd_of(domain)->td);
	cq->timestamps = attr->wc_flags & CQ_WC_TIMESTAMPS;
	cq->memory = ring;
	cq->ring = ring.at;
	cq->mask = depth;
	atomic_store_explicit(&cq->head, CQ_START, memory_order_relaxed);
	atomic_store_explicit(&cq->tail, CQ_START, memory_order_relaxed);
	cq->context = context_of(context);
	cq->arm_group = atomic_fetch_add_explicit(&cq->context->hca->last_arm_group, 1,
						  memory_order_relaxed) %
			PUB_ARM_GROUPS;
	list_init(&cq->moderated);
	lock_init(&o->turn, RANK_CQ_TURN);
	o->ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
}

static void channel_count(struct ibv_comp_channel *channel, int change)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += change;
	pthread_mutex_unlock(&channel->context->mutex);
}

static void cq_registered(struct cq *cq, uint32_t handle)
{
	cq->ibv.handle = cq->handle = handle;
	cq->registered = true;
}

void cq_came(struct cq *cq, const struct proto_create_channel_cq_resp *resp)
{
	cq_channel(cq)->handle = resp->channel;
	cq_channel(cq)->registered = true;
	cq_registered(cq, resp->cq);
}

/* For the channel's first CQ: has the daemon make the channel and the CQ in one round trip. */
static int tell_both(struct cq *cq)
{
	struct proto_create_channel_cq_resp resp;
	int err =
		daemon_create_channel_cq(&cq->context->conn, cq_depth(cq), cq->comp_vector, &resp);

	if (!err)
		cq_came(cq, &resp);
	return err;
}

static int tell_daemon(struct cq *cq, const struct channel *channel)
{
	uint32_t handle;

	if (channel && !channel->registered)
		return tell_both(cq);
	int err =
		daemon_create_cq(&cq->context->conn, cq_depth(cq),
				 channel ? (int64_t)channel->handle : -1, cq->comp_vector, &handle);

	if (!err)
		cq_registered(cq, handle);
	return err;
}

static int register_with(struct cq *cq, const struct channel *channel, bool later)
{
	books_enter(cq->context->hca);
	int err = later ? 0 : tell_daemon(cq, channel);

	if (!err)
		books_add(cq->context, HELD_CQ, &cq->held);
	books_leave(cq->context->hca);
	return err;
}

/* `later`: the daemon makes the CQ together with its QP. */
static int register_cq(struct cq *cq, bool later)
{
	if (!cq->ibv.channel)
		return register_with(cq, NULL, later);
	struct channel *channel = cq_channel(cq);

	mutex_take(&channel->first);
	int err = register_with(cq, channel, later);

	mutex_give(&channel->first);
	return err;
}

static struct ibv_cq *cq_create_object(struct ibv_context *context,
				       const struct ibv_cq_init_attr_ex *attr, bool for_qp)
{
	struct queue_memory ring = {0};
	uint32_t depth = depth_for(attr->cqe);
	int err = -check_attributes(context, attr);

	if (err) {
		errno = -err;
		return NULL;
	}
	struct cq_object *o = calloc(1, sizeof(*o));

	if (!o || ring_make(&ring, domain_named(attr), depth))
		goto out_memory;
	object_init(o, context, attr, ring, depth);
	err = register_cq(&o->cq, for_qp);
	if (err)
		goto out_free;
	channel_count(attr->channel, 1);
	pd_use(o->cq.domain, 1);
	return &o->cq.ibv;

out_memory:
	err = -ENOMEM;
out_free:
	queue_memory_free(&ring);
	free(o);
	errno = -err;
	return NULL;
}

struct ibv_cq *cq_create(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	return cq_create_object(context, attr, false);
}

struct ibv_cq *cq_create_for_qp(struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	if (!attr->channel || container_of(attr->channel, struct channel, ibv)->registered) {
		errno = EINVAL;
		return NULL;
	}
	return cq_create_object(context, attr, true);
}

/* Moves the completions into the ring *ring, which becomes the CQ's; *ring becomes the old one. */
static int swap_ring(struct cq *cq, struct queue_memory *ring, uint32_t depth)
{
	int err = EINVAL;

	lock_take(&cq->lock);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);

	if (head - tail <= depth) {
		struct queue_memory old = cq->memory;
		struct cqe *to = ring->at;

		for (uint32_t i = tail; i != head; i++)
			to[i & depth] = cq->ring[i & cq->mask];
		cq->memory = *ring;
		cq->ring = to;
		*ring = old;
		cq->mask = depth;
		cq->ibv.cqe = depth;
		err = 0;
	}
	lock_give(&cq->lock);
	return err;
}

static bool holds_more_than(struct cq *cq, uint32_t depth)
{
	lock_take(&cq->lock);
	uint32_t used = atomic_load_explicit(&cq->head, memory_order_relaxed) -
			atomic_load_explicit(&cq->tail, memory_order_relaxed);

	lock_give(&cq->lock);
	return used > depth;
}

int cq_resize(struct ibv_cq *ibv, int cqe)
{
	struct cq *cq = cq_of(ibv);
	struct daemon_conn *conn = &cq->context->conn;

	if (cqe < 1 || (uint32_t)cqe > LIMIT_CQE)
		return refused(EINVAL, "ibv_resize_cq: cqe is %d, which must be 1 to %u", cqe,
			       LIMIT_CQE);
	struct queue_memory ring;
	uint32_t depth = depth_for(cqe);

	if (holds_more_than(cq, depth))
		return refused(EINVAL,
			       "ibv_resize_cq: the CQ holds more completions than %u, which "
			       "must be polled first",
			       depth);
	if (ring_make(&ring, cq->domain, depth))
		return ENOMEM;
	pthread_mutex_lock(&ibv->mutex); /* one resize at a time */
	books_enter(cq->context->hca);
	int err = -daemon_resize_cq(conn, cq->handle, depth);

	if (!err) {
		uint32_t old = cq_depth(cq);

		err = swap_ring(cq, &ring, depth);
		if (err) { /* completions came meanwhile, and don't fit */
			daemon_resize_cq(conn, cq->handle, old);
			log_warn_few("ibv_resize_cq: more than %u completions came meanwhile, "
				     "and must be polled first",
				     depth);
		}
	}
	books_leave(cq->context->hca);
	pthread_mutex_unlock(&ibv->mutex);
	queue_memory_free(&ring);
	return err;
}

void cq_ack_events(struct ibv_cq *cq, unsigned int count)
{
	if (!count)
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* Drops unread events, and waits until those that were read are acknowledged. */
static void settle_events(struct cq *cq)
{
	struct ibv_cq *ibv = &cq->ibv;

	lock_take(&cq->lock);
	set_armed(cq, CQ_UNARMED);
	lock_give(&cq->lock);
	cq_moderation_end(cq);
	if (ibv->channel)
		event_queue_forget(&cq_channel(cq)->queue, cq);
	event_queue_forget(&cq->context->async, cq);

	pthread_mutex_lock(&ibv->mutex);
	while (ibv->comp_events_completed != cq->comp_reported ||
	       ibv->async_events_completed != cq->async_reported)
		sys_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
}

int cq_destroy(struct ibv_cq *ibv)
{
	struct cq *cq = cq_of(ibv);
	struct hca *hca = cq->context->hca;

	const uint32_t users = atomic_load(&cq->users);

	if (users)
		return refused(EBUSY,
			       "ibv_destroy_cq: queue pairs, work queues or SRQs use the CQ "
			       "(%u times), and must be destroyed first",
			       users);
	books_enter(hca);
	if (cq->registered)
		daemon_destroy_cq(&cq->context->conn, cq->handle);
	books_drop(cq->context, &cq->held);
	books_leave(hca);
	settle_events(cq);
	channel_count(ibv->channel, -1);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	lock_assume_alone(&cq->lock);
	queue_memory_free(&cq->memory);
	pd_use(cq->domain, -1);
	free(cq_object_of(cq));
	return 0;
}
