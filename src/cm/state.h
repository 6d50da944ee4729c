/* SPDX-License-Identifier: BSD-2-Clause */
/* What cm.c (endpoints, commands) and receive.c (messages, deadlines) share. */
#ifndef VERBENA_CM_STATE_H
#define VERBENA_CM_STATE_H

#include "cm/cm.h"

enum { MRA_SERVICE_TIMEOUT = 24 }; /* 68 s: what the kernel's RDMA CM says */

/* Encodes and sends it once. */
void endpoint_send(struct cm *cm, const struct cm_path *path, const struct cm_mad *mad);
/*
 * Sends it, again and again until the state changes: after each timeout, and twice within the
 * first, after a sixteenth and a quarter of it. What is lost mustn't take longer than the retries
 * of the queue pair of a peer that believes itself connected and sends already, as rsockets do.
 */
enum { EARLY_REPEATS = 2, EARLY_MS_MIN = 1000 };
void endpoint_ask(struct cm *cm, struct cm_endpoint *e, enum cm_state state,
		  const struct cm_mad *mad, uint64_t now);
/* A message of this connection. */
struct cm_mad endpoint_mad(const struct cm_endpoint *e, enum cm_message message);
void endpoint_send_reject(struct cm *cm, struct cm_endpoint *e, enum cm_reject reason,
			  enum cm_about about, const struct cm_private *private_data);
void endpoint_send_mra(struct cm *cm, struct cm_endpoint *e, enum cm_about about);
void endpoint_send_short(struct cm *cm, struct cm_endpoint *e, enum cm_message message);

/* What waits in this state is over. It frees a closed endpoint that comes to CM_IDLE: returns
 * whether it is still there. */
bool endpoint_idle(struct cm *cm, struct cm_endpoint *e);
void endpoint_timewait(struct cm *cm, struct cm_endpoint *e, uint64_t now);
void endpoint_enter(struct cm *cm, struct cm_endpoint *e, enum cm_state state);
void endpoint_linger(struct cm *cm, struct cm_endpoint *e, uint64_t at_ms);

/* The last thing that is done. Nothing for a closed endpoint. */
void endpoint_event(struct cm *cm, struct cm_endpoint *e, enum cm_event_type type, int status,
		    const struct cm_mad *mad);
/* CM_EVENT_DISCONNECTED, if it wasn't said before. */
void endpoint_disconnected(struct cm *cm, struct cm_endpoint *e, int status);

struct cm_endpoint *endpoint_by_id(const struct cm *cm, uint32_t local_id);
/*
 * By the peer's communication id, and by its QPN. NULL: none. `sidr`: a request's id. The peer is
 * known by its address as well: what it says of its adapter anybody can say, and if only that
 * counted, anybody could make another's connections look like repeated or stale ones.
 */
struct cm_endpoint *endpoint_by_peer(const struct cm *cm, const struct cm_path *path,
				     uint32_t remote_id, uint64_t guid, bool sidr);
struct cm_endpoint *endpoint_by_qpn(const struct cm *cm, const struct cm_path *path, uint32_t qpn,
				    uint64_t guid);
/* Whether messages by this path can be of the endpoint's peer. */
bool endpoint_is_at(const struct cm_endpoint *e, const struct cm_path *path);
void endpoint_set_peer(struct cm *cm, struct cm_endpoint *e, uint32_t remote_id, uint64_t guid,
		       uint32_t qpn);
bool state_is_sidr(enum cm_state state);

#endif
