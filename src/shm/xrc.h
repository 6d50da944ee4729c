/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of XRC target queue pairs (docs/xrc.md): which there are on this host, in what state,
 * connected to which initiator. It is a part of the table of groups (groups.h), the memory file
 * that the daemon makes and each process maps read-only.
 *
 * Written by: the daemon's thread only, by the commands of processes that have the queue pair open.
 * Read by: initiators on this host, and the processes that execute their requests, at any time and
 * without a lock.
 * All accesses are relaxed. The daemon writes an entry before it answers the command that changed
 * it, and the system calls of the answer order the two for each process that learns of the change
 * by it. A thread that reads an entry while it changes sees some old words and some new ones: its
 * request waits, or is refused or dropped by the process that executes it, which reads the entry as
 * well. So the worst is what happens to a request that arrives just before or just after the
 * change.
 *
 * An entry's place depends on a hash of the number: a bucket of XRC_WAYS places. An entry that has
 * ended has the key 0.
 */
#ifndef VERBENA_SHM_XRC_H
#define VERBENA_SHM_XRC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"
#include "shm/pub.h"

/* Four times as many places as there may be queue pairs: the buckets fill unevenly. */
enum { XRC_WAYS = 32, XRC_BUCKETS = 4 * LIMIT_XRC_TARGETS / XRC_WAYS };
enum { XRC_PLACES = XRC_BUCKETS * XRC_WAYS };

struct xrc_target {
	_Alignas(64) _Atomic uint64_t key; /* QPN in bits 0-31, number of the domain 32-63 */
	/* As pub_qp.state. The epoch changes at each RESET, and is never the same for two queue
	 * pairs of one number. */
	_Atomic uint64_t state;
	_Atomic uint32_t peer;	    /* dest_qp_num: the initiator's */
	_Atomic uint32_t rq_psn;    /* the PSN that the first message must carry */
	_Atomic uint32_t rnr_timer; /* min_rnr_timer */
	uint32_t reserved[7];
};

struct xrc_table {
	struct xrc_target target[XRC_PLACES];
};

/* One reading of an entry. */
struct xrc_view {
	uint64_t state; /* 0: there is no such queue pair */
	uint32_t domain;
	uint32_t peer;
	uint32_t rq_psn;
	uint8_t rnr_timer;
};

/* The entry of the queue pair with this number; NULL: there is none. It may become another's. */
const struct xrc_target *xrc_table_find(const struct xrc_table *table, uint32_t qpn);

/* Reads the entry of `qpn`; false: there is none. */
bool xrc_table_read(const struct xrc_table *table, uint32_t qpn, struct xrc_view *view);

/* The state word of the entry if it is still that of `qpn`, else 0. */
static inline uint64_t xrc_target_state(const struct xrc_target *target, uint32_t qpn)
{
	if ((uint32_t)atomic_load_explicit(&target->key, memory_order_relaxed) != qpn)
		return 0;
	return atomic_load_explicit(&target->state, memory_order_relaxed);
}

static inline uint32_t xrc_target_domain(const struct xrc_target *target)
{
	return (uint32_t)(atomic_load_explicit(&target->key, memory_order_relaxed) >> 32);
}

/* Daemon only. Writes the entry of `qpn`, which is made if there is none. 0, or -ENOMEM: its bucket
 * is full. */
int xrc_table_set(struct xrc_table *table, uint32_t qpn, const struct xrc_view *view);
/* Daemon only. Removes the entry, if there is one. */
void xrc_table_clear(struct xrc_table *table, uint32_t qpn);

#endif
