/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connection manager of InfiniBand (IBTA volume 1, chapter 12) as a state machine: no socket,
 * no clock, no thread. Messages, commands and the time go in; messages, events and the next
 * deadline come out.
 *
 * An endpoint is one side of one connection (or of one service id resolution, SIDR). Its owner
 * opens and closes it; a closed one lives on here for as long as the protocol needs (until a DREQ
 * is answered, until TIMEWAIT is over) and says nothing any more.
 *
 * What comes out goes through struct cm_ops. `event` and `request` may call anything here, for any
 * endpoint: each function of this file calls `event` as the last thing that it does. `send` must
 * not.
 *
 * Times are milliseconds of any monotonic clock. Limits: CM_ORPHANS closed endpoints.
 */
#ifndef VERBENA_CM_CM_H
#define VERBENA_CM_CM_H

#include <stdbool.h>
#include <stdint.h>

#include "cm/deadlines.h"
#include "cm/index.h"
#include "cm/mad.h"

/* Where messages of a connection go, seen from here. Addresses as GIDs. */
struct cm_path {
	uint8_t local[16], remote[16];
	uint32_t ifindex; /* for link-local addresses */
	uint8_t traffic_class;
	bool on_host; /* the peer is an endpoint of this very struct cm */
};

/* Figures of IBTA 12.9.5 to 12.9.7, by what was sent or received last. */
enum cm_state {
	CM_IDLE,
	CM_REQ_SENT,
	CM_MRA_REQ_RCVD, /* the peer takes its time for our REQ */
	CM_REQ_RCVD,	 /* waits for its owner's answer */
	CM_MRA_REQ_SENT, /* likewise, and the peer knows */
	CM_REP_SENT,
	CM_MRA_REP_RCVD,
	CM_REP_RCVD, /* waits for its owner's cm_confirm() */
	CM_MRA_REP_SENT,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RCVD, /* waits for its owner's cm_disconnect() */
	CM_TIMEWAIT,
	CM_SIDR_REQ_SENT,
	CM_SIDR_REQ_RCVD,
	CM_SIDR_REP_SENT, /* remembers the answer for a while */
	CM_STATES
};

enum cm_event_type {
	CM_EVENT_REP, /* mad: the REP */
	CM_EVENT_ESTABLISHED,
	CM_EVENT_REJECTED, /* mad: the REJ */
	CM_EVENT_UNREACHABLE,
	CM_EVENT_DISCONNECTED, /* status: 0, or -ETIMEDOUT: the peer didn't answer. Once at most. */
	CM_EVENT_TIMEWAIT_EXIT,
	CM_EVENT_SIDR_REP, /* mad: the SIDR_REP */
};

struct cm_event {
	enum cm_event_type type;
	int status;
	const struct cm_mad *mad;
};

/* What a connection's queue pairs need to know. */
struct cm_qp {
	uint8_t transport; /* enum cm_transport */
	uint32_t local_qpn, remote_qpn;
	uint32_t local_psn, remote_psn; /* what each begins to *receive* with */
	uint8_t responder_resources, initiator_depth;
	uint8_t retry_count, rnr_retry;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t ack_timeout;
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
};

struct cm_endpoint {
	void *owner; /* free for it */
	enum cm_state state;
	bool passive, closed, disconnected;
	struct cm_path path;
	uint32_t local_id, remote_id;
	uint64_t remote_guid, service_id, transaction;
	struct cm_qp qp;
	uint32_t timeout_ms;
	uint8_t max_retries, retries_left;
	uint8_t early;		/* repeats that come before the first timeout: see endpoint_ask() */
	uint64_t excused_until; /* ms: the peer takes its time (MRA) */
	uint8_t sent[MAD_SIZE]; /* what is sent again until it is answered */
	struct index_node by_id, by_peer, by_qpn;
	struct deadline deadline;
};

struct cm;

struct cm_ops {
	void (*send)(void *arg, const struct cm_path *path, const uint8_t mad[MAD_SIZE]);
	void (*event)(void *arg, struct cm_endpoint *endpoint, const struct cm_event *event);
	/*
	 * A REQ or SIDR_REQ came. Sets endpoint->owner and returns 0: its answer is awaited. Else
	 * why not: enum cm_reject, or enum cm_sidr_status; -1: no answer at all.
	 */
	int (*request)(void *arg, struct cm_endpoint *endpoint, const struct cm_mad *mad);
};

enum { CM_REASONS = 64 }; /* of REJs; [0]: any that isn't below */

