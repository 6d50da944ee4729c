/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A network interface behind the segment of raw packet queue pairs: VERBENA_RAW_INTERFACE names it.
 * The process opens it with its first raw packet QP, by a packet socket, for which it needs
 * CAP_NET_RAW; it stays open until the process ends. Frames of the device that this QP belongs to
 * go out by it, unless a normal rule has taken them on the host; frames that come in by it are for
 * the rules of this process's queue pairs.
 *
 * The socket is in the engine's epoll, edge-triggered: an edge sets `ready`, and the thread that
 * drives the engine then reads until nothing is left. Nothing here blocks; a frame for which the
 * socket has no room is dropped and counted.
 *
 * Owns hca.interface, which is made once, under hca.lock.
 */
#ifndef VERBENA_HCA_ROCE_INTERFACE_H
#define VERBENA_HCA_ROCE_INTERFACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "base/thread_safety.h"
#include "hca/process/hca.h"

struct interface {
	int fd;
	uint32_t device;    /* index of the device whose segment it is behind */
	_Atomic bool ready; /* frames may have arrived */
	uint8_t *buffers;   /* of received frames; under hca.engine */
};

/* Opens the interface if there is to be one and it isn't open: 0, or a positive errno, with the
 * reason in the log. No lock is held. */
int interface_want(struct hca *hca, uint32_t device);
void interface_unmake(struct hca *hca);
/* In a forked child: the socket is the parent's. */
void interface_leave(struct hca *hca);

/* Sends a frame of `length` bytes. 0; -EFAULT: its memory isn't mapped; -EMSGSIZE: it is longer
 * than the interface takes. */
int interface_send(struct hca *hca, const struct iovec *local, int count, uint32_t length,
		   bool checksums);

/* The engine's epoll has an edge. Engine thread. */
void interface_heard(struct hca *hca);

static inline bool interface_ready(const struct interface *interface)
{
	return atomic_load_explicit(&interface->ready, memory_order_relaxed);
}

/* Takes frames in; returns how many. */
unsigned int interface_pass(struct hca *hca, struct interface *interface) REQUIRES(hca->engine);

#endif
