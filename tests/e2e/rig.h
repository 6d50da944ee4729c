/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The test rig: two ends that talk verbs to each other, written once and run over every carrier.
 *
 * A test body is a function that runs twice at the same time, as end A and as end B. Over the
 * carriers `self` the two are threads of one process (with one device context or with two); over
 * `local` and `ring` they are two processes. The ends tell each other what programs tell each other
 * by other means (QPNs, keys, "I am there") over a socket: rig_swap(), rig_sync().
 *
 * A check that fails prints where and what, and ends its process; the other end notices the closed
 * socket and ends as well. So bodies have no clean-up paths for failures.
 *
 * Threads: each end is used by its own thread only. What both share (events of a shared device
 * context) is guarded inside.
 */
#ifndef VERBENA_E2E_RIG_H
#define VERBENA_E2E_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

enum { RIG_A, RIG_B };

enum rig_carrier {
	RIG_SELF,     /* one process, one device context */
	RIG_SELF_TWO, /* one process, a device context for each end */
	RIG_LOCAL,    /* two processes */
	RIG_RING,     /* two processes that may not reach into each other's memory */
	RIG_SPLIT,    /* two processes, long messages as over RIG_RING, others as over RIG_LOCAL */
	RIG_WIRE,     /* two processes that talk as two hosts do */
	RIG_CARRIERS,
};

struct rig_event;

/* One end of a running test. */
struct rig {
	const char *name; /* of the test */
	int role;	  /* RIG_A or RIG_B */
	enum rig_carrier carrier;
	int sock;		 /* to the other end */
	struct ibv_context *ctx; /* the same at both ends over RIG_SELF */
	struct rig_event *events;
};

struct rig_test {
	const char *name;
	void (*body)(struct rig *rig);
};

extern const char *const rig_carrier_names[RIG_CARRIERS];

/* How long something that must happen may take, and how long nothing must happen, in ms. */
#define RIG_SOON_MS (5000 * rig_slowness())
#define RIG_NEVER_MS 60

/* 1, or more when a sanitizer slows everything. */
int rig_slowness(void);

/* Runs a test over a carrier in child processes of its own; whether it passed. */
bool rig_run(const struct rig_test *test, enum rig_carrier carrier);

/* Runs those of the tests (ended by a null name) that the command line asks for, and exits. */
_Noreturn void rig_main(int argc, char **argv, const struct rig_test *tests);

/* Gives `mine` to the other end and takes its value of the same size. */
void rig_swap(struct rig *rig, const void *mine, void *theirs, size_t size);

/* Returns when both ends are here. */
void rig_sync(struct rig *rig);

