/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager of InfiniBand (IBTA volume 1, chapter 12) as a state machine without
 * sockets, clock or threads. Messages, commands and the time go in; messages, events and the next
 * deadline come out.
 *
 * An endpoint is one side of one connection (or of one service id resolution, SIDR). Its owner
 * opens and closes it. A closed endpoint lives on here for as long as the protocol needs (until a
 * DREQ is answered, until TIMEWAIT is over) and reports no more events.
 *
 * Output goes through struct cm_ops. The callbacks `event` and `request` may call any function
 * here, for any endpoint, because each function calls `event` as its last action. `send` may call
 * none.
 *
 * Times are milliseconds of any monotonic clock. Limit: CM_ORPHANS closed endpoints.
 */
#ifndef VERBENA_CM_CM_H
#define VERBENA_CM_CM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "cm/deadlines.h"
#include "cm/index.h"
#include "cm/mad.h"

/* The addresses of a connection's messages, as GIDs: this side's and the peer's. */
struct cm_path {
	uint8_t local[16], remote[16];
	uint32_t ifindex; /* for link-local addresses */
	uint8_t traffic_class;
	bool on_host; /* the peer is an endpoint of the same struct cm */
	/* On an InfiniBand fabric, else 0: the owner's number of this side's node, and what is
	 * known of the path. The GIDs are InfiniBand's then. */
	uint32_t node;
	uint16_t local_lid, remote_lid, pkey;
	uint8_t sl, mtu, rate, life_time; /* the last three as in a path record */
};

/* The states of IBTA 12.9.5 to 12.9.7, named after the last message sent or received. */
enum cm_state {
	CM_IDLE,
	CM_REQ_SENT,
	CM_MRA_REQ_RCVD, /* the peer asked for more time to answer the REQ */
	CM_REQ_RCVD,	 /* the owner's answer is due */
	CM_MRA_REQ_SENT, /* likewise, and the peer was asked for more time */
	CM_REP_SENT,
	CM_MRA_REP_RCVD,
	CM_REP_RCVD, /* the owner's cm_confirm() is due */
	CM_MRA_REP_SENT,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RCVD, /* the owner's cm_disconnect() is due */
	CM_TIMEWAIT,
	CM_SIDR_REQ_SENT,
	CM_SIDR_REQ_RCVD,
	CM_SIDR_REP_SENT, /* keeps the answer, in case the request is repeated */
	CM_STATES
};

/* The exchange of a LAP and an APR, which only CM_ESTABLISHED has; in other states CM_LAP_NONE. */
enum cm_lap {
	CM_LAP_NONE,
	CM_LAP_SENT,
	CM_LAP_MRA_RCVD, /* the peer asked for more time to answer the LAP */
	CM_LAP_RCVD,	 /* the owner's cm_answer_alternate() is due */
	CM_LAP_MRA_SENT, /* likewise, and the peer was asked for more time */
};

enum cm_event_type {
	CM_EVENT_REP, /* mad: the REP */
	CM_EVENT_ESTABLISHED,
	CM_EVENT_REJECTED, /* mad: the REJ */
	CM_EVENT_UNREACHABLE,
	CM_EVENT_DISCONNECTED, /* status: 0, or -ETIMEDOUT: the peer didn't answer. At most once. */
	CM_EVENT_TIMEWAIT_EXIT,
	CM_EVENT_SIDR_REP, /* mad: the SIDR_REP */
	/* mad: the LAP, whose `alternate` is seen from the peer. Once for each that is sent, and
	 * again when the peer didn't get the answer. */
	CM_EVENT_LOAD,
	/* mad: the APR; or NULL with status -ETIMEDOUT: the peer didn't answer. Once after each
	 * cm_load_alternate(), unless the connection ends before. */
	CM_EVENT_LOADED,
	CM_EVENTS
};

struct cm_event {
	enum cm_event_type type;
	int status;
	const struct cm_mad *mad;
};

/* The parameters of a connection's queue pairs. */
struct cm_qp {
	uint8_t transport; /* enum cm_transport */
	uint32_t local_qpn, remote_qpn;
	uint32_t local_psn, remote_psn; /* the PSN with which each side begins to *receive* */
	uint8_t responder_resources, initiator_depth;
	uint8_t retry_count, rnr_retry;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t ack_timeout;
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
};

/* The first counts (base/counter.h): of a connection's LAPs, and of the numbers given out. */
#define CM_LOADS_START COUNTER_START(2)
#define CM_IDS_START COUNTER_START(4)

