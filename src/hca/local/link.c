/* SPDX-License-Identifier: BSD-2-Clause */
/* Links. See link.h. Owns the links' mappings and doorbells. A place of hca.link_by_slot changes
 * once, atomically, from NULL; hca.links changes under hca.engine. */
#include "hca/local/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/sys.h"
#include "hca/engine/engine.h"
#include "hca/local/link_part.h"
#include "hca/local/local_carrier.h"
#include "hca/local/local_conn.h"
#include "hca/local/way.h"
#include "hca/local/xrc_records.h"
#include "hca/mem/copy.h"
#include "hca/mem/hazard.h"
#include "hca/mem/mapped.h"
#include "hca/process/books.h"
#include "hca/process/control.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"
#include "shm/bell.h"

#define LAST_NS 20000000ull /* how long link_send_last() waits for the peer to make room */
#define REFUSED_NS                                                                        \
	100000000ull /* for so long datagrams to an empty slot don't ask the daemon again \
		      */

enum { BACKLOG_MAX = 65536 }; /* a peer that causes more answers than this breaks the rules */

struct link *link_new(struct hca *hca, uint32_t slot)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->hca = hca;
	link->slot = slot;
	link->doorbell = link->hear = link->process.fd = -1;
	lock_init(&link->tx_lock, RANK_LINK_TX);
	lock_bias(&link->tx_lock);
	list_init(&link->backlog);
	list_init(&link->waiters);
	list_init(&link->node);
	link_idle_init(link);
	return link;
}

/* Wakes the control thread: there is a link to ask for, or to give back. */
static void links_request(struct hca *hca)
{
	work_leave(&hca->control_work, CONTROL_LINKS);
	control_wake(hca);
}

/* Has a link that is gone made again: at once, or when link_reap() has given its memory back. True:
 * the daemon is to be asked. */
static bool link_wish(struct link *link)
{
	uint32_t state = atomic_load(&link->state);

	while (state == LINK_DOWN || state == LINK_ENDING) {
		uint32_t next = state == LINK_DOWN ? LINK_WISHED : LINK_ENDING_WANTED;

		if (atomic_compare_exchange_strong(&link->state, &state, next))
			return next == LINK_WISHED;
	}
	return false;
}

struct link *link_get(struct hca *hca, uint32_t slot)
{
	struct link *link = atomic_load_explicit(&hca->link_by_slot[slot], memory_order_acquire);

	if (likely(link && !link_is_gone(link)))
		return link;
	if (!link) {
		struct link *fresh = link_new(hca, slot);

		if (!fresh)
			return NULL;
		if (!atomic_compare_exchange_strong(&hca->link_by_slot[slot], &link, fresh)) {
			free(fresh);
			return link; /* another thread made it in the meantime */
		}
		link = fresh;
	} else if (!link_wish(link)) {
		return link;
	}
	links_request(hca);
	return link;
}

struct link *link_get_datagram(struct hca *hca, uint32_t slot)
{
	struct link *link = atomic_load_explicit(&hca->link_by_slot[slot], memory_order_acquire);

	if (unlikely(link && link_is_gone(link) &&
		     now_ns() - atomic_load(&link->refused_at) < REFUSED_NS))
		return NULL;
	return link_get(hca, slot);
}

/* The daemon said that no process is there, or the link can't be mapped. Engine thread. */
static void link_refused(struct link *link)
{
	link->id = 0;
	atomic_store(&link->refused_at, now_ns());
	atomic_store(&link->state, LINK_DOWN);
	atomic_store(&link->has_waiters, true);
}

/* Asks the daemon for one link. A failed call to a daemon that is gone isn't an answer: the next
 * daemon is asked. Control thread. */
static void link_ask(struct hca *hca, struct link *link)
{
	uint32_t state = LINK_WISHED;
	int err = 0;

	books_enter(hca); /* no return makes ASKED WISHED again between these two */
	bool mine = atomic_compare_exchange_strong(&link->state, &state, LINK_ASKED);

	if (mine)
		err = daemon_link(&hca->conn, link->slot);
	books_leave(hca);
	if (err == -EIO) {
		state = LINK_ASKED;
		if (atomic_compare_exchange_strong(&link->state, &state, LINK_WISHED))
			return_for_link(hca);
	} else if (err && err != -EALREADY) {
		log_info("no process at slot %u to talk to: %s", link->slot, strerror(-err));
		atomic_store(&link->refused, true);
		work_leave(&hca->engine_work, ENGINE_REFUSALS);
		engine_kick(hca);
	}
}

