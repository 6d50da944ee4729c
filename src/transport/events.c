/* SPDX-License-Identifier: BSD-2-Clause */
/* The order in which the owner gets waiting events, see events.h. */
#include "transport/events.h"

struct tp_event event_pull(struct events *e)
{
	uint32_t kind = e->waiting & -e->waiting; /* the lowest bit */

	if (kind == WAITS_COMPLETED && e->done + 1 != e->done_to)
		return (struct tp_event){
			.kind = TP_COMPLETED, .count = e->done++, .status = IBV_WC_SUCCESS};
	e->waiting &= ~kind;
	switch ((enum event_waits)kind) {
	case WAITS_ESTABLISHED:
		return (struct tp_event){.kind = TP_ESTABLISHED};
	case WAITS_COMPLETED:
		return (struct tp_event){
			.kind = TP_COMPLETED, .count = e->done, .status = IBV_WC_SUCCESS};
	case WAITS_FAILED:
		return (struct tp_event){
			.kind = TP_COMPLETED, .count = e->failed, .status = e->failed_status};
	case WAITS_DRAINED:
		return (struct tp_event){.kind = TP_DRAINED};
	case WAITS_RECEIVED:
		return (struct tp_event){
			.kind = TP_RECEIVED, .message = e->received, .status = e->received_status};
	default:
		return (struct tp_event){.kind = TP_REFUSED, .async = e->refused};
	}
}
