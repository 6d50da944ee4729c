/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The internals of rsockets: sockets over RDMA, by rdma-core's protocol, so that the two
 * implementations interoperate.
 *
 * A stream is a reliable connection. Each side has a receive buffer, in two halves, that the peer
 * writes to; the peer knows a half's address from a table of two entries (`sgl`) that this side
 * writes into the peer's memory. Each write carries 32 bits of immediate data, three of them a kind
 * (enum rs_op): data was written, an entry of the table was written, or a direction was ended.
 * Immediate data takes a receive at the peer, so data needs a credit; a few control messages are
 * sent without credit, and RNR retries make them wait for a receive.
 *
 *   table.c     descriptors to rsockets
 *   config.c    /etc/rdma/rsocket
 *   endpoint.c  queue pair and memory of a connection; the private data at its start
 *   connect.c   bind, listen, accept, connect, shutdown, close, and the connection's events
 *   stream.c    sending and receiving
 *   wait.c      waiting: one rsocket's progress, rpoll(), rselect()
 *   options.c   socket options, names
 *   iomap.c     memory that the peer writes to directly
 *   datagram.h  datagram rsockets, which use another protocol
 *
 * Threads: any thread may use any rsocket; its `lock` guards it. No thread holds the lock while it
 * waits. A thread that takes completions or events wakes the other threads that wait for the same
 * rsocket (rs_wake()), because what they wait for may have happened with that. No thread locks two
 * rsockets at once. rclose() wakes the waiters, too, and continues when they have left
 * (rs_dismiss()).
 *
 * An rsocket's number is the descriptor of its event channel.
 */
#ifndef VERBENA_RSOCKET_RS_H
#define VERBENA_RSOCKET_RS_H

#include <infiniband/ib.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"

/* The kind of a message: the upper three bits of immediate data. */
enum rs_op {
	RS_OP_DATA = 0,	 /* bytes that were written */
	RS_OP_WRITE = 2, /* never sent: marks completions of riowrite() */
	RS_OP_SGL = 4,	 /* the peer's new credit limit; an entry of sgl may be new */
	RS_OP_IOMAP = 6, /* index of an entry of the iomap */
	RS_OP_CTRL = 7,
};

enum rs_control { RS_CTRL_DISCONNECT = 0, RS_CTRL_KEEPALIVE = 1, RS_CTRL_SHUTDOWN = 2 };

enum { RS_OP_SHIFT = 29, RS_VALUE_MASK = (1 << RS_OP_SHIFT) - 1 };

/* An entry in the peer's memory, in host order (a peer of the other byte order is refused). */
struct rs_sge {
	uint64_t addr;
	uint32_t key;
	uint32_t length;
};

struct rs_iomap {
	uint64_t offset;
	struct rs_sge sge;
};

/* The private data of a connection request and its answer, in network order. */
struct rs_hello {
	uint8_t version;
	uint8_t flags; /* enum rs_hello_flag */
	uint16_t credits;
	uint8_t reserved[3];
	uint8_t iomap_size; /* encoded, see size_scale() */
	struct rs_sge sgl;  /* `length` is the number of entries; the iomap follows them */
	struct rs_sge buffer;
};

enum rs_hello_flag { RS_HELLO_BIG_ENDIAN = 1, RS_HELLO_IOMAP = 2 };

enum {
	RS_VERSION = 1,
	RS_SGL_SIZE = 2,
	RS_CONTROL_MAX = 4,    /* control messages in flight */
	RS_INLINE_LEAST = 24,  /* struct rs_iomap */
	RS_CHUNK_FIRST = 2048, /* bytes of a write: small, so that both sides copy at once */
	RS_CHUNK_BUSY = 16384,
	RS_CHUNK_MAX = 65536,
	RS_SIZE_LEAST = 4096, /* bytes of a buffer */
	RS_STAGE_NEXT = 64,
	RS_LOOK_SENDS = 16,
	RS_SEND_SGE = 4,
	RS_LOOK_NS = 200000, /* between polls of the event channel without waiting */
	RS_DATAGRAM_PARTS = 64,
};

struct rs_config {
	uint32_t mem, wmem, sqsize, rqsize, inline_size, iomap_size;
	uint32_t polling_us;
	int wake_up_ms;
};

const struct rs_config *rs_config(void);