/* Prints and ends the process. */
_Noreturn void rig_fail(const struct rig *rig, const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#define CHECK(rig, condition)                                                        \
	do {                                                                         \
		if (!(condition))                                                    \
			rig_fail(rig, __FILE__, __LINE__, "not so: %s", #condition); \
	} while (0)
#define CHECK_EQ(rig, got, wanted)                                                               \
	do {                                                                                     \
		long long got_ = (long long)(got), wanted_ = (long long)(wanted);                \
		if (got_ != wanted_)                                                             \
			rig_fail(rig, __FILE__, __LINE__, "%s is %lld (0x%llx), not %lld", #got, \
				 got_, got_, wanted_);                                           \
	} while (0)
/* A call that must return 0; the text says which errno it gave. */
#define OK(rig, call)                                                                       \
	do {                                                                                \
		int error_ = (call);                                                        \
		if (error_)                                                                 \
			rig_fail(rig, __FILE__, __LINE__, "%s gave %d (%s)", #call, error_, \
				 strerror(error_ < 0 ? -error_ : error_));                  \
	} while (0)

/* What end_open() makes; zero means the default. */
struct end_options {
	enum ibv_qp_type type;	 /* default RC */
	unsigned int send_depth; /* default 64 */
	unsigned int recv_depth; /* default 64 */
	unsigned int sge;	 /* default 4, both ways */
	unsigned int inline_bytes;
	unsigned int cqe;	/* of the send CQ and of the receive CQ; default 256 */
	unsigned int srq_depth; /* with an SRQ of so many; default none */
	size_t bytes;		/* of the buffer; default 64 KiB */
	int mr_access;		/* default everything that exists, MR_NONE: local write only */
	int qp_access;		/* default everything that exists, QP_NONE: nothing */
	int timeout;		/* default 10: 4 ms (RIG_HOSTS: 14); TIMEOUT_NONE: waits for ever */
	int retry_cnt;		/* default 2 (RIG_HOSTS: 7) */
	int rnr_retry;		/* default 7: for ever; RNR_NONE: 0 */
	int min_rnr_timer;	/* default 1: 0.01 ms */
	uint32_t wrong_psn;	/* is added to the PSN that this end expects */
	bool all_signaled;	/* sq_sig_all */
	bool one_cq;		/* one CQ for both directions */
	bool no_reads;		/* max_rd_atomic is 0 */
	bool no_dest_reads;	/* max_dest_rd_atomic is 0 */
	struct ibv_pd *pd; /* it is all made in this one, and in its context; default a new one */
};
enum { MR_NONE = 1 << 30, QP_NONE = 1 << 30, TIMEOUT_NONE = -1, RNR_NONE = -1 };

/* A queue pair with everything that it needs. */
struct end {
	struct rig *rig;
	struct end_options opt;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* of both CQs */
	struct ibv_cq *scq, *rcq;	  /* the same with one_cq */
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	struct ibv_qp_cap cap; /* as granted */
	uint32_t psn;
	union ibv_gid gid;
	struct end_peer {
		uint32_t qpn, psn, lkey, rkey, qkey;
		uint64_t addr;
		union ibv_gid gid;
	} peer;
	struct ibv_ah *ah; /* UD, made by end_connect() */
};

enum { QKEY = 0x11223344 };

/* Makes PD, channel, CQs, SRQ, QP (in RESET) and a registered buffer. NULL: all defaults. */
void end_open(struct end *end, struct rig *rig, const struct end_options *opt);
/* Destroys all of it; each destruction must succeed. */
void end_close(struct end *end);
/* RESET to INIT. */
void end_init(struct end *end);
/* Tells the other end of us and takes what it tells; it must call this too. */
void end_meet(struct end *end);
/* INIT to RTR, RTR to RTS; end_meet() came before. */
void end_rtr(struct end *end);
void end_rts(struct end *end);
/* All of it: afterwards both ends are in RTS. */
void end_connect(struct end *end);
/* end_open() and end_connect(). */
void end_pair(struct end *end, struct rig *rig, const struct end_options *opt);
/* Moves the QP to a state for which no other attribute is needed; returns what the verb gives. */
int end_move(struct end *end, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *end);

/* A scatter/gather element within the end's buffer. */
struct ibv_sge end_sge(const struct end *end, size_t offset, uint32_t length);
/* Posts a receive into the buffer (to the SRQ, if the end has one); returns what the verb gives. */
int end_recv(struct end *end, uint64_t id, size_t offset, uint32_t length);
/* Posts one request of the opcode: signaled, `length` bytes at `offset`, remote side at `remote`
 * of the other end's buffer. Returns what the verb gives. */
int end_send(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset,
	     uint32_t length, size_t remote);
/* The same with the request laid open; `wr` and `sge` point into each other. */
void end_request(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset,
		 uint32_t length, size_t remote, struct ibv_send_wr *wr, struct ibv_sge *sge);

/* Writes nothing to the other end's buffer and waits for that: afterwards requests start at once.
 */
void end_warm(struct end *end);
/* Returns when all that was started has completed, without a look at a CQ: by way of SQD. */
void end_settle(struct end *end);

/* Waits for a completion; fails when none comes soon. */
struct ibv_wc wc_wait(struct end *end, struct ibv_cq *cq);
/* Waits, and requires id and status. */
struct ibv_wc wc_expect_at(struct end *end, struct ibv_cq *cq, uint64_t id,
			   enum ibv_wc_status status, const char *file, int line);
#define wc_expect(end, cq, id, status) wc_expect_at(end, cq, id, status, __FILE__, __LINE__)
/* Requires that the CQ stays empty for a moment. */
void wc_none_at(struct end *end, struct ibv_cq *cq, const char *file, int line);
#define wc_none(end, cq) wc_none_at(end, cq, __FILE__, __LINE__)

/* Waits for an asynchronous event of an element of ours; fails when it does not come soon. */
void event_expect_at(struct rig *rig, enum ibv_event_type type, const void *element,
		     const char *file, int line);
#define event_expect(rig, type, element) event_expect_at(rig, type, element, __FILE__, __LINE__)
/* Whether such an event is there within ms. */
bool event_seen(struct rig *rig, enum ibv_event_type type, const void *element, int ms);
/* Whether the channel is readable within ms. */
bool channel_readable(struct ibv_comp_channel *channel, int ms);

/* Bytes that depend on a seed and the position; whether they are there. */
void pattern_fill(uint8_t *at, size_t length, uint32_t seed);
bool pattern_holds(const uint8_t *at, size_t length, uint32_t seed);

/* Milliseconds of the monotonic clock. */
double now_ms(void);

/*
 * How long to wait for what must happen, for who looks again and again. A machine that stood still
 * meanwhile (a paused VM, frozen processes) makes nobody late: from one look to the next at most
 * PATIENCE_STEP_MS count.
 */
struct patience {
	double left, looked; /* ms; when it was looked at */
};
enum { PATIENCE_STEP_MS = 100 };
struct patience patience_of(double ms);
/* To be called at each look. */
bool patience_over(struct patience *patience);

#endif
