/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The events that wait until the owner pulls them (tp_next_event). Each kind has one place in
 * struct tp, because at most one event of each kind waits at a time:
 *
 *   ESTABLISHED  once for a connection
 *   COMPLETED    requests succeed in order, so those that wait are a range of counts
 *   FAILED       the requester stops with it (reported as TP_COMPLETED with an error)
 *   DRAINED      once for each tp_drain
 *   RECEIVED     while one waits, the responder executes no packet (responder_go_on)
 *   REFUSED      the responder stops with it
 *
 * The owner gets them in that order. tp_stop() discards all of them.
 */
#ifndef VERBENA_TRANSPORT_EVENTS_H
#define VERBENA_TRANSPORT_EVENTS_H

#include "transport/transport.h"

enum event_waits {
	WAITS_ESTABLISHED = 1,
	WAITS_COMPLETED = 2,
	WAITS_FAILED = 4,
	WAITS_DRAINED = 8,
	WAITS_RECEIVED = 16,
	WAITS_REFUSED = 32,
};

struct events {
	uint32_t waiting;	/* enum event_waits */
	uint32_t done, done_to; /* COMPLETED: requests [done, done_to) */
	uint32_t failed;	/* FAILED */
	enum ibv_wc_status failed_status, received_status;
	int refused;
	struct tp_message received;
};

static inline void event_completed(struct events *e, uint32_t count)
{
	if (!(e->waiting & WAITS_COMPLETED))
		e->done = count;
	e->done_to = count + 1;
	e->waiting |= WAITS_COMPLETED;
}

static inline void event_failed(struct events *e, uint32_t count, enum ibv_wc_status status)
{
	e->failed = count;
	e->failed_status = status;
	e->waiting |= WAITS_FAILED;
}

static inline void event_drained(struct events *e)
{
	e->waiting |= WAITS_DRAINED;
}

static inline void event_established(struct events *e)
{
	e->waiting |= WAITS_ESTABLISHED;
}

static inline void event_received(struct events *e, const struct tp_message *message,
				  enum ibv_wc_status status)
{
	e->received = *message;
	e->received_status = status;
	e->waiting |= WAITS_RECEIVED;
}

static inline void event_refused(struct events *e, int async)
{
	e->refused = async;
	e->waiting |= WAITS_REFUSED;
}

/* Takes out the next event. The caller has checked that at least one waits. */
struct tp_event event_pull(struct events *e);

#endif
