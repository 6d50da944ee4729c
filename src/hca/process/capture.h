/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures of this process's traffic (`verbena capture`, see daemon/core/capture.h): RoCE packets
 * as they are, traffic within the host as the RoCEv2 packets that it would have been.
 *
 * Local traffic is shown by the requester's side, because one-sided operations are executed there
 * and their target takes no part: requests go out, their answers come in, and each packet is shown
 * once. Frames of raw packet QPs are shown as they are, once: by their sender, or, if they come
 * from a network interface, by the process that has a rule for them. PSNs are those that packets
 * would have had (request_begins() in local/core/starting.c keeps the count, captured or not). A
 * message that waits for a receive is shown once, with the RNR NAK that it got; each message has an
 * acknowledgement of its own.
 *
 * A capture of a fabric's port (`--port`) gets the packets that cross that port, as those of its
 * link layer, and no others. What is lost on its way isn't shown.
 *
 * While no capture runs, hca.capture is NULL, and each hook is one load and branch. A captured
 * process never waits for a capturing program: packets that find no room in its ring (shm/tap.h)
 * are counted as lost.
 *
 * Locks: capture.lock, inside all others. The engine thread adds and removes rings.
 */
#ifndef VERBENA_HCA_PROCESS_CAPTURE_H
#define VERBENA_HCA_PROCESS_CAPTURE_H

#include <infiniband/verbs.h>

#include "base/cpu.h"
#include "hca/fabric/path.h"
#include "hca/process/hca.h"
#include "hca/verbs/qp.h"
#include "hca/verbs/send_queue.h"

/* The daemon's events: a capture begins, or ends. `fds`: the ring and its bell; taken over. */
void capture_begin(struct hca *hca, const struct proto_event *event, int *fds);
void capture_end(struct hca *hca, uint64_t id);
/* The daemon is gone, so no event would end the captures: ends all. */
void capture_end_all(struct hca *hca);
/* In a forked child, which isn't captured. */
void capture_leave(struct hca *hca);

/* On a fabric: the QP's path, and the table of its peer's process; else both are NULL. */
struct capture_way {
	struct path *path;
	const struct pub *peer;
};

void capture_show_request(struct qp *qp, const struct send_wqe *wqe, struct capture_way way);
/* The request has completed; `msn`: the number of requests that the responder has executed by
 * then. */
void capture_show_answer(struct qp *qp, const struct send_wqe *wqe, struct capture_way way,
			 uint32_t msn, enum ibv_wc_status status, uint8_t rnr_timer);
void capture_show_rnr(struct qp *qp, const struct send_wqe *wqe, struct capture_way way,
		      uint32_t msn, uint8_t rnr_timer);
void capture_show_datagram(struct qp *qp, const struct send_wqe *wqe);
/* A frame of a raw packet QP is sent; `leaves`: by the network interface, and not only within the
 * host. `local`: its segments. */
void capture_show_frame(struct qp *qp, const struct send_wqe *wqe, const struct iovec *local,
			int count, bool leaves);
/* A frame has come by the network interface, for a queue pair of this process. */
void capture_show_frame_came(struct hca *hca, uint32_t device, const uint8_t *frame,
			     uint32_t length);

static inline bool capture_on(const struct hca *hca)
{
	return unlikely(atomic_load_explicit(&hca->capture, memory_order_relaxed) != NULL);
}

#endif
