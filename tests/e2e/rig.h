/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The test rig: two ends that exchange data by verbs, written once and run over every carrier.
 *
 * A test body is a function that runs twice at the same time, as end A and as end B. Over the
 * carriers `self` the two are threads of one process (with one device context or with two); over
 * the others they are two processes. What programs exchange by other means (QPNs, keys, readiness)
 * the ends exchange over a socket: rig_swap(), rig_sync().
 *
 * A check that fails prints its place and values, and ends its process; the other end finds the
 * socket closed and ends as well. So bodies have no clean-up paths for failures.
 *
 * Threads: only the end's own thread uses it. State that both ends share (events of a shared device
 * context) is guarded inside.
 */
#ifndef VERBENA_E2E_RIG_H
#define VERBENA_E2E_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/types.h>

enum { RIG_A, RIG_B };

enum rig_carrier {
	RIG_SELF,      /* one process, one device context */
	RIG_SELF_TWO,  /* one process, a device context for each end */
	RIG_LOCAL,     /* two processes */
	RIG_RING,      /* two processes that can't access each other's memory */
	RIG_SPLIT,     /* two processes, long messages as over RIG_RING, others as over RIG_LOCAL */
	RIG_FOUND,     /* as RIG_LOCAL, and the ends' memory is shared, so that peers map it */
	RIG_CONVERTED, /* as RIG_LOCAL, and private memory is converted at registration */
	RIG_WIRE,      /* two processes that use RoCE as between hosts */
	RIG_CARRIERS,
};

struct rig_event;

/* One end of a running test. */
struct rig {
	const char *name; /* of the test */
	int role;	  /* RIG_A or RIG_B */
	enum rig_carrier carrier;
	int sock;		 /* socket to the other end */
	struct ibv_context *ctx; /* over RIG_SELF both ends have the same */
	struct rig_event *events;
};

struct rig_test {
	const char *name;
	void (*body)(struct rig *rig);
};

extern const char *const rig_carrier_names[RIG_CARRIERS];

/* In ms: the limit for something that must happen (on a loaded machine, too), and how long a test
 * waits to see that something doesn't. */
#define RIG_SOON_MS (60000 * rig_slowness())
#define RIG_NEVER_MS 60

/* Factor for time limits: 1, or more under a sanitizer or emulator. */
int rig_slowness(void);

/* The longest datagram, bytes: the port's active MTU. */
uint32_t rig_datagram(const struct rig *rig);

/* Whether the ends map each other's memory if it is in a file: not if this program's caller wants
 * private memory (tests/suite-on). */
bool rig_maps_files(const struct rig *rig);
/* Whether a process can access the memory of another one, as by an imported region. */
bool rig_reaches_memory(const struct rig *rig);

/* Runs a test over a carrier in child processes of its own; RIG_LOCAL is RIG_RING if this program's
 * caller wants that. Returns whether it passed. */
bool rig_run(const struct rig_test *test, enum rig_carrier carrier);

/* Runs the tests that the command line selects, and exits. `tests` ends with a null name. */
_Noreturn void rig_main(int argc, char **argv, const struct rig_test *tests);

/* Sends `mine` to the other end and receives its value of the same size. */
void rig_swap(struct rig *rig, const void *mine, void *theirs, size_t size);

/* Returns when both ends have called it. */
void rig_sync(struct rig *rig);

/* Returns when all threads of another process are stopped, which SIGSTOP brings about some time
 * after kill() has returned. */
void rig_await_stop(pid_t pid);
/* Kills the daemon of tests/e2e/own-daemon, and waits for its end. */
void rig_kill_daemon(struct rig *rig);

/* Prints the message and ends the process. */
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
/* Checks that the call returns 0; otherwise prints its errno. */
#define OK(rig, call)                                                                       \
	do {                                                                                \
		int error_ = (call);                                                        \
		if (error_)                                                                 \
			rig_fail(rig, __FILE__, __LINE__, "%s gave %d (%s)", #call, error_, \
				 strerror(error_ < 0 ? -error_ : error_));                  \
	} while (0)

/* Options of end_open(); zero means the default. */
struct end_options {
	enum ibv_qp_type type;	 /* default RC */
	unsigned int send_depth; /* default 64 */
	unsigned int recv_depth; /* default 64 */
	unsigned int sge;	 /* default 4, both ways */
	unsigned int inline_bytes;
	unsigned int cqe;	/* size of the send CQ and of the receive CQ; default 256 */
	unsigned int srq_depth; /* size of the SRQ; default: no SRQ */
	size_t bytes;		/* size of the buffer; default 64 KiB */
	int mr_access;		/* default: all rights; MR_NONE: local write only */
	int qp_access;		/* default: all rights; QP_NONE: none */
	int timeout;		/* default 10: 4 ms (RIG_HOSTS: 14); TIMEOUT_NONE: no limit */
	int retry_cnt;		/* default 2 (RIG_HOSTS: 7) */
	int rnr_retry;		/* default 7: no limit; RNR_NONE: 0 */
	int min_rnr_timer;	/* default 1: 0.01 ms */
	uint32_t wrong_psn;	/* added to the PSN that this end expects */
	bool all_signaled;	/* sq_sig_all */
	bool one_cq;		/* one CQ for both directions */
	bool no_reads;		/* max_rd_atomic is 0 */
	bool no_dest_reads;	/* max_dest_rd_atomic is 0 */
	bool may_fail;		/* end_rtr() and end_rts() may find the QP in ERR */
	struct ibv_pd *pd;	/* PD (and context) to use; default: a new one */
};
enum { MR_NONE = 1 << 30, QP_NONE = 1 << 30, TIMEOUT_NONE = -1, RNR_NONE = -1 };

