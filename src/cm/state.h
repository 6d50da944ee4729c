/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that cm.c (endpoints, commands) and receive.c (messages, deadlines) share. */
#ifndef VERBENA_CM_STATE_H
#define VERBENA_CM_STATE_H

#include "cm/cm.h"

enum { MRA_SERVICE_TIMEOUT = 24 }; /* 68 s, as the kernel's RDMA CM */

/* Encodes the message and sends it once. */
void endpoint_send(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad);
/*
 * Enters `state`, sends the message and repeats it until the state changes: after each timeout, and
 * twice within the first one, after a sixteenth and a quarter of it. The early repeats are for a
 * lost REP: the peer's queue pair may be sending already, as rsockets do, and its own retries end
 * within the first timeout.
 */
enum { EARLY_REPEATS = 2, EARLY_MS_MIN = 1000 };
void endpoint_ask(struct cm *cm, struct cm_endpoint *e, enum cm_state state,
		  const struct cm_mad *mad, uint64_t now);
/* Begins a message of this connection. */
struct cm_mad endpoint_mad(const struct cm_endpoint *e, enum cm_message message);
void endpoint_send_reject(struct cm *cm, struct cm_endpoint *e, enum cm_reject reason,
			  enum cm_about about, const struct cm_private *private_data);
/* Asks the peer for more time (MRA). */
void endpoint_send_mra(struct cm *cm, struct cm_endpoint *e, enum cm_about about);
/* Answers a LAP of this transaction. */
void endpoint_send_apr(struct cm *cm, const struct cm_endpoint *e, uint64_t transaction,
		       enum cm_apr_status status);
/* Sends a message that has nothing but the ids. */
void endpoint_send_short(struct cm *cm, const struct cm_endpoint *e, enum cm_message message);
/* Sends a DREP. See cm_needed_until(). */
void endpoint_answer_disconnect(struct cm *cm, const struct cm_endpoint *e, uint64_t now);

/* Enters CM_IDLE and ends what waits in the old state. Frees the endpoint if it is closed: returns
 * whether it still exists. */
bool endpoint_idle(struct cm *cm, struct cm_endpoint *e);
/* Enters TIMEWAIT for the QP's local ACK timeout. */
void endpoint_timewait(struct cm *cm, struct cm_endpoint *e, uint64_t now);
/* Enters a state without a deadline; endpoint_linger() sets one. */
void endpoint_enter(struct cm *cm, struct cm_endpoint *e, enum cm_state state);
void endpoint_linger(struct cm *cm, struct cm_endpoint *e, uint64_t at_ms);

/* Reports the event, as the last action of the caller. Does nothing for a closed endpoint. */
void endpoint_event(struct cm *cm, struct cm_endpoint *e, enum cm_event_type type, int status,
		    const struct cm_mad *mad);
/* Reports CM_EVENT_DISCONNECTED, unless it was reported before. */
void endpoint_disconnected(struct cm *cm, struct cm_endpoint *e, int status);

struct cm_endpoint *endpoint_by_id(const struct cm *cm, uint32_t local_id);
/*
 * Find an endpoint by the peer's communication id, or by the peer's QPN; NULL: none. `sidr`: the id
 * is a SIDR request's. The peer is identified by its address too: any host can claim any adapter's
 * GUID, and could otherwise make another peer's connections look repeated or stale.
 */
struct cm_endpoint *endpoint_by_peer(const struct cm *cm, const struct cm_path *path,
				     uint32_t remote_id, uint64_t guid, bool sidr);
struct cm_endpoint *endpoint_by_qpn(const struct cm *cm, const struct cm_path *path, uint32_t qpn,
				    uint64_t guid);
/* Whether messages by this path can come from the endpoint's peer. */
bool endpoint_is_at(const struct cm_endpoint *e, const struct cm_path *path);
/* Makes the endpoint known to endpoint_by_peer() and, unless `qpn` is 0, endpoint_by_qpn(). */
void endpoint_set_peer(struct cm *cm, struct cm_endpoint *e, uint32_t remote_id, uint64_t guid,
		       uint32_t qpn);
bool state_is_sidr(enum cm_state state);

#endif