struct cm_counters {
	uint64_t malformed[CM_MAD_ERRORS], received[CM_MESSAGES], sent[CM_MESSAGES];
	uint64_t unexpected; /* for no endpoint, or not in its state */
	uint64_t repeated;   /* sent again for lack of an answer */
	uint64_t duplicates; /* came again: the peer hadn't heard the answer */
	uint64_t stale;	     /* REQs of a QP whose last connection is still known here */
	uint64_t given_up;   /* endpoints whose peer didn't answer at all */
	uint64_t rejects_received[CM_REASONS], rejects_sent[CM_REASONS];
};

enum { CM_ORPHANS = 65536 };

struct cm_config {
	uint64_t guid; /* of this host's adapter */
	uint64_t seed; /* not guessable: of communication ids */
	uint8_t response_timeout, max_retries, life_time, ack_delay; /* times: 4.096 us * 2^n */
};

/* As the kernel's RDMA CM: 4.3 s for an answer, 15 times more, 268 ms from end to end. */
#define CM_CONFIG_DEFAULT \
	.response_timeout = 20, .max_retries = 15, .life_time = 16, .ack_delay = 15

struct cm {
	struct cm_config config;
	const struct cm_ops *ops;
	void *arg;
	struct index by_id, by_peer, by_qpn;
	struct deadlines deadlines;
	uint32_t endpoints, orphans;
	uint32_t last_id;
	struct cm_counters counters;
};

/* 0 or -ENOMEM. */
int cm_init(struct cm *cm, const struct cm_config *config, const struct cm_ops *ops, void *arg);
/* All endpoints end without a message. */
void cm_fini(struct cm *cm);

/* An endpoint in CM_IDLE; NULL: no memory. */
struct cm_endpoint *cm_open(struct cm *cm, void *owner);
/* Rejects, disconnects, or gives up, as its state demands. It isn't the caller's any more. */
void cm_close(struct cm *cm, struct cm_endpoint *endpoint, uint64_t now_ms);

/* A MAD that came by `path`. */
void cm_receive(struct cm *cm, const struct cm_path *path, const uint8_t bytes[MAD_SIZE],
		uint64_t now_ms);
/* False: nothing is due, ever. */
bool cm_deadline(const struct cm *cm, uint64_t *at_ms);
/* What is due by now. */
void cm_tick(struct cm *cm, uint64_t now_ms);

/* Private data that is longer than the message's is -EINVAL everywhere. */
struct cm_private {
	const void *data;
	uint32_t size;
};

/* Commands. -EINVAL: not in this state. */

struct cm_connect {
	struct cm_path path;
	uint64_t service_id;
	struct cm_qp qp; /* local_*, and what both sides share */
	bool flow_control, srq;
	uint32_t vendor_id, vendor_option; /* enhanced connection establishment; 0: none */
	struct cm_private private_data;
};
int cm_connect(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_connect *connect,
	       uint64_t now_ms);

struct cm_accept {
	uint32_t qpn, psn;
	uint8_t responder_resources, initiator_depth, rnr_retry;
	bool flow_control, srq;
	uint32_t vendor_id, vendor_option;
	struct cm_private private_data;
};
int cm_accept(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_accept *accept,
	      uint64_t now_ms);
/* After CM_EVENT_REP: sends the RTU. */
int cm_confirm(struct cm *cm, struct cm_endpoint *endpoint);
/* The queue pair got something although no RTU came. */
int cm_establish(struct cm *cm, struct cm_endpoint *endpoint);
int cm_reject(struct cm *cm, struct cm_endpoint *endpoint, enum cm_reject reason,
	      const struct cm_private *private_data, uint64_t now_ms);
/* Begins it, or answers the peer that began. */
int cm_disconnect(struct cm *cm, struct cm_endpoint *endpoint, uint64_t now_ms);

int cm_sidr_request(struct cm *cm, struct cm_endpoint *endpoint, const struct cm_path *path,
		    uint64_t service_id, const struct cm_private *private_data, uint64_t now_ms);
int cm_sidr_answer(struct cm *cm, struct cm_endpoint *endpoint, enum cm_sidr_status status,
		   uint32_t qpn, uint32_t qkey, const struct cm_private *private_data,
		   uint64_t now_ms);

const char *cm_state_name(enum cm_state state);
/* 4.096 us * 2^exponent, about. */
uint64_t cm_ms(uint32_t exponent);
/* The local ACK timeout for a path of this life time to a host with this delay (both exponents). */
uint8_t cm_ack_timeout(uint32_t delay, uint32_t life_time);

#endif