/* A queue pair with all objects that it needs. */
struct end {
	struct rig *rig;
	struct end_options opt;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* of both CQs */
	struct ibv_cq *scq, *rcq;	  /* equal with one_cq */
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	int buf_fd;	       /* RIG_FOUND: of the memory file that buf begins in */
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
/* Destroys all of them; each destruction must succeed. */
void end_close(struct end *end);
/* RESET to INIT. */
void end_init(struct end *end);
/* Exchanges QPN, PSN, GID, address and key with the other end, which must call it too. */
void end_meet(struct end *end);
/* INIT to RTR, RTR to RTS; call end_meet() before. */
void end_rtr(struct end *end);
void end_rts(struct end *end);
/* end_init(), end_meet(), end_rtr() and on to RTS; both ends are in RTS afterwards. */
void end_connect(struct end *end);
/* Connects two ends of this process, which are in RESET. */
void end_join(struct end *one, struct end *other);
/* end_open() and end_connect(). */
void end_pair(struct end *end, struct rig *rig, const struct end_options *opt);
/* Moves the QP to a state that needs no other attribute; returns the verb's result. */
int end_move(struct end *end, enum ibv_qp_state state);
enum ibv_qp_state end_state(struct end *end);

/* A scatter/gather element within the end's buffer. */
struct ibv_sge end_sge(const struct end *end, size_t offset, uint32_t length);
/* Posts a receive into the buffer (to the SRQ, if the end has one); returns the verb's result. */
int end_recv(struct end *end, uint64_t id, size_t offset, uint32_t length);
/* Posts one request of the opcode: signaled, `length` bytes at `offset`, remote side at `remote` of
 * the other end's buffer. Returns the verb's result. */
int end_send(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset,
	     uint32_t length, size_t remote);
/* Fills in the same request without posting it; `wr` points to `sge`. */
void end_request(struct end *end, enum ibv_wr_opcode opcode, uint64_t id, size_t offset,
		 uint32_t length, size_t remote, struct ibv_send_wr *wr, struct ibv_sge *sge);

/* Writes 0 bytes to the other end's buffer and waits for completion: afterwards the link exists,
 * and requests start at once. */
void end_warm(struct end *end);
/* Returns when all requests that have begun are complete, without polling a CQ (by SQD). */
void end_settle(struct end *end);

/* Waits for a completion; fails after RIG_SOON_MS. */
struct ibv_wc wc_wait(struct end *end, struct ibv_cq *cq);
/* Waits for a completion, and requires its id and status. */
struct ibv_wc wc_expect_at(struct end *end, struct ibv_cq *cq, uint64_t id,
			   enum ibv_wc_status status, const char *file, int line);
#define wc_expect(end, cq, id, status) wc_expect_at(end, cq, id, status, __FILE__, __LINE__)
/* Requires that the CQ stays empty for RIG_NEVER_MS. */
void wc_none_at(struct end *end, struct ibv_cq *cq, const char *file, int line);
#define wc_none(end, cq) wc_none_at(end, cq, __FILE__, __LINE__)

/* Waits for an asynchronous event of an object; fails after RIG_SOON_MS. */
void event_expect_at(struct rig *rig, enum ibv_event_type type, const void *element,
		     const char *file, int line);
#define event_expect(rig, type, element) event_expect_at(rig, type, element, __FILE__, __LINE__)
/* Whether such an event arrives within `ms`. */
bool event_seen(struct rig *rig, enum ibv_event_type type, const void *element, int ms);
/* As poll(); the time while the machine stands still doesn't count (struct patience). */
int rig_poll(struct pollfd *fds, unsigned long count, int ms);
/* Whether the channel becomes readable within `ms`. */
bool channel_readable(struct ibv_comp_channel *channel, int ms);

/* Bytes that depend on a seed and the position; checks for them. */
void pattern_fill(uint8_t *at, size_t length, uint32_t seed);
bool pattern_holds(const uint8_t *at, size_t length, uint32_t seed);

/* Milliseconds of the monotonic clock. */
double now_ms(void);

/*
 * A time limit for a loop that polls. If the machine stands still meanwhile (a paused VM, frozen
 * processes), the limit must not expire: between two polls at most PATIENCE_STEP_MS count.
 */
struct patience {
	double left, looked; /* ms left; time of the last poll */
};
enum { PATIENCE_STEP_MS = 100 };
struct patience patience_of(double ms);
/* Call at each poll. True: the time is over. */
bool patience_over(struct patience *patience);

#endif
