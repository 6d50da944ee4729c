/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The soft HCA: what a card and its driver do, inside the process. Types that its files share.
 *
 * One struct hca per process (hca_get()), made when the first context is opened: it owns the
 * process's published table, its links to other processes, the table of QPs by number, and the
 * engine thread. Contexts, PDs, CQs, QPs, SRQs, MRs and AHs belong to the program that made them.
 *
 * Locks, in the order in which they nest:
 *   hca.release_lock ending imported PDs that were given back before their users
 *   hca.books      a call to the daemon with what it changes here (books.h); returning to another
 *   hca.lock       making and ending contexts, their lists of objects, PD numbers (slow path only)
 *   hca.events_lock the daemon's event socket and its replacement (slow path only)
 *   hca.engine     whoever drives the engine: incoming records, the QP table's readers, timers.
 *                  Ending a QP takes it, so that the engine never meets a QP that is gone.
 *   qp.lock        one QP: both queues, its state, its published entry
 *   srq.lock       one SRQ
 *   cq.lock        one CQ
 *   wire.list_lock, wire.tx_lock  what the wire carrier has to send; the sender (wire.h)
 *   link.places_lock what of the peer's is mapped here (mapped.h)
 *   link.tx_lock   the producer's side of a link's ring, its backlog and its list of waiting QPs
 *   capture.lock   the rings of captures (capture.h)
 *   channel.lock   a queue of events (completion channel or asynchronous)
 * No two locks of one kind are ever held together. A QP's lock is never held across a call to
 * the daemon.
 */
#ifndef VERBENA_HCA_PROCESS_HCA_H
#define VERBENA_HCA_PROCESS_HCA_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "client/daemon.h"
#include "hca/local/record.h"
#include "proto/limits.h"
#include "shm/link.h"
#include "shm/pub.h"

/* ------------------------------------------------------------------ events and channels */

/*
 * A queue of events with a descriptor: eventfd in semaphore mode, one count for each event, so that
 * a read blocks exactly while there is none, whatever poll(), epoll or O_NONBLOCK do with it.
 */
struct event_queue {
	int fd;
	struct lock lock;
	struct list events; /* struct event */
};

struct event {
	struct list node;
	void *object; /* struct ibv_cq* for a completion channel */
	struct ibv_async_event async;
	uint32_t *reported; /* the object's count of events given out; under the queue's lock */
};

struct channel {
	struct ibv_comp_channel ibv;
	struct event_queue queue;
	/* The daemon learns of it with its first CQ, in one round trip. Changes under `first`,
	 * which is taken before an entry (books.h) begins, and within the entry. */
	pthread_mutex_t first;
	bool registered;
	uint32_t handle;
	struct list held; /* always in the books */
};

/* What a context holds at the daemon, users after what they use; see books.h. */
enum held_kind {
	HELD_PD,
	HELD_CHANNEL,
	HELD_CQ,
	HELD_SRQ,
	HELD_MR,
	HELD_QP,
	HELD_AH,
	HELD_KINDS,
};

/* ------------------------------------------------------------------ context, PD, MR, AH */

/* What the daemon said last of an address of this host; see route.c. */
struct own_route {
	uint64_t addresses; /* mcast_addresses() of then; 0: nothing */
	struct proto_route request;
	struct proto_route_resp at;
};

struct context {
	struct verbs_context verbs; /* public part; ibv_context is its last member */
	struct hca *hca;
	struct daemon_conn conn;
	uint32_t device_index; /* whose events it gets */
	uint64_t token[2];     /* who knows it may share; cmd_fd says it */
	int cmd_fd;	       /* a memory file: verbs_share.c */
	struct event_queue async;
	struct own_route own_route; /* under hca.lock */
	struct list node;	    /* on hca.contexts */
	struct list held[HELD_KINDS];
};

struct pd {
	struct ibv_pd ibv; /* .handle: for programs, the original's if this is an imported one */
	struct list held;
	uint32_t handle; /* for the daemon */
	uint32_t id;	 /* process-wide: published entries of MRs and QPs are compared by it */
	bool imported;
	_Atomic bool released; /* by ibv_unimport_pd(), though objects still use it */
	struct pd *next_released;
};