/*
 * The states of an rsocket, in the order in which it goes through them. A stream (a datagram
 * rsocket is in OPEN, BOUND or CONNECTED only):
 *
 *   state            | goes to, and by what
 *   -----------------+-------------------------------------------------------------------------
 *   OPEN             | BOUND: rbind(); LISTENING: rlisten(); RESOLVING_ADDR: rconnect();
 *                    | CONNECTED: made by raccept()
 *   BOUND            | LISTENING: rlisten(); RESOLVING_ADDR: rconnect()
 *   LISTENING        | none
 *   RESOLVING_ADDR   | RESOLVING_ROUTE: the event ADDR_RESOLVED
 *   RESOLVING_ROUTE  | CONNECTING: the event ROUTE_RESOLVED
 *   CONNECTING       | CONNECTED: the event ESTABLISHED
 *   CONNECTED        | CLOSED: RS_CTRL_DISCONNECT was sent or received;
 *                    | DISCONNECTED: the event DISCONNECTED
 *   CLOSED           | DISCONNECTED: the event DISCONNECTED, or a completion with an error
 *   DISCONNECTED     | none
 *   FAILED           | OPEN or BOUND: rconnect(), which tells that its last attempt failed
 *   any              | FAILED: an error, which `error` holds and one call reports
 *
 * In CLOSED the queue pair still carries what was sent before; rclose() waits for that. From
 * DISCONNECTED and FAILED on nothing more completes.
 */
enum rs_state {
	RS_OPEN,
	RS_BOUND,
	RS_LISTENING,
	RS_RESOLVING_ADDR,
	RS_RESOLVING_ROUTE,
	RS_CONNECTING,
	RS_CONNECTED,
	RS_CLOSED,
	RS_DISCONNECTED,
	RS_FAILED,
};

struct ds;

/* The fields without a lock are written before the rsocket has a number, and by rs_free() after
 * the last waiter has left. */
struct rs {
	int fd;				   /* the event channel's; for datagrams the UDP socket's */
	uint32_t generation;		   /* of the process that made it, see rs_table_get() */
	struct ds *ds PT_GUARDED_BY(lock); /* datagram state; NULL: a stream */
	int family;
	struct mutex lock;
	enum rs_state state GUARDED_BY(lock);
	bool nonblocking GUARDED_BY(lock); /* the program's choice, in any state */
	/* CONNECTED: neither side has shut this direction down. Flags, because each direction ends
	 * by itself; false in the later states. */
	bool may_send GUARDED_BY(lock), may_receive GUARDED_BY(lock);
	/* rconnect() has begun, and no connection came. Set by rconnect(); cleared when there is a
	 * connection, and by the rconnect() that tells of the failure. Tells FAILED before a
	 * connection from FAILED after one. */
	bool connecting GUARDED_BY(lock);
	struct sockaddr_storage bound GUARDED_BY(lock); /* by rbind(); family 0: to nothing */
	int error GUARDED_BY(lock);			/* SO_ERROR */
	struct list waiters GUARDED_BY(lock);		/* of struct rs_waiter */
	/* rclose() waits until the waiters have left. A flag, because it may be called in any
	 * state, and the state still says what the peer is owed. */
	bool closed GUARDED_BY(lock);
	pthread_cond_t left;

	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct rdma_cm_event *request GUARDED_BY(lock); /* LISTENING: the next one, or NULL */
	struct ibv_comp_channel *completions GUARDED_BY(lock);
	struct ibv_cq *cq GUARDED_BY(lock);

	/* Options */
	uint32_t sbuf_size GUARDED_BY(lock);
	uint32_t rbuf_size GUARDED_BY(lock);
	uint32_t sq_size GUARDED_BY(lock);
	uint32_t rq_size GUARDED_BY(lock);
	uint32_t inline_size GUARDED_BY(lock);
	uint32_t iomap_size GUARDED_BY(lock); /* entries that the peer may use in this iomap */
	struct linger linger GUARDED_BY(lock);
	struct timeval receive_timeout GUARDED_BY(lock);
	struct timeval send_timeout GUARDED_BY(lock);
	int keepalive_time GUARDED_BY(lock);
	int keepalive GUARDED_BY(lock);
	int nodelay GUARDED_BY(lock);
	int reuse GUARDED_BY(lock);
	int v6only GUARDED_BY(lock);
	int oobinline GUARDED_BY(lock);
	void *route GUARDED_BY(lock); /* RDMA_ROUTE */
	size_t route_size GUARDED_BY(lock);

