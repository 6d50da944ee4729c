/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The counters of a process, in its published table: the process adds, the daemon reads and shows
 * them (`verbena status`). They are an enum of places and their names. Some groups are copied as a
 * whole from a structure of another part, and follow its order (src/hca/process/counters.c asserts
 * that).
 *
 * Written by the owner: relaxed stores under a lock that it holds anyway, or atomic additions where
 * that is rare. Read by the daemon at any time; each number is consistent by itself only.
 */
#ifndef VERBENA_SHM_COUNTERS_H
#define VERBENA_SHM_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* X(place, group, name): group and name as `verbena status --json` shows them. */
#define PUB_COUNTER_LIST(X)                                                                       \
	/* packets handed to the host's kernel */                                                 \
	X(SENT_PACKETS, "wire", "packets_out")                                                    \
	X(SENT_BYTES, "wire", "bytes_out")                                                        \
	X(SENT_REFUSED, "wire", "refused")  /* the kernel didn't take them */                     \
	X(SENT_NO_ROOM, "wire", "no_room")  /* the socket's buffer was full for too long */       \
	X(SENT_ERROR, "wire", "last_error") /* errno of the last one refused */                   \
	/* packets received */                                                                    \
	X(CAME_PACKETS, "wire", "packets_in")                                                     \
	X(CAME_BYTES, "wire", "bytes_in")                                                         \
	X(CAME_BAD_ICRC, "wire", "bad_icrc")                                                      \
	X(CAME_TOO_SHORT, "wire", "too_short")                                                    \
	X(CAME_TOO_LONG, "wire", "too_long")                                                      \
	X(CAME_BAD_VERSION, "wire", "bad_version")                                                \
	X(CAME_BAD_OPCODE, "wire", "bad_opcode")                                                  \
	X(CAME_BAD_PAYLOAD, "wire", "bad_payload")                                                \
	/* intact packets that were dropped, by enum roce_drop */                                 \
	X(DROP_QPN, "wire", "no_such_qp")                                                         \
	X(DROP_HOST, "wire", "other_host")                                                        \
	X(DROP_ORIGIN, "wire", "forged")                                                          \
	X(DROP_PKEY, "wire", "other_pkey")                                                        \
	X(DROP_QKEY, "wire", "other_qkey")                                                        \
	X(DROP_TRANSPORT, "wire", "other_transport")                                              \
	X(DROP_STATE, "wire", "not_receiving")                                                    \
	X(DROP_STALE, "wire", "stale")                                                            \
	X(DROP_NO_RECEIVE, "wire", "no_receive")                                                  \
	X(DROP_SHORT_RECEIVE, "wire", "short_receive")                                            \
	/* the transport of all QPs, by struct tp_counters */                                     \
	X(TP_RESENT, "wire", "resent")                                                            \
	X(TP_TIMEOUTS, "wire", "timeouts")                                                        \
	X(TP_SEQUENCE_NAKS, "wire", "sequence_naks")                                              \
	X(TP_RNR_NAKS, "wire", "rnr_naks")                                                        \
	X(TP_RNR_NAKS_SENT, "wire", "rnr_naks_sent")                                              \
	X(TP_OUT_OF_SEQUENCE, "wire", "out_of_sequence")                                          \
	X(TP_KEPT, "wire", "kept")                                                                \
	X(TP_DUPLICATES, "wire", "duplicates")                                                    \
	X(TP_CREDIT_WAITS, "wire", "credit_waits")                                                \
	/* congestion */                                                                          \
	X(TP_CONGESTED, "wire", "cnps_in")    /* CNPs from receivers of our packets */            \
	X(MARKED, "wire", "congestion_marks") /* packets received with ECN's mark */              \
	X(CNPS_OUT, "wire", "cnps_out")                                                           \
	/* within the host */                                                                     \
	X(LOCAL_RNR_WAITS, "local", "rnr_waits")   /* messages that waited here for a receive */  \
	X(LOCAL_RNR_TOLD, "local", "rnr_naks")	   /* our messages that waited at their peers */  \
	X(LOCAL_QKEY, "local", "other_qkey")	   /* datagrams dropped */                        \
	X(LOCAL_PKEY, "local", "other_pkey")	   /* datagrams dropped */                        \
	X(LOCAL_NO_RECEIVE, "local", "no_receive") /* datagrams dropped */                        \
	X(LOCAL_SHORT_RECEIVE, "local", "short_receive") /* datagrams dropped */                  \
	X(LOCAL_KEPT, "local", "kept")		 /* datagrams that waited here for a receive */   \
	X(LOCAL_NOT_TAKEN, "local", "not_taken") /* ours, dropped: no receive or room in time */  \
	X(LOCAL_NO_QP, "local", "no_such_qp")	 /* datagrams dropped: for no QP that receives */ \
	/* requests that completed with these errors, on every carrier */                         \
	X(RETRY_EXCEEDED, "requests", "retry_exceeded")                                           \
	X(RNR_RETRY_EXCEEDED, "requests", "rnr_retry_exceeded")

#define PUB_COUNTER_PLACE(place, group, name) PUB_##place,
enum pub_counter { PUB_COUNTER_LIST(PUB_COUNTER_PLACE) PUB_COUNTERS };
#undef PUB_COUNTER_PLACE

struct pub_counters {
	_Atomic uint64_t value[PUB_COUNTERS];
};

/* The caller holds the lock under which this place changes. */
static inline void pub_count(struct pub_counters *counters, enum pub_counter place, uint64_t n)
{
	_Atomic uint64_t *at = &counters->value[place];

	atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* For rare events: callable by any thread, without a lock. */
static inline void pub_count_rare(struct pub_counters *counters, enum pub_counter place, uint64_t n)
{
	atomic_fetch_add_explicit(&counters->value[place], n, memory_order_relaxed);
}

#endif