/*
 * A connection, or a SIDR request. `lap` is a state within CM_ESTABLISHED. No lock guards these
 * fields: the owner serialises access to a struct cm. Five facts beside the state, each valid in
 * several states:
 *   passive       set by the REQ or SIDR_REQ that made the endpoint; never cleared
 *   closed        set by cm_close(), and when no owner took a request: no more events, and the
 *                 endpoint is freed once it is IDLE (cm.orphans counts these); never cleared
 *   disconnected  set by endpoint_disconnected(), which so reports the event once; cleared by
 *                 cm_connect(), which begins another connection
 *   has_alternate set by cm_set_alternate(); cleared by cm_connect()
 *   has_loaded    set when a LAP is sent or taken; never cleared
 */
struct cm_endpoint {
	void *owner; /* for the owner's use */
	enum cm_state state;
	enum cm_lap lap;
	bool passive, closed, disconnected, has_alternate, has_loaded;
	struct cm_path path;
	struct cm_path alternate; /* has_alternate: the queue pair may migrate to it, or came */
	uint32_t local_id, remote_id;
	uint64_t remote_guid, service_id, transaction;
	uint64_t load_transaction; /* has_loaded: of the last LAP that was sent or taken */
	uint32_t loads;		   /* from CM_LOADS_START: LAPs that were sent, without repeats */
	struct cm_qp qp;
	uint32_t timeout_ms;
	uint8_t max_retries, retries_left;
	uint8_t early;		/* repeats left before the first timeout: see endpoint_ask() */
	uint64_t excused_until; /* ms: until when the peer asked for time (MRA) */
	uint8_t sent[MAD_SIZE]; /* the message that is repeated until it is answered */
	struct index_node by_id, by_peer, by_qpn;
	struct deadline deadline;
};

struct cm;

struct cm_ops {
	void (*send)(void *arg, const struct cm_path *path, const uint8_t mad[MAD_SIZE]);
	void (*event)(void *arg, struct cm_endpoint *endpoint, const struct cm_event *event);
	/*
	 * A REQ or SIDR_REQ arrived. The callback sets endpoint->owner and returns 0: an answer
	 * will follow; or returns the reason to refuse: enum cm_reject, or enum cm_sidr_status; -1:
	 * no answer at all.
	 */
	int (*request)(void *arg, struct cm_endpoint *endpoint, const struct cm_mad *mad);
};

enum { CM_REASONS = 64 }; /* of REJs; [0]: any other reason */

struct cm_counters {
	uint64_t malformed[CM_MAD_ERRORS], received[CM_MESSAGES], sent[CM_MESSAGES];
	uint64_t unexpected; /* for no endpoint, or not expected in its state */
	uint64_t repeated;   /* sent again for want of an answer */
	uint64_t duplicates; /* received again: the peer hadn't received the answer */
	uint64_t stale;	     /* REQs of a QP that still has an older connection here */
	uint64_t given_up;   /* endpoints whose peer didn't answer */
	uint64_t rejects_received[CM_REASONS], rejects_sent[CM_REASONS];
};

enum { CM_ORPHANS = 65536 };

struct cm_config {
	uint64_t guid; /* of this host's adapter */
	uint64_t seed; /* for communication ids; must not be guessable */
	uint8_t response_timeout, max_retries, life_time, ack_delay; /* times: 4.096 us * 2^n */
};

/* The kernel's RDMA CM's values: 4.3 s for an answer, 15 repeats, 268 ms from end to end. */
#define CM_CONFIG_DEFAULT \
	.response_timeout = 20, .max_retries = 15, .life_time = 16, .ack_delay = 15

struct cm {
	struct cm_config config;
	const struct cm_ops *ops;
	void *arg;
	struct index by_id, by_peer, by_qpn;
	struct deadlines deadlines;
	uint32_t endpoints, orphans;
	uint32_t last_id;	 /* from CM_IDS_START */
	uint64_t answered_until; /* ms: the peer of the last final answer may repeat until then */
	struct cm_counters counters;
};

/* Returns 0 or -ENOMEM. `ops` must outlive the struct cm. */
int cm_init(struct cm *cm, const struct cm_config *config, const struct cm_ops *ops, void *arg);
/* Frees all endpoints without sending a message. */
void cm_fini(struct cm *cm);

/* Makes an endpoint in CM_IDLE; NULL: no memory. */
struct cm_endpoint *cm_open(struct cm *cm, void *owner);
/* Ends the endpoint: rejects, disconnects, or gives up, as its state demands. The caller must not
 * use it any more. */
