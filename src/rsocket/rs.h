/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside rsockets: sockets over RDMA, by the protocol of rdma-core's, so that both talk to each
 * other.
 *
 * A stream is a reliable connection. Each side has a receive buffer that the peer writes to, in two
 * halves: the peer knows a half's address from a table of two entries (`sgl`) that we write into
 * its memory. Each write brings 32 bits of immediate data, three of them a kind (enum rs_op): data
 * was written, an entry of the table was, or something was ended. What brings immediate data takes
 * a receive at the peer, so data needs a credit; a few messages of control are sent without, and
 * wait for the receiver by RNR retries.
 *
 *   table.c     descriptors to rsockets
 *   config.c    /etc/rdma/rsocket
 *   endpoint.c  queue pair and memory of a connection; what the peers tell each other at its start
 *   connect.c   bind, listen, accept, connect, shutdown, close, and the connection's events
 *   stream.c    sending and receiving
 *   wait.c      waiting: one rsocket's progress, rpoll(), rselect()
 *   options.c   socket options, names
 *   iomap.c     memory that the peer writes to directly
 *   datagram.h  datagrams, which are all different
 *
 * Threads: any thread may use any rsocket; `lock` guards one. Nobody holds it while he waits. A
 * thread that takes completions or events tells the others who wait for the same rsocket
 * (rs_wake()), because what they wait for may be over with that. No two rsockets are locked
 * together. rclose() tells them, too, and goes on when they have left (rs_dismiss()).
 *
 * An rsocket's number is the descriptor of its event channel.
 */
#ifndef VERBENA_RSOCKET_RS_H
#define VERBENA_RSOCKET_RS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"

/* The upper three bits of immediate data. */
enum rs_op {
	RS_OP_DATA = 0,	 /* bytes that were written */
	RS_OP_WRITE = 2, /* never travels: our riowrite() */
	RS_OP_SGL = 4,	 /* how far the peer's credits reach; an entry of sgl may be new */
	RS_OP_IOMAP = 6, /* index of an entry of the iomap */
	RS_OP_CTRL = 7,
};

enum rs_control { RS_CTRL_DISCONNECT = 0, RS_CTRL_KEEPALIVE = 1, RS_CTRL_SHUTDOWN = 2 };

enum { RS_OP_SHIFT = 29, RS_VALUE_MASK = (1 << RS_OP_SHIFT) - 1 };

/* What stands in the peer's memory, in host order (peers of the other order are refused). */
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
	uint8_t iomap_size; /* see rs_scale() */
	struct rs_sge sgl;  /* its length counts entries; the iomap follows it */
	struct rs_sge buffer;
};

enum rs_hello_flag { RS_HELLO_BIG_ENDIAN = 1, RS_HELLO_IOMAP = 2 };

enum {
	RS_VERSION = 1,
	RS_SGL_SIZE = 2,
	RS_CONTROL_MAX = 4,   /* messages of control under way */
	RS_INLINE_LEAST = 24, /* struct rs_iomap */
	RS_CHUNK_FIRST =
		2048, /* bytes of a write: starts small, so that both sides copy at a time */
	RS_CHUNK_BUSY = 16384,
	RS_CHUNK_MAX = 65536,
	RS_SIZE_LEAST = 4096, /* of a buffer */
	RS_STAGE_NEXT = 64,
	RS_LOOK_SENDS = 16,
	RS_SEND_SGE = 4,
	RS_LOOK_NS = 200000, /* between two looks of one who doesn't wait */
	RS_DATAGRAM_PARTS = 64,
};

struct rs_config {
	uint32_t mem, wmem, sqsize, rqsize, inline_size, iomap_size;
	uint32_t polling_us;
	int wake_up_ms;
};

const struct rs_config *rs_config(void);

enum rs_state {
	RS_OPEN,
	RS_BOUND,
	RS_LISTENING,
	RS_RESOLVING_ADDR,
	RS_RESOLVING_ROUTE,
	RS_CONNECTING,
	RS_CONNECTED, /* one direction or both */
	RS_CLOSED,    /* it was connected */
	RS_FAILED,    /* `error` says why, once */
};

struct ds;

struct rs {
	int fd;		     /* the channel's; of datagrams the UDP socket's */
	uint32_t generation; /* of the process that made it: see rs_table_get() */
	struct ds *ds;	     /* datagrams; NULL: a stream */
	int family;
	struct mutex lock;
	enum rs_state state;
	bool nonblocking;
	bool may_send, may_receive; /* CONNECTED: neither side has ended this direction */
	bool gone;		    /* the peer's queue pair, or ours, takes nothing more */
	int error;		    /* SO_ERROR */
	struct list waiters GUARDED_BY(lock); /* of struct rs_waiter */
	bool closed GUARDED_BY(lock);	      /* rclose() waits until they have left */
	pthread_cond_t left;

	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct rdma_cm_event *request; /* LISTENING: the next one, or NULL */
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;

	/* Options */
	uint32_t sbuf_size, rbuf_size, sq_size, rq_size, inline_size;
	uint32_t iomap_size; /* entries that the peer may make here */
	struct linger linger;
	struct timeval receive_timeout, send_timeout;
	int keepalive_time;
	int keepalive, nodelay, reuse, v6only, oobinline;
	void *route; /* RDMA_ROUTE */
	size_t route_size;