/* An MR's data-path state is its entry of the published table; local keys are looked up there too.
 */
struct mr_file {
	int fd;		 /* ours; peers take it by its number (mapped.h) */
	uint64_t offset; /* where the region begins */
	void *pages;	 /* mapped here */
	size_t size;
};

struct mr {
	struct ibv_mr ibv;
	uint64_t iova;
	uint32_t access;
	bool imported;		 /* another registration's region */
	struct foreign *foreign; /* imported from another process; else an imported one has no entry
				    of its own anywhere (foreign.h) */
	struct mr_file *file;	 /* NULL: the program's memory, whatever it is */
	struct list held;
};

struct ah {
	struct ibv_ah ibv;
	struct list held;
	struct ib_uverbs_ah_attr request; /* as the daemon was told */
	bool roce;			  /* to another host */
	bool group;			  /* multicast: mcast.h */
	uint32_t ifindex;		  /* of its source address */
	struct record_ud to; /* what a request takes of it when it is posted; no Q_Key */
};

/* ------------------------------------------------------------------ CQ */

struct cqe {
	uint64_t wr_id;
	uint32_t status; /* enum ibv_wc_status */
	uint32_t opcode; /* enum ibv_wc_opcode */
	uint32_t byte_len;
	uint32_t imm; /* immediate (network order) or invalidated rkey */
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint32_t vendor_err; /* enum reason: why, for people */
	uint64_t timestamp;  /* ns, only kept when the CQ asks for it */
};

enum cq_arm { CQ_UNARMED, CQ_ARMED_SOLICITED, CQ_ARMED };

struct cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	struct lock lock;
	bool single_threaded;
	bool timestamps;
	_Atomic bool overrun;	/* changes under lock */
	_Atomic uint32_t armed; /* enum cq_arm; changes under lock */
	struct cqe *ring;
	uint32_t mask;		     /* ring places - 1; at least ibv.cqe */
	uint32_t depth;		     /* completions that it may hold: ibv.cqe */
	_Atomic uint32_t head, tail; /* produced, consumed; free-running */
	uint32_t handle;
	uint32_t comp_vector;
	_Atomic uint32_t users; /* QPs' sides that complete to it */
	bool registered;	/* the daemon knows it; else it comes with its QP (cq_with_qp.h) */
	struct list held;
	uint32_t comp_reported;	 /* events given out, under the channel's queue lock */
	uint32_t async_reported; /* under the context's async queue lock */
	struct context *context;
};

/* ------------------------------------------------------------------ receive queues */

struct recv_wqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length; /* bytes, all SGEs together */
	struct ibv_sge sge[];
};

/* A ring of receive WQEs, of a QP or an SRQ. Under its owner's lock. */
struct recv_queue {
	uint8_t *wqes;
	uint32_t stride; /* bytes */
	uint32_t mask;	 /* places - 1 */
	uint32_t max_wr; /* what was asked for; no more than these may be posted */
	uint32_t max_sge;
	uint32_t head, tail; /* posted, taken; free-running */
	uint32_t held; /* taken, but it may be given back: its place isn't free yet (0 or 1) */
	uint32_t told; /* the published count of those that were posted (a QP's own queue) */
};

struct srq {
	struct ibv_srq ibv;
	struct lock lock;
	struct recv_queue rq;
	struct list held;
	uint32_t limit; /* 0: not armed */
	uint32_t pd_id;
	uint32_t async_reported;
	struct list
		waiters; /* struct qp.srq_wait: QPs with a message and no receive; under engine */
	_Atomic uint32_t has_waiters;
};

/* ------------------------------------------------------------------ send queue */