void cm_close(struct cm *cm, struct cm_endpoint *endpoint, uint64_t now_ms);

/* Handles a MAD that arrived by `path`. */
void cm_receive(struct cm *cm, const struct cm_path *path, const uint8_t bytes[MAD_SIZE],
		uint64_t now_ms);
/* Writes the time of the next cm_tick(). False: no deadline is set. */
bool cm_deadline(const struct cm *cm, uint64_t *at_ms);
/* Handles deadlines up to `now_ms`: a bounded number; the rest stays due (cm_deadline()). */
void cm_tick(struct cm *cm, uint64_t now_ms);
/*
 * Until when a peer on another host needs this struct cm, although its own endpoints are closed: a
 * time to ask again; 0 or a past time: no peer does. There are two reasons. A closed endpoint still
 * repeats its message (a DREQ), or still answers one that is repeated (a SIDR_REQ). Or a DREP or
 * REJ ended an exchange: if that packet was lost, the peer repeats its own message after one
 * timeout, and after two, and gets the answer then. Without it the peer's program waits for all the
 * 15 repeats (74 s). A longer row of losses isn't waited for.
 */
uint64_t cm_needed_until(const struct cm *cm);

/* Private data. Every command returns -EINVAL when it is longer than the message has room for. */
struct cm_private {
	const void *data;
	uint32_t size;
};

/* The commands return 0; -EINVAL: not in this state; cm_establish() also -EISCONN. */

struct cm_connect {
	struct cm_path path;
	uint64_t service_id;
	struct cm_qp qp; /* local_*, and the parameters that both sides share */
	bool flow_control, srq;
	uint32_t vendor_id, vendor_option; /* enhanced connection establishment; 0: none */
	struct cm_private private_data;
};
/* Sends a REQ. */
int cm_connect(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_connect *connect,
	       uint64_t now_ms);

struct cm_accept {
	uint32_t qpn, psn;
	uint8_t responder_resources, initiator_depth, rnr_retry;
	bool flow_control, srq;
	uint32_t vendor_id, vendor_option;
	struct cm_private private_data;
};
/* Answers a request by a REP. */
int cm_accept(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_accept *accept,
	      uint64_t now_ms);
/* After CM_EVENT_REP: sends the RTU. */
int cm_confirm(struct cm *cm, struct cm_endpoint *endpoint);
/* To be called when the queue pair received data although no RTU came. */
int cm_establish(struct cm *cm, struct cm_endpoint *endpoint);
/* Sends a REJ: refuses a request or a REP, or gives up. */
int cm_reject(struct cm *cm, struct cm_endpoint *endpoint, enum cm_reject reason,
	      const struct cm_private *private_data, uint64_t now_ms);
/* Begins to disconnect, or answers the peer's DREQ. */
int cm_disconnect(struct cm *cm, struct cm_endpoint *endpoint, uint64_t now_ms);

/*
 * Alternate paths (IBTA 12.8), on an InfiniBand fabric only. cm_load_alternate() sends a LAP:
 * `path` as this side sees it. Only the side that sent the REQ may, and one at a time.
 * cm_answer_alternate() answers the peer's.
 */
int cm_load_alternate(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_mad_path *path,
		      uint64_t now_ms);
int cm_answer_alternate(struct cm *cm, struct cm_endpoint *endpoint, enum cm_apr_status status);
/* The queue pair has loaded this path: messages that come by it are the peer's, too. */
void cm_set_alternate(struct cm_endpoint *endpoint, const struct cm_path *path);
/* The queue pair has migrated: the messages go by the alternate path, and the former one becomes
 * the alternate path. */
void cm_migrate(struct cm_endpoint *endpoint);

/* Service id resolution: sends a SIDR_REQ; answers one by a SIDR_REP. */
int cm_sidr_request(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_path *path,
		    uint64_t service_id, const struct cm_private *private_data, uint64_t now_ms);
int cm_sidr_answer(struct cm *cm, struct cm_endpoint *endpoint, enum cm_sidr_status status,
		   uint32_t qpn, uint32_t qkey, const struct cm_private *private_data,
		   uint64_t now_ms);

const char *cm_state_name(enum cm_state state);
/* About 4.096 us * 2^exponent, in ms. */
uint64_t cm_ms(uint32_t exponent);
/* The local ACK timeout for a path of this life time to a host with this delay (both exponents). */
uint8_t cm_ack_timeout(uint32_t delay, uint32_t life_time);

#endif
