/* SPDX-License-Identifier: BSD-2-Clause */
/* See xrc_follow.h. Owns the queue of reports, hca.xrc->reports. */
#include "hca/verbs/xrc_follow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "hca/engine/engine.h"
#include "hca/exec/mcast.h"
#include "hca/exec/xrc_wire.h"
#include "hca/local/xrc_records.h"
#include "hca/process/books.h"
#include "hca/process/control.h"
#include "hca/roce/roce.h"
#include "hca/verbs/event.h"
#include "hca/verbs/xrcd.h"

/* What the control thread is to tell the daemon, or, if `query`, to ask it about. */
struct xrc_report {
	struct list node;
	bool query;
	struct proto_xrc_report body;
};

/* Raises the event on each handle of the queue pair here. Whether there are any. */
static bool tell_handles(struct hca *hca, uint32_t qpn, uint32_t event)
{
	bool any = false;

	list_for_each(node, &hca->xrc->handles) {
		struct qp *qp = container_of(node, struct xrc_handle, node)->qp;

		if (qp->ibv.qp_num != qpn)
			continue;
		any = true;
		if (event != PROTO_XRC_NO_EVENT)
			async_qp(qp, (enum ibv_event_type)event);
	}
	return any;
}

static void report_queue(struct hca *hca, const struct proto_xrc_report *body, bool query)
{
	struct xrc_report *report = malloc(sizeof(*report));

	if (!report) {
		log_error("out of memory: verbenad doesn't learn of an error of XRC QP 0x%x",
			  body->qpn);
		return;
	}
	*report = (struct xrc_report){.query = query, .body = *body};
	lock_take(&hca->xrc->lock);
	list_add_tail(&hca->xrc->reports, &report->node);
	lock_give(&hca->xrc->lock);
	control_wake(hca);
}

void xrc_report(struct hca *hca, uint32_t qpn, uint32_t epoch, uint32_t event)
{
	const struct proto_xrc_report body = {.qpn = qpn, .epoch = epoch, .event = event};

	report_queue(hca, &body, false);
}

void xrc_event(struct hca *hca, uint32_t qpn, uint32_t dispatcher, uint32_t event)
{
	const struct proto_xrc_report body = {.qpn = qpn};

	lock_take(&hca->engine);
	xrc_local_follow(hca, qpn);
	bool any = tell_handles(hca, qpn, event);

	if (!mcast_xrc_find(hca, qpn))
		xrc_wire_ended(hca, qpn);
	bool known = xrc_wire_known(hca, qpn);

	engine_leave(hca);
	if (any || known || dispatcher == hca->slot)
		report_queue(hca, &body, true);
}

void xrc_follow(struct hca *hca, uint32_t qpn, const struct proto_xrc_state *is)
{
	lock_take(&hca->engine);
	list_for_each(node, &hca->xrc->handles) {
		struct xrc_handle *handle = container_of(node, struct xrc_handle, node);

		if (handle->qp->ibv.qp_num == qpn &&
		    (int32_t)(is->version - handle->is.version) >= 0)
			handle->is = *is;
	}
	xrc_local_follow(hca, qpn);
	xrc_wire_follow(hca, qpn, is);
	engine_leave(hca);
}

/* This process gets the packets of another slot's queue pairs from now on: takes that slot's
 * socket, unless it has it. */
static void take_socket(struct hca *hca, uint32_t slot)
{
	int fd;

	if (!hca_has_wire(hca) || roce_inherits(hca->roce, slot))
		return;
	books_enter(hca);
	int err = daemon_xrc_socket(&hca->conn, slot, &fd);

	books_leave(hca);
	if (!err)
		err = roce_inherit(hca->roce, slot, fd);
	/* ENOENT: another process gets them, or the last of those queue pairs is destroyed, since
	 * the daemon told this process. ENODEV: the daemon has no sockets, so there are no packets.
	 */
	if (err && err != -ENOENT && err != -ENODEV)
		log_warn("this process doesn't get the packets for XRC queue pairs of slot %u: %s",
			 slot, strerror(-err));
}

static struct xrc_report *report_next(struct hca *hca)
{
	lock_take(&hca->xrc->lock);
	struct list *node = list_pop(&hca->xrc->reports);

	lock_give(&hca->xrc->lock);
	return node ? container_of(node, struct xrc_report, node) : NULL;
}

void xrc_serve(struct hca *hca)
{
	struct proto_xrc_state state;
	struct xrc_report *report;

	while ((report = report_next(hca))) {
		uint32_t qpn = report->body.qpn;

		books_enter(hca);
		int err = report->query ? daemon_xrc_query(&hca->conn, 0, qpn, &state)
					: daemon_xrc_report(&hca->conn, &report->body);

		books_leave(hca);
		if (err == -EIO) { /* goes on with the next daemon, which wakes this thread */
			lock_take(&hca->xrc->lock);
			list_add_tail(&hca->xrc->reports, &report->node);
			lock_give(&hca->xrc->lock);
			return;
		}
		if (!err && report->query) {
			xrc_follow(hca, qpn, &state);
			if (state.dispatcher == hca->slot && qpn >> LIMIT_QP_BITS != hca->slot)
				take_socket(hca, qpn >> LIMIT_QP_BITS);
		}
		free(report);
	}
}