enum send_flag { /* struct send_wqe.flags */
		 SEND_SIGNALED = 1,
		 SEND_SOLICITED = 2,
		 SEND_INLINE = 4,
		 SEND_FENCE = 8,
		 SEND_READS = 16,      /* counted in qp.reads_out */
		 SEND_BLOCKING = 32,   /* counted in qp.blocking_out */
		 SEND_ANSWERED = 64,   /* a READ's or atomic's data is in place */
		 SEND_BY_RING = 128,   /* a WRITE that the peer must execute, though we reach it */
		 SEND_BEGUN = 256,     /* `psn` is set, and counted; to a group: qp.fanout is its */
		 SEND_SETTLED = 512,   /* counted in qp.settled_out */
		 SEND_BORROWED = 1024, /* inline, and in the program's memory: see sq_post() */
};

struct send_wqe {
	uint64_t wr_id;
	uint32_t length; /* bytes of payload */
	uint32_t msn;	 /* of the record that carries it, when it needed one */
	uint8_t opcode;	 /* enum ibv_wr_opcode */
	uint8_t num_sge;
	uint16_t flags; /* enum send_flag */
	uint32_t imm;	/* network order; or the rkey to invalidate */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t progress; /* bytes already streamed through the ring */
	union {
		struct { /* RC and UC */
			struct {
				uint64_t compare_add, swap;
			} atomic;
			/* Of its first packet, had it gone over a wire; local carriers. */
			uint32_t psn;
		};
		struct {
			struct record_ud to; /* a copy: the AH may end before */
			uint32_t remote_qpn;
			uint32_t ifindex;
			bool roce, group;
		} ud;
	};
	union {
		struct ibv_sge sge[0];
		uint8_t data[0]; /* SEND_INLINE */
	};
};

/*
 * A ring of send WQEs under qp.lock. Free-running counts, acked <= next <= head:
 *   [acked, next)  executed, waiting for the peer's acknowledgement
 *   [next, head)   posted, not started
 */
struct send_queue {
	uint8_t *wqes;
	uint32_t stride; /* bytes */
	uint32_t mask;
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t head, next, acked;
};

/* ------------------------------------------------------------------ QP */

/* A message that arrived and can't be executed yet: no receive posted, or its data is on the way.
 */
struct inbound {
	struct list node;
	struct ring_header header; /* the checked private copy */
	uint64_t rnr_deadline;	   /* ns; 0: not waiting for a receive */
	uint32_t done;		   /* bytes of a streamed message that have arrived or gone out */
	struct recv_wqe *taken;	   /* the receive that a pulled message fills: a copy, or NULL */
	uint32_t size;
	uint8_t payload[];
};