	/* Sending */
	uint8_t *sbuf;
	struct ibv_mr *smr;
	uint32_t sbuf_next, sbuf_free; /* ring */
	uint32_t sq_free;	       /* requests for data */
	uint32_t control;	       /* messages of control under way */
	uint32_t chunk;
	uint32_t stage_next;   /* so many sends aren't tried without sbuf */
	int64_t looked_ns;     /* at the event channel, by one who doesn't wait */
	uint16_t sent, credit; /* messages sent; as many may be */
	struct rs_sge target[RS_SGL_SIZE];
	uint32_t target_now, target_next; /* written to; learned next */
	int shutdown_due;		  /* enum rs_control to be sent, or -1 */

	/* Receiving */
	uint8_t *rbuf;
	struct ibv_mr *rmr;
	size_t shared_size;		/* of the memory file that rbuf and table are in, or 0 */
	uint32_t rbuf_next, rbuf_ready; /* what is read next; bytes that are there */
	uint32_t rbuf_free, rbuf_offer; /* read, but not offered again; where that begins */
	uint16_t received, granted;	/* messages; at which the peer gets more credits */
	struct rs_sge peer_sgl;		/* where our offers go */
	uint32_t peer_entry;

	/* What the peer writes to besides, behind rbuf: its sgl, then its iomap. */
	struct rs_sge *table;
	struct rs_iomap *iomap; /* in the table */

	/* Memory that we let the peer write to. */
	uint32_t peer_iomap_size;
	struct list mapped;  /* of struct rs_mapping */
	struct list pending; /* those that the peer has to be told of */
};

struct rs_mapping {
	struct list node;
	struct ibv_mr *mr;
	uint64_t offset;
	uint32_t index;
};

/* The calling thread can't be cancelled until pthread_setcancelstate() of what this returns. */
static inline int rs_cancel_off(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

/* One who waits: an eventfd that rs_wake() counts up. While it is in the list, the rsocket stays:
 * who waits has nothing else that keeps it. */
struct rs_waiter {
	struct list node;
	int event_fd;
};

/* ------------------------------------------------------------------ table.c */

/* 0 or -errno. */
int rs_table_set(int fd, struct rs *rs);
void rs_table_clear(int fd);
/* NULL: no rsocket, or one of our parent's, which is none of ours to use. */
struct rs *rs_table_get(int fd);
/* One of our parent's, which can be closed; NULL. */
struct rs *rs_table_get_inherited(int fd);

/* ------------------------------------------------------------------ endpoint.c */

/* QP, memory, receives. The id is bound to a device. 0 or -errno. */
int rs_endpoint_make(struct rs *rs);
/* The completion queue, with its channel. 0 or -errno. */
int rs_make_cq(struct rs *rs, struct ibv_context *verbs, int entries);
void rs_endpoint_free(struct rs *rs);
void rs_hello_make(const struct rs *rs, struct rs_hello *hello);
/* 0; -EPROTO: the peer is no rsocket, or one of another kind. */
int rs_hello_take(struct rs *rs, const void *data, size_t size);

/* ------------------------------------------------------------------ connect.c; locked */

/* Takes the channel's events, without waiting. */
void rs_events(struct rs *rs) REQUIRES(rs->lock);
void rs_fail(struct rs *rs, int error) REQUIRES(rs->lock);
bool rs_sends_done(const struct rs *rs);

/* ------------------------------------------------------------------ stream.c; locked */

/* Takes completions; sends what control is due. Whether there was something. */
bool rs_progress(struct rs *rs) REQUIRES(rs->lock);
bool rs_can_send(const struct rs *rs);
/* poll()'s bits that hold now. */
short rs_ready(const struct rs *rs);
int rs_post_write(struct rs *rs, struct ibv_sge *sge, int count, const uint32_t *message,
		  unsigned int flags, uint64_t addr, uint32_t key, uint64_t wr_id);
static inline uint32_t rs_message(enum rs_op op, uint32_t value)
{
	return (uint32_t)op << RS_OP_SHIFT | value;
}
/* Places up to `left` bytes in sbuf. The segments; their number. */
int rs_stage(struct rs *rs, const struct iovec **iov, size_t *at, uint32_t bytes,
	     struct ibv_sge sge[2]);
/* Of datagrams: sends are named by their slot alone. */
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
/* SO_RCVTIMEO's and SO_SNDTIMEO's; -1: for ever. */
int rs_timeout_ms(const struct timeval *timeout);
/* Locked: tells those who wait. */
void rs_wake(struct rs *rs) REQUIRES(rs->lock);
/* Locked: who waits is told that it is closed. Returns when the last one has left, to whom it is
 * nothing but a lock to give back. */
void rs_dismiss(struct rs *rs) REQUIRES(rs->lock);
/* Locked: takes what has come; the descriptors, which cost system calls, not each time. */
void rs_look(struct rs *rs) REQUIRES(rs->lock);
/* Locked: takes what has happened, without waiting. */
void rs_advance(struct rs *rs) REQUIRES(rs->lock);
/*
 * Locked, and again when it returns: waits until `ready` holds. 0; -EAGAIN: it doesn't, and
 * `nonblocking`; -EINTR; -ETIMEDOUT (`timeout_ms` >= 0); -EBADF: it was closed meanwhile.
 */
int rs_wait(struct rs *rs, bool (*ready)(const struct rs *), bool nonblocking, int timeout_ms)
	REQUIRES(rs->lock);

/* ------------------------------------------------------------------ iomap.c; locked */

void rs_iomap_tell(struct rs *rs) REQUIRES(rs->lock);
void rs_iomap_free(struct rs *rs);

#endif