/* Tells the daemon that this side has ended a link. If the daemon is gone, the next one is needed:
 * only a daemon tells the peer, which may have sealed its ring until then. Control thread. */
static void link_unlink_id(struct hca *hca, uint32_t slot, uint64_t id)
{
	uint64_t none = 0;

	books_enter(hca);
	int err = daemon_unlink(&hca->conn, slot, id);
	books_leave(hca);
	if (err != -EIO)
		return;
	atomic_compare_exchange_strong(&hca->link_given_up[slot], &none, id);
	return_for_link(hca);
}

void link_ask_daemon(struct hca *hca)
{
	if (!work_take(&hca->control_work, CONTROL_LINKS))
		return;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		/* Before the look at link_given_up: see hca.h. */
		bool wished = link && link_is(link, LINK_WISHED);
		uint64_t id = atomic_exchange(&hca->link_given_up[slot], 0);

		if (id)
			link_unlink_id(hca, slot, id);
		if (wished)
			link_ask(hca, link);
	}
}

void link_hear_ended(struct hca *hca)
{
	mapped_hear(hca);
}

bool link_any_request(struct hca *hca)
{
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		const struct link *link = atomic_load(&hca->link_by_slot[slot]);

		/* A request that the last daemon had taken may not have become a link. */
		if ((link && link_introducing(link)) || atomic_load(&hca->link_given_up[slot]))
			return true;
	}
	return false;
}

void link_take_refusals(struct hca *hca)
{
	if (likely(!work_take(&hca->engine_work, ENGINE_REFUSALS)))
		return;
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		/* The peer may have attached, and have asked for the link itself, since the
		 * refusal. */
		if (link && atomic_exchange(&link->refused, false) && link_is(link, LINK_ASKED))
			link_refused(link);
	}
}

/*
 * Whether this process may use process_vm_* on the peer: reads the random number at the address
 * that the peer has published. Never for a process of another user, not even where the kernel would
 * allow it (root): there the peer's own engine decides what a registration grants.
 */
static bool probe_vm(const struct link *link, uint32_t uid)
{
	const char *reason;

	if (!way_by_kernel())
		return false;
	if (!link->regions) {
		reason = "another user, or a process that the daemon can't see";
	} else if (link->process.pid <= 0) {
		reason = "another PID namespace";
	} else if (uid != geteuid()) {
		reason = "another user";
	} else {
		uint64_t value = 0;
		struct iovec local = {&value, sizeof(value)};
		int err = copy_from_process(&link->process, link->regions->probe_addr, &local, 1,
					    sizeof(value));

		if (!err && value == link->regions->probe)
			return true;
		reason = err ? strerror(-err) : "another process has its number";
	}
	log_info("process %d can't be reached by process_vm_readv (%s): data goes through the ring",
		 link->pid, reason);
	return false;
}