struct qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	struct lock lock;
	struct hca *hca;
	struct context *context;
	struct srq *srq;
	uint32_t pd_id;
	uint32_t index; /* in hca.qps and in the published table */
	uint32_t handle;
	struct list held;
	uint8_t type;  /* enum ibv_qp_type */
	uint8_t state; /* enum ibv_qp_state; ibv.state follows it */
	bool sq_sig_all;
	bool has_ex;
	struct ibv_qp_attr attr; /* as last set by ibv_modify_qp */
	struct ibv_qp_cap cap;
	uint32_t epoch; /* low 8 bits travel in records */

	struct send_queue sq;
	struct recv_queue rq;

	struct list groups;    /* that it is attached to; under engine (mcast.c) */
	struct fanout *fanout; /* of a datagram to a group; NULL: it has sent none */

	struct roce_qp *roce; /* the carrier to another host, else NULL; RC and UC: wire.h */
	uint32_t ud_psn;      /* of the next datagram */
	uint8_t sgid[16];     /* RC and UC: of its path */

	/* requester */
	uint32_t next_psn;     /* of the next request, had all gone over a wire; local carriers */
	struct link *link;     /* to the peer's process; RC and UC */
	struct pub_qp *remote; /* the peer QP's entry in its published table, once the link is up */
	bool peer_ready;       /* remote was seen ready: its epoch is in remote_epoch */
	bool must_notify;      /* it put records into the ring since it last rang the peer */
	bool sqd_notify;
	uint8_t remote_epoch;
	uint32_t next_msn;	/* of the next record that wants an acknowledgement */
	struct list tx_wait;	/* on link.waiters: ring full or link not up; under link.tx_lock */
	struct link *wait_link; /* the link that it waits, or last waited, for */
	uint32_t scan_acked;	/* timer: sq.acked at the last scan */
	uint32_t scan_head;
	uint64_t stalled_since; /* timer: ns when progress stopped; 0: it didn't */
	uint64_t grace_until;	/* timer: a starved peer is given this long */
	struct list
		active; /* on hca.active: has or had outstanding requests; under hca.active_lock */
	_Atomic bool is_active;
	bool rnr_waiting; /* the peer said that it waits for a receive: its timer counts, not ours
			   */
	bool pulled;	  /* the peer asked for the payload of request pull_msn */
	uint32_t pull_msn;
	uint8_t peer_rnr_timer; /* that it named when it said so */
	bool kick_pending;	/* became ready, the peer hasn't been told */
	uint32_t reads_out; /* READs and atomics among [acked, next): max_rd_atomic bounds them */
	uint32_t blocking_out; /* requests among them that may wait at the responder */
	/* Those of [acked, next) that are executed but for taking a receive, and there is one for
	 * them: nothing that comes later needs to wait for their acknowledgement. */
	uint32_t settled_out;
	uint32_t receives_used, receives_seen; /* of the peer's: taken by us; it told us of */

	/* responder */
	uint32_t arrived_msn;	  /* of the next request to arrive */
	uint32_t done_msn;	  /* all requests below it are executed: what ACKs say */
	_Atomic bool ack_pending; /* written under qp.lock */
	bool halted;		  /* a request was answered with an error: none after it counts */
	bool comm_established;	  /* IBV_EVENT_COMM_EST was raised */
	uint32_t write_done;	  /* bytes of an RDMA WRITE that comes in pieces */
	bool write_void;	  /* its pieces are ignored: an unreliable one was refused */
	struct list ack_node;	  /* on hca.acks; under engine */
	struct list inbound;	  /* struct inbound; under engine and qp.lock */
	uint32_t inbound_count;
	struct list srq_wait; /* on srq.waiters */
	struct list rnr_node; /* on hca.rnr: the first inbound has a deadline; under engine */

	/* ibv_wr_* being built */
	uint32_t wr_head;
	int wr_error;
	struct send_wqe *wr_current;

	uint32_t async_reported;
};

/* ------------------------------------------------------------------ links */

enum link_state { LINK_ASKED, LINK_UP, LINK_DOWN };

/* A record that found the ring full. */
struct backlog {
	struct list node;
	struct ring_header header;
	uint32_t size;
	uint8_t payload[];
};

struct link {
	struct hca *hca;
	uint32_t slot;		/* the peer's */
	_Atomic uint32_t state; /* enum link_state */
	bool self;	     /* both ends are this process: copies are memcpy, atomics are direct */
	_Atomic bool can_vm; /* process_vm_* reaches the peer */
	_Atomic bool direct; /* can_vm, and the peer waits for our hazards: see link_direct() */
	_Atomic bool mapped; /* memory, peer and doorbell exist */
	_Atomic bool wanted; /* down and still mapped, but somebody wishes for the next one */
	_Atomic uint64_t refused_at; /* ns: nobody was there */
	_Atomic bool broken;	     /* the peer broke the ring's rules: our QPs are to be told */
	uint64_t id;
	struct link_offer
		*next;	   /* the following link, while this one's memory is in use; or NULL */
	uint64_t given_up; /* the id of a broken link that the daemon hasn't been told of; else 0 */
	uint32_t side;	   /* mine */
	int32_t pid;
	int doorbell; /* the peer's eventfd */
	const struct pub *peer;
	struct mapped_regions *_Atomic places; /* regions of the peer's that are mapped here */
	struct lock places_lock;	       /* who changes them */
	const struct pub_regions *regions;     /* the peer's; NULL: of another user, so no can_vm */
	struct link_memory *memory;
	struct lock tx_lock;
	struct ring_tx tx;
	struct list backlog; /* struct backlog, before anything else may be sent; under tx_lock */
	uint32_t backlog_count;
	bool stuck; /* the peer made no room for it while an ending QP waited; under tx_lock */
	struct list waiters; /* struct qp.tx_wait; under tx_lock */
	_Atomic bool has_waiters;
	struct ring_rx rx; /* under engine */
	struct list node;  /* on hca.links; under engine */
};