	/* Sending */
	uint8_t *sbuf GUARDED_BY(lock) PT_GUARDED_BY(lock); /* ring */
	struct ibv_mr *smr GUARDED_BY(lock);
	uint32_t sbuf_next GUARDED_BY(lock);
	uint32_t sbuf_free GUARDED_BY(lock);
	uint32_t sq_free GUARDED_BY(lock); /* free places for data in the send queue */
	uint32_t control GUARDED_BY(lock); /* control messages in flight */
	uint32_t chunk GUARDED_BY(lock);
	/* So many sends go by sbuf before a direct one is tried again. */
	uint32_t stage_next GUARDED_BY(lock);
	/* When a call that doesn't wait last polled the channel. */
	int64_t looked_ns GUARDED_BY(lock);
	uint16_t sent GUARDED_BY(lock);	  /* messages */
	uint16_t credit GUARDED_BY(lock); /* the limit of `sent` that the peer granted */
	struct rs_sge target[RS_SGL_SIZE] GUARDED_BY(lock);
	uint32_t target_now GUARDED_BY(lock);  /* the entry in use */
	uint32_t target_next GUARDED_BY(lock); /* the next one to be learned */
	int shutdown_due GUARDED_BY(lock);     /* enum rs_control to be sent, or -1 */

	/* Receiving */
	uint8_t *rbuf GUARDED_BY(lock); /* written to by the peer, at any time */
	struct ibv_mr *rmr GUARDED_BY(lock);
	/* Size of the memory file with rbuf and table, or 0. */
	size_t shared_size GUARDED_BY(lock);
	uint32_t rbuf_next GUARDED_BY(lock);	 /* next byte to read */
	uint32_t rbuf_ready GUARDED_BY(lock);	 /* bytes available */
	uint32_t rbuf_free GUARDED_BY(lock);	 /* bytes read but not offered again */
	uint32_t rbuf_offer GUARDED_BY(lock);	 /* where they begin */
	uint16_t received GUARDED_BY(lock);	 /* messages */
	uint16_t granted GUARDED_BY(lock);	 /* at this count the peer gets more credits */
	struct rs_sge peer_sgl GUARDED_BY(lock); /* where this side's offers are written */
	uint32_t peer_entry GUARDED_BY(lock);

	/* Other memory that the peer writes to, at any time, behind rbuf: this side's sgl, then its
	 * iomap. */
	struct rs_sge *table GUARDED_BY(lock);
	struct rs_iomap *iomap GUARDED_BY(lock); /* inside the table */

	/* Memory that the peer may write to (riomap()). */
	uint32_t peer_iomap_size GUARDED_BY(lock);
	struct list mapped GUARDED_BY(lock); /* of struct rs_mapping */
	/* Of these, the mappings not yet announced to the peer. */
	struct list pending GUARDED_BY(lock);
};

struct rs_mapping {
	struct list node;
	struct ibv_mr *mr;
	uint64_t offset;
	uint32_t index;
};

/* Disables cancellation of the calling thread. Returns the old state, for
 * pthread_setcancelstate(). */