static const struct pub *map_table(int fd)
{
	const struct pub *pub = mmap(NULL, PUB_SIZE, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (pub == MAP_FAILED)
		return NULL;
	if (pub->header.magic != PUB_MAGIC || pub->header.version != PUB_VERSION) {
		log_warn("a peer's table has another version of Verbena's layout; not linked");
		munmap((void *)pub, PUB_SIZE);
		return NULL;
	}
	return pub;
}

static const struct pub_regions *map_regions(int fd)
{
	const struct pub_regions *regions =
		mmap(NULL, PUB_REGIONS_SIZE, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return regions == MAP_FAILED ? NULL : regions;
}

static void close_all(const int *fds)
{
	for (unsigned int i = 0; i < PROTO_MAX_FDS; i++)
		if (fds[i] >= 0)
			sys_close(fds[i]);
}

static void unmap_all(struct link_memory *memory, const struct pub *peer,
		      const struct pub_regions *regions)
{
	if (memory)
		munmap(memory, LINK_SIZE);
	if (peer)
		munmap((void *)peer, PUB_SIZE);
	if (regions)
		munmap((void *)regions, PUB_REGIONS_SIZE);
}

/* Whether the event brought the descriptor that wakes the peer and, for a peer of another user, the
 * bell that wakes this process. */
static bool bells_are_right(const struct proto_event *event, const int *fds)
{
	if (event->value & ~(uint32_t)PROTO_LINK_BELLS || fds[2] < 0)
		return false;
	return !(event->value & PROTO_LINK_BELLS) || (bell_is_one(fds[2]) && bell_is_one(fds[3]));
}

/* Takes these two descriptors over. The bell that this process hears is in the place of the
 * regions' file. */
static void take_bells(struct link *link, const struct proto_event *event, int *fds)
{
	link->doorbell = fds[2];
	fds[2] = -1;
	if (event->value & PROTO_LINK_BELLS) {
		link->hear = fds[3];
		fds[3] = -1;
		engine_hear(link->hca, link->hear);
	}
}

/* Maps what the event brought. The regions' file is mapped if it came, even if it won't be used for
 * copies: the peer got ours, so this process must see the peer's hazards. `regions_fd` is -1 if
 * none came. */
static bool map_all(struct link *link, const int *fds, int regions_fd)
{
	struct link_memory *memory =
		mmap(NULL, LINK_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	const struct pub *peer = map_table(fds[1]);
	const struct pub_regions *regions = regions_fd < 0 ? NULL : map_regions(regions_fd);

	memory = memory == MAP_FAILED ? NULL : memory;
	if (!memory || !peer || (regions_fd >= 0 && !regions)) {
		unmap_all(memory, peer, regions);
		return false;
	}
	link->peer = peer;
	link->regions = regions;
	FORK_POINT(); /* leave_link() */
	link->memory = memory;
	return true;
}

/* A child that is forked meanwhile replaces what the link has (leave_link()): so the link has it no
 * longer when the addresses become free. */
static void link_unmap_memory(struct link *link)
{
	struct link_memory *memory = link->memory;
	const struct pub *peer = link->peer;
	const struct pub_regions *regions = link->regions;

	link->memory = NULL;
	FORK_POINT();
	link->peer = NULL;
	link->regions = NULL;
	FORK_POINT();
	unmap_all(memory, peer, regions);
}

void link_for_each_qp(struct hca *hca, const struct link *link, void (*what)(struct qp *qp))
{
	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++) {
		struct qp *qp = hca->qps[i];

		if (!qp)
			continue;
		lock_take(&qp->lock);
		if (local_link_of(qp) == link && qp->state != IBV_QPS_ERR)
			what(qp);
		lock_give(&qp->lock);
	}
	xrc_for_each_of_link(hca, link, what);
}

/* Before a link is up, so that no thread uses it first: QPs that were connected while the former
 * link was ending may have state of its former peer, and the KICKs that they sent are lost. */
static void qp_relink(struct qp *qp) REQUIRES(qp->lock)
{
	local_relink(qp);
	link_wait(local_link_of(qp), qp);
}

static void link_up(struct hca *hca, struct link *link, const struct proto_event *event)
{
	uint32_t mine = event->side, theirs = !event->side;
	struct link_memory *memory = link->memory;

	link->id = event->link_id;
	link->side = event->side;
	link->pid = event->pid;
	link->uid = event->uid;
	peer_open(&link->process, event->pid, link->peer, link->regions);
	link->can_vm = probe_vm(link, event->uid);
	lock_take(&link->tx_lock); /* link_wait() reads link.tx before the link is up, too */
	ring_tx_init(&link->tx, memory->ring[mine], &memory->ctl[mine]);
	lock_give(&link->tx_lock);
	ring_rx_init(&link->rx, memory->ring[theirs], &memory->ctl[theirs]);
	atomic_store(&link->direct, false);
	atomic_store(&link->broken, NULL);
	atomic_store(&link->untold, false);
	link->has_left = link->shut_out = false;
	link_idle_begin(link);
	lock_take(&hca->engine);
	list_add_tail(&hca->links, &link->node);
	link_for_each_qp(hca, link, qp_relink);
	atomic_store(&link->state, LINK_UP);
	/* [I1], pairs with [I2]. A thread that posted since the link is up may have sent its
	 * KICK before this store, so the peer gets another one. */
	atomic_store(&memory->installed[mine], 1);
	link_for_each_qp(hca, link, local_announce);
	lock_give(&hca->engine);
	atomic_store(&link->has_waiters, true);
	log_debug("link to process %d at slot %u is up%s", link->pid, link->slot,
		  link->can_vm ? "" : " (ring copies)");
}

bool link_direct_slow(struct link *link)
{
	/* [I2], pairs with [I1] */
	if (!atomic_load(&link->can_vm) || !atomic_load(&link->memory->installed[!link->side]))
		return false;
	atomic_store(&link->direct, true);
	return true;
}

/* An event that brought the next link while the memory of the last one is still in use. */
struct link_offer {
	uint32_t generation; /* hca.generation: which daemon made it */
	struct proto_event event;
	int fds[PROTO_MAX_FDS];
};

void link_forget_next(struct link *link)
{
	if (link->next)
		close_all(link->next->fds);
	free(link->next);
	link->next = NULL;
}

static bool keep_offer(struct hca *hca, struct link *link, const struct proto_event *event,
		       const int *fds) REQUIRES(hca->events_lock)
{
	link_forget_next(link);
	link->next = malloc(sizeof(*link->next));
	if (!link->next)
		return false;
	link->next->generation = hca->generation;
	link->next->event = *event;
	memcpy(link->next->fds, fds, sizeof(link->next->fds));
	return true;
}

/* Has the control thread give the link back at the daemon: the peer may have mapped it, and must
 * not touch memory that this process doesn't guard; and the daemon makes no other link for the two
 * while it has this one. */
static void give_back(struct hca *hca, uint32_t slot, uint64_t id)
{
	atomic_store(&hca->link_given_up[slot], id);
	links_request(hca);
}

/* The peer has left the link before this side came to it: the daemon is asked for the next one,
 * after it has heard of the end of this one. */
static void link_shut_here(struct hca *hca, struct link *link, uint64_t id)
{
	uint32_t asked = LINK_ASKED;

	link_unmap_memory(link);
	give_back(hca, link->slot, id);
	if (atomic_compare_exchange_strong(&link->state, &asked, LINK_WISHED))
		links_request(hca);
}

/* Maps the link and makes it UP, or refuses it. Its state is WISHED or ASKED. */
static void link_take_event(struct hca *hca, struct link *link, const struct proto_event *event,
			    int *fds)
{
	bool mapped = event->side <= 1 && bells_are_right(event, fds) &&
		      map_all(link, fds, event->value & PROTO_LINK_BELLS ? -1 : fds[3]);

	if (!mapped) {
		log_error("can't map the link to process %d: %s", event->pid, strerror(errno));
		give_back(hca, link->slot, event->link_id);
		link_refused(link);
	} else if (!link_take_part(link->memory, event->side)) {
		link_shut_here(hca, link, event->link_id);
	} else {
		take_bells(link, event, fds);
		link_up(hca, link, event);
	}
}

void link_install(struct hca *hca, const struct proto_event *event, int *fds)
{
	if (hca->links_named) { /* the next daemon ends it at the peer */
		close_all(fds);
		return;
	}
	struct link *link = link_get(hca, event->slot);

	/* The peer has given back the last link before this process, and has asked for the next
	 * one. */
	if (link && link_is_ending(link) && keep_offer(hca, link, event, fds))
		return;
	if (link && link_introducing(link)) {
		link_take_event(hca, link, event, fds);
	} else if (!link || link->id != event->link_id) {
		log_error("the link to process %d can't be taken now", event->pid);
		give_back(hca, event->slot, event->link_id);
	}
	close_all(fds);
}

/* The last link's memory has been given back: installs the next link, if its event has come
 * already. */
static void install_next(struct hca *hca, struct link *link)
{
	struct link_offer *next = link->next;

	if (!next)
		return;
	link->next = NULL;
	mutex_take(&hca->events_lock);
	if (next->generation == hca->generation)
		link_install(hca, &next->event, next->fds);
	else
		close_all(next->fds); /* it wasn't named to the daemon that there is now */
	mutex_give(&hca->events_lock);
	free(next);
}

/* UP -> ENDING, unless another thread has ended the link already. */
static void link_set_ending(struct link *link)
{
	uint32_t up = LINK_UP;

	atomic_compare_exchange_strong(&link->state, &up, LINK_ENDING);
}

void link_end_living(struct link *link)
{
	uint32_t up = LINK_UP, ending = LINK_ENDING;

	/* QPs that are connected by the link must see that the next one comes. The count is read
	 * again after the end, because a QP that connected meanwhile may have seen the link UP. */
	atomic_compare_exchange_strong(&link->state, &up,
				       atomic_load(&link->idle.users) ? LINK_ENDING_WANTED
								      : LINK_ENDING);
	if (atomic_load(&link->idle.users))
		atomic_compare_exchange_strong(&link->state, &ending, LINK_ENDING_WANTED);
	work_leave(&link->hca->engine_work, ENGINE_DEATHS);
	engine_kick(link->hca);
}

void link_down(struct hca *hca, uint32_t slot, uint64_t id)
{
	struct link *link = atomic_load(&hca->link_by_slot[slot]);

	if (link && !id && link_introducing(link)) {
		log_info("no process at slot %u to talk to any more", slot);
		atomic_store(&link->state, LINK_DOWN);
		atomic_store(&link->has_waiters, true);
		return;
	}
	if (link && link->next && link->next->event.link_id == id)
		link_forget_next(link);
	if (!link || link->id != id || !link_is(link, LINK_UP))
		return;
	/* Records that the peer wrote before it ended are valid: above all, its last
	 * acknowledgements. */
	engine_drain(hca, link);
	/* By consent, or the peer doesn't have the link. If the peer ends after this look, the
	 * daemon says so when it is asked for the next link. */
	if (link_idle_asked(link) || peer_alive(&link->process)) {
		link_end_living(link);
		return;
	}
	log_debug("process %d at slot %u is gone", link->pid, slot);
	link_set_ending(link);
	work_leave(&hca->engine_work, ENGINE_DEATHS);
}

/*
 * Waits until no thread uses the memory of a link that is ending, or copies by it. A thread that
 * uses it has seen the link UP under a QP's lock or the engine's, and still holds that lock; so no
 * thread uses it any more once each of these locks has been free after the link was ENDING.
 */
static void forget_peer(struct hca *hca, const struct link *link)
{
	void (*what)(struct qp * qp) = link->shut_out ? local_untaken : local_relink;

	for (uint32_t i = 0; i < LIMIT_QPS_PER_SLOT; i++) {
		struct qp *qp = hca->qps[i];

		if (!qp)
			continue;
		lock_take(&qp->lock);
		if (local_link_of(qp) == link)
			what(qp);
		lock_give(&qp->lock);
	}
	xrc_for_each_of_link(hca, link, what);
}

static void link_unmap(struct link *link)
{
	struct list *node;

	link_end_parting(link);
	mapped_free(link);
	peer_close(&link->process);
	link_unmap_memory(link);
	sys_end(&link->doorbell);
	if (link->hear >= 0) {
		engine_unhear(link->hca, link->hear);
		sys_end(&link->hear);
	}
	lock_take(&link->tx_lock);
	link_idle_forget(link);
	while ((node = list_pop(&link->backlog)))
		free(container_of(node, struct backlog, node));
	link->backlog_count = 0;
	link->stuck = false;
	lock_give(&link->tx_lock);
	link->id = 0;
}

/* Whether the peer's tables must stay mapped because a deregistration looks at the peer's hazards,
 * or a hazard still names this process. */
static bool is_watched(const struct link *link)
{
	return atomic_load(&link->watchers) || hazard_from_peer(link);
}

/* Leaves a link: no thread of this process uses its memory any more. The daemon, and by it the
 * peer, learn of the end now, since the peer has to leave as well. */
static void link_leave(struct hca *hca, struct link *link)
{
	if (link->memory && link_shut_out(link))
		log_debug("process %d never had link %llu: what was sent by it is sent again",
			  link->pid, (unsigned long long)link->id);
	forget_peer(hca, link);
	link->has_left = true;
	if (link->memory)
		link_tell_left(link);
	if (atomic_exchange(&link->untold, false))
		give_back(hca, link->slot, link->id);
}

/* The memory has been given back: ENDING -> DOWN, ENDING_WANTED -> WISHED. */
static void link_ended(struct hca *hca, struct link *link)
{
	uint32_t ending = LINK_ENDING;

	if (atomic_compare_exchange_strong(&link->state, &ending, LINK_DOWN))
		return;
	atomic_store(&link->state, LINK_WISHED);
	install_next(hca, link);
	if (link_is(link, LINK_WISHED))
		links_request(hca);
}

void link_reap(struct hca *hca)
{
	bool work = work_take(&hca->engine_work, ENGINE_DEATHS);

	if (likely(!work) && (likely(!hca->parting) || !link_any_parted(hca)))
		return;
	/* ibv_dereg_mr() reads peers' tables under hca.lock. If another thread has it, the next
	 * round tries again: the engine thread doesn't wait for it. */
	if (!mutex_try(&hca->lock)) {
		work_leave(&hca->engine_work, ENGINE_DEATHS);
		return;
	}
	for (uint32_t slot = 0; slot < LIMIT_SLOTS; slot++) {
		struct link *link = atomic_load(&hca->link_by_slot[slot]);

		if (!link || !link_is_ending(link))
			continue;
		lock_take(&hca->engine);
		bool listed = !list_empty(&link->node);

		if (!listed && !link->has_left)
			link_leave(hca, link);
		lock_give(&hca->engine);
		if (!listed && !link_peer_left(link) && !peer_ended(&link->process))
			link_part(hca, link);
		else if (listed || is_watched(link))
			work_leave(&hca->engine_work, ENGINE_DEATHS); /* looked at again soon */
		else {
			link_unmap(link);
			link_ended(hca, link);
		}
	}
	mutex_give(&hca->lock);
}

bool link_name_up(struct hca *hca, uint32_t slot, struct link_name *name)
{
	mutex_take(&hca->lock); /* link_reap() takes the id away under it */
	const struct link *link = atomic_load(&hca->link_by_slot[slot]);
	bool up = link && !link->self && link_is(link, LINK_UP);

	if (up)
		*name = (struct link_name){.id = link->id, .side = link->side};
	mutex_give(&hca->lock);
	return up;
}

void link_break(struct link *link, const char *why)
{
	atomic_store(&link->broken, why);
	atomic_store(&link->untold, true);
	link_set_ending(link);
	work_leave(&link->hca->engine_work, ENGINE_DEATHS);
	engine_kick(link->hca);
}

bool link_qp_is_armed(const struct link *link, uint32_t qpn, bool solicited)
{
	return qpn == LINK_ANY_QP ||
	       pub_qp_is_armed(link->peer, qpn & (LIMIT_QPS_PER_SLOT - 1), solicited);
}

void link_ring(struct link *link)
{
	uint64_t one = 1;
	int err = 0;

	if (link->self) {
		engine_kick(link->hca); /* one write for all records until it is heard */
		return;
	}
	if (unlikely(link->hear >= 0)) /* another user's: a descriptor that can't block */
		err = bell_ring(link->doorbell);
	else if (sys_write(link->doorbell, &one, sizeof(one)) < 0 && errno != EAGAIN)
		err = -errno;
	if (unlikely(err))
		log_debug("doorbell of process %d: %s", link->pid, strerror(-err));
}

void link_forget_owing(struct link *link, const struct local_conn *conn)
{
	lock_take(&link->tx_lock);
	if (atomic_load_explicit(&link->owing, memory_order_relaxed) == conn)
		atomic_store_explicit(&link->owing, NULL, memory_order_relaxed);
	lock_give(&link->tx_lock);
}

static bool backlog_add(struct link *link, const struct ring_header *header, const void *payload,
			uint32_t size) REQUIRES(link->tx_lock)
{
	struct backlog *b = link->backlog_count < BACKLOG_MAX ? malloc(sizeof(*b) + size) : NULL;

	if (!b)
		return false;
	b->header = *header;
	b->size = size;
	if (size)
		memcpy(b->payload, payload, size);
	list_add_tail(&link->backlog, &b->node);
	link->backlog_count++;
	return true;
}

static void record_fill(struct ring_header *to, const struct ring_header *from)
{
	to->kind = from->kind;
	to->flags = from->flags;
	to->dst = from->dst;
	to->src = from->src;
	to->msn = from->msn;
	to->ack = from->ack;
	to->imm = from->imm;
	to->length = from->length;
}

void link_control(struct link *link, const struct ring_header *header, const void *payload,
		  uint32_t size)
{
	if (!link_is(link, LINK_UP))
		return;
	struct ring_header *h = link_begin(link, size);

	if (likely(h)) {
		record_fill(h, header);
		if (size)
			memcpy((uint8_t *)h + RING_HEADER, payload, size);
		link_send(link, h, size);
	} else {
		lock_take(&link->tx_lock);
		bool ok = backlog_add(link, header, payload, size);

		lock_give(&link->tx_lock);
		if (!ok) {
			log_error("process %d doesn't read what it makes us answer; link given up",
				  link->pid);
			link_break(link, "its peer doesn't read what this process answers");
		}
		atomic_store(&link->has_waiters, true);
	}
	link_notify_qp(link, record_qpn(header->dst));
}

bool link_flush_backlog(struct link *link)
{
	bool sent = false, empty;

	lock_take(&link->tx_lock);
	while (!list_empty(&link->backlog) && link->idle.leave == LEAVE_NONE) {
		struct backlog *b = container_of(link->backlog.next, struct backlog, node);
		struct ring_header *h = ring_reserve(&link->tx, b->size);

		if (!h)
			break;
		record_fill(h, &b->header);
		memcpy((uint8_t *)h + RING_HEADER, b->payload, b->size);
		ring_commit(&link->tx, h, b->size);
		list_del(&b->node);
		link->backlog_count--;
		free(b);
		sent = true;
	}
	empty = list_empty(&link->backlog);
	link->stuck = link->stuck && !sent;
	lock_give(&link->tx_lock);
	if (sent)
		link_notify(link);
	return empty;
}

static bool waits_for_room(struct link *link, bool patient)
{
	lock_take(&link->tx_lock);
	bool waits = link_is(link, LINK_UP) && !list_empty(&link->backlog) && !link->stuck &&
		     link->idle.leave == LEAVE_NONE;

	link->stuck = link->stuck || (waits && !patient);
	lock_give(&link->tx_lock);
	return waits && patient;
}

void link_send_last(struct link *link)
{
	uint64_t until = now_ns() + LAST_NS;

	while (waits_for_room(link, now_ns() < until))
		engine_poll(link->hca, NULL); /* its passes move the backlog */
}

/* Enters the QP among those that the engine resumes. Returns the peer's position when the ring
 * was found full. */
static uint64_t join_waiters(struct link *link, struct qp *qp) REQUIRES(qp->lock)
{
	/* A UD QP that gave up a datagram to one peer may have to wait for another peer's link.
	 * Only the former link's lock guards its place among the waiters there. */
	if (unlikely(qp->wait_link != link))
		link_unwait(qp);
	lock_take(&link->tx_lock);
	if (list_empty(&qp->tx_wait))
		list_add_tail(&link->waiters, &qp->tx_wait);
	qp->wait_link = link;
	uint64_t full_at = link->tx.full_at;

	lock_give(&link->tx_lock);
	atomic_store_explicit(&link->has_waiters, true, memory_order_relaxed);
	/* [A1], pairs with [S2] and [W1]: an engine that falls asleep, or a thread that arms a CQ,
	 * sees the waiter, or this thread sees that it sleeps, or the armed CQ; a peer that makes
	 * room rings, or this thread sees the room. */
	atomic_thread_fence(memory_order_seq_cst);
	return full_at;
}

void link_wait(struct link *link, struct qp *qp)
{
	uint64_t full_at = join_waiters(link, qp);

	/* If the peer made room, or the link came up, and this process's engine looked for waiters
	 * before this QP was among them, the engine would not look again. */
	if (link_is(link, LINK_UP) && engine_wants_kicks(qp->hca) &&
	    ring_consumed(&link->tx) != full_at)
		engine_kick(qp->hca);
}

bool link_await_poll(struct link *link, struct qp *qp)
{
	join_waiters(link, qp);
	return !engine_asleep(qp->hca);
}

void link_unwait(struct qp *qp)
{
	if (!qp->wait_link)
		return;
	lock_take(&qp->wait_link->tx_lock);
	list_del(&qp->tx_wait);
	lock_give(&qp->wait_link->tx_lock);
	qp->wait_link = NULL;
}