/* ------------------------------------------------------------------ the HCA */

struct hca {
	pthread_mutex_t lock;
	struct list contexts;
	unsigned int next_pd_id;
	pthread_mutex_t release_lock;

	struct daemon_conn conn;
	int table_fd, regions_fd; /* of `pub` and `regions`: the next daemon wants them as well */
	int event_fd;
	int roce_fd, park_fd; /* what the daemon gave of the wire, see struct daemon_wire; or -1 */
	uint32_t roce_flags;  /* enum proto_wire. All three change with `generation` only */
	pthread_rwlock_t books;
	uint32_t generation; /* how many daemons came after the first; written under both locks */
	pthread_mutex_t events_lock;
	int watch_fd; /* inotify: waiting for the next daemon; -1: this one lives */
	bool seek, seek_start, seeking; /* return_seek(): wanted, may start one, under way */
	_Atomic uint32_t last_qp_index, last_key_index; /* that the daemon gave */
	uint64_t cookie;
	uint32_t slot;
	struct pub *pub; /* this process's published table */
	struct pub_regions *regions;

	int doorbell; /* eventfd: peers and this process wake the engine thread by it */
	struct lock engine;
	struct mcast *mcast; /* groups: mcast.h */
	struct qp **qps;     /* by index; written under engine */
	struct list links;
	struct link *_Atomic link_by_slot[LIMIT_SLOTS];
	struct link *self;
	struct roce *roce;		  /* NULL: the daemon has no port 4791 */
	bool roce_forced;		  /* VERBENA_CARRIER=wire: also to QPs of this host */
	bool long_by_ring;		  /* see way.h */
	struct capture *_Atomic capture;  /* NULL: nobody captures; else is `captures` */
	struct capture *_Atomic captures; /* NULL: nobody ever did; engine thread */
	struct list acks;		  /* struct qp.ack_node; under engine */
	struct list rnr;		  /* struct qp.rnr_node; under engine */
	_Atomic bool has_rnr;		  /* there may be one; written under engine */
	struct lock active_lock;
	struct list active;
	_Atomic bool link_requests;
	_Atomic bool link_deaths; /* a link went down: its memory is to be given back */
	_Atomic bool overruns;	  /* a CQ has overrun: its QPs are to fail */

	/* the lease: see engine.c */
	_Atomic uint32_t polls;	    /* counts empty polls; the engine thread watches it */
	_Atomic uint32_t handled;   /* counts passes that found records; written under engine */
	bool filled;		    /* a peer's ring was full; under engine */
	_Atomic uint32_t armed_cqs; /* CQs that owe an event */
	pthread_t thread;
	int epoll;	/* the engine thread sleeps in it */
	int watchdog;	/* a timer: nobody has polled for a while; -1: nobody watches */
	bool watch_due; /* it went off; engine thread's */
	_Atomic bool stop;
};

/* The process's HCA; made (daemon started, thread started) at the first call. NULL with errno. */
struct hca *hca_get(void);

static inline struct context *context_of(struct ibv_context *ibv)
{
	return container_of(verbs_get_ctx(ibv), struct context, verbs);
}

static inline struct pd *pd_of(struct ibv_pd *ibv)
{
	return container_of(ibv, struct pd, ibv);
}

static inline struct cq *cq_of(struct ibv_cq *ibv)
{
	return container_of(ibv, struct cq, ibv);
}

static inline struct qp *qp_of(struct ibv_qp *ibv)
{
	return container_of(ibv, struct qp, ibv);
}

static inline struct srq *srq_of(struct ibv_srq *ibv)
{
	return container_of(ibv, struct srq, ibv);
}

static inline struct ah *ah_of(struct ibv_ah *ibv)
{
	return container_of(ibv, struct ah, ibv);
}

#endif
