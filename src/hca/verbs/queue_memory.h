/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of queues' rings. A program that makes a queue in a parent domain with allocators of its
 * own (ibv_alloc_parent_domain) provides it: for a QP's send and receive queues, an SRQ's and a
 * CQ's ring, also when these are resized. All other queues have memory of the library's.
 *
 * The program's functions are called without any lock, by the thread that makes, resizes or ends
 * the queue.
 */
#ifndef VERBENA_HCA_VERBS_QUEUE_MEMORY_H
#define VERBENA_HCA_VERBS_QUEUE_MEMORY_H

#include <infiniband/verbs.h>
#include <stddef.h>

struct pd;

/* The allocators' resource_type. Its upper half is the kernel's number of the driver, which for
 * Verbena is 0, unknown. */
enum queue_kind { QUEUE_SEND = 1, QUEUE_RECEIVE = 2, QUEUE_SRQ = 3, QUEUE_CQ = 4 };

struct queue_memory {
	void *at; /* all zero at first, but for a CQ's; NULL: none */
	size_t size;
	enum queue_kind kind;
	struct pd *from; /* the parent domain that has provided it; NULL: the library */
};

/* `pd`: the queue's domain, of any kind, or NULL. 0 or ENOMEM. */
int queue_memory_make(struct queue_memory *memory, struct ibv_pd *pd, size_t size,
		      enum queue_kind kind);
/* Also of memory that was never made. */
void queue_memory_free(struct queue_memory *memory);

#endif