static inline int rs_cancel_off(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

/* A waiting thread: its eventfd, which rs_wake() writes to. While it is in the list, the rsocket
 * isn't freed; nothing else keeps the rsocket for a waiter. */
struct rs_waiter {
	struct list node;
	int event_fd;
};

/* ------------------------------------------------------------------ table.c */

/* Enters an rsocket under its number. 0 or -errno. */
int rs_table_set(int fd, struct rs *rs);
void rs_table_clear(int fd);
/* The rsocket with this number. NULL: there is none, or it is the parent's, which a child can't
 * use. */
struct rs *rs_table_get(int fd);
/* The parent's rsocket with this number, which a child may only close; NULL: there is none. */
struct rs *rs_table_get_inherited(int fd);

/* ------------------------------------------------------------------ endpoint.c */

/* Makes QP, memory and receives; the id must be bound to a device. 0 or -errno. */
int rs_endpoint_make(struct rs *rs) REQUIRES(rs->lock);
/* Makes the completion queue and its channel. 0 or -errno. */
int rs_make_cq(struct rs *rs, struct ibv_context *verbs, int entries) REQUIRES(rs->lock);
void rs_endpoint_free(struct rs *rs) REQUIRES(rs->lock);
void rs_hello_make(const struct rs *rs, struct rs_hello *hello) REQUIRES(rs->lock);
/* Takes the private data of the peer. 0; -EPROTO: the peer is no rsocket, or of another kind. */
int rs_hello_take(struct rs *rs, const void *data, size_t size) REQUIRES(rs->lock);

/* ------------------------------------------------------------------ connect.c; locked */

/* Handles the event channel's events, without waiting. */
void rs_events(struct rs *rs) REQUIRES(rs->lock);
void rs_fail(struct rs *rs, int error) REQUIRES(rs->lock);
bool rs_sends_done(const struct rs *rs) REQUIRES(rs->lock);

/* ------------------------------------------------------------------ stream.c; locked */

/* Takes completions and sends control messages that are due. Returns whether there were any. */
bool rs_progress(struct rs *rs) REQUIRES(rs->lock);
bool rs_can_send(const struct rs *rs) REQUIRES(rs->lock);
/* poll()'s bits that are true now. */
short rs_ready(const struct rs *rs) REQUIRES(rs->lock);
int rs_post_write(struct rs *rs, struct ibv_sge *sge, int count, const uint32_t *message,
		  unsigned int flags, uint64_t addr, uint32_t key, uint64_t wr_id);
static inline uint32_t rs_message(enum rs_op op, uint32_t value)
{
	return (uint32_t)op << RS_OP_SHIFT | value;
}
/* Copies up to `left` bytes into sbuf. Returns the number of segments. */
int rs_stage(struct rs *rs, const struct iovec **iov, size_t *at, uint32_t bytes,
	     struct ibv_sge sge[2]) REQUIRES(rs->lock);
/* For datagrams: wr_id of a send is its slot alone. */
#define RS_WR_RECEIVE (1ull << 62)
static inline uint64_t rs_wr_receive(uint32_t slot)
{
	return RS_WR_RECEIVE | slot;
}
static inline bool rs_wr_is_receive(uint64_t wr_id)
{
	return wr_id & RS_WR_RECEIVE;
}
static inline uint32_t rs_wr_slot(uint64_t wr_id)
{
	return (uint32_t)wr_id;
}
uint64_t rs_wr_data(uint32_t sbuf_bytes);
uint64_t rs_wr_control(void);

/* ------------------------------------------------------------------ wait.c */

int64_t rs_now_ns(void);
/* SO_RCVTIMEO or SO_SNDTIMEO in ms; -1: no limit. */
int rs_timeout_ms(const struct timeval *timeout);
/* Wakes the threads that wait for the rsocket. */
void rs_wake(struct rs *rs) REQUIRES(rs->lock);
/* Wakes the waiters, because the rsocket is closed. Returns when the last one has left; after that
 * a waiter only releases the lock. */
void rs_dismiss(struct rs *rs) REQUIRES(rs->lock);
/* Takes completions; polls descriptors, which costs system calls, only now and then. */
void rs_look(struct rs *rs) REQUIRES(rs->lock);
/* Takes completions and events, without waiting. */
void rs_advance(struct rs *rs) REQUIRES(rs->lock);
/*
 * Waits until `ready` is true; called with rs->lock, which is released while the thread sleeps. 0;
 * -EAGAIN: not ready, and `nonblocking`; -EINTR; -ETIMEDOUT (`timeout_ms` >= 0); -EBADF: the
 * rsocket was closed meanwhile.
 */
int rs_wait(struct rs *rs, bool (*ready)(const struct rs *), bool nonblocking, int timeout_ms)
	REQUIRES(rs->lock);

/* ------------------------------------------------------------------ iomap.c; locked */

void rs_iomap_tell(struct rs *rs) REQUIRES(rs->lock);
void rs_iomap_free(struct rs *rs) REQUIRES(rs->lock);

/* What an address of this family takes. */
static inline socklen_t rs_address_bytes(sa_family_t family)
{
	switch (family) {
	case AF_IB:
		return sizeof(struct sockaddr_ib);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return sizeof(struct sockaddr_in);
	}
}

#endif
